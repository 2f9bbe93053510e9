//! Runs this test program again as the ranks of a real MPI, under its `mpiexec`.

#![allow(clippy::unwrap_used, clippy::panic)]

mod exchange;
mod watched;
mod refusals;
