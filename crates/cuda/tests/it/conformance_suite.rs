//! The cases and goldens that every backend must pass, in true f32, and the ops in both 16-bit
//! formats and in TF32 against the CPU: launched one by one, as graphs, and with each set of tiles.

use crate::fixture::{BothScratch, MOST_SCRATCH, gpu, load};
use conformance::{
    Failure, Summary, check_agreement, check_finite_differences, check_formats, check_models,
    check_ops, check_tf32,
};
use cpu::{CpuBackend, CpuOptions, CpuScratch};
use fitgpt_cuda::{CudaOptions, LoweringOptions, Tiles, modules};
use plan::{Backend, BackendError, Dtype, Plan, Scratch, verify};
use std::rc::Rc;

const THREADS: usize = 2;

type Check = fn(conformance::LoadBackend<'_>, &Rc<dyn Scratch>) -> Result<Summary, Vec<Failure>>;

fn scratch() -> Rc<dyn Scratch> {
    Rc::new(BothScratch(CpuScratch { threads: THREADS }))
}

fn on_cpu(plan: Plan) -> Result<Box<dyn Backend>, BackendError> {
    let proved = verify(plan, CpuScratch { threads: THREADS })?;
    Ok(Box::new(CpuBackend::new(proved, CpuOptions::new(THREADS))?))
}

fn report(what: &str, result: Result<Summary, Vec<Failure>>) {
    match result {
        Ok(summary) => println!("{what}: {summary}"),
        Err(failures) => {
            let lines: Vec<String> = failures.iter().map(ToString::to_string).collect();
            panic!("{what}: {} failures\n{}", lines.len(), lines.join("\n"));
        }
    }
}

fn passes(check: Check, graphs: bool) {
    let Some(gpu) = gpu() else { return };
    let options = CudaOptions { graphs, tf32: false, ..CudaOptions::new(&gpu) };
    report("f32", check(&|plan| load(&gpu, plan, &options), &scratch()));
}

#[test]
fn every_op_matches_pytorch() {
    passes(check_ops, false);
}

#[test]
fn every_op_matches_finite_differences() {
    passes(check_finite_differences, false);
}

#[test]
fn whole_models_match_pytorch_as_graphs() {
    passes(check_models, true);
}

#[test]
fn every_op_agrees_with_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let options = CudaOptions { graphs: true, tf32: false, ..CudaOptions::new(&gpu) };
    let on_gpu = |plan| load(&gpu, plan, &options);
    report("gpu and cpu", check_agreement(&on_gpu, &on_cpu, &scratch()));
}

/// The kinds of attention kernels: tiles, and whether on warpgroups.
const KINDS: [(Tiles, bool); 3] =
    [(Tiles::Small, false), (Tiles::Large, false), (Tiles::Large, true)];

/// What the next test runs, proved and lowered where there is no GPU.
#[test]
fn sixteen_bit_ops_lower() {
    const LOWERED: &str = "lowered, not run";
    for (tiles, warpgroups) in KINDS {
        for dtype in [Dtype::Bf16, Dtype::F16] {
            let lower = |plan: Plan| {
                let proved = verify(plan, MOST_SCRATCH)?;
                modules(
                    &proved,
                    LoweringOptions { tf32: true, tiles, warpgroups, multiprocessors: 132 },
                )?;
                Err(BackendError::Refused { what: LOWERED.to_string() })
            };
            let result = check_formats(&lower, &lower, dtype, &[], &scratch());
            let failures = result.unwrap_err();
            let said: Vec<String> = failures.iter().map(ToString::to_string).collect();
            let wrong: Vec<&String> = said.iter().filter(|line| !line.ends_with(LOWERED)).collect();
            assert!(wrong.is_empty(), "{dtype}: {wrong:#?}");
            assert!(said.len() >= 50, "only {} cases were lowered", said.len());
        }
    }
}

#[test]
fn sixteen_bit_ops_agree_with_f32_on_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let has_warpgroups = gpu.info().has_warpgroups();
    for (tiles, warpgroups) in KINDS.into_iter().filter(|kind| has_warpgroups || !kind.1) {
        for dtype in [Dtype::Bf16, Dtype::F16] {
            let options =
                CudaOptions { graphs: false, tiles, warpgroups, ..CudaOptions::new(&gpu) };
            let on_gpu = |plan| load(&gpu, plan, &options);
            let result = check_formats(&on_gpu, &on_cpu, dtype, &[], &scratch());
            report(&format!("{dtype}, {tiles:?} tiles, warpgroups: {warpgroups}"), result);
        }
    }
}

#[test]
fn tf32_ops_agree_with_f32_on_the_cpu() {
    let Some(gpu) = gpu() else { return };
    // Large tiles do not fit the shared memory of every GPU.
    for tiles in [Tiles::Small, CudaOptions::new(&gpu).tiles] {
        let options = CudaOptions { graphs: false, tf32: true, tiles, ..CudaOptions::new(&gpu) };
        let result = check_tf32(&|plan| load(&gpu, plan, &options), &on_cpu, &scratch());
        report(&format!("TF32, {tiles:?} tiles"), result);
    }
}
