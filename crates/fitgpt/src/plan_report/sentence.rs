//! A plan in one sentence.

use super::PlanReport;
use crate::numbers::{duration, grouped, short};
use model::Level;
use plan::{Bytes, Dtype};
use search::Cut;
use spec::{RunSpec, Sync};

/// Describes how an iteration is divided among ranks, groups and slices, and what is recomputed.
pub fn of_cut(cut: &Cut, run: &RunSpec) -> String {
    let (shared, chunk) = (shared(cut, run), cut.head_chunk);
    let levels = of_levels(&cut.levels);
    let recomputed = match cut.levels.iter().all(|level| *level == Level::R0) {
        true => "nothing recomputed".to_string(),
        false => format!("layers at {levels}"),
    };
    let mut text = format!("{shared}, head in {chunk}-token chunks, {recomputed}");
    if cut.state_options.format == Dtype::Bf16 {
        text += ", AdamW's moments in bfloat16";
    }
    text += &on_host(cut);
    if run.rank.has_others() && run.ranks.sync == Sync::Diloco {
        text += &format!(", averaged every {} iterations", run.ranks.sync_every);
    }
    text
}

/// `, the optimizer's state and activations of 9 layers in host memory`.
fn on_host(cut: &Cut) -> String {
    let layers = cut.layers_on_host();
    let s = if layers == 1 { "" } else { "s" };
    match (cut.state_options.offload, layers > 0) {
        (false, false) => String::new(),
        (true, false) => ", the optimizer's state in host memory".to_string(),
        (false, true) => format!(", activations of {layers} layer{s} in host memory"),
        (true, true) => {
            format!(", the optimizer's state and activations of {layers} layer{s} in host memory")
        }
    }
}

/// `64 sequences as 4 x 16`, `480 sequences on 16 ranks, 30 each as 2 x 15`.
fn shared(cut: &Cut, run: &RunSpec) -> String {
    // A cut has the sequences of one group.
    let of_group: u64 = cut.slices.iter().sum();
    let (ranks, groups_of_all) = (run.rank.ranks as u64, run.groups());
    let sequences = of_group.saturating_mul(groups_of_all);
    let s = if sequences == 1 { "" } else { "s" };
    let slices = groups(&cut.slices);
    let on = if ranks > 1 { format!(" on {ranks} ranks") } else { String::new() };
    match groups_of_all == ranks {
        true if ranks > 1 => format!("{sequences} sequences{on}, {of_group} each as {slices}"),
        true => format!("{sequences} sequence{s} as {slices}"),
        false => format!(
            "{sequences} sequences{on} in {groups_of_all} groups, {of_group} each as {slices}"
        ),
    }
}

/// The same with memory and predicted speed.
pub fn of(report: &PlanReport) -> String {
    let cut = match &report.planned.cut() {
        Some(cut) => of_cut(cut, &report.run),
        None => "evaluation only".to_string(),
    };
    let mut text = format!("{cut}: {}", memory(report.device_bytes(), report.machine.budget));
    if let Some(prediction) = &report.prediction {
        let name = &report.machine.hardware.name;
        let on = match report.run.rank.ranks {
            1 => with_article(name),
            ranks => format!("{ranks} x {name}"),
        };
        if let Some(rate) = prediction.tokens_per_second {
            text += &format!(", about {} tok/s on {on}", short(rate));
        }
        let (time, iterations) = (duration(prediction.run_seconds), grouped(report.run.max_iters));
        text += &match report.run.eval_only {
            true => format!(", in {time}"),
            false => format!(", {iterations} iterations in {time}"),
        };
    }
    text
}

/// `6.14 of 11.69 GiB`, `9.48 MiB of 20.70 GiB`.
pub fn memory(used: u64, budget: Bytes) -> String {
    let used = Bytes::new(used).unwrap_or(Bytes::ZERO).to_string();
    let budget = budget.to_string();
    match (used.split_once(' '), budget.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => {
            format!("{number} of {budget}")
        }
        _ => format!("{used} of {budget}"),
    }
}

/// `an RTX 4070`, `a T4`, `this CPU`.
fn with_article(name: &str) -> String {
    const SPOKEN_WITH_A_VOWEL: [char; 7] = ['A', 'H', 'L', 'R', 'M', 'N', 'X'];
    match name.chars().next() {
        _ if name.contains("thread") => "this CPU".to_string(),
        Some(first) if SPOKEN_WITH_A_VOWEL.contains(&first) => format!("an {name}"),
        _ => format!("a {name}"),
    }
}

/// The levels of all layers, equal ones together: those with activations in host memory stand among
/// the others.
pub fn of_levels(levels: &[Level]) -> String {
    let mut together = levels.to_vec();
    together.sort_by_key(|level| levels.iter().position(|other| other == level));
    groups(&together)
}

/// `4 x 16`, `22 + 2 x 21`.
pub fn groups<T: PartialEq + ToString>(items: &[T]) -> String {
    let run = |run: &[T]| match run {
        [one] => one.to_string(),
        [first, ..] => format!("{} x {}", run.len(), first.to_string()),
        [] => String::new(),
    };
    items.chunk_by(|a, b| a == b).map(run).collect::<Vec<_>>().join(" + ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use search::StateOptions;

    #[test]
    fn runs_of_equal_items_are_counted() {
        assert_eq!(groups(&[22, 21, 21]), "22 + 2 x 21");
        assert_eq!(groups(&[16, 16, 16, 16]), "4 x 16");
        assert_eq!(groups(&[7]), "7");
        let levels = [Level::R5, Level::R2h, Level::R4, Level::R2h, Level::R4];
        assert_eq!(of_levels(&levels), "R5 + 2 x R2h + 2 x R4");
    }

    #[test]
    fn what_host_memory_holds_is_said() {
        let cut = |offload: bool, levels: &[Level]| Cut {
            slices: vec![1],
            head_chunk: 1,
            levels: levels.to_vec(),
            state_options: StateOptions { offload, ..StateOptions::DEFAULT },
        };
        let (none, one, two) = ([Level::R4; 2], [Level::R4, Level::R2h], [Level::R2h; 2]);
        assert_eq!(on_host(&cut(false, &none)), "");
        assert_eq!(on_host(&cut(true, &none)), ", the optimizer's state in host memory");
        assert_eq!(on_host(&cut(false, &one)), ", activations of 1 layer in host memory");
        let both = ", the optimizer's state and activations of 2 layers in host memory";
        assert_eq!(on_host(&cut(true, &two)), both);
    }

    #[test]
    fn names_have_their_article() {
        assert_eq!(with_article("RTX 4070"), "an RTX 4070");
        assert_eq!(with_article("T4"), "a T4");
        assert_eq!(with_article("NVIDIA H200"), "an NVIDIA H200");
        assert_eq!(with_article("Zen, 2 threads, AVX2"), "this CPU");
    }
}
