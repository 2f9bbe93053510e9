//! Executes a plan on an NVIDIA GPU.
//!
//! Driver, compiler (NVRTC) and matmuls (cuBLASLt) are loaded at run time; if one is missing, the
//! error says what to install. `lowering` turns every op into launches, `kernels` has a file of
//! CUDA and a file of launches for each family of ops, and `executor` allocates the memory and
//! runs. The same plan on the same GPU and libraries gives the same bits: no float atomics, sums
//! over tokens in fixed shares, one algorithm for each shape of matmul. If matmuls are timed, the
//! algorithms are part of what must be the same; checkpoints and the cache keep them.
//!
//! A plan may be that of one rank among several: `transport` moves bytes between them, through NCCL
//! (`nccl`) or through the host.
//!
//! `unsafe` is confined to the bindings to C (`library`, `driver`, `nvrtc`, `cublaslt`, `nvml`,
//! `nccl`), the wrappers of what the driver manages (`context`, `module`, `memory`, `stream`), and
//! the modules that use those on memory: `staging`, `transport`, `setup`, `autotune`, `executor`.

mod executor;
mod setup;
mod autotune;
mod matmul_cache;
mod lowering;
mod kernel_source;
#[doc(hidden)]
pub mod signature;
mod constants;
mod step;
mod limits;
mod kernels;
mod tiles;
mod warpgroups;
mod staging;
mod transport;
mod memory;
mod stream;
mod lane_events;
mod late_reads;
mod module;
mod tensor_map;
mod context;
mod device;
mod cublaslt;
mod nvrtc;
mod cubin_cache;
mod nvml;
mod nccl;
mod driver;
mod installation;
mod library;
mod error;

pub use cubin_cache::CubinCache;
pub use cublaslt::{MatmulLibrary, MatmulShape, find_matmul_library};
pub use device::{Gpu, GpuInfo, OLDEST_SM, gpus};
pub use driver::Driver;
pub use error::CudaError;
pub use executor::{CudaBackend, CudaOptions, GRANULE, GRAPH_RESERVE, Held, LoadError};
pub use kernel_source::ModuleSpec;
pub use library::LibraryError;
pub use lowering::LoweringOptions;
pub use nccl::{Communicator, Nccl, NcclId};
pub use nvml::{GpuLoad, GpuProcess, Nvml, NvmlGpu};
pub use nvrtc::{Compiler, Target};
pub use tiles::{AttentionTiles, Multiplier, Tile, Tiles};
pub use transport::{HostExchange, Transport};

use plan::{BackendError, Plan};

/// The largest head that attention has kernels for.
pub fn largest_head(dtype: plan::Dtype) -> u64 {
    kernels::attention::largest_head(dtype)
}

/// A module that a plan needs, and the dynamic shared memory of its kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleUse {
    /// The module.
    pub module: ModuleSpec,
    /// The most bytes that a launch of each kernel asks for.
    pub shared: Vec<(&'static str, u32)>,
}

/// The modules that a plan needs: what a check compiles where there is no GPU.
pub fn modules(plan: &Plan, options: LoweringOptions) -> Result<Vec<ModuleUse>, BackendError> {
    let lowered = lowering::lower(plan, options)?;
    let mut uses: Vec<ModuleUse> = lowered
        .modules
        .into_iter()
        .map(|module| ModuleUse { module, shared: Vec::new() })
        .collect();
    for work in lowered.segments.iter().flatten().flatten() {
        let lowering::Work::Kernel(launch) = work else { continue };
        let shared = &mut uses[launch.module].shared;
        match shared.iter_mut().find(|(entry, _)| *entry == launch.signature.entry) {
            Some((_, most)) => *most = launch.shared.max(*most),
            None => shared.push((launch.signature.entry, launch.shared)),
        }
    }
    Ok(uses)
}
