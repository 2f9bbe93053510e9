//! The head in chunks of tokens: logits into the slab, loss and gradient of each row in place, then
//! both gradient matmuls. The weight's gradient is computed before the input's, which overwrites
//! `x`.

use super::gemm::{Matmul, Matrix, matmul};
use crate::executor::{StepContext, check_below};
use crate::isa::for_each_isa;
use crate::math::{exp, ln};
use crate::pool::Output;
use crate::row_sums;
use plan::ops::{HeadEval, HeadTrain, Write};
use plan::{BackendError, StepState, TensorId};

/// Loss and both gradients.
pub(crate) fn train(cx: &StepContext<'_>, op: &HeadTrain) -> Result<(), BackendError> {
    let isa = cx.isa;
    let (width, columns) = (cx.width(op.x), cx.width(op.slab));
    let vocabulary = columns - op.padding as usize;
    let (x_btc, w_vc, d_w_vc) =
        (cx.memory.write(op.x), cx.memory.read(op.w), cx.memory.write(op.d_w));
    let (slab_mv, scratch) = (cx.memory.write(op.slab), cx.memory.write(op.workspace));
    let targets_bt = cx.memory.read_ids(op.targets);
    let token_loss_bt = cx.memory.write(op.token_loss);
    check_targets(targets_bt, vocabulary)?;
    check_row(cx, op.row_loss, token_loss_bt.len() / cx.width(op.targets))?;
    let state = StepState::from_words(cx.state_words(op.state)?);
    let scale = cx.inputs.inverse_tokens * state.loss_scale;
    let chunk = slab_mv.len() / columns;
    for (index, x_btc) in x_btc.chunks_mut(chunk * width).enumerate() {
        let tokens = index * chunk..index * chunk + x_btc.len() / width;
        let slab_mv = &mut slab_mv[..tokens.len() * columns];
        logits(cx, scratch, x_btc, w_vc, width, slab_mv);
        let (targets_bt, losses) =
            (&targets_bt[tokens.clone()], &mut token_loss_bt[tokens.clone()]);
        let outputs = [Output::new(slab_mv, columns), Output::new(losses, 1)];
        cx.pool.split(tokens.len(), outputs, |_, rows, [slab_mv, losses]| {
            row_gradients(isa, &targets_bt[rows], vocabulary, scale, slab_mv, losses);
        });
        let weight_gradient = Matmul {
            a: Matrix::transposed(slab_mv, columns),
            b: Matrix::rows(x_btc, width),
            inner: tokens.len(),
            columns: width,
            bias: None,
            write: Write::Accumulate,
        };
        matmul(cx.pool, isa, scratch, &weight_gradient, d_w_vc);
        let input_gradient = Matmul {
            a: Matrix::rows(slab_mv, columns),
            b: Matrix::rows(w_vc, width),
            inner: columns,
            columns: width,
            bias: None,
            write: Write::Overwrite,
        };
        matmul(cx.pool, isa, scratch, &input_gradient, x_btc);
    }
    sum_rows(cx, token_loss_bt, op.targets, op.row_loss)
}

/// Loss alone.
pub(crate) fn eval(cx: &StepContext<'_>, op: &HeadEval) -> Result<(), BackendError> {
    let isa = cx.isa;
    let (width, columns) = (cx.width(op.x), cx.width(op.slab));
    let vocabulary = columns - op.padding as usize;
    let (x_btc, w_vc) = (cx.memory.read(op.x), cx.memory.read(op.w));
    let (slab_mv, scratch) = (cx.memory.write(op.slab), cx.memory.write(op.workspace));
    let targets_bt = cx.memory.read_ids(op.targets);
    let token_loss_bt = cx.memory.write(op.token_loss);
    check_targets(targets_bt, vocabulary)?;
    let chunk = slab_mv.len() / columns;
    for (index, x_btc) in x_btc.chunks(chunk * width).enumerate() {
        let tokens = index * chunk..index * chunk + x_btc.len() / width;
        let slab_mv = &mut slab_mv[..tokens.len() * columns];
        logits(cx, scratch, x_btc, w_vc, width, slab_mv);
        let (targets_bt, losses) =
            (&targets_bt[tokens.clone()], &mut token_loss_bt[tokens.clone()]);
        let slab_mv: &[f32] = slab_mv;
        cx.pool.split(tokens.len(), [Output::new(losses, 1)], |_, rows, [losses]| {
            let slab_mv = &slab_mv[rows.start * columns..rows.end * columns];
            row_losses(isa, &targets_bt[rows], vocabulary, slab_mv, losses);
        });
    }
    sum_rows(cx, token_loss_bt, op.targets, op.row_loss)
}

/// `slab = x wᵀ`, with `w` of `width` columns.
fn logits(
    cx: &StepContext<'_>,
    scratch: &mut [f32],
    x: &[f32],
    w: &[f32],
    width: usize,
    slab: &mut [f32],
) {
    let operands = Matmul {
        a: Matrix::rows(x, width),
        b: Matrix::transposed(w, width),
        inner: width,
        columns: w.len() / width,
        bias: None,
        write: Write::Overwrite,
    };
    matmul(cx.pool, cx.isa, scratch, &operands, slab);
}

/// The index of the slice's first sequence among the losses. It is checked before anything is
/// accumulated, so that a refused run leaves the gradients unchanged.
fn check_row(cx: &StepContext<'_>, row_loss: TensorId, rows: usize) -> Result<usize, BackendError> {
    let limit = (cx.width(row_loss) + 1).saturating_sub(rows);
    check_below("first_row", cx.inputs.first_row.min(i64::MAX as u64) as i64, limit)
}

/// Adds up each sequence's losses in order of position, in f64, and stores them at the slice's
/// rows.
fn sum_rows(
    cx: &StepContext<'_>,
    token_loss: &[f32],
    targets: TensorId,
    row_loss_id: TensorId,
) -> Result<(), BackendError> {
    let positions = cx.width(targets);
    let row_loss = cx.memory.write(row_loss_id);
    let first = check_row(cx, row_loss_id, token_loss.len() / positions)?;
    for (sum, losses) in row_loss[first..].iter_mut().zip(token_loss.chunks_exact(positions)) {
        *sum = losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() as f32;
    }
    Ok(())
}

/// -1 means "no target"; every other target must be a token.
fn check_targets(targets: &[i32], vocabulary: usize) -> Result<(), BackendError> {
    targets
        .iter()
        .filter(|&&target| target != -1)
        .try_for_each(|&t| check_below("target", i64::from(t), vocabulary).map(|_| ()))
}

/// `(max, Σ e^(x - max))` of a row of logits.
#[inline(always)]
fn softmax_parts(row: &[f32]) -> (f32, f32) {
    let max = row_sums::max(row);
    (max, row_sums::sum(row, |x| exp(x - max)))
}

for_each_isa! {
    /// The first `vocabulary` logits of each row count; the others are padding.
    fn row_losses(targets: &[i32], vocabulary: usize, slab: &[f32], losses: &mut [f32]) {
        let rows = slab.chunks_exact(slab.len() / targets.len()).zip(losses);
        for (&target, (row, loss)) in targets.iter().zip(rows) {
            let row = &row[..vocabulary];
            *loss = match usize::try_from(target) {
                Ok(target) => {
                    let (max, sum) = softmax_parts(row);
                    ln(sum) + (max - row[target])
                }
                Err(_) => 0.0,
            };
        }
    }
}

for_each_isa! {
    /// Replaces logits by `(softmax - one_hot) · scale`, and those of the padding by 0.
    fn row_gradients(
        targets: &[i32],
        vocabulary: usize,
        scale: f32,
        slab: &mut [f32],
        losses: &mut [f32],
    ) {
        let rows = slab.chunks_exact_mut(slab.len() / targets.len()).zip(losses);
        for (&target, (row, loss)) in targets.iter().zip(rows) {
            let (row, padding) = row.split_at_mut(vocabulary);
            padding.fill(0.0);
            let Ok(target) = usize::try_from(target) else {
                *loss = 0.0;
                row.fill(0.0);
                continue;
            };
            let (max, sum) = softmax_parts(row);
            *loss = ln(sum) + (max - row[target]);
            let factor = scale / sum;
            for logit in row.iter_mut() {
                *logit = exp(*logit - max) * factor;
            }
            row[target] -= scale;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    /// The loss of two equal logits is ln 2, however large they are.
    #[test]
    fn large_logits_do_not_swallow_the_loss() {
        for logit in [0.0, 1e3, -1e5, 1e6, 3e38] {
            let (mut slab, mut losses) = ([logit, logit], [0.0]);
            row_losses(Isa::best(), &[1], 2, &slab, &mut losses);
            assert!((losses[0] - std::f32::consts::LN_2).abs() < 1e-6, "{logit}: {losses:?}");
            row_gradients(Isa::best(), &[1], 2, 1.0, &mut slab, &mut losses);
            assert!((losses[0] - std::f32::consts::LN_2).abs() < 1e-6, "{logit}: {losses:?}");
            assert!((slab[0] - 0.5).abs() < 1e-6 && (slab[1] + 0.5).abs() < 1e-6, "{slab:?}");
        }
    }

    #[test]
    fn nan_shows_in_the_loss() {
        let mut losses = [0.0];
        row_losses(Isa::best(), &[0], 3, &[1.0, f32::NAN, 2.0], &mut losses);
        assert!(losses[0].is_nan());
    }
}
