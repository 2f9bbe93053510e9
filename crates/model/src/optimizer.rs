//! Optimizers: what each keeps for a parameter, and the op that updates a range of all parameters.
//! A new optimizer is a file like `adamw.rs` and a line here.

use crate::adamw::AdamW;
use plan::ops::{Op, Scaling};
use plan::{Dtype, PlanError, Role, TensorId};

/// How parameters are updated.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimizerSpec {
    /// The optimizer and its constants.
    pub rule: Optimizer,
    /// How the loss is scaled.
    pub scaling: Scaling,
    /// If set, everything that only the update touches (optimizer state, master weights) is in host
    /// memory, and passes through the device in windows of this many elements.
    pub offload: Option<u64>,
}

/// An optimizer with its constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimizer {
    /// Adam with decoupled weight decay.
    AdamW(AdamW),
}

impl Optimizer {
    pub(crate) fn rule(&self) -> &dyn Rule {
        match self {
            Optimizer::AdamW(adamw) => adamw,
        }
    }
}

/// A row of an optimizer's state table: one number kept for each number of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateRow {
    /// The name in listings. In checkpoints it precedes the parameter's name.
    pub name: &'static str,
    pub dtype: Dtype,
    pub role: Role,
}

/// What every optimizer's file defines.
pub(crate) trait Rule {
    /// The rows of its state, always in this order.
    fn state(&self) -> Vec<StateRow>;

    /// The decay on parameters of two or more dimensions.
    fn weight_decay(&self) -> f64;

    /// The op that updates a range of all parameters.
    fn op(&self, part: UpdatePart<'_>) -> Result<Op, PlanError>;
}

/// A range of all parameters on the device, which one op updates.
pub(crate) struct UpdatePart<'a> {
    /// Its first element.
    pub first: u64,
    pub weight_decay: f64,
    pub weights: TensorId,
    /// The weights in the compute format, if that is not f32.
    pub copy: Option<TensorId>,
    /// Whether `weights` are only the lower halves, and `copy` the upper ones.
    pub split: bool,
    pub gradients: TensorId,
    /// In the order of [`Rule::state`].
    pub state: &'a [TensorId],
    /// [`plan::StepState`].
    pub step_state: TensorId,
}
