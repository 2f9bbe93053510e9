//! Extracts from a pasted log only what it says.

pub mod text;
pub mod message;
pub mod size;
pub mod run;
pub mod traceback;

pub use message::{Dialect, Message};
pub use run::RunLines;
pub use size::Size;
pub use traceback::{LogPhase, Traceback};

/// A parsed log.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// The numbers of the message.
    pub message: Message,
    /// Where it happened.
    pub traceback: Traceback,
    /// What the log says about the run.
    pub run: RunLines,
}

impl Log {
    /// Parses pasted text of any kind.
    pub fn read(pasted: &[u8]) -> Log {
        let lines = text::lines(pasted);
        let run = RunLines::find(&lines);
        Log { message: Message::find(&lines), traceback: Traceback::find(&lines, &run), run }
    }
}
