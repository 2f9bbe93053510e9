//! The kinds of tensors, so that every language can name them. The names of the model of PyTorch's
//! memory are English; this table says which kind each is.

/// A kind of tensor. Its sentence has `{name}` where a parameter's or a layer's name belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorKind {
    /// A weight.
    Parameter,
    /// A 16-bit copy of a weight.
    Copy,
    /// The gradient of a weight.
    Gradient,
    /// Adam's first moment.
    FirstMoment,
    /// Adam's second moment.
    SecondMoment,
    /// Either of them.
    Moment,
    /// A weight, or its gradient.
    WeightOrGradient,
    /// Token ids.
    Tokens,
    /// Workspace of cuBLAS.
    Workspace,
    /// Logits.
    Logits,
    /// Logits in f32.
    LogitsInF32,
    /// Logits of an evaluation.
    EvalLogits,
    /// Logits of an evaluation's next batch.
    NextEvalLogits,
    /// Cross-entropy's copy of the logits.
    LogitsCopy,
    /// The log-softmax.
    LogSoftmax,
    /// Gradient of the log-softmax.
    LogSoftmaxGradient,
    /// Gradient of the logits.
    LogitsGradient,
    /// The zeros that PyTorch makes for it.
    ZeroGradient,
    /// Attention scores.
    AttentionScores,
    /// A buffer of compiled code.
    Buffer,
    /// A tensor that is known by its shape only.
    Tensor,
    /// Embeddings.
    Embeddings,
    /// Position embeddings.
    PositionEmbeddings,
    /// Token embeddings.
    TokenEmbeddings,
    /// A mask of dropout.
    DropoutMask,
    /// Input of a checkpointed block.
    Input,
    /// The residual stream.
    Residual,
    /// Output of a layer norm.
    Norm,
    /// Queries, keys and values.
    Qkv,
    /// Output of attention.
    Attention,
    /// The MLP before its nonlinearity.
    BeforeGelu,
    /// The MLP after it.
    AfterGelu,
    /// Statistics of norms and attention.
    Statistics,
    /// Gradient of the residual stream.
    ResidualGradient,
    /// Gradient of the MLP.
    MlpGradient,
}

use TensorKind as Kind;

/// Names that are whole.
const WHOLE: [(&str, Kind); 31] = [
    ("logits", Kind::Logits),
    ("logits in f32", Kind::LogitsInF32),
    ("eval logits", Kind::EvalLogits),
    ("eval logits, next batch", Kind::NextEvalLogits),
    ("copy of the logits in cross-entropy", Kind::LogitsCopy),
    ("log-softmax of the logits, f32", Kind::LogSoftmax),
    ("gradient of the log-softmax, f32", Kind::LogSoftmaxGradient),
    ("gradient of the logits", Kind::LogitsGradient),
    ("zero gradient of the logits", Kind::ZeroGradient),
    ("attention scores", Kind::AttentionScores),
    ("a buffer of compiled code", Kind::Buffer),
    ("a tensor", Kind::Tensor),
    ("one of Adam's moments", Kind::Moment),
    ("a weight or its gradient", Kind::WeightOrGradient),
    ("X and Y", Kind::Tokens),
    ("embeddings", Kind::Embeddings),
    ("position embeddings", Kind::PositionEmbeddings),
    ("token embeddings", Kind::TokenEmbeddings),
    ("input", Kind::Input),
    ("residual before attention", Kind::Residual),
    ("residual before MLP", Kind::Residual),
    ("eval residual", Kind::Residual),
    ("q, k, v", Kind::Qkv),
    ("attention", Kind::Attention),
    ("MLP before GELU", Kind::BeforeGelu),
    ("eval MLP", Kind::BeforeGelu),
    ("MLP after GELU", Kind::AfterGelu),
    ("eval GELU", Kind::AfterGelu),
    ("statistics", Kind::Statistics),
    ("gradient of the residual", Kind::ResidualGradient),
    ("gradient before GELU", Kind::MlpGradient),
];

/// Names that begin so; the rest is a parameter.
const BEGINNINGS: [(&str, Kind); 11] = [
    ("parameter ", Kind::Parameter),
    ("16-bit copy of ", Kind::Copy),
    ("16-bit ", Kind::Copy),
    ("Adam's exp_avg_sq of ", Kind::SecondMoment),
    ("Adam's exp_avg of ", Kind::FirstMoment),
    ("gradient of the MLP", Kind::MlpGradient),
    ("gradient of ", Kind::Gradient),
    ("cuBLAS workspace, ", Kind::Workspace),
    ("dropout mask of ", Kind::DropoutMask),
    ("eval ln", Kind::Norm),
    ("ln_", Kind::Norm),
];

/// The kind of a tensor, and the name of the parameter or layer it belongs to.
pub fn kind_of(name: &str) -> Option<(TensorKind, String)> {
    let (layer, rest) = split_layer(name);
    if let Some((_, kind)) = WHOLE.iter().find(|(whole, _)| *whole == rest) {
        return Some((*kind, layer.to_string()));
    }
    let (beginning, kind) = BEGINNINGS.iter().find(|(words, _)| rest.starts_with(words))?;
    Some((*kind, format!("{layer}{}", &rest[beginning.len()..])))
}

/// `h.3.q, k, v` is `q, k, v` of layer `h.3.`; `parameter h.3.mlp.weight` has no layer of its own.
fn split_layer(name: &str) -> (&str, &str) {
    let Some(rest) = name.strip_prefix("h.") else {
        return ("", name);
    };
    let end = rest.find('.').map_or(0, |at| at + "h.".len());
    match end {
        0 => ("", name),
        end => (&name[..end], &name[end + 1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torch::{TorchRun, play};
    use model::{Dims, Gpt2};
    use plan::Dtype;
    use plan::ops::GeluKind;

    #[test]
    fn every_tensor_of_the_model_has_a_kind() {
        for (compiled, checkpointed) in [(false, false), (true, true)] {
            let run = TorchRun {
                model: Gpt2 { gelu: GeluKind::Erf },
                dims: Dims {
                    n_layer: 2,
                    n_head: 2,
                    n_embd: 64,
                    vocab_size: 128,
                    block_size: 32,
                    bias: true,
                },
                batch: 2,
                eval_batch: 2,
                positions: 32,
                compute: Dtype::Bf16,
                compiled,
                dropout: 0.1,
                accumulation: 2,
                checkpointed,
                keeps_logits: true,
                resumed: false,
                workspace: 1 << 20,
            };
            for birth in play(&run).unwrap().births() {
                assert!(kind_of(&birth.name).is_some(), "{}", birth.name);
            }
        }
        assert_eq!(kind_of("h.*.q, k, v"), Some((TensorKind::Qkv, "h.*".to_string())));
        let adam = kind_of("Adam's exp_avg of h.*.mlp.c_proj.weight").unwrap();
        assert_eq!(adam, (TensorKind::FirstMoment, "h.*.mlp.c_proj.weight".to_string()));
        assert_eq!(kind_of("h."), None);
    }
}
