//! The arena of a plan as rectangles for the page: time across, address up, one for the lifetime
//! of each tensor.

use super::plan::resolved;
use crate::plan_report::timeline::{Moment, moments};
use crate::planning::find_gpu;
use ::page::{Query, Refused};
use ::train::plan_json::CutJson;
use model::Dims;
use plan::{Bytes, Plan, Role, Scope, SegmentId};
use search::{Machine, Planned, plan_again};
use serde_json::{Value, json};
use spec::RequestedDtype;

/// The tabs of the page.
const PHASES: [&str; 4] = ["train", "eval", "sample", "save"];

/// Most rectangles; the smallest are left out.
const MOST: usize = 20_000;

/// More memory than any machine has: a plan that ran once is drawn as it was.
const PLENTY: u64 = 1 << 60;

/// Keys of a log that decide the layout.
const DECISIVE: [&str; 16] = [
    "n_layer",
    "n_head",
    "n_embd",
    "block_size",
    "batch_size",
    "gradient_accumulation_steps",
    "eval_batch_size",
    "eval_block_size",
    "dropout",
    "bias",
    "dtype",
    "grad_checkpoint",
    "optimizer_state",
    "offload",
    "residual",
    "gelu",
];

/// The phase that an address asks for; training if none.
pub fn phase_of(query: &Query) -> &'static str {
    let asked = ::page::get(query, "phase").unwrap_or_default();
    PHASES.into_iter().find(|phase| *phase == asked).unwrap_or(PHASES[0])
}

/// The documents of all phases of a run that is about to start.
pub fn all_phases(planned: &Planned, machine: &Machine) -> Vec<(&'static str, Value)> {
    PHASES.into_iter().map(|phase| (phase, document(planned, machine, phase))).collect()
}

/// The segments of a phase, one after another on the axis of time.
fn segments(planned: &Planned, phase: &str) -> Vec<SegmentId> {
    let program = &planned.program;
    match phase {
        "eval" => program.eval.first().map(|slice| slice.segment).into_iter().collect(),
        "sample" => program.generate.as_ref().map_or_else(Vec::new, |generate| {
            let prefill = generate.prefill.last().map(|segment| segment.segment);
            prefill.into_iter().chain([generate.decode.segment]).collect()
        }),
        "save" => program.update.into_iter().chain(first(planned)).take(1).collect(),
        _ => first(planned).into_iter().chain(program.update).collect(),
    }
}

/// The first training slice; of a run that only evaluates, the first of the evaluation.
fn first(planned: &Planned) -> Option<SegmentId> {
    let program = &planned.program;
    program.train.first().or(program.eval.first()).map(|slice| slice.segment)
}

/// One phase of a plan.
pub fn document(planned: &Planned, machine: &Machine, phase: &str) -> Value {
    let (plan, segments) = (&planned.plan, segments(planned, phase));
    let moments = moments(plan, &segments, &machine.hardware);
    let held_only = phase == "save";
    let (mut names, mut rows, mut start) = (Vec::new(), Vec::new(), 0);
    for &segment in &segments {
        let window = &moments[start..];
        rectangles(plan, segment, window, held_only, &mut names, &mut rows);
        start += plan.schedule.segment(segment).steps.len();
    }
    if rows.len() > MOST {
        rows.sort_by_key(|row| std::cmp::Reverse(row.size));
        rows.truncate(MOST);
    }
    let peak = moments.iter().enumerate().max_by_key(|(_, moment)| moment.live);
    let held = plan.schedule.tensors.held_bytes(Scope::Run).unwrap_or(Bytes::ZERO);
    let row = |row: &Rectangle| {
        json!([row.from, row.to, row.offset, row.size, row.role, row.name, row.first, row.last])
    };
    json!({
        "phase": phase,
        "phases": PHASES,
        "arena_bytes": plan.arena_bytes.get(),
        "budget_bytes": machine.budget.get(),
        "context_bytes": machine.hardware.context.get(),
        "device_bytes": planned.device_bytes(machine),
        "held_bytes": held.get(),
        "hash": format!("{:016x}", planned.hash()),
        "roles": Role::ALL.map(Role::name),
        "names": names,
        "rectangles": rows.iter().map(row).collect::<Vec<_>>(),
        "steps": if held_only { json!([]) } else { steps(plan, &segments, &moments) },
        "peak": peak.filter(|_| !held_only).map(|(step, moment)| json!({
            "step": step, "from": moment.from, "to": moment.to, "live_bytes": moment.live,
        })),
        "segments": segments.iter().map(|&id| &plan.schedule.segment(id).name).collect::<Vec<_>>(),
    })
}

/// The lifetime of a tensor.
struct Rectangle {
    from: f64,
    to: f64,
    offset: u64,
    size: u64,
    role: usize,
    name: usize,
    first: usize,
    last: usize,
}

fn rectangles(
    plan: &Plan,
    segment: SegmentId,
    moments: &[Moment],
    held_only: bool,
    names: &mut Vec<String>,
    rows: &mut Vec<Rectangle>,
) {
    let steps = plan.schedule.segment(segment).steps.len();
    for place in &plan.layout(segment).placements {
        let tensor = plan.schedule.tensors.get(place.tensor);
        let is_held = tensor.scope == Scope::Run;
        if plan.is_on_host(place.tensor) || (held_only && !is_held) {
            continue;
        }
        let at = |step: usize| moments.get(step.min(steps.saturating_sub(1)));
        let (Some(born), Some(dead)) = (at(place.live.first), at(place.live.last)) else {
            continue;
        };
        let role = Role::ALL.iter().position(|role| *role == tensor.role).unwrap_or(0);
        let (from, to) = if held_only { (0.0, 1.0) } else { (short(born.from), short(dead.to)) };
        let (offset, size) = (place.offset.get(), place.size.get());
        let (first, last) = (place.live.first, place.live.last);
        let name = names.len();
        names.push(format!("{} {} {}", tensor.name, tensor.dtype, tensor.shape));
        rows.push(Rectangle { from, to, offset, size, role, name, first, last });
    }
}

/// `[from, to, live bytes, op, part]` of each step.
fn steps(plan: &Plan, segments: &[SegmentId], moments: &[Moment]) -> Value {
    let all = segments.iter().flat_map(|&id| &plan.schedule.segment(id).steps);
    let row = |(step, moment): (&plan::Step, &Moment)| {
        let op = step.op.operation().name();
        json!([short(moment.from), short(moment.to), moment.live, op, moment.part])
    };
    Value::Array(all.zip(moments).map(row).collect())
}

fn short(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}

/// The arena of a run that was logged, planned again with the cut that its log names.
pub fn of_log(start: &events::Start, phase: &str) -> Result<Value, Refused> {
    let refuse = |what: &str| Refused(what.to_string());
    let on_gpu = start.device.starts_with("cuda");
    let mut arguments = vec!["--dataset=openwebtext".to_string()];
    for key in DECISIVE {
        match start.config.get(key) {
            Some(Value::String(text)) => arguments.push(format!("--{key}={text}")),
            Some(Value::Bool(true)) => arguments.push(format!("--{key}=True")),
            Some(Value::Bool(false)) => arguments.push(format!("--{key}=False")),
            Some(number @ Value::Number(_)) => arguments.push(format!("--{key}={number}")),
            _ => {}
        }
    }
    let (run, dims) = resolved(&arguments, on_gpu)?;
    let dims = Dims { vocab_size: start.vocab_size, ..dims };
    let cut: CutJson = serde_json::from_value(start.plan.clone())
        .map_err(|_| refuse("this log does not say how the run was planned"))?;
    let cut = cut.cut().ok_or_else(|| refuse("the plan in this log is damaged"))?;
    let plenty = Bytes::new(PLENTY).unwrap_or(Bytes::ZERO);
    let mut machine = match on_gpu {
        true => {
            let card = find_gpu("RTX 4070").map_err(|error| Refused(error.to_string()))?;
            let mut hardware = card.hardware(run.dtype == RequestedDtype::Float32);
            hardware.warpgroups = start.device.contains("sm_90");
            hardware.name = start.device.clone();
            Machine::gpu(hardware, &run, plenty, plenty)
        }
        false => {
            let device = crate::device::Device::find(spec::RequestedDevice::Cpu, None);
            let device = device.map_err(|error| Refused(error.to_string()))?;
            device.machine(&run).map_err(|error| Refused(error.to_string()))?
        }
    };
    machine.budget = plenty;
    let planned = plan_again(&run, dims, &machine, &cut);
    let planned = planned.map_err(|error| Refused(error.to_string()))?.map_err(Refused)?;
    let mut found = document(&planned, &machine, phase);
    let logged = start.arena_bytes;
    found["budget_bytes"] = Value::Null;
    found["logged_arena_bytes"] = json!(logged);
    found["is_same"] = json!(logged == Some(planned.plan.arena_bytes.get()));
    Ok(found)
}
