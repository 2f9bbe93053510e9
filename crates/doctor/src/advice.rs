//! What advice and assertions are worth for a run that we have a model of: those that the text
//! makes, and those that are usual. Each is judged by its bytes.

use crate::cause::Cause;
use crate::figure::Figure;
use crate::fixes::{device_bytes, needs, same_context};
use crate::log::{Claim, Log, LogPhase};
use crate::recovered::RecoveredRun;
use crate::room::{Fit, Room};
use crate::torch::{Peak, Phase, TorchRun, peaks};
use model::Dims;
use plan::{Dtype, Role};
use search::SearchError;
use spec::Gpt2;

/// The advice that is judged even if nobody gave it, in the order of the table.
pub const USUAL: [Claim; 20] = [
    Claim::SmallerBatch { batch_size: None },
    Claim::EvalBatchSizeKeyExists,
    Claim::EvalBlockSize,
    Claim::EvalIters,
    Claim::EvalInterval,
    Claim::ShorterContext { block_size: None },
    Claim::SmallerModel { n_embd: None },
    Claim::Checkpointing,
    Claim::DeleteLogits,
    Claim::CompileOff,
    Claim::CompileMode,
    Claim::ExpandableSegments,
    Claim::EmptyCache,
    Claim::CpuOffload,
    Claim::KillOthers,
    Claim::LowerPrecision,
    Claim::MoreGpus,
    Claim::DataLoader,
    Claim::OtherVersion,
    Claim::CpuFallback,
];

/// What a piece of advice, or an assertion, is worth for this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// With it, the run fits with a margin.
    Suffices,
    /// It saves memory, but this much is still missing for a safe fit.
    NotAlone {
        /// Bytes.
        missing: u64,
    },
    /// It saves memory; whether that is enough is not known.
    Helps,
    /// The run would fit, but slowly.
    CostsOnlyTime,
    /// The peak does not change.
    DoesNothing,
    /// It takes more memory.
    Worse,
    /// It cannot work.
    Impossible,
    /// An assertion that does not hold.
    False,
    /// An assertion that holds.
    True,
}

impl Verdict {
    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Suffices => "helps and suffices",
            Verdict::NotAlone { .. } => "helps but not alone",
            Verdict::Helps => "helps",
            Verdict::CostsOnlyTime => "costs only time",
            Verdict::DoesNothing => "does nothing here",
            Verdict::Worse => "makes it worse",
            Verdict::Impossible => "does not work",
            Verdict::False => "false",
            Verdict::True => "true",
        }
    }
}

/// A piece of advice or an assertion, with its verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// What is judged.
    pub claim: Claim,
    /// The line that says it; none for the usual advice.
    pub line: Option<String>,
    /// What it is worth.
    pub verdict: Verdict,
    /// Bytes that it saves at the peak; negative if it takes more.
    pub bytes: i64,
    /// The reason.
    pub note: Note,
    /// Figures of the reason.
    pub figures: Vec<Figure>,
}

/// Reasons for verdicts. Each has a sentence in every language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// This batch, with more micro-batches: sequences.
    Batch,
    /// Already one sequence.
    BatchIsOne,
    /// nanoGPT has no such key; fitGPT has.
    NoSuchKey,
    /// nanoGPT has no such key, and training would run out of memory next: training's need.
    NoSuchKeyAndTrainingDies,
    /// nanoGPT has no such key; with it, evaluation would fit.
    NoSuchKeyButEvalWouldFit,
    /// Batches are evaluated one after another.
    OneBatchAtATime,
    /// It only delays the failure.
    OnlyMovesTheMoment,
    /// A shorter context: positions.
    Context,
    /// A narrower model: width.
    Width,
    /// Another of OpenAI's models: its name.
    OtherModel,
    /// Heads do not divide the width: width, heads, nearest width.
    HeadsDoNotDivide,
    /// No narrower model exists.
    NoNarrower,
    /// Evaluation keeps no activations.
    NothingToCheckpointInEval,
    /// Lowers saved activations by this share: share, training before, training after.
    CheckpointLowersActivations,
    /// Eager keeps more copies.
    EagerTakesMore,
    /// The run is already eager.
    AlreadyEager,
    /// CUDA graphs have their own memory pools.
    GraphsTakeMore,
    /// Enough memory is reserved, but fragmented.
    PiecesAreEnough,
    /// The memory is really needed; fragmentation is not the cause.
    NotFragmentation,
    /// It is already on.
    AlreadyOn,
    /// PyTorch empties its cache before it gives up.
    CacheIsEmptied,
    /// The first training step would fail instead.
    TrainingDiesInstead,
    /// Evaluation moves to the CPU and becomes slow.
    EvalLeaves,
    /// Other programs hold that much.
    OthersHold,
    /// Others hold too little to matter: their bytes.
    OthersLittle,
    /// A desktop holds 0.3 to 2 GiB.
    DesktopHolds,
    /// No other program is visible.
    NoOthers,
    /// Both formats take two bytes.
    SameBytes,
    /// Every GPU holds the whole model.
    EachHoldsAll,
    /// The data set is on the disk and in host memory.
    DataIsNotThere,
    /// The tensors are the same.
    SameTensors,
    /// It would run many times slower.
    ManyTimesSlower,
    /// Weights, gradients and Adam's state alone do not fit.
    StateAlone,
    /// 16-bit activations and logits.
    HalfTheBytes,
    /// Attention without a T x T matrix.
    FlashAttention,
    /// nanoGPT uses it already.
    AlreadyFlash,
    /// There is no KV cache in training.
    NoKvCache,
    /// Under `no_grad` no graph is kept; at most one batch of logits stays: its bytes.
    NoGraph,
    /// Adam's moments are made in the first optimizer step: their bytes.
    AdamComesLater,
    /// A resumed run has Adam's moments from the start: their bytes.
    AdamIsLoaded,
    /// Training needs more than evaluation: training, evaluation.
    TrainingIsThePeak,
    /// Evaluation needs more than training: evaluation, training.
    EvalIsThePeak,
    /// A smaller evaluation batch leaves training's need: training, available.
    TrainingStillNeeds,
    /// It hides errors of the compiler, not of the allocator.
    HidesCompilerErrors,
    /// More accumulation alone changes no peak.
    AccumulationAlone,
    /// Moments of one byte: saved bytes.
    SmallMoments,
    /// Not for training from scratch.
    OnlyForFineTuning,
    /// It needs that much: bytes.
    NeedsThatMuch,
    /// nanoGPT's evaluation has it already.
    AlreadyNoGrad,
    /// A change in two lines of nanoGPT's code.
    LogitsDropped,
    /// A warning that has nothing to do with memory.
    UnrelatedWarning,
    /// No garbage of Python's holds tensors here.
    NothingToCollect,
    /// The run needs the same after it.
    SameNeed,
    /// Both ways compared: compiled, eager.
    CompiledAndEager,
}

/// What a claim comes to: verdict, bytes saved, reason, figures of the reason.
type Answer = (Verdict, i64, Note, Vec<Figure>);

/// Judges what the text claims, then the usual advice that it does not give.
pub fn judge(
    recovered: &RecoveredRun,
    log: Option<&Log>,
    cause: Cause,
    room: Room,
) -> Result<Vec<Judged>, SearchError> {
    let judge = Judge::new(recovered, log, cause, room)?;
    let said = log.map_or(&[][..], |log| &log.claims);
    let mut found = Vec::new();
    for (claim, line) in said {
        found.push(judge.one(*claim, Some(line.clone()))?);
    }
    let is_said = |claim: &Claim| said.iter().any(|(one, _)| one.name() == claim.name());
    for claim in USUAL.iter().filter(|claim| !is_said(claim)) {
        let one = judge.one(*claim, None)?;
        // Beside a text's own claims, only what helps is worth a line.
        let helps = matches!(one.verdict, Suffices | Helps | Verdict::NotAlone { .. });
        if said.is_empty() || helps {
            found.push(one);
        }
    }
    Ok(found)
}

struct Judge<'a> {
    recovered: &'a RecoveredRun,
    log: Option<&'a Log>,
    cause: Cause,
    room: Room,
    /// Device memory of the whole run, of training, and of evaluation.
    before: u64,
    training: u64,
    evaluation: u64,
}

use Verdict::{CostsOnlyTime, DoesNothing, False, Helps, Impossible, Suffices, True, Worse};

impl<'a> Judge<'a> {
    fn new(
        recovered: &'a RecoveredRun,
        log: Option<&'a Log>,
        cause: Cause,
        room: Room,
    ) -> Result<Judge<'a>, SearchError> {
        let peaks = peaks(&recovered.torch)?;
        let training = largest(&peaks, false);
        let evaluation = largest(&peaks, true);
        let before = training.max(evaluation);
        Ok(Judge { recovered, log, cause, room, before, training, evaluation })
    }

    fn one(&self, claim: Claim, line: Option<String>) -> Result<Judged, SearchError> {
        let nothing = |note: Note| Ok((DoesNothing, 0, note, Vec::new()));
        let (verdict, bytes, note, figures) = match claim {
            Claim::SmallerBatch { batch_size } => self.batch(batch_size),
            Claim::EvalBatchSizeKeyExists | Claim::EvalBlockSize => Ok(self.eval_key()),
            Claim::EvalBatchSizeAlone => self.eval_batch_alone(),
            Claim::EvalIsCulprit => Ok(self.culprit()),
            Claim::EvalIters => nothing(Note::OneBatchAtATime),
            Claim::EvalInterval => nothing(Note::OnlyMovesTheMoment),
            Claim::ShorterContext { block_size } => self.context(block_size),
            Claim::SmallerModel { n_embd } => self.narrower(n_embd),
            Claim::Accumulation { .. } => nothing(Note::AccumulationAlone),
            Claim::Checkpointing | Claim::CheckpointingHalves { .. } => self.checkpointing(),
            Claim::DeleteLogits => self.dropped_logits(),
            Claim::CompileOff => self.eager(),
            Claim::CompileMode => Ok((Worse, 0, Note::GraphsTakeMore, Vec::new())),
            Claim::ExpandableSegments | Claim::MaxSplitSize => Ok(self.expandable()),
            Claim::EmptyCache => nothing(Note::CacheIsEmptied),
            Claim::ClearCache => nothing(Note::NothingToCollect),
            Claim::Restart => nothing(Note::SameNeed),
            Claim::Fragmentation => Ok(self.fragmented()),
            Claim::CompileCostsMemory => self.compiled_costs(),
            Claim::CpuOffload => Ok(self.eval_on_cpu()),
            Claim::KillOthers => Ok(self.others()),
            Claim::LowerPrecision => self.half_precision(),
            Claim::MoreGpus => nothing(Note::EachHoldsAll),
            Claim::LargerGpu => {
                Ok((Suffices, 0, Note::NeedsThatMuch, vec![Figure::Bytes(self.before)]))
            }
            Claim::DataLoader => nothing(Note::DataIsNotThere),
            Claim::OtherVersion | Claim::FlashAttention => Ok(self.flash(claim)),
            Claim::CpuFallback => {
                Ok((CostsOnlyTime, self.before as i64, Note::ManyTimesSlower, Vec::new()))
            }
            Claim::KvCacheInTraining => Ok((False, 0, Note::NoKvCache, Vec::new())),
            Claim::GraphKeptInEval => {
                Ok((False, 0, Note::NoGraph, vec![Figure::Bytes(self.logits())]))
            }
            Claim::AdamAtFirstEval => Ok(self.adam_at_first_eval()),
            Claim::SuppressErrors => nothing(Note::HidesCompilerErrors),
            Claim::SmallerOptimizer => self.small_moments(),
            Claim::LoraOrQuantized => nothing(Note::OnlyForFineTuning),
            Claim::NoGrad => nothing(Note::AlreadyNoGrad),
            Claim::GradScalerWarning | Claim::AutotuneWarning => {
                Ok((False, 0, Note::UnrelatedWarning, Vec::new()))
            }
        }?;
        // As advice the key does nothing; that it exists is an assertion.
        let asserted = claim == Claim::EvalBatchSizeKeyExists && line.is_some();
        let verdict = if asserted { False } else { verdict };
        Ok(Judged { claim, line, verdict, bytes, note, figures })
    }

    /// The verdict on a change after which the run needs this much.
    fn worth(&self, after: u64) -> (Verdict, i64) {
        let saved = self.before as i64 - after as i64;
        let verdict = match self.room.fit(after) {
            _ if saved == 0 => DoesNothing,
            _ if saved < 0 => Worse,
            _ if self.room.fit(self.before) == Fit::Fits => Helps,
            Fit::Fits => Suffices,
            _ => Verdict::NotAlone { missing: after.saturating_sub(self.room.target()) },
        };
        (verdict, saved)
    }

    fn changed(
        &self,
        run: &TorchRun,
        note: Note,
        figures: Vec<Figure>,
    ) -> Result<Answer, SearchError> {
        let (verdict, saved) = self.worth(device_bytes(run)?);
        Ok((verdict, saved, note, figures))
    }

    /// Whether weights, gradients and optimizer state alone do not fit.
    fn state_alone(&self) -> Result<bool, SearchError> {
        let one = TorchRun { batch: 1, eval_batch: 1, ..self.recovered.torch.clone() };
        let state = peaks(&one)?.into_iter().find(|peak| peak.phase == Phase::Optimizer);
        Ok(state.is_some_and(|peak| needs(peak.bytes) > self.room.free()))
    }

    fn batch(&self, asked: Option<u64>) -> Result<Answer, SearchError> {
        let torch = &self.recovered.torch;
        if torch.batch < 2 {
            return Ok((DoesNothing, 0, Note::BatchIsOne, Vec::new()));
        }
        if self.state_alone()? {
            return Ok((DoesNothing, 0, Note::StateAlone, Vec::new()));
        }
        let batch = asked.unwrap_or(torch.batch / 2).clamp(1, torch.batch);
        let sequences = torch.batch.saturating_mul(torch.accumulation);
        let accumulation = sequences.div_ceil(batch);
        let run = TorchRun { batch, eval_batch: batch, accumulation, ..torch.clone() };
        self.changed(&run, Note::Batch, vec![Figure::Count(batch), Figure::Count(accumulation)])
    }

    fn half_precision(&self) -> Result<Answer, SearchError> {
        if self.recovered.torch.compute != Dtype::F32 {
            return Ok((DoesNothing, 0, Note::SameBytes, Vec::new()));
        }
        let run = TorchRun { compute: Dtype::F16, ..self.recovered.torch.clone() };
        self.changed(&run, Note::HalfTheBytes, Vec::new())
    }

    fn eval_key(&self) -> Answer {
        let over = |needs: u64| needs > self.room.free();
        match (over(self.training), over(self.evaluation)) {
            (true, _) => {
                let figures = vec![Figure::Bytes(self.training)];
                (DoesNothing, 0, Note::NoSuchKeyAndTrainingDies, figures)
            }
            (false, true) => (DoesNothing, 0, Note::NoSuchKeyButEvalWouldFit, Vec::new()),
            (false, false) => (DoesNothing, 0, Note::NoSuchKey, Vec::new()),
        }
    }

    /// With an evaluation batch of the suggested size, or of one sequence.
    fn eval_batch_alone(&self) -> Result<Answer, SearchError> {
        let figures = vec![Figure::Bytes(self.training), Figure::Bytes(self.room.free())];
        if self.training > self.room.target() {
            return Ok((False, 0, Note::TrainingStillNeeds, figures));
        }
        let suggested = self.log.and_then(|log| {
            let row = log.suggestions.iter().find(|(key, _)| key == "eval_batch_size");
            row.and_then(|(_, value)| value.parse().ok())
        });
        let torch = &self.recovered.torch;
        let eval_batch = suggested.unwrap_or(1).clamp(1, torch.batch);
        let run = TorchRun { eval_batch, ..torch.clone() };
        self.changed(&run, Note::NoSuchKeyButEvalWouldFit, Vec::new())
    }

    fn culprit(&self) -> Answer {
        let [training, evaluation] = [self.training, self.evaluation].map(Figure::Bytes);
        match self.training >= self.evaluation {
            true => (False, 0, Note::TrainingIsThePeak, vec![training, evaluation]),
            false => (True, 0, Note::EvalIsThePeak, vec![evaluation, training]),
        }
    }

    fn context(&self, asked: Option<u64>) -> Result<Answer, SearchError> {
        let torch = &self.recovered.torch;
        if self.state_alone()? {
            return Ok((DoesNothing, 0, Note::StateAlone, Vec::new()));
        }
        let positions = asked.unwrap_or(torch.positions / 2).clamp(1, torch.positions.max(1));
        let dims = Dims { block_size: positions, ..torch.dims };
        let run = TorchRun { dims, positions, ..torch.clone() };
        self.changed(&run, Note::Context, vec![Figure::Text(positions.to_string())])
    }

    fn narrower(&self, asked: Option<u64>) -> Result<Answer, SearchError> {
        let dims = self.recovered.dims;
        if let Some(name) = self.recovered.run.init_from.pretrained().and_then(|one| one.openai()) {
            return self.smaller_pretrained(name);
        }
        let head = dims.n_embd / dims.n_head.max(1);
        let dims = match asked.filter(|width| *width > 0 && *width < dims.n_embd) {
            Some(width) if !width.is_multiple_of(dims.n_head.max(1)) => {
                let nearest = width / dims.n_head.max(1) * dims.n_head;
                let figures = [width, dims.n_head, nearest].map(|n| Figure::Text(n.to_string()));
                let figures = figures.to_vec();
                return Ok((Impossible, 0, Note::HeadsDoNotDivide, figures));
            }
            Some(width) => Dims { n_embd: width, ..dims },
            None if dims.n_head < 2 => {
                return Ok((DoesNothing, 0, Note::NoNarrower, Vec::new()));
            }
            None => Dims { n_head: dims.n_head - 1, n_embd: dims.n_embd - head, ..dims },
        };
        let run = TorchRun { dims, ..self.recovered.torch.clone() };
        self.changed(&run, Note::Width, vec![Figure::Text(dims.n_embd.to_string())])
    }

    /// OpenAI's models have fixed widths: the next smaller one.
    fn smaller_pretrained(&self, name: Gpt2) -> Result<Answer, SearchError> {
        let torch = &self.recovered.torch;
        let smaller = Gpt2::ALL.into_iter().rfind(|one| one.dims().n_embd < name.dims().n_embd);
        let Some(smaller) = smaller else {
            return Ok((DoesNothing, 0, Note::NoNarrower, Vec::new()));
        };
        let run = TorchRun { dims: same_context(smaller, torch.dims), ..torch.clone() };
        self.changed(&run, Note::OtherModel, vec![Figure::Text(smaller.word().to_string())])
    }

    /// Checkpointing only affects training, so compare training with and without it.
    fn checkpointing(&self) -> Result<Answer, SearchError> {
        let phase = self.log.map_or(LogPhase::Unknown, |log| log.traceback.phase);
        let evaluates = matches!(phase, LogPhase::FirstEval | LogPhase::Eval);
        let peak = self.evaluation >= self.training;
        if self.evaluation > self.room.free() && (evaluates || peak) {
            return Ok((DoesNothing, 0, Note::NothingToCheckpointInEval, Vec::new()));
        }
        let torch = &self.recovered.torch;
        let run = TorchRun { checkpointed: true, ..torch.clone() };
        let (before, after) = (peaks(torch)?, peaks(&run)?);
        let [held, kept] = [&before, &after].map(|peaks| activations(peaks));
        let share = held.saturating_sub(kept).saturating_mul(100) / held.max(1);
        let [old, new] = [&before, &after].map(|peaks| largest(peaks, false));
        let figures = vec![Figure::Percent(share), Figure::Bytes(old), Figure::Bytes(new)];
        let (verdict, _) = self.worth(new.max(self.evaluation));
        let saved = old as i64 - new as i64;
        Ok((verdict, saved.max(0), Note::CheckpointLowersActivations, figures))
    }

    fn dropped_logits(&self) -> Result<Answer, SearchError> {
        let run = TorchRun { keeps_logits: false, ..self.recovered.torch.clone() };
        self.changed(&run, Note::LogitsDropped, Vec::new())
    }

    fn eager(&self) -> Result<Answer, SearchError> {
        if !self.recovered.torch.compiled {
            return Ok((DoesNothing, 0, Note::AlreadyEager, Vec::new()));
        }
        let run = TorchRun { compiled: false, ..self.recovered.torch.clone() };
        self.changed(&run, Note::EagerTakesMore, Vec::new())
    }

    fn expandable(&self) -> Answer {
        let on = self.log.is_some_and(|log| log.message.expandable);
        match (on, self.cause) {
            (true, _) => (DoesNothing, 0, Note::AlreadyOn, Vec::new()),
            (false, Cause::Fragmentation) => {
                let pieces = self.log.and_then(|log| log.message.unallocated.as_ref());
                let bytes = pieces.map_or(0, |size| size.bytes as i64);
                (Helps, bytes, Note::PiecesAreEnough, Vec::new())
            }
            (false, _) => (DoesNothing, 0, Note::NotFragmentation, Vec::new()),
        }
    }

    /// That fragmentation is the cause.
    fn fragmented(&self) -> Answer {
        match self.cause {
            Cause::Fragmentation => (True, 0, Note::PiecesAreEnough, Vec::new()),
            _ => (False, 0, Note::NotFragmentation, Vec::new()),
        }
    }

    /// That compiled code needs more: both ways of running it, compared.
    fn compiled_costs(&self) -> Result<Answer, SearchError> {
        let of =
            |compiled: bool| device_bytes(&TorchRun { compiled, ..self.recovered.torch.clone() });
        let (compiled, eager) = (of(true)?, of(false)?);
        let verdict = if compiled > eager { True } else { False };
        let figures = [compiled, eager].map(Figure::Bytes).to_vec();
        Ok((verdict, 0, Note::CompiledAndEager, figures))
    }

    fn eval_on_cpu(&self) -> Answer {
        match self.training > self.room.target() {
            true => (DoesNothing, 0, Note::TrainingDiesInstead, Vec::new()),
            false => {
                let saved = self.before as i64 - self.training as i64;
                (CostsOnlyTime, saved, Note::EvalLeaves, Vec::new())
            }
        }
    }

    /// Ending other programs leaves the whole card.
    fn others(&self) -> Answer {
        use crate::room::RoomSource::{Cap, Desktop, Headless, Message, Told, Used, Vram};
        let used = self.room.used;
        let alone = Room { used: 0, ..self.room };
        let verdict = match alone.fit(self.before) {
            _ if self.room.fit(self.before) == Fit::Fits => Helps,
            Fit::Fits => Suffices,
            _ => Verdict::NotAlone { missing: self.before.saturating_sub(alone.target()) },
        };
        match self.room.source {
            Cap | Vram | Headless => (DoesNothing, 0, Note::NoOthers, Vec::new()),
            Desktop => (verdict, used as i64, Note::DesktopHolds, Vec::new()),
            Message | Told | Used if used > 0 && used < self.room.limit / 50 => {
                (DoesNothing, 0, Note::OthersLittle, vec![Figure::Bytes(used)])
            }
            Message | Told | Used if used > 0 => {
                (verdict, used as i64, Note::OthersHold, Vec::new())
            }
            Message | Told | Used => (DoesNothing, 0, Note::NoOthers, Vec::new()),
        }
    }

    fn flash(&self, claim: Claim) -> Answer {
        let slow = self.log.is_some_and(|log| log.run.slow_attention);
        match claim {
            _ if slow => (Helps, 0, Note::FlashAttention, Vec::new()),
            Claim::FlashAttention => (DoesNothing, 0, Note::AlreadyFlash, Vec::new()),
            _ => (DoesNothing, 0, Note::SameTensors, Vec::new()),
        }
    }

    fn adam_at_first_eval(&self) -> Answer {
        let moments = vec![Figure::Bytes(self.recovered.parameters().saturating_mul(8))];
        match self.recovered.torch.resumed {
            true => (True, 0, Note::AdamIsLoaded, moments),
            false => (False, 0, Note::AdamComesLater, moments),
        }
    }

    /// Moments of one byte each instead of four.
    fn small_moments(&self) -> Result<Answer, SearchError> {
        let saved = self.recovered.parameters().saturating_mul(6);
        let (verdict, bytes) = self.worth(self.before.saturating_sub(saved));
        Ok((verdict, bytes, Note::SmallMoments, vec![Figure::Bytes(saved)]))
    }

    /// The logits of one batch.
    fn logits(&self) -> u64 {
        let torch = &self.recovered.torch;
        let tokens = torch.batch.saturating_mul(torch.positions);
        tokens.saturating_mul(torch.dims.vocab_size).saturating_mul(torch.compute.size())
    }
}

/// Device memory of the largest peak of evaluation, or of training.
fn largest(peaks: &[Peak], evaluates: bool) -> u64 {
    let is = |peak: &&Peak| matches!(peak.phase, Phase::FirstEval | Phase::Eval) == evaluates;
    needs(peaks.iter().filter(is).map(|peak| peak.bytes).max().unwrap_or(0))
}

/// Activations at the fullest moment of training.
fn activations(peaks: &[Peak]) -> u64 {
    let training =
        peaks.iter().filter(|peak| matches!(peak.phase, Phase::Forward | Phase::Backward));
    let fullest = training.max_by_key(|peak| peak.bytes);
    let alive = fullest.map_or(&[][..], |peak| &peak.alive);
    alive.iter().filter(|one| one.role == Role::Activation).map(|one| one.bytes).sum()
}
