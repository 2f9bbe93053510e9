//! What a text asserts or advises about memory. Here the assertions are only found; whether they
//! hold for this run is judged elsewhere.

use super::text::Line;

/// An assertion or a piece of advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Training keeps a KV cache.
    KvCacheInTraining,
    /// Evaluation keeps the autograd graph of all its batches.
    GraphKeptInEval,
    /// Adam's state takes memory at the first evaluation.
    AdamAtFirstEval,
    /// Training itself fits; evaluation is what runs out of memory.
    EvalIsCulprit,
    /// A smaller `eval_batch_size` alone is enough.
    EvalBatchSizeAlone,
    /// nanoGPT has a key `eval_batch_size`.
    EvalBatchSizeKeyExists,
    /// Evaluate with shorter sequences.
    EvalBlockSize,
    /// Evaluate fewer batches.
    EvalIters,
    /// Evaluate less often.
    EvalInterval,
    /// Use a smaller batch; this one, if the text says so.
    SmallerBatch {
        /// Sequences of the micro-batch.
        batch_size: Option<u64>,
    },
    /// Use shorter sequences; this long, if the text says so.
    ShorterContext {
        /// Positions.
        block_size: Option<u64>,
    },
    /// Use a smaller model; this wide, if the text says so.
    SmallerModel {
        /// Width of the model.
        n_embd: Option<u64>,
    },
    /// Keep the tokens of an iteration with more accumulation.
    Accumulation {
        /// Micro-batches.
        steps: Option<u64>,
    },
    /// Turn gradient checkpointing on.
    Checkpointing,
    /// Gradient checkpointing saves about half of the activations, or this share.
    CheckpointingHalves {
        /// Lowest share that is claimed, in percent.
        percent: u64,
    },
    /// Call `torch.cuda.empty_cache()`.
    EmptyCache,
    /// Set `expandable_segments`.
    ExpandableSegments,
    /// Set `max_split_size_mb`.
    MaxSplitSize,
    /// Turn `torch.compile` off.
    CompileOff,
    /// Use another mode of `torch.compile`.
    CompileMode,
    /// Set `torch._dynamo.config.suppress_errors`.
    SuppressErrors,
    /// End other programs on the GPU.
    KillOthers,
    /// Move a part of the work or state to the host.
    CpuOffload,
    /// Run on the CPU.
    CpuFallback,
    /// Use float16, bfloat16 or mixed precision.
    LowerPrecision,
    /// Use an optimizer with smaller state.
    SmallerOptimizer,
    /// Use LoRA or a quantised model.
    LoraOrQuantized,
    /// Use flash attention.
    FlashAttention,
    /// Delete the logits, or compute the loss in pieces.
    DeleteLogits,
    /// Evaluate under `torch.no_grad()`.
    NoGrad,
    /// Use several GPUs.
    MoreGpus,
    /// Use a GPU with more memory.
    LargerGpu,
    /// Install another PyTorch or CUDA.
    OtherVersion,
    /// The `GradScaler` warning has to do with the memory.
    GradScalerWarning,
    /// The `max_autotune_gemm` warning has to do with the memory.
    AutotuneWarning,
    /// Load data with fewer workers, or without pinned memory.
    DataLoader,
}

impl Claim {
    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            Claim::KvCacheInTraining => "kv_cache_in_training",
            Claim::GraphKeptInEval => "graph_kept_in_eval",
            Claim::AdamAtFirstEval => "adam_at_first_eval",
            Claim::EvalIsCulprit => "eval_is_culprit",
            Claim::EvalBatchSizeAlone => "eval_batch_size_alone",
            Claim::EvalBatchSizeKeyExists => "eval_batch_size_key_exists",
            Claim::EvalBlockSize => "eval_block_size",
            Claim::EvalIters => "eval_iters",
            Claim::EvalInterval => "eval_interval",
            Claim::SmallerBatch { .. } => "smaller_batch",
            Claim::ShorterContext { .. } => "shorter_context",
            Claim::SmallerModel { .. } => "smaller_model",
            Claim::Accumulation { .. } => "accumulation",
            Claim::Checkpointing => "checkpointing",
            Claim::CheckpointingHalves { .. } => "checkpointing_halves",
            Claim::EmptyCache => "empty_cache",
            Claim::ExpandableSegments => "expandable_segments",
            Claim::MaxSplitSize => "max_split_size",
            Claim::CompileOff => "compile_off",
            Claim::CompileMode => "compile_mode",
            Claim::SuppressErrors => "suppress_errors",
            Claim::KillOthers => "kill_others",
            Claim::CpuOffload => "cpu_offload",
            Claim::CpuFallback => "cpu_fallback",
            Claim::LowerPrecision => "lower_precision",
            Claim::SmallerOptimizer => "smaller_optimizer",
            Claim::LoraOrQuantized => "lora_or_quantized",
            Claim::FlashAttention => "flash_attention",
            Claim::DeleteLogits => "delete_logits",
            Claim::NoGrad => "no_grad",
            Claim::MoreGpus => "more_gpus",
            Claim::LargerGpu => "larger_gpu",
            Claim::OtherVersion => "other_version",
            Claim::GradScalerWarning => "grad_scaler_warning",
            Claim::AutotuneWarning => "autotune_warning",
            Claim::DataLoader => "data_loader",
        }
    }
}

/// Words that make a claim, by themselves.
const WORDS: [(&str, Claim); 6] = [
    ("KV-Cache", Claim::KvCacheInTraining),
    ("KVキャッシュ", Claim::KvCacheInTraining),
    ("KV cache", Claim::KvCacheInTraining),
    ("suppress_errors", Claim::SuppressErrors),
    ("empty_cache()", Claim::EmptyCache),
    ("eval_batch_size", Claim::EvalBatchSizeKeyExists),
];

/// The claims of a text, each with its first line.
pub fn find(lines: &[Line]) -> Vec<(Claim, String)> {
    let mut found: Vec<(Claim, String)> = Vec::new();
    for line in lines {
        for (words, claim) in WORDS {
            if line.text.contains(words) && !found.iter().any(|(known, _)| *known == claim) {
                found.push((claim, line.text.trim().to_string()));
            }
        }
    }
    found
}
