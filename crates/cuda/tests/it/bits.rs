//! The same bits: in two runs, with graphs and single launches, and at every level of recompute.

use crate::fixture::gpu;
use crate::small_run::{LAYERS, SmallRun, small_run};
use fitgpt_cuda::CudaOptions;
use model::{Level, Types};
use plan::Dtype;

const ITERATIONS: u64 = 4;

fn formats() -> Vec<SmallRun> {
    let all = [
        [Dtype::Bf16, Dtype::Bf16, Dtype::F32],
        [Dtype::Bf16, Dtype::F32, Dtype::Bf16],
        [Dtype::F16, Dtype::F16, Dtype::F32],
        [Dtype::F32, Dtype::F32, Dtype::F32],
    ];
    let run = |[compute, residual, moments]: [Dtype; 3]| {
        let types = Types { compute, residual };
        SmallRun { types, moments, dropout: 0.1, ..small_run() }
    };
    // Heads of 64 and 128: TF32, and warpgroups where the GPU has them.
    let wide = |(n_embd, compute, dropout)| {
        let types = Types { compute, residual: compute };
        SmallRun { types, n_embd, dropout, ..small_run() }
    };
    let wide_runs = [
        (256, Dtype::Bf16, 0.0),
        (256, Dtype::F16, 0.1),
        (512, Dtype::F16, 0.0),
        (512, Dtype::Bf16, 0.1),
        (256, Dtype::F32, 0.0),
    ]
    .map(wide);
    all.map(run).into_iter().chain(wide_runs).collect()
}

fn assert_same(what: &str, got: &[u8], want: &[u8]) {
    let differ = got.iter().zip(want).filter(|(a, b)| a != b).count();
    assert!(got.len() == want.len() && differ == 0, "{what}: {differ} of {} bytes", want.len());
}

#[test]
fn two_runs_and_graphs_give_the_same_bits() {
    let Some(gpu) = gpu() else { return };
    let options = CudaOptions::new(&gpu);
    for run in formats() {
        let want = run.trace(&gpu, &options, ITERATIONS);
        assert_same("a second run", &run.trace(&gpu, &options, ITERATIONS), &want);
        let plain = CudaOptions { graphs: false, ..options.clone() };
        assert_same("without graphs", &run.trace(&gpu, &plain, ITERATIONS), &want);
    }
}

#[test]
fn every_level_gives_the_same_bits() {
    let Some(gpu) = gpu() else { return };
    let options = CudaOptions::new(&gpu);
    for run in formats() {
        let want = run.trace(&gpu, &options, ITERATIONS);
        for level in Level::ALL {
            let levels = vec![level; LAYERS as usize];
            let again = SmallRun { levels, ..run.clone() };
            assert_same(level.name(), &again.trace(&gpu, &options, ITERATIONS), &want);
        }
    }
}

/// Two slices of different sizes share the room for activations on the host; layers around those
/// that use it recompute more or less.
#[test]
fn mixed_levels_in_two_slices_give_the_same_bits() {
    let Some(gpu) = gpu() else { return };
    let options = CudaOptions::new(&gpu);
    for run in formats() {
        let run = SmallRun { slices: vec![4, 2], ..run };
        let want = run.trace(&gpu, &options, ITERATIONS);
        for levels in [
            [Level::R2h, Level::R0, Level::R4],
            [Level::R5, Level::R2h, Level::R2h],
            [Level::R2h, Level::R6, Level::R2h],
        ] {
            let what = format!("{levels:?}");
            let mixed = SmallRun { levels: levels.to_vec(), offload: Some(1 << 16), ..run.clone() };
            assert_same(&what, &mixed.trace(&gpu, &options, ITERATIONS), &want);
        }
    }
}

#[test]
fn state_in_host_memory_gives_the_same_bits() {
    let Some(gpu) = gpu() else { return };
    let options = CudaOptions::new(&gpu);
    for run in formats() {
        let want = run.trace(&gpu, &options, ITERATIONS);
        let offloaded = SmallRun { offload: Some(1 << 16), ..run.clone() };
        assert_same("offloaded", &offloaded.trace(&gpu, &options, ITERATIONS), &want);
    }
}
