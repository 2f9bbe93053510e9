//! What `plan` reports: one collection of facts, and the forms in which they are shown.

pub mod sentence;
pub mod timeline;
pub mod arena_map;
pub mod document;
pub mod fleet;

pub use fleet::FleetReport;

use crate::bill::HostMemory;
use model::Dims;
use plan::hardware::Hardware;
use plan::report::Bill;
use plan::{Bytes, Scope};
use search::{Machine, Planned, Prediction};
use spec::RunSpec;

/// A planned run and everything that is reported about it.
pub struct PlanReport {
    /// The settings.
    pub run: RunSpec,
    /// The model's sizes.
    pub dims: Dims,
    /// The machine that it is planned for.
    pub machine: Machine,
    /// The plan.
    pub planned: Planned,
    /// Its bill.
    pub bill: Bill,
    /// The predicted speed; none for an unknown card.
    pub prediction: Option<Prediction>,
    /// What the prediction is based on.
    pub basis: &'static str,
    /// The rates that it was made with.
    pub rates: Hardware,
    /// About several ranks; none for one.
    pub fleet: Option<FleetReport>,
    /// Host memory outside the arena.
    pub host: Vec<HostMemory>,
}

impl PlanReport {
    /// Bytes on the device.
    pub fn device_bytes(&self) -> u64 {
        self.planned.device_bytes(&self.machine)
    }

    /// The peak of each phase. Loading and saving pass tensors through a host buffer, so on the
    /// device they need only what lives for the whole run.
    pub fn phases(&self) -> [(&'static str, Bytes); 5] {
        phases(&self.bill, self.held())
    }

    fn held(&self) -> Bytes {
        self.planned.plan.schedule.tensors.held_bytes(Scope::Run).unwrap_or(Bytes::ZERO)
    }
}

/// The peak of each phase, from a bill and the bytes that live for the whole run.
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
