//! Launches of attention. 16-bit formats run on tensor cores, f32 on plain multiply-adds.

use super::{count, unsupported};
use crate::lowering::{
    Argument, Extent, Kernel, Lowering, Place, Source, arguments, dropout_arguments, flag,
    format_name,
};
use crate::tiles::{AttentionTiles, Tile};
use plan::ops::{Attention, AttentionBackward, Dropout};
use plan::{BackendError, Dtype, TensorId};

const HEADS: &str = include_str!("attention_heads.cuh");

static ATTENTION: Source = Source {
    file: "attention.cu",
    parts: &[HEADS, include_str!("tensor_cores.cuh"), include_str!("attention.cu")],
};
static ATTENTION_F32: Source =
    Source { file: "attention_f32.cu", parts: &[HEADS, include_str!("attention_f32.cu")] };

/// The largest head: the tensor cores' kernels keep it in registers, those of f32 in shared memory.
pub(crate) const fn largest_head(dtype: Dtype) -> u64 {
    match dtype {
        Dtype::F32 => 256,
        _ => 128,
    }
}

/// The sizes of one attention, and its kernels.
struct Heads {
    sequences: u64,
    positions: u64,
    heads: u64,
    size: u64,
    dtype: Dtype,
    dropout: Option<Dropout>,
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
        let tiles = cx.options().tiles.attention(size, dtype, dropout.is_some());
        Ok(Heads { sequences, positions, heads, size, dtype, dropout, tiles })
    }

    fn kernel(&self, entry: &'static str) -> Kernel {
        let mut constants = vec![
            ("T", format_name(self.dtype).to_string()),
            ("HEADS", self.heads.to_string()),
            ("HEAD_SIZE", self.size.to_string()),
            ("DROPOUT", flag(self.dropout.is_some())),
        ];
        let AttentionTiles { forward, query, key } = self.tiles;
        let names = [
            ["FORWARD_ROWS", "FORWARD_COLUMNS", "FORWARD_WARPS"],
            ["QUERY_ROWS", "QUERY_COLUMNS", "QUERY_WARPS"],
            ["KEY_ROWS", "KEY_COLUMNS", "KEY_WARPS"],
        ];
        for (names, tile) in names.into_iter().zip([forward, query, key]) {
            let values = [tile.rows, tile.columns, tile.warps].map(|number| number.to_string());
            constants.extend(names.into_iter().zip(values));
        }
        let source = if self.dtype == Dtype::F32 { &ATTENTION_F32 } else { &ATTENTION };
        Kernel { source, constants, entry }
    }

    /// A block for each tile of rows of each head.
    fn extent(&self, tile: Tile, shared: u32) -> Extent {
        let grid = self.sequences * self.heads * self.positions.div_ceil(u64::from(tile.rows));
        Extent { grid, block: tile.warps * 32, shared }
    }

    fn launch(
        &self,
        cx: &mut Lowering<'_>,
        entry: &'static str,
        extent: Extent,
        operands: &[Place],
    ) -> Result<(), BackendError> {
        let mut arguments = arguments![count(extent.grid, "tiles")?];
        arguments.extend(operands.iter().map(|&place| Argument::At(place)));
        arguments.extend(arguments![count(self.positions, "positions")?, Place::Step]);
        arguments.extend(dropout_arguments(self.dropout));
        cx.launch(self.kernel(entry), extent, arguments)
    }
}

pub(super) fn forward(cx: &mut Lowering<'_>, op: &Attention) -> Result<(), BackendError> {
    let heads = Heads::new(cx, op.out, op.heads, op.dropout)?;
    let operands = [cx.place(op.qkv)?, cx.place(op.out)?, cx.place(op.lse)?];
    let tile = heads.tiles.forward;
    let shared = tile.forward_bytes(heads.size, heads.dtype);
    heads.launch(cx, "attention_forward", heads.extent(tile, shared), &operands)
}

pub(super) fn backward(cx: &mut Lowering<'_>, op: &AttentionBackward) -> Result<(), BackendError> {
    let heads = Heads::new(cx, op.d_out, op.heads, op.dropout)?;
    let [qkv, out, d_out] = [op.qkv, op.out, op.d_out].map(|id| cx.place(id));
    let [lse, delta, d_qkv] = [op.lse, op.delta, op.d_qkv].map(|id| cx.place(id));
    let (qkv, d_out, lse, delta, d_qkv) = (qkv?, d_out?, lse?, delta?, d_qkv?);
    let (query, key) = (heads.tiles.query, heads.tiles.key);
    let extent = heads.extent(query, query.query_bytes(heads.size, heads.dtype));
    let operands = [qkv, out?, d_out, lse, delta, d_qkv];
    heads.launch(cx, "attention_backward_query", extent, &operands)?;
    let extent = heads.extent(key, key.key_bytes(heads.size, heads.dtype));
    let operands = [qkv, d_out, lse, delta, d_qkv];
    heads.launch(cx, "attention_backward_key", extent, &operands)
}
