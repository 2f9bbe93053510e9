//! The results of `bench`, as a table and as JSON (`fitgpt.bench/2`, `docs/bench-json.md`): steps
//! grouped by op, each compared with the ceiling that bounds it.

use crate::measure::SegmentTimes;
use crate::numbers::{grouped, short};
use crate::plan_report::sentence;
use crate::screen;
use model::Dims;
use plan::cost::{Ceiling, ceiling};
use plan::hardware::Hardware;
use plan::op_times::OpTimes;
use plan::{Bytes, SegmentId};
use search::{Planned, SearchError};
use serde_json::{Map, Value, json};
use spec::RunSpec;
use std::collections::BTreeMap;
use std::fmt::Write;

const SCHEMA: &str = "fitgpt.bench/2";

/// All results.
pub struct BenchReport {
    /// The device's name.
    pub device: String,
    /// The given settings.
    pub config: Map<String, Value>,
    /// Hash of the plan.
    pub plan_hash: u64,
    /// Tokens per iteration.
    pub tokens_per_iteration: u64,
    /// Tokens per evaluation batch.
    pub eval_tokens: u64,
    /// Number of timed iterations.
    pub iterations: usize,
    /// Median seconds of an iteration.
    pub seconds: Option<f64>,
    /// Median seconds of an evaluation batch.
    pub eval_seconds: Option<f64>,
    /// The predicted speed.
    pub predictions: Predictions,
    /// Memory on the device.
    pub memory: MemoryFacts,
    /// Steps of an iteration by op, slowest first.
    pub ops: Vec<OpRow>,
    /// Sequences of each slice.
    pub slices: Vec<u64>,
    /// The plan in one sentence.
    pub plan: Option<String>,
}

/// Tokens per second, predicted before anything was timed.
pub struct Predictions {
    by_rates: Option<f64>,
    by_times: Option<f64>,
}

impl Predictions {
    /// Predicts from the device's rates alone, and from the kept times of an earlier measurement.
    pub fn new(planned: &Planned, run: &RunSpec, rates: &Hardware, kept: OpTimes) -> Predictions {
        let of = |rates: &Hardware| planned.predict(run, rates).tokens_per_second;
        let by_times = (!kept.is_empty()).then(|| Hardware { times: kept, ..rates.clone() });
        Predictions { by_rates: of(rates), by_times: by_times.and_then(|rates| of(&rates)) }
    }
}

/// Bytes on the device.
pub struct MemoryFacts {
    /// Bytes of the arena.
    pub arena: u64,
    /// All bytes that the process holds according to the driver; none on the CPU.
    pub seen: Option<u64>,
}

impl MemoryFacts {
    /// Bytes of driver and code.
    fn context(&self) -> Option<u64> {
        self.seen.map(|seen| seen.saturating_sub(self.arena))
    }
}

/// All steps of one op in an iteration.
pub struct OpRow {
    name: &'static str,
    seconds: f64,
    /// Share of the time of all steps.
    share: f64,
    /// Seconds at the ceiling divided by measured seconds.
    of_ceiling: f64,
    bound_by: Ceiling,
}

/// Sums over the steps of an op.
#[derive(Default)]
struct Sum {
    seconds: f64,
    ceilings: BTreeMap<Ceiling, f64>,
}

impl OpRow {
    /// Sums up the training slices, each as often as an iteration runs it, and the update.
    pub fn all(planned: &Planned, times: &[SegmentTimes], rates: &Hardware) -> Vec<OpRow> {
        let program = &planned.program;
        let of_iteration: BTreeMap<SegmentId, u64> = program.runs().into_iter().collect();
        let schedule = &planned.plan.schedule;
        let mut sums: BTreeMap<&'static str, Sum> = BTreeMap::new();
        for times in times {
            let runs = of_iteration.get(&times.segment).map_or(0.0, |&runs| runs as f64);
            let steps = &schedule.segment(times.segment).steps;
            for (step, seconds) in steps.iter().zip(times.quickest()).filter(|_| runs > 0.0) {
                let sum = sums.entry(step.op.operation().name()).or_default();
                let (bound, at_ceiling) = ceiling(&step.op, &schedule.tensors, rates);
                sum.seconds += runs * seconds;
                *sum.ceilings.entry(bound).or_default() += runs * at_ceiling;
            }
        }
        let total: f64 = sums.values().map(|sum| sum.seconds).sum();
        let mut rows: Vec<OpRow> =
            sums.into_iter().map(|(name, sum)| OpRow::new(name, &sum, total)).collect();
        rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        rows
    }

    fn new(name: &'static str, sum: &Sum, total: f64) -> OpRow {
        let most = sum.ceilings.iter().max_by(|a, b| a.1.total_cmp(b.1));
        let over = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        OpRow {
            name,
            seconds: sum.seconds,
            share: over(sum.seconds, total),
            of_ceiling: over(sum.ceilings.values().sum(), sum.seconds),
            bound_by: most.map_or(Ceiling::Memory, |(bound, _)| *bound),
        }
    }
}

/// The lines that are printed before the timing.
pub fn title(
    run: &RunSpec,
    dims: &Dims,
    planned: &Planned,
    device: &str,
) -> Result<String, SearchError> {
    let parameters = run.architecture().reported_parameters(dims)?;
    let millions = parameters as f64 / 1e6;
    let tokens = grouped(run.tokens_per_iteration());
    let line =
        format!("{millions:.2}M parameters, {tokens} tokens per iteration, timed on {device}");
    let mut text = screen::wrapped(&line, 2, screen::wrap_width()) + "\n";
    if let Some(cut) = &planned.cut() {
        let cut = sentence::of_cut(cut, run);
        let plan = format!("plan: {cut}, hash {:016x}", planned.hash());
        text += &(screen::wrapped(&plan, 6, screen::wrap_width()) + "\n");
    }
    Ok(text)
}

impl BenchReport {
    fn tokens_per_second(&self) -> Option<f64> {
        self.seconds.map(|seconds| self.tokens_per_iteration as f64 / seconds)
    }

    fn eval_tokens_per_second(&self) -> Option<f64> {
        self.eval_seconds.map(|seconds| self.eval_tokens as f64 / seconds)
    }

    /// The results as text, in 60 columns.
    pub fn text(&self) -> String {
        let head = format!("{:<22}{:>8}{:>7}{:>10}  bound by", "op", "ms", "% step", "% ceiling");
        let mut text = format!("\n{}\n", screen::strong(&head));
        for OpRow { name, seconds, share, of_ceiling, bound_by } in &self.ops {
            let (ms, share, of_ceiling) = (seconds * 1e3, share * 100.0, of_ceiling * 100.0);
            let bound = bound_by.name();
            let _ = writeln!(text, "{name:<22}{ms:>8.2}{share:>7.1}{of_ceiling:>10.1}  {bound}");
        }
        text.push('\n');
        for (label, said) in self.lines() {
            let line = screen::wrapped(&format!("{label}: {said}"), 2, screen::wrap_width());
            let said = line.strip_prefix(label).unwrap_or(&line);
            text += &format!("{}{said}\n", screen::strong(label));
        }
        text
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let number = |rate: Option<f64>| rate.map_or("?".to_string(), short);
        let steps: f64 = self.ops.iter().map(|op| op.seconds).sum();
        let iteration = format!(
            "{:.2} ms (median of {}); sum of its steps {:.2} ms",
            self.seconds.unwrap_or(0.0) * 1e3,
            self.iterations,
            steps * 1e3
        );
        let Predictions { by_rates, by_times } = &self.predictions;
        let mut predicted = format!("{} tok/s from rates", number(*by_rates));
        if by_times.is_some() {
            predicted += &format!(", {} tok/s from kept step times", number(*by_times));
        }
        let trained = format!("{} tok/s", number(self.tokens_per_second()));
        let mut lines =
            vec![("iteration", iteration), ("training", trained), ("predicted", predicted)];
        if self.eval_seconds.is_some() {
            let rate = format!("{} tok/s", number(self.eval_tokens_per_second()));
            lines.push(("evaluation", rate));
        }
        let shown = |bytes: u64| Bytes::new(bytes).unwrap_or(Bytes::ZERO);
        let mut memory = format!("arena {}", shown(self.memory.arena));
        if let (Some(seen), Some(context)) = (self.memory.seen, self.memory.context()) {
            let (seen, context) = (shown(seen), shown(context));
            memory += &format!(", driver and code {context}: {seen} according to the driver");
        }
        lines.push(("memory", memory));
        lines
    }

    /// The results as JSON.
    pub fn document(&self) -> Value {
        let op = |op: &OpRow| {
            json!({
                "name": op.name,
                "ms": op.seconds * 1e3,
                "share": op.share,
                "of_ceiling": op.of_ceiling,
                "bound_by": op.bound_by.name(),
            })
        };
        let Predictions { by_rates, by_times } = self.predictions;
        json!({
            "schema": SCHEMA,
            "device": self.device,
            "config": self.config,
            "plan_hash": format!("{:016x}", self.plan_hash),
            "plan": self.plan,
            "slices": self.slices,
            "tokens_per_iteration": self.tokens_per_iteration,
            "iterations": self.iterations,
            "ms_per_iteration": self.seconds.map(|seconds| seconds * 1e3),
            "tokens_per_second": self.tokens_per_second(),
            "predicted_tokens_per_second": by_times.or(by_rates),
            "predicted_by": if by_times.is_some() { "measured step times" } else { "rates" },
            "predicted_tokens_per_second_by_rates": by_rates,
            "eval_tokens_per_second": self.eval_tokens_per_second(),
            "arena_bytes": self.memory.arena,
            "context_bytes": self.memory.context(),
            "device_bytes_seen": self.memory.seen,
            "ops": self.ops.iter().map(op).collect::<Vec<_>>(),
        })
    }

    /// The JSON if nothing fits.
    pub fn of_refusal(device: &str, config: &Map<String, Value>, error: &str) -> Value {
        json!({ "schema": SCHEMA, "device": device, "config": config, "error": error })
    }
}
