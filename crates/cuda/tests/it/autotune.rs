//! Timed matmuls: the cache and a checkpoint's choices give the same algorithms and the same bits.

use crate::fixture::{gpu_alone_with, load};
use crate::small_run::{SmallRun, small_run};
use fitgpt_cuda::{CubinCache, CudaBackend, CudaOptions, Gpu};
use model::Types;
use plan::{Dtype, GpuScratch, Plan, Proved, verify};
use std::path::{Path, PathBuf};

const ITERATIONS: u64 = 2;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("fitgpt-autotune-{}-{name}", std::process::id());
        Folder(std::env::temp_dir().join(name))
    }

    /// The file of timed matmuls.
    fn timed(&self) -> PathBuf {
        let is_timed = |path: &Path| path.extension().is_some_and(|ending| ending == "txt");
        let entries = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        entries.into_iter().find(|path| is_timed(path)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn formats() -> Vec<SmallRun> {
    let run = |format: Dtype| {
        let types = Types { compute: format, residual: format };
        SmallRun { types, ..small_run() }
    };
    [Dtype::Bf16, Dtype::F16, Dtype::F32].map(run).to_vec()
}

fn proved(run: &SmallRun, gpu: &Gpu) -> Proved<GpuScratch> {
    verify(Plan::new(run.draft().schedule).unwrap(), gpu.scratch()).unwrap()
}

#[test]
fn timed_choices_are_kept_and_give_the_same_bits() {
    let folder = Folder::new("kept");
    let Some(gpu) = gpu_alone_with(CubinCache::at(&folder.0)) else { return };
    for run in formats() {
        let plain = CudaOptions::new(&gpu);
        let timed = CudaOptions { autotune: true, ..plain.clone() };
        let plan = || proved(&run, &gpu);
        assert_eq!(CudaBackend::to_time(&gpu, &plan(), &plain), Ok(0));
        let open = CudaBackend::to_time(&gpu, &plan(), &timed).unwrap();
        assert!(open > 0, "nothing is timed yet");
        let held = gpu.held_bytes().unwrap();
        let choices = run.engine(&gpu, &timed).backend().choices();
        let grown = gpu.held_bytes().unwrap().saturating_sub(held);
        assert!(grown <= 64 << 20, "{grown} bytes stay after timing");
        assert_eq!(CudaBackend::to_time(&gpu, &plan(), &timed), Ok(0), "all are in the cache");
        let want = run.trace(&gpu, &timed, ITERATIONS);
        assert_eq!(run.engine(&gpu, &timed).backend().choices(), choices, "from the cache");
        let resumed = CudaOptions { choices: choices.clone(), ..plain.clone() };
        assert_eq!(run.engine(&gpu, &resumed).backend().choices(), choices, "from a checkpoint");
        assert!(run.trace(&gpu, &resumed, ITERATIONS) == want, "the same bits");
    }
    assert_eq!(gpu.cache_notice(), None);
    // A damaged file is said, and its matmuls are timed again.
    std::fs::write(folder.timed(), "fitgpt matmuls 1\n").unwrap();
    let run = small_run();
    let timed = CudaOptions { autotune: true, ..CudaOptions::new(&gpu) };
    run.trace(&gpu, &timed, ITERATIONS);
    let notice = gpu.cache_notice().unwrap();
    assert!(notice.ends_with("is ignored: it is damaged"), "{notice}");
    assert_eq!(CudaBackend::to_time(&gpu, &proved(&run, &gpu), &timed), Ok(0));
}

/// Without room in the budget for timing, the heuristic's favourites are used.
#[test]
fn timing_stays_within_the_budget() {
    let folder = Folder::new("budget");
    let Some(gpu) = gpu_alone_with(CubinCache::at(&folder.0)) else { return };
    let run = small_run();
    let plain = run.engine(&gpu, &CudaOptions::new(&gpu)).backend().choices();
    let budget = Some(gpu.held_bytes().unwrap());
    let options = CudaOptions { autotune: true, budget, ..CudaOptions::new(&gpu) };
    let plan = Plan::new(run.draft().schedule).unwrap();
    let error = load(&gpu, plan, &options).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("more than the"), "{error}");
    let open = CudaBackend::to_time(&gpu, &proved(&run, &gpu), &options).unwrap();
    assert!(open > 0, "nothing was timed");
    let resumed = CudaOptions { choices: plain.clone(), ..CudaOptions::new(&gpu) };
    assert_eq!(run.engine(&gpu, &resumed).backend().choices(), plain);
}
