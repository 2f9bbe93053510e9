//! The few libc functions that are called directly, and the originals of the interposed functions.

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
    /// Its first byte.
    pub start: *const c_void,
    /// Its length in bytes.
    pub count: size_t,
}

/// Open flag: writes go to the end of the file.
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

/// The original libc function. The name must end in a zero byte.
pub fn next(name: &'static str) -> *mut c_void {
    let following = -1_isize as *mut c_void; // RTLD_NEXT
    // SAFETY: the name ends in a zero byte.
    let place = unsafe { dlsym(following, name.as_ptr().cast()) };
    if place.is_null() {
        // SAFETY: it has no arguments. Without libc's function the process cannot continue.
        unsafe { abort() }
    }
    place
}

/// Sets `errno` and returns what a failed call returns.
pub fn fail(error: c_int) -> ssize_t {
    // SAFETY: the address is this thread's own error number.
    unsafe { *__errno_location() = error };
    -1
}

/// The current position of a file.
pub fn position(fd: c_int) -> u64 {
    // SAFETY: it only reads the position.
    unsafe { lseek64(fd, 0, SEEK_CUR) }.max(0) as u64
}

/// Ends the process like kill -9.
pub fn die() {
    // SAFETY: the process is this one; nothing runs after it.
    unsafe { kill(std::process::id() as c_int, SIGKILL) };
}

/// Opens a file for appending without the interposed function; -1 on failure.
pub fn open_to_append(path: &std::ffi::CStr) -> c_int {
    type Open = unsafe extern "C" fn(*const c_char, c_int, c_uint) -> c_int;
    // SAFETY: libc's `open64` has this signature; its mode is in the register of a third argument.
    let open = unsafe { std::mem::transmute::<*mut c_void, Open>(next("open64\0")) };
    // SAFETY: the path ends in a zero byte.
    unsafe { open(path.as_ptr(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o644) }
}

/// Writes all bytes without the interposed function.
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
