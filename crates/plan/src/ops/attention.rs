//! Causal self-attention over whole sequences, forward and backward. Scores exist only as tiles in
//! the backend's workspace: no tensor has size positions x positions.

use super::{Check, Dropout, Elements, Operand, Operation, matmul_flops};
use crate::error::PlanError;
use crate::schedule::Backward;
use crate::tensor::{Role, TensorId, Tensors};

/// `out = dropout(softmax(q kᵀ / √head_size, causal)) v`.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// `[rows, positions, 3 width]`: query, key, value, each split into heads.
    pub qkv: TensorId,
    /// `[rows, positions, width]`.
    pub out: TensorId,
    /// `[rows, heads, positions]` log of each softmax's denominator, fp32.
    pub lse: TensorId,
    /// Number of heads.
    pub heads: u64,
    /// Dropout on the probabilities.
    pub dropout: Option<Dropout>,
    /// The backend's own scratch.
    pub workspace: TensorId,
}

/// Gradients of query, key and value from the saved output and lse.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionBackward {
    /// As in the forward.
    pub qkv: TensorId,
    /// As in the forward.
    pub out: TensorId,
    /// As in the forward.
    pub lse: TensorId,
    /// `[rows, positions, width]`.
    pub d_out: TensorId,
    /// `[rows, positions, 3 width]`.
    pub d_qkv: TensorId,
    /// `[rows, heads, positions]`: `Σ d_out · out` of each position.
    pub delta: TensorId,
    /// Number of heads.
    pub heads: u64,
    /// The forward's dropout.
    pub dropout: Option<Dropout>,
    /// The backend's own scratch.
    pub workspace: TensorId,
}

fn check_heads(
    check: &Check<'_>,
    [qkv, out, lse]: [(&str, TensorId); 3],
    heads: u64,
    dropout: Option<Dropout>,
) -> Result<(), PlanError> {
    let &[rows, positions, width] = check.rank(out.0, out.1, 3)? else { return Ok(()) };
    check.attribute(heads > 0 && width.is_multiple_of(heads), || {
        format!("width {width} cannot be split into {heads} heads")
    })?;
    check.dims(qkv.0, qkv.1, &[rows, positions, 3 * width])?;
    check.dims(lse.0, lse.1, &[rows, heads, positions])?;
    check.attribute(dropout.is_none_or(|d| d.is_valid()), || {
        format!("dropout {dropout:?} is outside [0, 1)")
    })
}

/// Work of one matmul of queries with keys, counting only the causal half.
fn causal_matmul(tensors: &Tensors, out: TensorId) -> u64 {
    match *tensors.get(out).shape.dims() {
        [rows, positions, width] => {
            matmul_flops(rows, positions, positions.saturating_mul(width)) / 2
        }
        _ => 0,
    }
}

impl Operation for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn operands(&self) -> Vec<Operand> {
        vec![
            Operand::read("qkv", self.qkv),
            Operand::write("out", self.out),
            Operand::write("lse", self.lse).of(Elements::Single),
            Operand::workspace(self.workspace),
        ]
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { qkv, out, lse, workspace, .. } = self;
        vec![qkv, out, lse, workspace]
    }

    fn attributes(&self) -> Vec<String> {
        let words = [format!("heads={}", self.heads)].into_iter();
        words.chain(Dropout::word(self.dropout.as_ref())).collect()
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        let operands = [("qkv", self.qkv), ("out", self.out), ("lse", self.lse)];
        check_heads(&check, operands, self.heads, self.dropout)?;
        check.one_type(&[("qkv", self.qkv), ("out", self.out)])
    }

    fn flops(&self, tensors: &Tensors) -> u64 {
        causal_matmul(tensors, self.out).saturating_mul(2)
    }

    fn emit_backward(&self, backward: &mut Backward<'_>) -> Result<(), PlanError> {
        let d_out = backward.gradient_of(self.name(), self.out)?;
        let d_qkv = backward.new_gradient(self.qkv)?;
        let delta = backward.scratch("delta", backward.shape(self.lse), Role::Partials)?;
        backward.push_with_workspace(|workspace| AttentionBackward {
            qkv: self.qkv,
            out: self.out,
            lse: self.lse,
            d_out,
            d_qkv,
            delta,
            heads: self.heads,
            dropout: self.dropout,
            workspace,
        })
    }
}

impl Operation for AttentionBackward {
    fn name(&self) -> &'static str {
        "attention_backward"
    }

    fn operands(&self) -> Vec<Operand> {
        vec![
            Operand::read("qkv", self.qkv),
            Operand::read("out", self.out),
            Operand::read("lse", self.lse).of(Elements::Single),
            Operand::read("d_out", self.d_out),
            Operand::write("d_qkv", self.d_qkv),
            Operand::write("delta", self.delta).of(Elements::Single),
            Operand::workspace(self.workspace),
        ]
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { qkv, out, lse, d_out, d_qkv, delta, workspace, .. } = self;
        vec![qkv, out, lse, d_out, d_qkv, delta, workspace]
    }

    fn attributes(&self) -> Vec<String> {
        let words = [format!("heads={}", self.heads)].into_iter();
        words.chain(Dropout::word(self.dropout.as_ref())).collect()
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        let (heads, dropout) = (self.heads, self.dropout);
        let forward = [("qkv", self.qkv), ("out", self.out), ("lse", self.lse)];
        check_heads(&check, forward, heads, dropout)?;
        let gradients = [("d_qkv", self.d_qkv), ("d_out", self.d_out), ("delta", self.delta)];
        check_heads(&check, gradients, heads, dropout)?;
        let (qkv, d_qkv) = (("qkv", self.qkv), ("d_qkv", self.d_qkv));
        check.one_type(&[qkv, ("out", self.out), ("d_out", self.d_out), d_qkv])
    }

    /// Five matmuls: the scores again, and one for each of d_p, d_v, d_q, d_k.
    fn flops(&self, tensors: &Tensors) -> u64 {
        causal_matmul(tensors, self.out).saturating_mul(5)
    }
}
