//! Measures what this CPU can do: the best rate of our own matmul on a size that fits its caches.
//! The trainer reports its speed as a share of this peak.

use crate::isa::Isa;
use crate::kernels::gemm::{Matmul, Matrix, SCRATCH, matmul};
use crate::pool::{Output, Pool};
use crate::system_memory::available_bytes;
use plan::ops::Write;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Rows, columns and inner dimension of the matmul.
const SIZE: usize = 480;
/// Long enough to reach the clock rate of a real run.
const LASTS: Duration = Duration::from_millis(60);

/// Floating-point operations per second on this many threads. Takes about 60 ms. Each thread is
/// timed by its own processor clock, which stops while another program runs, so the peak does not
/// depend on how busy the machine is.
pub fn peak_flops(threads: usize, isa: Isa) -> std::io::Result<f64> {
    std::thread::scope(|scope| {
        let thread = || std::thread::Builder::new().spawn_scoped(scope, || thread_peak(isa));
        let started: Vec<_> = (0..threads.max(1)).map(|_| thread()).collect::<Result<_, _>>()?;
        let failed = |_| std::io::Error::other("the measurement panicked");
        let rates = started.into_iter().map(|thread| thread.join().map_err(failed)?);
        rates.sum()
    })
}

/// The rate of one thread.
fn thread_peak(isa: Isa) -> std::io::Result<f64> {
    let pool = Pool::new(1)?;
    let (a, b) = (filled(SIZE * SIZE, 0.5)?, filled(SIZE * SIZE, 0.25)?);
    let (mut c, mut scratch) = (filled(SIZE * SIZE, 0.0)?, filled(SCRATCH, 0.0)?);
    let operands = Matmul {
        a: Matrix::rows(&a, SIZE),
        b: Matrix::rows(&b, SIZE),
        inner: SIZE,
        columns: SIZE,
        bias: None,
        write: Write::Overwrite,
    };
    let start = Instant::now();
    let mut best = f64::INFINITY;
    while start.elapsed() < LASTS {
        let round = processor_seconds();
        matmul(&pool, isa, &mut scratch, &operands, &mut c);
        best = (processor_seconds() - round).min(best);
    }
    Ok(2.0 * (SIZE as f64).powi(3) / best)
}

/// Processor seconds that this thread has used.
fn processor_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Bytes of each of the two buffers that are copied: more than the caches hold.
const COPIED: usize = 64 << 20;

/// The least free memory with which the measurement may allocate its buffers.
const PLENTY: u64 = 1 << 30;

/// A buffer, or an error if there is not enough memory for it.
fn filled(count: usize, value: f32) -> std::io::Result<Vec<f32>> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(count).map_err(std::io::Error::other)?;
    buffer.resize(count, value);
    Ok(buffer)
}

/// Bytes per second through memory, reads plus writes, on this many threads. Takes about 60 ms.
/// Returns an error if the system or the caller's budget has too little memory for the measurement.
pub fn memory_bandwidth(threads: usize, budget: u64) -> std::io::Result<f64> {
    if available_bytes().map_or(budget, |free| free.min(budget)) < PLENTY {
        return Err(std::io::ErrorKind::OutOfMemory.into());
    }
    let pool = Pool::new(threads)?;
    let from = filled(COPIED / 4, 1.0)?;
    let mut to = filled(COPIED / 4, 0.0)?;
    let unit = 1 << 14;
    let units = from.len() / unit;
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let round = Instant::now();
        pool.split(units, [Output::new(&mut to, unit)], |_, range, [part]| {
            part.copy_from_slice(&from[range.start * unit..range.end * unit]);
        });
        best = round.elapsed().as_secs_f64().min(best);
    }
    Ok(2.0 * COPIED as f64 / best)
}
