//! Tests of the CUDA backend. Those that need NVRTC or a GPU say so and pass where it is not.

mod conformance_suite;
mod fixture;
mod kernels;
