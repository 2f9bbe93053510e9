//! Promise 3: decisions of the planner never change a bit. Losses and gradients of one training
//! step, and weights after two updates, are compared word by word.

use crate::fixture::{Setup, instruction_sets, setup};
use fitgpt_cpu::{CpuOptions, MemoryMode};

/// Everything that a training run computes, as bit patterns.
#[derive(PartialEq)]
pub struct Trace {
    losses: Vec<u32>,
    gradients: Vec<Vec<u32>>,
    weights: Vec<Vec<u32>>,
    eval: Vec<u32>,
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

pub fn trace(setup: &Setup, options: CpuOptions) -> Trace {
    let mut run = setup.run(options);
    run.run_slices(setup, &setup.slices, false, 0);
    let losses = bits(&run.losses());
    let gradients: Vec<Vec<u32>> = run.gradients().iter().map(|g| bits(g)).collect();
    assert!(run.losses().iter().all(|loss| loss.is_finite() && *loss > 0.0));
    assert!(run.gradients().iter().flatten().all(|g| g.is_finite()));
    assert!(run.gradients().iter().all(|g| g.iter().any(|&x| x != 0.0)));
    run.update();
    assert!(run.gradients().iter().flatten().all(|&g| g == 0.0), "AdamW leaves gradients zero");
    run.run_slices(setup, &setup.slices, false, 1);
    run.update();
    run.run_slices(setup, &setup.slices, true, 2);
    let eval = bits(&run.losses());
    let weights = run.weights().iter().map(|w| bits(w)).collect();
    Trace { losses, gradients, weights, eval }
}

pub fn assert_same(what: &str, got: &Trace, want: &Trace) {
    assert!(got.losses == want.losses, "{what}: losses differ");
    for (index, (got, want)) in got.gradients.iter().zip(&want.gradients).enumerate() {
        assert!(got == want, "{what}: gradient of parameter {index} differs");
    }
    assert!(got.weights == want.weights, "{what}: weights differ");
    assert!(got.eval == want.eval, "{what}: eval losses differ");
}

fn dropped() -> Setup {
    Setup { dropout: 0.2, ..setup() }
}

#[test]
fn repeated_runs() {
    let want = trace(&dropped(), CpuOptions::new(2));
    assert_same("again", &trace(&dropped(), CpuOptions::new(2)), &want);
}

#[test]
fn any_number_of_threads() {
    for setup in [setup(), dropped()] {
        let want = trace(&setup, CpuOptions::new(1));
        for threads in [2, 3] {
            let got = trace(&setup, CpuOptions::new(threads));
            assert_same(&format!("{threads} threads"), &got, &want);
        }
    }
}

#[test]
fn any_head_chunk() {
    // 630 tokens: three blocks of 256, the last one partial.
    let want = trace(&setup(), CpuOptions::new(2));
    for head_chunk in [1, 512, 600, 1 << 20] {
        let got = trace(&Setup { head_chunk, ..setup() }, CpuOptions::new(2));
        assert_same(&format!("chunk {head_chunk}"), &got, &want);
    }
}

#[test]
fn any_instruction_set() {
    let want = trace(&dropped(), CpuOptions::new(2));
    for isa in instruction_sets() {
        let got = trace(&dropped(), CpuOptions { isa, ..CpuOptions::new(2) });
        assert_same(isa.name(), &got, &want);
    }
}

#[test]
fn poison_and_separate_allocations() {
    for setup in [setup(), dropped(), Setup { slices: vec![4, 3], ..setup() }] {
        let want = trace(&setup, CpuOptions::new(2));
        for (memory, poison) in
            [(MemoryMode::Arena, true), (MemoryMode::Separate, false), (MemoryMode::Separate, true)]
        {
            let got = trace(&setup, CpuOptions { memory, poison, ..CpuOptions::new(2) });
            assert_same(&format!("{memory:?}, poison {poison}"), &got, &want);
        }
    }
}

/// Ways to cut seven sequences.
const CUTS: [&[u64]; 5] = [&[7], &[4, 3], &[3, 4], &[1, 2, 4], &[1, 1, 1, 4]];

#[test]
fn eval_is_independent_of_slicing() {
    let setup = Setup { slices: vec![7, 4, 3, 2, 1], ..setup() };
    let mut run = setup.run(CpuOptions::new(2));
    run.run_slices(&setup, CUTS[0], true, 0);
    let want = bits(&run.losses());
    for cuts in CUTS {
        run.run_slices(&setup, cuts, true, 0);
        assert_eq!(bits(&run.losses()), want, "{cuts:?}");
    }
}

/// Every way to cut seven sequences, larger slices first.
fn partitions(left: u64, most: u64) -> Vec<Vec<u64>> {
    if left == 0 {
        return vec![Vec::new()];
    }
    let with = |first: u64| {
        let rests = partitions(left - first, first);
        rests.into_iter().map(move |rest| [vec![first], rest].concat()).collect::<Vec<_>>()
    };
    (1..=left.min(most)).flat_map(with).collect()
}

#[test]
fn every_slicing_gives_the_same_gradients_but_for_rounding() {
    let all = partitions(7, 7);
    assert_eq!(all.len(), 15);
    let setup = Setup { slices: vec![7, 6, 5, 4, 3, 2, 1], ..setup() };
    let gradients = |cuts: &[u64]| {
        let mut run = setup.run(CpuOptions::new(2));
        run.run_slices(&setup, cuts, false, 0);
        run.gradients()
    };
    let want = gradients(&[7]);
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    for cuts in all {
        for (got, want) in gradients(&cuts).iter().zip(&want) {
            let pairs = got.iter().zip(want);
            let off = norm(&mut pairs.map(|(a, b)| f64::from(*a) - f64::from(*b)));
            let size = norm(&mut want.iter().map(|x| f64::from(*x)));
            assert!(off <= 1e-5 * size, "{cuts:?}: {off} of {size}");
        }
    }
}

#[test]
fn dropout_masks_are_independent_of_slicing() {
    // Equal losses to the bit: a different mask anywhere would show.
    let setup = Setup { slices: vec![7, 4, 3, 2, 1], ..dropped() };
    let mut run = setup.run(CpuOptions::new(2));
    run.run_slices(&setup, CUTS[0], false, 5);
    let (want, gradients) = (bits(&run.losses()), run.gradients());
    for cuts in &CUTS[1..] {
        let mut run = setup.run(CpuOptions::new(2));
        run.run_slices(&setup, cuts, false, 5);
        assert_eq!(bits(&run.losses()), want, "{cuts:?}");
        for (got, want) in run.gradients().iter().zip(&gradients) {
            let scale = want.iter().fold(0.0f32, |max, g| max.max(g.abs()));
            for (got, want) in got.iter().zip(want) {
                assert!((got - want).abs() <= 1e-5 * scale, "{cuts:?}: {got} {want}");
            }
        }
    }
    let mut other = setup.run(CpuOptions::new(2));
    other.run_slices(&setup, CUTS[0], false, 6);
    assert_ne!(bits(&other.losses()), want, "another iteration draws other masks");
}

#[test]
fn eval_does_not_touch_training() {
    let setup = dropped();
    let with_eval = |evals: bool| {
        let mut run = setup.run(CpuOptions::new(2));
        for iteration in 0..3 {
            if evals {
                run.run_slices(&setup, &setup.slices, true, iteration);
            }
            run.run_slices(&setup, &setup.slices, false, iteration);
            run.update();
        }
        run.weights()
    };
    assert_eq!(with_eval(false), with_eval(true));
}
