//! A run as the rest of the program sees it: every key, typed and checked.

use crate::error::{SpecError, shown};
use crate::heads;
use crate::keys::Command;
use crate::memory::Memory;
use crate::words;
use model::{AdamW, Architecture, Dims, Optimizer, Sharing};
use plan::ops::GeluKind;
use plan::{Dtype, Rank};

/// Which device computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedDevice {
    /// The first usable GPU, else the CPU.
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

    /// The words of the key; `cuda:1` is also accepted.
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
    /// Number format of the computation.
    pub enum RequestedDtype {
        /// float32 on the CPU, bfloat16 on CUDA.
        Auto = "auto",
        /// IEEE single precision (TF32 matmuls on CUDA).
        Float32 = "float32",
        /// bfloat16.
        Bfloat16 = "bfloat16",
        /// IEEE half precision, with loss scaling.
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

    /// Its sizes; keys cannot change them.
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

/// What a model's own files say about it; keys cannot change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PretrainedModel {
    /// Its sizes.
    pub dims: Dims,
    /// The form of GELU that it was trained with.
    pub gelu: GeluKind,
}

/// A model that somebody has trained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pretrained {
    /// One of OpenAI's by its name, a file or folder, or a name on the Hugging Face hub
    /// (`owner/name`).
    pub name: String,
    /// What is known about it: from its `config.json`, else OpenAI's from the table.
    pub model: Option<PretrainedModel>,
}

impl Pretrained {
    /// OpenAI's model of this name.
    pub fn of_openai(name: Gpt2) -> Pretrained {
        // OpenAI trained with the tanh form. nanoGPT computes the exact one on these weights.
        let model = PretrainedModel { dims: name.dims(), gelu: GeluKind::Tanh };
        Pretrained { name: name.word().to_owned(), model: Some(model) }
    }

    /// Which of OpenAI's models it is.
    pub fn openai(&self) -> Option<Gpt2> {
        Gpt2::of(&self.name)
    }
}

/// What the weights start from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitFrom {
    /// New random weights.
    Scratch,
    /// The checkpoint in `out_dir`.
    Resume,
    /// Those of a trained model; the optimizer and the iterations start anew.
    Pretrained(Pretrained),
}

impl InitFrom {
    const SCRATCH: &'static str = "scratch";
    const RESUME: &'static str = "resume";

    /// The words of the key, OpenAI's models last.
    pub const WORDS: &'static [&'static str] = &[
        InitFrom::SCRATCH,
        InitFrom::RESUME,
        Gpt2::Small.word(),
        Gpt2::Medium.word(),
        Gpt2::Large.word(),
        Gpt2::Xl.word(),
    ];

    /// The words that name trained weights.
    pub const TRAINED: &'static [&'static str] = InitFrom::WORDS.split_at(1).1;

    /// The meaning of a word. All but a few are the name of a trained model: whether there is such
    /// a model shows when it is opened.
    pub fn of(word: &str) -> InitFrom {
        match word {
            InitFrom::SCRATCH => InitFrom::Scratch,
            InitFrom::RESUME => InitFrom::Resume,
            _ => InitFrom::Pretrained(match Gpt2::of(word) {
                Some(name) => Pretrained::of_openai(name),
                None => Pretrained { name: word.to_owned(), model: None },
            }),
        }
    }

    /// The trained model.
    pub fn pretrained(&self) -> Option<&Pretrained> {
        match self {
            InitFrom::Pretrained(model) => Some(model),
            InitFrom::Scratch | InitFrom::Resume => None,
        }
    }
}

words! {
    /// The format of the checkpoints that a run writes.
    pub enum CheckpointFormat {
        /// Our own, from which a run resumes to the bit.
        Native = "native",
        /// nanoGPT's `ckpt.pt`.
        Ckpt = "ckpt",
    }
}

words! {
    /// Which random streams the initial weights and the batches come from.
    pub enum Sampler {
        /// Our own streams: evaluation never changes training.
        Fitgpt = "fitgpt",
        /// PyTorch's generator, used in the order in which nanoGPT uses it.
        Nanogpt = "nanogpt",
    }
}

words! {
    /// When activations are recomputed instead of kept.
    pub enum GradCheckpoint {
        /// Only if the budget requires it.
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
        /// The planner chooses once, when the run starts.
        Auto = "auto",
    }
}

words! {
    /// What to keep in host memory instead of on the GPU.
    pub enum Offload {
        /// Nothing.
        Never = "False",
        /// The optimizer's state: moments, and what master weights have beyond the computed ones.
        Optimizer = "optimizer",
        /// Activations, where that beats recomputing them.
        Activations = "activations",
        /// Either or both, if needed or faster.
        Auto = "auto",
    }
}

words! {
    /// The number format of the residual stream.
    pub enum Residual {
        /// The format of the computation.
        Auto = "auto",
        /// IEEE single precision.
        Float32 = "float32",
    }
}

words! {
    /// Which form of GELU.
    pub enum Gelu {
        /// Depends on where the weights come from.
        Auto = "auto",
        /// The exact form, as in nanoGPT.
        Erf = "erf",
        /// The approximation that OpenAI's weights were trained with.
        Tanh = "tanh",
    }
}

words! {
    /// What connects ranks.
    pub enum Connection {
        /// NCCL between GPUs, MPI between CPUs.
        Auto = "auto",
        /// NCCL.
        Nccl = "nccl",
        /// MPI. Between GPUs, through the host's memory.
        Mpi = "mpi",
        /// A name that nanoGPT accepts; means `Auto`.
        Gloo = "gloo",
    }
}

words! {
    /// The number format in which gradients travel.
    pub enum ReduceDtype {
        /// IEEE single precision: what travels is not rounded.
        Float32 = "float32",
        /// bfloat16: half the bytes.
        Bfloat16 = "bfloat16",
    }
}

words! {
    /// What ranks exchange.
    pub enum Sync {
        /// Gradients, at every iteration.
        Gradients = "gradients",
        /// Changes of weights, every `sync_every` iterations.
        Diloco = "diloco",
    }
}

/// How ranks train together.
#[derive(Clone, Debug, PartialEq)]
pub struct RanksKeys {
    /// What connects ranks.
    pub backend: Connection,
    /// GPUs to start a process for; 0 = what the launcher says.
    pub gpus: u64,
    /// Whether each rank keeps only a shard of AdamW's state; none: from two ranks.
    pub zero: Option<bool>,
    /// Groups of sequences whose gradients are added in order; none: one for each rank.
    pub reduce_groups: Option<u64>,
    /// The number format in which gradients travel.
    pub reduce_dtype: ReduceDtype,
    /// What ranks exchange.
    pub sync: Sync,
    /// With DiLoCo, iterations between two averages.
    pub sync_every: u64,
    /// With DiLoCo, learning rate of the outer step.
    pub outer_lr: f64,
    /// With DiLoCo, momentum of the outer step, below 1.
    pub outer_momentum: f64,
}

/// How text is generated.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingKeys {
    /// The prompt, or `FILE:` and a path.
    pub start: String,
    /// Samples to generate.
    pub num_samples: u64,
    /// Tokens to generate per sample.
    pub max_new_tokens: u64,
    /// Divides the logits; 0 takes the most likely token.
    pub temperature: f64,
    /// Sample from this many of the most likely tokens; `None` = all.
    pub top_k: Option<u64>,
    /// Sample from the fewest tokens that have this probability together; 1 = all.
    pub top_p: f64,
}

/// Where metrics go besides the log.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricsKeys {
    /// Files for TensorBoard.
    pub tensorboard: bool,
    /// A CSV file.
    pub csv: bool,
    /// Lines for trackio.
    pub trackio: bool,
    /// A page in the browser.
    pub ui: bool,
    /// trackio's project.
    pub wandb_project: String,
    /// trackio's name of the run; none to make one.
    pub wandb_run_name: Option<String>,
}

/// Every key of a run, typed. A size is at least 1 unless 0 has a meaning of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpec {
    /// The command it is for.
    pub command: Command,
    /// Folder of checkpoints and the log.
    pub out_dir: String,
    /// Evaluate every so many iterations.
    pub eval_interval: u64,
    /// Log every so many iterations.
    pub log_interval: u64,
    /// Batches per split in each evaluation.
    pub eval_iters: u64,
    /// Generate a text at each evaluation.
    pub eval_sample: bool,
    /// Evaluate once and stop.
    pub eval_only: bool,
    /// Whether `ckpt.pt` is saved even if the validation loss did not improve.
    pub always_save_checkpoint: bool,
    /// The format of the run's checkpoints.
    pub checkpoint_format: CheckpointFormat,
    /// What the weights start from.
    pub init_from: InitFrom,
    /// Resume even if the data set's files have changed.
    pub accept_changed_data: bool,
    /// Where metrics go besides the log.
    pub metrics: MetricsKeys,
    /// Name of the data set.
    pub dataset: String,
    /// Micro-batches per iteration.
    pub gradient_accumulation_steps: u64,
    /// Sequences per micro-batch.
    pub batch_size: u64,
    /// Tokens per sequence.
    pub block_size: u64,
    /// Transformer blocks.
    pub n_layer: u64,
    /// Attention heads.
    pub n_head: u64,
    /// Width of the residual stream.
    pub n_embd: u64,
    /// Dropout probability in training, below 1.
    pub dropout: f64,
    /// Biases in linear layers and layer norms.
    pub bias: bool,
    /// Which GELU.
    pub gelu: Gelu,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Number of the last iteration.
    pub max_iters: u64,
    /// Weight decay of tensors with two or more dimensions.
    pub weight_decay: f64,
    /// Decay of the first moment, below 1.
    pub beta1: f64,
    /// Decay of the second moment, below 1.
    pub beta2: f64,
    /// Gradients are clipped at this global norm; `None` = no clipping.
    pub grad_clip: Option<f64>,
    /// Whether the learning rate follows the schedule.
    pub decay_lr: bool,
    /// Iterations of warm-up.
    pub warmup_iters: u64,
    /// Iteration that reaches `min_lr`.
    pub lr_decay_iters: u64,
    /// Lowest learning rate.
    pub min_lr: f64,
    /// Which device computes.
    pub device: RequestedDevice,
    /// Number format of the computation.
    pub dtype: RequestedDtype,
    /// Whether to capture graphs on CUDA.
    pub compile: bool,
    /// Whether to time matmuls on CUDA.
    pub autotune: bool,
    /// Sequences per evaluation batch.
    pub eval_batch_size: u64,
    /// Tokens per evaluation sequence; at most `block_size`.
    pub eval_block_size: u64,
    /// When activations are recomputed.
    pub grad_checkpoint: GradCheckpoint,
    /// Device memory to use.
    pub vram: Memory,
    /// Host memory to use.
    pub ram: Memory,
    /// Number format of AdamW's moments.
    pub optimizer_state: OptimizerState,
    /// What host memory may hold.
    pub offload: Offload,
    /// The number format of the residual stream.
    pub residual: Residual,
    /// Seed of all random streams.
    pub seed: u64,
    /// Which random streams are used.
    pub sampler: Sampler,
    /// How ranks train together.
    pub ranks: RanksKeys,
    /// Which of the ranks this process is. The launcher decides, not a key.
    pub rank: Rank,
    /// How text is generated.
    pub sampling: SamplingKeys,
}

impl RunSpec {
    /// Sequences per iteration.
    pub fn sequences_per_iteration(&self) -> u64 {
        self.batch_size * self.gradient_accumulation_steps // resolve() has checked the product
    }

    /// Tokens per iteration.
    pub fn tokens_per_iteration(&self) -> u64 {
        self.sequences_per_iteration() * self.block_size // resolve() has checked the product
    }

    /// Groups into which an iteration's sequences are divided: a multiple of the ranks.
    pub fn groups(&self) -> u64 {
        let ranks = self.rank.ranks as u64;
        match self.ranks.sync {
            Sync::Gradients => self.ranks.reduce_groups.unwrap_or(ranks),
            Sync::Diloco => ranks,
        }
    }

    /// Sequences of a group.
    pub fn sequences_per_group(&self) -> u64 {
        self.sequences_per_iteration() / self.groups().max(1) // resolve() has checked the rest
    }

    /// Sequences that this rank computes in an iteration.
    pub fn sequences_per_rank(&self) -> u64 {
        self.sequences_per_iteration() / self.rank.ranks.max(1) as u64
    }

    /// Whether nanoGPT could divide the micro-batches among this many ranks.
    pub fn steps_divide_among(&self, ranks: u64) -> bool {
        self.gradient_accumulation_steps.is_multiple_of(ranks)
    }

    /// Tokens that this rank computes in an iteration.
    pub fn tokens_per_rank(&self) -> u64 {
        self.sequences_per_rank() * self.block_size
    }

    /// How ranks share an iteration. With DiLoCo, each rank trains alone.
    pub fn sharing(&self) -> Sharing {
        if self.ranks.sync == Sync::Diloco {
            // Changes of weights are small: fp16 has more digits for them than bfloat16.
            let (rank, wire) = (self.rank, Dtype::F16);
            return Sharing { rank, wire, averages: true, ..Sharing::NONE };
        }
        let wire = match self.ranks.reduce_dtype {
            ReduceDtype::Float32 => Dtype::F32,
            ReduceDtype::Bfloat16 => Dtype::Bf16,
        };
        // nanoGPT's file keeps the state of one parameter after the other, so that it would have to
        // be gathered once for each.
        let zero = self.ranks.zero.unwrap_or(self.checkpoint_format == CheckpointFormat::Native);
        Sharing { rank: self.rank, groups: self.groups(), zero, wire, averages: false }
    }

    /// The model's sizes with this vocabulary; if they are invalid, the error names valid ones
    /// nearby. A trained model fixes its sizes and vocabulary; a smaller `block_size` crops its
    /// positions.
    pub fn dims(&self, vocab_size: u64) -> Result<Dims, SpecError> {
        let RunSpec { n_layer, n_head, n_embd, block_size, bias, .. } = *self;
        let dims = match &self.init_from {
            InitFrom::Scratch | InitFrom::Resume => {
                Dims { n_layer, n_head, n_embd, block_size, vocab_size, bias }
            }
            InitFrom::Pretrained(Pretrained { model: Some(model), .. }) => {
                Dims { block_size, ..model.dims }
            }
            InitFrom::Pretrained(Pretrained { name, model: None }) => {
                let name = shown(name);
                let what = format!("init_from='{name}': the sizes of this model are not known");
                return Err(SpecError::Conflict { what });
            }
        };
        heads::checked(dims, &self.architecture())
    }

    /// The architecture that the keys ask for. The only place that chooses one.
    pub fn architecture(&self) -> Architecture {
        model::Gpt2 { gelu: self.gelu_kind() }.into()
    }

    /// The optimizer that the keys ask for, its state in this format. The only place that chooses
    /// one.
    pub fn optimizer(&self, state: Dtype) -> Optimizer {
        let RunSpec { beta1, beta2, weight_decay, .. } = *self;
        AdamW { beta1, beta2, weight_decay, moments: state, ..AdamW::NANOGPT }.into()
    }

    /// Which GELU to use: a trained model keeps its own, OpenAI's the tanh form; nanoGPT has the
    /// exact one.
    pub fn gelu_kind(&self) -> GeluKind {
        let own = self.init_from.pretrained().and_then(|pretrained| pretrained.model);
        match self.gelu {
            Gelu::Erf => GeluKind::Erf,
            Gelu::Tanh => GeluKind::Tanh,
            Gelu::Auto => own.map_or(GeluKind::Erf, |model| model.gelu),
        }
    }
}
