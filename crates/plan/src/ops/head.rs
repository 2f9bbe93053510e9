//! The head: the last linear layer and cross-entropy, in chunks of tokens, so that logits exist
//! only for one chunk at a time (the slab). In training the same pass also computes both gradients,
//! because their scale (1 over the valid tokens of the iteration, times the loss scale) is known
//! beforehand.

use super::{Check, Elements, Operand, Operation, TOKEN_BLOCK, matmul_flops};
use crate::error::PlanError;
use crate::schedule::Backward;
use crate::tensor::{TensorId, Tensors};

/// Loss and gradients. `x` is overwritten by its own gradient, chunk by chunk.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadTrain {
    /// `[rows, positions, width]`: in, the normalised stream; out, its gradient.
    pub x: TensorId,
    /// `[vocabulary + padding, width]`, tied to the token embedding.
    pub w: TensorId,
    /// `[vocabulary + padding, width]` accumulator. The padding's gradient is zero.
    pub d_w: TensorId,
    /// `[rows, positions]`; a target of -1 is ignored.
    pub targets: TensorId,
    /// `[rows · positions]`: the loss of each token.
    pub token_loss: TensorId,
    /// `[rows of an iteration]`: summed loss of each sequence, at `StepInputs::first_row`.
    pub row_loss: TensorId,
    /// `[chunk, vocabulary + padding]` logits, then their gradients.
    pub slab: TensorId,
    /// Loss scale.
    pub state: TensorId,
    /// Last rows of `w` that are no tokens: their logits do not count.
    pub padding: u64,
    /// The backend's own scratch.
    pub workspace: TensorId,
}

/// Loss alone.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadEval {
    /// `[rows, positions, width]`.
    pub x: TensorId,
    /// `[vocabulary + padding, width]`.
    pub w: TensorId,
    /// `[rows, positions]`; a target of -1 is ignored.
    pub targets: TensorId,
    /// `[rows · positions]`: the loss of each token.
    pub token_loss: TensorId,
    /// `[rows]`: summed loss of each sequence, at `StepInputs::first_row`.
    pub row_loss: TensorId,
    /// `[chunk, vocabulary + padding]` logits.
    pub slab: TensorId,
    /// Last rows of `w` that are no tokens: their logits do not count.
    pub padding: u64,
    /// The backend's own scratch.
    pub workspace: TensorId,
}

/// What both heads share: `[x, w, targets, token_loss, row_loss, slab]`, and the padding of `w`.
fn check_head(
    check: &Check<'_>,
    [x, w, targets, token_loss, row_loss, slab]: [TensorId; 6],
    padding: u64,
) -> Result<(), PlanError> {
    let &[rows, positions, width] = check.rank("x", x, 3)? else { return Ok(()) };
    let &[w_rows, _] = check.rank("w", w, 2)? else { return Ok(()) };
    let &[chunk, _] = check.rank("slab", slab, 2)? else { return Ok(()) };
    let tokens = rows.saturating_mul(positions);
    check.dims("w", w, &[w_rows, width])?;
    check.attribute(padding < w_rows, || format!("{padding} of {w_rows} rows are padding"))?;
    check.dims("targets", targets, &[rows, positions])?;
    check.dims("token_loss", token_loss, &[tokens])?;
    let &[loss_rows] = check.rank("row_loss", row_loss, 1)? else { return Ok(()) };
    check.attribute(loss_rows >= rows, || {
        format!("{rows} sequences, but row_loss holds {loss_rows}")
    })?;
    check.dims("slab", slab, &[chunk, w_rows])?;
    check.one_type(&[("x", x), ("w", w), ("slab", slab)])?;
    check.attribute(chunk >= tokens || chunk.is_multiple_of(TOKEN_BLOCK), || {
        format!("a chunk of {chunk} tokens is not a multiple of {TOKEN_BLOCK}")
    })
}

/// As an attribute, if there is any: plans without it are listed as before it existed.
fn listed(padding: u64) -> Vec<String> {
    (padding > 0).then(|| format!("padding={padding}")).into_iter().collect()
}

/// The rows of `w` that are tokens.
fn tokens_of(tensors: &Tensors, w: TensorId, padding: u64) -> u64 {
    tensors.get(w).shape.rows().saturating_sub(padding)
}

fn head_product(tensors: &Tensors, x: TensorId, w: TensorId) -> u64 {
    let w = tensors.get(w).shape;
    matmul_flops(tensors.get(x).shape.rows(), w.rows(), w.width())
}

/// Bytes that pass through the slab: every logit is written and read `times` times.
fn slab_traffic(tensors: &Tensors, x: TensorId, slab: TensorId, times: u64) -> u64 {
    let slab = tensors.get(slab);
    let tokens = tensors.get(x).shape.rows();
    tokens.saturating_mul(slab.shape.width()).saturating_mul(slab.dtype.size() * times)
}

/// How many times the slab is filled.
fn chunks(tensors: &Tensors, x: TensorId, slab: TensorId) -> u64 {
    tensors.get(x).shape.rows().div_ceil(tensors.get(slab).shape.rows().max(1))
}

/// What a head does, for the cost model: it alternates between matmuls and passes over memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadWork {
    /// Operations of all matmuls.
    pub flops: u64,
    /// Bytes of logits that the softmax reads and, in training, writes.
    pub softmax: u64,
    /// Bytes of activations and logits that matmuls read or write.
    pub activations: u64,
    /// Bytes of weights and gradients that the matmuls of each chunk read or write.
    pub weights: u64,
    /// Kernels of a chunk.
    pub kernels: u64,
    /// How many times the slab is filled.
    pub chunks: u64,
}

impl HeadWork {
    /// Bytes that pass through memory.
    fn bytes(self) -> u64 {
        let weights = self.weights.saturating_mul(self.chunks);
        self.softmax.saturating_add(self.activations).saturating_add(weights)
    }
}

impl HeadTrain {
    /// Tokens that can be targets.
    pub fn vocabulary(&self, tensors: &Tensors) -> u64 {
        tokens_of(tensors, self.w, self.padding)
    }

    /// Three matmuls a chunk, and a softmax between them.
    pub fn work(&self, tensors: &Tensors) -> HeadWork {
        let bytes = |id: TensorId, times: u64| tensors.bytes(id).get().saturating_mul(times);
        HeadWork {
            flops: self.flops(tensors),
            softmax: slab_traffic(tensors, self.x, self.slab, 2),
            activations: slab_traffic(tensors, self.x, self.slab, 3)
                .saturating_add(bytes(self.x, 3)),
            weights: bytes(self.w, 2).saturating_add(bytes(self.d_w, 2)),
            kernels: 4,
            chunks: chunks(tensors, self.x, self.slab),
        }
    }
}

impl HeadEval {
    /// Tokens that can be targets.
    pub fn vocabulary(&self, tensors: &Tensors) -> u64 {
        tokens_of(tensors, self.w, self.padding)
    }

    /// A matmul and a softmax for each chunk.
    pub fn work(&self, tensors: &Tensors) -> HeadWork {
        HeadWork {
            flops: self.flops(tensors),
            softmax: slab_traffic(tensors, self.x, self.slab, 1),
            activations: slab_traffic(tensors, self.x, self.slab, 1)
                .saturating_add(tensors.bytes(self.x).get()),
            weights: tensors.bytes(self.w).get(),
            kernels: 2,
            chunks: chunks(tensors, self.x, self.slab),
        }
    }
}

impl Operation for HeadTrain {
    fn name(&self) -> &'static str {
        "head_train"
    }

    fn operands(&self) -> Vec<Operand> {
        vec![
            Operand::update("x", self.x),
            Operand::read("w", self.w),
            Operand::update("d_w", self.d_w).of(Elements::Single),
            Operand::read("targets", self.targets).of(Elements::Ids),
            Operand::write("token_loss", self.token_loss).of(Elements::Single),
            Operand::update("row_loss", self.row_loss).of(Elements::Single),
            Operand::write("slab", self.slab),
            Operand::read("state", self.state).of(Elements::Words),
            Operand::workspace(self.workspace),
        ]
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { x, w, d_w, targets, token_loss, row_loss, slab, state, padding: _, workspace } =
            self;
        vec![x, w, d_w, targets, token_loss, row_loss, slab, state, workspace]
    }

    fn attributes(&self) -> Vec<String> {
        listed(self.padding)
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        let shared = [self.x, self.w, self.targets, self.token_loss, self.row_loss, self.slab];
        check_head(&check, shared, self.padding)?;
        check.state(self.state)?;
        check.dims("d_w", self.d_w, check.shape(self.w).dims())
    }

    fn flops(&self, tensors: &Tensors) -> u64 {
        head_product(tensors, self.x, self.w).saturating_mul(3)
    }

    fn bytes(&self, tensors: &Tensors) -> u64 {
        self.work(tensors).bytes()
    }

    /// Nothing is left to do: `x` already holds its gradient.
    fn emit_backward(&self, backward: &mut Backward<'_>) -> Result<(), PlanError> {
        backward.deliver(self.x, self.x)
    }
}

impl Operation for HeadEval {
    fn name(&self) -> &'static str {
        "head_eval"
    }

    fn operands(&self) -> Vec<Operand> {
        vec![
            Operand::read("x", self.x),
            Operand::read("w", self.w),
            Operand::read("targets", self.targets).of(Elements::Ids),
            Operand::write("token_loss", self.token_loss).of(Elements::Single),
            Operand::update("row_loss", self.row_loss).of(Elements::Single),
            Operand::write("slab", self.slab),
            Operand::workspace(self.workspace),
        ]
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { x, w, targets, token_loss, row_loss, slab, padding: _, workspace } = self;
        vec![x, w, targets, token_loss, row_loss, slab, workspace]
    }

    fn attributes(&self) -> Vec<String> {
        listed(self.padding)
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        let shared = [self.x, self.w, self.targets, self.token_loss, self.row_loss, self.slab];
        check_head(&check, shared, self.padding)
    }

    fn flops(&self, tensors: &Tensors) -> u64 {
        head_product(tensors, self.x, self.w)
    }

    fn bytes(&self, tensors: &Tensors) -> u64 {
        // The weight stays in a cache from one chunk to the next.
        HeadWork { chunks: 1, ..self.work(tensors) }.bytes()
    }
}
