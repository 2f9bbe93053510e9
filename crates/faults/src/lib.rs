//! Injects file system faults. `LD_PRELOAD` puts these functions in front of libc's. Environment
//! variables select one call, which then fails, does only half of its work, hangs, or kills the
//! process.
//! Every call is recorded, so that `crates/soak` can compute what a power cut would have left on
//! the disk.
//!
//! | variable | meaning |
//! |---|---|
//! | `FITGPT_FAULTS_ROOT` | only paths under this folder count; without it nothing happens |
//! | `FITGPT_FAULTS_AT` | the call that gets the fault, counted from 1 |
//! | `FITGPT_FAULTS_DO` | `kill`, `short`, `hang`, or an `errno` |
//! | `FITGPT_FAULTS_OF` | which calls count: `changes` (the default), `writes` or `reads` |
//! | `FITGPT_FAULTS_RECORD` | the file that records each change, and each read that counts |
//! | `FITGPT_FAULTS_FIRED` | the file to which one byte is written when the fault happens |
//!
//! Changes are open, write, truncate, sync, rename, link, unlink, mkdir and rmdir. The crate
//! interposes the functions that std calls on Linux; it does not affect a static binary or one that
//! makes system calls directly. It has no dependencies and uses none of std's file operations,
//! because those would call the interposed functions again.

#![cfg(target_os = "linux")]

mod state;
mod record;
mod real;

use real::{c_char, c_int, c_uint, c_void, iovec, off_t, size_t, ssize_t};
use state::{Kind, Verdict, judge, path_of};

/// Runs a call that changes names: first decides about a fault, then runs it, then records it.
fn named(kind: u8, paths: [Option<Vec<u8>>; 2], call: impl FnOnce() -> c_int) -> c_int {
    let [first, second] = paths;
    let Some(first) = first else { return call() };
    let _one_at_a_time = state::lock();
    if let Verdict::Fail(error) = judge(Kind::Change) {
        record::failed();
        return real::fail(error) as c_int;
    }
    let result = call();
    match result < 0 {
        true => record::failed(),
        false => record::call(kind, [&first, second.as_deref().unwrap_or_default()], 0, 0, &[]),
    }
    result
}

/// Runs a call on an open file; files outside the root are not counted.
fn on_file(fd: c_int, kind: u8, length: u64, call: impl FnOnce() -> c_int) -> c_int {
    let Some(file) = state::file(fd) else { return call() };
    let _one_at_a_time = state::lock();
    if let Verdict::Fail(error) = judge(Kind::Change) {
        record::failed();
        return real::fail(error) as c_int;
    }
    let result = call();
    match result < 0 {
        true => record::failed(),
        false => record::call(kind, [&[], &[]], file.number, length, &[]),
    }
    result
}

/// Runs an open. The file gets a number that the records of later calls on it use.
fn opened(path: Option<Vec<u8>>, flags: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let Some(path) = path else { return call() };
    let _one_at_a_time = state::lock();
    if let Verdict::Fail(error) = judge(Kind::Change) {
        record::failed();
        return real::fail(error) as c_int;
    }
    let fd = call();
    if fd < 0 {
        record::failed();
        return fd;
    }
    let number = state::open(fd, flags & real::O_APPEND != 0);
    record::call(b'o', [&path, &[]], number, flags as u64, &[]);
    fd
}

/// Runs a write at an offset, or at the file's position if there is none.
fn written(
    fd: c_int,
    start: *const c_void,
    count: size_t,
    at: Option<off_t>,
    call: impl FnOnce(size_t) -> ssize_t,
) -> ssize_t {
    let Some(file) = state::file(fd) else { return call(count) };
    let _one_at_a_time = state::lock();
    let asked = count;
    let count = match judge(Kind::Write) {
        Verdict::Fail(error) => {
            record::failed();
            return real::fail(error);
        }
        Verdict::Short => asked.div_ceil(2),
        Verdict::Pass => asked,
    };
    let at = match at {
        Some(at) => at as u64,
        None if file.appends => u64::MAX,
        None => real::position(fd),
    };
    let done = call(count);
    if done < 0 {
        record::failed();
        return done;
    }
    if count < asked {
        state::fired();
    }
    // SAFETY: the call succeeded, so `start` is valid for the bytes that it wrote.
    let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), done as usize) };
    record::call(b'w', [&[], &[]], file.number, at, bytes);
    done
}

/// Runs a read. If reads count, it may get a fault and is recorded.
fn read_some(fd: c_int, count: size_t, call: impl FnOnce(size_t) -> ssize_t) -> ssize_t {
    if !state::counts_reads() || state::file(fd).is_none() {
        return call(count);
    }
    let _one_at_a_time = state::lock();
    record::call(b'R', [&[], &[]], 0, 0, &[]);
    match judge(Kind::Read) {
        Verdict::Fail(error) => real::fail(error),
        Verdict::Short => {
            let half = count.div_ceil(2);
            let done = call(half);
            // If the file ended earlier, the read was not shortened.
            if half < count && done == half as ssize_t {
                state::fired();
            }
            done
        }
        Verdict::Pass => call(count),
    }
}

/// Defines a replacement for a libc function: name, arguments, result and body; `next` is the
/// original function.
macro_rules! interpose {
    ($(
        fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty = |$next:ident| $body:expr;
    )*) => {
        $(
            /// Replaces libc's function of this name: it may get a fault and is recorded.
            ///
            /// # Safety
            ///
            /// The same as for libc's function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
                let $next = {
                    type Function = unsafe extern "C" fn($($kind),*) -> $result;
                    let place = real::next(concat!(stringify!($name), "\0"));
                    // SAFETY: the symbol of this name has this signature. `open` takes its mode as
                    // a variable argument, which these platforms pass in the same register.
                    unsafe { std::mem::transmute::<*mut c_void, Function>(place) }
                };
                $body
            }
        )*
    };
}

/// Calls the original function.
macro_rules! call {
    ($next:ident($($argument:expr),*)) => {
        // SAFETY: the arguments are the caller's own, whose contract is that of the function
        // called; a count is only ever made smaller.
        unsafe { $next($($argument),*) }
    };
}

// A table with one row for each function.
#[rustfmt::skip]
mod calls {
    use super::*;

    interpose! {
        fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int = |next|
            opened(path_of(path), flags, || call!(next(path, flags, mode)));
        fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int = |next|
            opened(path_of(path), flags, || call!(next(path, flags, mode)));
        fn write(fd: c_int, start: *const c_void, count: size_t) -> ssize_t = |next|
            written(fd, start, count, None, |count| call!(next(fd, start, count)));
        fn pwrite64(fd: c_int, start: *const c_void, count: size_t, at: off_t) -> ssize_t = |next|
            written(fd, start, count, Some(at), |count| call!(next(fd, start, count, at)));
        fn pwrite(fd: c_int, start: *const c_void, count: size_t, at: off_t) -> ssize_t = |next|
            written(fd, start, count, Some(at), |count| call!(next(fd, start, count, at)));
        fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = |next| {
            // SAFETY: the caller passes `count` parts; with none, nothing is read.
            match unsafe { parts.as_ref() }.filter(|_| count > 0) {
                // Writes only the first part: `writev` may always write less than requested.
                Some(&part) => written(fd, part.start, part.count, None, |count| {
                    let part = iovec { count, ..part };
                    call!(next(fd, &raw const part, 1))
                }),
                None => call!(next(fd, parts, count)),
            }
        };
        fn read(fd: c_int, start: *mut c_void, count: size_t) -> ssize_t = |next|
            read_some(fd, count, |count| call!(next(fd, start, count)));
        fn pread64(fd: c_int, start: *mut c_void, count: size_t, at: off_t) -> ssize_t = |next|
            read_some(fd, count, |count| call!(next(fd, start, count, at)));
        fn ftruncate64(fd: c_int, length: off_t) -> c_int = |next|
            on_file(fd, b't', length as u64, || call!(next(fd, length)));
        fn ftruncate(fd: c_int, length: off_t) -> c_int = |next|
            on_file(fd, b't', length as u64, || call!(next(fd, length)));
        fn fsync(fd: c_int) -> c_int = |next|
            on_file(fd, b's', 0, || call!(next(fd)));
        fn fdatasync(fd: c_int) -> c_int = |next|
            on_file(fd, b's', 0, || call!(next(fd)));
        fn rename(from: *const c_char, to: *const c_char) -> c_int = |next|
            named(b'r', [path_of(from), path_of(to)], || call!(next(from, to)));
        fn link(from: *const c_char, to: *const c_char) -> c_int = |next|
            named(b'l', [path_of(from), path_of(to)], || call!(next(from, to)));
        fn linkat(a: c_int, from: *const c_char, b: c_int, to: *const c_char, flags: c_int)
            -> c_int = |next|
            named(b'l', [path_of(from), path_of(to)], || call!(next(a, from, b, to, flags)));
        fn unlink(path: *const c_char) -> c_int = |next|
            named(b'u', [path_of(path), None], || call!(next(path)));
        fn mkdir(path: *const c_char, mode: c_uint) -> c_int = |next|
            named(b'm', [path_of(path), None], || call!(next(path, mode)));
        fn rmdir(path: *const c_char) -> c_int = |next|
            named(b'u', [path_of(path), None], || call!(next(path)));
        fn close(fd: c_int) -> c_int = |next| {
            state::closed(fd);
            call!(next(fd))
        };
    }
}
