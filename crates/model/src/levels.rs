//! How much of a transformer layer is kept from forward to backward: the levels, strongest last,
//! and the activations that each makes again.

use plan::{Schedule, Scope, SegmentId, TensorId};
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
    /// And the MLP's first product.
    R3,
    /// As R2, and the product of query, key and value.
    R3q,
    /// Both products.
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

    /// Whether a matrix product is done twice.
    pub fn repeats_products(self) -> bool {
        self >= Level::R3
    }

    /// The activations of a layer that are not kept, by their names in the schedule.
    pub fn dropped(self) -> Vec<&'static str> {
        // A norm's mean and deviation are 8 bytes of a token: with them, its gradient makes its
        // output again on the way. They go where the norm has to be done again anyway.
        const LIGHT: [&str; 3] = ["gelu", "ln_1", "ln_2"];
        let more: &[&str] = match self {
            Level::R0 => return Vec::new(),
            Level::R1 => return vec!["gelu"],
            Level::R2 => &[],
            Level::R3 => &["fch", "ln_2_mean", "ln_2_rstd"],
            Level::R3q => &["qkv", "ln_1_mean", "ln_1_rstd"],
            Level::R4 => &["fch", "qkv", "ln_1_mean", "ln_1_rstd", "ln_2_mean", "ln_2_rstd"],
            Level::R5 => {
                &["fch", "qkv", "x_mid", "ln_1_mean", "ln_1_rstd", "ln_2_mean", "ln_2_rstd"]
            }
            Level::R6 => &[
                "fch",
                "qkv",
                "x_mid",
                "att",
                "lse",
                "ln_1_mean",
                "ln_1_rstd",
                "ln_2_mean",
                "ln_2_rstd",
            ],
        };
        LIGHT.iter().chain(more).copied().collect()
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The tensors of a training segment that layers at these levels do not keep. A layer without a
/// level keeps everything.
pub fn dropped(schedule: &Schedule, segment: SegmentId, levels: &[Level]) -> BTreeSet<TensorId> {
    let names = |layer: u32| levels.get(layer as usize).map_or(Vec::new(), |level| level.dropped());
    let tensors = &schedule.tensors;
    let is_dropped = |id: &TensorId| {
        let tensor = tensors.get(*id);
        let (Scope::Segment(of), Some(layer)) = (tensor.scope, tensor.layer) else {
            return false;
        };
        let own = tensor.name.strip_prefix(&format!("h.{layer}."));
        of == segment && own.is_some_and(|name| names(layer).contains(&name))
    };
    tensors.ids().filter(is_dropped).collect()
}
