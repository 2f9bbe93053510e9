//! What `plan` says about several ranks: how they are connected, what ZeRO-1 saves, and what each
//! of them sends.

use crate::numbers;
use crate::plan_report::{PlanReport, document::whole};
use plan::Bytes;
use plan::links::{Link, Topology};
use search::{Communication, Machine, SearchError, plan_again};
use serde_json::{Value, json};
use spec::{RanksKeys, RunSpec, Sync};

/// The facts about several ranks.
#[derive(Clone, Copy, Debug)]
pub struct FleetReport {
    /// How they are connected.
    pub topology: Topology,
    /// What each sends in an iteration.
    pub communication: Communication,
    /// Seconds of an iteration; none for an unknown card, whose seconds mean nothing.
    pub iteration: Option<f64>,
    /// What ZeRO-1 saves; none without it.
    pub zero: Option<Zero>,
}

/// What ZeRO-1 saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zero {
    /// Bytes of each GPU, compared with `zero=0` and the same slices.
    pub saved: u64,
    /// Whether the run would fit with `zero=0` and these slices.
    pub fits_without: bool,
}

impl Zero {
    /// Plans the same slices without it.
    fn new(report: &PlanReport) -> Result<Option<Zero>, SearchError> {
        let PlanReport { run, dims, machine, planned, .. } = report;
        let is_sharded = planned.program.sharing.is_sharded();
        let (true, Some(cut)) = (is_sharded, planned.cut()) else { return Ok(None) };
        let ranks = RanksKeys { zero: Some(false), ..run.ranks.clone() };
        let other = RunSpec { ranks, ..run.clone() };
        let all = Bytes::new(i64::MAX as u64).unwrap_or(machine.budget);
        let roomy = Machine { budget: all, host: machine.host.map(|_| all), ..machine.clone() };
        let Ok(other) = plan_again(&other, *dims, &roomy, &cut)? else { return Ok(None) };
        let [with, without] = [planned, &other].map(|one| one.device_bytes(machine));
        let fits_without = without <= machine.budget.get();
        Ok(Some(Zero { saved: without.saturating_sub(with), fits_without }))
    }
}

impl FleetReport {
    /// Collects the facts about the ranks of a plan.
    pub fn new(report: &PlanReport, topology: Topology) -> Result<FleetReport, SearchError> {
        let PlanReport { run, planned, rates, .. } = report;
        let rate = report.prediction.and_then(|prediction| prediction.tokens_per_second);
        Ok(FleetReport {
            topology,
            communication: planned.communication(run, rates),
            iteration: rate.map(|rate| run.tokens_per_iteration() as f64 / rate),
            zero: Zero::new(report)?,
        })
    }

    /// The lines below the plan.
    pub fn lines(&self, run: &RunSpec) -> Vec<String> {
        let Topology { gpus, machines, inside, network } = self.topology;
        let name = |link: Option<&Link>| link.map_or("", |link| link.name);
        let ranks = self.topology.ranks();
        let by = match (machines, inside) {
            (1, _) => format!("{ranks} GPUs of one machine, by {}", name(inside)),
            (_, None) => format!("{machines} machines with one GPU each, by {}", name(network)),
            (_, Some(inside)) => {
                let (network, each) = (name(network), if gpus == 1 { "" } else { "s" });
                let inside = inside.name;
                format!("{machines} machines with {gpus} GPU{each} each, by {network} and {inside}")
            }
        };
        let mut lines = vec![format!("ranks: {by}; the bill is that of the first rank")];
        lines.extend(self.zero.map(|zero| zero.line()));
        lines.push(self.sent(run));
        lines
    }

    fn sent(&self, run: &RunSpec) -> String {
        let Communication { bytes, seconds, exposed } = self.communication;
        let size = |bytes: u64| Bytes::new(bytes).unwrap_or(Bytes::ZERO);
        let what = match run.ranks.sync {
            Sync::Gradients => format!("each rank sends {} in an iteration", size(bytes)),
            Sync::Diloco => {
                let every = run.ranks.sync_every;
                let bytes = size(bytes.saturating_mul(every));
                format!("each rank sends {bytes} every {every} iterations")
            }
        };
        let Some(iteration) = self.iteration else { return format!("communication: {what}") };
        let share = 100.0 * exposed / iteration.max(f64::MIN_POSITIVE);
        let [all, hidden, exposed] =
            [seconds, self.communication.hidden(), exposed].map(numbers::seconds);
        let each = if run.ranks.sync == Sync::Diloco { " for each of them" } else { "" };
        format!(
            "communication: {what}, in {all}{each}; {hidden} hidden behind computation, {exposed} \
             not ({share:.1} % of an iteration of {})",
            numbers::seconds(iteration)
        )
    }

    /// The same for programs.
    pub fn document(&self, run: &RunSpec) -> Value {
        let Topology { gpus, machines, inside, network } = self.topology;
        let of = self.topology.network();
        let sent = self.communication;
        let known = |seconds: f64| self.iteration.map(|_| seconds);
        json!({
            "ranks": self.topology.ranks(),
            "machines": machines,
            "gpus_per_machine": gpus,
            "groups": run.groups(),
            "sequences_per_rank": run.sequences_per_rank(),
            "sync": run.ranks.sync.word(),
            "link": inside.map(|link| link.name),
            "network": network.map(|link| link.name),
            "bytes_per_second": whole(of.rate),
            "gather_bytes_per_second": whole(of.gather),
            "latency_seconds": of.latency,
            "zero": self.zero.is_some(),
            "zero_saves_bytes": self.zero.map(|zero| zero.saved),
            "fits_without_zero": self.zero.map(|zero| zero.fits_without),
            "sent_bytes_per_iteration": sent.bytes,
            "iteration_seconds": self.iteration,
            "communication_seconds": known(sent.seconds),
            "hidden_seconds": known(sent.hidden()),
            "exposed_seconds": known(sent.exposed),
        })
    }
}

impl Zero {
    fn line(self) -> String {
        let saved = Bytes::new(self.saved).unwrap_or(Bytes::ZERO);
        let without = if self.fits_without { "" } else { ", with which these slices do not fit" };
        format!("ZeRO-1 saves {saved} on each GPU, compared with zero=0{without}")
    }
}
