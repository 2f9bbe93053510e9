//! The norm of all gradients: a sum of squares for each fixed block, and the blocks added in order.

use crate::executor::StepContext;
use crate::isa::for_each_isa;
use crate::pool::Output;
use plan::ops::{GRAD_NORM_BLOCK, GradNorm, NormOfSums, SquareSums};
use plan::{BackendError, StepState, TensorId};

/// Sets `grad_norm` and `found_inf`.
pub(crate) fn run(cx: &StepContext<'_>, op: &GradNorm) -> Result<(), BackendError> {
    let partials = cx.memory.write_words(op.partials);
    sum_blocks(cx, cx.memory.read(op.gradients), partials);
    set_norm(cx, op.state, partials.chunks_exact(2).map(wide).sum())
}

/// The sums of squares of some blocks.
pub(crate) fn square_sums(cx: &StepContext<'_>, op: &SquareSums) -> Result<(), BackendError> {
    let gradients = cx.memory.read(op.gradients);
    let partials = cx.memory.write_words(op.partials);
    let (first, blocks) = (op.first_block as usize, gradients.len().div_ceil(BLOCK));
    sum_blocks(cx, gradients, &mut partials[2 * first..2 * (first + blocks)]);
    Ok(())
}

/// Sets `grad_norm` and `found_inf` from the sums of all ranks. Only one rank has summed a block,
/// so that adding the others' zeros changes no bit.
pub(crate) fn norm_of_sums(cx: &StepContext<'_>, op: &NormOfSums) -> Result<(), BackendError> {
    let partials = cx.memory.read_words(op.partials);
    let blocks = cx.tensors.get(op.partials).shape.dims().get(1).map_or(0, |&b| b as usize);
    let of_block = |block: usize| -> f64 {
        partials.chunks_exact(2 * blocks).map(|rank| wide(&rank[2 * block..])).sum()
    };
    set_norm(cx, op.state, (0..blocks).map(of_block).sum())
}

const BLOCK: usize = GRAD_NORM_BLOCK as usize;

/// One sum of squares for each block of the gradients.
fn sum_blocks(cx: &StepContext<'_>, gradients: &[f32], partials: &mut [u32]) {
    let isa = cx.isa;
    cx.pool.split(partials.len() / 2, [Output::new(partials, 2)], |_, blocks, [sums]| {
        let mine = &gradients[blocks.start * BLOCK..(blocks.end * BLOCK).min(gradients.len())];
        for (sum, block) in sums.chunks_exact_mut(2).zip(mine.chunks(BLOCK)) {
            let mut squares = 0.0;
            sum_of_squares(isa, block, &mut squares);
            let bits = squares.to_bits();
            sum.copy_from_slice(&[bits as u32, (bits >> 32) as u32]);
        }
    });
}

/// The f64 in the first two words.
fn wide(words: &[u32]) -> f64 {
    f64::from_bits(u64::from(words[0]) | u64::from(words[1]) << 32)
}

fn set_norm(cx: &StepContext<'_>, state: TensorId, squares: f64) -> Result<(), BackendError> {
    let words = cx.state_words_mut(state)?;
    let mut state = StepState::from_words(words);
    let norm = squares.sqrt() / f64::from(state.loss_scale);
    state.grad_norm = norm as f32;
    state.found_inf = !state.grad_norm.is_finite();
    *words = state.to_words();
    Ok(())
}

for_each_isa! {
    /// In f64, so that no square of a finite f32 overflows or becomes zero.
    fn sum_of_squares(x: &[f32], sum: &mut f64) {
        let mut lanes = [0.0f64; 16];
        for chunk in x.chunks(16) {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                let x = f64::from(x);
                *lane += x * x;
            }
        }
        *sum = lanes.iter().sum();
    }
}
