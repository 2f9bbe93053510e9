//! Where it failed: the frames of a Python traceback, the phase that they imply, and the buffer
//! that compiled code names.

use super::buffer::Buffer;
use super::failure::Failure;
use super::frames::{Frame, frames};
use super::phase::{LogPhase, of_frames, of_nodes, of_sentences};
use super::run::RunLines;
use super::text::Line;

/// The traceback of the failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Traceback {
    /// Outermost first.
    pub frames: Vec<Frame>,
    /// The phase that the frames imply, or else the sentences.
    pub phase: LogPhase,
    /// Whether a sentence says the phase, not the frames.
    pub phase_in_prose: bool,
    /// The buffer that compiled code names.
    pub buffer: Option<Buffer>,
    /// Whether compiled code was running.
    pub compiled: bool,
}

impl Traceback {
    /// The traceback of a failure.
    pub fn find(lines: &[Line], failure: Option<&Failure>, run: &RunLines) -> Traceback {
        let frames = failure.map_or(Vec::new(), |failure| of_failure(lines, failure));
        let compiled = frames.iter().any(|frame| {
            frame.code.contains("empty_strided_cuda") || frame.function == "compile_wrapper"
        });
        let started = run.last_step.is_some() || run.last_iteration.is_some();
        let code = || failure.map_or(LogPhase::Unknown, |failure| of_code(lines, failure));
        let of_stack = match of_frames(&frames) {
            LogPhase::Unknown => code(),
            phase => phase,
        };
        let (phase, phase_in_prose) = match of_stack {
            LogPhase::Unknown => match of_nodes(lines) {
                LogPhase::Unknown => {
                    let said = of_sentences(lines);
                    (said, said != LogPhase::Unknown)
                }
                phase => (phase, false),
            },
            LogPhase::Eval if !started && run.has_beginning => (LogPhase::FirstEval, false),
            phase => (phase, false),
        };
        let buffer = Buffer::find(lines);
        Traceback { buffer, compiled, phase, phase_in_prose, frames }
    }

    /// Whether the model's own code ran line by line.
    pub fn is_eager(&self) -> bool {
        !self.compiled && self.frames.iter().any(|frame| frame.file == "model.py")
    }

    /// Whether a function of this name is on the stack.
    pub fn is_in(&self, function: &str) -> bool {
        let named = |frame: &Frame| frame.function == function || frame.code.contains(function);
        self.frames.iter().any(named)
    }
}

/// The phase of lines of code just above the message, where the frames were cut off.
fn of_code(lines: &[Line], failure: &Failure) -> LogPhase {
    const ABOVE: usize = 4;
    let above = &lines[failure.first.saturating_sub(ABOVE)..failure.first];
    let call =
        |line: &&Line| line.text.contains('(') && !line.text.trim_end().ends_with(['.', '?']);
    let frame = |line: &Line| Frame { code: line.text.clone(), ..Frame::default() };
    of_frames(&above.iter().filter(call).map(frame).collect::<Vec<_>>())
}

/// The frames that end at the message; launchers add their own tracebacks after it. Notebooks may
/// print the message first.
fn of_failure(lines: &[Line], failure: &Failure) -> Vec<Frame> {
    let rank = lines[failure.line].rank;
    let own = |line: &Line| rank.is_none() || line.rank.is_none() || line.rank == rank;
    let starts = |line: &Line| line.text.contains("Traceback (most recent call last)");
    let last = lines[..failure.first].iter().rposition(|line| starts(line) && own(line));
    // A log may begin inside its traceback.
    let before = frames(&lines[last.unwrap_or(0)..failure.first], rank);
    if !before.is_empty() {
        return before;
    }
    let behind = &lines[failure.line + 1..];
    let from = behind.iter().position(starts).map_or(0, |at| at + 1);
    let end = behind[from..].iter().position(starts).map_or(behind.len(), |at| from + at);
    let behind = &behind[from..end];
    // All ranks run the same program, so another rank's frames are better than none.
    let own = frames(behind, rank);
    if own.is_empty() { frames(behind, None) } else { own }
}
