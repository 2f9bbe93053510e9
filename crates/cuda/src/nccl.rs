//! NCCL, NVIDIA's library that moves bytes between GPUs: the table of its functions that we call,
//! and the communicator that joins the ranks of a run. A communicator that has failed is given up:
//! its kernels end, and every later call is refused with the first error.

use crate::context::DriverContext;
use crate::device::Gpu;
use crate::driver::Handle;
use crate::error::CudaError;
use crate::library::{Origin, Package, Wanted, function_table};
use crate::memory::DeviceMemory;
use plan::{Lane, Rank};
use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The library.
const NCCL: Wanted = Wanted {
    name: "NCCL (libnccl.so.2)",
    stem: "libnccl.so.2",
    majors: &[],
    before: &[],
    wheels: &["nccl/lib"],
    origin: Origin::Package(Package {
        cuda13: "nvidia-nccl-cu13",
        cuda12: "nvidia-nccl-cu12",
        elsewhere: "as the system's package libnccl2",
    }),
};

/// What rank 0 hands out to all ranks, so that they find each other.
pub type NcclId = [u8; 128];

/// As NCCL passes it: by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UniqueId(NcclId);

function_table! {
    /// The NCCL functions that we call.
    NcclApi {
        ncclGetVersion: fn(*mut i32) -> i32,
        ncclGetUniqueId: fn(*mut UniqueId) -> i32,
        ncclCommInitRank: fn(*mut Handle, i32, UniqueId, i32) -> i32,
        ncclCommDestroy: fn(Handle) -> i32,
        ncclCommAbort: fn(Handle) -> i32,
        ncclCommGetAsyncError: fn(Handle, *mut i32) -> i32,
        ncclGetErrorString: fn(i32) -> *const c_char,
        ncclGetLastError: fn(Handle) -> *const c_char,
        ncclGroupStart: fn() -> i32,
        ncclGroupEnd: fn() -> i32,
        ncclSend: fn(*const c_void, usize, i32, i32, Handle, Handle) -> i32,
        ncclRecv: fn(*mut c_void, usize, i32, i32, Handle, Handle) -> i32,
        ncclAllGather: fn(*const c_void, *mut c_void, usize, i32, Handle, Handle) -> i32,
        ncclBroadcast: fn(*const c_void, *mut c_void, usize, i32, i32, Handle, Handle) -> i32,
    }
}

/// NCCL's number for bytes, which is all that it moves for us.
const BYTES: i32 = 1;
const SUCCESS: i32 = 0;
const INVALID_ARGUMENT: i32 = 4;
const REMOTE_ERROR: i32 = 6;
const IN_PROGRESS: i32 = 7;

/// How long the end of a backend waits for what still travels.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the end of a communicator may take. NCCL may wait there for ranks that are gone.
const PATIENCE_AT_END: Duration = Duration::from_secs(10);
/// How long giving up waits for a call that is under way.
const PATIENCE_FOR_A_CALL: Duration = Duration::from_secs(2);

/// The loaded library.
pub struct Nccl {
    api: NcclApi,
    version: i32,
}

impl fmt::Debug for Nccl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NCCL {} at {}", self.version(), self.path())
    }
}

impl Nccl {
    /// Finds and loads the library.
    ///
    /// # Errors
    /// It is missing or too old; the message says what to install.
    pub fn load() -> Result<Arc<Nccl>, CudaError> {
        let mut nccl = Nccl { api: NcclApi::load(NCCL.find(None)?)?, version: 0 };
        let mut version = 0;
        // SAFETY: the pointer is to a local.
        let code = unsafe { (nccl.api.ncclGetVersion)(&raw mut version) };
        nccl.check("ncclGetVersion", code)?;
        nccl.version = version;
        Ok(Arc::new(nccl))
    }

    /// Its version: "2.27.7".
    pub fn version(&self) -> String {
        let (major, rest) = (self.version / 10_000, self.version % 10_000);
        format!("{major}.{}.{}", rest / 100, rest % 100)
    }

    /// Where it was found.
    pub fn path(&self) -> &str {
        self.api.library.path()
    }

    /// A new id. The process that makes it must be one of the ranks: NCCL listens there from now
    /// on.
    ///
    /// # Errors
    /// NCCL's.
    pub fn unique_id(&self) -> Result<NcclId, CudaError> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: the pointer is to a local of the library's size.
        let code = unsafe { (self.api.ncclGetUniqueId)(&raw mut id) };
        self.check("ncclGetUniqueId", code)?;
        Ok(id.0)
    }

    fn check(&self, call: &'static str, code: i32) -> Result<(), CudaError> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: a constant string of the library.
        let kind = unsafe { text((self.api.ncclGetErrorString)(code)) };
        // SAFETY: a string that the library keeps; it does not look at the communicator.
        let detail = unsafe { text((self.api.ncclGetLastError)(std::ptr::null_mut())) };
        let said = if detail.is_empty() { kind } else { format!("{kind}: {detail}") };
        Err(CudaError::Nccl { call, code, said })
    }
}

/// A string of the library on one line.
///
/// # Safety
/// Null, or a string that ends with NUL and does not change meanwhile.
unsafe fn text(from: *const c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(from) }.to_string_lossy();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

/// NCCL's own handle of a communicator.
struct Comm(Handle);

// SAFETY: any thread may use it, one at a time.
unsafe impl Send for Comm {}

struct State {
    /// None once it was given up.
    comm: Option<Comm>,
    /// Why it was given up.
    failed: Option<CudaError>,
    /// Says when it is gone.
    ended: Option<Receiver<()>>,
}

/// Joins the GPUs of a run, one for each rank. It may serve one backend after another.
pub struct Communicator {
    nccl: Arc<Nccl>,
    rank: Rank,
    state: Mutex<State>,
    context: Arc<DriverContext>,
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {} by {:?}", self.rank.rank, self.rank.ranks, self.nccl)
    }
}

impl Communicator {
    /// Joins the ranks that have the same id; waits until all are there, and makes each call once,
    /// because NCCL connects ranks at first use. What it takes of the GPU's memory is in
    /// [`Gpu::held_bytes`] afterwards, so join before a plan is made.
    ///
    /// # Errors
    /// NCCL's.
    pub fn join(
        gpu: &Gpu,
        nccl: &Arc<Nccl>,
        id: &NcclId,
        rank: Rank,
    ) -> Result<Arc<Communicator>, CudaError> {
        const CALL: &str = "ncclCommInitRank";
        let numbers = i32::try_from(rank.rank).ok().zip(i32::try_from(rank.ranks).ok());
        let valid = numbers.filter(|(rank, ranks)| rank < ranks);
        let Some((number, ranks)) = valid else {
            let said = format!("there is no rank {} of {}", rank.rank, rank.ranks);
            return Err(CudaError::Nccl { call: CALL, code: INVALID_ARGUMENT, said });
        };
        let context = gpu.context.clone();
        context.enter()?;
        let mut comm = std::ptr::null_mut();
        // SAFETY: the pointer is to a local; the GPU's context is current, which makes it NCCL's.
        let code =
            unsafe { (nccl.api.ncclCommInitRank)(&raw mut comm, ranks, UniqueId(*id), number) };
        nccl.check(CALL, code)?;
        let state = State { comm: Some(Comm(comm)), failed: None, ended: None };
        let state = Mutex::new(state);
        let communicator = Communicator { nccl: nccl.clone(), rank, state, context };
        communicator.meet()?;
        Ok(Arc::new(communicator))
    }

    /// Makes each kind of call once, on memory that is freed afterwards.
    fn meet(&self) -> Result<(), CudaError> {
        const PIECE: usize = 1 << 20;
        let pieces = vec![PIECE; self.rank.ranks];
        let half = (PIECE * pieces.len()) as u64;
        let scratch = DeviceMemory::new(&self.context, 2 * half)?;
        let stream = self.context.stream_of(Lane::Communication);
        let (send, received) = (scratch.address(), scratch.address() + half);
        // SAFETY: each half of the scratch has room for all pieces.
        unsafe {
            self.all_to_all(stream, (send, received), &pieces)?;
            self.all_gather(stream, send, &pieces)?;
            self.gather_uneven(stream, send, &pieces)?;
        }
        self.context.synchronize()?;
        self.check()
    }

    /// This rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Whether it still works. A failure that NCCL has noticed meanwhile ends it.
    ///
    /// # Errors
    /// Why it was given up.
    pub fn check(&self) -> Result<(), CudaError> {
        self.with(|api, comm| {
            let mut code = SUCCESS;
            // SAFETY: the communicator exists while the lock is held; the pointer is to a local.
            let asked = unsafe { (api.ncclCommGetAsyncError)(comm, &raw mut code) };
            self.nccl.check("ncclCommGetAsyncError", asked)?;
            match code {
                SUCCESS | IN_PROGRESS => Ok(()),
                code => self.nccl.check("NCCL between the ranks", code),
            }
        })
    }

    /// Ends it from any thread, also while the GPU waits for a rank that is gone: its kernels end,
    /// and every later call returns `why`. False if a call is under way that does not return, as
    /// while connections are made.
    pub fn abort(&self, why: &str) -> bool {
        let start = Instant::now();
        while start.elapsed() < PATIENCE_FOR_A_CALL {
            let state = match self.state.try_lock() {
                Ok(state) => Some(state),
                Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(std::sync::TryLockError::WouldBlock) => None,
            };
            if let Some(mut state) = state {
                let (call, said) = ("ncclCommAbort", why.to_string());
                self.give_up(&mut state, CudaError::Nccl { call, code: REMOTE_ERROR, said });
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes calls with the communicator; gives it up if one fails.
    fn with(
        &self,
        calls: impl FnOnce(&NcclApi, Handle) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let mut state = self.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let Some(Comm(comm)) = state.comm else { return Ok(()) };
        let made = calls(&self.nccl.api, comm);
        if let Err(error) = &made {
            self.give_up(&mut state, error.clone());
        }
        made
    }

    fn give_up(&self, state: &mut State, why: CudaError) {
        let first = state.failed.get_or_insert(why);
        debug_assert!(matches!(first, CudaError::Nccl { .. }), "{first}");
        if let Some(comm) = state.comm.take() {
            state.ended = self.end(comm, self.nccl.api.ncclCommAbort);
        }
    }

    /// Ends it on a thread of its own: NCCL waits there for graphs that still exist, and perhaps
    /// for ranks that are gone.
    fn end(&self, comm: Comm, how: unsafe extern "C" fn(Handle) -> i32) -> Option<Receiver<()>> {
        let (done, ended) = channel();
        let (nccl, context) = (self.nccl.clone(), self.context.clone());
        let work = move || {
            // The whole value moves, not the pointer in it.
            let comm = comm;
            let _ = context.enter();
            // SAFETY: taken out of the state, so nobody else uses it from now on.
            unsafe { how(comm.0) };
            let _ = done.send(());
            drop(nccl);
        };
        let started = std::thread::Builder::new().name("end of NCCL".to_string()).spawn(work);
        started.ok().map(|_| ended)
    }

    /// Waits until the GPU has done what it was given. A failure, or a rank that does not answer
    /// for a minute, ends the communicator, and so the wait.
    pub(crate) fn settle(&self, context: &DriverContext) {
        let start = Instant::now();
        let _ = context.enter();
        while !context.is_idle() && self.check().is_ok() {
            if start.elapsed() > PATIENCE {
                let seconds = PATIENCE.as_secs();
                self.abort(&format!("another rank has not answered for {seconds} s"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Makes calls that NCCL runs as one.
    fn group(
        &self,
        calls: impl FnOnce(&NcclApi, Handle) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        self.with(|api, comm| {
            // SAFETY: takes nothing.
            self.nccl.check("ncclGroupStart", unsafe { (api.ncclGroupStart)() })?;
            let made = calls(api, comm);
            // SAFETY: takes nothing. A group must end also where a call failed.
            let ended = self.nccl.check("ncclGroupEnd", unsafe { (api.ncclGroupEnd)() });
            made.and(ended)
        })
    }

    /// As [`plan::Exchange::all_to_all`], in the stream's order.
    ///
    /// # Safety
    /// The device has all pieces at `send` and a row for each rank at `received`. Both are ours.
    pub(crate) unsafe fn all_to_all(
        &self,
        stream: Handle,
        (send, received): (u64, u64),
        pieces: &[usize],
    ) -> Result<(), CudaError> {
        let own = pieces.get(self.rank.rank).copied().unwrap_or(0);
        self.group(|api, comm| {
            let (mut from, mut to) = (send, received);
            for (peer, &piece) in pieces.iter().enumerate() {
                // No rank sends nothing: the receiver expects nothing either.
                if piece > 0 {
                    let start = from as *const c_void;
                    // SAFETY: the caller's promise; the communicator exists.
                    let code =
                        unsafe { (api.ncclSend)(start, piece, BYTES, peer as i32, comm, stream) };
                    self.nccl.check("ncclSend", code)?;
                }
                if own > 0 {
                    let start = to as *mut c_void;
                    // SAFETY: as above.
                    let code =
                        unsafe { (api.ncclRecv)(start, own, BYTES, peer as i32, comm, stream) };
                    self.nccl.check("ncclRecv", code)?;
                }
                from += piece as u64;
                to += own as u64;
            }
            Ok(())
        })
    }

    /// As [`plan::Exchange::all_gather`], in the stream's order.
    ///
    /// # Safety
    /// The device has all pieces at `buffer`, and they are ours.
    pub(crate) unsafe fn all_gather(
        &self,
        stream: Handle,
        buffer: u64,
        pieces: &[usize],
    ) -> Result<(), CudaError> {
        let own = pieces.get(self.rank.rank).copied().unwrap_or(0);
        if own > 0 && pieces.iter().all(|&piece| piece == own) {
            let piece = buffer + (own * self.rank.rank) as u64;
            return self.with(|api, comm| {
                let (from, to) = (piece as *const c_void, buffer as *mut c_void);
                // SAFETY: the caller's promise; the communicator exists.
                let code = unsafe { (api.ncclAllGather)(from, to, own, BYTES, comm, stream) };
                self.nccl.check("ncclAllGather", code)
            });
        }
        // SAFETY: the caller's promise.
        unsafe { self.gather_uneven(stream, buffer, pieces) }
    }

    /// Pieces of any length, each sent by its rank to all.
    ///
    /// # Safety
    /// As [`Communicator::all_gather`].
    unsafe fn gather_uneven(
        &self,
        stream: Handle,
        buffer: u64,
        pieces: &[usize],
    ) -> Result<(), CudaError> {
        self.group(|api, comm| {
            let mut at = buffer;
            for (root, &piece) in pieces.iter().enumerate() {
                if piece > 0 {
                    let (from, to) = (at as *const c_void, at as *mut c_void);
                    // SAFETY: the caller's promise; the communicator exists.
                    let code = unsafe {
                        (api.ncclBroadcast)(from, to, piece, BYTES, root as i32, comm, stream)
                    };
                    self.nccl.check("ncclBroadcast", code)?;
                }
                at += piece as u64;
            }
            Ok(())
        })
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let mut state = self.lock();
        if let Some(comm) = state.comm.take() {
            state.ended = self.end(comm, self.nccl.api.ncclCommDestroy);
        }
        // If it takes longer, the thread is left to the end of the process.
        if let Some(ended) = state.ended.take() {
            let _ = ended.recv_timeout(PATIENCE_AT_END);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_several_lines_becomes_one() {
        // SAFETY: a constant string, and null.
        unsafe {
            assert_eq!(text(c"first\n\n second \n".as_ptr()), "first; second");
            assert_eq!(text(std::ptr::null()), "");
        }
    }

    #[test]
    fn an_error_names_the_call_and_what_nccl_said() {
        let said = "remote process exited".to_string();
        let error = CudaError::Nccl { call: "ncclGroupEnd", code: 6, said };
        assert_eq!(error.to_string(), "ncclGroupEnd: remote process exited (NCCL error 6)");
    }

    #[test]
    fn a_missing_library_names_its_packages() {
        let said = NCCL.install(None);
        assert!(said.contains("nvidia-nccl-cu13") && said.contains("nvidia-nccl-cu12"), "{said}");
    }
}
