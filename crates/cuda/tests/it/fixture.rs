//! A GPU for tests. Without one, the test is recorded as skipped.

use fitgpt_cuda::{CubinCache, CudaBackend, CudaOptions, Gpu, LoadError};
use plan::ops::Op;
use plan::{Backend, BackendError, Bytes, GpuScratch, Plan, Scratch, Tensors, verify};
use requires::{Need, absent};

/// The first GPU. Without one the test is recorded as skipped.
pub fn gpu() -> Option<Gpu> {
    match Gpu::open(0, CubinCache::standard()) {
        Ok(gpu) => Some(gpu),
        Err(error) => {
            absent(Need::Gpu, error);
            None
        }
    }
}

/// A backend for a plan.
pub fn load(
    gpu: &Gpu,
    plan: Plan,
    options: &CudaOptions,
) -> Result<Box<dyn Backend>, BackendError> {
    match CudaBackend::new(gpu, verify(plan, gpu.scratch())?, options) {
        Ok(backend) => Ok(Box::new(backend)),
        Err(LoadError::Backend(error)) => Err(error),
        Err(error) => Err(BackendError::Device { what: error.to_string() }),
    }
}

/// Scratch that is enough for every GPU.
pub const MOST_SCRATCH: GpuScratch = GpuScratch { warpgroups: true };

/// Scratch that is enough for both GPU and CPU.
#[derive(Debug)]
pub struct BothScratch(pub cpu::CpuScratch);

impl Scratch for BothScratch {
    fn bytes(&self, op: &Op, tensors: &Tensors) -> Option<Bytes> {
        Some(self.0.bytes(op, tensors)?.max(MOST_SCRATCH.bytes(op, tensors)?))
    }
}
