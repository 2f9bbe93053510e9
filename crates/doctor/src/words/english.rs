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
                "half the batch, twice the micro-batches: the same tokens for each update"
            }
            Note::BatchIsOne => "it is one sequence already",
            Note::NoSuchKeyAndTrainingDies => {
                "nanoGPT has no such key (a config file that sets it is ignored), and training \
                 itself would not fit"
            }
            Note::NoSuchKeyButEvalWouldFit => {
                "nanoGPT has no such key (a config file that sets it is ignored); with it, \
                 evaluation would fit and training does"
            }
            Note::OneBatchAtATime => {
                "batches of an evaluation come one after another; fewer of them need no less \
                 memory"
            }
            Note::OnlyMovesTheMoment => "evaluations become rarer, not smaller",
            Note::HalfContext => "half the context; losses do not compare with longer ones",
            Note::Narrower => "one head less",
            Note::NoNarrower => "there is no narrower model of this head size",
            Note::NothingToCheckpointInEval => {
                "evaluation runs without gradients and saves nothing that could be checkpointed"
            }
            Note::CheckpointLowersActivations => {
                "nanoGPT has no such key; where it is added it lowers saved activations, never \
                 logits or optimizer state"
            }
            Note::EagerTakesMore => "eager code keeps more copies of the logits",
            Note::AlreadyEager => "it runs without compile already",
            Note::GraphsTakeMore => "CUDA graphs have memory pools of their own: more, not less",
            Note::PiecesAreEnough => "that much is reserved and unused, in pieces",
            Note::NotFragmentation => "the memory is needed; pieces are not the trouble",
            Note::AlreadyOn => "it is on already",
            Note::CacheIsEmptied => "PyTorch empties its cache itself before it gives up",
            Note::TrainingDiesInstead => {
                "evaluation would leave the GPU, and the first training step would die instead"
            }
            Note::EvalLeaves => "evaluation leaves the GPU and takes many times longer",
            Note::OthersHold => "other programs hold that much of this card",
            Note::NoOthers => "no other program is seen on this card",
            Note::SameBytes => "both have two bytes",
            Note::EachHoldsAll => {
                "every GPU holds the whole model, its optimizer state and its own logits"
            }
            Note::DataIsNotThere => {
                "nanoGPT's data set is a file on the disk, not in the GPU's memory"
            }
            Note::SameTensors => "the tensors are the same in every version",
            Note::ManyTimesSlower => "it would run, hundreds of times slower",
            Note::FitsAlready => "the run fits as it is",
            Note::StateAlone => "weights, gradients and Adam's state alone do not fit",
            Note::HalfTheBytes => "activations and logits in 16 bits",
            Note::FlashAttention => "flash attention makes no positions x positions",
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
            What::Adam => "Adam's averages",
            What::Activations => "activations saved for backward",
            What::Logits => "logits and what the loss makes of them",
            What::StaleLogits => "logits of the batch before, still referenced",
            What::Workspace => "workspace of cuBLAS",
            What::Tokens => "the batch",
            What::Unexplained => "in tensors that this model of the run does not explain",
            What::Fragments => "reserved by PyTorch, in no tensor",
            What::Context => "CUDA context, kernels, libraries",
            What::Others => "other programs",
            What::Free => "free",
        }
    }

    fn cause(&self, cause: Cause) -> &'static str {
        match cause {
            Cause::Logits => {
                "The logits are what kills: a number for each token of the batch and each row \
                 of the vocabulary, several times over (cross-entropy copies them and makes a \
                 log-softmax in f32)."
            }
            Cause::StaleLogits => {
                "The logits of the evaluation batch before are still referenced by the loop's \
                 variable while those of the next batch are made: two such buffers at once. No \
                 graph is kept (evaluation runs under no_grad)."
            }
            Cause::Activations => "What the forward pass saves for the backward pass does not fit.",
            Cause::AttentionScores => {
                "Scores of attention, positions times positions, do not fit: flash attention is \
                 not in use."
            }
            Cause::OptimizerState => {
                "Adam makes its two averages at its first step: eight bytes for each parameter, \
                 on top of weights and gradients."
            }
            Cause::Weights => {
                "The model itself does not fit: weights, gradients or what is loaded beside them."
            }
            Cause::Fragmentation => "Enough memory is reserved, but not in one piece.",
            Cause::OtherProcess => "Other programs hold what is missing.",
            Cause::Unknown => "The log does not tell which tensor it was.",
        }
    }

    fn phase(&self, phase: LogPhase) -> &'static str {
        match phase {
            LogPhase::FirstEval => "in the first evaluation, before any training step",
            LogPhase::Eval => "in an evaluation",
            LogPhase::Forward => "in the forward pass of training",
            LogPhase::Backward => "in the backward pass",
            LogPhase::Optimizer => "in the optimizer's step",
            LogPhase::Resume => "while a checkpoint was loaded",
            LogPhase::Sample => "while text was generated",
            LogPhase::Unknown => "at a moment that the log does not tell",
        }
    }

    fn verdict(&self, verdict: Verdict) -> &'static str {
        verdict.name()
    }

    fn unknown(&self, unknown: Unknown) -> &'static str {
        match unknown {
            Unknown::Requested => "how much was asked for: run it again and keep the whole message",
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
                "the model: the echoed settings make another number of parameters than the log \
                 says; give the config file"
            }
        }
    }

    fn fix(&self, fix: FixKind) -> &'static str {
        match fix {
            FixKind::SmallerBatch => {
                "a smaller micro-batch, more of them: the same tokens for each update"
            }
            FixKind::Compile => "compiled code keeps fewer copies of the logits",
            FixKind::ShorterContext => "shorter sequences; losses do not compare with longer ones",
            FixKind::SmallerModel(_) => "a narrower model",
        }
    }

    fn labels(&self) -> &'static Labels {
        const LABELS: Labels = Labels {
            did_not_fit: "{bytes} did not fit {phase}.",
            which: "It was {name} {shape} in {dtype} ({confidence}).",
            same_size: "the same size: {others}",
            memory: "where the memory was",
            peaks: "nanoGPT's tensors in PyTorch, by phase (±7 %) → with context",
            of_budget: "of {budget}",
            advice: "the usual advice, for this case",
            fixes: "what to change in nanoGPT",
            nothing: "no setting of nanoGPT near this one fits",
            unknown: "what the log does not tell",
            nanogpt: "nanoGPT, changed so that it fits",
            fitgpt: "fitGPT, as it was typed",
            fitgpt_changed: "fitGPT, changed so that it fits",
            unrelated: "not the cause: {what}",
            foreign: "nanoGPT does not know {keys}: it ignored them",
            fits: "By this model of PyTorch's memory the run fits.",
            dies: "By this model of PyTorch's memory the run dies {phase}.",
            no_log: "No out-of-memory message was found.",
            problem: "Problem",
            root: "Root cause",
            config: "Recommended config",
            expected: "Expected memory",
            nonsense: "These numbers of the message cannot be true (WSL and Windows drivers \
                       print such): {numbers}",
        };
        &LABELS
    }
}
