//! Why a pickle was refused: one line, with the offset of the instruction and the next move.

use std::fmt;

/// Why bytes are not a pickle of plain values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PickleError {
    /// The input ends inside a pickle.
    Truncated {
        /// Where the instruction starts that is not whole.
        offset: usize,
        /// Length of the input.
        length: usize,
    },
    /// A byte that no protocol up to 5 uses.
    NoOpcode {
        /// Its place.
        offset: usize,
        /// The byte.
        byte: u8,
    },
    /// A protocol that this reader does not know.
    Protocol {
        /// Its number.
        version: u8,
    },
    /// An instruction that would run or import something, or need what the file does not hold.
    Refused {
        /// Its place.
        offset: usize,
        /// Its name in Python's `pickletools`.
        opcode: &'static str,
        /// What it names, such as `torch._utils _rebuild_tensor_v2`; may be empty.
        subject: String,
    },
    /// An instruction whose operand or whose place makes no sense.
    Malformed {
        /// Its place.
        offset: usize,
        /// Its name in Python's `pickletools`.
        opcode: &'static str,
        /// What is wrong.
        what: &'static str,
    },
    /// More than the caller allows.
    Limit {
        /// Where it was passed; the length of the input when the finished value is too large.
        offset: usize,
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

impl fmt::Display for PickleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { offset, length } => write!(
                f,
                "the pickle breaks off: the file ends at byte {length}, inside the instruction at \
                 {offset}; copy or write the file again"
            ),
            Self::NoOpcode { offset, byte } => write!(
                f,
                "not a pickle: byte {offset} is 0x{byte:02x}, which is no instruction; check that \
                 this is the right file"
            ),
            Self::Protocol { version } => write!(
                f,
                "pickle protocol {version} is unknown, 0 to 5 can be read; write it with \
                 pickle.dump(value, file, protocol=4)"
            ),
            Self::Refused { offset, opcode, subject } => {
                let about = if subject.is_empty() { "" } else { " for " };
                write!(
                    f,
                    "the pickle wants {opcode}{about}{subject} at byte {offset}, which could run \
                     code and is never done; save plain dicts, lists, strings and numbers"
                )
            }
            Self::Malformed { offset, opcode, what } => write!(
                f,
                "damaged pickle: {opcode} at byte {offset}: {what}; copy or write the file again"
            ),
            Self::Limit { offset, what, limit } => write!(
                f,
                "the pickle is too large: more than {limit} {what} (at byte {offset}); save a \
                 smaller value"
            ),
        }
    }
}

impl std::error::Error for PickleError {}
