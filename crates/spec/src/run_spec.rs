//! A run as the rest of the program understands it: every key with its meaning, checked.

use crate::error::SpecError;
use crate::heads;
use crate::keys::Command;
use crate::memory::Memory;
use model::Dims;
use plan::ops::GeluKind;

/// Where it is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The best there is.
    Auto,
    /// The CPU.
    Cpu,
    /// The NVIDIA GPU of this number.
    Cuda(u32),
}

/// In which number format it is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DtypeChoice {
    /// float32 on the CPU, bfloat16 on CUDA.
    Auto,
    /// IEEE single precision (TF32 products on CUDA).
    Float32,
    /// bfloat16.
    Bfloat16,
    /// IEEE half precision with a scaled loss.
    Float16,
}

/// One of OpenAI's models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gpt2 {
    /// 124M.
    Small,
    /// 350M.
    Medium,
    /// 774M.
    Large,
    /// 1558M.
    Xl,
}

impl Gpt2 {
    /// All, smallest first.
    pub const ALL: [Gpt2; 4] = [Gpt2::Small, Gpt2::Medium, Gpt2::Large, Gpt2::Xl];

    /// As Hugging Face and nanoGPT call it.
    pub fn name(self) -> &'static str {
        match self {
            Gpt2::Small => "gpt2",
            Gpt2::Medium => "gpt2-medium",
            Gpt2::Large => "gpt2-large",
            Gpt2::Xl => "gpt2-xl",
        }
    }

    /// Its sizes, which no key changes.
    pub fn dims(self) -> Dims {
        let [n_layer, n_head, n_embd] = match self {
            Gpt2::Small => [12, 12, 768],
            Gpt2::Medium => [24, 16, 1024],
            Gpt2::Large => [36, 20, 1280],
            Gpt2::Xl => [48, 25, 1600],
        };
        Dims { n_layer, n_head, n_embd, block_size: 1024, vocab_size: 50257, bias: true }
    }
}

/// What the weights start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitFrom {
    /// New ones.
    Scratch,
    /// The checkpoint in `out_dir`.
    Resume,
    /// OpenAI's.
    Gpt2(Gpt2),
}

/// Which random streams choose weights and batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampler {
    /// Our own: evaluation never changes training.
    Fitgpt,
    /// PyTorch's generator, drawn from as nanoGPT does.
    Nanogpt,
}

/// When activations are computed again instead of kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradCheckpoint {
    /// As far as the budget needs it.
    Auto,
    /// In every layer.
    Always,
    /// Never.
    Never,
}

/// The number format of AdamW's moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptimizerState {
    /// IEEE single precision.
    Float32,
    /// bfloat16 with stochastic rounding.
    Bfloat16,
    /// The planner may choose, once for a run.
    Auto,
}

/// What may live in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Nothing.
    Never,
    /// AdamW's moments.
    Optimizer,
    /// Whatever the budget needs.
    Auto,
}

/// The number format of the residual stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    /// That of the computation.
    Auto,
    /// IEEE single precision.
    Float32,
}

/// Which GELU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gelu {
    /// By the origin of the weights.
    Auto,
    /// This one.
    Kind(GeluKind),
}

/// How text is generated.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingKeys {
    /// What the text begins with, or `FILE:` and a path.
    pub start: String,
    /// Texts to write.
    pub num_samples: u64,
    /// Tokens added to each.
    pub max_new_tokens: u64,
    /// Divides the logits; above 0.
    pub temperature: f64,
    /// Choose among so many likeliest tokens; `None` = all.
    pub top_k: Option<u64>,
}

/// Every key with its meaning. Sizes are at least 1 where 0 has none.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpec {
    /// The command it is for.
    pub command: Command,
    /// Folder of checkpoints and the log.
    pub out_dir: String,
    /// Iterations from one evaluation to the next.
    pub eval_interval: u64,
    /// Iterations from one printed loss to the next.
    pub log_interval: u64,
    /// Batches of each split in an evaluation.
    pub eval_iters: u64,
    /// Evaluate once and stop.
    pub eval_only: bool,
    /// Save at every evaluation, not only at a better one.
    pub always_save_checkpoint: bool,
    /// What the weights start from.
    pub init_from: InitFrom,
    /// Resume though the data set's files have changed.
    pub accept_changed_data: bool,
    /// Name of the data set.
    pub dataset: String,
    /// Micro-batches of an iteration.
    pub gradient_accumulation_steps: u64,
    /// Sequences of a micro-batch.
    pub batch_size: u64,
    /// Tokens of a sequence.
    pub block_size: u64,
    /// Transformer blocks.
    pub n_layer: u64,
    /// Attention heads.
    pub n_head: u64,
    /// Width of the residual stream.
    pub n_embd: u64,
    /// Probability of a zero in training, below 1.
    pub dropout: f64,
    /// Biases in linear layers and layer norms.
    pub bias: bool,
    /// Which GELU.
    pub gelu: Gelu,
    /// The largest learning rate.
    pub learning_rate: f64,
    /// Number of the last iteration.
    pub max_iters: u64,
    /// On tensors of two or more dimensions.
    pub weight_decay: f64,
    /// Decay of the first moment, below 1.
    pub beta1: f64,
    /// Decay of the second moment, below 1.
    pub beta2: f64,
    /// Largest norm of the gradients; `None` = no limit.
    pub grad_clip: Option<f64>,
    /// Whether the learning rate changes.
    pub decay_lr: bool,
    /// Iterations of warm-up.
    pub warmup_iters: u64,
    /// Iteration at which the rate is lowest.
    pub lr_decay_iters: u64,
    /// The last learning rate.
    pub min_lr: f64,
    /// Where it is computed.
    pub device: Device,
    /// In which number format.
    pub dtype: DtypeChoice,
    /// Captured graphs on CUDA.
    pub compile: bool,
    /// Sequences of an evaluation batch.
    pub eval_batch_size: u64,
    /// Tokens of an evaluation sequence; at most `block_size`.
    pub eval_block_size: u64,
    /// When activations are computed again.
    pub grad_checkpoint: GradCheckpoint,
    /// Device memory to use.
    pub vram: Memory,
    /// Host memory to use.
    pub ram: Memory,
    /// The number format of the moments.
    pub optimizer_state: OptimizerState,
    /// What may live in host memory.
    pub offload: Offload,
    /// The number format of the residual stream.
    pub residual: Residual,
    /// Start of every random stream.
    pub seed: u64,
    /// Which random streams.
    pub sampler: Sampler,
    /// How text is generated.
    pub sampling: SamplingKeys,
}

impl RunSpec {
    /// Sequences of an iteration.
    pub fn sequences_per_iteration(&self) -> u64 {
        self.batch_size * self.gradient_accumulation_steps // resolve() has checked the product
    }

    /// Tokens of an iteration.
    pub fn tokens_per_iteration(&self) -> u64 {
        self.sequences_per_iteration() * self.block_size // resolve() has checked the product
    }

    /// The model's sizes with this vocabulary, or what is near and possible. OpenAI's models have
    /// sizes and a vocabulary of their own; a smaller `block_size` crops their positions.
    pub fn dims(&self, vocab_size: u64) -> Result<Dims, SpecError> {
        let RunSpec { n_layer, n_head, n_embd, block_size, bias, .. } = *self;
        heads::checked(match self.init_from {
            InitFrom::Scratch | InitFrom::Resume => {
                Dims { n_layer, n_head, n_embd, block_size, vocab_size, bias }
            }
            InitFrom::Gpt2(name) => Dims { block_size, ..name.dims() },
        })
    }

    /// Which GELU, when the weights say nothing of it: OpenAI's were trained with the tanh form,
    /// nanoGPT's with the exact one.
    pub fn gelu_kind(&self) -> GeluKind {
        match (self.gelu, self.init_from) {
            (Gelu::Kind(kind), _) => kind,
            (Gelu::Auto, InitFrom::Gpt2(_)) => GeluKind::Tanh,
            (Gelu::Auto, InitFrom::Scratch | InitFrom::Resume) => GeluKind::Erf,
        }
    }
}
