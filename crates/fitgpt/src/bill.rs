//! The bill before the first step: every byte of the arena at its fullest moment, by role, adding
//! up to what is allocated; the peak of each phase; and what the host keeps beside it.

use crate::numbers::grouped;
use crate::screen::{coloured, faint, strong};
use plan::report::{Bill, BillSegment};
use plan::{Bytes, Role};
use std::fmt::Write;

/// Columns of the longest bar.
const BAR: usize = 24;

/// Columns from which each row says what its role is for.
const WIDE: usize = 80;

/// Something that the host keeps outside the arena.
pub struct HostMemory {
    /// What it is.
    pub name: &'static str,
    /// Its size.
    pub bytes: Bytes,
}

/// The bill for people, on a screen of so many columns.
pub fn text(bill: &Bill, host: &[HostMemory], width: usize) -> String {
    let mut text = strong("memory, planned to the byte before anything is allocated") + "\n";
    let fullest = bill.segments.iter().max_by_key(|segment| segment.top);
    if let Some(segment) = fullest {
        rows(&mut text, segment, bill.arena_bytes, width >= WIDE);
    }
    let _ = writeln!(
        text,
        "  {:<12} {:>11}  {}",
        strong(&format!("{:<12}", "arena")).trim_end(),
        bill.arena_bytes.to_string(),
        faint(&format!("one allocation of {} bytes", grouped(bill.arena_bytes.get())))
    );
    let _ = writeln!(text, "  {}", faint(&format!("peaks: {}", peaks(bill).join(", "))));
    let kept: Vec<String> = host
        .iter()
        .filter(|item| item.bytes > Bytes::ZERO)
        .map(|item| format!("{} {}", item.name, item.bytes))
        .collect();
    if !kept.is_empty() {
        let _ = writeln!(text, "  {}", faint(&format!("beside it: {}", kept.join(", "))));
    }
    text
}

/// The largest need of each phase, in the order in which they first occur.
fn peaks(bill: &Bill) -> Vec<String> {
    let mut phases: Vec<(&str, Bytes)> = Vec::new();
    for segment in &bill.segments {
        match phases.iter_mut().find(|(phase, _)| *phase == segment.phase) {
            Some((_, peak)) => *peak = (*peak).max(segment.peak),
            None => phases.push((segment.phase, segment.peak)),
        }
    }
    phases.iter().map(|(phase, peak)| format!("{phase} {peak}")).collect()
}

fn rows(text: &mut String, segment: &BillSegment, arena: Bytes, with_meanings: bool) {
    let counted = Bytes::sum(segment.by_role.iter().map(|(_, bytes)| *bytes));
    let unused = counted.and_then(|counted| arena.minus(counted)).unwrap_or(Bytes::ZERO);
    let named = segment.by_role.iter().map(|(role, bytes)| (role.name(), *bytes, meaning(*role)));
    for (name, bytes, meaning) in named.chain([("unused", unused, "for other moments")]) {
        if bytes == Bytes::ZERO {
            continue;
        }
        let share = bytes.get() as f64 / arena.get().max(1) as f64;
        let bar = bar(share);
        let room = " ".repeat(BAR.saturating_sub(bar.chars().count()));
        let bar = coloured(&bar);
        let _ = write!(text, "  {name:<12} {:>11}  {bar}", bytes.to_string());
        if with_meanings {
            let _ = write!(text, "{room} {}", faint(meaning));
        }
        text.push('\n');
    }
}

/// For a person who has never trained a model.
fn meaning(role: Role) -> &'static str {
    match role {
        Role::Weight => "the model",
        Role::Master => "its exact copy behind 16 bits",
        Role::Gradient => "how each weight should move",
        Role::Moment => "AdamW's averages of that",
        Role::Activation => "kept for the backward pass",
        Role::Logits => "scores of the next token",
        Role::Cache => "keys and values of a sample",
        Role::Workspace => "scratch of the kernels",
        Role::Tokens => "the batch",
        Role::State => "losses and counters",
    }
}

/// Eighths of a column, so that small roles are seen too.
fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = ((share * (8 * BAR) as f64).round() as usize).max(1);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}
