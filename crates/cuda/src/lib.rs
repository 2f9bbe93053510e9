//! Executes a plan on an NVIDIA GPU.
//!
//! Driver, compiler (NVRTC) and products (cuBLASLt) are loaded at run time; what is missing is an
//! error that says what to install. `lowering` turns every op into launches, `kernels` has a file
//! of CUDA and a file of launches for each family of ops, `executor` takes the memory and runs.
//! The same plan on the same GPU and libraries gives the same bits: no float atomics, sums over
//! tokens in fixed shares, one algorithm for each shape of product.
//!
//! `unsafe` stands behind the doors to C: `library`, `driver`, `nvrtc`, `cublaslt`, `nvml`, and
//! the two that use them on memory, `staging` and `executor`.

mod cubin_cache;
mod cublaslt;
mod device;
mod driver;
mod executor;
mod kernels;
mod library;
mod limits;
mod lowering;
mod nvml;
mod nvrtc;
mod staging;
mod tiles;

pub use cubin_cache::CubinCache;
pub use cublaslt::{ProductShape, Products, find_products};
pub use device::{Gpu, GpuInfo, OLDEST_SM, gpus};
pub use driver::{CudaError, Driver};
pub use executor::{CudaBackend, CudaOptions, GRANULE, GRAPH_RESERVE, Held, LoadError};
pub use library::LibraryError;
pub use lowering::{LoweringOptions, ModuleSpec};
pub use nvml::{GpuLoad, GpuProcess, Nvml, NvmlGpu};
pub use nvrtc::{Compiled, Compiler};
pub use tiles::{AttentionTiles, Tile, Tiles};

use plan::{BackendError, Plan};

/// The modules that a plan needs: what a check compiles where there is no GPU.
pub fn modules(plan: &Plan, options: LoweringOptions) -> Result<Vec<ModuleSpec>, BackendError> {
    Ok(lowering::lower(plan, options)?.modules)
}
