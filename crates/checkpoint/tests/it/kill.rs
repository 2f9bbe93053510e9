//! kill -9 at any moment: the test kills a process that saves without pause, again and again. The
//! file on disk must always be one whole checkpoint that the process saved.

use crate::fixture::{TempDir, rerun};
use fitgpt_checkpoint::{Dtype, Reader, TensorInfo, link_best, save};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const CHILD: &str = "FITGPT_CHECKPOINT_KILL_CHILD";
const KILLS: u32 = 20;

fn tensors() -> [TensorInfo; 3] {
    [("weights/a", 400_000), ("m/a", 100_000), ("state", 3)]
        .map(|(name, extent)| TensorInfo::new(name, Dtype::F32, &[extent]))
}

fn fill(version: u64, index: usize, content: &mut [u8]) {
    let mut word = version.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(index as u64);
    for bytes in content.chunks_mut(8) {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
}

/// The version of a checkpoint; panics unless the whole file has that version.
fn version(path: &Path) -> u64 {
    let reader = Reader::open(path).unwrap();
    let version = reader.document().parse().unwrap();
    assert_eq!(reader.tensors(), tensors());
    for (index, tensor) in reader.tensors().iter().enumerate() {
        let mut content = vec![0; tensor.bytes().unwrap() as usize];
        let mut want = content.clone();
        reader.read(index, &mut content).unwrap();
        fill(version, index, &mut want);
        assert!(content == want, "{} is not of version {version}", tensor.name);
    }
    version
}

/// Saves for ever, only in the process that the test below starts.
#[test]
fn child() {
    let Some(directory) = std::env::var_os(CHILD).map(PathBuf::from) else {
        return;
    };
    let [last, best] = ["last", "best"].map(|name| directory.join(name));
    let mut buffer = vec![0; 1_600_000];
    let first = if last.exists() { version(&last) + 1 } else { 1 };
    for version in first.. {
        save(&last, &version.to_string(), &tensors(), &mut buffer, |index, content| {
            fill(version, index, content);
            Ok::<(), String>(())
        })
        .unwrap();
        println!("\nlast {version}");
        if version % 3 == 0 {
            link_best(&last, &best).unwrap();
            println!("best {version}");
        }
    }
}

/// The newest versions that a child reported as saved.
#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    last: u64,
    best: u64,
}

impl Reported {
    fn take(&mut self, line: &str) {
        match line.split_once(' ') {
            Some(("last", version)) => self.last = version.parse().unwrap(),
            Some(("best", version)) => self.best = version.parse().unwrap(),
            Some(_) | None => {}
        }
    }
}

/// Starts a child, kills it at some moment after its first save, and returns what it reported.
fn kill_one(dir: &TempDir, random: u32, mut reported: Reported) -> Reported {
    let mut child = rerun("kill::child", CHILD, &dir.0).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = reported.last + 1;
    while reported.last < first {
        reported.take(&lines.next().unwrap().unwrap());
    }
    std::thread::sleep(Duration::from_micros(u64::from(random >> 16)));
    child.kill().unwrap();
    child.wait().unwrap();
    lines.for_each(|line| reported.take(&line.unwrap()));
    reported
}

#[test]
fn a_killed_save_costs_nothing_that_was_saved() {
    let dir = TempDir::new("kill");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut random = now.subsec_nanos();
    println!("seed {random}");
    let mut interrupted = 0;
    let mut reported = Reported::default();
    for kill in 1..=KILLS {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        reported = kill_one(&dir, random, reported);
        // The child may have finished one more save without reporting it.
        let last = version(&dir.file("last"));
        let saved = reported.last..=reported.last + 1;
        assert!(saved.contains(&last), "kill {kill}: last is {last}, {reported:?}");
        if dir.file("best").exists() || reported.best > 0 {
            let best = version(&dir.file("best"));
            let linked = best == reported.best || (best == reported.last && best.is_multiple_of(3));
            assert!(linked, "kill {kill}: best is {best}, {reported:?}");
            reported.best = best;
        }
        reported.last = last;
        interrupted += u32::from(dir.names().iter().any(|name| is_temporary(name)));
    }
    println!("{} versions, {interrupted} of {KILLS} kills left a temporary file", reported.last);
    assert!(interrupted > 0, "no kill hit a save");
}

fn is_temporary(name: &OsStr) -> bool {
    name.to_string_lossy().contains(".tmp-")
}
