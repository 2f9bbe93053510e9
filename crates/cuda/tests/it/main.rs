//! Tests of the CUDA backend. Those that need NVRTC or a GPU are recorded as skipped without.
#![allow(clippy::unwrap_used, clippy::panic)]

mod autotune;
mod bits;
mod conformance_suite;
mod cubin;
mod fixture;
mod halves;
mod joined;
mod kernels;
mod late_reads;
mod loss_scale;
mod random_plans;
mod ranks;
mod small_run;
