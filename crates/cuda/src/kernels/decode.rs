//! Launches of generation's own ops.

use super::{count, unsupported};
use crate::lowering::{Extent, Kernel, Lowering, Place, Source, arguments, format_name};
use plan::ops::{AttentionDecode, CacheStore, SelectPosition};
use plan::{BackendError, Dtype, TensorId};

static DECODE: Source = Source { file: "decode.cu", parts: &[include_str!("decode.cu")] };

const THREADS: u32 = 128;
/// Bytes of scores that a block can keep: what every architecture has, less what is static.
const MOST_SCORES: u64 = 96 << 10;

fn kernel(dtype: Dtype, [heads, size, block]: [u64; 3], entry: &'static str) -> Kernel {
    let constants = vec![
        ("T", format_name(dtype).to_string()),
        ("HEADS", heads.to_string()),
        ("HEAD_SIZE", size.to_string()),
        ("BLOCK", block.to_string()),
    ];
    Kernel { source: &DECODE, constants, entry }
}

/// Rows, and heads, head size and positions of a cache.
fn cache_dims(cx: &Lowering<'_>, cache: TensorId) -> Result<(u64, [u64; 3]), BackendError> {
    match *cx.shape(cache).dims() {
        [_, rows, heads, block, size] => Ok((rows, [heads, size, block])),
        _ => Err(unsupported("a cache that has not five dimensions".to_string())),
    }
}

pub(super) fn store(cx: &mut Lowering<'_>, op: &CacheStore) -> Result<(), BackendError> {
    let (rows, dims) = cache_dims(cx, op.cache)?;
    let shape = cx.shape(op.qkv);
    let positions = shape.rows() / rows.max(1);
    let elements = shape.elements() / 3 * 2;
    let arguments = arguments![
        elements,
        cx.place(op.qkv)?,
        cx.place(op.cache)?,
        count(rows, "sequences")?,
        count(positions, "positions")?,
    ];
    let extent = Extent::new(elements.div_ceil(u64::from(THREADS)), THREADS);
    cx.launch(kernel(cx.dtype(op.cache), dims, "cache_store"), extent, arguments)
}

pub(super) fn attention(cx: &mut Lowering<'_>, op: &AttentionDecode) -> Result<(), BackendError> {
    let (rows, dims) = cache_dims(cx, op.cache)?;
    let [heads, _, block] = dims;
    let scores = block * 4;
    if scores > MOST_SCORES {
        let most = MOST_SCORES / 4;
        return Err(unsupported(format!("sampling at block_size {block}; at most {most} fit")));
    }
    let units = rows * heads;
    let arguments = arguments![
        count(units, "heads")?,
        cx.place(op.qkv)?,
        cx.place(op.cache)?,
        cx.place(op.out)?,
        count(rows, "sequences")?,
        Place::Step,
    ];
    let extent = Extent { grid: units, block: THREADS, shared: scores as u32 };
    cx.launch(kernel(cx.dtype(op.cache), dims, "attention_decode"), extent, arguments)
}

pub(super) fn select(cx: &mut Lowering<'_>, op: &SelectPosition) -> Result<(), BackendError> {
    let (shape, out) = (cx.shape(op.x), cx.shape(op.out));
    let rows = out.rows().max(1);
    let arguments = arguments![
        count(out.elements(), "numbers")?,
        cx.place(op.x)?,
        cx.place(op.out)?,
        count(shape.rows() / rows, "positions")?,
        count(shape.width(), "columns")?,
        Place::Step,
    ];
    let extent = Extent::new(out.elements().div_ceil(u64::from(THREADS)), THREADS);
    cx.launch(kernel(cx.dtype(op.x), [1, 1, 1], "select_position"), extent, arguments)
}
