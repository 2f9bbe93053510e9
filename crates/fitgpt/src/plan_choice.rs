//! Times plans that the cost model cannot tell apart, once, at the start of a long run on a GPU,
//! and remembers the fastest. Which plans are rivals follows from settings and budget alone, so
//! `plan` finds the choice that `train` will find.

use crate::device::Device;
use crate::timing::{self, Count, median};
use crate::{interrupt, screen};
use cache::Ignored;
use model::Dims;
use plan::BackendError;
use plan::fnv::Fnv;
use search::{Cut, Machine, Planned, SearchError, best_plans, plan_again};
use serde_json::{Map, Value, json};
use spec::RunSpec;
use std::path::PathBuf;
use std::time::Instant;
use train::TrainError;
use train::engine::Engine;

/// How many plans are compared.
const MOST: usize = 3;

/// The error of the cost model: plans within this factor of the best may be faster than it.
const ERROR: f64 = 1.03;

/// A plan must be measured this much faster than the predicted best to be taken.
const WORTH_IT: f64 = 0.995;

/// The longest that timing may take: seconds, and share of the run's predicted time.
const MOST_SECONDS: f64 = 10.0;
const MOST_OF_RUN: f64 = 0.01;

/// Assumed seconds to load a plan, and weights that are drawn in a second.
const LOADING: f64 = 1.5;
const DRAWN: f64 = 3e8;

/// Iterations that are timed, and those before them.
const COUNT: Count = Count { least: 1, most: 4, seconds: 0.5 };
const NOT_TIMED: f64 = timing::WARM_UP as f64;

const SCHEMA: &str = "fitgpt.plans/1";

/// A larger file is not ours.
const MOST_BYTES: u64 = 1 << 20;

/// The most choices that are kept.
const MOST_KEPT: usize = 1000;

/// Plans whose predicted times are within the cost model's error, the predicted best first.
pub struct Rivals<'a> {
    run: &'a RunSpec,
    dims: Dims,
    machine: &'a Machine,
    device: &'a Device,
    plans: Vec<Planned>,
}

impl<'a> Rivals<'a> {
    /// None where nothing is to be chosen: on a CPU, without `autotune`, or if one plan is clearly
    /// the fastest, or none fits.
    pub fn find(
        run: &'a RunSpec,
        dims: Dims,
        machine: &'a Machine,
        device: &'a Device,
    ) -> Result<Option<Rivals<'a>>, SearchError> {
        if !run.autotune || run.eval_only || !matches!(device, Device::Cuda(_)) {
            return Ok(None);
        }
        let mut plans = match best_plans(run, dims, machine, MOST) {
            Err(SearchError::DoesNotFit(_)) => return Ok(None),
            found => found?,
        };
        let slowest = plans.first().map_or(0.0, |best| best.seconds * ERROR);
        plans.retain(|planned| planned.seconds <= slowest);
        Ok((plans.len() > 1).then_some(Rivals { run, dims, machine, device, plans }))
    }

    /// Number of plans.
    pub fn count(&self) -> usize {
        self.plans.len()
    }

    /// The plan that was the fastest when they were timed; none if they were not.
    pub fn known(&self) -> Option<Cut> {
        let kept = kept(self.device);
        let hash = kept.get(&self.key())?["fastest"].as_str()?.to_string();
        self.plans.iter().find(|planned| text(planned.hash()) == hash).and_then(Planned::cut)
    }

    /// Whether the run is so long that timing them takes a small part of it.
    pub fn is_worth_timing(&self) -> bool {
        self.estimate() <= self.limit()
    }

    /// Times them, says so, and remembers the fastest. Returns none if fewer than two could be
    /// timed.
    pub fn time(&self) -> Result<Option<Cut>, TrainError> {
        let count = self.count();
        screen::note(&format!("timing {count} plans predicted as equally fast (only once) …"));
        let (start, limit) = (Instant::now(), self.limit());
        let mut seconds: Vec<Option<f64>> = Vec::new();
        for planned in &self.plans {
            let longest = start.elapsed().as_secs_f64() / seconds.len().max(1) as f64;
            let is_late = start.elapsed().as_secs_f64() + longest > limit && !seconds.is_empty();
            seconds.push(if is_late { None } else { self.seconds(planned) });
        }
        let Some(fastest) = fastest(&seconds) else {
            return Ok(None);
        };
        let shown = |seconds: &Option<f64>| {
            seconds.map_or("not timed".to_string(), |seconds| format!("{:.1} ms", 1e3 * seconds))
        };
        let all: Vec<String> = seconds.iter().map(shown).collect();
        let took = start.elapsed().as_secs_f64();
        screen::note(&format!(
            "timed {count} plans in {took:.1} s: {} an iteration; plan {} is taken",
            all.join(", "),
            fastest + 1
        ));
        self.keep(&self.plans[fastest], &seconds);
        Ok(self.plans[fastest].cut())
    }

    /// Seconds of an iteration; none if the plan does not load.
    fn seconds(&self, planned: &Planned) -> Option<f64> {
        let Rivals { run, dims, device, .. } = *self;
        let cut = planned.cut()?;
        // If driver and code hold more than assumed, the plan may no longer fit.
        let plan = |machine: &Machine| {
            let again = plan_again(run, dims, machine, &cut)?;
            again.map_err(|what| TrainError::from(BackendError::Refused { what }))
        };
        let mut machine = self.machine.clone();
        let loaded = device.load_planned(run, &mut machine, &[], &|_: &str| {}, plan);
        let (planned, backend) = loaded.ok()?;
        let mut engine = Engine::new(backend, planned.program, dims);
        let timed = interrupt::nothing_to_save(|| {
            engine.initialise(&mut rng::torch::Generator::new(run.seed))?;
            timing::training(&mut engine, run, dims.vocab_size, COUNT)
        });
        timed.ok().and_then(median)
    }

    /// Seconds that timing is expected to take.
    fn estimate(&self) -> f64 {
        let weights = self.run.architecture().reported_parameters(&self.dims).unwrap_or(u64::MAX);
        let one = |planned: &Planned| {
            let timed = (COUNT.seconds / planned.seconds).clamp(1.0, COUNT.most as f64);
            LOADING + weights as f64 / DRAWN + (NOT_TIMED + timed) * planned.seconds
        };
        self.plans.iter().map(one).sum()
    }

    /// Seconds that timing may take.
    fn limit(&self) -> f64 {
        let run = self.plans.first().map(|best| best.predict(self.run, &self.machine.hardware));
        let run_seconds = run.map_or(0.0, |prediction| prediction.run_seconds);
        MOST_SECONDS.min(MOST_OF_RUN * run_seconds)
    }

    /// Identifies the plans. A hash stands for the model, its formats, the budget and all that a
    /// plan consists of.
    fn key(&self) -> String {
        let hashes: Vec<String> = self.plans.iter().map(|plan| text(plan.hash())).collect();
        hashes.join(" ")
    }

    /// Remembers the fastest. A cache that cannot be written costs time, not the run.
    fn keep(&self, fastest: &Planned, seconds: &[Option<f64>]) {
        let Some(path) = file(self.device) else { return };
        let mut plans = kept(self.device);
        if plans.len() >= MOST_KEPT {
            plans.clear();
        }
        let ms: Vec<Option<f64>> = seconds.iter().map(|time| time.map(|s| 1e3 * s)).collect();
        plans.insert(self.key(), json!({ "fastest": text(fastest.hash()), "ms": ms }));
        let document = json!({ "schema": SCHEMA, "device": self.device.kind(), "plans": plans });
        let _ = cache::write(&path, format!("{document:#}\n").as_bytes());
    }
}

/// The index of the fastest; the first one, unless another is clearly faster. None if fewer than
/// two were timed.
fn fastest(seconds: &[Option<f64>]) -> Option<usize> {
    let timed = seconds.iter().enumerate().filter_map(|(index, time)| Some((index, (*time)?)));
    let least = timed.clone().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let is_choice = timed.count() > 1;
    let first = seconds.first().copied().flatten();
    let index = match first {
        Some(first) if least.1 > first * WORTH_IT => 0,
        _ => least.0,
    };
    is_choice.then_some(index)
}

fn text(hash: u64) -> String {
    format!("{hash:016x}")
}

/// The file for a device with its libraries; none if there is no cache folder.
fn file(device: &Device) -> Option<PathBuf> {
    let name = format!("plans-{:016x}.json", Fnv::of(device.kind()));
    Some(cache::folder()?.join(name))
}

/// The choices kept for a device; empty if there are none. If the file cannot be used, a line says
/// why.
fn kept(device: &Device) -> Map<String, Value> {
    let Some(path) = file(device) else { return Map::new() };
    match cache::read(&path, MOST_BYTES).and_then(|content| decode(&content, &device.kind())) {
        Ok(plans) => plans,
        Err(Ignored::Absent) => Map::new(),
        Err(why) => {
            screen::note(&format!("note: {} is ignored: {why}", path.display()));
            Map::new()
        }
    }
}

/// The choices in a file's content.
fn decode(content: &[u8], device: &str) -> Result<Map<String, Value>, Ignored> {
    let damaged = || Ignored::Content("it is damaged");
    let json: Value = serde_json::from_slice(content).map_err(|_| damaged())?;
    if json["schema"] != SCHEMA || json["device"] != device {
        return Err(Ignored::Content("it is from another version"));
    }
    json["plans"].as_object().cloned().ok_or_else(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_kept_unless_another_is_clearly_faster() {
        assert_eq!(fastest(&[Some(1.0), Some(0.999), Some(1.1)]), Some(0));
        assert_eq!(fastest(&[Some(1.0), Some(1.1), Some(0.99)]), Some(2));
        assert_eq!(fastest(&[None, Some(1.0), Some(0.999)]), Some(2), "the first did not load");
        assert_eq!(fastest(&[Some(1.0), None, None]), None, "nothing was compared");
        assert_eq!(fastest(&[None, None]), None);
    }

    #[test]
    fn only_a_file_of_this_device_is_used() {
        let content = json!({
            "schema": SCHEMA,
            "device": "cuda sm_90",
            "plans": { "a b": { "fastest": "b", "ms": [2.0, 1.0] } },
        });
        let content = content.to_string();
        let found = decode(content.as_bytes(), "cuda sm_90").unwrap();
        assert_eq!(found["a b"]["fastest"], "b");
        assert!(decode(content.as_bytes(), "cuda sm_80").is_err());
        assert!(decode(&content.as_bytes()[1..], "cuda sm_90").is_err());
        let empty = json!({ "schema": SCHEMA, "device": "cuda sm_90" }).to_string();
        assert!(decode(empty.as_bytes(), "cuda sm_90").is_err());
    }
}
