//! Generation: the key/value cache, and attention of one new token against it.

use crate::executor::{StepContext, check_below};
use crate::isa::for_each_isa;
use crate::math::exp;
use crate::pool::Output;
use crate::row_sums;
use plan::BackendError;
use plan::ops::{AttentionDecode, CacheStore, SelectPosition};

/// Sizes of a cache `[2, rows, heads, block, size]`.
struct CacheDims {
    heads: usize,
    block: usize,
    size: usize,
}

fn cache_dims(cx: &StepContext<'_>, cache: plan::TensorId) -> CacheDims {
    let dims = cx.tensors.get(cache).shape;
    let dims = dims.dims();
    CacheDims { heads: dims[2] as usize, block: dims[3] as usize, size: dims[4] as usize }
}

/// Copies keys and values of a whole context into the cache, from position 0.
pub(crate) fn store(cx: &StepContext<'_>, op: &CacheStore) -> Result<(), BackendError> {
    let qkv = cx.memory.read(op.qkv);
    let CacheDims { heads, block, size } = cache_dims(cx, op.cache);
    let width = heads * size;
    let positions = cx.tensors.get(op.qkv).shape.dims()[1] as usize;
    let cache = cx.memory.write(op.cache);
    let (keys, values) = cache.split_at_mut(cache.len() / 2);
    for (kind, half) in [(1, keys), (2, values)] {
        let units = half.len() / (block * size);
        cx.pool.split(units, [Output::new(half, block * size)], |_, units, [part]| {
            for (unit, cached) in units.zip(part.chunks_exact_mut(block * size)) {
                let (row, head) = (unit / heads, unit % heads);
                for (position, slot) in cached.chunks_exact_mut(size).take(positions).enumerate() {
                    let token = (row * positions + position) * 3 * width;
                    slot.copy_from_slice(&qkv[token + kind * width + head * size..][..size]);
                }
            }
        });
    }
    Ok(())
}

/// Appends one key and value and attends to all positions up to it.
pub(crate) fn attention(cx: &StepContext<'_>, op: &AttentionDecode) -> Result<(), BackendError> {
    let isa = cx.isa;
    let qkv = cx.memory.read(op.qkv);
    let CacheDims { heads, block, size } = cache_dims(cx, op.cache);
    let width = heads * size;
    let position = check_below("position", cx.inputs.position as i64, block)?;
    let cache = cx.memory.write(op.cache);
    let (keys, values) = cache.split_at_mut(cache.len() / 2);
    let out = cx.memory.write(op.out);
    let outputs = [
        Output::new(keys, block * size),
        Output::new(values, block * size),
        Output::new(out, size),
    ];
    let units = qkv.len() / (3 * size);
    let scratch = cx.memory.write(op.workspace);
    cx.pool.split_with_scratch(units, scratch, outputs, |units, scratch, [keys, values, out]| {
        for (index, unit) in units.enumerate() {
            let token = &qkv[unit / heads * 3 * width + unit % heads * size..];
            let keys = &mut keys[index * block * size..][..(position + 1) * size];
            let values = &mut values[index * block * size..][..(position + 1) * size];
            keys[position * size..].copy_from_slice(&token[width..][..size]);
            values[position * size..].copy_from_slice(&token[2 * width..][..size]);
            let out = &mut out[index * size..][..size];
            attend(isa, &token[..size], keys, values, &mut scratch[..position + 1], out);
        }
    });
    Ok(())
}

/// Copies one position of each sequence.
pub(crate) fn select(cx: &StepContext<'_>, op: &SelectPosition) -> Result<(), BackendError> {
    let (x, out) = (cx.memory.read(op.x), cx.memory.write(op.out));
    let width = cx.width(op.x);
    let positions = cx.tensors.get(op.x).shape.dims()[1] as usize;
    let position = check_below("position", cx.inputs.position as i64, positions)?;
    for (sequence, out) in x.chunks_exact(positions * width).zip(out.chunks_exact_mut(width)) {
        out.copy_from_slice(&sequence[position * width..][..width]);
    }
    Ok(())
}

for_each_isa! {
    fn attend(
        query: &[f32],
        keys: &[f32],
        values: &[f32],
        scores: &mut [f32],
        out: &mut [f32],
    ) {
        let size = query.len();
        let scale = 1.0 / (size as f32).sqrt();
        for (score, key) in scores.iter_mut().zip(keys.chunks_exact(size)) {
            let mut sums = [0.0f32; row_sums::LANES];
            for (q, k) in query.chunks(row_sums::LANES).zip(key.chunks(row_sums::LANES)) {
                for (sum, (&q, &k)) in sums.iter_mut().zip(q.iter().zip(k)) {
                    *sum = q.mul_add(k, *sum);
                }
            }
            *score = row_sums::total(sums) * scale;
        }
        let max = row_sums::max(scores);
        scores.iter_mut().for_each(|score| *score = exp(*score - max));
        let sum = row_sums::sum(scores, |score| score);
        out.fill(0.0);
        for (&score, value) in scores.iter().zip(values.chunks_exact(size)) {
            for (out, &value) in out.iter_mut().zip(value) {
                *out = score.mul_add(value, *out);
            }
        }
        out.iter_mut().for_each(|out| *out /= sum);
    }
}
