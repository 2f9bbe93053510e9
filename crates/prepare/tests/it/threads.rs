//! A system that starts no thread: an error with the next move, no panic.

use crate::fixture::{Place, alone, run};

/// So large a stack is to be had nowhere: each thread fails to start, as it would where the number
/// of processes is limited, and for every user.
const STACK: &str = "1152921504606846976";

#[test]
fn no_thread_is_an_error() {
    const NAME: &str = "RUST_MIN_STACK";
    if std::env::var(NAME).is_ok_and(|set| set == STACK) {
        let place = Place::new("no-thread");
        let source = place.write("a.txt", "word ".repeat(100).as_bytes());
        let message = run(place.request(&source, "out")).unwrap_err().to_string();
        return println!("<{message}>");
    }
    let text = alone("threads::no_thread_is_an_error", &[(NAME, STACK)]);
    assert!(text.contains("<cannot start another thread"), "{text}");
    assert!(text.contains("ulimit -u"), "{text}");
    assert!(!text.contains("panicked"), "{text}");
}
