//! Ctrl-C, SIGTERM and SIGHUP: the first asks the run to stop after its step, the second exits at
//! once.

use crate::screen;
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set while we wait for an answer: nothing has started yet, so a signal exits at once.
static IS_ASKING: AtomicBool = AtomicBool::new(false);

/// Returns the flag that a signal sets. If signals cannot be caught, they end the process as usual.
pub fn catch(message: &'static str) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let caught = ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::Relaxed) || IS_ASKING.load(Ordering::Relaxed) {
            std::process::exit(130);
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
    IS_ASKING.store(true, Ordering::Relaxed);
    let read = std::io::stdin().lock().read_line(&mut line);
    IS_ASKING.store(false, Ordering::Relaxed);
    read.map(|_| line)
}
