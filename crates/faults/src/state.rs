//! The settings from the environment, the number of counted calls, and the open files.

use crate::real::{self, c_char, c_int};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// What happens to a call.
pub enum Verdict {
    /// It runs normally.
    Pass,
    /// It does only half of its work.
    Short,
    /// It fails with this `errno`.
    Fail(c_int),
}

/// What a call does.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// It changes or opens a file, or changes a name.
    Change,
    /// It writes, which is also a change.
    Write,
    /// It reads.
    Read,
}

enum Fault {
    Kill,
    Short,
    Hang,
    Error(c_int),
}

struct Settings {
    /// Absolute, without a slash at its end.
    root: Vec<u8>,
    /// The folder that relative paths start from.
    here: Vec<u8>,
    at: u64,
    fault: Fault,
    /// Which calls count.
    of: Kind,
    record: Option<c_int>,
    /// Receives one byte when the fault happens.
    fired: Option<c_int>,
}

/// A file that was opened under the root.
#[derive(Clone, Copy)]
pub struct File {
    /// Its number in the order of opening.
    pub number: u64,
    /// Whether it was opened for appending.
    pub appends: bool,
}

static COUNTED: AtomicU64 = AtomicU64::new(0);
static OPENED: AtomicU64 = AtomicU64::new(0);
static FILES: Mutex<Vec<Option<File>>> = Mutex::new(Vec::new());
static CALLS: Mutex<()> = Mutex::new(());

fn settings() -> Option<&'static Settings> {
    static SETTINGS: OnceLock<Option<Settings>> = OnceLock::new();
    SETTINGS.get_or_init(read).as_ref()
}

fn read() -> Option<Settings> {
    let text = |name: &str| std::env::var_os(name).map(OsStringExt::into_vec);
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let root = text("FITGPT_FAULTS_ROOT")?;
    let here = std::env::current_dir().ok()?.into_os_string().into_vec();
    let fault = match std::env::var("FITGPT_FAULTS_DO").ok()?.as_str() {
        "kill" => Fault::Kill,
        "short" => Fault::Short,
        "hang" => Fault::Hang,
        error => Fault::Error(error.parse().ok()?),
    };
    let of = match std::env::var("FITGPT_FAULTS_OF").as_deref() {
        Ok("reads") => Kind::Read,
        Ok("writes") => Kind::Write,
        _ => Kind::Change,
    };
    let file = |name: &str| {
        let path = CString::new(text(name)?).ok()?;
        Some(real::open_to_append(&path)).filter(|fd| *fd >= 0)
    };
    let (record, fired) = (file("FITGPT_FAULTS_RECORD"), file("FITGPT_FAULTS_FIRED"));
    let at = number("FITGPT_FAULTS_AT").unwrap_or(0);
    Some(Settings { root, here, at, fault, of, record, fired })
}

/// Held during a counted call and its recording, so that the record is in the order of the calls.
pub fn lock() -> MutexGuard<'static, ()> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a call and decides what happens to it. Errors, kills and hangs are reported as fired
/// here. A short read or write is reported by the call itself, because only its result shows
/// whether it was really shortened.
pub fn judge(kind: Kind) -> Verdict {
    let counts = |settings: &&Settings| {
        settings.of == kind || (settings.of == Kind::Change && kind == Kind::Write)
    };
    let Some(settings) = settings().filter(counts) else { return Verdict::Pass };
    let number = COUNTED.fetch_add(1, Ordering::SeqCst) + 1;
    if number != settings.at {
        return Verdict::Pass;
    }
    match settings.fault {
        Fault::Kill => {
            fired();
            real::die();
            Verdict::Pass
        }
        Fault::Short => Verdict::Short,
        // The caller holds the lock: later calls under the root hang too, as on a dead disk.
        Fault::Hang => {
            fired();
            loop {
                std::thread::sleep(Duration::from_secs(3600));
            }
        }
        Fault::Error(error) => {
            fired();
            Verdict::Fail(error)
        }
    }
}

/// Reports that the fault happened.
pub fn fired() {
    if let Some(fd) = settings().and_then(|settings| settings.fired) {
        real::write_all(fd, b"!");
    }
}

/// Whether reads are counted.
pub fn counts_reads() -> bool {
    settings().is_some_and(|settings| settings.of == Kind::Read)
}

/// Where the record goes.
pub fn record_fd() -> Option<c_int> {
    settings()?.record
}

/// The caller's path relative to the root, without a leading slash; `None` if it is outside.
pub fn path_of(path: *const c_char) -> Option<Vec<u8>> {
    let settings = settings()?;
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller gives a path as libc's functions want it: it ends in a zero byte.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let whole = match path.first() {
        Some(b'/') => path.to_vec(),
        _ => [settings.here.as_slice(), b"/", path].concat(),
    };
    let parts = whole.split(|byte| *byte == b'/').filter(|part| !matches!(part, [] | [b'.']));
    let whole: Vec<u8> = parts.flat_map(|part| [b"/", part].concat()).collect();
    let below = whole.strip_prefix(settings.root.as_slice())?;
    match below {
        [] => Some(Vec::new()),
        [b'/', rest @ ..] => Some(rest.to_vec()),
        _ => None,
    }
}

fn files() -> MutexGuard<'static, Vec<Option<File>>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers an open file; returns its number.
pub fn open(fd: c_int, appends: bool) -> u64 {
    let number = OPENED.fetch_add(1, Ordering::SeqCst) + 1;
    let mut files = files();
    let place = fd.max(0) as usize;
    if files.len() <= place {
        files.resize(place + 1, None);
    }
    files[place] = Some(File { number, appends });
    number
}

/// The file of a descriptor, if it was opened under the root.
pub fn file(fd: c_int) -> Option<File> {
    files().get(usize::try_from(fd).ok()?).copied().flatten()
}

/// Forgets a descriptor.
pub fn closed(fd: c_int) {
    let mut files = files();
    if let Some(place) = usize::try_from(fd).ok().and_then(|at| files.get_mut(at)) {
        *place = None;
    }
}
