//! Residual addition with layer normalisation, and its gradient. In the backward, a unit of work is
//! a block of 256 tokens with its own partial sums, which are added in order.

use super::dropout::Mask;
use crate::executor::StepContext;
use crate::isa::for_each_isa;
use crate::pool::Output;
use crate::row_sums;
use plan::BackendError;
use plan::ops::{LayerNorm, LayerNormBackward, TOKEN_BLOCK, Write};

const STRIP: usize = 256;

/// `out = normalise(x + dropout(branch)) · gain + bias`.
pub(crate) fn forward(cx: &StepContext<'_>, op: &LayerNorm) -> Result<(), BackendError> {
    let isa = cx.isa;
    let (x_btc, width) = (cx.memory.read(op.x), cx.width(op.x));
    let (gain_c, bias_c) = (cx.memory.read(op.gain), op.bias.map(|bias| cx.memory.read(bias)));
    let out_btc = Output::new(cx.memory.write(op.out), width);
    let mean_bt = Output::new(cx.memory.write(op.mean), 1);
    let rstd_bt = Output::new(cx.memory.write(op.rstd), 1);
    let rows = x_btc.len() / width;
    let epsilon = op.epsilon as f32;
    let Some(add) = &op.add else {
        cx.pool.split(rows, [out_btc, mean_bt, rstd_bt], |_, rows, [out_btc, mean_bt, rstd_bt]| {
            let x_btc = &x_btc[rows.start * width..rows.end * width];
            normalise(isa, x_btc, gain_c, bias_c, epsilon, out_btc, [mean_bt, rstd_bt]);
        });
        return Ok(());
    };
    let branch_btc = cx.memory.read(add.branch);
    let sum_btc = Output::new(cx.memory.write(add.sum), width);
    let mask = Mask::new(cx, add.dropout);
    let first_row = cx.first_token(op.x);
    cx.pool.split(
        rows,
        [out_btc, mean_bt, rstd_bt, sum_btc],
        |_, rows, [out_btc, mean_bt, rstd_bt, sum_btc]| {
            let range = rows.start * width..rows.end * width;
            let first_row = first_row + rows.start as u64;
            join(isa, &x_btc[range.clone()], &branch_btc[range], mask, first_row, width, sum_btc);
            normalise(isa, sum_btc, gain_c, bias_c, epsilon, out_btc, [mean_bt, rstd_bt]);
        },
    );
    Ok(())
}

/// `d_x (+)= …`, `d_gain += …`, `d_bias += …`, `d_branch = dropout(d_x)`.
pub(crate) fn backward(cx: &StepContext<'_>, op: &LayerNormBackward) -> Result<(), BackendError> {
    let isa = cx.isa;
    let width = cx.width(op.x);
    let x_btc = cx.memory.read(op.x);
    let statistics = [cx.memory.read(op.mean), cx.memory.read(op.rstd)];
    let gain_c = cx.memory.read(op.gain);
    let partials = cx.memory.write(op.workspace);
    let block = TOKEN_BLOCK as usize;
    let blocks = (x_btc.len() / width).div_ceil(block);
    let first_row = cx.first_token(op.x);
    let mask = Mask::new(cx, op.branch.as_ref().and_then(|branch| branch.dropout));
    let (mut nothing, mut nothing_else) = ([], []);
    let (d_out_btc, emitted) = match op.again {
        None => (cx.memory.read(op.d_out), Output::new(&mut nothing_else, 0)),
        Some(_) => (&[][..], Output::new(cx.memory.write(op.d_out), block * width)),
    };
    let bias_c = op.again.as_ref().and_then(|again| again.bias).map(|bias| cx.memory.read(bias));
    let d_branch_btc = match &op.branch {
        Some(branch) => Output::new(cx.memory.write(branch.d_branch), block * width),
        None => Output::new(&mut nothing, 0),
    };
    let d_x_btc = Output::new(cx.memory.write(op.d_x), block * width);
    let (partials, _) = partials.split_at_mut(blocks * 2 * width);
    let sums = Output::new(&mut *partials, 2 * width);
    let outputs = [d_x_btc, d_branch_btc, sums, emitted];
    cx.pool.split(blocks, outputs, |_, units, [d_x_btc, d_branch_btc, sums, emitted]| {
        for (index, unit) in units.clone().enumerate() {
            let rows = unit * block..((unit + 1) * block).min(x_btc.len() / width);
            let range = rows.start * width..rows.end * width;
            let here = index * block * width..index * block * width + range.len();
            let d_x_btc = &mut d_x_btc[here.clone()];
            let d_out = match op.again {
                None => &d_out_btc[range.clone()],
                Some(_) => &emitted[here.clone()],
            };
            let statistics = statistics.map(|s| &s[rows.clone()]);
            let x = &x_btc[range];
            let work = BlockGradient { d_out, x, statistics, gain: gain_c, write: op.write };
            gradient(isa, work, d_x_btc, &mut sums[index * 2 * width..][..2 * width]);
            if op.again.is_some() {
                emit_normalised(isa, x, statistics, gain_c, bias_c, &mut emitted[here.clone()]);
            }
            match mask {
                Some(mask) => {
                    let first_row = first_row + rows.start as u64;
                    copy_masked(isa, d_x_btc, mask, first_row, width, &mut d_branch_btc[here]);
                }
                None if !d_branch_btc.is_empty() => d_branch_btc[here].copy_from_slice(d_x_btc),
                None => {}
            }
        }
    });
    add_partials(cx, partials, [0, 2 * width], cx.memory.write(op.d_gain));
    if let Some(d_bias) = op.d_bias {
        add_partials(cx, partials, [width, 2 * width], cx.memory.write(d_bias));
    }
    Ok(())
}

/// Adds the partial sums of all blocks to each column, in order. They begin at `first` and are
/// `step` apart.
fn add_partials(
    cx: &StepContext<'_>,
    partials: &[f32],
    [first, step]: [usize; 2],
    target: &mut [f32],
) {
    cx.pool.split(step / 2, [Output::new(target, 1)], |_, columns, [target]| {
        for (column, target) in columns.zip(target) {
            let terms = partials.iter().skip(first + column).step_by(step);
            *target += terms.fold(0.0, |sum, term| sum + term);
        }
    });
}

for_each_isa! {
    /// `sum = x + mask · branch`.
    fn join(
        x: &[f32],
        branch: &[f32],
        mask: Option<Mask>,
        first_row: u64,
        width: usize,
        sum: &mut [f32],
    ) {
        let Some(mask) = mask else {
            for (sum, (&x, &branch)) in sum.iter_mut().zip(x.iter().zip(branch)) {
                *sum = x + branch;
            }
            return;
        };
        copy_masked_rows(branch, mask, first_row, width, sum);
        for (sum, &x) in sum.iter_mut().zip(x) {
            *sum += x;
        }
    }
}

for_each_isa! {
    fn copy_masked(from: &[f32], mask: Mask, first_row: u64, width: usize, to: &mut [f32]) {
        copy_masked_rows(from, mask, first_row, width, to);
    }
}

#[inline(always)]
fn copy_masked_rows(from: &[f32], mask: Mask, first_row: u64, width: usize, to: &mut [f32]) {
    let mut factors = [0.0; STRIP];
    let rows = from.chunks_exact(width).zip(to.chunks_exact_mut(width));
    for (row, (from, to)) in rows.enumerate() {
        for (strip, (from, to)) in from.chunks(STRIP).zip(to.chunks_mut(STRIP)).enumerate() {
            let factors = &mut factors[..from.len()];
            mask.strip(first_row + row as u64, strip * STRIP, factors);
            for (to, (&from, &factor)) in to.iter_mut().zip(from.iter().zip(factors.iter())) {
                *to = from * factor;
            }
        }
    }
}

for_each_isa! {
    /// Two passes over a row, because the mean of squares minus the square of the mean would
    /// cancel.
    fn normalise(
        x: &[f32],
        gain: &[f32],
        bias: Option<&[f32]>,
        epsilon: f32,
        out: &mut [f32],
        statistics: [&mut [f32]; 2],
    ) {
        let width = gain.len();
        let [means, rstds] = statistics;
        let rows = x.chunks_exact(width).zip(out.chunks_exact_mut(width));
        for ((x, out), (mean, rstd)) in rows.zip(means.iter_mut().zip(rstds)) {
            *mean = row_sums::sum(x, |x| x) / width as f32;
            let centre = *mean;
            let variance = row_sums::sum(x, |x| (x - centre) * (x - centre)) / width as f32;
            *rstd = 1.0 / (variance + epsilon).sqrt();
            normalise_row(x, [centre, *rstd], gain, bias, out);
        }
    }
}

/// One row of the output. The forward and the re-emitting backward share it, so the bits are the
/// same.
#[inline(always)]
fn normalise_row(
    x: &[f32],
    [centre, scale]: [f32; 2],
    gain: &[f32],
    bias: Option<&[f32]>,
    out: &mut [f32],
) {
    for (out, (&x, &gain)) in out.iter_mut().zip(x.iter().zip(gain)) {
        *out = (x - centre) * scale * gain;
    }
    if let Some(bias) = bias {
        for (out, &bias) in out.iter_mut().zip(bias) {
            *out += bias;
        }
    }
}

for_each_isa! {
    /// Recomputes the output from what the forward kept.
    fn emit_normalised(
        x: &[f32],
        statistics: [&[f32]; 2],
        gain: &[f32],
        bias: Option<&[f32]>,
        out: &mut [f32],
    ) {
        let width = gain.len();
        let [means, rstds] = statistics;
        let rows = x.chunks_exact(width).zip(out.chunks_exact_mut(width));
        for ((x, out), (&mean, &rstd)) in rows.zip(means.iter().zip(rstds)) {
            normalise_row(x, [mean, rstd], gain, bias, out);
        }
    }
}

/// Inputs of one block of tokens.
struct BlockGradient<'a> {
    d_out: &'a [f32],
    x: &'a [f32],
    statistics: [&'a [f32]; 2],
    gain: &'a [f32],
    write: Write,
}

for_each_isa! {
    /// With n = (x - mean) rstd and g = d_out gain: d_x = rstd (g - mean(g) - n mean(g n)).
    fn gradient(work: BlockGradient<'_>, d_x: &mut [f32], sums: &mut [f32]) {
        let width = work.gain.len();
        let (d_gain, d_bias) = sums.split_at_mut(width);
        d_gain.fill(0.0);
        d_bias.fill(0.0);
        let rows = work.x.chunks_exact(width).zip(work.d_out.chunks_exact(width));
        let [means, rstds] = work.statistics;
        let statistics = means.iter().zip(rstds);
        for (((x, d_out), (&mean, &rstd)), d_x) in
            rows.zip(statistics).zip(d_x.chunks_exact_mut(width))
        {
            for ((d_gain, d_bias), (&x, &d)) in
                d_gain.iter_mut().zip(d_bias.iter_mut()).zip(x.iter().zip(d_out))
            {
                *d_gain = d.mul_add((x - mean) * rstd, *d_gain);
                *d_bias += d;
            }
            let (mean_g, mean_gn) = row_means(x, d_out, work.gain, mean, rstd);
            let slope = |x: f32, d: f32, gain: f32| {
                let n = (x - mean) * rstd;
                rstd * n.mul_add(-mean_gn, d.mul_add(gain, -mean_g))
            };
            let inputs = x.iter().zip(d_out.iter().zip(work.gain));
            match work.write {
                Write::Overwrite => {
                    for (d_x, (&x, (&d, &gain))) in d_x.iter_mut().zip(inputs) {
                        *d_x = slope(x, d, gain);
                    }
                }
                Write::Accumulate => {
                    for (d_x, (&x, (&d, &gain))) in d_x.iter_mut().zip(inputs) {
                        *d_x += slope(x, d, gain);
                    }
                }
            }
        }
    }
}

/// `(mean(g), mean(g n))` of one row, in the fixed lane order.
#[inline(always)]
fn row_means(x: &[f32], d_out: &[f32], gain: &[f32], mean: f32, rstd: f32) -> (f32, f32) {
    let (mut g_sum, mut gn_sum) = ([0.0f32; row_sums::LANES], [0.0f32; row_sums::LANES]);
    let mut step = |x: &[f32], d: &[f32], gain: &[f32]| {
        for lane in 0..x.len() {
            let g = d[lane] * gain[lane];
            g_sum[lane] += g;
            gn_sum[lane] = g.mul_add((x[lane] - mean) * rstd, gn_sum[lane]);
        }
    };
    let (x_chunks, x_rest) = x.as_chunks::<{ row_sums::LANES }>();
    let (d_chunks, d_rest) = d_out.as_chunks::<{ row_sums::LANES }>();
    let (gain_chunks, gain_rest) = gain.as_chunks::<{ row_sums::LANES }>();
    for ((x, d), gain) in x_chunks.iter().zip(d_chunks).zip(gain_chunks) {
        step(x, d, gain);
    }
    step(x_rest, d_rest, gain_rest);
    let width = x.len() as f32;
    (row_sums::total(g_sum) / width, row_sums::total(gn_sum) / width)
}
