//! Finds the tensor that did not fit: compares the size of the request with every tensor of the
//! run, or with a general table if the run is not known. Sizes match if they would be printed the
//! same, after the allocator's rounding.

use crate::log::size::segment;
use crate::log::{Log, LogPhase, Origin, Program, Size};
use crate::torch::{Birth, Phase, Played, TorchRun};
use plan::{Dtype, Role};

/// How certain the identification is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// The size matches, but other tensors match too.
    Possible,
    /// Size and phase match.
    Likely,
    /// Size and phase match, and so does the line of code or the memory held.
    Certain,
}

impl Confidence {
    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            Confidence::Possible => "possible",
            Confidence::Likely => "likely",
            Confidence::Certain => "certain",
        }
    }
}

/// An identified tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// A description of the tensor.
    pub name: String,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Its element type.
    pub dtype: Dtype,
    /// What it is for.
    pub role: Role,
    /// How certain the identification is. See [`Confidence`].
    pub confidence: Confidence,
    /// Other tensors of this size.
    pub alternatives: Vec<Other>,
    /// The moment at which the run allocates it, if the run is known.
    pub birth: Option<Birth>,
}

/// Another tensor of the same size.
#[derive(Clone, Debug, PartialEq)]
pub struct Other {
    /// A description of the tensor.
    pub name: String,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Its element type.
    pub dtype: Dtype,
}

impl From<Named> for Other {
    fn from(named: Named) -> Other {
        Other { name: named.name, shape: named.shape, dtype: named.dtype }
    }
}

/// Most alternatives to show.
const TOLD: usize = 3;

/// Lines of code that reveal the tensor: part of a stack frame, part of a tensor's name.
const HINTS: [(&str, &str); 13] = [
    ("cross_entropy", "cross-entropy"),
    ("cross_entropy", "log-softmax"),
    ("exp_avg_sq", "exp_avg_sq"),
    ("exp_avg", "Adam's exp_avg of"),
    ("_init_group", "Adam's"),
    ("lm_head", "logits"),
    ("c_fc", "MLP before"),
    ("c_fc", "eval MLP"),
    ("gelu", "MLP after"),
    ("gelu", "eval GELU"),
    ("c_attn", "q, k, v"),
    ("embedding", "embeddings"),
    ("model.to(", "parameter "),
];

/// Whether a phase of the log can be the phase of this allocation.
fn is_phase(log: LogPhase, birth: &Birth) -> bool {
    let phase = birth.phase;
    match log {
        LogPhase::FirstEval => phase == Phase::FirstEval,
        LogPhase::Eval => matches!(phase, Phase::Eval | Phase::FirstEval),
        LogPhase::Forward => phase == Phase::Forward,
        LogPhase::Backward => phase == Phase::Backward,
        LogPhase::Optimizer => phase == Phase::Optimizer,
        LogPhase::Resume => matches!(birth.role, Role::Weight | Role::Moment),
        LogPhase::Load => birth.role == Role::Weight,
        LogPhase::Sample | LogPhase::Unknown => true,
    }
}

/// The tensor of a known run that the request was for.
pub fn of_run(log: &Log, played: &Played) -> Option<Named> {
    let requested = log.message.requested.as_ref()?;
    let fits = |birth: &Birth| {
        // Compiled code may use the same elements with other dimensions.
        let elements = |dims: &[u64]| dims.iter().fold(1u64, |all, dim| all.saturating_mul(*dim));
        let same = log.traceback.buffer.as_ref().is_none_or(|buffer| {
            let agrees = elements(&buffer.shape) == elements(&birth.dims);
            agrees && buffer.dtype.size() == birth.dtype.size()
        });
        let possible = log.traceback.phase != LogPhase::Resume || is_phase(LogPhase::Resume, birth);
        same && possible && requested.is(segment(birth.bytes))
    };
    let births: Vec<Birth> = played.births().into_iter().filter(fits).collect();
    let score = |birth: &Birth| score(log, birth);
    let best = births.iter().max_by(|a, b| {
        let wide = |birth: &Birth| birth.dims.first() < birth.dims.last();
        score(a).total_cmp(&score(b)).then(wide(a).cmp(&wide(b)))
    })?;
    let mut alternatives: Vec<Other> = Vec::new();
    for birth in births.iter().filter(|other| other.name != best.name) {
        let (shape, dtype) = (birth.dims.clone(), birth.dtype);
        let other = Other { name: birth.name.clone(), shape, dtype };
        if alternatives.len() < TOLD && !alternatives.contains(&other) {
            alternatives.push(other);
        }
    }
    let in_phase = is_phase(log.traceback.phase, best) && log.traceback.phase != LogPhase::Unknown;
    let named_by_code = log.traceback.buffer.is_some() || hinted(log, best);
    let held = log.message.allocated.as_ref().map(|size| size.bytes as f64);
    let held_fits = held.is_some_and(|held| (best.held as f64 / held.max(1.0) - 1.0).abs() < 0.1);
    let confidence = match (in_phase, named_by_code || held_fits) {
        (true, true) => Confidence::Certain,
        (true, false) => Confidence::Likely,
        (false, _) if alternatives.is_empty() => Confidence::Likely,
        (false, _) => Confidence::Possible,
    };
    // Layers are alike, so if several have this tensor, do not name a layer.
    let kind = without_layer(&best.name);
    let others = births.iter().filter(|other| without_layer(&other.name) == kind);
    let several = others.map(|other| &other.name).any(|name| *name != best.name);
    alternatives.retain(|other| !several || without_layer(&other.name) != kind);
    Some(Named {
        name: if several { kind } else { best.name.clone() },
        shape: best.dims.clone(),
        dtype: best.dtype,
        role: best.role,
        confidence,
        alternatives,
        birth: Some(best.clone()),
    })
}

/// Replaces the layer's number: `h.32.mlp.c_proj.weight` becomes `h.*.mlp.c_proj.weight`.
fn without_layer(name: &str) -> String {
    let Some(at) = name.find("h.") else {
        return name.to_string();
    };
    let (before, rest) = name.split_at(at + 2);
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    match digits {
        0 => name.to_string(),
        digits => format!("{before}*{}", &rest[digits..]),
    }
}

fn hinted(log: &Log, birth: &Birth) -> bool {
    HINTS.iter().any(|(frame, name)| log.traceback.is_in(frame) && birth.name.contains(name))
}

/// How well an allocation agrees with everything else in the log.
fn score(log: &Log, birth: &Birth) -> f64 {
    let phase = if is_phase(log.traceback.phase, birth) { 4.0 } else { 0.0 };
    let code = if hinted(log, birth) { 4.0 } else { 0.0 };
    let near = log.message.allocated.as_ref().map_or(0.0, |size| {
        let (held, said) = (birth.held as f64, size.bytes as f64);
        2.0 * (1.0 - ((held - said).abs() / said.max(1.0)).min(1.0))
    });
    phase + code + near
}

/// Vocabularies that people train with. The last three have only small factors, as many other
/// tensors do, so a size alone does not suggest them.
const VOCABULARIES: [u64; 9] =
    [50304, 50257, 32000, 100_277, 128_256, 151_936, 65536, 32768, 49152];
const SUGGESTED: usize = 6;

/// nanochat's own vocabulary.
const NANOCHAT: u64 = 65536;

/// Attention scores: batch x heads x positions x positions, in 4 or 2 bytes.
pub fn attention_scores(requested: &Size, run: &TorchRun) -> Option<Named> {
    let shape = vec![run.batch, run.dims.n_head, run.positions, run.positions];
    let elements = shape.iter().try_fold(1u64, |all, dim| all.checked_mul(*dim))?;
    let dtype = [Dtype::F32, run.compute]
        .into_iter()
        .find(|dtype| requested.is(segment(elements.saturating_mul(dtype.size()))))?;
    Some(scores(shape, dtype, Confidence::Likely))
}

/// The name of the tensor that flash attention avoids.
pub const ATTENTION_SCORES: &str = "attention scores";

/// The bytes that were requested: those of the message, or of the buffer that an error names.
pub fn asked(log: &Log) -> Option<u64> {
    let printed = log.message.requested.as_ref().map(|size| size.bytes);
    let buffer = log.traceback.buffer.as_ref().filter(|buffer| buffer.origin == Origin::Echoed);
    printed.or_else(|| buffer?.bytes())
}

/// The buffer that the error or compiled code names, if the run is not known.
pub fn of_code(log: &Log) -> Option<Named> {
    let buffer = log.traceback.buffer.as_ref()?;
    let bytes = buffer.bytes()?;
    asked(log)?;
    // PyTorch's allocator rounds up; TensorFlow's message has the tensor itself.
    let is_asked = |requested: &Size| requested.is(segment(bytes)) || requested.is(bytes);
    if log.message.requested.as_ref().is_some_and(|requested| !is_asked(requested)) {
        return None;
    }
    if let [_, _, queries, keys] = buffer.shape[..]
        && queries == keys
        && queries >= 128
    {
        return Some(scores(buffer.shape.clone(), buffer.dtype, Confidence::Certain));
    }
    let last = *buffer.shape.last()?;
    let elements = buffer.shape.iter().try_fold(1u64, |all, dim| all.checked_mul(*dim))?;
    let rows = elements / last.max(1);
    let known = log.run.vocab_size == Some(last) || VOCABULARIES.contains(&last);
    let mut named = logits(rows, last, buffer.dtype);
    if !known {
        let compiled = log.traceback.compiled;
        named.name = if compiled { "a buffer of compiled code" } else { "a tensor" }.to_string();
        named.role = Role::Activation;
    }
    named.shape = buffer.shape.clone();
    named.confidence = Confidence::Certain;
    Some(named)
}

/// Below this, sizes have too many explanations to name a tensor by.
const LEAST: u64 = 96 << 20;

/// From here on, the size alone suggests a vocabulary other than GPT-2's.
const SPEAKING: u64 = 2 << 30;

/// Tensors that usually have this size: logits of whole sequences in 2 or 4 bytes, else attention
/// scores.
pub fn in_general(requested: &Size, log: &Log, vocabulary: Option<u64>) -> Option<Named> {
    if requested.bytes < LEAST && vocabulary.is_none() {
        return None;
    }
    let mut found = logits_of(requested, log, vocabulary);
    if found.is_empty() && !log.program.program.is_nanogpt() {
        found = scores_of(requested, log);
    }
    found.sort_by_key(|(rank, _)| *rank);
    let mut named = found.into_iter().map(|(_, named)| named);
    let mut best = named.next()?;
    best.alternatives = named.take(TOLD).map(Other::from).collect();
    if best.alternatives.is_empty() && vocabulary.is_some() {
        best.confidence = Confidence::Likely;
    }
    Some(best)
}

fn logits_of(requested: &Size, log: &Log, vocabulary: Option<u64>) -> Vec<(u32, Named)> {
    let mut found: Vec<(u32, Named)> = Vec::new();
    let mut known: Vec<u64> = match vocabulary {
        Some(columns) => vec![columns],
        None if log.program.program == Program::Nanochat => vec![NANOCHAT],
        None if requested.bytes < SPEAKING => VOCABULARIES[..2].to_vec(),
        None => VOCABULARIES[..SUGGESTED].to_vec(),
    };
    // Hugging Face does not round GPT-2's vocabulary up.
    if vocabulary.is_none() && log.program.program == Program::HfTransformers {
        known.swap(0, 1);
    }
    let formats = [(2, Dtype::Bf16), (4, Dtype::F32)];
    // A printed size is an interval that many shapes fall into. So rows must be multiples of 1024
    // for a known vocabulary, and powers of two of sequences for the others. Hugging Face's loss
    // drops the last position of each sequence.
    let units =
        if log.program.program == Program::HfTransformers { &[1024, 1023][..] } else { &[1024] };
    for (order, &columns) in known.iter().enumerate() {
        for (bytes, dtype) in formats.into_iter().filter(|(_, dtype)| may_be(log, *dtype)) {
            for &unit in units {
                let row = columns * bytes;
                let sequences = (requested.bytes / row).saturating_add(unit / 2) / unit;
                let rows = sequences.saturating_mul(unit);
                let power = sequences.is_power_of_two();
                let plausible = power || (vocabulary == Some(columns) && sequences > 0);
                let twin = found.iter().any(|(_, one)| {
                    one.dtype == dtype && (one.shape[0] == rows || one.shape[0] == sequences * 1024)
                });
                if plausible && !twin && requested.is(segment(rows.saturating_mul(row))) {
                    let rank = if power { 0 } else { 4 } + 2 * order as u32 + u32::from(bytes == 4);
                    found.push((rank, logits(rows, columns, dtype)));
                }
            }
        }
    }
    of_said_batch(found, log)
}

/// If the text says the batch size, only logits of that many sequences are left, if there are any.
fn of_said_batch(found: Vec<(u32, Named)>, log: &Log) -> Vec<(u32, Named)> {
    let Some(batch) = log.run.setting("batch_size").and_then(|said| said.parse::<u64>().ok())
    else {
        return found;
    };
    let of_batch = |one: &Named| one.shape[0].div_ceil(1024) == batch;
    match found.iter().any(|(_, one)| of_batch(one)) {
        true => found.into_iter().filter(|(_, one)| of_batch(one)).collect(),
        false => found,
    }
}

/// Whether the log leaves this format possible.
fn may_be(log: &Log, dtype: Dtype) -> bool {
    let said = log.run.setting("dtype").or_else(|| log.run.setting("fp16"));
    match said {
        Some("float32" | "False" | "false") => dtype == Dtype::F32,
        _ => true,
    }
}

/// Scores of GPT-2's attention where they are materialised.
fn scores_of(requested: &Size, log: &Log) -> Vec<(u32, Named)> {
    let heads = heads_of(log);
    let mut found = Vec::new();
    for (order, positions) in [1024u64, 512, 2048].into_iter().enumerate() {
        for (bytes, dtype) in [(4u64, Dtype::F32), (2, Dtype::F16)] {
            let one = heads * positions * positions * bytes;
            let batch = requested.bytes / one;
            let fits = batch.is_power_of_two() && requested.is(segment(batch * one));
            if fits && may_be(log, dtype) {
                let shape = vec![batch, heads, positions, positions];
                let rank = 2 * order as u32 + u32::from(bytes == 2);
                found.push((rank, scores(shape, dtype, Confidence::Possible)));
            }
        }
    }
    found
}

/// Heads of the GPT-2 that the log names, by its number of parameters; those of the smallest if it
/// names none.
fn heads_of(log: &Log) -> u64 {
    let count = log.run.parameters.or(log.run.named_model).map_or(0, |said| said.count);
    match count / 1_000_000 {
        300..=400 => 16,
        700..=850 => 20,
        1450..=1700 => 25,
        _ => 12,
    }
}

fn scores(shape: Vec<u64>, dtype: Dtype, confidence: Confidence) -> Named {
    Named {
        name: ATTENTION_SCORES.to_string(),
        shape,
        dtype,
        role: Role::Activation,
        confidence,
        alternatives: Vec::new(),
        birth: None,
    }
}

/// Widths of GPT-2's four sizes.
const WIDTHS: [u64; 4] = [768, 1024, 1280, 1600];

/// Widths of a 7B LLaMA: its stream and its MLP.
const LLAMA: [u64; 2] = [4096, 11008];

/// An f32 weight of GPT-2, its gradient or one of Adam's moments: embeddings and the three kinds of
/// matmul weights in a block. For LitGPT, the weights of LLaMA; for others only those of its MLP,
/// whose size few other tensors have.
pub fn parameter_in_general(requested: &Size, log: &Log) -> Option<Named> {
    let state = log.traceback.phase == LogPhase::Optimizer;
    let (name, role) = match state {
        true => ("one of Adam's moments", Role::Moment),
        false => ("a weight or its gradient", Role::Weight),
    };
    let gpt2 = WIDTHS.iter().flat_map(|&width| {
        [[50304, width], [4 * width, width], [3 * width, width], [width, width]]
    });
    let shapes: Vec<[u64; 2]> = match log.program.program {
        Program::LitGpt => vec![[LLAMA[1], LLAMA[0]], [LLAMA[0], LLAMA[0]]],
        program if program.is_nanogpt() || state => gpt2.collect(),
        Program::TensorFlow | Program::Jax | Program::LlmC | Program::Nanochat => Vec::new(),
        _ => vec![[LLAMA[1], LLAMA[0]]],
    };
    let fits = |[rows, width]: &[u64; 2]| requested.is(segment(rows * width * 4));
    let mut fitting = shapes.into_iter().filter(fits);
    let shape = fitting.next()?;
    let other = |shape: [u64; 2]| Other {
        name: name.to_string(),
        shape: shape.to_vec(),
        dtype: Dtype::F32,
    };
    Some(Named {
        name: name.to_string(),
        shape: shape.to_vec(),
        dtype: Dtype::F32,
        role,
        confidence: Confidence::Possible,
        alternatives: fitting.take(TOLD).map(other).collect(),
        birth: None,
    })
}

fn logits(rows: u64, columns: u64, dtype: Dtype) -> Named {
    Named {
        name: "logits".to_string(),
        shape: vec![rows, columns],
        dtype,
        role: Role::Logits,
        confidence: Confidence::Possible,
        alternatives: Vec::new(),
        birth: None,
    }
}
