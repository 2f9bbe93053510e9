//! Launches of attention. 16-bit formats run on tensor cores, f32 too where it may be rounded to
//! TF32, else on plain multiply-adds.

use super::{SHARED_MEMORY, attention_hopper, count, unsupported};
use crate::constants::constants;
use crate::kernel_source::{ModuleSpec, Source};
use crate::lowering::{Extent, Lowering, Mask};
use crate::signature::{In, Out, T, WorkCount, signatures};
use crate::step::Step;
use crate::tiles::{self, AttentionTiles, Multiplier, Tile};
use plan::ops::{Attention, AttentionBackward, Dropout};
use plan::{BackendError, Dtype, TensorId};

pub(super) const HEADS: &str = include_str!("attention_heads.cuh");
pub(super) const TENSOR_CORES: &str = include_str!("tensor_cores.cuh");
pub(super) const SIXTEEN_BIT: &str = include_str!("tensor_16bit.cuh");
const TF32: &str = include_str!("tensor_tf32.cuh");
pub(super) const SOFTMAX: &str = include_str!("softmax.cuh");

signatures! {
    /// Causal attention, and the logarithm of each softmax's denominator.
    Attend = attention_forward(
        blocks: WorkCount<u32>,
        qkv_bt3c: In<T>,
        out_btc: Out<T>,
        lse_bht: Out<f32>,
        positions: u32,
        step: In<Step>,
        threshold: u32,
        tag: u32,
        scale: f32,
    );
    /// Gradients of queries, and `delta` for the other kernel.
    QueryGradient = attention_backward_query(
        blocks: WorkCount<u32>,
        qkv_bt3c: In<T>,
        out_btc: In<T>,
        d_out_btc: In<T>,
        lse_bht: In<f32>,
        delta_bht: Out<f32>,
        d_qkv_bt3c: Out<T>,
        positions: u32,
        step: In<Step>,
        threshold: u32,
        tag: u32,
        scale: f32,
    );
    /// Gradients of keys and values.
    KeyGradient = attention_backward_key(
        blocks: WorkCount<u32>,
        qkv_bt3c: In<T>,
        d_out_btc: In<T>,
        lse_bht: In<f32>,
        delta_bht: In<f32>,
        d_qkv_bt3c: Out<T>,
        positions: u32,
        step: In<Step>,
        threshold: u32,
        tag: u32,
        scale: f32,
    );
}

constants! {
    Constants {
        T: Dtype,
        HEADS: u64,
        HEAD_SIZE: u64,
        HEAD_PAD: u64,
        LINE: u64,
        DROPOUT: bool,
        FORWARD_ROWS: u32,
        FORWARD_COLUMNS: u32,
        FORWARD_WARPS: u32,
        FORWARD_BYTES: u32,
        QUERY_ROWS: u32,
        QUERY_COLUMNS: u32,
        QUERY_WARPS: u32,
        QUERY_BYTES: u32,
        KEY_ROWS: u32,
        KEY_COLUMNS: u32,
        KEY_WARPS: u32,
        KEY_BYTES: u32,
    }
    fixed {}
}

pub(super) static ATTENTION: Source = Source {
    file: "attention.cu",
    signatures: SIGNATURES,
    constants: Constants::NAMES,
    parts: &[
        HEADS,
        SHARED_MEMORY,
        TENSOR_CORES,
        SIXTEEN_BIT,
        SOFTMAX,
        include_str!("attention.cu"),
    ],
    warpgroups: false,
};
pub(super) static ATTENTION_TF32: Source = Source {
    file: "attention.cu",
    signatures: SIGNATURES,
    constants: Constants::NAMES,
    parts: &[HEADS, SHARED_MEMORY, TENSOR_CORES, TF32, SOFTMAX, include_str!("attention.cu")],
    warpgroups: false,
};
pub(super) static ATTENTION_F32: Source = Source {
    file: "attention_f32.cu",
    signatures: SIGNATURES,
    constants: Constants::NAMES,
    parts: &[HEADS, include_str!("attention_f32.cu")],
    warpgroups: false,
};

/// The largest head size of any kernel for a format.
pub(crate) const fn largest_head(dtype: Dtype) -> u64 {
    match dtype {
        Dtype::F32 => Multiplier::Plain.largest_head(),
        _ => Multiplier::SixteenBit.largest_head(),
    }
}

/// The sizes of one attention, and its kernels.
pub(super) struct Heads {
    pub(super) sequences: u64,
    pub(super) positions: u64,
    pub(super) heads: u64,
    pub(super) size: u64,
    pub(super) dtype: Dtype,
    pub(super) dropout: Option<Dropout>,
    multiplier: Multiplier,
    tiles: AttentionTiles,
}

impl Heads {
    fn new(
        cx: &Lowering<'_>,
        out: TensorId,
        heads: u64,
        dropout: Option<Dropout>,
    ) -> Result<Heads, BackendError> {
        let (shape, dtype) = (cx.shape(out), cx.dtype(out));
        let (sequences, positions) = match *shape.dims() {
            [sequences, positions, _] => (sequences, positions),
            _ => return Err(unsupported("attention over no sequences".to_string())),
        };
        let size = shape.width() / heads.max(1);
        let most = largest_head(dtype);
        if size > most {
            return Err(unsupported(format!(
                "heads of {size} in {dtype}: n_embd / n_head may be at most {most}; raise n_head"
            )));
        }
        let multiplier = Multiplier::of(size, dtype, cx.options().tf32);
        let tiles = cx.options().tiles.attention(size, multiplier, dropout.is_some());
        Ok(Heads { sequences, positions, heads, size, dtype, dropout, multiplier, tiles })
    }

    fn module(&self) -> ModuleSpec {
        let AttentionTiles { forward, query, key } = self.tiles;
        let constants = Constants {
            T: self.dtype,
            HEADS: self.heads,
            HEAD_SIZE: self.size,
            HEAD_PAD: tiles::padded(self.size),
            LINE: tiles::line(self.size, self.multiplier),
            DROPOUT: self.dropout.is_some(),
            FORWARD_ROWS: forward.rows,
            FORWARD_COLUMNS: forward.columns,
            FORWARD_WARPS: forward.warps,
            FORWARD_BYTES: forward.forward_bytes(self.size, self.multiplier),
            QUERY_ROWS: query.rows,
            QUERY_COLUMNS: query.columns,
            QUERY_WARPS: query.warps,
            QUERY_BYTES: query.query_bytes(self.size, self.multiplier),
            KEY_ROWS: key.rows,
            KEY_COLUMNS: key.columns,
            KEY_WARPS: key.warps,
            KEY_BYTES: key.key_bytes(self.size, self.multiplier),
        };
        constants.module(match self.multiplier {
            Multiplier::Plain => &ATTENTION_F32,
            Multiplier::Tf32 => &ATTENTION_TF32,
            Multiplier::SixteenBit => &ATTENTION,
        })
    }

    /// A block for each tile of rows of each head.
    fn extent(&self, tile: Tile, shared: u32) -> Extent {
        let grid = self.sequences * self.heads * self.positions.div_ceil(u64::from(tile.rows));
        Extent { grid, block: tile.warps * 32, shared }
    }

    /// Number of blocks, and positions of a sequence.
    fn counts(&self, extent: Extent) -> Result<(WorkCount<u32>, u32), BackendError> {
        Ok((WorkCount(count(extent.grid, "tiles")?), count(self.positions, "positions")?))
    }
}

pub(super) fn forward(cx: &mut Lowering<'_>, op: &Attention) -> Result<(), BackendError> {
    let heads = Heads::new(cx, op.out, op.heads, op.dropout)?;
    if let Some(kernels) = attention_hopper::Kernels::of(cx, &heads) {
        return kernels.forward(cx, op);
    }
    let tile = heads.tiles.forward;
    let extent = heads.extent(tile, tile.forward_bytes(heads.size, heads.multiplier));
    let (blocks, positions) = heads.counts(extent)?;
    let Mask { threshold, tag, scale } = Mask::of(op.dropout);
    let kernel = Attend {
        blocks,
        qkv_bt3c: cx.read(op.qkv)?,
        out_btc: cx.write(op.out)?,
        lse_bht: cx.write(op.lse)?,
        positions,
        step: cx.step(),
        threshold,
        tag,
        scale,
    };
    cx.launch(heads.module(), extent, kernel)
}

pub(super) fn backward(cx: &mut Lowering<'_>, op: &AttentionBackward) -> Result<(), BackendError> {
    let heads = Heads::new(cx, op.d_out, op.heads, op.dropout)?;
    if let Some(kernels) = attention_hopper::Kernels::of(cx, &heads) {
        return kernels.backward(cx, op);
    }
    let (query, key) = (heads.tiles.query, heads.tiles.key);
    let (qkv, d_out, lse) = (cx.read(op.qkv)?, cx.read(op.d_out)?, cx.read(op.lse)?);
    let (delta, d_qkv): (Out<f32>, Out<T>) = (cx.write(op.delta)?, cx.write(op.d_qkv)?);
    let (step, Mask { threshold, tag, scale }) = (cx.step(), Mask::of(op.dropout));
    let extent = heads.extent(query, query.query_bytes(heads.size, heads.multiplier));
    let (blocks, positions) = heads.counts(extent)?;
    let kernel = QueryGradient {
        blocks,
        qkv_bt3c: qkv,
        out_btc: cx.read(op.out)?,
        d_out_btc: d_out,
        lse_bht: lse,
        delta_bht: delta,
        d_qkv_bt3c: d_qkv,
        positions,
        step,
        threshold,
        tag,
        scale,
    };
    cx.launch(heads.module(), extent, kernel)?;
    let extent = heads.extent(key, key.key_bytes(heads.size, heads.multiplier));
    let (blocks, positions) = heads.counts(extent)?;
    let kernel = KeyGradient {
        blocks,
        qkv_bt3c: qkv,
        d_out_btc: d_out,
        lse_bht: lse,
        delta_bht: delta.read(),
        d_qkv_bt3c: d_qkv,
        positions,
        step,
        threshold,
        tag,
        scale,
    };
    cx.launch(heads.module(), extent, kernel)
}
