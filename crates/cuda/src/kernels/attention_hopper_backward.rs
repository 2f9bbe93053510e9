//! Launches of attention's gradients on Hopper's warpgroups: two kernels, for narrow and for wide
//! heads.

use super::attention::{HEADS, Heads, SIXTEEN_BIT, SOFTMAX, TENSOR_CORES};
use super::attention_hopper::{ALIGNMENT, Kernels, PANEL_ROW, PANELS, WARPGROUPS};
use super::{SHARED_MEMORY, count};
use crate::constants::constants;
use crate::kernel_source::{ModuleSpec, Source};
use crate::lowering::{Extent, Lowering, Mask};
use crate::signature::{In, Out, T, WorkCount, signatures};
use crate::step::Step;
use crate::tiles::{Multiplier, line};
use plan::gpu_scratch::WarpgroupAttention;
use plan::ops::AttentionBackward;
use plan::{BackendError, Dtype};

signatures! {
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
/// Keys of a block, and its threads.
const KEYS: u64 = 128;
const THREADS: u32 = 384;
const DELTA_THREADS: u32 = 256;
/// Bytes of a barrier in shared memory.
const BARRIER: u64 = 8;

constants! {
    Constants {
        T: Dtype,
        HEADS: u64,
        HEAD_SIZE: u64,
        HEAD_PAD: u64,
        LINE: u64,
        DROPOUT: bool,
        CHANNELS: u64,
        BACKWARD_BYTES: u64,
    }
    fixed { STEP }
}

const GRADIENT: &str = include_str!("attention_hopper_gradient.cuh");

/// A file of kernels for some heads.
macro_rules! gradient {
    ($name:ident = $file:literal) => {
        pub(super) static $name: Source = Source {
            file: $file,
            signatures: SIGNATURES,
            constants: Constants::NAMES,
            parts: &[
                HEADS,
                SHARED_MEMORY,
                TENSOR_CORES,
                SIXTEEN_BIT,
                SOFTMAX,
                WARPGROUPS,
                PANELS,
                GRADIENT,
                include_str!($file),
            ],
            warpgroups: true,
        };
    };
}

gradient!(ATTENTION_HOPPER_NARROW = "attention_hopper_narrow.cu");
gradient!(ATTENTION_HOPPER_WIDE = "attention_hopper_wide.cu");

impl Kernels<'_> {
    /// Keys and values; stages of queries and d_out with their lse and delta; of d_scores. Wide
    /// heads also have stages of sums with three barriers each; narrow ones have two barriers for
    /// every other stage, and 64 bytes of numbers.
    fn backward_bytes(&self) -> u64 {
        let keys = ALIGNMENT + 2 * self.rows_bytes(KEYS);
        let walked = 2 * self.rows_bytes(STEP) + 2 * STEP * 4;
        let changes = KEYS * PANEL_ROW;
        match self.is_wide() {
            true => {
                let sums = self.sizes.tile_bytes() + 3 * BARRIER;
                keys + 2 * walked + changes + 2 * sums
            }
            false => keys + 4 * (walked + 2 * BARRIER) + 2 * (changes + 2 * BARRIER) + 64,
        }
    }

    fn backward_module(&self) -> ModuleSpec {
        let Heads { heads, size, dtype, dropout, .. } = *self.heads;
        let constants = Constants {
            T: dtype,
            HEADS: heads,
            HEAD_SIZE: size,
            HEAD_PAD: self.sizes.pad,
            LINE: line(size, Multiplier::SixteenBit),
            DROPOUT: dropout.is_some(),
            CHANNELS: self.sizes.channels(),
            BACKWARD_BYTES: self.backward_bytes(),
        };
        let is_wide = self.is_wide();
        constants.module(if is_wide { &ATTENTION_HOPPER_WIDE } else { &ATTENTION_HOPPER_NARROW })
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
        cx.launch(self.backward_module(), Extent::new(blocks, DELTA_THREADS), kernel)?;
        let extent = self.extent(KEYS, THREADS, self.backward_bytes());
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
        cx.launch(self.backward_module(), extent, kernel)
    }
}
