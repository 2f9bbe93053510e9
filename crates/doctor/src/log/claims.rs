//! What a text asserts or advises about memory. Here the assertions are only found; whether they
//! hold for this run is judged elsewhere.

use super::assignments::in_line;
use super::claim_words::{ACTIVATIONS, CHECKPOINTING, OPTIMIZER_STATE, ROWS, SUFFICES};
use super::phase::LogPhase;
use super::run::RunLines;
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
    /// Call Python's garbage collector.
    ClearCache,
    /// Restart the machine or the session.
    Restart,
    /// The memory is fragmented.
    Fragmentation,
    /// Compiled code needs more memory.
    CompileCostsMemory,
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
            Claim::ClearCache => "clear_cache",
            Claim::Restart => "restart",
            Claim::Fragmentation => "fragmentation",
            Claim::CompileCostsMemory => "compile_costs_memory",
        }
    }

    /// Whether it says how much.
    const fn has_number(self) -> bool {
        match self {
            Claim::SmallerBatch { batch_size } => batch_size.is_some(),
            Claim::ShorterContext { block_size } => block_size.is_some(),
            Claim::SmallerModel { n_embd } => n_embd.is_some(),
            Claim::Accumulation { steps } => steps.is_some(),
            _ => false,
        }
    }
}

/// Longest line that is quoted.
const LONGEST: usize = 400;

/// More claims than these are not worth a judgement.
const MOST: usize = 64;

/// How far above its subject a remark may stand, in lines: `eval_batch_size = 2`, then `that alone
/// fixes it`.
const ABOVE: usize = 12;

/// The claims of a text, each with its first line. Tracebacks and messages claim nothing.
pub fn find(
    lines: &[Line],
    run: &RunLines,
    suggestions: &[(String, String)],
    phase: LogPhase,
) -> Vec<(Claim, String)> {
    let texts: Vec<String> = lines.iter().map(lowered).collect();
    let mut found = Claims::default();
    // PyTorch's own advice at the end of a wrapped message is nobody's claim.
    let of_message = |at: usize| {
        let above = at.checked_sub(1).map_or("", |above| lines[above].text.as_str());
        above.contains("If reserved") || above.contains("but unallocated")
    };
    let texts_of_people = texts.iter().enumerate().filter(|(_, text)| !text.is_empty());
    for (at, text) in texts_of_people.filter(|(at, _)| !of_message(*at)) {
        let line = lines[at].text.trim();
        for row in &ROWS {
            if row.groups.iter().all(|group| has(text, group)) {
                found.add(row.claim, line);
            }
        }
        let above = texts[at.saturating_sub(ABOVE)..=at].iter();
        if SUFFICES.iter().all(|group| has(text, group))
            && above.clone().any(|text| text.contains("eval_batch_size"))
        {
            found.add(Claim::EvalBatchSizeAlone, line);
        }
        if let Some(percent) = percent(text)
            && has(text, ACTIVATIONS)
            && above.clone().any(|text| has(text, CHECKPOINTING))
        {
            found.add(Claim::CheckpointingHalves { percent }, line);
        }
        if phase == LogPhase::FirstEval && !lines[at].advice && has(text, OPTIMIZER_STATE) {
            found.add(Claim::AdamAtFirstEval, line);
        }
    }
    for (key, value) in suggestions.iter().filter(|(key, value)| changes(run, key, value)) {
        if let Some(claim) = suggested(key, value) {
            let says = |line: &&Line| {
                let mut set = in_line(&line.text).into_iter();
                line.text.contains(value) && set.any(|one| one.key == key && one.value == *value)
            };
            let line = lines.iter().find(|line| line.advice && says(line));
            let line = line.or_else(|| lines.iter().find(says));
            found.add(claim, line.map_or(key.as_str(), |line| line.text.trim()));
        }
    }
    found.all
}

/// Whether a recommended setting is another one than the run had, in the direction that saves
/// memory.
fn changes(run: &RunLines, key: &str, value: &str) -> bool {
    let number = |value: &str| value.parse::<u64>().ok();
    match (run.setting(key), number(value)) {
        (None, _) => true,
        (Some(old), Some(new)) => number(old).is_none_or(|old| match key {
            "gradient_accumulation_steps" | "eval_interval" => new > old,
            _ => new < old,
        }),
        (Some(old), None) => old != value,
    }
}

/// What a recommended setting claims.
fn suggested(key: &str, value: &str) -> Option<Claim> {
    let number = value.parse::<u64>().ok();
    Some(match key {
        "batch_size" => Claim::SmallerBatch { batch_size: number },
        "block_size" => Claim::ShorterContext { block_size: number },
        "n_embd" => Claim::SmallerModel { n_embd: number },
        "n_layer" => Claim::SmallerModel { n_embd: None },
        "gradient_accumulation_steps" => Claim::Accumulation { steps: number },
        "eval_iters" => Claim::EvalIters,
        "eval_interval" => Claim::EvalInterval,
        "eval_block_size" => Claim::EvalBlockSize,
        "grad_checkpoint" => Claim::Checkpointing,
        "compile" if value == "False" => Claim::CompileOff,
        "device" if value == "cpu" => Claim::CpuFallback,
        "dtype" => Claim::LowerPrecision,
        _ => return None,
    })
}

/// Claims without repetitions.
#[derive(Default)]
struct Claims {
    all: Vec<(Claim, String)>,
}

impl Claims {
    /// A claim with a number replaces the same claim without one.
    fn add(&mut self, claim: Claim, line: &str) {
        let line: String = line.chars().take(LONGEST).collect();
        let room = self.all.len() < MOST;
        let same = self.all.iter_mut().find(|(known, _)| known.name() == claim.name());
        match same {
            Some((known, said)) if !known.has_number() && claim.has_number() => {
                (*known, *said) = (claim, line);
            }
            Some(_) => {}
            None if room => self.all.push((claim, line)),
            None => {}
        }
    }
}

/// A line in lower case, or nothing if a program wrote it.
fn lowered(line: &Line) -> String {
    const PROGRAMS: [&str; 11] = [
        "- INFO -",
        "[INFO",
        "File \"",
        "Traceback",
        "If reserved",
        "to avoid fragmentation",
        "FutureWarning",
        "site-packages",
        "dist-packages",
        "warnings.warn",
        "Overriding",
    ];
    let program = PROGRAMS.iter().any(|words| line.text.contains(words));
    // Code outside of recommendations is that of a traceback or a command.
    let code = line.text.starts_with("    ") || line.fenced || line.text.contains("--");
    let code = code && !line.advice;
    if !line.told || program || code || line.text.len() > 4000 {
        String::new()
    } else {
        line.text.to_lowercase()
    }
}

fn has(text: &str, group: &[&str]) -> bool {
    group.iter().any(|words| match words.len() {
        // Short words stand alone: `ddp`, `lora`.
        ..=4 if words.is_ascii() => has_word(text, words),
        _ => text.contains(words),
    })
}

/// Whether a word stands alone.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        !before.is_some_and(|c| c.is_ascii_alphanumeric())
    })
}

/// The first percentage: 50 of `~50-60%`.
fn percent(text: &str) -> Option<u64> {
    let before = text[..text.find('%')?].trim_end();
    let range = |c: char| c.is_ascii_digit() || matches!(c, '-' | '–' | '~' | ' ');
    let digits = before[before.trim_end_matches(range).len()..].trim_matches(['-', '–', '~', ' ']);
    let first = digits.split(['-', '–', '~', ' ']).next()?;
    first.parse().ok().filter(|percent| *percent <= 100)
}

#[cfg(test)]
mod tests {
    use crate::log::Log;

    fn names(text: &str) -> Vec<&'static str> {
        let log = Log::read(text.as_bytes());
        log.claims.iter().map(|(claim, _)| claim.name()).collect()
    }

    #[test]
    fn claims_are_found_in_five_languages() {
        for (text, want) in [
            ("The KV cache takes 2 GB in training.", "kv_cache_in_training"),
            ("Der KV-Cache belegt 2 GB.", "kv_cache_in_training"),
            ("训练时的KV缓存占用2GB", "kv_cache_in_training"),
            ("PyTorch keeps the computation graph of all batches.", "graph_kept_in_eval"),
            ("PyTorch garde le graphe de calcul de toutes les itérations.", "graph_kept_in_eval"),
            ("评估时计算图会一直保留在显存中", "graph_kept_in_eval"),
            ("Training itself is fine, the evaluation is not.", "eval_is_culprit"),
            ("L'entraînement lui-même passe, mais pas l'évaluation.", "eval_is_culprit"),
            ("Recent versions of nanoGPT support eval_batch_size.", "eval_batch_size_key_exists"),
            ("eval_batch_size = 2\n\nThis alone fixes the error.", "eval_batch_size_alone"),
            ("eval_batch_size = 2\n\n仅此一项就能解决问题", "eval_batch_size_alone"),
            (
                "Enable gradient checkpointing.\nIt saves 40-50% of activations.",
                "checkpointing_halves",
            ),
            ("Set torch._dynamo.config.suppress_errors = True", "suppress_errors"),
            ("Try batch_size=2.", "smaller_batch"),
            ("Utilisez gradient_accumulation_steps=8.", "accumulation"),
            ("请尝试关闭torch.compile编译", "compile_off"),
            ("他のGPUプロセスを終了する", "kill_others"),
            ("Fermez les autres applications.", "kill_others"),
        ] {
            assert!(names(text).contains(&want), "{text}: {:?}", names(text));
        }
        let log = "  File \"x.py\", line 1, in f\n    with torch.no_grad():\nIf reserved but \
            unallocated memory is large try setting \
            PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";
        assert!(names(log).is_empty(), "{:?}", names(log));
        let wrapped = "CUDA out of memory. If reserved but unallocated memory is large\n\
            try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to";
        assert!(names(wrapped).is_empty(), "{:?}", names(wrapped));
    }

    #[test]
    fn a_claim_has_its_number_and_its_line() {
        let log =
            Log::read("### Fix\nUse a smaller batch\n- `batch_size = 3` is enough".as_bytes());
        let (claim, line) = &log.claims[0];
        assert_eq!(*claim, super::Claim::SmallerBatch { batch_size: Some(3) });
        assert_eq!(line, "- batch_size = 3 is enough");
    }
}
