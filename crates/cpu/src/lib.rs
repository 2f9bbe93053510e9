//! Executes a plan on the CPU, in f32.
//!
//! `executor` is one `match` over ops; `kernels` has a file for each. The bits of every result
//! are a function of the plan's mathematics alone: threads share work, never a sum; sums over
//! tokens run in blocks of 256; lanes of vectors are summed in one fixed order on every CPU.
//!
//! `unsafe` stands behind four doors: `arena` (offsets to slices), `pool` (a slice cut into
//! parts for threads), `vector` (SIMD registers) and the dispatch in `isa`.

mod arena;
mod executor;
mod isa;
mod kernels;
mod lanes;
pub mod math;
mod peak;
mod pool;
mod system_memory;
mod vector;

pub use arena::MemoryMode;
pub use executor::{CpuBackend, CpuOptions, CpuScratch};
pub use isa::Isa;
pub use peak::{memory_bandwidth, peak_flops};
pub use system_memory::{available_bytes, held_bytes, total_bytes};
