//! Token plus position embedding, and its gradient. For the gradient, each thread owns a range of
//! the table's rows and walks all tokens in order, so a row used by many tokens is always summed in
//! the same order.

use super::dropout::Mask;
use crate::executor::{StepContext, check_below};
use crate::isa::for_each_isa;
use crate::pool::Output;
use plan::BackendError;
use plan::ops::{Embed, EmbedBackward, PositionFrom};

/// Width of the stack buffer for mask factors.
const STRIP: usize = 256;

/// `out = dropout(wte[token] + wpe[position])`, or without positions.
pub(crate) fn forward(cx: &StepContext<'_>, op: &Embed) -> Result<(), BackendError> {
    let isa = cx.isa;
    let (tokens, out) = (cx.memory.read_ids(op.tokens), cx.memory.write(op.out));
    let (wte, wpe) = (cx.memory.read(op.wte), op.wpe.map(|wpe| cx.memory.read(wpe)));
    let (width, positions) = (cx.width(op.out), cx.width(op.tokens));
    let start = match (op.position, wpe) {
        (PositionFrom::Zero, _) | (_, None) => 0,
        (PositionFrom::Step, Some(wpe)) => {
            let limit = wpe.len() / width - positions + 1;
            check_below("position", cx.inputs.position as i64, limit)?
        }
    };
    check_ids(tokens, wte.len() / width)?;
    let mask = Mask::new(cx, op.dropout);
    let first_row = cx.inputs.first_row * positions as u64;
    cx.pool.split(tokens.len(), [Output::new(out, width)], |_, rows, [out]| {
        for (row, out) in rows.zip(out.chunks_exact_mut(width)) {
            let token = &wte[tokens[row] as usize * width..][..width];
            match wpe {
                Some(wpe) => {
                    add(isa, token, &wpe[(start + row % positions) * width..][..width], out);
                }
                None => out.copy_from_slice(token),
            }
            if let Some(mask) = mask {
                masked(isa, mask, first_row + row as u64, out);
            }
        }
    });
    Ok(())
}

/// `d_wte[token] += d`, `d_wpe[position] += d`.
pub(crate) fn backward(cx: &StepContext<'_>, op: &EmbedBackward) -> Result<(), BackendError> {
    let isa = cx.isa;
    let (tokens, d_out) = (cx.memory.read_ids(op.tokens), cx.memory.read(op.d_out));
    let d_wte = cx.memory.write(op.d_wte);
    let (width, positions) = (cx.width(op.d_out), cx.width(op.tokens));
    let vocabulary = d_wte.len() / width;
    check_ids(tokens, vocabulary)?;
    let mask = Mask::new(cx, op.dropout);
    let first_row = cx.inputs.first_row * positions as u64;
    // Every thread reads all tokens and uses those whose row it owns, so threads never share a sum.
    cx.pool.split(vocabulary, [Output::new(d_wte, width)], |_, owned, [part]| {
        for (row, (&token, d)) in tokens.iter().zip(d_out.chunks_exact(width)).enumerate() {
            let token = token as usize;
            if owned.contains(&token) {
                let sum = &mut part[(token - owned.start) * width..][..width];
                accumulate(isa, mask, first_row + row as u64, d, sum);
            }
        }
    });
    let Some(d_wpe) = op.d_wpe else {
        return Ok(());
    };
    // Positions beyond the sequences have no gradient.
    let d_wpe = &mut cx.memory.write(d_wpe)[..positions * width];
    cx.pool.split(positions, [Output::new(d_wpe, width)], |_, owned, [part]| {
        for (sequence, d) in d_out.chunks_exact(width * positions).enumerate() {
            for position in owned.clone() {
                let row = first_row + (sequence * positions + position) as u64;
                let sum = &mut part[(position - owned.start) * width..][..width];
                accumulate(isa, mask, row, &d[position * width..][..width], sum);
            }
        }
    });
    Ok(())
}

fn check_ids(ids: &[i32], vocabulary: usize) -> Result<(), BackendError> {
    ids.iter().try_for_each(|&id| check_below("token id", i64::from(id), vocabulary).map(|_| ()))
}

for_each_isa! {
    fn add(a: &[f32], b: &[f32], out: &mut [f32]) {
        for (out, (&a, &b)) in out.iter_mut().zip(a.iter().zip(b)) {
            *out = a + b;
        }
    }
}

for_each_isa! {
    /// `x *= mask`.
    fn masked(mask: Mask, row: u64, x: &mut [f32]) {
        // Masks are keyed by column, so a strip starts at its first column.
        let mut factors = [0.0; STRIP];
        for (strip, x) in x.chunks_mut(STRIP).enumerate() {
            let factors = &mut factors[..x.len()];
            mask.strip(row, strip * STRIP, factors);
            for (x, &factor) in x.iter_mut().zip(factors.iter()) {
                *x *= factor;
            }
        }
    }
}

for_each_isa! {
    /// `sum += mask · d`.
    fn accumulate(mask: Option<Mask>, row: u64, d: &[f32], sum: &mut [f32]) {
        let mut factors = [1.0; STRIP];
        for (strip, (sum, d)) in sum.chunks_mut(STRIP).zip(d.chunks(STRIP)).enumerate() {
            let factors = &mut factors[..d.len()];
            if let Some(mask) = mask {
                mask.strip(row, strip * STRIP, factors);
            }
            for (sum, (&d, &factor)) in sum.iter_mut().zip(d.iter().zip(factors.iter())) {
                *sum = d.mul_add(factor, *sum);
            }
        }
    }
}
