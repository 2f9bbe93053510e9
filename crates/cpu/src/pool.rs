//! Threads with a fixed partition of work. A slice is divided into units, and the units into one
//! contiguous share per thread, so which thread computes a unit never changes its value. If a
//! thread has not begun its share because the system runs another program on its core, a thread
//! that has finished takes the share over. A thread that waits spins briefly, then sleeps. When
//! other programs run, a run loses only their part of the processor. Running a job allocates
//! nothing.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A job as the threads see it. `Pool::run` guarantees that the pointer stays valid.
#[derive(Clone, Copy)]
struct Job(*const (dyn Fn(usize) + Sync));

/// A number that one thread writes while others read theirs, so each has its own cache line.
#[repr(align(64))]
struct Line(AtomicU64);

struct Shared {
    /// Written only while no share is unfinished, and read only by a thread that has claimed a
    /// share.
    job: std::cell::UnsafeCell<Job>,
    /// Number of the latest job.
    epoch: AtomicU64,
    /// For each share, the number of the latest job in which it was claimed.
    claims: Vec<Line>,
    /// Shares of the latest job that are not finished.
    unfinished: AtomicUsize,
    /// Where workers wait for a job.
    begin: Gate,
    /// Where the calling thread waits for the shares of others.
    end: Gate,
    /// Workers that have started.
    started: AtomicUsize,
    stop: AtomicBool,
    panicked: AtomicBool,
    /// Set while a job runs: a job inside a job would overwrite what the workers are reading.
    busy: AtomicBool,
}

// SAFETY: `job` is written by `Pool::run` while `unfinished` is 0 and read by threads that have
// claimed a share of it, having loaded its `epoch` (which acquires the write), before they count
// that share as done.
unsafe impl Sync for Shared {}
// SAFETY: the pointer is only dereferenced while `Pool::run`, which borrows the closure, waits.
unsafe impl Send for Shared {}

impl Shared {
    fn new(threads: usize) -> Shared {
        Shared {
            job: std::cell::UnsafeCell::new(Job(&|_: usize| {})),
            epoch: AtomicU64::new(0),
            claims: (0..threads).map(|_| Line(AtomicU64::new(0))).collect(),
            unfinished: AtomicUsize::new(0),
            begin: Gate::default(),
            end: Gate::default(),
            started: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            busy: AtomicBool::new(false),
        }
    }

    /// Claims a share of a job and runs it. Does nothing if another thread has claimed it.
    fn take(&self, epoch: u64, share: usize) {
        let claim = &self.claims[share].0;
        // All shares of the previous job are finished, so each was claimed: the numbers rise by
        // one. Load before the exchange, because an exchange that must fail would still take the
        // cache line from its owner.
        let is_free = claim.load(Ordering::Relaxed) == epoch - 1;
        let mine = || claim.compare_exchange(epoch - 1, epoch, Ordering::AcqRel, Ordering::Relaxed);
        if !is_free || mine().is_err() {
            return;
        }
        // SAFETY: the claimed share is unfinished, so `Pool::run` keeps this job alive and in
        // place.
        let job = unsafe { &*(*self.job.get()).0 };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(share)));
        if result.is_err() {
            self.panicked.store(true, Ordering::Relaxed);
        }
        if self.unfinished.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.end.wake();
        }
    }

    /// Runs the thread's own share, then every share that no thread has begun.
    fn help(&self, epoch: u64, thread: usize) {
        let shares = self.claims.len();
        for offset in 0..shares {
            self.take(epoch, (thread + offset) % shares);
        }
    }
}

/// How long a thread spins before it sleeps, in nanoseconds. On an idle machine, spinning during
/// the gap between two steps is cheaper than sleeping. When other programs run, spinning blocks the
/// processor that the awaited thread needs. So the time is halved whenever spinning failed, and
/// grows a little whenever it succeeded.
const LONGEST_SPIN: u64 = 200_000;
const SHORTEST_SPIN: u64 = 40_000;
const SPIN_GROWTH: u64 = 100;

/// Rounds of spinning before the clock is read again.
const ROUNDS: u32 = 32;

/// Where threads wait: first spinning, then asleep.
struct Gate {
    /// Nanoseconds to spin.
    spin: AtomicU64,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate {
            spin: AtomicU64::new(LONGEST_SPIN),
            sleepers: AtomicUsize::new(0),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        }
    }
}

impl Gate {
    /// Waits until `ready` holds. The thread that makes it hold must call [`Gate::wake`]
    /// afterwards. `ready`, the writes that change it, and `sleepers` are sequentially consistent:
    /// either the writer sees the sleeper, or the sleeper sees the write.
    fn wait(&self, ready: impl Fn() -> bool) {
        if self.spins(&ready) {
            return;
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !ready() {
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Spins for a while. Returns whether `ready` holds.
    fn spins(&self, ready: &impl Fn() -> bool) -> bool {
        if ready() {
            return true;
        }
        let (began, patience) = (Instant::now(), self.spin.load(Ordering::Relaxed));
        loop {
            for _ in 0..ROUNDS {
                if ready() {
                    let longer = (patience + SPIN_GROWTH).min(LONGEST_SPIN);
                    self.spin.store(longer, Ordering::Relaxed);
                    return true;
                }
                std::hint::spin_loop();
            }
            if began.elapsed() > Duration::from_nanos(patience) {
                self.spin.store((patience / 2).max(SHORTEST_SPIN), Ordering::Relaxed);
                return false;
            }
        }
    }

    fn wake(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Take the lock once: a sleeper that has checked `ready` is then already waiting.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.changed.notify_all();
        }
    }
}

/// The threads of one backend. The calling thread is number 0.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
}

/// An output divided into units of `unit` elements. The last unit may be shorter.
pub(crate) struct Output<'a, T = f32> {
    slice: &'a mut [T],
    unit: usize,
}

impl<'a, T> Output<'a, T> {
    /// `slice` in units of `unit` elements.
    pub(crate) fn new(slice: &'a mut [T], unit: usize) -> Output<'a, T> {
        Output { slice, unit }
    }
}

/// The part of `0..units` that belongs to a thread. Parts are contiguous, in order, and differ by
/// at most one unit.
pub(crate) fn share(units: usize, threads: usize, thread: usize) -> Range<usize> {
    let (each, rest) = (units / threads, units % threads);
    let start = thread * each + thread.min(rest);
    start..start + each + usize::from(thread < rest)
}

impl Pool {
    /// Starts `threads` threads, the calling one included; at least 1.
    pub(crate) fn new(threads: usize) -> std::io::Result<Pool> {
        let threads = threads.max(1);
        let shared = Arc::new(Shared::new(threads));
        let mut pool = Pool { shared, handles: Vec::new() };
        for thread in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let handle = std::thread::Builder::new()
                .name(format!("fitgpt-cpu-{thread}"))
                .spawn(move || work(&shared, thread))?;
            pool.handles.push(handle);
        }
        // A thread allocates when it starts, so wait until all have: this belongs to set-up.
        let shared = &pool.shared;
        shared.end.wait(|| shared.started.load(Ordering::SeqCst) == threads - 1);
        Ok(pool)
    }

    /// Number of threads.
    pub(crate) fn threads(&self) -> usize {
        self.handles.len() + 1
    }

    /// Calls `job` once with the number of each thread, and waits for all calls. A thread may make
    /// the call of another one that is late.
    pub(crate) fn run(&self, job: &(dyn Fn(usize) + Sync)) {
        if self.handles.is_empty() {
            return job(0);
        }
        let shared = &*self.shared;
        assert!(!shared.busy.swap(true, Ordering::Acquire), "a pool runs one job at a time");
        shared.panicked.store(false, Ordering::Relaxed);
        // SAFETY: the lifetime is erased, but nobody touches the job after `unfinished` is 0 again,
        // and this function neither returns nor unwinds before that.
        let erased: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(job) };
        // SAFETY: `busy` was free, so `unfinished` is 0: nobody reads the job now.
        unsafe { *shared.job.get() = Job(erased) };
        shared.unfinished.store(self.threads(), Ordering::SeqCst);
        let epoch = shared.epoch.fetch_add(1, Ordering::SeqCst) + 1;
        shared.begin.wake();
        shared.help(epoch, 0);
        shared.end.wait(|| shared.unfinished.load(Ordering::SeqCst) == 0);
        shared.busy.store(false, Ordering::Release);
        if shared.panicked.load(Ordering::Relaxed) {
            std::panic::resume_unwind(Box::new("a part of a job panicked"));
        }
    }

    /// Divides every output into `units` units and lets each thread work on its range of them:
    /// `work(thread, units, parts)`, where `parts[i]` holds exactly these units of output `i`.
    pub(crate) fn split<T: Send, const N: usize>(
        &self,
        units: usize,
        outputs: [Output<'_, T>; N],
        work: impl Fn(usize, Range<usize>, [&mut [T]; N]) + Sync,
    ) {
        let parts = Parts::new(units, outputs);
        let threads = self.threads();
        self.run(&|thread| {
            let range = share(units, threads, thread);
            if range.is_empty() {
                return;
            }
            // Through a method, so that the closure captures `Parts` (which is `Sync`) whole.
            work(thread, range.clone(), parts.cut(&range));
        });
    }

    /// As [`Pool::split`], with outputs of two types.
    pub(crate) fn split_two<A: Send, B: Send, const N: usize, const M: usize>(
        &self,
        units: usize,
        outputs: [Output<'_, A>; N],
        others: [Output<'_, B>; M],
        work: impl Fn(Range<usize>, [&mut [A]; N], [&mut [B]; M]) + Sync,
    ) {
        let others = Parts::new(units, others);
        self.split(units, outputs, |_, range, parts| {
            work(range.clone(), parts, others.cut(&range));
        });
    }

    /// As [`Pool::split`], with an equal part of `scratch` for each thread.
    pub(crate) fn split_with_scratch<const N: usize>(
        &self,
        units: usize,
        scratch: &mut [f32],
        outputs: [Output<'_>; N],
        work: impl Fn(Range<usize>, &mut [f32], [&mut [f32]; N]) + Sync,
    ) {
        let threads = self.threads();
        let each = scratch.len() / threads;
        let scratch = Parts([Part { start: scratch.as_mut_ptr(), len: scratch.len(), unit: each }]);
        self.split(units, outputs, |thread, range, parts| {
            let [mine] = scratch.cut(&(thread..thread + 1));
            work(range, mine, parts);
        });
    }
}

/// An output `[rows, positions, groups · heads · size]` of which the unit `row · heads + head` owns
/// `size` columns of every group in all positions of its row.
pub(crate) struct HeadOutput<'a> {
    /// The whole output.
    pub(crate) slice: &'a mut [f32],
    /// Positions of a row.
    pub(crate) positions: usize,
    /// Heads side by side in a group.
    pub(crate) heads: usize,
    /// Columns of a head.
    pub(crate) size: usize,
    /// Groups in a row: 1, or 3 for query, key and value.
    pub(crate) groups: usize,
}

/// One head's columns. It hands out one slice at a time.
pub(crate) struct HeadPart<'a> {
    start: *mut f32,
    positions: usize,
    pitch: usize,
    group: usize,
    groups: usize,
    size: usize,
    owner: std::marker::PhantomData<&'a mut [f32]>,
}

impl HeadPart<'_> {
    /// The head's columns of one group at one position.
    pub(crate) fn row(&mut self, group: usize, position: usize) -> &mut [f32] {
        assert!(group < self.groups && position < self.positions);
        let offset = position * self.pitch + group * self.group;
        // SAFETY: the offset lies in the row that the unit owns, the columns are the head's own:
        // no other unit reaches them, and `&mut self` excludes a second slice from this one.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(offset), self.size) }
    }
}

impl Pool {
    /// One unit for each row and head, each with its columns of `heads`, its unit of every other
    /// output, and the thread's part of `scratch`.
    pub(crate) fn split_heads<const N: usize>(
        &self,
        scratch: &mut [f32],
        output: HeadOutput<'_>,
        others: [Output<'_>; N],
        work: impl Fn(usize, &mut [f32], HeadPart<'_>, [&mut [f32]; N]) + Sync,
    ) {
        let HeadOutput { slice, positions, heads, size, groups } = output;
        let pitch = groups * heads * size;
        let units = slice.len() / (positions * pitch) * heads;
        let each = others.each_ref().map(|other| other.unit);
        let start = Parts([Part { start: slice.as_mut_ptr(), len: slice.len(), unit: 0 }]);
        self.split_with_scratch(units, scratch, others, |range, scratch, parts| {
            let first = range.start;
            let mut each = each.into_iter();
            let mut parts = parts.map(|part| (part, each.next().unwrap_or(0)));
            for unit in range {
                let offset = unit / heads * positions * pitch + unit % heads * size;
                let part = HeadPart {
                    // SAFETY: the offset of a unit lies inside the slice.
                    start: unsafe { start.first().add(offset) },
                    positions,
                    pitch,
                    group: heads * size,
                    groups,
                    size,
                    owner: std::marker::PhantomData,
                };
                let own: [&mut [f32]; N] = parts.each_mut().map(|(part, each)| {
                    let from = (unit - first) * *each;
                    &mut part[from..from + *each]
                });
                work(unit, scratch, part, own);
            }
        });
    }
}

struct Part<T> {
    start: *mut T,
    len: usize,
    unit: usize,
}

struct Parts<T, const N: usize>([Part<T>; N]);

// SAFETY: threads only get slices of disjoint unit ranges out of it.
unsafe impl<T: Send, const N: usize> Sync for Parts<T, N> {}

impl<T> Parts<T, 1> {
    /// The first element of the only slice.
    fn first(&self) -> *mut T {
        self.0[0].start
    }
}

impl<T, const N: usize> Parts<T, N> {
    fn new(units: usize, outputs: [Output<'_, T>; N]) -> Parts<T, N> {
        for output in &outputs {
            let whole = output.slice.len() <= units.saturating_mul(output.unit);
            assert!(whole, "units cover their outputs, or a tail would stay unwritten");
        }
        Parts(outputs.map(|output| Part {
            start: output.slice.as_mut_ptr(),
            len: output.slice.len(),
            unit: output.unit,
        }))
    }

    /// These units of every slice. Callers on different threads must pass disjoint ranges.
    #[allow(clippy::mut_from_ref)]
    fn cut(&self, units: &Range<usize>) -> [&mut [T]; N] {
        self.0.each_ref().map(|part| {
            let start = (units.start * part.unit).min(part.len);
            let end = (units.end * part.unit).min(part.len);
            // SAFETY: the range lies inside the slice that `Pool::split` borrows mutably until all
            // threads are done, and no two threads get the same unit.
            unsafe { std::slice::from_raw_parts_mut(part.start.add(start), end - start) }
        })
    }
}

fn work(shared: &Shared, thread: usize) {
    shared.started.fetch_add(1, Ordering::SeqCst);
    shared.end.wake();
    let mut seen = 0;
    loop {
        let stops = || shared.stop.load(Ordering::SeqCst);
        shared.begin.wait(|| shared.epoch.load(Ordering::SeqCst) != seen || stops());
        if stops() {
            return;
        }
        seen = shared.epoch.load(Ordering::SeqCst);
        shared.help(seen, thread);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.begin.wake();
        for handle in self.handles.drain(..) {
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once() {
        for units in [0, 1, 2, 3, 7, 100] {
            for threads in 1..5 {
                let all: Vec<usize> =
                    (0..threads).flat_map(|thread| share(units, threads, thread)).collect();
                assert_eq!(all, (0..units).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn every_unit_is_given_to_one_thread() {
        for threads in 1..4 {
            let pool = Pool::new(threads).unwrap();
            let mut out = vec![0.0; 25];
            for round in 0..200 {
                let outputs = [Output::new(&mut out, 4)];
                pool.split(7, outputs, |_, units, [part]| {
                    assert_eq!(part.len(), (units.end * 4).min(25) - units.start * 4);
                    part.iter_mut().for_each(|x| *x += 1.0);
                });
                assert!(out.iter().all(|&x| x == round as f32 + 1.0));
            }
        }
    }

    /// A single thread runs every share that no other thread has begun, exactly once.
    #[test]
    fn shares_that_nobody_begins_are_taken_over() {
        let done: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
        let job: &(dyn Fn(usize) + Sync) = &|share| {
            done[share].fetch_add(1, Ordering::Relaxed);
        };
        let lone = Shared::new(4);
        // SAFETY: only this thread sees `lone`, and the job outlives it.
        let erased: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(job) };
        // SAFETY: nobody else reads the job.
        unsafe { *lone.job.get() = Job(erased) };
        lone.unfinished.store(4, Ordering::SeqCst);
        lone.help(1, 2);
        assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == 1));
        lone.help(1, 0);
        assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == 1), "claimed once");
        assert_eq!(lone.unfinished.load(Ordering::SeqCst), 0);
    }

    /// Far more threads than processors and many jobs: no thread waits forever.
    #[test]
    fn many_threads_and_many_jobs_come_to_an_end() {
        let pool = Pool::new(16).unwrap();
        let count = AtomicUsize::new(0);
        for _ in 0..3000 {
            pool.run(&|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert_eq!(count.load(Ordering::Relaxed), 3000 * 16);
    }

    #[test]
    fn a_panic_in_a_worker_reaches_the_caller() {
        let pool = Pool::new(3).unwrap();
        let failing = |thread: usize| assert!(thread != 2, "planted");
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.run(&failing)));
        assert!(result.is_err());
        pool.run(&|_| {});
        // Also when the caller's own part panics at the same time.
        let all = |_: usize| assert!(false_at_run_time(), "planted");
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.run(&all)));
        assert!(result.is_err());
        pool.run(&|_| {});
    }

    fn false_at_run_time() -> bool {
        std::hint::black_box(false)
    }

    #[test]
    fn a_job_inside_a_job_is_refused() {
        let pool = Pool::new(2).unwrap();
        let nested = |thread: usize| {
            if thread == 0 {
                pool.run(&|_| {});
            }
        };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.run(&nested)));
        assert!(result.is_err());
        pool.run(&|_| {});
    }
}
