//! The usual advice for an out-of-memory error, and what each piece is worth here. One table; each
//! row is judged by our model of the run's memory or by the log.

use crate::diagnosis::Cause;
use crate::fixes::{device_bytes, needs};
use crate::log::Log;
use crate::recovered::RecoveredRun;
use crate::torch::{Phase, TorchRun, peaks};
use model::Dims;
use plan::Dtype;
use search::SearchError;

/// A piece of advice that people usually give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// A smaller micro-batch with more accumulation steps.
    SmallerBatch,
    /// `eval_batch_size`.
    EvalBatchSize,
    /// `eval_block_size`.
    EvalBlockSize,
    /// Fewer batches in an evaluation.
    EvalIters,
    /// Fewer evaluations.
    EvalInterval,
    /// Shorter sequences.
    BlockSize,
    /// A narrower model.
    SmallerModel,
    /// Gradient checkpointing.
    GradCheckpoint,
    /// `compile=False`.
    CompileOff,
    /// `torch.compile(mode='reduce-overhead')`.
    ReduceOverhead,
    /// `expandable_segments:True`.
    ExpandableSegments,
    /// `torch.cuda.empty_cache()`.
    EmptyCache,
    /// Evaluation on the CPU.
    EvalOnCpu,
    /// Ending other programs.
    OtherPrograms,
    /// float16 instead of bfloat16.
    Float16,
    /// More GPUs.
    MoreGpus,
    /// Loading the data set in another way.
    Preloading,
    /// A newer PyTorch or CUDA.
    NewerTorch,
    /// `device='cpu'`.
    DeviceCpu,
}

impl Advice {
    /// All advice, in the order of the table.
    pub const ALL: [Advice; 19] = [
        Advice::SmallerBatch,
        Advice::EvalBatchSize,
        Advice::EvalBlockSize,
        Advice::EvalIters,
        Advice::EvalInterval,
        Advice::BlockSize,
        Advice::SmallerModel,
        Advice::GradCheckpoint,
        Advice::CompileOff,
        Advice::ReduceOverhead,
        Advice::ExpandableSegments,
        Advice::EmptyCache,
        Advice::EvalOnCpu,
        Advice::OtherPrograms,
        Advice::Float16,
        Advice::MoreGpus,
        Advice::Preloading,
        Advice::NewerTorch,
        Advice::DeviceCpu,
    ];

    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            Advice::SmallerBatch => "smaller batch_size, more gradient_accumulation_steps",
            Advice::EvalBatchSize => "eval_batch_size",
            Advice::EvalBlockSize => "eval_block_size",
            Advice::EvalIters => "fewer eval_iters",
            Advice::EvalInterval => "larger eval_interval",
            Advice::BlockSize => "smaller block_size",
            Advice::SmallerModel => "smaller n_embd",
            Advice::GradCheckpoint => "gradient checkpointing",
            Advice::CompileOff => "compile=False",
            Advice::ReduceOverhead => "mode='reduce-overhead'",
            Advice::ExpandableSegments => "expandable_segments:True",
            Advice::EmptyCache => "torch.cuda.empty_cache()",
            Advice::EvalOnCpu => "evaluation on the CPU",
            Advice::OtherPrograms => "ending other programs on the GPU",
            Advice::Float16 => "float16 instead of bfloat16",
            Advice::MoreGpus => "more GPUs (DDP)",
            Advice::Preloading => "another way to load the data set",
            Advice::NewerTorch => "a newer PyTorch or CUDA",
            Advice::DeviceCpu => "device='cpu'",
        }
    }
}

/// What a piece of advice is worth for this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It lowers the peak.
    Helps,
    /// The run would fit, but slowly.
    CostsOnlyTime,
    /// The peak does not change.
    DoesNothing,
    /// It makes things worse, or rests on a mistake.
    Wrong,
}

impl Verdict {
    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Helps => "helps",
            Verdict::CostsOnlyTime => "costs only time",
            Verdict::DoesNothing => "does nothing here",
            Verdict::Wrong => "wrong",
        }
    }
}

/// A piece of advice with its verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The advice.
    pub advice: Advice,
    /// Whether it helps.
    pub verdict: Verdict,
    /// Bytes that it saves at the peak; negative if it takes more.
    pub bytes: i64,
    /// The reason.
    pub note: Note,
}

/// Reasons for verdicts. Each has a sentence in every language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// Halving the batch.
    HalfBatch,
    /// Already one sequence.
    BatchIsOne,
    /// nanoGPT has no such key, and training would run out of memory next.
    NoSuchKeyAndTrainingDies,
    /// nanoGPT has no such key; with it, evaluation alone would fit.
    NoSuchKeyButEvalWouldFit,
    /// Batches are evaluated one after another.
    OneBatchAtATime,
    /// It only delays the failure.
    OnlyMovesTheMoment,
    /// Half the context.
    HalfContext,
    /// One head narrower.
    Narrower,
    /// No narrower model exists.
    NoNarrower,
    /// Evaluation keeps no activations.
    NothingToCheckpointInEval,
    /// nanoGPT has no checkpointing; it would only lower activations.
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
    /// The run fits as it is.
    FitsAlready,
    /// Weights, gradients and Adam's state alone do not fit.
    StateAlone,
    /// 16-bit activations and logits.
    HalfTheBytes,
    /// Attention without a T x T matrix.
    FlashAttention,
}

/// Judges every piece of advice for this run.
pub fn judge(
    recovered: &RecoveredRun,
    log: Option<&Log>,
    cause: Cause,
    budget: u64,
    others: u64,
) -> Result<Vec<Judged>, SearchError> {
    let before = device_bytes(&recovered.torch)?;
    let judge = Judge {
        recovered,
        log,
        cause,
        budget,
        others,
        before,
        training: training(&recovered.torch)?,
    };
    Advice::ALL.into_iter().map(|advice| judge.one(advice)).collect()
}

/// Judges the advice for which the message alone is enough.
pub fn judge_message(log: &Log, cause: Cause, others: u64) -> Vec<Judged> {
    let expandable = match (log.message.expandable, cause, log.message.unallocated.as_ref()) {
        (true, _, _) => (DoesNothing, 0, Note::AlreadyOn),
        (false, Cause::Fragmentation, Some(size)) => {
            (Helps, size.bytes as i64, Note::PiecesAreEnough)
        }
        _ => (DoesNothing, 0, Note::NotFragmentation),
    };
    let programs = match others {
        0 => (DoesNothing, 0, Note::NoOthers),
        others => (Helps, others as i64, Note::OthersHold),
    };
    let rows = [
        (Advice::EvalIters, (DoesNothing, 0, Note::OneBatchAtATime)),
        (Advice::EvalInterval, (DoesNothing, 0, Note::OnlyMovesTheMoment)),
        (Advice::ReduceOverhead, (Wrong, 0, Note::GraphsTakeMore)),
        (Advice::ExpandableSegments, expandable),
        (Advice::EmptyCache, (DoesNothing, 0, Note::CacheIsEmptied)),
        (Advice::OtherPrograms, programs),
        (Advice::MoreGpus, (DoesNothing, 0, Note::EachHoldsAll)),
        (Advice::Preloading, (DoesNothing, 0, Note::DataIsNotThere)),
        (Advice::DeviceCpu, (CostsOnlyTime, 0, Note::ManyTimesSlower)),
    ];
    rows.map(|(advice, (verdict, bytes, note))| Judged { advice, verdict, bytes, note }).to_vec()
}

/// Bytes of the card that training takes, without evaluation.
fn training(run: &TorchRun) -> Result<u64, SearchError> {
    let evaluates = |phase: Phase| matches!(phase, Phase::FirstEval | Phase::Eval);
    let peaks = peaks(run)?;
    let largest = peaks.iter().filter(|peak| !evaluates(peak.phase)).map(|peak| peak.bytes).max();
    Ok(needs(largest.unwrap_or(0)))
}

struct Judge<'a> {
    recovered: &'a RecoveredRun,
    log: Option<&'a Log>,
    cause: Cause,
    budget: u64,
    others: u64,
    before: u64,
    training: u64,
}

use Verdict::{CostsOnlyTime, DoesNothing, Helps, Wrong};

impl Judge<'_> {
    fn one(&self, advice: Advice) -> Result<Judged, SearchError> {
        let (verdict, bytes, note) = match advice {
            Advice::SmallerBatch => self.smaller_batch()?,
            Advice::EvalBatchSize | Advice::EvalBlockSize => self.eval_key(),
            Advice::EvalIters => (DoesNothing, 0, Note::OneBatchAtATime),
            Advice::EvalInterval => (DoesNothing, 0, Note::OnlyMovesTheMoment),
            Advice::BlockSize => self.half_context()?,
            Advice::SmallerModel => self.narrower()?,
            Advice::GradCheckpoint => self.checkpointing()?,
            Advice::CompileOff => self.eager()?,
            Advice::ReduceOverhead => (Wrong, 0, Note::GraphsTakeMore),
            Advice::ExpandableSegments => self.expandable(),
            Advice::EmptyCache => (DoesNothing, 0, Note::CacheIsEmptied),
            Advice::EvalOnCpu => self.eval_on_cpu(),
            Advice::OtherPrograms if self.others > 0 => {
                (Helps, self.others as i64, Note::OthersHold)
            }
            Advice::OtherPrograms => (DoesNothing, 0, Note::NoOthers),
            Advice::Float16 => self.float16()?,
            Advice::MoreGpus => (DoesNothing, 0, Note::EachHoldsAll),
            Advice::Preloading => (DoesNothing, 0, Note::DataIsNotThere),
            Advice::NewerTorch if self.log.is_some_and(|log| log.run.slow_attention) => {
                (Helps, 0, Note::FlashAttention)
            }
            Advice::NewerTorch => (DoesNothing, 0, Note::SameTensors),
            Advice::DeviceCpu => (CostsOnlyTime, self.before as i64, Note::ManyTimesSlower),
        };
        Ok(Judged { advice, verdict, bytes, note })
    }

    fn saved(&self, run: &TorchRun) -> Result<i64, SearchError> {
        Ok(self.before as i64 - device_bytes(run)? as i64)
    }

    /// Whether weights, gradients and optimizer state alone do not fit.
    fn state_alone(&self) -> Result<bool, SearchError> {
        let one = TorchRun { batch: 1, eval_batch: 1, ..self.recovered.torch.clone() };
        let state = peaks(&one)?.into_iter().find(|peak| peak.phase == Phase::Optimizer);
        Ok(state.is_some_and(|peak| needs(peak.bytes) > self.budget))
    }

    fn smaller_batch(&self) -> Result<(Verdict, i64, Note), SearchError> {
        let torch = &self.recovered.torch;
        if torch.batch < 2 {
            return Ok((DoesNothing, 0, Note::BatchIsOne));
        }
        if self.state_alone()? {
            return Ok((DoesNothing, 0, Note::StateAlone));
        }
        let batch = torch.batch / 2;
        let accumulation = torch.accumulation.saturating_mul(2);
        let run = TorchRun { batch, eval_batch: batch, accumulation, ..torch.clone() };
        Ok((Helps, self.saved(&run)?, Note::HalfBatch))
    }

    fn float16(&self) -> Result<(Verdict, i64, Note), SearchError> {
        if self.recovered.torch.compute != Dtype::F32 {
            return Ok((DoesNothing, 0, Note::SameBytes));
        }
        let run = TorchRun { compute: Dtype::F16, ..self.recovered.torch.clone() };
        Ok((Helps, self.saved(&run)?, Note::HalfTheBytes))
    }

    fn eval_key(&self) -> (Verdict, i64, Note) {
        match self.training > self.budget {
            _ if self.before <= self.budget => (DoesNothing, 0, Note::FitsAlready),
            true => (DoesNothing, 0, Note::NoSuchKeyAndTrainingDies),
            false => (DoesNothing, 0, Note::NoSuchKeyButEvalWouldFit),
        }
    }

    fn half_context(&self) -> Result<(Verdict, i64, Note), SearchError> {
        let torch = &self.recovered.torch;
        if self.state_alone()? {
            return Ok((DoesNothing, 0, Note::StateAlone));
        }
        let positions = (torch.positions / 2).max(1);
        let dims = Dims { block_size: positions, ..torch.dims };
        let run = TorchRun { dims, positions, ..torch.clone() };
        Ok((Helps, self.saved(&run)?, Note::HalfContext))
    }

    fn narrower(&self) -> Result<(Verdict, i64, Note), SearchError> {
        let dims = self.recovered.dims;
        let head = dims.n_embd / dims.n_head.max(1);
        if dims.n_head < 2 {
            return Ok((DoesNothing, 0, Note::NoNarrower));
        }
        let dims = Dims { n_head: dims.n_head - 1, n_embd: dims.n_embd - head, ..dims };
        let run = TorchRun { dims, ..self.recovered.torch.clone() };
        Ok((Helps, self.saved(&run)?, Note::Narrower))
    }

    /// Checkpointing only affects training, so compare training with and without it.
    fn checkpointing(&self) -> Result<(Verdict, i64, Note), SearchError> {
        let evaluates = |phase: Phase| matches!(phase, Phase::FirstEval | Phase::Eval);
        let evaluation =
            peaks(&self.recovered.torch)?.into_iter().filter(|peak| evaluates(peak.phase));
        let evaluation = evaluation.map(|peak| needs(peak.bytes)).max().unwrap_or(0);
        if self.training <= self.budget || evaluation > self.budget {
            return Ok((DoesNothing, 0, Note::NothingToCheckpointInEval));
        }
        let run = TorchRun { checkpointed: true, ..self.recovered.torch.clone() };
        let saved = self.training as i64 - training(&run)? as i64;
        let verdict = if saved > self.training as i64 / 50 { Helps } else { DoesNothing };
        Ok((verdict, saved.max(0), Note::CheckpointLowersActivations))
    }

    fn eager(&self) -> Result<(Verdict, i64, Note), SearchError> {
        if !self.recovered.torch.compiled {
            return Ok((DoesNothing, 0, Note::AlreadyEager));
        }
        let run = TorchRun { compiled: false, ..self.recovered.torch.clone() };
        Ok((Wrong, self.saved(&run)?, Note::EagerTakesMore))
    }

    fn expandable(&self) -> (Verdict, i64, Note) {
        let on = self.log.is_some_and(|log| log.message.expandable);
        match (on, self.cause) {
            (true, _) => (DoesNothing, 0, Note::AlreadyOn),
            (false, Cause::Fragmentation) => {
                let pieces = self.log.and_then(|log| log.message.unallocated.as_ref());
                (Helps, pieces.map_or(0, |size| size.bytes as i64), Note::PiecesAreEnough)
            }
            (false, _) => (DoesNothing, 0, Note::NotFragmentation),
        }
    }

    fn eval_on_cpu(&self) -> (Verdict, i64, Note) {
        match self.training > self.budget {
            true => (DoesNothing, 0, Note::TrainingDiesInstead),
            false => (CostsOnlyTime, self.before as i64 - self.training as i64, Note::EvalLeaves),
        }
    }
}
