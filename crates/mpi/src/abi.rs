//! The part of MPI's standard ABI that we call: constants and functions of `mpi_abi.h` as MPI 5.0
//! defines them. Handles are pointers with fixed small values; counts and displacements of the
//! functions in `_c` have 64 bits, so that no buffer is too long for one call.

use library::function_table;
use std::ffi::{c_char, c_int, c_void};

/// A handle: never followed, only passed on.
pub type Handle = *mut c_void;

/// A count or a displacement.
pub type Count = i64;

/// Handles and constants of the ABI.
pub const COMM_WORLD: usize = 0x101;
pub const ERRORS_RETURN: usize = 0x143;
pub const BYTE: usize = 0x247;
/// Instead of the buffer to send: it is already in its place of the received one.
pub const IN_PLACE: usize = 1;
pub const THREAD_SERIALIZED: c_int = 2048;
pub const SUCCESS: c_int = 0;
pub const MAX_ERROR_STRING: usize = 512;
pub const MAX_LIBRARY_VERSION_STRING: usize = 8192;

function_table! {
    /// The functions, by MPI's names.
    Api {
        MPI_Initialized: fn(*mut c_int) -> c_int,
        MPI_Init_thread: fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int,
        MPI_Finalize: fn() -> c_int,
        MPI_Abort: fn(Handle, c_int) -> c_int,
        MPI_Comm_rank: fn(Handle, *mut c_int) -> c_int,
        MPI_Comm_size: fn(Handle, *mut c_int) -> c_int,
        MPI_Comm_set_errhandler: fn(Handle, Handle) -> c_int,
        MPI_Error_string: fn(c_int, *mut c_char, *mut c_int) -> c_int,
        MPI_Get_library_version: fn(*mut c_char, *mut c_int) -> c_int,
        MPI_Barrier: fn(Handle) -> c_int,
        MPI_Bcast_c: fn(*mut c_void, Count, Handle, c_int, Handle) -> c_int,
        MPI_Allgatherv_c: fn(
            *const c_void, Count, Handle,
            *mut c_void, *const Count, *const isize, Handle,
            Handle,
        ) -> c_int,
        MPI_Alltoallv_c: fn(
            *const c_void, *const Count, *const isize, Handle,
            *mut c_void, *const Count, *const isize, Handle,
            Handle,
        ) -> c_int,
    }
}
