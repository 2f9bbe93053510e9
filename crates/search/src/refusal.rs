//! Why no plan fits: how much is missing, which tensors are largest at the fullest step, and the
//! nearest settings that fit.

use crate::machine::Machine;
use crate::planned::Planned;
use crate::suggest::Suggestion;
use plan::Bytes;
use plan::report::Bill;

/// How many tensors a refusal names.
const NAMED: usize = 5;

/// Why no plan within the run's settings fits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Refusal {
    /// Bytes of the device that may be used.
    pub budget: Bytes,
    /// Bytes of the device that the smallest plan needs.
    pub needed: Bytes,
    /// Bytes of the arena of that plan.
    pub arena: Bytes,
    /// Bytes beyond the device's budget.
    pub missing: Bytes,
    /// Bytes of host memory that the plan needs.
    pub host: Bytes,
    /// Bytes over the host memory that may be used.
    pub missing_host: Bytes,
    /// The largest tensors at the fullest step; those of the host, if only the host is short.
    pub largest: Vec<(String, Bytes)>,
    /// Settings that fit. They are computed only if they will be shown.
    pub suggestions: Vec<Suggestion>,
}

impl Refusal {
    pub(crate) fn of(smallest: &Planned, machine: &Machine) -> Refusal {
        let whole = |bytes: u64| Bytes::new(bytes.min(i64::MAX as u64)).unwrap_or(Bytes::ZERO);
        let [missing, missing_host] = smallest.over(machine).map(whole);
        let largest = match missing > Bytes::ZERO {
            true => largest_on_device(smallest),
            false => largest_on_host(smallest),
        };
        Refusal {
            budget: machine.budget,
            needed: whole(smallest.device_bytes(machine)),
            arena: smallest.plan.arena_bytes,
            missing,
            host: whole(smallest.host_bytes()),
            missing_host,
            largest,
            suggestions: Vec::new(),
        }
    }

    /// The first part of the message: how much is missing of what.
    pub fn headline(&self) -> String {
        let Refusal { budget, needed, missing, host, missing_host, .. } = self;
        let device = format!("needs at least {needed}, the budget is {budget}");
        let host = format!("needs {host} of host memory, {missing_host} more than may be used");
        match (*missing > Bytes::ZERO, *missing_host > Bytes::ZERO) {
            (true, true) => format!("does not fit: {device}; and it {host}"),
            (false, true) => format!("does not fit: {host}"),
            _ => format!("does not fit: {device}"),
        }
    }
}

fn largest_on_device(planned: &Planned) -> Vec<(String, Bytes)> {
    let bill = Bill::new(&planned.plan);
    let fullest = bill.segments.iter().max_by_key(|segment| segment.top);
    let tensors = fullest.map_or(&[][..], |segment| &segment.tensors);
    tensors.iter().take(NAMED).map(|t| (t.name.clone(), t.bytes)).collect()
}

fn largest_on_host(planned: &Planned) -> Vec<(String, Bytes)> {
    let tensors = &planned.plan.schedule.tensors;
    let offloaded =
        planned.plan.on_host().map(|id| (tensors.get(id).name.clone(), tensors.bytes(id)));
    let beside = planned.host.rows().into_iter().map(|(name, bytes)| (name.to_string(), bytes));
    let mut all: Vec<(String, Bytes)> = offloaded.chain(beside).collect();
    all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all.truncate(NAMED);
    all
}
