//! The head in chunks of tokens: logits into the slab, loss and gradient of each row in place,
//! then both products. The weight's gradient comes before the input's, which overwrites `x`.

use super::gemm::{Matrix, Product, product};
use crate::executor::{Context, check_below};
use crate::isa::for_each_isa;
use crate::lanes;
use crate::math::{exp, ln};
use crate::pool::Output;
use plan::ops::{HeadEval, HeadTrain, Write};
use plan::{BackendError, StepState, TensorId};

/// Loss and both gradients.
pub(crate) fn train(cx: &Context<'_>, op: &HeadTrain) -> Result<(), BackendError> {
    let isa = cx.isa;
    let (width, vocabulary) = (cx.width(op.x), cx.width(op.slab));
    let (x, w, d_w) = (cx.memory.write(op.x), cx.memory.read(op.w), cx.memory.write(op.d_w));
    let (slab, scratch) = (cx.memory.write(op.slab), cx.memory.write(op.workspace));
    let targets = cx.memory.read_ids(op.targets);
    let token_loss = cx.memory.write(op.token_loss);
    check_targets(targets, vocabulary)?;
    check_row(cx, op.row_loss, token_loss.len() / cx.width(op.targets))?;
    let state = StepState::from_words(cx.state_words(op.state)?);
    let scale = cx.inputs.inverse_tokens * state.loss_scale;
    let chunk = slab.len() / vocabulary;
    for (index, x) in x.chunks_mut(chunk * width).enumerate() {
        let tokens = index * chunk..index * chunk + x.len() / width;
        let slab = &mut slab[..tokens.len() * vocabulary];
        logits(cx, scratch, x, w, width, slab);
        let (targets, losses) = (&targets[tokens.clone()], &mut token_loss[tokens.clone()]);
        let outputs = [Output::new(slab, vocabulary), Output::new(losses, 1)];
        cx.pool.split(tokens.len(), outputs, |_, rows, [slab, losses]| {
            row_gradients(isa, &targets[rows], scale, slab, losses);
        });
        let weight_gradient = Product {
            a: Matrix::transposed(slab, vocabulary),
            b: Matrix::rows(x, width),
            inner: tokens.len(),
            columns: width,
            bias: None,
            write: Write::Accumulate,
        };
        product(cx.pool, isa, scratch, &weight_gradient, d_w);
        let input_gradient = Product {
            a: Matrix::rows(slab, vocabulary),
            b: Matrix::rows(w, width),
            inner: vocabulary,
            columns: width,
            bias: None,
            write: Write::Overwrite,
        };
        product(cx.pool, isa, scratch, &input_gradient, x);
    }
    sum_rows(cx, token_loss, op.targets, op.row_loss)
}

/// Loss alone.
pub(crate) fn eval(cx: &Context<'_>, op: &HeadEval) -> Result<(), BackendError> {
    let isa = cx.isa;
    let (width, vocabulary) = (cx.width(op.x), cx.width(op.slab));
    let (x, w) = (cx.memory.read(op.x), cx.memory.read(op.w));
    let (slab, scratch) = (cx.memory.write(op.slab), cx.memory.write(op.workspace));
    let targets = cx.memory.read_ids(op.targets);
    let token_loss = cx.memory.write(op.token_loss);
    check_targets(targets, vocabulary)?;
    let chunk = slab.len() / vocabulary;
    for (index, x) in x.chunks(chunk * width).enumerate() {
        let tokens = index * chunk..index * chunk + x.len() / width;
        let slab = &mut slab[..tokens.len() * vocabulary];
        logits(cx, scratch, x, w, width, slab);
        let (targets, losses) = (&targets[tokens.clone()], &mut token_loss[tokens.clone()]);
        let slab: &[f32] = slab;
        cx.pool.split(tokens.len(), [Output::new(losses, 1)], |_, rows, [losses]| {
            let slab = &slab[rows.start * vocabulary..rows.end * vocabulary];
            row_losses(isa, &targets[rows], slab, losses);
        });
    }
    sum_rows(cx, token_loss, op.targets, op.row_loss)
}

/// `slab = x wᵀ`, with `w` of `width` columns.
fn logits(
    cx: &Context<'_>,
    scratch: &mut [f32],
    x: &[f32],
    w: &[f32],
    width: usize,
    slab: &mut [f32],
) {
    let factors = Product {
        a: Matrix::rows(x, width),
        b: Matrix::transposed(w, width),
        inner: width,
        columns: w.len() / width,
        bias: None,
        write: Write::Overwrite,
    };
    product(cx.pool, cx.isa, scratch, &factors, slab);
}

/// Where the slice's first sequence stands among the losses. Checked before anything is
/// accumulated: a refused run leaves the gradients as they were.
fn check_row(cx: &Context<'_>, row_loss: TensorId, rows: usize) -> Result<usize, BackendError> {
    let limit = (cx.width(row_loss) + 1).saturating_sub(rows);
    check_below("first_row", cx.inputs.first_row.min(i64::MAX as u64) as i64, limit)
}

/// Each sequence's losses added in order of position, in f64, at the slice's place.
fn sum_rows(
    cx: &Context<'_>,
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

/// -1 is "no target"; everything else must be a token.
fn check_targets(targets: &[i32], vocabulary: usize) -> Result<(), BackendError> {
    targets
        .iter()
        .filter(|&&target| target != -1)
        .try_for_each(|&t| check_below("target", i64::from(t), vocabulary).map(|_| ()))
}

/// `(max, Σ e^(x - max))` of a row of logits.
#[inline(always)]
fn softmax_parts(row: &[f32]) -> (f32, f32) {
    let max = lanes::max(row);
    (max, lanes::sum(row, |x| exp(x - max)))
}

for_each_isa! {
    fn row_losses(targets: &[i32], slab: &[f32], losses: &mut [f32]) {
        let vocabulary = slab.len() / targets.len();
        let rows = slab.chunks_exact(vocabulary).zip(losses);
        for (&target, (row, loss)) in targets.iter().zip(rows) {
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
    /// Logits become `(softmax - one_hot) · scale`.
    fn row_gradients(targets: &[i32], scale: f32, slab: &mut [f32], losses: &mut [f32]) {
        let vocabulary = slab.len() / targets.len();
        let rows = slab.chunks_exact_mut(vocabulary).zip(losses);
        for (&target, (row, loss)) in targets.iter().zip(rows) {
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
            row_losses(Isa::best(), &[1], &slab, &mut losses);
            assert!((losses[0] - std::f32::consts::LN_2).abs() < 1e-6, "{logit}: {losses:?}");
            row_gradients(Isa::best(), &[1], 1.0, &mut slab, &mut losses);
            assert!((losses[0] - std::f32::consts::LN_2).abs() < 1e-6, "{logit}: {losses:?}");
            assert!((slab[0] - 0.5).abs() < 1e-6 && (slab[1] + 0.5).abs() < 1e-6, "{slab:?}");
        }
    }

    #[test]
    fn nan_shows_in_the_loss() {
        let mut losses = [0.0];
        row_losses(Isa::best(), &[0], &[1.0, f32::NAN, 2.0], &mut losses);
        assert!(losses[0].is_nan());
    }
}
