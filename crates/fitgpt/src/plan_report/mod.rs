//! What `plan` says of a plan: one collection of facts, and the forms in which they are shown.

pub mod arena_map;
pub mod document;
pub mod sentence;
pub mod timeline;

use crate::bill::HostMemory;
use model::Dims;
use plan::report::Bill;
use plan::{Bytes, Scope};
use search::{Machine, Planned, Prediction};
use spec::RunSpec;

/// A planned run with everything that is said of it.
pub struct PlanReport {
    /// What was asked for.
    pub run: RunSpec,
    /// The model's sizes.
    pub dims: Dims,
    /// Where it is to run.
    pub machine: Machine,
    /// The plan.
    pub planned: Planned,
    /// Its bill.
    pub bill: Bill,
    /// How fast; none for a card without a name.
    pub prediction: Option<Prediction>,
    /// What predictions rest on.
    pub basis: &'static str,
    /// What the host keeps beside the arena.
    pub host: Vec<HostMemory>,
}

impl PlanReport {
    /// The device's bytes.
    pub fn device_bytes(&self) -> u64 {
        self.planned.device_bytes(&self.machine)
    }

    /// The peak of each phase. Loading and saving pass tensors through a buffer of the host and
    /// need nothing of the device but what is there all the time.
    pub fn phases(&self) -> [(&'static str, Bytes); 5] {
        phases(&self.bill, self.held())
    }

    fn held(&self) -> Bytes {
        self.planned.plan.schedule.tensors.held_bytes(Scope::Run).unwrap_or(Bytes::ZERO)
    }
}

/// The peak of each phase, from a bill and what is there all the time.
pub fn phases(bill: &Bill, held: Bytes) -> [(&'static str, Bytes); 5] {
    let peak = |phase: &str| {
        let of_phase = bill.segments.iter().filter(|segment| segment.phase == phase);
        of_phase.map(|segment| segment.peak).max().unwrap_or(Bytes::ZERO)
    };
    [
        ("load", held),
        ("train", peak("train")),
        ("eval", peak("eval")),
        ("sample", peak("generate")),
        ("save", held),
    ]
}
