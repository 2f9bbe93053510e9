//! Ops that only generation needs: filling the key/value cache, attention of one new token against
//! it, and selecting the position whose logits are returned.

use super::{Check, Operand, Operation};
use crate::error::PlanError;
use crate::tensor::{TensorId, Tensors};

/// Copies keys and values of a prefilled context into the cache, from position 0.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheStore {
    /// `[rows, positions, 3 width]`.
    pub qkv: TensorId,
    /// `[2, rows, heads, block_size, head_size]`: keys, then values.
    pub cache: TensorId,
}

/// Appends one token's key and value at `StepInputs::position`, and attends to all positions up to
/// it.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionDecode {
    /// `[rows, 1, 3 width]`.
    pub qkv: TensorId,
    /// `[2, rows, heads, block_size, head_size]`.
    pub cache: TensorId,
    /// `[rows, 1, width]`.
    pub out: TensorId,
    /// The backend's own scratch.
    pub workspace: TensorId,
}

/// `out[row, 0] = x[row, StepInputs::position]`.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectPosition {
    /// `[rows, positions, width]`.
    pub x: TensorId,
    /// `[rows, 1, width]`.
    pub out: TensorId,
}

fn check_cache(check: &Check<'_>, qkv: TensorId, cache: TensorId) -> Result<(), PlanError> {
    let &[rows, positions, triple] = check.rank("qkv", qkv, 3)? else { return Ok(()) };
    let &[_, _, heads, block, size] = check.rank("cache", cache, 5)? else { return Ok(()) };
    check.dims("cache", cache, &[2, rows, heads, block, size])?;
    check.attribute(positions <= block, || {
        format!("{positions} positions, but the cache holds {block}")
    })?;
    let triple_wanted = heads.saturating_mul(size).saturating_mul(3);
    check.attribute(triple == triple_wanted, || {
        format!("qkv is {triple} wide, {heads} heads of {size} need {triple_wanted}")
    })?;
    check.one_type(&[("qkv", qkv), ("cache", cache)])
}

impl Operation for CacheStore {
    fn name(&self) -> &'static str {
        "cache_store"
    }

    /// The cache is updated, not overwritten: positions beyond the context keep their content.
    fn operands(&self) -> Vec<Operand> {
        vec![Operand::read("qkv", self.qkv), Operand::update("cache", self.cache)]
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { qkv, cache } = self;
        vec![qkv, cache]
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        check_cache(&Check::new(self.name(), tensors), self.qkv, self.cache)
    }

    fn flops(&self, _: &Tensors) -> u64 {
        0
    }

    fn bytes(&self, tensors: &Tensors) -> u64 {
        tensors.bytes(self.qkv).get().saturating_mul(4) / 3
    }
}

impl Operation for AttentionDecode {
    fn name(&self) -> &'static str {
        "attention_decode"
    }

    fn operands(&self) -> Vec<Operand> {
        vec![
            Operand::read("qkv", self.qkv),
            Operand::update("cache", self.cache),
            Operand::write("out", self.out),
            Operand::workspace(self.workspace),
        ]
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { qkv, cache, out, workspace } = self;
        vec![qkv, cache, out, workspace]
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        check_cache(&check, self.qkv, self.cache)?;
        let &[rows, _, triple] = check.rank("qkv", self.qkv, 3)? else { return Ok(()) };
        check.dims("qkv", self.qkv, &[rows, 1, triple])?;
        check.dims("out", self.out, &[rows, 1, triple / 3])?;
        check.one_type(&[("qkv", self.qkv), ("out", self.out)])
    }

    /// Counted for a full context.
    fn flops(&self, tensors: &Tensors) -> u64 {
        tensors.get(self.cache).shape.elements().saturating_mul(2)
    }
}

impl Operation for SelectPosition {
    fn name(&self) -> &'static str {
        "select_position"
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::read("x", self.x), Operand::write("out", self.out)]
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { x, out } = self;
        vec![x, out]
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        let &[rows, _, width] = check.rank("x", self.x, 3)? else { return Ok(()) };
        check.dims("out", self.out, &[rows, 1, width])?;
        check.one_type(&[("x", self.x), ("out", self.out)])
    }

    fn flops(&self, _: &Tensors) -> u64 {
        0
    }

    fn bytes(&self, tensors: &Tensors) -> u64 {
        tensors.bytes(self.out).get().saturating_mul(2)
    }
}
