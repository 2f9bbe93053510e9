//! The norm of all gradients: a sum of squares for each fixed block, and the blocks added in order.

use crate::executor::StepContext;
use crate::isa::for_each_isa;
use crate::pool::Output;
use plan::ops::{GRAD_NORM_BLOCK, GradNorm};
use plan::{BackendError, StepState};

/// Sets `grad_norm` and `found_inf`.
pub(crate) fn run(cx: &StepContext<'_>, op: &GradNorm) -> Result<(), BackendError> {
    let isa = cx.isa;
    let gradients = cx.memory.read(op.gradients);
    let partials = cx.memory.write_words(op.partials);
    let block = GRAD_NORM_BLOCK as usize;
    cx.pool.split(partials.len() / 2, [Output::new(&mut *partials, 2)], |_, blocks, [sums]| {
        let mine = &gradients[blocks.start * block..(blocks.end * block).min(gradients.len())];
        for (sum, block) in sums.chunks_exact_mut(2).zip(mine.chunks(block)) {
            let mut squares = 0.0;
            sum_of_squares(isa, block, &mut squares);
            let bits = squares.to_bits();
            sum.copy_from_slice(&[bits as u32, (bits >> 32) as u32]);
        }
    });
    let words = partials.chunks_exact(2);
    let total: f64 =
        words.map(|pair| f64::from_bits(u64::from(pair[0]) | u64::from(pair[1]) << 32)).sum();
    let words = cx.state_words_mut(op.state)?;
    let mut state = StepState::from_words(words);
    let norm = total.sqrt() / f64::from(state.loss_scale);
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
