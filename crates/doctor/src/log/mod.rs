//! Extracts from pasted text only what it says: a log, a post with a log in it, or a note about
//! one.

pub mod text;
pub mod message;
pub mod contradiction;
pub mod size;
pub mod settings;
pub mod run;
pub mod traceback;
pub mod program;
pub mod platform;
pub mod language;
pub mod claims;

pub use claims::Claim;
pub use contradiction::Contradiction;
pub use message::{Dialect, Message};
pub use platform::{Backend, System};
pub use program::{Found, Program};
pub use run::RunLines;
pub use settings::{Origin, Parameters, Setting};
pub use size::Size;
pub use traceback::{LogPhase, Traceback};

use crate::words::Language;

/// A parsed log.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// The numbers of the message.
    pub message: Message,
    /// Where it happened.
    pub traceback: Traceback,
    /// What the log says about the run.
    pub run: RunLines,
    /// Which program ran.
    pub program: Found,
    /// Whose memory ran out.
    pub backend: Backend,
    /// The operating system.
    pub system: System,
    /// Whether the process holds more than the card has, which Windows' driver permits.
    pub shared_memory: bool,
    /// Settings that the text recommends. They are not those of the run that failed.
    pub suggestions: Vec<(String, String)>,
    /// What the text asserts and advises, each with the line that does.
    pub claims: Vec<(Claim, String)>,
    /// The language of its sentences; `None` if there are none.
    pub language: Option<Language>,
}

impl Log {
    /// Parses pasted text of any kind.
    pub fn read(pasted: &[u8]) -> Log {
        let lines = text::lines(pasted);
        let run = RunLines::find(&lines);
        let message = Message::find(&lines);
        let system = System::find(&lines);
        Log {
            traceback: Traceback::find(&lines, &run),
            program: Found::find(&lines),
            backend: Backend::find(&lines),
            shared_memory: false,
            suggestions: Vec::new(),
            claims: claims::find(&lines),
            language: language::of(&lines),
            message,
            run,
            system,
        }
    }
}
