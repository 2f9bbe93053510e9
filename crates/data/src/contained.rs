//! Turns panics in libraries into errors that carry the panic's message and print nothing.
//!
//! Swapping the panic hook around a call would affect every thread. So one hook is installed once;
//! it checks a flag of its own thread and passes all other panics to the previous hook.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static IS_CONTAINED: Cell<bool> = const { Cell::new(false) };
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `work`; if it panics, returns the panic's message. The caller must not use anything that
/// `work` was modifying afterwards.
///
/// # Errors
///
/// The panic's message.
pub fn contained<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            if !IS_CONTAINED.get() {
                return before(info);
            }
            let said = info.payload_as_str().unwrap_or("no reason was given");
            let line: String = said.lines().next().unwrap_or_default().chars().take(200).collect();
            SAID.with_borrow_mut(|kept| *kept = line);
        }));
    });
    let outer = IS_CONTAINED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_CONTAINED.set(outer);
    result.map_err(|_| SAID.take())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_and_the_next_call_works() {
        assert_eq!(contained(|| 1), Ok(1));
        let nested = contained(|| contained(|| -> u8 { panic!("inner {}", 2) }));
        assert_eq!(nested, Ok(Err("inner 2".to_owned())));
        let index = std::hint::black_box(9);
        let said = contained(|| [1, 2][index]).unwrap_err();
        assert!(said.contains("out of bounds"), "{said}");
        assert!(!IS_CONTAINED.get());
        assert_eq!(contained(|| 3), Ok(3));
    }
}
