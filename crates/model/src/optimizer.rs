//! Optimizers: what each keeps of a parameter, and the op that changes a part of all of them. A new
//! one is a file like `adamw.rs` and a line here.

use crate::adamw::AdamW;
use crate::program::Types;
use plan::ops::{Op, Scaling};
use plan::{Dtype, PlanError, Role, TensorId};

/// How parameters are changed.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimizerSpec {
    /// By which rule.
    pub rule: Optimizer,
    /// How the loss is scaled.
    pub scaling: Scaling,
    /// What only the update touches (the rule's state, master weights) lives in host memory, and so
    /// many elements of it pass through the device at a time.
    pub offload: Option<u64>,
}

/// One of the optimizers, with its constants.
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

/// A row of an optimizer's table: one number kept for each number of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateRow {
    /// The name in listings, and in checkpoints before the parameter's.
    pub name: &'static str,
    pub dtype: Dtype,
    pub role: Role,
}

/// What every optimizer's file says about it.
pub(crate) trait Rule {
    /// What it keeps, in this order everywhere.
    fn state(&self, types: &Types) -> Vec<StateRow>;

    /// On parameters of two or more dimensions.
    fn weight_decay(&self) -> f64;

    /// The op that changes a part of all parameters.
    fn op(&self, part: UpdatePart<'_>) -> Result<Op, PlanError>;
}

/// A part of all parameters on the device, to be changed by one op.
pub(crate) struct UpdatePart<'a> {
    /// Its first element.
    pub first: u64,
    pub weight_decay: f64,
    pub weights: TensorId,
    /// The weights in the compute format, where that is not f32.
    pub copy: Option<TensorId>,
    pub gradients: TensorId,
    /// In the order of [`Rule::state`].
    pub state: &'a [TensorId],
    /// [`plan::StepState`].
    pub step_state: TensorId,
}
