//! A small, safe subset of Python's pickle: plain values, read and written.
//!
//! A pickle is a program for a stack machine. This one builds None, booleans, numbers, strings,
//! bytes, lists, tuples, dicts and sets, and refuses every instruction that would import, call or
//! build anything else, by its name. So reading a file from a stranger executes nothing, and its
//! limits ([`Limits`]) bound the memory and the depth that any input can ask for.

#![forbid(unsafe_code)]

mod error;
mod limits;
mod value;

mod opcodes;

mod bytes;
mod heap;
mod machine;
mod text;

mod write;

pub use error::PickleError;
pub use limits::Limits;
pub use value::Value;
pub use write::write;

/// The value that Python's `pickle.loads` would give, within [`Limits::default`].
///
/// Protocols 0 to 5. As in Python, bytes after the end of the pickle are not looked at.
///
/// # Errors
///
/// When the bytes are no whole pickle, need more than plain values, or exceed a limit.
pub fn parse(input: &[u8]) -> Result<Value, PickleError> {
    parse_within(input, &Limits::default())
}

/// As [`parse`], within limits of the caller's choice.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_within(input: &[u8], limits: &Limits) -> Result<Value, PickleError> {
    machine::run(input, limits)
}
