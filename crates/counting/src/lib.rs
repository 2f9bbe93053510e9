//! The system's allocator with counters: calls, bytes held, peak bytes held, and bytes requested at
//! each alignment. For tests and the soak; the program itself does not use it.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: fitgpt_counting::Counting = fitgpt_counting::Counting;
//!
//! let before = fitgpt_counting::calls();
//! drop(std::hint::black_box(Box::new(1)));
//! assert!(fitgpt_counting::calls() > before);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static CALLS: AtomicU64 = AtomicU64::new(0);
static HELD: AtomicU64 = AtomicU64::new(0);
static MOST: AtomicU64 = AtomicU64::new(0);
/// Indexed by the base-2 logarithm of the alignment.
static ALIGNED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

thread_local! {
    // Neither made lazily nor dropped: the allocator itself can use it.
    static CALLS_HERE: Cell<u64> = const { Cell::new(0) };
}

/// The allocator, for use in `#[global_allocator]`.
pub struct Counting;

/// Allocations so far, in all threads.
pub fn calls() -> u64 {
    CALLS.load(Relaxed)
}

/// Allocations of the calling thread so far.
pub fn calls_here() -> u64 {
    CALLS_HERE.get()
}

/// Bytes held now.
pub fn held() -> u64 {
    HELD.load(Relaxed)
}

/// Peak of [`held`] since the last [`forget_most`].
pub fn most() -> u64 {
    MOST.load(Relaxed)
}

/// Resets [`most`] to what is held now.
pub fn forget_most() {
    MOST.store(held(), Relaxed);
}

/// Bytes requested at this alignment so far.
pub fn asked_at(alignment: u64) -> u64 {
    ALIGNED[alignment.trailing_zeros() as usize % 64].load(Relaxed)
}

fn taken(bytes: usize) {
    CALLS.fetch_add(1, Relaxed);
    CALLS_HERE.set(CALLS_HERE.get() + 1);
    let held = HELD.fetch_add(bytes as u64, Relaxed) + bytes as u64;
    MOST.fetch_max(held, Relaxed);
}

fn asked(layout: Layout) {
    taken(layout.size());
    let power = layout.align().trailing_zeros() as usize % 64;
    ALIGNED[power].fetch_add(layout.size() as u64, Relaxed);
}

fn returned(bytes: usize) {
    HELD.fetch_sub(bytes as u64, Relaxed);
}

// SAFETY: every call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `alloc`'s contract.
        let start = unsafe { System.alloc(layout) };
        if !start.is_null() {
            asked(layout);
        }
        start
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `alloc_zeroed`'s contract.
        let start = unsafe { System.alloc_zeroed(layout) };
        if !start.is_null() {
            asked(layout);
        }
        start
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps `realloc`'s contract.
        let moved = unsafe { System.realloc(start, layout, size) };
        if !moved.is_null() {
            returned(layout.size());
            taken(size);
        }
        moved
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        returned(layout.size());
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(start, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    /// Other threads of the test binary allocate little, compared with the sizes here.
    #[test]
    fn what_is_held_and_what_was_most() {
        const LARGE: usize = 64 << 20;
        const LITTLE: u64 = 4 << 20;
        let before = held().saturating_sub(LITTLE);
        forget_most();
        let mut block: Vec<u8> = Vec::with_capacity(LARGE);
        assert!(held() >= before + LARGE as u64 && most() >= before + LARGE as u64);
        block.reserve_exact(2 * LARGE);
        assert!(held() >= before + 2 * LARGE as u64);
        drop(block);
        assert!(held() < before + LARGE as u64 && most() >= before + 2 * LARGE as u64);
        forget_most();
        assert!(most() < before + LARGE as u64);
    }

    #[test]
    fn a_thread_counts_its_own() {
        let take = || drop(std::hint::black_box(Box::new(1)));
        let before = calls_here();
        take();
        assert_eq!(calls_here() - before, 1);
        let others = std::thread::spawn(move || (0..100).for_each(|_| take()));
        let spawned = calls_here();
        others.join().unwrap();
        assert!(calls_here() - spawned < 100, "another thread's are not ours");
    }

    #[test]
    fn bytes_are_counted_by_alignment() {
        #[repr(align(4096))]
        struct Page(#[expect(dead_code)] [u8; 4096]);
        let before = asked_at(4096);
        drop(std::hint::black_box(Box::new(Page([0; 4096]))));
        assert_eq!(asked_at(4096) - before, 4096);
    }
}
