//! Causal attention in tiles of 64 queries by 64 keys, with a running softmax, so nothing of size
//! positions x positions exists. A unit of work is one head of one sequence.
//!
//! Scores are stored transposed, `[key][query]`. So softmax runs across queries in vector lanes
//! without horizontal sums, and the next matmul can use a tile as its left operand without
//! repacking.

use super::dropout::Mask;
use super::gemm::{Block, Matrix, pack_columns, pack_rows};
use crate::executor::StepContext;
use crate::isa::{Isa, Kernel};
use crate::math::{exp, ln};
use crate::pool::{HeadOutput, Output};
use crate::row_sums;
use crate::vector::Vector;
use plan::BackendError;
use plan::ops::{Attention, AttentionBackward};

/// Queries and keys of a tile.
const TILE: usize = 64;
/// Rows of a register tile; divides [`TILE`].
const TALL: usize = 8;
/// The widest register tile of any instruction set.
const WIDEST: usize = 32;

/// Scratch of one thread, in f32, for sequences of `positions` and heads of `size`; `None` when it
/// does not fit. This is what the backward needs, which is more than the forward.
pub(crate) fn scratch(positions: u64, size: u64) -> Option<u64> {
    let tile = TILE as u64;
    let long = positions.checked_next_multiple_of(tile)?;
    let wide = size.checked_next_multiple_of(WIDEST as u64)?;
    let whole = long.checked_mul(wide)?.checked_mul(6)?;
    whole.checked_add(wide.checked_mul(4 * tile)?)?.checked_add(5 * tile * tile)
}

/// Sizes of one head's work.
#[derive(Clone, Copy)]
struct HeadDims {
    positions: usize,
    size: usize,
    pitch: usize,
    scale: f32,
}

impl HeadDims {
    fn blocks(&self) -> usize {
        self.positions.div_ceil(TILE)
    }

    /// Tokens of a block.
    fn len(&self, block: usize) -> usize {
        TILE.min(self.positions - block * TILE)
    }

    fn wide(&self) -> usize {
        self.size.next_multiple_of(WIDEST)
    }

    fn long(&self) -> usize {
        self.positions.next_multiple_of(TILE)
    }
}

/// Where one head's query, key and value start in `qkv`.
fn head_inputs(qkv_bt3c: &[f32], unit: usize, heads: usize, dims: HeadDims) -> [&[f32]; 3] {
    let width = dims.pitch / 3;
    let first = unit / heads * dims.positions * dims.pitch + unit % heads * dims.size;
    [0, 1, 2].map(|group| &qkv_bt3c[first + group * width..])
}

fn head_dims(cx: &StepContext<'_>, qkv: plan::TensorId, heads: usize) -> HeadDims {
    let pitch = cx.width(qkv);
    let size = pitch / 3 / heads;
    let positions = cx.positions(qkv);
    HeadDims { positions, size, pitch, scale: 1.0 / (size as f32).sqrt() }
}

/// `out = dropout(softmax(q kᵀ scale)) v` and the log of each softmax's denominator.
pub(crate) fn forward(cx: &StepContext<'_>, op: &Attention) -> Result<(), BackendError> {
    let isa = cx.isa;
    let heads = op.heads as usize;
    let (qkv_bt3c, dims) = (cx.memory.read(op.qkv), head_dims(cx, op.qkv, heads));
    let HeadDims { positions, size, .. } = dims;
    let mask = Mask::new(cx, op.dropout);
    let first_head = cx.inputs.first_row * op.heads;
    let slice = cx.memory.write(op.out);
    let output = HeadOutput { slice, positions, heads, size, groups: 1 };
    let lse_bht = [Output::new(cx.memory.write(op.lse), positions)];
    let scratch = cx.memory.write(op.workspace);
    cx.pool.split_heads(scratch, output, lse_bht, |unit, scratch, mut out_ts, [lse_t]| {
        let inputs = head_inputs(qkv_bt3c, unit, heads, dims);
        let mut scratch = ForwardScratch::new(scratch, dims);
        let head = first_head + unit as u64;
        isa.dispatch(PackForward { dims, inputs, scratch: &mut scratch });
        for block in 0..dims.blocks() {
            let lse = &mut lse_t[block * TILE..][..dims.len(block)];
            let work =
                ForwardBlock { dims, q: inputs[0], block, mask, head, scratch: &mut scratch, lse };
            isa.dispatch(work);
            for (index, values) in scratch.out.chunks_exact(size).take(lse.len()).enumerate() {
                out_ts.row(0, block * TILE + index).copy_from_slice(values);
            }
        }
    });
    Ok(())
}

/// Cuts `count` elements off the front.
fn take<'a>(rest: &mut &'a mut [f32], count: usize) -> &'a mut [f32] {
    let (front, back) = std::mem::take(rest).split_at_mut(count);
    *rest = back;
    front
}

struct ForwardScratch<'a> {
    /// Keys as left panels.
    keys: &'a mut [f32],
    /// Values as right panels, one set for each block of keys.
    values: &'a mut [f32],
    /// One block of queries as right panels.
    queries: &'a mut [f32],
    /// Scores, then probabilities, `[key][query]`.
    tile: &'a mut [f32],
    /// Dropout factors, `[key][query]`.
    factors: &'a mut [f32],
    /// Output of a block of queries.
    out: &'a mut [f32],
}

impl<'a> ForwardScratch<'a> {
    fn new(mut rest: &'a mut [f32], dims: HeadDims) -> ForwardScratch<'a> {
        let rest = &mut rest;
        ForwardScratch {
            keys: take(rest, dims.long() * dims.size),
            values: take(rest, dims.long() * dims.wide()),
            queries: take(rest, TILE * dims.size),
            tile: take(rest, TILE * TILE),
            factors: take(rest, TILE * TILE),
            out: take(rest, TILE * dims.size),
        }
    }
}

struct PackForward<'a, 'b> {
    dims: HeadDims,
    inputs: [&'a [f32]; 3],
    scratch: &'a mut ForwardScratch<'b>,
}

impl Kernel for PackForward<'_, '_> {
    #[inline(always)]
    fn run<V: Vector>(self, _: V) {
        let PackForward { dims, inputs: [_, k, v], scratch } = self;
        let keys = Matrix::rows(k, dims.pitch);
        pack_rows(keys, dims.positions, dims.size, TALL, scratch.keys);
        pack_value_blocks::<V>(v, dims, scratch.values);
    }
}

/// Rows of a head as right panels, one set for each block of 64 positions.
#[inline(always)]
fn pack_value_blocks<V: Vector>(rows: &[f32], dims: HeadDims, packed: &mut [f32]) {
    for (block, packed) in packed.chunks_exact_mut(TILE * dims.wide()).enumerate() {
        let rows = Matrix::rows(&rows[block * TILE * dims.pitch..], dims.pitch);
        pack_columns(rows, dims.len(block), dims.size, 2 * V::LANES, packed);
    }
}

/// The transpose of a block of rows as right panels: `[size] x [tokens of the block]`.
#[inline(always)]
fn pack_transposed<V: Vector>(
    rows: &[f32],
    dims: HeadDims,
    pitch: usize,
    block: usize,
    packed: &mut [f32],
) {
    let rows = Matrix::transposed(&rows[block * TILE * pitch..], pitch);
    pack_columns(rows, dims.size, dims.len(block), 2 * V::LANES, packed);
}

/// One block of queries against all keys up to it.
struct ForwardBlock<'a, 'b> {
    dims: HeadDims,
    q: &'a [f32],
    block: usize,
    mask: Option<Mask>,
    head: u64,
    scratch: &'a mut ForwardScratch<'b>,
    lse: &'a mut [f32],
}

impl Kernel for ForwardBlock<'_, '_> {
    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let ForwardBlock { dims, q, block, mask, head, scratch: s, lse } = self;
        let queries = dims.len(block);
        pack_transposed::<V>(q, dims, dims.pitch, block, s.queries);
        s.out.fill(0.0);
        let (mut max, mut sum) = ([f32::NEG_INFINITY; TILE], [0.0f32; TILE]);
        for key_block in 0..=block {
            let keys = dims.len(key_block);
            scores(v, dims, s.keys, s.queries, [key_block, keys, queries], s.tile);
            let diagonal = key_block == block;
            let old =
                running_softmax(s.tile, dims.scale, [keys, queries], diagonal, &mut max, &mut sum);
            for (row, &factor) in s.out.chunks_exact_mut(dims.size).zip(&old) {
                row.iter_mut().for_each(|x| *x *= factor);
            }
            if let Some(mask) = mask {
                let first = [key_block * TILE, block * TILE];
                mask.tile(head, first, [keys, queries], TILE, s.factors);
                for (p, &factor) in s.tile.iter_mut().zip(s.factors.iter()).take(keys * TILE) {
                    *p *= factor;
                }
            }
            let values = &s.values[key_block * TILE * dims.wide()..];
            queries_times(v, s.tile, values, dims, [keys, queries], s.out);
        }
        for (row, &sum) in s.out.chunks_exact_mut(dims.size).zip(&sum).take(queries) {
            row.iter_mut().for_each(|x| *x /= sum);
        }
        for (lse, (&max, &sum)) in lse.iter_mut().zip(max.iter().zip(&sum)) {
            *lse = max + ln(sum);
        }
    }
}

/// `tile[key][query] = k · q`, not yet scaled.
#[inline(always)]
fn scores<V: Vector>(
    v: V,
    dims: HeadDims,
    left: &[f32],
    right: &[f32],
    [key_block, keys, queries]: [usize; 3],
    tile: &mut [f32],
) {
    let block = Block {
        a: &left[key_block * TILE * dims.size..],
        a_step: TALL,
        a_panel: TALL * dims.size,
        b: right,
        depth: dims.size,
        rows: keys,
        columns: queries,
        stride: TILE,
        bias: None,
        add: false,
    };
    block.run::<V, TALL>(v, tile);
}

/// `out[query] += Σ tile[key][query] · rows[key]`, with the tile as the left operand, not repacked.
#[inline(always)]
fn queries_times<V: Vector>(
    v: V,
    tile: &[f32],
    rows: &[f32],
    dims: HeadDims,
    [keys, queries]: [usize; 2],
    out: &mut [f32],
) {
    let block = Block {
        a: tile,
        a_step: TILE,
        a_panel: TALL,
        b: rows,
        depth: keys,
        rows: queries,
        columns: dims.size,
        stride: dims.size,
        bias: None,
        add: true,
    };
    block.run::<V, TALL>(v, out);
}

/// Replaces scores by `e^(score - max)`. Returns the factors by which sums and outputs so far must
/// be multiplied.
#[inline(always)]
fn running_softmax(
    tile: &mut [f32],
    scale: f32,
    [keys, queries]: [usize; 2],
    diagonal: bool,
    max: &mut [f32; TILE],
    sum: &mut [f32; TILE],
) -> [f32; TILE] {
    let mut factor = *max;
    for (key, line) in tile.chunks_exact_mut(TILE).take(keys).enumerate() {
        // On the diagonal, a query sees only the keys up to its own position.
        let first = if diagonal { key } else { 0 };
        for (score, max) in line[first..queries].iter_mut().zip(&mut max[first..queries]) {
            *score *= scale;
            *max = if *score > *max { *score } else { *max };
        }
    }
    for (factor, (&max, sum)) in factor.iter_mut().zip(max.iter().zip(sum.iter_mut())).take(queries)
    {
        *factor = exp(*factor - max);
        *sum *= *factor;
    }
    for (key, line) in tile.chunks_exact_mut(TILE).take(keys).enumerate() {
        let first = if diagonal { key.min(queries) } else { 0 };
        line[..first].fill(0.0);
        let columns = line[first..queries].iter_mut().zip(&max[first..queries]);
        for ((p, &max), sum) in columns.zip(&mut sum[first..queries]) {
            *p = exp(*p - max);
            *sum += *p;
        }
    }
    factor
}

/// Gradients of query, key and value.
pub(crate) fn backward(cx: &StepContext<'_>, op: &AttentionBackward) -> Result<(), BackendError> {
    let isa = cx.isa;
    let heads = op.heads as usize;
    let (qkv_bt3c, dims) = (cx.memory.read(op.qkv), head_dims(cx, op.qkv, heads));
    let (out_btc, d_out_btc) = (cx.memory.read(op.out), cx.memory.read(op.d_out));
    let lse_bht = cx.memory.read(op.lse);
    let HeadDims { positions, size, pitch, .. } = dims;
    let mask = Mask::new(cx, op.dropout);
    let first_head = cx.inputs.first_row * op.heads;
    let slice = cx.memory.write(op.d_qkv);
    let output = HeadOutput { slice, positions, heads, size, groups: 3 };
    let delta_bht = [Output::new(cx.memory.write(op.delta), positions)];
    let scratch = cx.memory.write(op.workspace);
    cx.pool.split_heads(scratch, output, delta_bht, |unit, scratch, mut d_qkv, [delta_t]| {
        let from = unit / heads * positions * pitch / 3 + unit % heads * size;
        let (out, d_out) = (&out_btc[from..], &d_out_btc[from..]);
        let mut scratch = BackwardScratch::new(scratch, dims);
        let head = Head {
            dims,
            inputs: head_inputs(qkv_bt3c, unit, heads, dims),
            d_out,
            lse: &lse_bht[unit * positions..][..positions],
            mask,
            head: first_head + unit as u64,
        };
        head.run(isa, out, delta_t, &mut scratch);
        for (group, gradient) in [scratch.d_q, scratch.d_k, scratch.d_v].into_iter().enumerate() {
            for (position, values) in gradient.chunks_exact(size).take(positions).enumerate() {
                d_qkv.row(group, position).copy_from_slice(values);
            }
        }
    });
    Ok(())
}

struct BackwardScratch<'a> {
    /// Keys and values as left panels.
    keys: &'a mut [f32],
    values: &'a mut [f32],
    /// Keys as right panels, one set for each block.
    key_rows: &'a mut [f32],
    /// Sums over the whole head.
    d_q: &'a mut [f32],
    d_k: &'a mut [f32],
    d_v: &'a mut [f32],
    /// One block of queries and one of the output's gradient, each transposed and not transposed.
    queries: &'a mut [f32],
    d_outs: &'a mut [f32],
    query_rows: &'a mut [f32],
    d_out_rows: &'a mut [f32],
    /// `[key][query]` tiles.
    p: &'a mut [f32],
    d_p: &'a mut [f32],
    factors: &'a mut [f32],
    /// A tile as left panels.
    packed: &'a mut [f32],
}

impl<'a> BackwardScratch<'a> {
    fn new(mut rest: &'a mut [f32], dims: HeadDims) -> BackwardScratch<'a> {
        let (whole, tile) = (dims.long() * dims.size, TILE * TILE);
        let rest = &mut rest;
        BackwardScratch {
            keys: take(rest, whole),
            values: take(rest, whole),
            key_rows: take(rest, dims.long() * dims.wide()),
            d_q: take(rest, whole),
            d_k: take(rest, whole),
            d_v: take(rest, whole),
            queries: take(rest, TILE * dims.size),
            d_outs: take(rest, TILE * dims.size),
            query_rows: take(rest, TILE * dims.wide()),
            d_out_rows: take(rest, TILE * dims.wide()),
            p: take(rest, tile),
            d_p: take(rest, tile),
            factors: take(rest, tile),
            packed: take(rest, tile),
        }
    }
}

/// What the backward of one head reads.
struct Head<'a> {
    dims: HeadDims,
    inputs: [&'a [f32]; 3],
    d_out: &'a [f32],
    lse: &'a [f32],
    mask: Option<Mask>,
    /// Which of the iteration's heads it is.
    head: u64,
}

impl Head<'_> {
    fn run(&self, isa: Isa, out: &[f32], delta: &mut [f32], s: &mut BackwardScratch<'_>) {
        isa.dispatch(PackBackward { head: self, out, delta, scratch: s });
        for block in 0..self.dims.blocks() {
            isa.dispatch(BackwardBlock { head: self, block, delta, scratch: s });
        }
    }
}

struct PackBackward<'a, 'b> {
    head: &'a Head<'a>,
    out: &'a [f32],
    delta: &'a mut [f32],
    scratch: &'a mut BackwardScratch<'b>,
}

impl Kernel for PackBackward<'_, '_> {
    #[inline(always)]
    fn run<V: Vector>(self, _: V) {
        let PackBackward { head, out, delta, scratch: s } = self;
        let dims = head.dims;
        let [_, k, v] = head.inputs;
        let width = dims.pitch / 3;
        pack_rows(Matrix::rows(k, dims.pitch), dims.positions, dims.size, TALL, s.keys);
        pack_rows(Matrix::rows(v, dims.pitch), dims.positions, dims.size, TALL, s.values);
        pack_value_blocks::<V>(k, dims, s.key_rows);
        for sums in [&mut *s.d_q, &mut *s.d_k, &mut *s.d_v] {
            sums.fill(0.0);
        }
        for (position, delta) in delta.iter_mut().enumerate() {
            let row = position * width..position * width + dims.size;
            let mut sums = [0.0f32; row_sums::LANES];
            let pairs = out[row.clone()].chunks(row_sums::LANES);
            for (o, d) in pairs.zip(head.d_out[row].chunks(row_sums::LANES)) {
                for (sum, (&o, &d)) in sums.iter_mut().zip(o.iter().zip(d)) {
                    *sum = o.mul_add(d, *sum);
                }
            }
            *delta = row_sums::total(sums);
        }
    }
}

/// One block of queries against all keys up to it.
struct BackwardBlock<'a, 'b> {
    head: &'a Head<'a>,
    block: usize,
    delta: &'a [f32],
    scratch: &'a mut BackwardScratch<'b>,
}

impl Kernel for BackwardBlock<'_, '_> {
    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let BackwardBlock { head, block, delta, scratch: s } = self;
        let dims = head.dims;
        let (queries, width) = (dims.len(block), dims.pitch / 3);
        let columns = 2 * V::LANES;
        let from = block * TILE;
        let q = head.inputs[0];
        pack_transposed::<V>(q, dims, dims.pitch, block, s.queries);
        pack_transposed::<V>(head.d_out, dims, width, block, s.d_outs);
        let q_rows = Matrix::rows(&q[from * dims.pitch..], dims.pitch);
        pack_columns(q_rows, queries, dims.size, columns, s.query_rows);
        let d_rows = Matrix::rows(&head.d_out[from * width..], width);
        pack_columns(d_rows, queries, dims.size, columns, s.d_out_rows);
        let lse = &head.lse[from..][..queries];
        let delta = &delta[from..][..queries];
        for key_block in 0..=block {
            let keys = dims.len(key_block);
            let sizes = [key_block, keys, queries];
            scores(v, dims, s.keys, s.queries, sizes, s.p);
            scores(v, dims, s.values, s.d_outs, sizes, s.d_p);
            probabilities(s.p, dims.scale, [keys, queries], key_block == block, lse);
            let dropped = head.mask.map(|mask| {
                let first = [key_block * TILE, from];
                mask.tile(head.head, first, [keys, queries], TILE, s.factors);
            });
            if dropped.is_none() {
                s.factors.fill(1.0);
            }
            score_gradients(s, dims.scale, [keys, queries], delta);
            let key_from = key_block * TILE * dims.size;
            keys_times(
                v,
                s.factors,
                s.d_out_rows,
                dims,
                [keys, queries],
                s.packed,
                &mut s.d_v[key_from..],
            );
            keys_times(
                v,
                s.d_p,
                s.query_rows,
                dims,
                [keys, queries],
                s.packed,
                &mut s.d_k[key_from..],
            );
            let key_rows = &s.key_rows[key_block * TILE * dims.wide()..];
            queries_times(
                v,
                s.d_p,
                key_rows,
                dims,
                [keys, queries],
                &mut s.d_q[from * dims.size..],
            );
        }
    }
}

/// Replaces scores by probabilities, from the saved lse.
#[inline(always)]
fn probabilities(
    tile: &mut [f32],
    scale: f32,
    [keys, queries]: [usize; 2],
    diagonal: bool,
    lse: &[f32],
) {
    for (key, line) in tile.chunks_exact_mut(TILE).take(keys).enumerate() {
        let first = if diagonal { key.min(queries) } else { 0 };
        line[..first].fill(0.0);
        for (p, &lse) in line[first..queries].iter_mut().zip(&lse[first..]) {
            // Rounded after the scale, as in the forward: a lone key gets exactly 1.
            *p = exp(*p * scale - lse);
        }
    }
}

/// Replaces `d_p` by the scores' gradient, and `factors` by the probabilities after dropout.
#[inline(always)]
fn score_gradients(
    s: &mut BackwardScratch<'_>,
    scale: f32,
    [keys, queries]: [usize; 2],
    delta: &[f32],
) {
    let lines = s.p.chunks_exact(TILE).zip(s.d_p.chunks_exact_mut(TILE));
    for ((p, d_p), factors) in lines.zip(s.factors.chunks_exact_mut(TILE)).take(keys) {
        let columns = p[..queries].iter().zip(&mut d_p[..queries]);
        for (((&p, d_p), factor), &delta) in columns.zip(&mut factors[..queries]).zip(delta) {
            *d_p = p * d_p.mul_add(*factor, -delta) * scale;
            *factor *= p;
        }
    }
}

/// `out[key] += Σ tile[key][query] · rows[query]`.
#[inline(always)]
fn keys_times<V: Vector>(
    v: V,
    tile: &[f32],
    rows: &[f32],
    dims: HeadDims,
    [keys, queries]: [usize; 2],
    packed: &mut [f32],
    out: &mut [f32],
) {
    pack_rows(Matrix::rows(tile, TILE), keys, queries, TALL, packed);
    let block = Block {
        a: packed,
        a_step: TALL,
        a_panel: TALL * queries,
        b: rows,
        depth: queries,
        rows: keys,
        columns: dims.size,
        stride: dims.size,
        bias: None,
        add: true,
    };
    block.run::<V, TALL>(v, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::for_each_isa;

    for_each_isa! {
        /// The forward's lse and the backward's probability of a single key.
        fn lone_key(score: f32, scale: f32, p: &mut f32) {
            let (mut max, mut sum) = ([f32::NEG_INFINITY; TILE], [0.0; TILE]);
            let mut tile = [score; TILE];
            running_softmax(&mut tile, scale, [1, 1], true, &mut max, &mut sum);
            let lse = max[0] + ln(sum[0]);
            let mut tile = [score; TILE];
            probabilities(&mut tile, scale, [1, 1], true, &[lse]);
            *p = tile[0];
        }
    }

    #[test]
    fn a_lone_key_has_probability_one_in_both_directions() {
        for isa in Isa::all_for_tests() {
            for score in [0.3, 17.77, -1234.5, 9.1e6] {
                let mut p = 0.0;
                lone_key(isa, score, 1.0 / 48f32.sqrt(), &mut p);
                assert_eq!(p, 1.0, "{score}");
            }
        }
    }
}
