//! Extracts from pasted text only what it says: a log, a post with a log in it, or a note about
//! one.

pub mod ends;
pub mod text;
mod decode;
mod fold;
mod shared;
mod prefix;
mod sections;

pub mod failure;
pub mod message;
mod fields;
pub mod contradiction;
mod retold;
pub mod size;

pub mod run;
pub mod settings;
mod assignments;
mod names;
mod shipped;
mod parameters;
mod card;

pub mod traceback;
mod frames;
mod phase;
mod buffer;

pub mod program;
pub mod platform;
pub mod language;
pub mod claims;
mod claim_words;

pub use buffer::Buffer;
pub use claims::Claim;
pub use contradiction::Contradiction;
pub use frames::Frame;
pub use message::{Dialect, Message};
pub use phase::LogPhase;
pub use platform::{Backend, System};
pub use program::{Found, Program};
pub use run::RunLines;
pub use settings::{Origin, Parameters, Setting};
pub use size::Size;
pub use traceback::Traceback;

use crate::words::Language;
use failure::Failure;
use retold::Said;
use text::Line;

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
        let failure = Failure::find(&lines);
        let system = System::find(&lines);
        let mut run = RunLines::find(&lines);
        let suggestions = std::mem::take(&mut run.suggestions);
        let mut message = Message::find(&lines, failure.as_ref(), system);
        let mut traceback = Traceback::find(&lines, failure.as_ref(), &run);
        retell(&lines, &mut message, &mut run, system);
        if message.dialect == Dialect::LlmC && message.requested.is_none() {
            message.requested = announced(&lines);
        }
        if let (None, Some(buffer)) = (&message.requested, &mut traceback.buffer) {
            buffer.agree_with(run.setting("dtype"));
            message.requested = match message.dialect {
                Dialect::TensorFlow => buffer.bytes().map(Size::of),
                Dialect::Prose | Dialect::Bare => said_of(&lines, buffer),
                _ => None,
            };
        }
        let program = Found::find(&lines, &message, &run);
        let nvidia = run.card.is_some() || program.program.is_nanogpt();
        let claims = claims::find(&lines, &run, &suggestions, traceback.phase);
        let blamed = claims.iter().any(|(claim, _)| *claim == Claim::EvalIsCulprit);
        if traceback.phase == LogPhase::Unknown && blamed {
            (traceback.phase, traceback.phase_in_prose) = (LogPhase::Eval, true);
        }
        Log {
            backend: Backend::find(&lines, failure.as_ref(), nvidia),
            program,
            shared_memory: message.shared_memory,
            claims,
            suggestions,
            language: language::of(&lines),
            traceback,
            message,
            run,
            system,
        }
    }
}

/// Adds the numbers that sentences retell. Those of a message itself are better.
fn retell(lines: &[Line], message: &mut Message, run: &mut RunLines, system: System) {
    let told = message.requested.is_some() || message.capacity.is_some();
    let open = !told && matches!(message.dialect, Dialect::Prose | Dialect::Bare);
    for (said, size) in retold::of(lines) {
        match said {
            Said::Field(field) if open => {
                message.dialect = Dialect::Prose;
                message.take(field, size);
            }
            Said::Card if run.card_memory.is_none() => run.card_memory = Some(size),
            Said::Others if run.used_before.is_none() => run.used_before = Some(size),
            _ => {}
        }
    }
    if message.dialect == Dialect::Prose {
        message.find_contradictions(system);
    }
}

/// llm.c says what it allocates next: `allocating 42481 MiB for activations`.
fn announced(lines: &[Line]) -> Option<Size> {
    let said = |line: &Line| {
        let (_, rest) = line.text.split_once("allocating ")?;
        Size::read(rest).filter(|(_, rest)| rest.contains(" for ")).map(|(size, _)| size)
    };
    lines.iter().rev().find_map(said)
}

/// The size of a buffer, if a sentence names both.
fn said_of(lines: &[Line], buffer: &Buffer) -> Option<Size> {
    let bytes = buffer.bytes()?;
    let told = lines.iter().filter(|line| line.told && !line.advice && line.text.len() < 4000);
    let mut sizes = told.flat_map(|line| retold::sizes(&line.text)).map(|(_, size)| size);
    sizes.find(|size| size.is(bytes))
}
