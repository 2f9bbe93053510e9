//! Moves bytes between the ranks of a run by MPI. The library is loaded at run time through the
//! standard ABI of MPI 5.0 (`libmpi_abi.so.1`), so nothing of MPI is needed at build time and any
//! MPI that has this ABI will do. No algorithm of our own: every call is one of MPI's collectives.

mod world;
mod calls;
mod abi;
mod finder;
mod leave;

pub use finder::{ENVIRONMENT, INSTALL, mpiexec};
pub use leave::{leave, leave_together};
pub use world::{LONGEST_MESSAGE, World, finished};
