//! Executes a plan on the CPU, in f32.
//!
//! `executor` is one `match` over ops; `kernels` has a file for each op. The bits of every result
//! depend only on what the plan computes: threads divide work but never a sum, sums over tokens run
//! in blocks of 256, and vector lanes are summed in one fixed order on every CPU.
//!
//! `unsafe` is confined to four modules: `arena` (offsets to slices), `pool` (a slice divided among
//! threads), `vector` (SIMD registers) and the dispatch in `isa`.

mod executor;
mod arena;
mod pool;
mod wire;
mod kernels;
mod row_sums;
pub mod math;
mod isa;
mod vector;
mod peak;
mod system_memory;

pub use arena::MemoryMode;
pub use executor::{CpuBackend, CpuOptions, CpuScratch};
pub use isa::Isa;
pub use peak::{memory_bandwidth, peak_flops};
pub use system_memory::{available_bytes, held_bytes, total_bytes};
