//! A small, safe subset of Python's pickle: plain values, read and written.
//!
//! A pickle is a program for a stack machine. This machine builds None, booleans, numbers, strings,
//! bytes, lists, tuples, dicts and sets. It refuses every instruction that would import, call or
//! build anything else, and names it. So reading an untrusted file executes nothing, and [`Limits`]
//! bounds the memory and the nesting depth that an input can demand. A caller that knows the names
//! of a format ([`parse_calls`]) gets the calls of these names as data, and calls nothing either.

#![forbid(unsafe_code)]

mod value;
mod limits;

mod machine;
mod opcodes;
mod bytes;
mod text;
mod heap;

mod write;

mod error;

pub use error::PickleError;
pub use limits::Limits;
pub use value::{Call, Value};
pub use write::{write, write_calls};

/// The value that Python's `pickle.loads` would return, within [`Limits::default`].
///
/// Reads protocols 0 to 5. As in Python, bytes after the end of the pickle are ignored.
///
/// # Errors
///
/// When the bytes are not a complete pickle, need more than plain values, or exceed a limit.
pub fn parse(input: &[u8]) -> Result<Value, PickleError> {
    parse_within(input, &Limits::default())
}

/// Like [`parse`], with the caller's limits.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_within(input: &[u8], limits: &Limits) -> Result<Value, PickleError> {
    machine::run(input, limits, &[])
}

/// Like [`parse_within`], for pickles that also use `names`, each a module and a name in it. A call
/// of one is a [`Value::Call`]; `collections.OrderedDict()` is a dict. Any other name is refused.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_calls(
    input: &[u8],
    limits: &Limits,
    names: &[(&str, &str)],
) -> Result<Value, PickleError> {
    machine::run(input, limits, names)
}
