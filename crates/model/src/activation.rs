//! Activations as a type. Each architecture's file has a constant for each of its activations;
//! levels of recompute choose among these.

use plan::TensorId;
use std::collections::BTreeMap;

/// A tensor that an architecture's forward pass makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activation {
    name: &'static str,
}

/// Which activation a tensor is.
pub(crate) type Activations = BTreeMap<TensorId, Activation>;

impl Activation {
    /// The activation with this name in listings, without the layer.
    pub(crate) const fn named(name: &'static str) -> Activation {
        Activation { name }
    }

    /// The name in listings, without the layer.
    pub const fn name(self) -> &'static str {
        self.name
    }
}
