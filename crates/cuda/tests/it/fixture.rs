//! A GPU for tests. Without one, the test is recorded as skipped.

use fitgpt_cuda::{CubinCache, CudaBackend, CudaOptions, Gpu, LoadError};
use plan::ops::Op;
use plan::{Backend, BackendError, Bytes, GpuScratch, Plan, Scratch, Tensors, verify};
use requires::{Need, absent};
use std::ops::Deref;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Held by every test that uses the GPU: shared, or alone by a test that measures memory.
static USERS: RwLock<()> = RwLock::new(());

/// A GPU, and that this test is one of its users.
pub struct InUse<Guard> {
    gpu: Gpu,
    _user: Guard,
}

impl<Guard> Deref for InUse<Guard> {
    type Target = Gpu;

    fn deref(&self) -> &Gpu {
        &self.gpu
    }
}

/// The first GPU. Without one the test is recorded as skipped.
pub fn gpu() -> Option<InUse<RwLockReadGuard<'static, ()>>> {
    opened(USERS.read().unwrap_or_else(PoisonError::into_inner), CubinCache::standard())
}

/// The first GPU, while no other test of this program uses it.
pub fn gpu_alone() -> Option<InUse<RwLockWriteGuard<'static, ()>>> {
    gpu_alone_with(CubinCache::standard())
}

/// The same with a cache of its own.
pub fn gpu_alone_with(cache: CubinCache) -> Option<InUse<RwLockWriteGuard<'static, ()>>> {
    opened(USERS.write().unwrap_or_else(PoisonError::into_inner), cache)
}

fn opened<Guard>(user: Guard, cache: CubinCache) -> Option<InUse<Guard>> {
    match Gpu::open(0, cache) {
        Ok(gpu) => Some(InUse { gpu, _user: user }),
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

    fn head_rows(&self, vocabulary: u64) -> u64 {
        MOST_SCRATCH.head_rows(vocabulary)
    }

    fn computes_joined(&self, op: &Op, tensors: &Tensors) -> bool {
        MOST_SCRATCH.computes_joined(op, tensors)
    }
}
