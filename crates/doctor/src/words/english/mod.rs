//! The texts in English.

mod labels;

use crate::account::What;
use crate::advice::{Note, Verdict};
use crate::cause::{Cause, Reason};
use crate::diagnosis::Unknown;
use crate::figure::Numbers;
use crate::fixes::FixKind;
use crate::log::{Claim, LogPhase, Program};
use crate::patch::Change;
use crate::remedies::Remedy;
use crate::tensor::Confidence;
use crate::tensor_name::TensorKind;
use crate::torch::Phase;
use crate::words::{Catalogue, Labels, Refusal};
use labels::LABELS;

/// English.
pub struct English;

impl Catalogue for English {
    fn numbers(&self) -> Numbers {
        Numbers { decimal: '.', group: ',' }
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm for each text")]
    fn cause(&self, cause: Cause) -> &'static str {
        match cause {
            Cause::Logits => {
                "The logits are too large: a number for each token of the batch and each row of \
                 the vocabulary, several times over (cross-entropy copies them and computes a \
                 log-softmax in f32)."
            }
            Cause::StaleLogits => {
                "The loop's variable still references the logits of the previous evaluation batch \
                 while those of the next are computed: two buffers of this size at once. No graph \
                 is kept (evaluation runs under no_grad)."
            }
            Cause::Activations => "What the forward pass saves for the backward pass does not fit.",
            Cause::AttentionScores => {
                "The attention scores, batch x heads x positions x positions, do not fit: flash \
                 attention is not in use."
            }
            Cause::OptimizerState => {
                "Adam allocates its two moments at its first step: eight bytes per parameter, on \
                 top of weights and gradients."
            }
            Cause::OptimizerStep => {
                "It ran out in the optimizer's step. Adam's moments take eight bytes per \
                 parameter from its first step on, and its multi-tensor (foreach) form makes \
                 temporary copies as large as the parameters."
            }
            Cause::Weights => {
                "The model itself does not fit: weights, gradients, or what is loaded with them."
            }
            Cause::State => {
                "Weights, gradients and Adam's moments fill the card, whatever the batch is."
            }
            Cause::LoadedCheckpoint => {
                "Resuming takes more memory than starting: torch.load puts the checkpoint, \
                 weights and Adam's moments (12 bytes per parameter), on the GPU, and as long as \
                 a variable references it, it stays there beside the model (nanoGPT's train.py \
                 keeps such references). So a run that fits from scratch may not fit when it is \
                 resumed."
            }
            Cause::Request => {
                "One large request did not fit; which tensor it was for, its size does not tell."
            }
            Cause::Full => {
                "This process itself fills the GPU's memory: weights, gradients, optimizer state \
                 and activations together. The failed request is only the last straw."
            }
            Cause::FullOfInference => {
                "This process itself fills the GPU's memory. Without training, these are the \
                 weights, the KV cache and the activations of the batch. The failed request is \
                 only the last straw."
            }
            Cause::Unsaid => {
                "The request is small, so the memory was nearly full already; who held it, the \
                 log does not say."
            }
            Cause::Library => {
                "cuBLAS or cuDNN could not allocate memory for itself. Usually the card is full \
                 at that moment; a kernel that failed before (an index out of range) can show \
                 the same error: CUDA_LAUNCH_BLOCKING=1 tells them apart."
            }
            Cause::FullBefore => {
                "It failed at its first allocation, before it held anything itself: the card was \
                 full already, or another process holds it."
            }
            Cause::Fragmentation => {
                "Enough memory is reserved, but not in one piece: fragmentation."
            }
            Cause::OtherProcess => "Other programs hold the missing memory.",
            Cause::HostMemory => {
                "This is the machine's own memory (RAM), not the GPU's: settings for the GPU \
                 change nothing about it."
            }
            Cause::Killed => {
                "Most often the kernel does this when host memory (RAM), or the container's \
                 limit, is used up; settings for the GPU change nothing about that."
            }
            Cause::Contradiction => {
                "The figures of the message contradict each other, so they do not name a cause. \
                 Possible: a limit for this process, another process or rank on the same GPU that \
                 had the memory for a moment, or a stale figure."
            }
            Cause::Unknown => "What was requested, and by what, the log does not say.",
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm for each text")]
    fn reason(&self, reason: Reason) -> &'static str {
        match reason {
            Reason::LastStraw => {
                "{0} is {1} of the {2} that the run holds: the last straw, not the cause."
            }
            Reason::Block => {
                "{0} is a block of PyTorch's allocator: it asks for 2 MiB for tensors of up to 1 \
                 MiB and for 20 MiB for tensors of up to 10 MiB. This size names no tensor."
            }
            Reason::StateExceeds => {
                "{0} parameters: weights, gradients and Adam's two moments take 16 bytes each in \
                 f32, together {1}. The card has {2}."
            }
            Reason::StateLeavesNothing => {
                "{0} parameters: weights, gradients and Adam's two moments take 16 bytes each in \
                 f32, together {1}. With the GPU context, nothing of the {2} that the run can \
                 have is left for activations."
            }
            Reason::StateOf => {
                "{0} parameters: weights, gradients and Adam's two moments take 16 bytes each in \
                 f32, together {1}."
            }
            Reason::WeightsOf => "{0} parameters: the weights take {1} in f32, {2} in 16 bits.",
            Reason::Beyond => {
                "What it holds beyond that, {0}, are activations, logits and temporary tensors: \
                 they shrink with the batch."
            }
            Reason::OthersHold => {
                "Others hold {0} of the card's {1}; without them this request would have fitted."
            }
            Reason::OthersHoldMost => "Others hold {0} of the card's {1}.",
            Reason::OthersSmall => "Others hold {0}; that does not decide here.",
            Reason::Pieces => {
                "{0} are reserved but unused, {1} were requested, {2} are free: in one piece, it \
                 would have fitted."
            }
            Reason::PiecesToo => {
                "{0} are also reserved but unused, more than the {1} requested: fragmentation \
                 adds to it."
            }
            Reason::FreeExceeds => {
                "The message shows {0} free, more than the {1} requested: memory ran out for \
                 another reason."
            }
            Reason::HoldsNothing => {
                "The message says that this process holds 0 bytes, which is impossible beside {0} \
                 in PyTorch; the rest of its figures is used."
            }
            Reason::ReservedBelow => {
                "{0} reserved is less than {1} allocated: one of the two is wrong."
            }
            Reason::HeldExceeds => {
                "{0} are said to be held on a card of {1}: the figures do not agree."
            }
            Reason::Impossible => {
                "{0} cannot be (a negative number, printed as an unsigned one): set aside."
            }
            Reason::SharedMemory => {
                "{0} are held on a card of {1}: Windows lends host memory to the GPU, so this is \
                 real, and slow."
            }
            Reason::ModelFits => {
                "By our estimate this run needs {0} (±7 %) of {1}, so it should have fitted: \
                 something else held memory at that moment, or a setting differs from what is \
                 known here."
            }
            Reason::ModelExceeds => {
                "By our estimate the whole run needs {0} (±7 %), and {1} are free: {2} too much."
            }
            Reason::ScoresAdd => {
                "Every layer keeps its own attention scores for the backward pass: {0} in {1} \
                 layers."
            }
            Reason::PredictionsKept => {
                "The Trainer gathers the logits of all evaluation batches on the GPU: they grow \
                 with every batch."
            }
            Reason::ExceedsCard => {
                "{0} is more than the whole card has, {1}: no other program and no fragment is \
                 to blame."
            }
            Reason::CardDiffers => {
                "The text speaks of {0}, but the GPU in the message has {1}: the message counts."
            }
            Reason::Resident => "The process had {0} of host memory.",
        }
    }

    fn claim(&self, claim: Claim) -> &'static str {
        match claim {
            Claim::KvCacheInTraining => "a KV cache takes memory",
            Claim::GraphKeptInEval => "evaluation keeps the graph of its batches",
            Claim::AdamAtFirstEval => "Adam's state fills the memory at the first evaluation",
            Claim::EvalIsCulprit => "evaluation is the culprit",
            Claim::EvalBatchSizeAlone => "a smaller eval_batch_size alone fixes it",
            Claim::EvalBatchSizeKeyExists => "eval_batch_size",
            Claim::EvalBlockSize => "eval_block_size",
            Claim::EvalIters => "fewer eval_iters",
            Claim::EvalInterval => "larger eval_interval",
            Claim::SmallerBatch { .. } => "smaller batch_size, more gradient_accumulation_steps",
            Claim::ShorterContext { .. } => "smaller block_size",
            Claim::SmallerModel { .. } => "a smaller model (n_embd)",
            Claim::Accumulation { .. } => "more gradient_accumulation_steps",
            Claim::Checkpointing => "gradient checkpointing",
            Claim::CheckpointingHalves { .. } => "checkpointing halves the activations",
            Claim::EmptyCache => "torch.cuda.empty_cache()",
            Claim::ExpandableSegments => "expandable_segments:True",
            Claim::MaxSplitSize => "max_split_size_mb",
            Claim::CompileOff => "compile=False",
            Claim::CompileMode => "mode='reduce-overhead'",
            Claim::SuppressErrors => "suppress_errors=True",
            Claim::KillOthers => "ending other programs on the GPU",
            Claim::CpuOffload => "evaluation on the CPU",
            Claim::CpuFallback => "device='cpu'",
            Claim::LowerPrecision => "16-bit precision",
            Claim::SmallerOptimizer => "an optimizer with smaller state (8-bit Adam)",
            Claim::LoraOrQuantized => "LoRA or a quantised model",
            Claim::FlashAttention => "flash attention",
            Claim::DeleteLogits => "dropping the logits as soon as the loss is known",
            Claim::NoGrad => "evaluation under no_grad",
            Claim::MoreGpus => "more GPUs (DDP)",
            Claim::LargerGpu => "a GPU with more memory",
            Claim::OtherVersion => "another version of PyTorch or CUDA",
            Claim::GradScalerWarning => "the GradScaler warning",
            Claim::AutotuneWarning => "the max_autotune_gemm warning",
            Claim::ClearCache => "gc.collect()",
            Claim::Restart => "restarting the machine or the session",
            Claim::Fragmentation => "the memory is fragmented",
            Claim::CompileCostsMemory => "torch.compile needs more memory",
            Claim::DataLoader => "another way to load the data",
        }
    }

    fn verdict(&self, verdict: Verdict) -> &'static str {
        match verdict {
            Verdict::Suffices => "helps and suffices",
            Verdict::NotAlone { .. } => "helps, but not alone",
            Verdict::Helps => "helps",
            Verdict::CostsOnlyTime => "costs only time",
            Verdict::DoesNothing => "does nothing here",
            Verdict::Worse => "makes it worse",
            Verdict::Impossible => "does not work",
            Verdict::False => "not true",
            Verdict::True => "true",
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm for each text")]
    fn note(&self, note: Note) -> &'static str {
        match note {
            Note::Batch => {
                "batch_size={0}, gradient_accumulation_steps={1}: the same tokens per update"
            }
            Note::BatchIsOne => "it is already one sequence",
            Note::NoSuchKey => {
                "nanoGPT has no such key: in a config file it is ignored, on the command line it \
                 is an error; fitGPT has it"
            }
            Note::NoSuchKeyAndTrainingDies => {
                "nanoGPT has no such key (in a config file it is ignored), and training itself \
                 needs {0}"
            }
            Note::NoSuchKeyButEvalWouldFit => {
                "nanoGPT has no such key (in a config file it is ignored); with a change to its \
                 code, evaluation would fit, and training does"
            }
            Note::OneBatchAtATime => {
                "an evaluation computes one batch after another; fewer batches need no less memory"
            }
            Note::OnlyMovesTheMoment => "evaluations become rarer, not smaller",
            Note::Context => {
                "{0} positions; losses are not comparable with those of longer contexts"
            }
            Note::Width => "n_embd={0}",
            Note::OtherModel => "init_from='{0}'",
            Note::HeadsDoNotDivide => {
                "n_embd={0} cannot be divided among n_head={1} heads: nanoGPT stops with an \
                 assertion; n_embd={2} works"
            }
            Note::NoNarrower => "there is no narrower model of this head size",
            Note::NothingToCheckpointInEval => {
                "evaluation runs without gradients and saves nothing that could be recomputed"
            }
            Note::CheckpointLowersActivations => {
                "nanoGPT has no key for it; added to its code, activations shrink by {0} here, \
                 training goes from {1} to {2}; logits and optimizer state stay"
            }
            Note::EagerTakesMore => "eager code keeps more copies of the logits",
            Note::AlreadyEager => "it already runs without compile",
            Note::GraphsTakeMore => "CUDA graphs have memory pools of their own: more, not less",
            Note::PiecesAreEnough => "that much is reserved but unused, in fragments",
            Note::NotFragmentation => "the memory is needed; fragmentation is not the problem",
            Note::AlreadyOn => "it is already on",
            Note::CacheIsEmptied => "PyTorch empties its cache itself before it gives up",
            Note::TrainingDiesInstead => {
                "evaluation would leave the GPU, and the first training step would fail instead"
            }
            Note::EvalLeaves => "evaluation leaves the GPU and takes many times longer",
            Note::OthersHold => "other programs hold that much of this card",
            Note::OthersLittle => "others hold {0}: too little to matter",
            Note::DesktopHolds => "a desktop takes 0.3 to 2 GiB of a card; this much is assumed",
            Note::NoOthers => "no other program is visible on this card",
            Note::SameBytes => {
                "the run already computes in 16 bits; float16 and bfloat16 take two bytes each"
            }
            Note::EachHoldsAll => {
                "every GPU holds the whole model, its optimizer state and its own logits"
            }
            Note::DataIsNotThere => {
                "nanoGPT's data set is a file on the disk, not in the GPU's memory"
            }
            Note::SameTensors => "the tensors are the same in every version",
            Note::ManyTimesSlower => "it would run, but hundreds of times slower",
            Note::StateAlone => "weights, gradients and Adam's state alone do not fit",
            Note::HalfTheBytes => "activations and logits in 16 bits",
            Note::FlashAttention => "flash attention builds no positions x positions matrix",
            Note::AlreadyFlash => "nanoGPT uses it already with PyTorch 2",
            Note::NoKvCache => {
                "there is no KV cache in training or in nanoGPT's evaluation: a batch is computed \
                 in one pass and nothing is kept"
            }
            Note::NoGraph => {
                "estimate_loss() runs under torch.no_grad(): no graph is kept; all that stays is \
                 the last batch's logits, {0}"
            }
            Note::AdamComesLater => {
                "Adam's moments ({0}) are allocated in the first optimizer step, after the first \
                 evaluation"
            }
            Note::AdamIsLoaded => {
                "this run resumes, so Adam's moments ({0}) are loaded from the start"
            }
            Note::TrainingIsThePeak => "training is the peak: it needs {0}, evaluation {1}",
            Note::EvalIsThePeak => "evaluation needs {0}, training {1}",
            Note::TrainingStillNeeds => "training still needs {0}, and {1} are free",
            Note::HidesCompilerErrors => {
                "it hides errors of the compiler; the allocator's error stays"
            }
            Note::AccumulationAlone => {
                "it keeps the tokens per update when the batch gets smaller; alone it changes no \
                 peak"
            }
            Note::SmallMoments => "moments of one byte each save {0}; nanoGPT has no key for it",
            Note::OnlyForFineTuning => {
                "it fine-tunes a trained model; it does not train one from scratch"
            }
            Note::NeedsThatMuch => "the run needs {0}",
            Note::AlreadyNoGrad => "nanoGPT's evaluation has it already",
            Note::LogitsDropped => {
                "a change in two lines of nanoGPT's code; the backward pass keeps its own copies"
            }
            Note::NothingToCollect => {
                "PyTorch frees a tensor as soon as nothing references it; there is nothing for \
                 the garbage collector"
            }
            Note::SameNeed => {
                "the run needs the same afterwards; it only helps if a dead process still held \
                 memory"
            }
            Note::CompiledAndEager => "compiled it needs {0}, eager {1}",
            Note::UnrelatedWarning => "a warning that has nothing to do with memory",
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm for each text")]
    fn remedy(&self, remedy: Remedy) -> &'static str {
        match remedy {
            Remedy::SeeNvidia => {
                "nvidia-smi shows which processes hold the card; end them, or choose another GPU \
                 with CUDA_VISIBLE_DEVICES"
            }
            Remedy::SeeRocm => {
                "rocm-smi --showpids --showmeminfo vram shows who holds the card; end them, or \
                 choose another GPU with HIP_VISIBLE_DEVICES"
            }
            Remedy::SeeDevices => {
                "fitgpt devices lists this machine's GPUs with what is free on each"
            }
            Remedy::Expandable => {
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets PyTorch join its free \
                 pieces"
            }
            Remedy::ExpandableRocm => {
                "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True lets PyTorch join its free \
                 pieces, where its ROCm build supports it"
            }
            Remedy::TrainerBatch => {
                "a smaller per_device_train_batch_size with more gradient_accumulation_steps: the \
                 same tokens per update"
            }
            Remedy::TrainerCheckpointing => {
                "gradient_checkpointing=True: activations are computed again, for about a third \
                 more compute; set use_cache=False with it"
            }
            Remedy::TrainerPrecision => {
                "bf16=True (or fp16=True on cards before Ampere): activations take half the memory"
            }
            Remedy::TrainerOptimizer => {
                "optim=\"adafactor\" or \"adamw_bnb_8bit\": moments of 2 bytes per parameter or \
                 less instead of 8"
            }
            Remedy::TrainerEval => {
                "per_device_eval_batch_size smaller, eval_accumulation_steps set, and \
                 preprocess_logits_for_metrics: the Trainer keeps the logits of the whole \
                 evaluation on the GPU otherwise"
            }
            Remedy::NanochatBatch => {
                "device_batch_size half as large (--device_batch_size=16, 8, …): the total batch \
                 stays, nanochat accumulates more"
            }
            Remedy::LlmcBatch => {
                "a smaller batch: -b for train_gpt2cu, --batch_size for train_gpt2.py; -r 1 or -r \
                 2 recomputes activations"
            }
            Remedy::LitgptBatch => {
                "a smaller micro_batch_size (--train.micro_batch_size): the global batch stays"
            }
            Remedy::LitgptPrecision => {
                "a 7B model needs 26 GiB for its weights in f32, 13 GiB in 16 bits, and 105 GiB \
                 with gradients and Adam in f32: on one card with less, only adapters or LoRA in \
                 bf16-true fit; several can share it (FSDP)"
            }
            Remedy::TensorflowBatch => "a smaller batch: the shape in the message begins with it",
            Remedy::TensorflowGrowth => {
                "set_memory_growth stops TensorFlow from taking the whole card at its start; the \
                 model needs no less"
            }
            Remedy::Batch => {
                "a smaller batch per GPU, with gradient accumulation for the same update: \
                 activations and logits shrink with it"
            }
            Remedy::Checkpointing => {
                "activation checkpointing, if activations fill the card: about a third more \
                 compute"
            }
            Remedy::Precision => {
                "16-bit autocast, if the run computes in f32: activations take half"
            }
            Remedy::Attention => {
                "attention that builds no positions x positions matrix \
                 (scaled_dot_product_attention, flash attention), or shorter sequences"
            }
            Remedy::SmallerState => {
                "the batch does not help: fewer parameters, 16-bit weights with an 8-bit \
                 optimizer, LoRA, or sharding over GPUs (FSDP, ZeRO-3)"
            }
            Remedy::Foreach => {
                "AdamW(foreach=False) or fused=True: the multi-tensor path makes temporary copies \
                 as large as all parameters"
            }
            Remedy::LoadOnHost => {
                "torch.load(path, map_location=\"cpu\"), and delete the checkpoint and its \
                 state_dict after load_state_dict"
            }
            Remedy::ChunkedLoss => {
                "a loss computed in chunks of tokens, so that the logits never exist at once"
            }
            Remedy::HostMemory => {
                "read or tokenise the data in pieces instead of loading it whole, fewer \
                 DataLoader workers, more RAM or swap"
            }
            Remedy::HostKilled => {
                "dmesg | grep -i kill shows what the kernel ended, and how much it held"
            }
            Remedy::PageFile => {
                "a larger page file: Windows refuses memory when RAM and page file together are \
                 used up (System, Advanced, Performance, Virtual memory)"
            }
            Remedy::BatchIsOne => {
                "the batch is one sequence already: shorter sequences, a smaller model, or fewer \
                 trained parameters (LoRA)"
            }
            Remedy::Inference => {
                "weights in 16 bits, or quantised to 8 or 4 bits; a smaller batch, a shorter \
                 context, or some of the layers on the CPU"
            }
            Remedy::JaxPreallocates => {
                "JAX takes 75 % of the card at its start: XLA_PYTHON_CLIENT_PREALLOCATE=false \
                 shows what it really needs; the model needs no less"
            }
            Remedy::Watermark => {
                "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 lifts the limit, it does not lower the \
                 need: the Mac may swap or freeze; a smaller batch lowers it"
            }
            Remedy::WindowsShared => {
                "Windows lends host memory when the card is full: slow instead of an error; \
                 \"CUDA - Sysmem Fallback Policy\" in the NVIDIA Control Panel turns it off"
            }
            Remedy::Wsl => {
                "under WSL2 the Windows desktop and its programs share the card: nvidia-smi in \
                 Windows shows them, and closing them frees memory"
            }
            Remedy::Unsupported => {
                "fitGPT needs an NVIDIA GPU of the Ampere generation or newer (sm_80); this card \
                 is older"
            }
            Remedy::UseWsl => {
                "fitGPT runs on Linux: on Windows, use it in WSL2 (wsl --install), which sees the \
                 same GPU"
            }
        }
    }

    fn fix(&self, fix: FixKind) -> &'static str {
        match fix {
            FixKind::SmallerBatch => {
                "smaller micro-batches, but more of them: the same tokens per update"
            }
            FixKind::Compile => "compiled code keeps fewer copies of the logits",
            FixKind::ShorterContext => {
                "shorter sequences; losses are not comparable with longer ones"
            }
            FixKind::SmallerModel(_) => "a smaller model",
        }
    }

    fn change(&self, change: Change) -> &'static str {
        match change {
            Change::Evaluation => "evaluation with batches of its own size, and no logits kept",
            Change::Checkpointing => "blocks computed again in the backward pass",
            Change::Loading => "the checkpoint loaded into host memory",
        }
    }

    fn limit(&self, change: Change) -> &'static str {
        match change {
            Change::Evaluation => {
                "Another batch size for evaluation compiles a second graph, and with fewer \
                 sequences its loss is noisier: raise eval_iters."
            }
            Change::Checkpointing => {
                "Recomputing costs about a third more compute; logits and optimizer state stay as \
                 they are."
            }
            Change::Loading => {
                "Loading takes a moment longer, and as much host memory as the checkpoint has."
            }
        }
    }

    fn what(&self, what: What) -> &'static str {
        match what {
            What::Parameters => "parameters",
            What::Copies => "16-bit copies of the weights (autocast)",
            What::Gradients => "gradients",
            What::Adam => "Adam's moments",
            What::Activations => "activations saved for the backward pass",
            What::Logits => "logits and what the loss computes from them",
            What::StaleLogits => "logits of the previous batch, still referenced",
            What::Workspace => "cuBLAS workspace",
            What::Tokens => "the batch",
            What::Unexplained => "in tensors that our estimate does not explain",
            What::Tensors => "PyTorch's tensors",
            What::Fragments => "reserved by PyTorch but unused",
            What::Context => "this process beside PyTorch: GPU context, libraries",
            What::Process => "this process",
            What::Outside => {
                "outside PyTorch: context of this process (0.3 to 0.8 GiB) and other programs"
            }
            What::Unsaid => "in use by this process or others: the message does not say",
            What::Others => "other programs",
            What::Free => "free",
        }
    }

    fn tensor(&self, tensor: TensorKind) -> &'static str {
        match tensor {
            TensorKind::Parameter => "the weight {name}",
            TensorKind::Copy => "the 16-bit copy of {name}",
            TensorKind::Gradient => "the gradient of {name}",
            TensorKind::FirstMoment => "Adam's exp_avg of {name}",
            TensorKind::SecondMoment => "Adam's exp_avg_sq of {name}",
            TensorKind::Moment => "one of Adam's moments",
            TensorKind::WeightOrGradient => "a weight or its gradient",
            TensorKind::Tokens => "the batch of token ids",
            TensorKind::Workspace => "the cuBLAS workspace",
            TensorKind::Logits => "the logits",
            TensorKind::LogitsInF32 => "the logits in f32",
            TensorKind::EvalLogits => "the logits of an evaluation batch",
            TensorKind::NextEvalLogits => "the logits of the next evaluation batch",
            TensorKind::LogitsCopy => "cross-entropy's copy of the logits",
            TensorKind::LogSoftmax => "the log-softmax of the logits",
            TensorKind::LogSoftmaxGradient => "the gradient of the log-softmax",
            TensorKind::LogitsGradient => "the gradient of the logits",
            TensorKind::ZeroGradient => "a zero gradient of the logits",
            TensorKind::AttentionScores => "attention scores",
            TensorKind::Buffer => "a buffer of compiled code",
            TensorKind::Tensor => "a tensor",
            TensorKind::Embeddings => "the embeddings",
            TensorKind::PositionEmbeddings => "the position embeddings",
            TensorKind::TokenEmbeddings => "the token embeddings",
            TensorKind::DropoutMask => "the dropout mask of {name}",
            TensorKind::Input => "the input of block {name}",
            TensorKind::Residual => "the residual stream {name}",
            TensorKind::Norm => "the output of a layer norm {name}",
            TensorKind::Qkv => "q, k and v {name}",
            TensorKind::Attention => "the output of attention {name}",
            TensorKind::BeforeGelu => "the MLP before GELU {name}",
            TensorKind::AfterGelu => "the MLP after GELU {name}",
            TensorKind::Statistics => "statistics of norms and attention {name}",
            TensorKind::ResidualGradient => "the gradient of the residual stream",
            TensorKind::MlpGradient => "the gradient of the MLP",
        }
    }

    fn confidence(&self, confidence: Confidence) -> &'static str {
        match confidence {
            Confidence::Possible => "possible",
            Confidence::Likely => "likely",
            Confidence::Certain => "certain",
        }
    }

    fn phase(&self, phase: LogPhase) -> &'static str {
        match phase {
            LogPhase::FirstEval => "in the first evaluation, before any training step",
            LogPhase::Eval => "in an evaluation",
            LogPhase::Forward => "in the forward pass of training",
            LogPhase::Backward => "in the backward pass",
            LogPhase::Optimizer => "in the optimizer's step",
            LogPhase::Resume => "while loading a checkpoint",
            LogPhase::Load => "while the model moves to the GPU",
            LogPhase::Sample => "while generating text",
            LogPhase::Unknown => "at an unknown moment",
        }
    }

    fn phase_name(&self, phase: Phase) -> &'static str {
        match phase {
            Phase::FirstEval => "first evaluation",
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Optimizer => "optimizer",
            Phase::Eval => "later evaluations",
        }
    }

    fn program(&self, program: Program) -> &'static str {
        match program {
            Program::NanoGpt => "nanoGPT",
            Program::NanoGptFork => "a fork of nanoGPT",
            Program::Nanochat => "nanochat",
            Program::LlmC => "llm.c",
            Program::LitGpt => "LitGPT",
            Program::HfTransformers => "Hugging Face transformers",
            Program::TensorFlow => "TensorFlow",
            Program::Jax => "JAX",
            Program::Fitgpt => "fitGPT",
            Program::OtherTorch => "a PyTorch program",
            Program::Unknown => "an unknown program",
        }
    }

    fn unknown(&self, unknown: Unknown) -> &'static str {
        match unknown {
            Unknown::Requested => "how much was requested: run it again and keep the whole message",
            Unknown::Budget => {
                "how much memory the card has: nvidia-smi \
                 --query-gpu=name,memory.total,memory.used --format=csv"
            }
            Unknown::Settings => {
                "the settings of the run: give the config file, e.g. fitgpt doctor log.txt \
                 config/mine.py"
            }
            Unknown::Phase => "what the program was doing: keep the traceback above the message",
            Unknown::Model => {
                "the model: the echoed settings give a different number of parameters than the \
                 log says; give the config file"
            }
            Unknown::Program => {
                "what this program allocates, and when: only nanoGPT's memory is modelled here"
            }
        }
    }

    fn refusal(&self, refusal: Refusal) -> &'static str {
        match refusal {
            Refusal::NoInput => {
                "give a log (a file, or - for standard input), a config, or both; see fitgpt \
                 doctor --help"
            }
            Refusal::TwoForms => {
                "--json and --markdown are two forms of the report: give one of them"
            }
            Refusal::SecondLog => "give one log at a time; '{name}' is a second one",
            Refusal::BadSize => "{flag} '{name}': write a size such as '11.69GiB' or '8GB'",
        }
    }

    fn labels(&self) -> &'static Labels {
        &LABELS
    }
}
