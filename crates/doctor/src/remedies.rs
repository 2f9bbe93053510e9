//! What to try in a program whose memory we have no model of: advice that holds for that program,
//! this GPU and this cause. And what the message alone says about usual advice.

use crate::account::Account;
use crate::advice::{Judged, Note, Verdict};
use crate::cause::Cause;
use crate::figure::Figure;
use crate::log::{Backend, Claim, Dialect, Log, LogPhase, Program, System};

/// A line of advice. Each has a sentence in every language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Who holds the memory, and another GPU.
    SeeNvidia,
    /// The same on AMD's GPUs.
    SeeRocm,
    /// This program's list of the machine's GPUs.
    SeeDevices,
    /// `expandable_segments` for CUDA.
    Expandable,
    /// The same for AMD's GPUs.
    ExpandableRocm,
    /// Hugging Face's Trainer: a smaller batch.
    TrainerBatch,
    /// Hugging Face's Trainer: checkpointing.
    TrainerCheckpointing,
    /// Hugging Face's Trainer: 16 bits.
    TrainerPrecision,
    /// Hugging Face's Trainer: an optimizer with small state.
    TrainerOptimizer,
    /// Hugging Face's Trainer: evaluation.
    TrainerEval,
    /// nanochat's batch.
    NanochatBatch,
    /// llm.c's batch and recomputation.
    LlmcBatch,
    /// LitGPT's micro-batch.
    LitgptBatch,
    /// LitGPT's precision and adapters.
    LitgptPrecision,
    /// TensorFlow's batch.
    TensorflowBatch,
    /// What memory growth does and does not.
    TensorflowGrowth,
    /// Any program: a smaller batch with accumulation.
    Batch,
    /// Any program: checkpointing.
    Checkpointing,
    /// Any program: 16 bits.
    Precision,
    /// Any program: shorter sequences, fused attention.
    Attention,
    /// State that does not fit: small moments, sharding, adapters.
    SmallerState,
    /// AdamW's temporary copies.
    Foreach,
    /// A checkpoint is loaded on the CPU.
    LoadOnHost,
    /// Ask for less in one piece of loss.
    ChunkedLoss,
    /// Host memory: data, workers, swap.
    HostMemory,
    /// Where the kernel says it.
    HostKilled,
    /// Windows' page file.
    PageFile,
    /// The batch cannot get smaller.
    BatchIsOne,
    /// A model that only generates.
    Inference,
    /// JAX takes most of the card at its start.
    JaxPreallocates,
    /// The watermark of Apple's GPUs.
    Watermark,
    /// Windows lends host memory.
    WindowsShared,
    /// The desktop of Windows shares the card with WSL2.
    Wsl,
    /// The card is too old for fitGPT.
    Unsupported,
    /// fitGPT runs in WSL2.
    UseWsl,
}

impl Remedy {
    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            Remedy::SeeNvidia => "nvidia_smi",
            Remedy::SeeRocm => "rocm_smi",
            Remedy::SeeDevices => "fitgpt_devices",
            Remedy::Expandable | Remedy::ExpandableRocm => "expandable_segments",
            Remedy::TrainerBatch => "per_device_train_batch_size",
            Remedy::TrainerCheckpointing => "gradient_checkpointing",
            Remedy::TrainerPrecision => "bf16_or_fp16",
            Remedy::TrainerOptimizer => "optim",
            Remedy::TrainerEval => "per_device_eval_batch_size",
            Remedy::NanochatBatch => "device_batch_size",
            Remedy::LlmcBatch => "llmc_batch",
            Remedy::LitgptBatch => "micro_batch_size",
            Remedy::LitgptPrecision => "litgpt_precision",
            Remedy::TensorflowBatch => "tensorflow_batch",
            Remedy::TensorflowGrowth => "memory_growth",
            Remedy::Batch => "smaller_batch",
            Remedy::Checkpointing => "checkpointing",
            Remedy::Precision => "precision",
            Remedy::Attention => "attention",
            Remedy::SmallerState => "smaller_state",
            Remedy::Foreach => "foreach",
            Remedy::LoadOnHost => "load_on_host",
            Remedy::ChunkedLoss => "chunked_loss",
            Remedy::HostMemory => "host_memory",
            Remedy::HostKilled => "host_killed",
            Remedy::PageFile => "page_file",
            Remedy::BatchIsOne => "batch_is_one",
            Remedy::Inference => "inference",
            Remedy::JaxPreallocates => "jax_preallocation",
            Remedy::Watermark => "mps_watermark",
            Remedy::WindowsShared => "windows_shared_memory",
            Remedy::Wsl => "wsl_desktop",
            Remedy::Unsupported => "unsupported_card",
            Remedy::UseWsl => "use_wsl",
        }
    }
}

/// Advice for this program, this GPU and this cause, the most useful first. `modelled` runs have
/// their own table, so only what concerns the machine is said for them.
pub fn remedies(log: &Log, cause: Cause, account: &Account, modelled: bool) -> Vec<Remedy> {
    let mut found = Vec::new();
    if log.backend == Backend::Host {
        return of_host(log);
    }
    let rocm = log.backend == Backend::Rocm;
    let unclear = matches!(
        cause,
        Cause::OtherProcess
            | Cause::FullBefore
            | Cause::Contradiction
            | Cause::Unsaid
            | Cause::Library
            | Cause::Unknown
    );
    let capacity = log.message.limit().unwrap_or(u64::MAX);
    if account.others_matter(capacity) && account.others > 0 && !unclear && !rocm {
        found.push(Remedy::SeeDevices);
    }
    if unclear && log.backend != Backend::Mps {
        found.push(if rocm { Remedy::SeeRocm } else { Remedy::SeeNvidia });
        found.extend((!rocm).then_some(Remedy::SeeDevices));
    }
    let enough =
        log.message.requested.as_ref().is_some_and(|size| account.pieces_suffice(size.bytes));
    let pieces = cause == Cause::Fragmentation || (cause == Cause::OtherProcess && enough);
    if pieces && !log.message.expandable {
        found.push(if rocm { Remedy::ExpandableRocm } else { Remedy::Expandable });
    }
    if cause == Cause::LoadedCheckpoint {
        found.push(Remedy::LoadOnHost);
    }
    let helpless = matches!(cause, Cause::FullBefore | Cause::LoadedCheckpoint);
    if !modelled && !helpless {
        found.extend(of_cause(log, cause));
        found.extend(of_program(log, cause));
    }
    if log.backend == Backend::Mps {
        found.push(Remedy::Watermark);
    }
    match log.system {
        System::Windows if log.shared_memory => found.push(Remedy::WindowsShared),
        System::Windows if modelled => found.push(Remedy::UseWsl),
        System::Wsl if account.others > 0 || unclear => found.push(Remedy::Wsl),
        _ => {}
    }
    found.dedup();
    found
}

fn of_cause(log: &Log, cause: Cause) -> Vec<Remedy> {
    let trainer = log.program.program == Program::HfTransformers;
    match cause {
        Cause::State => vec![Remedy::SmallerState],
        Cause::OptimizerStep => vec![Remedy::Foreach, Remedy::SmallerState],
        Cause::OptimizerState | Cause::Weights => vec![Remedy::SmallerState],
        Cause::AttentionScores => vec![Remedy::Attention],
        Cause::Logits if !trainer => vec![Remedy::ChunkedLoss],
        _ => Vec::new(),
    }
}

/// Host memory: what the kernel says about a killed process, and how to need less.
fn of_host(log: &Log) -> Vec<Remedy> {
    let windows = log.system == System::Windows;
    let killed = log.message.requested.is_none() && !windows;
    let page_file = windows.then_some(Remedy::PageFile);
    let killed = killed.then_some(Remedy::HostKilled);
    killed.into_iter().chain([Remedy::HostMemory]).chain(page_file).collect()
}

/// Advice on the batch is of no use for a batch of one sequence.
fn of_program(log: &Log, cause: Cause) -> Vec<Remedy> {
    use Remedy::{
        Batch, BatchIsOne, LitgptBatch, LlmcBatch, NanochatBatch, TensorflowBatch, TrainerBatch,
    };
    let found = of_its_program(log, cause);
    let single = log.run.setting("batch_size") == Some("1");
    let about_batch = |one: Remedy| {
        let all = [Batch, LitgptBatch, LlmcBatch, NanochatBatch, TensorflowBatch, TrainerBatch];
        single && all.contains(&one)
    };
    found.into_iter().map(|one| if about_batch(one) { BatchIsOne } else { one }).collect()
}

/// A smaller batch helps unless the weights alone are too much, or their optimizer.
fn of_its_program(log: &Log, cause: Cause) -> Vec<Remedy> {
    use Cause::{OptimizerState, OptimizerStep, State, Weights};
    let trainer = log.program.program == Program::HfTransformers;
    if matches!(cause, OptimizerState | OptimizerStep | State | Weights) {
        return trainer.then_some(Remedy::TrainerOptimizer).into_iter().collect();
    }
    let evaluates = matches!(log.traceback.phase, LogPhase::Eval | LogPhase::FirstEval);
    if log.traceback.phase == LogPhase::Sample && !log.program.program.is_nanogpt() {
        return vec![Remedy::Inference];
    }
    match log.program.program {
        Program::NanoGpt | Program::NanoGptFork | Program::Fitgpt => vec![Remedy::Batch],
        Program::Nanochat => vec![Remedy::NanochatBatch],
        Program::LlmC => vec![Remedy::LlmcBatch],
        Program::LitGpt => vec![Remedy::LitgptBatch, Remedy::LitgptPrecision],
        Program::HfTransformers if evaluates => {
            vec![Remedy::TrainerEval, Remedy::TrainerPrecision]
        }
        Program::HfTransformers => vec![
            Remedy::TrainerBatch,
            Remedy::TrainerCheckpointing,
            Remedy::TrainerPrecision,
            Remedy::TrainerOptimizer,
        ],
        Program::TensorFlow if log.traceback.buffer.is_some() => {
            vec![Remedy::TensorflowBatch, Remedy::TensorflowGrowth]
        }
        Program::TensorFlow => vec![Remedy::Batch, Remedy::TensorflowGrowth],
        Program::Jax => vec![Remedy::Batch, Remedy::Precision, Remedy::JaxPreallocates],
        Program::OtherTorch | Program::Unknown if cause == Cause::OtherProcess => Vec::new(),
        Program::OtherTorch | Program::Unknown => {
            vec![Remedy::Batch, Remedy::Precision, Remedy::Checkpointing]
        }
    }
}

/// Judges the text's claims, and the usual advice, as far as the message alone says.
pub fn judge_message(log: &Log, cause: Cause, account: &Account) -> Vec<Judged> {
    let said = log.claims.iter().map(|(claim, line)| (*claim, Some(line.clone())));
    let usual = [Claim::ExpandableSegments, Claim::EmptyCache, Claim::KillOthers];
    let is_said = |claim: &Claim| log.claims.iter().any(|(one, _)| one.name() == claim.name());
    let elsewhere = matches!(log.backend, Backend::Host | Backend::Mps)
        || matches!(log.program.program, Program::TensorFlow | Program::Jax)
        || log.message.dialect == Dialect::LlmC;
    let silent = log.message.requested.is_none() || elsewhere;
    let usual = usual.into_iter().filter(|claim| !silent && !is_said(claim));
    let all = said.chain(usual.map(|claim| (claim, None)));
    all.filter_map(|(claim, line)| {
        let (verdict, bytes, note) = of_message(log, claim, cause, account)?;
        let others = Figure::Bytes(account.others);
        let figures = if note == Note::OthersLittle { vec![others] } else { Vec::new() };
        Some(Judged { claim, line, verdict, bytes, note, figures })
    })
    .collect()
}

fn of_message(
    log: &Log,
    claim: Claim,
    cause: Cause,
    account: &Account,
) -> Option<(Verdict, i64, Note)> {
    let others = account.others;
    let nanogpt = log.program.program.is_nanogpt();
    let asked = log.message.requested.as_ref().map_or(u64::MAX, |size| size.bytes);
    Some(match claim {
        Claim::ExpandableSegments | Claim::MaxSplitSize if log.message.expandable => {
            (Verdict::DoesNothing, 0, Note::AlreadyOn)
        }
        Claim::ExpandableSegments | Claim::MaxSplitSize if cause == Cause::Fragmentation => {
            (Verdict::Helps, account.pieces as i64, Note::PiecesAreEnough)
        }
        Claim::ExpandableSegments | Claim::MaxSplitSize
            if account.pieces_suffice(asked) && cause == Cause::OtherProcess =>
        {
            (Verdict::Helps, account.pieces as i64, Note::PiecesAreEnough)
        }
        Claim::ExpandableSegments | Claim::MaxSplitSize if cause != Cause::Contradiction => {
            (Verdict::DoesNothing, 0, Note::NotFragmentation)
        }
        Claim::EmptyCache => (Verdict::DoesNothing, 0, Note::CacheIsEmptied),
        Claim::Fragmentation if cause == Cause::Fragmentation => {
            (Verdict::True, 0, Note::PiecesAreEnough)
        }
        Claim::Fragmentation if log.message.requested.is_some() && account.pieces < asked => {
            (Verdict::False, 0, Note::NotFragmentation)
        }
        Claim::KillOthers if cause == Cause::OtherProcess => {
            (Verdict::Helps, others as i64, Note::OthersHold)
        }
        Claim::KillOthers if others > 0 => {
            let capacity = log.message.limit().unwrap_or(u64::MAX);
            match account.others_matter(capacity) {
                true => (Verdict::Helps, others as i64, Note::OthersHold),
                // Much, but perhaps this process's own.
                false if others >= capacity / 10 => return None,
                false => (Verdict::DoesNothing, 0, Note::OthersLittle),
            }
        }
        Claim::KillOthers if account.total.is_some() => (Verdict::DoesNothing, 0, Note::NoOthers),
        Claim::EvalIters => (Verdict::DoesNothing, 0, Note::OneBatchAtATime),
        Claim::EvalInterval => (Verdict::DoesNothing, 0, Note::OnlyMovesTheMoment),
        Claim::CompileMode => (Verdict::Worse, 0, Note::GraphsTakeMore),
        Claim::SuppressErrors => (Verdict::DoesNothing, 0, Note::HidesCompilerErrors),
        Claim::Accumulation { .. } => (Verdict::DoesNothing, 0, Note::AccumulationAlone),
        Claim::CpuFallback => (Verdict::CostsOnlyTime, 0, Note::ManyTimesSlower),
        Claim::GradScalerWarning | Claim::AutotuneWarning => {
            (Verdict::False, 0, Note::UnrelatedWarning)
        }
        Claim::KvCacheInTraining if nanogpt => (Verdict::False, 0, Note::NoKvCache),
        Claim::EvalBatchSizeKeyExists if nanogpt => (Verdict::False, 0, Note::NoSuchKey),
        Claim::NoGrad if nanogpt => (Verdict::DoesNothing, 0, Note::AlreadyNoGrad),
        Claim::DataLoader if nanogpt => (Verdict::DoesNothing, 0, Note::DataIsNotThere),
        _ => return None,
    })
}
