//! The ranks of a run that MPI connects: starts MPI, moves bytes, ends it.

use crate::abi::Api;
use crate::calls::{Calls, Pieces};
use crate::finder;
use plan::{BackendError, Exchange};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// The longest message of [`World::share`].
pub const LONGEST_MESSAGE: usize = 1 << 20;

/// All ranks. Dropping it ends MPI once [`finished`] was called, unless a call failed: then the
/// others may be gone, and the end would wait for them. Use and drop it on the thread that made
/// it, or on one at a time.
pub struct World {
    calls: Calls,
    rank: usize,
    ranks: usize,
    /// What goes to each rank, and what comes from each.
    pieces: Pieces,
    rows: Pieces,
    message: Vec<u8>,
    failed: bool,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {} by MPI at {}", self.rank, self.ranks, self.calls.path())
    }
}

impl World {
    /// Loads MPI and starts it, once in a process.
    ///
    /// # Errors
    /// There is no MPI with the standard ABI, it is too old, or it does not start.
    pub fn start() -> Result<World, BackendError> {
        let refused =
            |error: library::LibraryError| BackendError::Refused { what: error.to_string() };
        let api = Api::load(finder::find()?).map_err(refused)?;
        let calls = Calls::initialise(api)?;
        let (rank, ranks) = calls.rank_and_size()?;
        let (pieces, rows) = (Pieces::new(ranks), Pieces::new(ranks));
        Ok(World { calls, rank, ranks, pieces, rows, message: Vec::new(), failed: false })
    }

    /// Starts MPI where a launcher has said which rank this is.
    ///
    /// # Errors
    /// As [`World::start`]; or MPI counts otherwise, because the launcher is not its own.
    pub fn start_as(rank: usize, ranks: usize) -> Result<World, BackendError> {
        let world = World::start()?;
        if (world.rank, world.ranks) == (rank, ranks) {
            return Ok(world);
        }
        let own = match finder::mpiexec() {
            Some(file) => format!(": {}", file.display()),
            None => String::new(),
        };
        let what = format!(
            "the launcher says rank {rank} of {ranks}, MPI at {} says {} of {}; start the run with \
             the mpiexec of that MPI{own}",
            world.calls.path(),
            world.rank,
            world.ranks
        );
        finished(); // all ranks come to this
        Err(BackendError::Refused { what })
    }

    /// Where the library is.
    pub fn path(&self) -> &str {
        self.calls.path()
    }

    /// What the library calls itself, on one line.
    ///
    /// # Errors
    /// MPI's.
    pub fn version(&mut self) -> Result<String, BackendError> {
        let version = self.calls.version();
        self.note(version)
    }

    /// Waits until all ranks are here.
    ///
    /// # Errors
    /// MPI's.
    pub fn barrier(&mut self) -> Result<(), BackendError> {
        let done = self.calls.barrier();
        self.note(done)
    }

    /// Gives all ranks the message of rank `root`; what the others pass does not count.
    ///
    /// # Errors
    /// MPI's, or the message is longer than [`LONGEST_MESSAGE`].
    pub fn share(&mut self, root: usize, message: &[u8]) -> Result<&[u8], BackendError> {
        let mut length = (message.len() as u64).to_le_bytes();
        self.broadcast(root, &mut length)?;
        // All ranks come to the same decision, so that none waits for the others.
        let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > LONGEST_MESSAGE {
            let what = format!("MPI: a message of {length} bytes; at most {LONGEST_MESSAGE}");
            return Err(BackendError::Internal { what });
        }
        let mut buffer = std::mem::take(&mut self.message);
        buffer.clear();
        buffer.resize(length, 0);
        if self.rank == root {
            buffer.copy_from_slice(message);
        }
        let done = self.broadcast(root, &mut buffer);
        self.message = buffer;
        done?;
        Ok(&self.message)
    }

    /// Ends all ranks of the run with this code. Only where no thread is inside MPI; else let this
    /// process end with [`crate::leave()`], which the launcher notices.
    pub fn abort(&self, code: i32) -> ! {
        self.calls.abort(code)
    }

    fn note<T>(&mut self, done: Result<T, BackendError>) -> Result<T, BackendError> {
        self.failed |= matches!(done, Err(BackendError::Device { .. }));
        done
    }
}

impl Exchange for World {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn all_to_all(
        &mut self,
        send: &[u8],
        pieces: &[usize],
        received: &mut [u8],
    ) -> Result<(), BackendError> {
        self.pieces.set(pieces.iter().copied())?;
        let row = pieces.get(self.rank).copied().unwrap_or(0);
        self.rows.set(std::iter::repeat_n(row, self.ranks))?;
        let done = self.calls.all_to_all(send, &self.pieces, received, &self.rows);
        self.note(done)
    }

    fn all_gather(&mut self, buffer: &mut [u8], pieces: &[usize]) -> Result<(), BackendError> {
        self.pieces.set(pieces.iter().copied())?;
        let done = self.calls.all_gather(buffer, &self.pieces);
        self.note(done)
    }

    fn broadcast(&mut self, root: usize, buffer: &mut [u8]) -> Result<(), BackendError> {
        if root >= self.ranks {
            let what = format!("MPI_Bcast: from rank {root} of {}", self.ranks);
            return Err(BackendError::Internal { what });
        }
        let done = self.calls.broadcast(root, buffer);
        self.note(done)
    }
}

/// Set when all ranks come to their end.
static FINISHED: AtomicBool = AtomicBool::new(false);

/// All ranks have done their work: from now on, dropping a [`World`] ends MPI. Before, it does not:
/// the end waits for all ranks, and those that still work wait for this one.
pub fn finished() {
    FINISHED.store(true, Ordering::Relaxed);
}

impl Drop for World {
    fn drop(&mut self) {
        let is_end = FINISHED.load(Ordering::Relaxed) && !self.failed;
        if is_end && !std::thread::panicking() {
            // The process ends soon; there is nobody left to tell.
            let _ = self.calls.finalise();
        }
    }
}
