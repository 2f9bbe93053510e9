//! Ctrl-C, SIGTERM and SIGHUP: the first asks the run to stop after its step, the second leaves at
//! once.

use crate::screen;
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// While a question waits for its answer nothing has begun: a signal leaves at once.
static IS_ASKING: AtomicBool = AtomicBool::new(false);

/// The flag that a signal sets. Where signals cannot be caught, they end the process as ever.
pub fn catch(message: &'static str) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let caught = ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::Relaxed) || IS_ASKING.load(Ordering::Relaxed) {
            std::process::exit(130);
        }
        // A terminal shows "^C" where the cursor is, at the end of the bar.
        let start = if screen::is_terminal() { "\n" } else { "" };
        screen::note(&format!("{start}{message}"));
    });
    if let Err(error) = caught {
        screen::note(&format!("note: Ctrl-C will not save: {error}"));
    }
    stop
}

/// Reads a line from whoever sits at the terminal. A signal meanwhile ends the process.
pub fn answer() -> std::io::Result<String> {
    let mut line = String::new();
    IS_ASKING.store(true, Ordering::Relaxed);
    let read = std::io::stdin().lock().read_line(&mut line);
    IS_ASKING.store(false, Ordering::Relaxed);
    read.map(|_| line)
}
