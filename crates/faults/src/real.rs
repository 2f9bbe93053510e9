//! The few things of libc that are called directly, and the functions behind the interposed ones.

#![allow(non_camel_case_types)]

pub use std::ffi::{c_char, c_int, c_uint, c_void};

/// As on 64-bit Linux.
pub type size_t = usize;
/// As on 64-bit Linux.
pub type ssize_t = isize;
/// As on 64-bit Linux.
pub type off_t = i64;

/// A part of what `writev` writes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iovec {
    /// Where it begins.
    pub start: *const c_void,
    /// Its bytes.
    pub count: size_t,
}

/// Writes go to the end.
pub const O_APPEND: c_int = 0o2000;
const O_WRONLY: c_int = 1;
const O_CREAT: c_int = 0o100;
const O_CLOEXEC: c_int = 0o2_000_000;

const SEEK_CUR: c_int = 1;
const SIGKILL: c_int = 9;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn __errno_location() -> *mut c_int;
    fn lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn abort() -> !;
}

/// The next function of a name, which ends in a zero byte.
pub fn next(name: &'static str) -> *mut c_void {
    let following = -1_isize as *mut c_void; // RTLD_NEXT
    // SAFETY: the name ends in a zero byte.
    let place = unsafe { dlsym(following, name.as_ptr().cast()) };
    if place.is_null() {
        // SAFETY: it takes nothing. Without libc's function there is no way on.
        unsafe { abort() }
    }
    place
}

/// Sets the error and gives what a failed call gives.
pub fn fail(error: c_int) -> ssize_t {
    // SAFETY: the address is this thread's own error number.
    unsafe { *__errno_location() = error };
    -1
}

/// Where a file stands.
pub fn position(fd: c_int) -> u64 {
    // SAFETY: it only asks.
    unsafe { lseek64(fd, 0, SEEK_CUR) }.max(0) as u64
}

/// Ends the process as kill -9 does.
pub fn die() {
    // SAFETY: the process is this one; nothing runs after it.
    unsafe { kill(std::process::id() as c_int, SIGKILL) };
}

/// Opens a file to append to, past the interposed function; -1 where that fails.
pub fn open_to_append(path: &std::ffi::CStr) -> c_int {
    type Open = unsafe extern "C" fn(*const c_char, c_int, c_uint) -> c_int;
    // SAFETY: libc's `open64` has this signature, its mode being in the register of a third
    // argument.
    let open = unsafe { std::mem::transmute::<*mut c_void, Open>(next("open64\0")) };
    // SAFETY: the path ends in a zero byte.
    unsafe { open(path.as_ptr(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o644) }
}

/// Writes all bytes, past the interposed function.
pub fn write_all(fd: c_int, mut bytes: &[u8]) {
    type Write = unsafe extern "C" fn(c_int, *const c_void, size_t) -> ssize_t;
    // SAFETY: libc's `write` has this signature.
    let write = unsafe { std::mem::transmute::<*mut c_void, Write>(next("write\0")) };
    while !bytes.is_empty() {
        // SAFETY: the slice is valid for its length.
        let done = unsafe { write(fd, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(done) {
            Ok(done) if done > 0 => bytes = &bytes[done.min(bytes.len())..],
            _ => return,
        }
    }
}
