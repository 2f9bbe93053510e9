//! The norm of all gradients: a sum of squares for each fixed block, the blocks added in order.

use crate::executor::Context;
use crate::isa::for_each_isa;
use crate::pool::Output;
use plan::ops::{GRAD_NORM_BLOCK, GradNorm};
use plan::{BackendError, StepState};

/// Sets `grad_norm` and `found_inf`.
pub(crate) fn run(cx: &Context<'_>, op: &GradNorm) -> Result<(), BackendError> {
    let isa = cx.isa;
    let gradients = cx.memory.read(op.gradients);
    let partials = cx.memory.write(op.partials);
    let block = GRAD_NORM_BLOCK as usize;
    cx.pool.split(partials.len(), [Output::new(&mut *partials, 1)], |_, blocks, [sums]| {
        let mine = &gradients[blocks.start * block..(blocks.end * block).min(gradients.len())];
        for (sum, block) in sums.iter_mut().zip(mine.chunks(block)) {
            sum_of_squares(isa, block, sum);
        }
    });
    let total: f64 = partials.iter().map(|&sum| f64::from(sum)).sum();
    let words = cx.state_words_mut(op.state)?;
    let mut state = StepState::from_words(words);
    let norm = total.sqrt() / f64::from(state.loss_scale);
    state.grad_norm = norm as f32;
    state.found_inf = !state.grad_norm.is_finite();
    *words = state.to_words();
    Ok(())
}

for_each_isa! {
    /// In f64: squares of small gradients must not vanish beside those of large ones.
    fn sum_of_squares(x: &[f32], sum: &mut f32) {
        let mut lanes = [0.0f64; 16];
        for chunk in x.chunks(16) {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                let x = f64::from(x);
                *lane += x * x;
            }
        }
        *sum = lanes.iter().sum::<f64>() as f32;
    }
}
