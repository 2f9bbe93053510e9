//! Launches of generation's own ops.

use super::{count, unsupported};
use crate::constants::constants;
use crate::kernel_source::{ModuleSpec, Source};
use crate::lowering::{Extent, Lowering};
use crate::signature::{In, Out, T, WorkCount, signatures};
use crate::step::Step;
use plan::ops::{AttentionDecode, CacheStore, SelectPosition};
use plan::{BackendError, Dtype, TensorId};

signatures! {
    /// Copies keys and values of a prompt into the cache.
    StoreKeysAndValues = cache_store(
        elements: WorkCount<u64>,
        qkv_bt3c: In<T>,
        cache_2bhts: Out<T>,
        rows: u32,
        positions: u32,
    );
    /// Attention of one new token against the cache, to which it is added.
    DecodeToken = attention_decode(
        units: WorkCount<u32>,
        qkv_bt3c: In<T>,
        cache_2bhts: Out<T>,
        out_btc: Out<T>,
        rows: u32,
        step: In<Step>,
    );
    /// Copies the numbers of one position.
    Select = select_position(
        elements: WorkCount<u32>,
        x_btc: In<T>,
        out_bc: Out<T>,
        positions: u32,
        width: u32,
        step: In<Step>,
    );
}

constants! {
    Constants { T: Dtype, HEADS: u64, HEAD_SIZE: u64, BLOCK: u64 }
    fixed { THREADS }
}

pub(super) static DECODE: Source = Source {
    file: "decode.cu",
    signatures: SIGNATURES,
    constants: Constants::NAMES,
    parts: &[include_str!("decode.cu")],
    warpgroups: false,
};

const THREADS: u32 = 128;
/// Bytes of scores that a block can hold: what every architecture has, minus static shared memory.
const MOST_SCORES: u64 = 96 << 10;

fn module(dtype: Dtype, [heads, size, block]: [u64; 3]) -> ModuleSpec {
    Constants { T: dtype, HEADS: heads, HEAD_SIZE: size, BLOCK: block }.module(&DECODE)
}

/// Rows of a cache; its heads, positions and head size.
fn cache_dims(cx: &Lowering<'_>, cache: TensorId) -> Result<(u64, [u64; 3]), BackendError> {
    match *cx.shape(cache).dims() {
        [_, rows, heads, block, size] => Ok((rows, [heads, size, block])),
        _ => Err(unsupported("a cache that does not have five dimensions".to_string())),
    }
}

pub(super) fn store(cx: &mut Lowering<'_>, op: &CacheStore) -> Result<(), BackendError> {
    let (rows, dims) = cache_dims(cx, op.cache)?;
    let shape = cx.shape(op.qkv);
    let positions = shape.rows() / rows.max(1);
    let elements = shape.elements() / 3 * 2;
    let kernel = StoreKeysAndValues {
        elements: WorkCount(elements),
        qkv_bt3c: cx.read(op.qkv)?,
        cache_2bhts: cx.write(op.cache)?,
        rows: count(rows, "sequences")?,
        positions: count(positions, "positions")?,
    };
    let extent = Extent::new(elements.div_ceil(u64::from(THREADS)), THREADS);
    cx.launch(module(cx.dtype(op.cache), dims), extent, kernel)
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
    let kernel = DecodeToken {
        units: WorkCount(count(units, "heads")?),
        qkv_bt3c: cx.read(op.qkv)?,
        cache_2bhts: cx.write(op.cache)?,
        out_btc: cx.write(op.out)?,
        rows: count(rows, "sequences")?,
        step: cx.step(),
    };
    let extent = Extent { grid: units, block: THREADS, shared: scores as u32 };
    cx.launch(module(cx.dtype(op.cache), dims), extent, kernel)
}

pub(super) fn select(cx: &mut Lowering<'_>, op: &SelectPosition) -> Result<(), BackendError> {
    let (shape, out) = (cx.shape(op.x), cx.shape(op.out));
    let rows = out.rows().max(1);
    let kernel = Select {
        elements: WorkCount(count(out.elements(), "numbers")?),
        x_btc: cx.read(op.x)?,
        out_bc: cx.write(op.out)?,
        positions: count(shape.rows() / rows, "positions")?,
        width: count(shape.width(), "columns")?,
        step: cx.step(),
    };
    let extent = Extent::new(out.elements().div_ceil(u64::from(THREADS)), THREADS);
    cx.launch(module(cx.dtype(op.x), [1, 1, 1]), extent, kernel)
}
