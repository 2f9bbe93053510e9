//! Why no plan fits: how much is missing, what is largest at the fullest moment, and the nearest
//! settings that fit.

use crate::machine::Machine;
use crate::planned::Planned;
use crate::suggest::Suggestion;
use plan::Bytes;
use plan::report::Bill;

/// Tensors that a refusal names.
const NAMED: usize = 5;

/// A run that fits in no way that its settings permit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Refusal {
    /// Bytes of the device that may be used.
    pub budget: Bytes,
    /// Bytes of the device that the smallest plan needs.
    pub needed: Bytes,
    /// Bytes of the arena of that plan.
    pub arena: Bytes,
    /// The host's budget and what the plan needs of it, where that is the trouble.
    pub host: Option<[Bytes; 2]>,
    /// The largest tensors at its fullest moment.
    pub largest: Vec<(String, Bytes)>,
    /// Settings that fit; filled in where somebody reads them.
    pub suggestions: Vec<Suggestion>,
}

impl Refusal {
    pub(crate) fn of(smallest: &Planned, machine: &Machine) -> Refusal {
        let bill = Bill::new(&smallest.plan);
        let fullest = bill.segments.iter().max_by_key(|segment| segment.top);
        let tensors = fullest.map_or(&[][..], |segment| &segment.tensors);
        let host_bytes = smallest.plan.host_bytes;
        let host = machine.host.filter(|budget| host_bytes > *budget);
        Refusal {
            budget: machine.budget,
            needed: Bytes::new(smallest.device_bytes(machine)).unwrap_or(machine.budget),
            arena: smallest.plan.arena_bytes,
            host: host.map(|budget| [budget, host_bytes]),
            largest: tensors.iter().take(NAMED).map(|t| (t.name.clone(), t.bytes)).collect(),
            suggestions: Vec::new(),
        }
    }

    /// Bytes that are missing, of the device or else of the host.
    pub fn missing(&self) -> Bytes {
        let device = self.needed.minus(self.budget).unwrap_or(Bytes::ZERO);
        let host = self.host.and_then(|[budget, needed]| needed.minus(budget));
        device.max(host.unwrap_or(Bytes::ZERO))
    }

    /// The first part of the message: how much is missing of what.
    pub fn headline(&self) -> String {
        let (missing, needed, budget) = (self.missing(), self.needed, self.budget);
        match self.host {
            Some([ram, host]) if needed <= budget => format!(
                "{missing} of host memory are missing: the optimizer's state needs {host} of {ram} \
                 (ram)"
            ),
            _ => format!(
                "{missing} of memory are missing: the smallest plan needs {needed} of {budget}"
            ),
        }
    }
}
