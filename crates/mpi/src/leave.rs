//! Ends the process at once. `std::process::exit` runs what libraries registered for the end; that
//! may wait for a thread which is stuck in an MPI or NCCL call because another rank is gone.

use std::ffi::c_int;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a rank that ends waits at least, so that the others can say why. On a busy machine a
/// thread may not run for some tenths of a second.
const LAST_WORDS: Duration = Duration::from_millis(500);

unsafe extern "C" {
    fn _exit(code: c_int) -> !;
}

/// Ends the process with this code from any thread, whatever the others are doing. Nothing is
/// written any more: files are as they are, and buffered output must have been flushed.
pub fn leave(code: i32) -> ! {
    // SAFETY: `_exit` is POSIX, has no condition and may be called at any time.
    unsafe { _exit(code) }
}

/// Ends the process as all other ranks do for the same reason. A launcher kills the others as soon
/// as one has ended. So all wait a moment, and then for a whole second of the clock: each has said
/// why by then, and ends by itself with its own code.
pub fn leave_together(code: i32) -> ! {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    std::thread::sleep(until_whole_second(now));
    leave(code)
}

/// The time until the first whole second that is not too early.
fn until_whole_second(now: Duration) -> Duration {
    let earliest = now + LAST_WORDS;
    match earliest.subsec_nanos() {
        0 => LAST_WORDS,
        past => LAST_WORDS + Duration::from_secs(1) - Duration::from_nanos(u64::from(past)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_wait_for_the_same_second() {
        for (now, end) in [(0, 1000), (1, 1000), (499, 1000), (500, 1000), (501, 2000), (999, 2000)]
        {
            let now = Duration::from_millis(now);
            assert_eq!(now + until_whole_second(now), Duration::from_millis(end), "{now:?}");
        }
    }
}
