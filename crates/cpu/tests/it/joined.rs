//! Linear layers joined with the GELU or the residual addition next to them, which the CPU computes
//! one after the other, have the bits of separate ops at every level of recompute.

use crate::bits::{assert_same, trace};
use crate::fixture::{Setup, setup};
use fitgpt_cpu::{CpuOptions, MemoryMode};
use model::Level;

/// How many steps of the training slice have this name.
fn count(setup: &Setup, name: &str) -> usize {
    let draft = setup.draft();
    let steps = &draft.schedule.segment(draft.program.train[0].segment).steps;
    steps.iter().filter(|step| step.op.operation().name() == name).count()
}

#[test]
fn joined_layers_have_the_bits_of_separate_ones() {
    for level in Level::ALL {
        let separate = Setup { levels: vec![level; 2], dropout: 0.1, ..setup() };
        let joined = Setup { joins: true, ..separate.clone() };
        let gelus = |setup| ["gelu", "gelu_backward"].map(|name| count(setup, name));
        let joins = |setup| ["linear_gelu", "linear_backward_gelu"].map(|name| count(setup, name));
        assert_eq!((gelus(&separate), joins(&separate)), ([2, 2], [0, 0]), "{level}");
        assert_eq!((gelus(&joined), joins(&joined)), ([0, 0], [2, 2]), "{level}");
        let adds = [&separate, &joined].map(|setup| count(setup, "linear_add"));
        assert_eq!(adds, [0, 0], "{level}: dropout comes before the addition");
        assert_same_bits(level, &joined, &separate);
    }
}

#[test]
fn layers_that_add_the_residual_stream_have_the_bits_of_separate_ones() {
    for level in Level::ALL {
        let separate = Setup { levels: vec![level; 2], ..setup() };
        let joined = Setup { joins: true, ..separate.clone() };
        // Behind attention and behind the MLP. Two levels compute the first again.
        let of_backward = if level >= Level::R5 { 2 } else { 0 };
        let adds = [&separate, &joined].map(|setup| count(setup, "linear_add"));
        assert_eq!(adds, [0, 4 + of_backward], "{level}");
        assert_same_bits(level, &joined, &separate);
    }
}

fn assert_same_bits(level: Level, joined: &Setup, separate: &Setup) {
    let want = trace(separate, CpuOptions::new(2));
    for memory in [MemoryMode::Arena, MemoryMode::Separate] {
        let options = CpuOptions { memory, poison: true, ..CpuOptions::new(2) };
        assert_same(&format!("{level} {memory:?}"), &trace(joined, options), &want);
    }
}
