//! Launches of attention on Hopper's warpgroups.

use super::attention::{HEADS, Heads, SIXTEEN_BIT, SOFTMAX, TENSOR_CORES};
use super::count;
use crate::constants::constants;
use crate::lowering::{Extent, Lowering, Mask, ModuleSpec, Source};
use crate::signature::{In, Out, T, WorkCount, signatures};
use crate::step::Step;
use crate::tiles::{Multiplier, line};
use plan::gpu_scratch::WarpgroupAttention;
use plan::ops::{Attention, AttentionBackward};
use plan::{BackendError, Dtype};

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
    /// `delta`, and no turn taken yet.
    Delta = attention_delta(
        lines: WorkCount<u32>,
        out_btc: In<T>,
        d_out_btc: In<T>,
        delta_bht: Out<f32>,
        turns: Out<u32>,
        positions: u32,
    );
    /// Gradients of queries, keys and values.
    Gradients = attention_backward(
        blocks: WorkCount<u32>,
        qkv_bt3c: In<T>,
        d_out_btc: In<T>,
        lse_bht: In<f32>,
        delta_bht: In<f32>,
        d_qkv_bt3c: Out<T>,
        sums: Out<f32>,
        turns: Out<u32>,
        positions: u32,
        step: In<Step>,
        threshold: u32,
        tag: u32,
        scale: f32,
    );
}

const STEP: u64 = WarpgroupAttention::QUERIES;
/// Keys of a block of the backward pass, and its threads.
const KEYS: u64 = 128;
const BACKWARD_THREADS: u32 = 384;
const DELTA_THREADS: u32 = 256;
/// Bytes of a row of a panel, which has 64 numbers.
const PANEL_ROW: u64 = 128;
/// Room to begin at a multiple of 1024 bytes.
const ALIGNMENT: u64 = 1024;

constants! {
    Constants {
        T: Dtype,
        HEADS: u64,
        HEAD_SIZE: u64,
        HEAD_PAD: u64,
        LINE: u64,
        DROPOUT: bool,
        FORWARD_GROUPS: u64,
        FORWARD_BLOCKS: u64,
        FORWARD_BYTES: u64,
        CHANNELS: u64,
        BACKWARD_BYTES: u64,
    }
    fixed { STEP }
}

pub(super) static ATTENTION_HOPPER: Source = Source {
    file: "attention_hopper.cu",
    signatures: SIGNATURES,
    constants: Constants::NAMES,
    parts: &[
        HEADS,
        TENSOR_CORES,
        SIXTEEN_BIT,
        SOFTMAX,
        include_str!("warpgroups.cuh"),
        include_str!("attention_hopper.cu"),
    ],
    warpgroups: true,
};

/// The kernels for one attention.
pub(super) struct Kernels<'a> {
    heads: &'a Heads,
    sizes: WarpgroupAttention,
}

impl<'a> Kernels<'a> {
    /// None if the usual kernels compute it.
    pub(super) fn of(cx: &Lowering<'_>, heads: &'a Heads) -> Option<Kernels<'a>> {
        let sizes = WarpgroupAttention::new(heads.size, heads.dtype)?;
        cx.options().warpgroups.then_some(Kernels { heads, sizes })
    }

    fn is_wide(&self) -> bool {
        self.sizes.pad > 64
    }

    /// Warpgroups of a block of the forward pass, and how many blocks share a multiprocessor:
    /// four small blocks overlap best, and wide heads leave room for two of two warpgroups.
    fn forward_shape(&self) -> (u64, u64) {
        if self.is_wide() { (2, 2) } else { (1, 4) }
    }

    /// Bytes of `rows` rows of a head in shared memory.
    fn rows_bytes(&self, rows: u64) -> u64 {
        self.sizes.pad.div_ceil(64) * rows * PANEL_ROW
    }

    /// Queries, and two stages of keys and values.
    fn forward_bytes(&self) -> u64 {
        let (groups, _) = self.forward_shape();
        ALIGNMENT + self.rows_bytes(64 * groups) + 4 * self.rows_bytes(64)
    }

    /// Keys and values; stages of queries and d_out with their lse and delta; of d_scores; of sums
    /// with three barriers each.
    fn backward_bytes(&self) -> u64 {
        let [walked, changes, sums] = if self.is_wide() { [2, 1, 2] } else { [4, 2, 3] };
        let walked = walked * (2 * self.rows_bytes(STEP) + 2 * STEP * 4);
        let changes = changes * KEYS * PANEL_ROW;
        let sums = sums * (self.sizes.tile_bytes() + 3 * 8);
        ALIGNMENT + 2 * self.rows_bytes(KEYS) + walked + changes + sums
    }

    fn module(&self) -> ModuleSpec {
        let (groups, blocks) = self.forward_shape();
        let Heads { heads, size, dtype, dropout, .. } = *self.heads;
        let constants = Constants {
            T: dtype,
            HEADS: heads,
            HEAD_SIZE: size,
            HEAD_PAD: self.sizes.pad,
            LINE: line(size, Multiplier::SixteenBit),
            DROPOUT: dropout.is_some(),
            FORWARD_GROUPS: groups,
            FORWARD_BLOCKS: blocks,
            FORWARD_BYTES: self.forward_bytes(),
            CHANNELS: self.sizes.channels(),
            BACKWARD_BYTES: self.backward_bytes(),
        };
        constants.module(&ATTENTION_HOPPER)
    }

    /// A block for each `rows` rows of each head.
    fn extent(&self, rows: u64, block: u32, shared: u64) -> Extent {
        let Heads { sequences, positions, heads, .. } = *self.heads;
        let grid = sequences * heads * positions.div_ceil(rows);
        Extent { grid, block, shared: shared as u32 }
    }

    pub(super) fn forward(
        &self,
        cx: &mut Lowering<'_>,
        op: &Attention,
    ) -> Result<(), BackendError> {
        let (groups, _) = self.forward_shape();
        let extent = self.extent(64 * groups, 128 * groups as u32, self.forward_bytes());
        let Mask { threshold, tag, scale } = Mask::of(op.dropout);
        let kernel = Attend {
            blocks: WorkCount(count(extent.grid, "tiles")?),
            qkv_bt3c: cx.read(op.qkv)?,
            out_btc: cx.write(op.out)?,
            lse_bht: cx.write(op.lse)?,
            positions: count(self.heads.positions, "positions")?,
            step: cx.step(),
            threshold,
            tag,
            scale,
        };
        cx.launch(self.module(), extent, kernel)
    }

    pub(super) fn backward(
        &self,
        cx: &mut Lowering<'_>,
        op: &AttentionBackward,
    ) -> Result<(), BackendError> {
        let Heads { sequences, positions, heads, size, .. } = *self.heads;
        let (delta, d_out): (Out<f32>, _) = (cx.write(op.delta)?, cx.read(op.d_out)?);
        let tiles = WarpgroupAttention::tiles(sequences, heads, positions).unwrap_or(u64::MAX);
        let sums: Out<f32> = cx.scratch(op.workspace)?;
        let turns: Out<u32> = cx.scratch(op.workspace)?;
        let turns = turns.plus(tiles.saturating_mul(self.sizes.tile_bytes()));
        let lines = sequences * positions * heads;
        let lanes = if size <= 64 { 8 } else { 16 };
        let blocks = (lines * lanes).div_ceil(u64::from(DELTA_THREADS));
        let kernel = Delta {
            lines: WorkCount(count(lines, "positions of heads")?),
            out_btc: cx.read(op.out)?,
            d_out_btc: d_out,
            delta_bht: delta,
            turns,
            positions: count(positions, "positions")?,
        };
        cx.launch(self.module(), Extent::new(blocks, DELTA_THREADS), kernel)?;
        let extent = self.extent(KEYS, BACKWARD_THREADS, self.backward_bytes());
        let Mask { threshold, tag, scale } = Mask::of(op.dropout);
        let kernel = Gradients {
            blocks: WorkCount(count(extent.grid, "tiles")?),
            qkv_bt3c: cx.read(op.qkv)?,
            d_out_btc: d_out,
            lse_bht: cx.read(op.lse)?,
            delta_bht: delta.read(),
            d_qkv_bt3c: cx.write(op.d_qkv)?,
            sums,
            turns,
            positions: count(positions, "positions")?,
            step: cx.step(),
            threshold,
            tag,
            scale,
        };
        cx.launch(self.module(), extent, kernel)
    }
}
