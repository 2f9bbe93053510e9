//! Ctrl-C, SIGTERM and SIGHUP: the first asks the run to stop after its step, the second exits at
//! once.

use crate::screen;
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set while nothing has started that could be saved: a signal exits at once.
static NOTHING_TO_SAVE: AtomicBool = AtomicBool::new(false);

/// Returns the flag that a signal sets. If signals cannot be caught, they end the process as usual.
pub fn catch(message: &'static str) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let caught = ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::Relaxed) || NOTHING_TO_SAVE.load(Ordering::Relaxed) {
            // Not `process::exit`, which may wait for a thread that waits for other ranks.
            mpi::leave(130);
        }
        if screen::is_silent() {
            return; // the first rank says it
        }
        // The terminal prints "^C" at the cursor, which is at the end of the progress bar.
        let start = if screen::is_terminal() { "\n" } else { "" };
        screen::note(&format!("{start}{message}"));
    });
    if let Err(error) = caught {
        screen::note(&format!("note: Ctrl-C will end the run without saving: {error}"));
    }
    stop
}

/// Reads a line that the user types. A signal during that time ends the process.
pub fn answer() -> std::io::Result<String> {
    let mut line = String::new();
    nothing_to_save(|| std::io::stdin().lock().read_line(&mut line)).map(|_| line)
}

/// Does something before the run has started. A signal during that time ends the process. Calls may
/// be nested.
pub fn nothing_to_save<T>(work: impl FnOnce() -> T) -> T {
    let before = NOTHING_TO_SAVE.swap(true, Ordering::Relaxed);
    let done = work();
    NOTHING_TO_SAVE.store(before, Ordering::Relaxed);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_inner_call_leaves_the_outer_one_on() {
        let is_on = || NOTHING_TO_SAVE.load(Ordering::Relaxed);
        let after_inner = nothing_to_save(|| {
            assert!(nothing_to_save(is_on));
            is_on()
        });
        assert!(after_inner);
        assert!(!is_on());
    }
}
