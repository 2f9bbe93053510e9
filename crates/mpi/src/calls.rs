//! MPI's functions as safe calls: buffers are slices, an error code is an error with the call's
//! name and MPI's own text. The one place that hands addresses to MPI.

use crate::abi::{
    Api, BYTE, COMM_WORLD, Count, ERRORS_RETURN, Handle, IN_PLACE, MAX_ERROR_STRING,
    MAX_LIBRARY_VERSION_STRING, SUCCESS, THREAD_SERIALIZED,
};
use plan::BackendError;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

/// How the bytes of a buffer are divided among ranks. Made once, filled before each call.
#[derive(Debug)]
pub struct Pieces {
    counts: Vec<Count>,
    starts: Vec<isize>,
    total: usize,
}

impl Pieces {
    /// Room for this many ranks.
    pub fn new(ranks: usize) -> Pieces {
        Pieces { counts: vec![0; ranks], starts: vec![0; ranks], total: 0 }
    }

    /// One piece after the other. The error is the sum that does not fit.
    pub fn set(&mut self, lengths: impl IntoIterator<Item = usize>) -> Result<(), BackendError> {
        let mut start = 0isize;
        let mut lengths = lengths.into_iter();
        for (count, place) in self.counts.iter_mut().zip(&mut self.starts) {
            let length = lengths.next().and_then(|length| isize::try_from(length).ok());
            let end = length.and_then(|length| start.checked_add(length));
            let (Some(length), Some(end)) = (length, end) else {
                let what = "MPI: the pieces of a buffer are not one for each rank".to_owned();
                return Err(BackendError::Internal { what });
            };
            (*count, *place, start) = (length as Count, start, end);
        }
        if lengths.next().is_some() {
            let what = format!("MPI: more pieces than {} ranks", self.counts.len());
            return Err(BackendError::Internal { what });
        }
        self.total = start as usize;
        Ok(())
    }

    /// Refuses a buffer of another length than the pieces have together.
    fn expect(&self, call: &str, bytes: usize) -> Result<(), BackendError> {
        if bytes == self.total {
            return Ok(());
        }
        let what = format!("{call}: a buffer of {bytes} bytes for pieces of {}", self.total);
        Err(BackendError::Internal { what })
    }
}

/// An initialised MPI.
pub struct Calls {
    api: Api,
    /// Addresses for empty buffers. That of an empty slice is 1, which is `MPI_IN_PLACE`.
    nothing: [u8; 2],
}

fn world() -> Handle {
    COMM_WORLD as Handle
}

fn byte() -> Handle {
    BYTE as Handle
}

impl Calls {
    /// Calls `MPI_Init_thread`. Until then MPI itself ends the process on an error.
    pub fn initialise(api: Api) -> Result<Calls, BackendError> {
        let calls = Calls { api, nothing: [0; 2] };
        let mut already: c_int = 0;
        // SAFETY: may be called before MPI is initialised; it writes one integer.
        let code = unsafe { (calls.api.MPI_Initialized)(&mut already) };
        calls.checked("MPI_Initialized", code)?;
        if already != 0 {
            let what = "MPI is already initialised in this process".to_owned();
            return Err(BackendError::Internal { what });
        }
        let mut provided: c_int = 0;
        // SAFETY: both pointers to arguments may be null; it writes one integer.
        let code = unsafe {
            let (none, no_list) = (null_mut(), null_mut());
            (calls.api.MPI_Init_thread)(none, no_list, THREAD_SERIALIZED, &mut provided)
        };
        calls.checked("MPI_Init_thread", code)?;
        // SAFETY: both are handles of the ABI.
        let code = unsafe { (calls.api.MPI_Comm_set_errhandler)(world(), ERRORS_RETURN as Handle) };
        calls.checked("MPI_Comm_set_errhandler", code)?;
        if provided < THREAD_SERIALIZED {
            let path = calls.path();
            let what = format!("the MPI at {path} was built without threads; use another one");
            return Err(BackendError::Refused { what });
        }
        Ok(calls)
    }

    /// Where the library is.
    pub fn path(&self) -> &str {
        self.api.library.path()
    }

    /// This rank and their number.
    pub fn rank_and_size(&self) -> Result<(usize, usize), BackendError> {
        let (mut rank, mut size): (c_int, c_int) = (0, 0);
        // SAFETY: each writes one integer.
        let code = unsafe { (self.api.MPI_Comm_rank)(world(), &mut rank) };
        self.checked("MPI_Comm_rank", code)?;
        // SAFETY: as above.
        let code = unsafe { (self.api.MPI_Comm_size)(world(), &mut size) };
        self.checked("MPI_Comm_size", code)?;
        match (usize::try_from(rank), usize::try_from(size)) {
            (Ok(rank), Ok(size)) if rank < size => Ok((rank, size)),
            _ => Err(BackendError::Device { what: format!("MPI: rank {rank} of {size}") }),
        }
    }

    /// What the library calls itself.
    pub fn version(&self) -> Result<String, BackendError> {
        let mut text: [c_char; MAX_LIBRARY_VERSION_STRING] = [0; MAX_LIBRARY_VERSION_STRING];
        let mut length: c_int = 0;
        // SAFETY: the ABI fixes how long the text may be.
        let code = unsafe { (self.api.MPI_Get_library_version)(text.as_mut_ptr(), &mut length) };
        self.checked("MPI_Get_library_version", code)?;
        Ok(line(&text, length))
    }

    /// Waits for all ranks.
    pub fn barrier(&self) -> Result<(), BackendError> {
        // SAFETY: a handle of the ABI.
        let code = unsafe { (self.api.MPI_Barrier)(world()) };
        self.checked("MPI_Barrier", code)
    }

    /// Copies the buffer of `root` to the others.
    pub fn broadcast(&mut self, root: usize, buffer: &mut [u8]) -> Result<(), BackendError> {
        let root = root as c_int;
        let (count, to) = (buffer.len() as Count, self.written(buffer));
        // SAFETY: `to` has `count` bytes, which nobody else uses during the call.
        let code = unsafe { (self.api.MPI_Bcast_c)(to, count, byte(), root, world()) };
        self.checked("MPI_Bcast", code)
    }

    /// Copies the piece of each rank to all others.
    pub fn all_gather(&mut self, buffer: &mut [u8], pieces: &Pieces) -> Result<(), BackendError> {
        pieces.expect("MPI_Allgatherv", buffer.len())?;
        let to = self.written(buffer);
        let from = IN_PLACE as *const c_void;
        let (counts, starts) = (pieces.counts.as_ptr(), pieces.starts.as_ptr());
        // SAFETY: `to` has the bytes of all pieces, as was checked, and nobody else uses them; the
        // lists have one entry for each rank. What is sent is in its place.
        let code = unsafe {
            let call = self.api.MPI_Allgatherv_c;
            call(from, 0, byte(), to, counts, starts, byte(), world())
        };
        self.checked("MPI_Allgatherv", code)
    }

    /// Sends each rank its piece of `send`; receives what `rows` says.
    pub fn all_to_all(
        &mut self,
        send: &[u8],
        pieces: &Pieces,
        received: &mut [u8],
        rows: &Pieces,
    ) -> Result<(), BackendError> {
        pieces.expect("MPI_Alltoallv", send.len())?;
        rows.expect("MPI_Alltoallv", received.len())?;
        let to = self.written(received);
        let from = self.read(send);
        let (counts, starts) = (pieces.counts.as_ptr(), pieces.starts.as_ptr());
        let (row_counts, row_starts) = (rows.counts.as_ptr(), rows.starts.as_ptr());
        // SAFETY: both buffers have the bytes of their pieces, as was checked; they are different,
        // because one is borrowed mutably; the lists have one entry for each rank.
        let code = unsafe {
            let call = self.api.MPI_Alltoallv_c;
            call(from, counts, starts, byte(), to, row_counts, row_starts, byte(), world())
        };
        self.checked("MPI_Alltoallv", code)
    }

    /// Ends all ranks.
    pub fn abort(&self, code: i32) -> ! {
        // SAFETY: a handle of the ABI; it does not return, but is not trusted with that.
        unsafe { (self.api.MPI_Abort)(world(), code) };
        crate::leave(code)
    }

    /// Ends MPI in an orderly way. No other call may follow.
    pub fn finalise(&self) -> Result<(), BackendError> {
        // SAFETY: MPI was initialised, and whoever calls this drops `self` next.
        let code = unsafe { (self.api.MPI_Finalize)() };
        self.checked("MPI_Finalize", code)
    }

    fn written(&mut self, buffer: &mut [u8]) -> *mut c_void {
        let nothing = &mut self.nothing[0];
        if buffer.is_empty() {
            std::ptr::from_mut(nothing).cast()
        } else {
            buffer.as_mut_ptr().cast()
        }
    }

    fn read(&self, buffer: &[u8]) -> *const c_void {
        let nothing = &self.nothing[1];
        if buffer.is_empty() { std::ptr::from_ref(nothing).cast() } else { buffer.as_ptr().cast() }
    }

    fn checked(&self, call: &str, code: c_int) -> Result<(), BackendError> {
        if code == SUCCESS {
            return Ok(());
        }
        let mut text: [c_char; MAX_ERROR_STRING] = [0; MAX_ERROR_STRING];
        let mut length: c_int = 0;
        // SAFETY: the ABI fixes how long the text may be.
        let said = unsafe { (self.api.MPI_Error_string)(code, text.as_mut_ptr(), &mut length) };
        let text = if said == SUCCESS { line(&text, length) } else { String::new() };
        let text = if text.is_empty() { "no text".to_owned() } else { text };
        Err(BackendError::Device { what: format!("{call}: {text} (error {code})") })
    }
}

/// A text of MPI on one line.
fn line(text: &[c_char], length: c_int) -> String {
    let length = usize::try_from(length).unwrap_or(0).min(text.len());
    let bytes: Vec<u8> = text[..length].iter().map(|&c| c as u8).take_while(|&b| b != 0).collect();
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_one_another() {
        let mut pieces = Pieces::new(3);
        pieces.set([5, 0, 7]).unwrap();
        assert_eq!((&pieces.counts[..], &pieces.starts[..]), (&[5, 0, 7][..], &[0, 5, 5][..]));
        assert!(pieces.expect("x", 12).is_ok());
        let said = pieces.expect("MPI_Bcast", 11).unwrap_err().to_string();
        assert!(said.contains("MPI_Bcast: a buffer of 11 bytes for pieces of 12"), "{said}");
    }

    #[test]
    fn pieces_that_do_not_fit_are_refused() {
        for lengths in
            [&[1, 2][..], &[1, 2, 3, 4], &[usize::MAX, 0, 0], &[isize::MAX as usize, 1, 0]]
        {
            assert!(Pieces::new(3).set(lengths.iter().copied()).is_err(), "{lengths:?}");
        }
    }

    #[test]
    fn a_text_is_one_line() {
        let text: Vec<c_char> =
            b"Fatal error:\n  at x\r\n\0rubbish".iter().map(|&b| b as c_char).collect();
        assert_eq!(line(&text, 500), "Fatal error:; at x");
        assert_eq!(line(&text, -1), "");
    }
}
