//! Times plans any of which may be the fastest, once, at the start of a long run on a GPU,
//! and remembers the fastest. Which plans are rivals follows from settings and budgets, so `plan`
//! finds the choice that `train` will find. The default budgets follow the memory that is free:
//! give `vram`, and `ram` where `offload` permits activations there, to fix them.

use crate::device::Device;
use crate::timing::{self, Count, median};
use crate::{interrupt, measure, screen};
use cache::Ignored;
use model::Dims;
use plan::fnv::Fnv;
use plan::{Backend, BackendError};
use search::{Cut, Machine, Planned, SearchError, best_plans, plan_again};
use serde_json::{Map, Value, json};
use spec::RunSpec;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use train::TrainError;
use train::engine::Engine;

/// How many plans are compared.
const MOST: usize = 3;

/// The error of the cost model: plans within this factor of the best may be faster than it.
const ERROR: f64 = 1.03;

/// A plan must be measured this much faster than the predicted best to be taken.
const WORTH_IT: f64 = 0.995;

/// The longest that timing may take: seconds, and share of the run's predicted time. Preparing
/// counts for the share only.
const MOST_SECONDS: f64 = 10.0;
const MOST_OF_RUN: f64 = 0.01;

/// Assumed seconds to load a plan, and weights that are drawn in a second.
const LOADING: f64 = 1.5;
const DRAWN: f64 = 3e8;

/// The most seconds that timing the matmuls of a plan takes.
const MATMULS: f64 = 6.0;

/// How long to wait for another run that times plans.
const PATIENCE: Duration = Duration::from_secs(12);

/// Iterations that are timed, and those before them.
const COUNT: Count = Count { least: 1, most: 4, seconds: 0.5 };
const NOT_TIMED: f64 = timing::WARM_UP as f64;

const SCHEMA: &str = "fitgpt.plans/2";

/// A larger file is not ours.
const MOST_BYTES: u64 = 1 << 20;

/// The most choices that are kept.
const MOST_KEPT: usize = 1000;

/// Plans whose predicted times are within the cost model's error, the predicted best first. If it
/// keeps activations in host memory, the second is the best of those that do not, however slow it
/// is predicted to be.
pub struct Rivals<'a> {
    run: &'a RunSpec,
    dims: Dims,
    machine: &'a Machine,
    device: &'a Device,
    plans: Vec<Planned>,
}

impl<'a> Rivals<'a> {
    /// None where nothing is to be chosen: on a CPU, without `autotune`, or if no other plan may be
    /// as fast as the first, or none fits.
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
        let uses_host = |planned: &Planned| planned.cut().is_some_and(|c| c.layers_on_host() > 0);
        let predicted: Vec<_> = plans.iter().map(|one| (one.seconds, uses_host(one))).collect();
        let mut are_rivals = are_rivals(&predicted).into_iter();
        plans.retain(|_| are_rivals.next().unwrap_or(false));
        Ok((plans.len() > 1).then_some(Rivals { run, dims, machine, device, plans }))
    }

    /// What is known without timing.
    pub fn choice(&self) -> Choice {
        let kept = kept(self.device);
        let fastest = self.fastest_of(&kept);
        let is_open = fastest.is_none() && self.is_worth_timing(&kept);
        Choice { fastest, open: if is_open { self.plans.len() } else { 0 } }
    }

    /// The fastest plan, if they were timed before. If not, and the run is long, times them and
    /// remembers the fastest. A signal during that time ends the process.
    pub fn choose(&self) -> Option<Cut> {
        let Choice { fastest, open } = self.choice();
        match open {
            0 => fastest,
            _ => interrupt::nothing_to_save(|| self.choose_by_timing()),
        }
    }

    /// The plan that was the fastest when they were timed; none if they were not.
    fn fastest_of(&self, kept: &Map<String, Value>) -> Option<Cut> {
        let hash = kept.get(&self.key())?["fastest"].as_str()?;
        self.plans.iter().find(|planned| text(planned.hash()) == hash).and_then(Planned::cut)
    }

    /// Times them, says so, and remembers the fastest. One process does so at a time: the next one
    /// finds the result.
    fn choose_by_timing(&self) -> Option<Cut> {
        let count = self.plans.len();
        screen::note(&format!(
            "timing {count} plans, any of which may be the fastest (only once) …"
        ));
        let Some(_lock) = lock() else {
            screen::note(
                "another run times plans, or the cache cannot be written: plan 1 is taken untimed",
            );
            return None;
        };
        let kept = kept(self.device);
        if let Some(cut) = self.fastest_of(&kept) {
            screen::note("another run has timed these plans: its choice is taken");
            return Some(cut);
        }
        for index in self.unprepared(&kept) {
            let _ = self.load(&self.plans[index]);
        }
        let (start, limit) = (Instant::now(), limit(self.run_seconds()));
        let clock = || start.elapsed().as_secs_f64();
        let timings = time_within(limit, &self.plans, clock, |planned| self.seconds(planned));
        let fastest = fastest(&timings);
        screen::note(&outcome(&timings, fastest, clock()));
        // Without a result a later run tries again, but only once: the plans may load too slowly.
        let decided = fastest.or(kept.contains_key(&self.key()).then_some(0));
        self.keep(kept, decided.map(|index| &self.plans[index]), &timings);
        self.plans[fastest?].cut()
    }

    /// Indices of the plans that take longer to load for the first time: their matmuls must be
    /// timed, or the kernels of a new build compiled, which are nearly the same for all.
    fn unprepared(&self, kept: &Map<String, Value>) -> Vec<usize> {
        let is_untimed = |planned: &Planned| {
            let untimed = self.device.untimed_matmuls(&planned.plan, self.run, &[]);
            untimed.is_ok_and(|untimed| untimed > 0)
        };
        let is_new = |index| index == 0 && kept.is_empty();
        let plans = self.plans.iter().enumerate();
        plans.filter(|&(i, planned)| is_new(i) || is_untimed(planned)).map(|(i, _)| i).collect()
    }

    /// Whether the run is so long that timing them takes a small part of it.
    fn is_worth_timing(&self, kept: &Map<String, Value>) -> bool {
        // The run needs the matmuls of one plan anyway.
        let one = |&index: &usize| LOADING + if index == 0 { 0.0 } else { MATMULS };
        let preparing = self.unprepared(kept).iter().map(one).sum();
        is_worth_it(self.estimate(), preparing, self.run_seconds())
    }

    /// Loads a plan; none if it no longer fits, because driver and code hold more than assumed.
    fn load(&self, planned: &Planned) -> Option<(Planned, Box<dyn Backend>)> {
        let Rivals { run, dims, device, .. } = *self;
        let cut = planned.cut()?;
        let plan = |machine: &Machine| {
            let again = plan_again(run, dims, machine, &cut)?;
            again.map_err(|what| TrainError::from(BackendError::Refused { what }))
        };
        let mut machine = self.machine.clone();
        device.load_planned(run, &mut machine, &[], &|_: &str| {}, plan).ok()
    }

    /// Seconds of an iteration; none if the plan does not load.
    fn seconds(&self, planned: &Planned) -> Option<f64> {
        let (planned, backend) = self.load(planned)?;
        let mut engine = Engine::new(backend, planned.program, self.dims);
        engine.initialise(&mut rng::torch::Generator::new(self.run.seed)).ok()?;
        let timed = timing::training(&mut engine, self.run, self.dims.vocab_size, COUNT);
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

    /// Predicted seconds of the whole run.
    fn run_seconds(&self) -> f64 {
        let run = self.plans.first().map(|best| best.predict(self.run, &self.machine.hardware));
        run.map_or(0.0, |prediction| prediction.run_seconds)
    }

    /// Identifies the plans. A hash stands for the model, its formats, the budget and all that a
    /// plan consists of.
    fn key(&self) -> String {
        let hashes: Vec<String> = self.plans.iter().map(|plan| text(plan.hash())).collect();
        hashes.join(" ")
    }

    /// Adds the fastest, or that none was found, to what is kept. A cache that cannot be written
    /// costs time, not the run.
    fn keep(&self, mut plans: Map<String, Value>, fastest: Option<&Planned>, timings: &[Timing]) {
        let Some(path) = file(self.device) else { return };
        if plans.len() >= MOST_KEPT {
            plans.clear();
        }
        let fastest = fastest.map(|planned| text(planned.hash()));
        let ms: Vec<Option<f64>> = timings.iter().map(|one| Some(1e3 * one.seconds()?)).collect();
        plans.insert(self.key(), json!({ "fastest": fastest, "ms": ms }));
        let (device, build) = (self.device.kind(), measure::build());
        let document =
            json!({ "schema": SCHEMA, "device": device, "build": build, "plans": plans });
        let _ = cache::write(&path, format!("{document:#}\n").as_bytes());
    }
}

/// Which plans to time, given the predicted seconds of each and whether it keeps activations in
/// host memory; the predicted best is first. If that keeps some there, the best without is timed in
/// any case: predictions are least certain of the link's rate.
fn are_rivals(plans: &[(f64, bool)]) -> Vec<bool> {
    let Some(&(least, uses_host)) = plans.first() else { return Vec::new() };
    let without = plans.iter().position(|&(_, uses_host)| !uses_host).filter(|_| uses_host);
    let of = |(index, &(seconds, _)): (usize, &(f64, bool))| {
        seconds <= least * ERROR || without == Some(index)
    };
    plans.iter().enumerate().map(of).collect()
}

/// What is known about rivals; the default if there are none.
#[derive(Default)]
pub struct Choice {
    /// The fastest when they were timed.
    pub fastest: Option<Cut>,
    /// How many `train` will time; 0 if it will not.
    pub open: usize,
}

/// What timing a plan gave.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Timing {
    /// Seconds of an iteration.
    Seconds(f64),
    DoesNotLoad,
    NoTime,
}

impl Timing {
    fn seconds(self) -> Option<f64> {
        match self {
            Timing::Seconds(seconds) => Some(seconds),
            Timing::DoesNotLoad | Timing::NoTime => None,
        }
    }
}

/// Seconds that timing may take.
fn limit(run_seconds: f64) -> f64 {
    MOST_SECONDS.min(MOST_OF_RUN * run_seconds)
}

/// Whether timing fits its limit, and with preparing its share of the run.
fn is_worth_it(timing: f64, preparing: f64, run_seconds: f64) -> bool {
    timing <= limit(run_seconds) && timing + preparing <= MOST_OF_RUN * run_seconds
}

/// Times plans one after another, the first in any case. Stops if the next would end after `limit`
/// seconds, should it take as long as the longest before it.
fn time_within<T>(
    limit: f64,
    plans: &[T],
    clock: impl Fn() -> f64,
    mut time: impl FnMut(&T) -> Option<f64>,
) -> Vec<Timing> {
    let (mut longest, begin) = (0.0_f64, clock());
    let mut one = |(index, plan): (usize, &T)| {
        let start = clock();
        if index > 0 && start - begin + longest > limit {
            return Timing::NoTime;
        }
        let timing = time(plan).map_or(Timing::DoesNotLoad, Timing::Seconds);
        longest = longest.max(clock() - start);
        timing
    };
    plans.iter().enumerate().map(&mut one).collect()
}

/// The index of the fastest; the first one, unless another is clearly faster. None if there was no
/// time to compare two, or none loads.
fn fastest(timings: &[Timing]) -> Option<usize> {
    let timed = timings.iter().enumerate().filter_map(|(index, one)| Some((index, one.seconds()?)));
    let least = timed.clone().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let is_choice = timed.count() > 1 || !timings.contains(&Timing::NoTime);
    let index = match timings.first().and_then(|first| first.seconds()) {
        Some(first) if least.1 > first * WORTH_IT => 0,
        _ => least.0,
    };
    is_choice.then_some(index)
}

/// The line that says what timing found.
fn outcome(timings: &[Timing], fastest: Option<usize>, took: f64) -> String {
    let shown = |(index, one): (usize, &Timing)| match one {
        Timing::Seconds(seconds) => format!("plan {} {:.1} ms", index + 1, 1e3 * seconds),
        Timing::DoesNotLoad => format!("plan {} does not load", index + 1),
        Timing::NoTime => format!("plan {} not timed", index + 1),
    };
    let all: Vec<String> = timings.iter().enumerate().map(shown).collect();
    let end = match fastest {
        Some(index) => format!("plan {} is taken", index + 1),
        None => "too few to compare, so plan 1 is taken".to_string(),
    };
    format!("iterations timed in {took:.1} s: {}; {end}", all.join(", "))
}

/// Keeps others from timing at the same time, which would disturb both. None if there is no cache,
/// or another run takes too long.
fn lock() -> Option<File> {
    let path = cache::folder()?.join("plans.lock");
    cache::lock(&path, PATIENCE)
}

fn text(hash: u64) -> String {
    format!("{hash:016x}")
}

/// The file for a device with its libraries and this build, whose kernels may be faster than those
/// of another; none if there is no cache folder.
fn file(device: &Device) -> Option<PathBuf> {
    Some(cache::folder()?.join(name(&device.kind(), &measure::build())))
}

fn name(device: &str, build: &str) -> String {
    format!("plans-{:016x}.json", Fnv::of(format!("{device}, {build}")))
}

/// The choices kept for a device; empty if there are none. If the file cannot be used, a line says
/// why.
fn kept(device: &Device) -> Map<String, Value> {
    let Some(path) = file(device) else { return Map::new() };
    let content = cache::read(&path, MOST_BYTES);
    match content.and_then(|content| decode(&content, &device.kind(), &measure::build())) {
        Ok(plans) => plans,
        Err(Ignored::Absent) => Map::new(),
        Err(why) => {
            screen::note(&format!("note: {} is ignored: {why}", path.display()));
            Map::new()
        }
    }
}

/// The choices in a file's content.
fn decode(content: &[u8], device: &str, build: &str) -> Result<Map<String, Value>, Ignored> {
    let damaged = || Ignored::Content("it is damaged");
    let json: Value = serde_json::from_slice(content).map_err(|_| damaged())?;
    if json["schema"] != SCHEMA || json["device"] != device || json["build"] != build {
        return Err(Ignored::Content("it is from another version"));
    }
    json["plans"].as_object().cloned().ok_or_else(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    use Timing::{DoesNotLoad, NoTime, Seconds};
    use std::cell::Cell;

    #[test]
    fn plans_as_fast_as_the_best_are_timed_and_one_without_copies() {
        let (near, far) = (0.999 * ERROR, 1.001 * ERROR);
        assert_eq!(are_rivals(&[(1.0, false), (near, false), (far, false)]), [true, true, false]);
        let plans = [(1.0, true), (far, true), (far, false), (far, false)];
        assert_eq!(are_rivals(&plans), [true, false, true, false]);
        // The best needs no link.
        assert_eq!(are_rivals(&[(1.0, false), (near, true), (far, true)]), [true, true, false]);
        assert!(are_rivals(&[]).is_empty());
    }

    #[test]
    fn the_first_is_kept_unless_another_is_clearly_faster() {
        assert_eq!(fastest(&[Seconds(1.0), Seconds(0.999), Seconds(1.1)]), Some(0));
        assert_eq!(fastest(&[Seconds(1.0), Seconds(1.1), Seconds(0.99)]), Some(2));
        assert_eq!(fastest(&[DoesNotLoad, Seconds(1.0), Seconds(0.999)]), Some(2));
        assert_eq!(fastest(&[Seconds(1.0), Seconds(0.9), NoTime]), Some(1));
        assert_eq!(fastest(&[Seconds(1.0), NoTime, NoTime]), None, "nothing was compared");
        assert_eq!(fastest(&[Seconds(1.0), DoesNotLoad]), Some(0), "no other can run");
        assert_eq!(fastest(&[DoesNotLoad, DoesNotLoad]), None);
    }

    /// Times plans that take so many seconds on a clock of our own.
    fn timed(limit: f64, plans: &[f64]) -> (Vec<Timing>, f64) {
        let now = Cell::new(100.0);
        let time = |seconds: &f64| {
            now.set(now.get() + seconds);
            Some(*seconds)
        };
        (time_within(limit, plans, || now.get(), time), now.get() - 100.0)
    }

    #[test]
    fn timing_stops_before_its_limit() {
        assert_eq!(timed(10.0, &[3.0, 3.0, 3.0]).0, [Seconds(3.0); 3]);
        // The mean of the first two would leave time for a third.
        assert_eq!(timed(10.0, &[5.0, 1.0, 5.0]).0, [Seconds(5.0), Seconds(1.0), NoTime]);
        assert_eq!(timed(10.0, &[12.0, 1.0]), (vec![Seconds(12.0), NoTime], 12.0));
    }

    #[test]
    fn a_short_run_is_not_delayed() {
        let least = 2.0 * LOADING;
        assert!(!is_worth_it(least, 0.0, 299.0) && is_worth_it(least, 0.0, 301.0));
        assert!(!is_worth_it(10.1, 0.0, 1e6), "at most ten seconds, however long the run is");
        let cold = 2.0 * MATMULS;
        assert!(!is_worth_it(5.0, cold, 1600.0) && is_worth_it(5.0, cold, 1800.0));
    }

    #[test]
    fn every_outcome_is_said() {
        let timings = [Seconds(0.2), Seconds(0.1), DoesNotLoad];
        let want = "iterations timed in 4.0 s: plan 1 200.0 ms, plan 2 100.0 ms, plan 3 does not \
                    load; plan 2 is taken";
        assert_eq!(outcome(&timings, fastest(&timings), 4.0), want);
        let timings = [Seconds(0.2), NoTime];
        let want = "iterations timed in 11.0 s: plan 1 200.0 ms, plan 2 not timed; too few to \
                    compare, so plan 1 is taken";
        assert_eq!(outcome(&timings, fastest(&timings), 11.0), want);
    }

    #[test]
    fn only_a_file_of_this_device_and_build_is_used() {
        let content = json!({
            "schema": SCHEMA,
            "device": "cuda sm_90",
            "build": "1.0 1-2",
            "plans": { "a b": { "fastest": "b", "ms": [2.0, 1.0] } },
        });
        let content = content.to_string();
        let found = decode(content.as_bytes(), "cuda sm_90", "1.0 1-2").unwrap();
        assert_eq!(found["a b"]["fastest"], "b");
        assert!(decode(content.as_bytes(), "cuda sm_80", "1.0 1-2").is_err());
        assert!(decode(content.as_bytes(), "cuda sm_90", "1.1 3-4").is_err());
        assert!(decode(&content.as_bytes()[1..], "cuda sm_90", "1.0 1-2").is_err());
        assert_ne!(name("cuda sm_90", "1.0 1-2"), name("cuda sm_90", "1.1 3-4"));
        let empty = json!({ "schema": SCHEMA, "device": "cuda sm_90", "build": "1.0 1-2" });
        assert!(decode(empty.to_string().as_bytes(), "cuda sm_90", "1.0 1-2").is_err());
    }
}
