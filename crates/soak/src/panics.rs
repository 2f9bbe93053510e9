//! Turns a panic into a message with its location, instead of lines on standard error.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, Once, PoisonError};

static LAST: Mutex<Option<String>> = Mutex::new(None);

/// Runs `work`. A panic in it, or in a thread that it waits for, becomes the error.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            let place = info.location().map_or_else(String::new, |place| format!(" at {place}"));
            let what = info.payload_as_str().unwrap_or("without a message");
            let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
            last.get_or_insert_with(|| format!("panicked{place}: {what}"));
        }));
    });
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = None;
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        let last = LAST.lock().unwrap_or_else(PoisonError::into_inner).take();
        last.unwrap_or_else(|| "panicked".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_reported_with_its_location() {
        let message = caught(|| panic!("on purpose")).unwrap_err();
        assert!(message.contains("panics.rs") && message.ends_with("on purpose"), "{message}");
        assert_eq!(caught(|| 5), Ok(5));
    }
}
