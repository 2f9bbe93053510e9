//! Why a pickle was refused. Each message is one line with the instruction's offset and the next
//! move.

use std::fmt;

/// Why bytes are not a pickle of plain values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PickleError {
    /// The input ends inside a pickle.
    Truncated {
        /// Where the incomplete instruction starts.
        offset: usize,
        /// Length of the input.
        length: usize,
    },
    /// A byte that no protocol up to 5 uses.
    NoOpcode {
        /// Its offset.
        offset: usize,
        /// The byte.
        byte: u8,
    },
    /// A protocol that this reader does not know.
    Protocol {
        /// Its number.
        version: u8,
    },
    /// An instruction that would run or import something, or that needs data outside the file.
    Refused {
        /// Its offset.
        offset: usize,
        /// Its name in Python's `pickletools`.
        opcode: &'static str,
        /// What it names, such as `torch._utils._rebuild_tensor_v2`; may be empty.
        subject: String,
    },
    /// An instruction with an invalid operand or in an invalid position.
    Malformed {
        /// Its offset.
        offset: usize,
        /// Its name in Python's `pickletools`.
        opcode: &'static str,
        /// What is wrong.
        what: &'static str,
    },
    /// The input exceeds one of the caller's limits.
    Limit {
        /// Where the limit was exceeded; the length of the input if the finished value is too
        /// large.
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
                "the pickle is truncated: the file ends at byte {length}, inside the instruction \
                 at {offset}; copy or write the file again"
            ),
            Self::NoOpcode { offset, byte } => write!(
                f,
                "not a pickle: byte {offset} is 0x{byte:02x}, which is not an instruction; check \
                 that this is the right file"
            ),
            Self::Protocol { version } => write!(
                f,
                "unknown pickle protocol {version}, only 0 to 5 can be read; write it with \
                 pickle.dump(value, file, protocol=4)"
            ),
            Self::Refused { offset, opcode, subject } => {
                match subject.is_empty() {
                    true => write!(f, "the pickle uses {opcode} at byte {offset}")?,
                    false => {
                        write!(f, "the pickle asks for {subject} ({opcode} at byte {offset})")?;
                    }
                }
                write!(
                    f,
                    ": {}, so nothing of it is executed; save plain dicts, lists, strings and \
                     numbers",
                    effect(subject)
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

/// What Python would do with a name.
fn effect(subject: &str) -> &'static str {
    let (module, name) = subject.rsplit_once('.').unwrap_or(("", subject));
    let begins = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    match module {
        "posix" | "nt" | "os" if begins(&["system", "popen", "exec", "spawn", "posix_spawn"]) => {
            "it would run a program"
        }
        "subprocess" | "pty" | "commands" => "it would run a program",
        "builtins" | "__builtin__" if begins(&["eval", "exec", "compile", "__import__"]) => {
            "it would run code"
        }
        _ => "it could run code",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_would_happen() {
        for (subject, want) in [
            ("posix.system", "asks for posix.system (GLOBAL at byte 7): it would run a program,"),
            ("subprocess.Popen", "it would run a program,"),
            ("os.execvp", "it would run a program,"),
            ("builtins.eval", "it would run code,"),
            ("posix.stat", "asks for posix.stat (GLOBAL at byte 7): it could run code,"),
            ("", "the pickle uses GLOBAL at byte 7: it could run code,"),
        ] {
            let subject = subject.to_owned();
            let error = PickleError::Refused { offset: 7, opcode: "GLOBAL", subject }.to_string();
            assert!(error.contains(want), "{error}");
        }
    }
}
