//! Launches of attention on Hopper's warpgroups. `attention_hopper_backward.rs` has the gradients.

use super::attention::{HEADS, Heads, SIXTEEN_BIT, SOFTMAX, TENSOR_CORES};
use super::{SHARED_MEMORY, count};
use crate::constants::constants;
use crate::kernel_source::{ModuleSpec, Source};
use crate::lowering::{Extent, Lowering, Mask};
use crate::signature::{In, Out, T, WorkCount, signatures};
use crate::step::Step;
use crate::tiles::{Multiplier, line};
use plan::gpu_scratch::WarpgroupAttention;
use plan::ops::Attention;
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
}

/// Bytes of a row of a panel, which has 64 numbers.
pub(super) const PANEL_ROW: u64 = 128;
/// Room to begin at a multiple of 1024 bytes.
pub(super) const ALIGNMENT: u64 = 1024;

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
    }
    fixed {}
}

pub(super) const WARPGROUPS: &str = include_str!("warpgroups.cuh");
pub(super) const PANELS: &str = include_str!("attention_panels.cuh");

pub(super) static ATTENTION_HOPPER: Source = Source {
    file: "attention_hopper.cu",
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
        include_str!("attention_hopper.cu"),
    ],
    warpgroups: true,
};

/// The kernels for one attention.
pub(super) struct Kernels<'a> {
    pub(super) heads: &'a Heads,
    pub(super) sizes: WarpgroupAttention,
}

impl<'a> Kernels<'a> {
    /// None if the usual kernels compute it.
    pub(super) fn of(cx: &Lowering<'_>, heads: &'a Heads) -> Option<Kernels<'a>> {
        let sizes = WarpgroupAttention::new(heads.size, heads.dtype)?;
        cx.options().warpgroups.then_some(Kernels { heads, sizes })
    }

    pub(super) fn is_wide(&self) -> bool {
        self.sizes.pad > 64
    }

    /// Warpgroups of a block of the forward pass, and how many blocks share a multiprocessor:
    /// four small blocks overlap best, and wide heads leave room for two of two warpgroups.
    fn forward_shape(&self) -> (u64, u64) {
        if self.is_wide() { (2, 2) } else { (1, 4) }
    }

    /// Bytes of `rows` rows of a head in shared memory.
    pub(super) fn rows_bytes(&self, rows: u64) -> u64 {
        self.sizes.pad.div_ceil(64) * rows * PANEL_ROW
    }

    /// Queries, and two stages of keys and values.
    fn forward_bytes(&self) -> u64 {
        let (groups, _) = self.forward_shape();
        ALIGNMENT + self.rows_bytes(64 * groups) + 4 * self.rows_bytes(64)
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
        };
        constants.module(&ATTENTION_HOPPER)
    }

    /// A block for each `rows` rows of each head.
    pub(super) fn extent(&self, rows: u64, block: u32, shared: u64) -> Extent {
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
}
