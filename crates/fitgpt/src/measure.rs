//! Step times for `fitgpt plan --measure` and `bench`: runs the plan's segments on this machine,
//! keeps how long each step took, and finds the times again for later predictions. The planner
//! never uses them: two runs with the same settings are cut the same way, measured or not.

use crate::device::Device;
use crate::screen;
use cache::Ignored;
use model::Program;
use plan::cost::step_seconds;
use plan::hardware::Hardware;
use plan::op_times::{OpTimes, Sample, key};
use plan::{Backend, Plan, SegmentId, StepInputs, TensorId};
use serde_json::{Map, Value, json};
use spec::RunSpec;
use std::path::PathBuf;
use std::sync::Once;
use train::TrainError;

/// How often each segment runs; the first round warms up the caches.
const ROUNDS: usize = 3;

const SCHEMA: &str = "fitgpt.op_times/2";

/// A larger file is not ours: thousands of steps take a tenth of this.
const MOST_BYTES: u64 = 1 << 20;

/// How long each step of a segment took, in each round after the warm-up.
pub struct SegmentTimes {
    /// Which segment.
    pub segment: SegmentId,
    rounds: Vec<Vec<f64>>,
}

impl SegmentTimes {
    /// Seconds of each step in its fastest round: disturbances only make a step slower.
    pub fn quickest(&self) -> Vec<f64> {
        let steps = self.rounds.first().map_or(0, Vec::len);
        let of = |step: usize| self.rounds.iter().map(|round| round[step]).fold(f64::MAX, f64::min);
        (0..steps).map(of).collect()
    }
}

/// Number of elements of a tensor.
fn count(backend: &dyn Backend, tensor: TensorId) -> u64 {
    backend.plan().schedule.tensors.get(tensor).shape.elements()
}

/// Runs the training slices, the evaluation and the update of a loaded program and times each step.
pub fn time_segments(
    backend: &mut dyn Backend,
    program: &Program,
    vocabulary: u64,
) -> Result<Vec<SegmentTimes>, TrainError> {
    let losses = program.train.iter().chain(&program.eval);
    let mut segments: Vec<(SegmentId, Vec<TensorId>)> =
        losses.map(|slice| (slice.segment, vec![slice.tokens, slice.targets])).collect();
    segments.extend(program.update.map(|update| (update, Vec::new())));
    let mut found = Vec::new();
    for (segment, inputs) in segments {
        // Mean loss, not the sum: a sum over all tokens could overflow 16 bits.
        let tokens = inputs.first().map_or(1, |&input| count(backend, input));
        let inverse_tokens = 1.0 / tokens as f32;
        let step = StepInputs { lr: 1e-4, grad_clip: 1.0, inverse_tokens, ..StepInputs::default() };
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            for &input in &inputs {
                let ids = zipf(count(backend, input), vocabulary).flat_map(i32::to_le_bytes);
                backend.write(input, &ids.collect::<Vec<u8>>())?;
            }
            rounds.push(backend.run_timed(segment, &step)?);
        }
        found.push(SegmentTimes { segment, rounds: rounds.split_off(1) });
    }
    Ok(found)
}

/// Averages the times by kind of step, for predictions.
pub fn op_times(plan: &Plan, times: &[SegmentTimes], rates: &Hardware) -> OpTimes {
    let of = |times: &SegmentTimes| {
        let rounds = times.rounds.iter();
        rounds.flat_map(|round| of_segment(plan, times.segment, round, rates)).collect::<Vec<_>>()
    };
    OpTimes::new(&times.iter().flat_map(of).collect::<Vec<_>>())
}

/// Ids as frequent as in text: by Zipf's law, id k about as often as 1 / (k + 1). Cross-entropy and
/// the gradient of the embedding depend on it.
pub fn zipf(count: u64, vocabulary: u64) -> impl Iterator<Item = i32> {
    /// 2^64 over the golden ratio: its multiples, modulo 2^64, are spread evenly.
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let last = vocabulary.max(1) - 1;
    let logarithm = (vocabulary as f64 + 1.0).ln();
    (0..count).map(move |index| {
        let uniform = index.wrapping_mul(GOLDEN) as f64 / 2f64.powi(64);
        ((uniform * logarithm).exp_m1() as u64).min(last) as i32
    })
}

/// The rates of this machine, measured now, and the kept step times.
pub fn rates(device: &Device, run: &RunSpec) -> Hardware {
    Hardware { times: find(device), ..device.measured(run) }
}

/// Identifies this build of the program; kept times are valid for it only.
pub fn build() -> String {
    let program = std::env::current_exe().and_then(std::fs::metadata);
    let changed = program.and_then(|meta| Ok((meta.len(), meta.modified()?)));
    let stamp = changed.ok().and_then(|(bytes, time)| {
        let seconds = time.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
        Some(format!("{bytes}-{seconds}"))
    });
    format!("{} {}", env!("CARGO_PKG_VERSION"), stamp.unwrap_or_default())
}

fn of_segment(plan: &Plan, segment: SegmentId, seconds: &[f64], rates: &Hardware) -> Vec<Sample> {
    let tensors = &plan.schedule.tensors;
    let steps = &plan.schedule.segment(segment).steps;
    let sample = |(step, &measured): (&plan::Step, &f64)| Sample {
        key: key(&step.op, tensors),
        op: step.op.operation().name(),
        measured,
        predicted: step_seconds(&step.op, tensors, rates),
    };
    steps.iter().zip(seconds).map(sample).collect()
}

/// The file for a device's times; none if there is no cache folder.
pub fn file(device: &Device) -> Option<PathBuf> {
    file_of(&device.name())
}

fn file_of(device: &str) -> Option<PathBuf> {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = device.chars().map(plain).collect();
    Some(cache::folder()?.join(format!("op-times-{name}.json")))
}

/// Keeps times for later, merged with those kept before.
pub fn keep(times: &OpTimes, device: &Device) -> Result<Option<PathBuf>, TrainError> {
    let Some(path) = file(device) else {
        return Ok(None);
    };
    let mut all = find(device);
    all.join(times);
    let steps = Map::from_iter(all.steps.iter().map(|(key, time)| (key.clone(), json!(time))));
    let sums = Map::from_iter(all.sums.iter().map(|(op, sums)| (op.clone(), json!(sums))));
    let document = json!({
        "schema": SCHEMA, "device": device.name(), "build": build(),
        "steps": steps, "sums": sums,
    });
    let failed = |error| TrainError::Io {
        path: path.clone(),
        doing: "write",
        error,
        advice: "set FITGPT_CACHE to a writable folder",
    };
    cache::write(&path, format!("{document:#}\n").as_bytes()).map_err(failed)?;
    Ok(Some(path))
}

/// The kept times; empty if there are none. If the file cannot be used, one line says why.
pub fn find(device: &Device) -> OpTimes {
    find_named(&device.name())
}

/// The same for a device that is not opened.
pub fn find_named(device: &str) -> OpTimes {
    static TOLD: Once = Once::new();
    let Some(path) = file_of(device) else {
        return OpTimes::default();
    };
    match cache::read(&path, MOST_BYTES).and_then(|content| decode(&content)) {
        Ok(times) => times,
        Err(Ignored::Absent) => OpTimes::default(),
        Err(why) => {
            TOLD.call_once(|| {
                screen::note(&format!("note: {} is ignored: {why}", path.display()));
            });
            OpTimes::default()
        }
    }
}

/// The times in a file's content.
fn decode(content: &[u8]) -> Result<OpTimes, Ignored> {
    let damaged = Ignored::Content("it is damaged");
    let json: Value = serde_json::from_slice(content).map_err(|_| damaged)?;
    if json["schema"] != SCHEMA || json["build"] != build().as_str() {
        return Err(Ignored::Content(
            "it was measured by another build of fitgpt; run `fitgpt plan --measure` again",
        ));
    }
    times(&json).ok_or(Ignored::Content("it is damaged"))
}

fn times(json: &Value) -> Option<OpTimes> {
    let time = |value: &Value| value.as_f64().filter(|time| time.is_finite() && *time >= 0.0);
    let steps = json["steps"].as_object()?.iter();
    let steps = steps.map(|(key, value)| Some((key.clone(), time(value)?)));
    let sums = json["sums"].as_object()?.iter().map(|(op, sums)| {
        let sums = [time(sums.get(0)?)?, time(sums.get(1)?)?];
        Some((op.clone(), sums))
    });
    Some(OpTimes { steps: steps.collect::<Option<_>>()?, sums: sums.collect::<Option<_>>()? })
}
