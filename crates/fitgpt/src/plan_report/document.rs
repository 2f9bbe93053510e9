//! The plan as JSON: `fitgpt.plan/1`, for programs. `docs/plan-json.md` lists its fields.

use super::PlanReport;
use crate::plan_report::phases;
use plan::{Bytes, Role, Scope};
use search::{Cut, Machine, Refusal, Suggestion};
use serde_json::{Map, Value, json};
use spec::RunSpec;

/// The first field of every document.
pub const SCHEMA: &str = "fitgpt.plan/1";

/// The names of roles in JSON. Cache and state are small, but every byte of the arena has a name.
const ROLES: [(Role, &str); 10] = [
    (Role::Weight, "weights"),
    (Role::Master, "master"),
    (Role::Gradient, "gradients"),
    (Role::Moment, "moments"),
    (Role::Activation, "activations"),
    (Role::Logits, "logits"),
    (Role::Workspace, "workspace"),
    (Role::Tokens, "tokens"),
    (Role::Cache, "cache"),
    (Role::State, "state"),
];

/// A plan that fits.
pub fn of(report: &PlanReport) -> Value {
    let PlanReport { planned, bill, .. } = report;
    let held = planned.plan.schedule.tensors.held_bytes(Scope::Run).unwrap_or(Bytes::ZERO);
    let peaks = phases(bill, held).map(|(name, bytes)| (name.to_string(), json!(bytes.get())));
    let cut = planned.cut();
    let cut = cut.as_ref();
    let state_options = cut.map(|cut| cut.state_options);
    let rate = report.prediction.and_then(|prediction| prediction.tokens_per_second);
    let mut document = head(&report.run, &report.machine, true);
    document.extend(fields(json!({
        "arena_bytes": bill.arena_bytes.get(),
        "device_bytes": report.device_bytes(),
        "phases": Map::from_iter(peaks),
        "roles": roles(report),
        "host_bytes": planned.host_bytes(),
        "pinned_bytes": planned.plan.host_bytes.get(),
        "hash": format!("{:016x}", planned.hash()),
        "slices": planned.program.train_slices,
        "eval_slices": planned.program.eval_slices,
        "head_chunk_tokens": cut.map(|cut| cut.head_chunk),
        "recompute": cut.map(|cut| {
            cut.levels.iter().map(|level| level.name()).collect::<Vec<_>>()
        }),
        "optimizer_state": state_options.map(|state_options| match state_options.format {
            plan::Dtype::Bf16 => "bfloat16",
            _ => "float32",
        }),
        "offload": cut.map(on_host),
        "predicted_tokens_per_second": rate.map(whole),
        "predicted_by": report.prediction.map(|_| report.basis),
        "predicted_run_seconds": report.prediction.map(|p| whole(p.run_seconds)),
        "ranks": report.fleet.map(|fleet| fleet.document(&report.run)),
    })));
    Value::Object(document)
}

/// What of state and activations host memory holds.
fn on_host(cut: &Cut) -> Value {
    match (cut.state_options.offload, cut.layers_on_host() > 0) {
        (false, false) => json!(false),
        (true, false) => json!("optimizer"),
        (false, true) => json!("activations"),
        (true, true) => json!("both"),
    }
}

/// Fields that are null if there is no plan.
const OF_A_PLAN: [&str; 16] = [
    "phases",
    "roles",
    "pinned_bytes",
    "hash",
    "slices",
    "eval_slices",
    "head_chunk_tokens",
    "recompute",
    "optimizer_state",
    "offload",
    "predicted_tokens_per_second",
    "predicted_by",
    "predicted_run_seconds",
    "ranks",
    "missing_bytes",
    "missing_host_bytes",
];

/// A run that does not fit.
pub fn of_refusal(run: &RunSpec, machine: &Machine, refusal: &Refusal, named: bool) -> Value {
    let largest = refusal.largest.iter();
    let suggestions = refusal.suggestions.iter().map(|one| suggestion(one, named));
    let mut document = without_a_plan(run, machine);
    document.extend(fields(json!({
        "arena_bytes": refusal.arena.get(),
        "device_bytes": refusal.needed.get(),
        "host_bytes": refusal.host.get(),
        "missing_bytes": refusal.missing.get(),
        "missing_host_bytes": refusal.missing_host.get(),
        "largest": largest
            .map(|(name, bytes)| json!({ "name": name, "bytes": bytes.get() }))
            .collect::<Vec<_>>(),
        "suggestions": suggestions.collect::<Vec<_>>(),
    })));
    Value::Object(document)
}

/// A run that is refused before any memory is counted.
pub fn of_error(run: &RunSpec, machine: &Machine, error: &str) -> Value {
    let mut document = without_a_plan(run, machine);
    document.insert("error".to_string(), json!(error));
    document.insert("largest".to_string(), json!([]));
    document.insert("suggestions".to_string(), json!([]));
    Value::Object(document)
}

fn without_a_plan(run: &RunSpec, machine: &Machine) -> Map<String, Value> {
    let mut document = head(run, machine, false);
    document.extend(OF_A_PLAN.map(|key| (key.to_string(), Value::Null)));
    document
}

/// The fields of every document.
fn head(run: &RunSpec, machine: &Machine, fits: bool) -> Map<String, Value> {
    fields(json!({
        "schema": SCHEMA,
        "fits": fits,
        "device": machine.hardware.name,
        "budget_bytes": machine.budget.get(),
        "context_bytes": machine.hardware.context.get(),
        "tokens_per_iteration": run.tokens_per_iteration(),
    }))
}

/// One suggestion, in the form that all documents share.
pub fn suggestion(one: &Suggestion, named: bool) -> Value {
    let settings = one.settings.iter().map(|(key, value)| ((*key).to_string(), plain(value)));
    json!({
        "settings": Map::from_iter(settings),
        "fits": true,
        "device_bytes": one.device_bytes,
        "tokens_per_iteration": one.tokens_per_iteration,
        "predicted_tokens_per_second": one.tokens_per_second.filter(|_| named).map(whole),
        "note": one.note,
    })
}

/// A prediction has no decimals.
pub fn whole(number: f64) -> u64 {
    number.round().clamp(0.0, 1e18) as u64
}

/// A setting's value.
pub fn plain(value: &spec::Value) -> Value {
    match value {
        spec::Value::Int(number) => json!(number),
        spec::Value::Float(number) => json!(number),
        spec::Value::Bool(flag) => json!(flag),
        other => json!(other.plain()),
    }
}

fn roles(report: &PlanReport) -> Value {
    let bill = &report.bill;
    let fullest = bill.segments.iter().max_by_key(|segment| segment.top);
    let of = |role: Role| {
        let rows = fullest.map_or(&[][..], |segment| &segment.by_role);
        rows.iter().find(|(found, _)| *found == role).map_or(0, |(_, bytes)| bytes.get())
    };
    let mut all: Map<String, Value> =
        ROLES.iter().map(|&(role, name)| (name.to_string(), json!(of(role)))).collect();
    let counted: u64 = ROLES.iter().map(|&(role, _)| of(role)).sum();
    all.insert("unused".to_string(), json!(bill.arena_bytes.get().saturating_sub(counted)));
    Value::Object(all)
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
