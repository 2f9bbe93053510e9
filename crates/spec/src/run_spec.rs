//! A run as the rest of the program understands it: every key with its meaning, checked.

use crate::error::SpecError;
use crate::heads;
use crate::keys::Command;
use crate::memory::Memory;
use crate::words;
use model::Dims;
use plan::ops::GeluKind;

/// Where it is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedDevice {
    /// The best there is.
    Auto,
    /// The CPU.
    Cpu,
    /// The NVIDIA GPU of this number.
    Cuda(u32),
}

impl RequestedDevice {
    const AUTO: &'static str = "auto";
    const CPU: &'static str = "cpu";
    const CUDA: &'static str = "cuda";

    /// The words that name one; `cuda:1` is also understood.
    pub const WORDS: &'static [&'static str] =
        &[RequestedDevice::AUTO, RequestedDevice::CPU, RequestedDevice::CUDA];

    /// The device that a text names.
    pub fn of(text: &str) -> Option<RequestedDevice> {
        match text {
            RequestedDevice::AUTO => Some(RequestedDevice::Auto),
            RequestedDevice::CPU => Some(RequestedDevice::Cpu),
            RequestedDevice::CUDA => Some(RequestedDevice::Cuda(0)),
            _ => {
                let number = text.strip_prefix(RequestedDevice::CUDA)?.strip_prefix(':')?;
                let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
                if digits { number.parse().ok().map(RequestedDevice::Cuda) } else { None }
            }
        }
    }
}

words! {
    /// In which number format it is computed.
    pub enum RequestedDtype {
        /// float32 on the CPU, bfloat16 on CUDA.
        Auto = "auto",
        /// IEEE single precision (TF32 matmuls on CUDA).
        Float32 = "float32",
        /// bfloat16.
        Bfloat16 = "bfloat16",
        /// IEEE half precision with a scaled loss.
        Float16 = "float16",
    }
}

words! {
    /// One of OpenAI's models, by the name that Hugging Face and nanoGPT give it.
    pub enum Gpt2 {
        /// 124M.
        Small = "gpt2",
        /// 350M.
        Medium = "gpt2-medium",
        /// 774M.
        Large = "gpt2-large",
        /// 1558M.
        Xl = "gpt2-xl",
    }
}

impl Gpt2 {
    /// All, smallest first.
    pub const ALL: [Gpt2; 4] = [Gpt2::Small, Gpt2::Medium, Gpt2::Large, Gpt2::Xl];

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

impl InitFrom {
    const SCRATCH: &'static str = "scratch";
    const RESUME: &'static str = "resume";

    /// The words of the key: two of our own, then OpenAI's models.
    pub const WORDS: &'static [&'static str] = &[
        InitFrom::SCRATCH,
        InitFrom::RESUME,
        Gpt2::Small.word(),
        Gpt2::Medium.word(),
        Gpt2::Large.word(),
        Gpt2::Xl.word(),
    ];

    /// What a word stands for.
    pub fn of(word: &str) -> Option<InitFrom> {
        match word {
            InitFrom::SCRATCH => Some(InitFrom::Scratch),
            InitFrom::RESUME => Some(InitFrom::Resume),
            _ => Gpt2::of(word).map(InitFrom::Gpt2),
        }
    }
}

words! {
    /// Which random streams choose weights and batches.
    pub enum Sampler {
        /// Our own: evaluation never changes training.
        Fitgpt = "fitgpt",
        /// PyTorch's generator, drawn from as nanoGPT does.
        Nanogpt = "nanogpt",
    }
}

words! {
    /// When activations are computed again instead of kept.
    pub enum GradCheckpoint {
        /// As far as the budget needs it.
        Auto = "auto",
        /// In every layer.
        Always = "True",
        /// Never.
        Never = "False",
    }
}

words! {
    /// The number format of AdamW's moments.
    pub enum OptimizerState {
        /// IEEE single precision.
        Float32 = "float32",
        /// bfloat16 with stochastic rounding.
        Bfloat16 = "bfloat16",
        /// The planner may choose, once for a run.
        Auto = "auto",
    }
}

words! {
    /// What may live in host memory.
    pub enum Offload {
        /// Nothing.
        Never = "False",
        /// AdamW's moments.
        Optimizer = "optimizer",
        /// Whatever the budget needs.
        Auto = "auto",
    }
}

words! {
    /// The number format of the residual stream.
    pub enum Residual {
        /// That of the computation.
        Auto = "auto",
        /// IEEE single precision.
        Float32 = "float32",
    }
}

words! {
    /// Which form of GELU.
    pub enum Gelu {
        /// By the origin of the weights.
        Auto = "auto",
        /// The exact one, as nanoGPT has it.
        Erf = "erf",
        /// The approximation that OpenAI's weights were trained with.
        Tanh = "tanh",
    }
}

/// How text is generated.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingKeys {
    /// What the text begins with, or `FILE:` and a path.
    pub start: String,
    /// Texts to generate.
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
    pub device: RequestedDevice,
    /// In which number format.
    pub dtype: RequestedDtype,
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
            (Gelu::Erf, _) => GeluKind::Erf,
            (Gelu::Tanh, _) => GeluKind::Tanh,
            (Gelu::Auto, InitFrom::Gpt2(_)) => GeluKind::Tanh,
            (Gelu::Auto, InitFrom::Scratch | InitFrom::Resume) => GeluKind::Erf,
        }
    }
}
