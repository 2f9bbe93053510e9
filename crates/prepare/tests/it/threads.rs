//! If the system cannot start a thread, the result is an error with the next move, not a panic.

use crate::fixture::{TempDir, alone, run};

/// A stack so large that no thread can start, on any system and for any user. It imitates a limit
/// on the number of processes.
const STACK: &str = "1152921504606846976";

#[test]
fn no_thread_is_an_error() {
    const NAME: &str = "RUST_MIN_STACK";
    if std::env::var(NAME).is_ok_and(|set| set == STACK) {
        let dir = TempDir::new("no-thread");
        let source = dir.write("a.txt", "word ".repeat(100).as_bytes());
        let message = run(dir.request(&source, "out")).unwrap_err().to_string();
        return println!("<{message}>");
    }
    let text = alone("threads::no_thread_is_an_error", &[(NAME, STACK)]);
    assert!(text.contains("<cannot start another thread"), "{text}");
    assert!(text.contains("ulimit -u"), "{text}");
    assert!(!text.contains("panicked"), "{text}");
}
