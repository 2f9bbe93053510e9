//! The texts in English.

use crate::account::What;
use crate::advice::{Advice, Note, Verdict};
use crate::diagnosis::{Cause, Unknown};
use crate::fixes::FixKind;
use crate::log::LogPhase;
use crate::tensor::Confidence;
use crate::words::{Catalogue, Labels};

/// English.
pub struct English;

impl Catalogue for English {
    fn note(&self, note: Note) -> &'static str {
        match note {
            Note::HalfBatch => {
                "half the batch, twice the micro-batches: the same tokens per update"
            }
            Note::BatchIsOne => "it is already one sequence",
            Note::NoSuchKeyAndTrainingDies => {
                "nanoGPT has no such key (a config file that sets it is ignored), and training \
                 itself would not fit"
            }
            Note::NoSuchKeyButEvalWouldFit => {
                "nanoGPT has no such key (a config file that sets it is ignored); with it, \
                 evaluation would fit and training does"
            }
            Note::OneBatchAtATime => {
                "an evaluation computes one batch after another; fewer batches need no less \
                 memory"
            }
            Note::OnlyMovesTheMoment => "evaluations become rarer, not smaller",
            Note::HalfContext => "half the context; losses are not comparable with longer ones",
            Note::Narrower => "one head fewer",
            Note::NoNarrower => "there is no narrower model of this head size",
            Note::NothingToCheckpointInEval => {
                "evaluation runs without gradients and saves nothing that could be checkpointed"
            }
            Note::CheckpointLowersActivations => {
                "nanoGPT has no such key; if you add it, it lowers saved activations, never \
                 logits or optimizer state"
            }
            Note::EagerTakesMore => "eager code keeps more copies of the logits",
            Note::AlreadyEager => "it already runs without compile",
            Note::GraphsTakeMore => "CUDA graphs have memory pools of their own: more, not less",
            Note::PiecesAreEnough => "that much is reserved but unused, in fragments",
            Note::NotFragmentation => "the memory is needed; fragmentation is not the problem",
            Note::AlreadyOn => "it is already on",
            Note::CacheIsEmptied => "PyTorch empties its cache itself before it gives up",
            Note::TrainingDiesInstead => {
                "evaluation would move off the GPU, and the first training step would fail instead"
            }
            Note::EvalLeaves => "evaluation moves off the GPU and takes many times longer",
            Note::OthersHold => "other programs hold that much of this card",
            Note::NoOthers => "no other program is visible on this card",
            Note::SameBytes => "both take two bytes",
            Note::EachHoldsAll => {
                "every GPU holds the whole model, its optimizer state and its own logits"
            }
            Note::DataIsNotThere => {
                "nanoGPT's data set is a file on the disk, not in the GPU's memory"
            }
            Note::SameTensors => "the tensors are the same in every version",
            Note::ManyTimesSlower => "it would run, but hundreds of times slower",
            Note::FitsAlready => "the run fits as it is",
            Note::StateAlone => "weights, gradients and Adam's state alone do not fit",
            Note::HalfTheBytes => "activations and logits in 16 bits",
            Note::FlashAttention => "flash attention builds no positions x positions matrix",
        }
    }

    fn advice(&self, advice: Advice) -> &'static str {
        advice.name()
    }

    fn confidence(&self, confidence: Confidence) -> &'static str {
        confidence.name()
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
            What::Unexplained => "in tensors that our model of the run does not explain",
            What::Fragments => "reserved by PyTorch but unused",
            What::Context => "CUDA context, kernels, libraries",
            What::Others => "other programs",
            What::Free => "free",
        }
    }

    fn cause(&self, cause: Cause) -> &'static str {
        match cause {
            Cause::Logits => {
                "The logits are too large: a number for each token of the batch and each row \
                 of the vocabulary, several times over (cross-entropy copies them and computes a \
                 log-softmax in f32)."
            }
            Cause::StaleLogits => {
                "The loop's variable still references the logits of the previous evaluation \
                 batch while those of the next batch are computed: two such buffers at once. No \
                 graph is kept (evaluation runs under no_grad)."
            }
            Cause::Activations => "What the forward pass saves for the backward pass does not fit.",
            Cause::AttentionScores => {
                "The attention scores, positions times positions, do not fit: flash attention is \
                 not in use."
            }
            Cause::OptimizerState => {
                "Adam allocates its two moments at its first step: eight bytes per parameter, \
                 on top of weights and gradients."
            }
            Cause::Weights => {
                "The model itself does not fit: weights, gradients, or what is loaded with them."
            }
            Cause::Fragmentation => "Enough memory is reserved, but not in one piece.",
            Cause::OtherProcess => "Other programs hold the missing memory.",
            Cause::Unknown => "The log does not say which tensor it was.",
        }
    }

    fn phase(&self, phase: LogPhase) -> &'static str {
        match phase {
            LogPhase::FirstEval => "in the first evaluation, before any training step",
            LogPhase::Eval => "in an evaluation",
            LogPhase::Forward => "in the forward pass of training",
            LogPhase::Backward => "in the backward pass",
            LogPhase::Optimizer => "in the optimizer's step",
            LogPhase::Load => "while moving the model to the device",
            LogPhase::Resume => "while loading a checkpoint",
            LogPhase::Sample => "while generating text",
            LogPhase::Unknown => "in a phase that the log does not show",
        }
    }

    fn verdict(&self, verdict: Verdict) -> &'static str {
        verdict.name()
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
                "the model: the echoed settings give a different number of parameters than the log \
                 says; give the config file"
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
            FixKind::SmallerModel(_) => "a narrower model",
        }
    }

    fn labels(&self) -> &'static Labels {
        const LABELS: Labels = Labels {
            did_not_fit: "{bytes} did not fit {phase}.",
            which: "It was {name} {shape} in {dtype} ({confidence}).",
            same_size: "the same size: {others}",
            memory: "what held the memory",
            peaks: "nanoGPT's tensors in PyTorch, by phase (±7 %) → with context",
            of_budget: "of {budget}",
            advice: "the usual advice, for this case",
            fixes: "what to change in nanoGPT",
            nothing: "no setting of nanoGPT near this one fits",
            unknown: "what the log does not say",
            nanogpt: "nanoGPT, changed so that it fits",
            fitgpt: "fitGPT, with the same settings",
            fitgpt_changed: "fitGPT, changed so that it fits",
            unrelated: "not the cause: {what}",
            foreign: "nanoGPT does not know {keys} and ignored them",
            fits: "According to our model of PyTorch's memory, the run fits.",
            dies: "According to our model of PyTorch's memory, the run fails {phase}.",
            no_log: "No out-of-memory message was found.",
            problem: "Problem",
            root: "Root cause",
            config: "Recommended config",
            expected: "Expected memory",
            nonsense: "These numbers in the message are impossible (WSL and Windows drivers \
                       print them): {numbers}",
        };
        &LABELS
    }
}
