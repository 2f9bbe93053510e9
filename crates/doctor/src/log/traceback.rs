//! Where it failed: the frames of a Python traceback, the phase that they imply, and the buffer
//! that compiled code names.

use super::run::RunLines;
use super::settings::Origin;
use super::text::Line;
use plan::Dtype;

/// The phase in which a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogPhase {
    /// `estimate_loss()` before the first step.
    FirstEval,
    /// A later evaluation.
    Eval,
    /// A forward pass of training.
    Forward,
    /// A backward pass.
    Backward,
    /// The optimizer.
    Optimizer,
    /// Moving the model to the device, before any step.
    Load,
    /// Loading a checkpoint.
    Resume,
    /// Generating text.
    Sample,
    /// The log does not say.
    Unknown,
}

impl LogPhase {
    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            LogPhase::FirstEval => "first_eval",
            LogPhase::Eval => "eval",
            LogPhase::Forward => "forward",
            LogPhase::Backward => "backward",
            LogPhase::Optimizer => "optimizer",
            LogPhase::Load => "load",
            LogPhase::Resume => "resume",
            LogPhase::Sample => "sample",
            LogPhase::Unknown => "unknown",
        }
    }
}

/// A buffer that code compiled by Inductor, another program's error or a sentence names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Its shape.
    pub shape: Vec<u64>,
    /// Its element type.
    pub dtype: Dtype,
    /// Where it is from: the error (`Echoed`) or a sentence.
    pub origin: Origin,
}

/// One frame of the last traceback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Last part of the path.
    pub file: String,
    /// The function.
    pub function: String,
    /// The line of code, if the traceback shows it.
    pub code: String,
}

/// The last traceback.
#[derive(Clone, Debug, PartialEq)]
pub struct Traceback {
    /// Outermost first.
    pub frames: Vec<Frame>,
    /// The phase that the frames imply.
    pub phase: LogPhase,
    /// Whether a sentence says the phase, not the frames.
    pub phase_in_prose: bool,
    /// The buffer that compiled code names.
    pub buffer: Option<Buffer>,
    /// Whether compiled code was running.
    pub compiled: bool,
}

/// Signs of a phase: part of a function's name or of a line of code. The first match in the
/// innermost frame decides.
const SIGNS: [(&str, LogPhase); 15] = [
    ("estimate_loss", LogPhase::Eval),
    ("evaluate", LogPhase::Eval),
    ("torch.load(", LogPhase::Resume),
    ("load_state_dict", LogPhase::Resume),
    (".generate(", LogPhase::Sample),
    ("generate", LogPhase::Sample),
    ("_init_group", LogPhase::Optimizer),
    ("scaler.step(", LogPhase::Optimizer),
    ("optimizer.step(", LogPhase::Optimizer),
    ("clip_grad_norm_", LogPhase::Optimizer),
    (".backward()", LogPhase::Backward),
    ("_engine_run_backward", LogPhase::Backward),
    ("model(X, Y)", LogPhase::Forward),
    ("loss = model(", LogPhase::Forward),
    ("train_step", LogPhase::Forward),
];

impl Traceback {
    /// The last traceback of a log.
    pub fn find(lines: &[Line], run: &RunLines) -> Traceback {
        // Use the traceback that ends at the message; launchers add their own tracebacks after it.
        let end = super::message::first_of_last_message(lines).unwrap_or(lines.len());
        let starts = |line: &Line| line.text.contains("Traceback (most recent call last)");
        let last = lines[..end].iter().rposition(starts);
        // A log may begin inside its traceback.
        let frames = frames(&lines[last.unwrap_or(0)..end]);
        let compiled = frames.iter().any(|frame| {
            frame.code.contains("empty_strided_cuda") || frame.function == "compile_wrapper"
        });
        let phase = phase(&frames, run);
        Traceback { buffer: buffer(lines), compiled, phase, phase_in_prose: false, frames }
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

fn frames(lines: &[Line]) -> Vec<Frame> {
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(rest) = line.text.trim_start().strip_prefix("File \"") else {
            continue;
        };
        let Some((path, rest)) = rest.split_once('"') else {
            continue;
        };
        let function = rest.split_once(", in ").map_or("", |(_, name)| name.trim());
        let below = lines.get(index + 1).map_or("", |line| line.text.trim());
        let code = if below.starts_with("File \"") { "" } else { below };
        let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
        found.push(Frame {
            file: file.to_string(),
            function: function.to_string(),
            code: code.to_string(),
        });
    }
    found
}

fn phase(frames: &[Frame], run: &RunLines) -> LogPhase {
    let tells = |frame: &Frame| {
        let sign = |(words, _): &&(&str, LogPhase)| {
            frame.function.contains(*words) || frame.code.contains(*words)
        };
        SIGNS.iter().find(sign).map(|(_, phase)| *phase)
    };
    let found: Vec<LogPhase> = frames.iter().filter_map(tells).collect();
    // The outermost frame determines the phase, because everything inside an evaluation is
    // evaluation.
    let told = match found.first() {
        Some(LogPhase::Forward) if found.contains(&LogPhase::Eval) => Some(LogPhase::Eval),
        first => first.copied(),
    };
    match told {
        Some(LogPhase::Eval) if run.last_step.is_none() && run.last_iteration.is_none() => {
            if run.has_beginning { LogPhase::FirstEval } else { LogPhase::Eval }
        }
        Some(phase) => phase,
        None => LogPhase::Unknown,
    }
}

/// `empty_strided_cuda((65536, 50304), (50304, 1), torch.bfloat16)`.
fn buffer(lines: &[Line]) -> Option<Buffer> {
    const NAME: &str = "empty_strided_cuda((";
    let line = lines.iter().rev().find(|line| line.text.contains(NAME))?;
    let rest = &line.text[line.text.find(NAME)? + NAME.len()..];
    let (shape, rest) = rest.split_once(')')?;
    let shape: Vec<u64> = shape
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().ok())
        .collect::<Option<_>>()?;
    let dtype = match rest {
        rest if rest.contains("torch.bfloat16") => Dtype::Bf16,
        rest if rest.contains("torch.float16") => Dtype::F16,
        rest if rest.contains("torch.float32") => Dtype::F32,
        rest if rest.contains("torch.int32") => Dtype::I32,
        _ => return None,
    };
    Some(Buffer { shape, dtype, origin: Origin::Echoed }).filter(|buffer| !buffer.shape.is_empty())
}
