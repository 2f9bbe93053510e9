//! The whole diagnosis: phase, tensor, cause, what held the memory, what to change, and which
//! fitGPT command runs it. What the log does not say is listed as unknown, not guessed.

use crate::account::{What, account, other_programs};
use crate::advice::{Judged, judge, judge_message};
use crate::fixes::{self, Fix};
use crate::log::{Dialect, Log, LogPhase};
use crate::recovered::RecoveredRun;
use crate::tensor::{
    ATTENTION_SCORES, Confidence, Named, attention_scores, in_general, of_code, of_run,
    parameter_in_general,
};
use crate::torch::{Peak, Played, play};
use plan::hardware::Card;
use plan::{Bytes, Role};
use search::{Machine, SearchError, first_suggestion, plan_for};

/// Why the run ran out of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The logits, or tensors that the loss derives from them.
    Logits,
    /// The logits of the previous batch are still referenced.
    StaleLogits,
    /// Activations saved for the backward pass.
    Activations,
    /// The T x T attention scores.
    AttentionScores,
    /// Adam's moments.
    OptimizerState,
    /// The model itself, or its gradients.
    Weights,
    /// Enough memory is reserved, but not in one piece.
    Fragmentation,
    /// Other programs hold the missing memory.
    OtherProcess,
    /// The log does not say.
    Unknown,
}

impl Cause {
    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Logits => "logits",
            Cause::StaleLogits => "stale_logits",
            Cause::Activations => "activations",
            Cause::AttentionScores => "attention_scores",
            Cause::OptimizerState => "optimizer_state",
            Cause::Weights => "weights",
            Cause::Fragmentation => "fragmentation",
            Cause::OtherProcess => "other_process",
            Cause::Unknown => "unknown",
        }
    }
}

/// Something that the log does not say. Its sentence says how to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// How much memory was requested.
    Requested,
    /// How much memory there is.
    Budget,
    /// The settings of the run.
    Settings,
    /// The phase of the run.
    Phase,
    /// Whether the echoed settings match the model.
    Model,
}

/// What is known about the failure.
pub struct Diagnosis {
    /// The log, if there is one.
    pub log: Option<Log>,
    /// The run, if it is known.
    pub recovered: Option<RecoveredRun>,
    /// The phase in which it failed.
    pub phase: LogPhase,
    /// The tensor that did not fit.
    pub tensor: Option<Named>,
    /// Why it failed.
    pub cause: Cause,
    /// Memory available to this run.
    pub budget: Option<u64>,
    /// What held the memory.
    pub memory: Vec<(What, u64)>,
    /// The predicted peak of each phase in PyTorch.
    pub peaks: Vec<Peak>,
    /// The usual advice with verdicts.
    pub advice: Vec<Judged>,
    /// Changes to nanoGPT's settings that fit, the best first.
    pub fixes: Vec<Fix>,
    /// The fitGPT command that runs it.
    pub fitgpt: Option<FitgptCommand>,
    /// What remains unknown.
    pub unknown: Vec<Unknown>,
}

/// How fitGPT runs the same model.
#[derive(Clone, Debug, PartialEq)]
pub struct FitgptCommand {
    /// Arguments of `fitgpt train`.
    pub arguments: Vec<String>,
    /// Device memory of its plan.
    pub device_bytes: u64,
    /// Whether the settings are unchanged.
    pub unchanged: bool,
}

impl Diagnosis {
    /// Diagnoses a log, settings, or both. `card` and `vram` are what the user says about the GPU.
    pub fn new(
        log: Option<Log>,
        recovered: Option<RecoveredRun>,
        card: Option<&'static Card>,
        vram: Option<u64>,
    ) -> Result<Diagnosis, SearchError> {
        // Settings that contradict the log do not belong to this run, so ignore them.
        let agrees = match (&recovered, &log) {
            (Some(recovered), Some(log)) => recovered.agrees_with(log),
            _ => true,
        };
        let known = recovered.as_ref().filter(|_| agrees);
        let played = known.map(|recovered| play(&recovered.torch)).transpose()?;
        let peaks = played.as_ref().map_or(Vec::new(), Played::peaks);
        let budget = budget(log.as_ref(), card, vram);
        let tensor = log.as_ref().and_then(|log| name(log, known, played.as_ref()));
        let moment = tensor.as_ref().and_then(|tensor| tensor.birth.as_ref()).zip(played.as_ref());
        let moment = moment.map(|(birth, played)| (played, birth));
        let memory = log.as_ref().map_or(Vec::new(), |log| account(log, moment));
        let phase = phase(log.as_ref(), &peaks, budget);
        let tensor = match (&log, &played) {
            (None, Some(played)) => predicted(played, &peaks, phase),
            _ => tensor,
        };
        let cause = cause(log.as_ref(), tensor.as_ref(), &memory, (&peaks, budget), phase);
        let fixes = match (known, budget) {
            (Some(recovered), Some(budget)) => fixes::fixes(recovered, budget, card)?,
            _ => Vec::new(),
        };
        let others = log.as_ref().and_then(other_programs).unwrap_or(0);
        let advice = match (known, budget, &log) {
            (Some(recovered), Some(budget), _) => {
                judge(recovered, log.as_ref(), cause, budget, others)?
            }
            (_, _, Some(log)) if log.message.requested.is_some() => {
                judge_message(log, cause, others)
            }
            _ => Vec::new(),
        };
        let resumes =
            known.is_some_and(|recovered| recovered.run.init_from != spec::InitFrom::Scratch);
        let fitgpt = match (known, budget) {
            // PyTorch's checkpoints cannot be read yet.
            (Some(recovered), Some(budget)) if !resumes => fitgpt(recovered, card, budget)?,
            _ => None,
        };
        let unknown = unknown(log.as_ref(), recovered.as_ref(), budget);
        Ok(Diagnosis {
            log,
            recovered,
            phase,
            tensor,
            cause,
            budget,
            memory,
            peaks,
            advice,
            fixes,
            fitgpt,
            unknown,
        })
    }
}

/// Memory available to the run: what the user says, the cap, or the card's memory minus other
/// programs.
fn budget(log: Option<&Log>, card: Option<&Card>, vram: Option<u64>) -> Option<u64> {
    if vram.is_some() {
        return vram;
    }
    let said = log.and_then(|log| {
        let limit = log.message.limit()?;
        let others =
            if log.message.allowed.is_some() { 0 } else { other_programs(log).unwrap_or(0) };
        Some(limit.saturating_sub(others))
    });
    said.or_else(|| card.map(|card| card.hardware(false).memory.get()))
}

fn name(log: &Log, recovered: Option<&RecoveredRun>, played: Option<&Played>) -> Option<Named> {
    let requested = log.message.requested.as_ref()?;
    let known = recovered.filter(|recovered| recovered.agrees_with(log)).and(played);
    if let Some(recovered) = recovered.filter(|_| log.run.slow_attention)
        && let Some(scores) = attention_scores(requested, &recovered.torch)
    {
        return Some(scores);
    }
    known.and_then(|played| of_run(log, played)).or_else(|| of_code(log)).or_else(|| {
        let vocabulary =
            log.run.vocab_size.or_else(|| recovered.map(|recovered| recovered.dims.vocab_size));
        let general = in_general(requested, vocabulary);
        general.or_else(|| parameter_in_general(requested, log))
    })
}

/// The log's phase; without a log, the first phase that does not fit.
fn phase(log: Option<&Log>, peaks: &[Peak], budget: Option<u64>) -> LogPhase {
    use crate::torch::Phase;
    if let Some(log) = log {
        return log.traceback.phase;
    }
    let over = |peak: &&Peak| budget.is_some_and(|budget| fixes::needs(peak.bytes) > budget);
    match peaks.iter().find(over).map(|peak| peak.phase) {
        Some(Phase::FirstEval) => LogPhase::FirstEval,
        Some(Phase::Forward) => LogPhase::Forward,
        Some(Phase::Backward) => LogPhase::Backward,
        Some(Phase::Optimizer) => LogPhase::Optimizer,
        Some(Phase::Eval) => LogPhase::Eval,
        None => LogPhase::Unknown,
    }
}

/// Without a log: the tensor that is requested at the moment that does not fit.
fn predicted(played: &Played, peaks: &[Peak], phase: LogPhase) -> Option<Named> {
    let peak = peaks.iter().find(|peak| peak.phase.name() == phase.name())?;
    let asked = peak.asked.first().or_else(|| {
        peak.alive.iter().find(|alive| matches!(alive.role, Role::Logits | Role::Activation))
    })?;
    let birth = played.births().into_iter().find(|birth| birth.name == asked.name)?;
    Some(Named {
        name: birth.name.clone(),
        shape: birth.dims.clone(),
        dtype: birth.dtype,
        role: birth.role,
        confidence: Confidence::Likely,
        alternatives: Vec::new(),
        birth: Some(birth),
    })
}

fn cause(
    log: Option<&Log>,
    tensor: Option<&Named>,
    memory: &[(What, u64)],
    (peaks, budget): (&[Peak], Option<u64>),
    phase: LogPhase,
) -> Cause {
    if let Some(log) = log.filter(|log| log.message.dialect == Dialect::Fitgpt) {
        return of_own_refusal(log);
    }
    let of =
        |what: What| memory.iter().find(|(row, _)| *row == what).map_or(0, |(_, bytes)| *bytes);
    if let Some(log) = log {
        let message = &log.message;
        let requested = message.requested.as_ref().map_or(0, |size| size.bytes);
        // Fragmentation is the cause only if the run would fit without it. Every run that is too
        // large has some free fragments when a last small request fails.
        let most = peaks.iter().map(|peak| fixes::needs(peak.bytes)).max();
        let would_fit = match (most, budget) {
            (Some(most), Some(budget)) => most <= budget,
            _ => of(What::Fragments) >= message.allocated.as_ref().map_or(0, |a| a.bytes / 10),
        };
        if requested > 0 && would_fit && of(What::Fragments) >= requested {
            return Cause::Fragmentation;
        }
        let free = message.free.as_ref().map_or(u64::MAX, |size| size.bytes);
        let others = of(What::Others);
        // Likewise, other programs are the cause only if the run would fit without them.
        let enough = free.saturating_add(others) >= requested;
        let alone = match (most, budget) {
            (Some(most), Some(budget)) => most <= budget.saturating_add(others),
            _ => enough,
        };
        if others > 0 && free < requested && enough && alone {
            return Cause::OtherProcess;
        }
        if log.traceback.phase == LogPhase::Resume {
            return Cause::Weights;
        }
    }
    let from_role = |role: Role, name: &str| match role {
        Role::Logits if name == "eval logits, next batch" => Cause::StaleLogits,
        Role::Logits => Cause::Logits,
        Role::Moment => Cause::OptimizerState,
        Role::Weight | Role::Master | Role::Gradient => Cause::Weights,
        Role::Activation if name == ATTENTION_SCORES => Cause::AttentionScores,
        Role::Activation => Cause::Activations,
        _ => Cause::Unknown,
    };
    if let Some(tensor) = tensor {
        return from_role(tensor.role, &tensor.name);
    }
    // Without a log: the largest part at the predicted failure.
    let dying = peaks.iter().find(|peak| peak.phase.name() == phase.name() && log.is_none());
    let largest = dying.and_then(|peak| peak.asked.first().or(peak.alive.first()));
    largest.map_or(Cause::Unknown, |alive| from_role(alive.role, &alive.name))
}

/// fitGPT's own refusal names the largest tensors.
fn of_own_refusal(log: &Log) -> Cause {
    match log.message.largest.first().map(String::as_str) {
        Some("m" | "v") => Cause::OptimizerState,
        Some("weights" | "master" | "gradients") => Cause::Weights,
        Some("logits") => Cause::Logits,
        Some(_) => Cause::Activations,
        None => Cause::Unknown,
    }
}

/// The same run in fitGPT: unchanged, or with the first suggestion that fits.
fn fitgpt(
    recovered: &RecoveredRun,
    card: Option<&'static Card>,
    budget: u64,
) -> Result<Option<FitgptCommand>, SearchError> {
    let single = recovered.run.dtype == spec::RequestedDtype::Float32;
    let device = card.or_else(|| Card::find("RTX 4070")).map(|gpu| gpu.hardware(single));
    let (Some(device), Some(budget), Some(host)) =
        (device, Bytes::new(budget), Bytes::new(1 << 50))
    else {
        return Ok(None);
    };
    let machine = Machine::gpu(device, &recovered.run, budget, host);
    // Rounded down to two decimals, so that the printed budget is not larger. A number that had two
    // decimals stays the same.
    let hundredths = (budget.get() as f64 * 100.0 / (1u64 << 30) as f64 + 1e-3) as u64;
    let vram = format!("--vram={}.{:02}GiB", hundredths / 100, hundredths % 100);
    let command = |more: Vec<String>, device_bytes: u64, unchanged: bool| {
        let files = recovered.files.iter().cloned();
        let typed: Vec<String> = files.chain(recovered.arguments.clone()).collect();
        // Without a config or a data set, `train` would run its built-in demo.
        let is_source = |word: &String| {
            !word.starts_with("--")
                || word.starts_with("--dataset=")
                || word.starts_with("--init_from=")
        };
        let dataset =
            (!typed.iter().any(is_source)).then(|| format!("--dataset={}", recovered.run.dataset));
        let arguments = dataset.into_iter().chain(typed).chain(more).chain([vram.clone()]);
        Some(FitgptCommand { arguments: arguments.collect(), device_bytes, unchanged })
    };
    match plan_for(&recovered.run, recovered.dims, &machine) {
        Ok(planned) => Ok(command(Vec::new(), planned.device_bytes(&machine), true)),
        Err(SearchError::DoesNotFit(_)) => {
            let found =
                first_suggestion(&recovered.run, recovered.dims, &machine, &machine.hardware);
            Ok(found.and_then(|one| {
                let more = one.arguments().split(' ').map(str::to_string).collect();
                command(more, one.device_bytes, false)
            }))
        }
        Err(other) => Err(other),
    }
}

fn unknown(
    log: Option<&Log>,
    recovered: Option<&RecoveredRun>,
    budget: Option<u64>,
) -> Vec<Unknown> {
    let mut found = Vec::new();
    if let Some(log) = log {
        if log.message.requested.is_none() {
            found.push(Unknown::Requested);
        }
        let own = log.message.dialect == Dialect::Fitgpt;
        if log.traceback.phase == LogPhase::Unknown && !own {
            found.push(Unknown::Phase);
        }
        if recovered.is_some_and(|recovered| !recovered.agrees_with(log)) {
            found.push(Unknown::Model);
        }
    }
    if recovered.is_none() {
        found.push(Unknown::Settings);
    }
    if budget.is_none() {
        found.push(Unknown::Budget);
    }
    found
}
