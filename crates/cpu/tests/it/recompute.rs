//! Promise 3 for recompute: whatever a layer makes again instead of keeping it, every loss and
//! gradient has the same bits as in the run that keeps everything. And it really keeps less.

use crate::bits::{assert_same, trace};
use crate::fixture::{Setup, setup};
use fitgpt_cpu::{CpuOptions, MemoryMode};
use model::{Dims, Level};
use plan::{Bytes, Plan};
use rng::{Purpose, Stream};

fn at(levels: &[Level], setup: Setup) -> Setup {
    Setup { levels: levels.to_vec(), ..setup }
}

fn arena(setup: &Setup) -> Bytes {
    Plan::new(setup.draft().schedule).unwrap().arena_bytes
}

/// Deep and narrow: quick, and the levels of its layers can be mixed in many ways.
fn deep() -> Setup {
    let dims =
        Dims { n_layer: 5, n_head: 2, n_embd: 12, block_size: 40, vocab_size: 31, bias: true };
    Setup { dims, slices: vec![3], positions: 40, loss_rows: 3, dropout: 0.1, ..setup() }
}

#[test]
fn every_level_gives_the_same_bits() {
    for dropout in [0.0, 0.2] {
        let keep = Setup { dropout, ..setup() };
        let want = trace(&keep, CpuOptions::new(2));
        for level in Level::ALL {
            let setup = at(&[level, level], keep.clone());
            assert_same(level.name(), &trace(&setup, CpuOptions::new(2)), &want);
            // Poison reveals a step that reads what was dropped; separate memory, one that writes
            // too far.
            for (memory, poison) in [(MemoryMode::Arena, true), (MemoryMode::Separate, true)] {
                let options = CpuOptions { memory, poison, ..CpuOptions::new(2) };
                assert_same(&format!("{level} {memory:?}"), &trace(&setup, options), &want);
            }
        }
    }
}

#[test]
fn every_chunk_and_slicing_at_every_level() {
    for level in Level::ALL {
        let slices = vec![4, 3];
        let want = trace(&Setup { slices: slices.clone(), ..setup() }, CpuOptions::new(1));
        for head_chunk in [1, 512, 100_000] {
            let cut = Setup { head_chunk, slices: slices.clone(), ..setup() };
            let got = trace(&at(&[level, Level::R0], cut), CpuOptions::new(2));
            assert_same(&format!("{level}, chunk {head_chunk}"), &got, &want);
        }
    }
}

#[test]
fn two_hundred_random_level_vectors() {
    let want = trace(&deep(), CpuOptions::new(1));
    let mut draws = Stream::new(4, Purpose::Sample, 0);
    for _ in 0..200 {
        let mut level = || Level::ALL[draws.below(Level::ALL.len() as u64) as usize];
        let levels = [level(), level(), level(), level(), level()];
        let options = CpuOptions { poison: true, ..CpuOptions::new(1) };
        assert_same(&format!("{levels:?}"), &trace(&at(&levels, deep()), options), &want);
    }
}

/// Long sequences, so that activations take more memory than weights: each level keeps less than
/// the one that it extends.
#[test]
fn stronger_levels_need_less() {
    let dims =
        Dims { n_layer: 8, n_head: 2, n_embd: 32, block_size: 256, vocab_size: 64, bias: false };
    let wide = Setup { dims, slices: vec![8], positions: 256, loss_rows: 8, ..setup() };
    let bytes = |level| arena(&at(&[level; 8], wide.clone()));
    let chains: [&[Level]; 3] = [
        &[Level::R0, Level::R1, Level::R2, Level::R3, Level::R4, Level::R5, Level::R6],
        &[Level::R2, Level::R3q, Level::R4],
        &[Level::R2, Level::R2h, Level::R4],
    ];
    for chain in chains {
        for pair in chain.windows(2) {
            let [weaker, stronger] = [bytes(pair[0]), bytes(pair[1])];
            assert!(stronger < weaker, "{pair:?}: {weaker} {stronger}");
        }
    }
}
