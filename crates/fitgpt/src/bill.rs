//! The memory bill before the first step: every byte of the arena at its fullest moment, by role,
//! adding up to what is allocated; the peak of each phase; and host memory outside the arena.

use crate::numbers::grouped;
use crate::plan_report::{PlanReport, phases};
use crate::screen::{coloured, faint, strong, wrap_width, wrapped};
use plan::report::{Bill, BillSegment};
use plan::{Bytes, Plan, Role, Scope, TensorId};
use search::{Machine, Planned};
use std::fmt::Write;

/// Columns of the longest bar, and columns before it.
const BAR: usize = 24;
const BEFORE_BAR: usize = 27;

/// From this many columns on, each row explains its role.
const WIDE: usize = 80;

/// Below this many columns a row is shorter.
const NARROW: usize = 66;

/// Host memory outside the arena.
#[derive(Clone, Copy, Debug)]
pub struct HostMemory {
    /// What it is.
    pub name: &'static str,
    /// Its size.
    pub bytes: Bytes,
}

/// The bill that `train` prints, for a screen of `width` columns.
pub fn text(planned: &Planned, machine: &Machine, host: &[HostMemory], width: usize) -> String {
    let (plan, bill) = (&planned.plan, &Bill::new(&planned.plan));
    let mut text = strong("memory, planned to the byte before anything is allocated") + "\n";
    arena(&mut text, bill, width);
    let held = plan.schedule.tensors.held_bytes(Scope::Run).unwrap_or(Bytes::ZERO);
    let used = phases(bill, held).into_iter().filter(|(_, bytes)| *bytes > Bytes::ZERO);
    let peaks: Vec<String> = used
        .filter(|(phase, _)| *phase != "save")
        .map(|(phase, bytes)| match phase {
            "load" => format!("load/save {bytes}"), // both hold only what lives for the whole run
            phase => format!("{phase} {bytes}"),
        })
        .collect();
    let peaks = format!("  peaks: {}", peaks.join(", "));
    let _ = writeln!(text, "{}", faint(&wrapped(&peaks, 4, wrap_width())));
    outside(&mut text, plan, host);
    if machine.host.is_none() {
        in_all(&mut text, "total", planned.device_bytes(machine), machine.budget);
    }
    text
}

/// The sum of everything that the budget limits.
fn in_all(text: &mut String, name: &str, bytes: u64, budget: Bytes) {
    let all = Bytes::new(bytes).unwrap_or(Bytes::ZERO).to_string();
    let label = strong(&format!("{name:<12}")).trim_end().to_string();
    let what = faint(&format!("of a budget of {budget}"));
    let _ = writeln!(text, "  {label:<12} {all:>11}  {what}");
}

/// The bill that `plan` prints: also a bar for each phase, and the device's own overhead.
pub fn whole(report: &PlanReport, width: usize) -> String {
    let mut text = strong("memory, planned to the byte") + "\n";
    arena(&mut text, &report.bill, width);
    let (machine, context) = (&report.machine, report.machine.hardware.context);
    if machine.host.is_some() && context > Bytes::ZERO {
        let what = faint("driver, libraries and code");
        let _ = writeln!(text, "  {:<12} {:>11}  {what}", "context", context.to_string());
        in_all(&mut text, "device", report.device_bytes(), machine.budget);
    }
    outside(&mut text, &report.planned.plan, &report.host);
    if machine.host.is_none() {
        in_all(&mut text, "total", report.device_bytes(), machine.budget);
    }
    let _ = writeln!(text, "\n{}", strong("peak of each phase, all in the same arena"));
    for (phase, bytes) in report.phases().into_iter().filter(|(_, bytes)| *bytes > Bytes::ZERO) {
        let share = bytes.get() as f64 / report.bill.arena_bytes.get().max(1) as f64;
        let _ = writeln!(
            text,
            "  {phase:<12} {:>11}  {}",
            bytes.to_string(),
            coloured(&bar(share, longest(width)))
        );
    }
    text
}

fn arena(text: &mut String, bill: &Bill, width: usize) {
    let fullest = bill.segments.iter().max_by_key(|segment| segment.top);
    if let Some(segment) = fullest {
        rows(text, segment, bill.arena_bytes, width);
    }
    let _ = writeln!(
        text,
        "  {:<12} {:>11}  {}",
        strong(&format!("{:<12}", "arena")).trim_end(),
        bill.arena_bytes.to_string(),
        faint(&match width >= NARROW {
            true => format!("one allocation of {} bytes", grouped(bill.arena_bytes.get())),
            false => format!("{} bytes", grouped(bill.arena_bytes.get())),
        })
    );
}

/// What the plan keeps in host memory.
fn offloaded(plan: &Plan) -> [HostMemory; 2] {
    let tensors = &plan.schedule.tensors;
    let of_activations = |id: &TensorId| tensors.get(*id).role == Role::Activation;
    let sizes = plan.on_host().filter(of_activations).map(|id| tensors.bytes(id));
    let activations = Bytes::sum(sizes).unwrap_or(Bytes::ZERO);
    let state = plan.host_bytes.minus(activations).unwrap_or(Bytes::ZERO);
    [
        HostMemory { name: "optimizer's state in host memory", bytes: state },
        HostMemory { name: "activations in host memory", bytes: activations },
    ]
}

/// Appends the host memory outside the arena.
fn outside(text: &mut String, plan: &Plan, host: &[HostMemory]) {
    let kept: Vec<String> = offloaded(plan)
        .iter()
        .chain(host)
        .filter(|item| item.bytes > Bytes::ZERO)
        .map(|item| format!("{} {}", item.name, item.bytes))
        .collect();
    if !kept.is_empty() {
        let kept = format!("  outside the arena: {}", kept.join(", "));
        let _ = writeln!(text, "{}", faint(&wrapped(&kept, 4, wrap_width())));
    }
}

fn rows(text: &mut String, segment: &BillSegment, arena: Bytes, width: usize) {
    let counted = Bytes::sum(segment.by_role.iter().map(|(_, bytes)| *bytes));
    let unused = counted.and_then(|counted| arena.minus(counted)).unwrap_or(Bytes::ZERO);
    let named = segment.by_role.iter().map(|(role, bytes)| (role.name(), *bytes, meaning(*role)));
    for (name, bytes, meaning) in named.chain([("unused", unused, "used at other moments")]) {
        if bytes == Bytes::ZERO {
            continue;
        }
        let share = bytes.get() as f64 / arena.get().max(1) as f64;
        let bar = bar(share, longest(width));
        let room = " ".repeat(BAR.saturating_sub(bar.chars().count()));
        let bar = coloured(&bar);
        let _ = write!(text, "  {name:<12} {:>11}  {bar}", bytes.to_string());
        if width >= WIDE {
            let _ = write!(text, "{room} {}", faint(meaning));
        }
        text.push('\n');
    }
}

/// What a role is, for readers who have never trained a model.
fn meaning(role: Role) -> &'static str {
    match role {
        Role::Weight => "the model",
        Role::Master => "what float32 weights have beyond the model",
        Role::Gradient => "how each weight should move",
        Role::Moment => "AdamW's two moments",
        Role::Activation => "kept for the backward pass",
        Role::Logits => "scores of the next token",
        Role::Cache => "key/value cache of a sample",
        Role::Workspace | Role::Partials => "scratch of the kernels",
        Role::Tokens => "the batch",
        Role::State => "losses and counters",
    }
}

/// The longest bar on a screen of `width` columns.
fn longest(width: usize) -> usize {
    width.saturating_sub(BEFORE_BAR).clamp(1, BAR)
}

/// A bar in eighths of a column, so that small roles are visible.
fn bar(share: f64, longest: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if share <= 0.0 {
        return String::new();
    }
    let eighths = ((share * (8 * longest) as f64).round() as usize).max(1);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}
