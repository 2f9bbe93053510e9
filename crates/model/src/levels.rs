//! How much of a transformer layer is kept from forward to backward: the levels, strongest last.
//! Which activations a level makes again is the architecture's to say.

use crate::activation::{Activation, Activations};
use crate::architecture::Network;
use plan::{Scope, SegmentId, TensorId, Tensors};
use std::collections::BTreeSet;
use std::fmt;

/// A level of recompute, for one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Everything is kept.
    #[default]
    R0,
    /// GELU is made again.
    R1,
    /// GELU and both layer norms.
    R2,
    /// And the MLP's first matmul.
    R3,
    /// As R2, and the matmul of query, key and value.
    R3q,
    /// Both matmuls.
    R4,
    /// And the residual stream between attention and MLP.
    R5,
    /// The whole block, attention included: only its input is kept.
    R6,
}

impl Level {
    /// All, in order.
    pub const ALL: [Level; 8] =
        [Level::R0, Level::R1, Level::R2, Level::R3, Level::R3q, Level::R4, Level::R5, Level::R6];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Level::R0 => "R0",
            Level::R1 => "R1",
            Level::R2 => "R2",
            Level::R3 => "R3",
            Level::R3q => "R3q",
            Level::R4 => "R4",
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
    let is_dropped = |id: TensorId, activation: Activation| {
        let tensor = tensors.get(id);
        let level = tensor.layer.and_then(|layer| levels.get(layer as usize));
        let is_here = tensor.scope == Scope::Segment(segment);
        is_here && level.is_some_and(|&level| network.dropped(level).contains(&activation))
    };
    let all = activations.iter().map(|(&id, &activation)| (id, activation));
    all.filter(|&(id, activation)| is_dropped(id, activation)).map(|(id, _)| id).collect()
}
