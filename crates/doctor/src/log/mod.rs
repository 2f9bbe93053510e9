//! What a pasted log says, and nothing that it does not say.

pub mod message;
pub mod run;
pub mod size;
pub mod text;
pub mod trace;

pub use message::{Dialect, Message};
pub use run::RunLines;
pub use size::Size;
pub use trace::{LogPhase, Trace};

/// A log, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// The numbers of the message.
    pub message: Message,
    /// Where it happened.
    pub trace: Trace,
    /// What the run was.
    pub run: RunLines,
}

impl Log {
    /// Reads whatever was pasted.
    pub fn read(pasted: &[u8]) -> Log {
        let lines = text::lines(pasted);
        let run = RunLines::find(&lines);
        Log { message: Message::find(&lines), trace: Trace::find(&lines, &run), run }
    }
}
