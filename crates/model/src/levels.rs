//! How much of a transformer layer is kept from forward to backward, and where. The levels are in
//! order of what they keep on the device: the last one keeps the least. The architecture defines
//! which activations a level recomputes.

use crate::activation::{Activation, Activations};
use crate::architecture::Network;
use plan::{Scope, SegmentId, TensorId, Tensors};
use std::collections::BTreeSet;
use std::fmt;

/// A level of recompute, for one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Keep everything.
    #[default]
    R0,
    /// Recompute GELU.
    R1,
    /// Recompute GELU and both layer norms.
    R2,
    /// As R2, and the MLP's first matmul.
    R3,
    /// As R2, and the matmul of query, key and value.
    R3q,
    /// As R2, but the results of both matmuls are in the host's memory between the passes. On the
    /// device it keeps what R4 does, and the norms' means and deviations.
    R2h,
    /// As R2, and both matmuls.
    R4,
    /// As R4, and the residual stream between attention and MLP.
    R5,
    /// Recompute the whole block, including attention: only its input is kept.
    R6,
}

impl Level {
    /// All levels, in order.
    pub const ALL: [Level; 9] = [
        Level::R0,
        Level::R1,
        Level::R2,
        Level::R3,
        Level::R3q,
        Level::R2h,
        Level::R4,
        Level::R5,
        Level::R6,
    ];

    /// Those that need no host memory, in order.
    pub const ON_DEVICE: [Level; 8] =
        [Level::R0, Level::R1, Level::R2, Level::R3, Level::R3q, Level::R4, Level::R5, Level::R6];

    /// Whether a layer at this level keeps activations in host memory.
    pub fn uses_host(self) -> bool {
        self == Level::R2h
    }

    /// The name in listings, settings and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Level::R0 => "R0",
            Level::R1 => "R1",
            Level::R2 => "R2",
            Level::R3 => "R3",
            Level::R3q => "R3q",
            Level::R4 => "R4",
            Level::R2h => "R2h",
            Level::R5 => "R5",
            Level::R6 => "R6",
        }
    }

    /// The level of this name.
    pub fn parse(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The tensors of a training segment that layers at these levels do not keep. A layer without a
/// level keeps everything.
pub(crate) fn dropped(
    network: &dyn Network,
    activations: &Activations,
    tensors: &Tensors,
    segment: SegmentId,
    levels: &[Level],
) -> BTreeSet<TensorId> {
    chosen(activations, tensors, segment, levels, |level| network.dropped(level))
}

/// The tensors of a training segment that layers at these levels keep in the host's memory.
pub(crate) fn offloaded(
    network: &dyn Network,
    activations: &Activations,
    tensors: &Tensors,
    segment: SegmentId,
    levels: &[Level],
) -> BTreeSet<TensorId> {
    chosen(activations, tensors, segment, levels, |level| network.offloaded(level))
}

fn chosen(
    activations: &Activations,
    tensors: &Tensors,
    segment: SegmentId,
    levels: &[Level],
    of: impl Fn(Level) -> &'static [Activation],
) -> BTreeSet<TensorId> {
    let is_chosen = |id: TensorId, activation: Activation| {
        let tensor = tensors.get(id);
        let level = tensor.layer.and_then(|layer| levels.get(layer as usize));
        let is_here = tensor.scope == Scope::Segment(segment);
        is_here && level.is_some_and(|&level| of(level).contains(&activation))
    };
    let all = activations.iter().map(|(&id, &activation)| (id, activation));
    all.filter(|&(id, activation)| is_chosen(id, activation)).map(|(id, _)| id).collect()
}
