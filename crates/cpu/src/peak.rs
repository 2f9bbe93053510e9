//! What this CPU can do, measured: the best rate of our own matrix product on a size that fits its
//! caches. The yardstick of "share of this device's peak" in the trainer's lines.

use crate::isa::Isa;
use crate::kernels::gemm::{Matrix, Product, SCRATCH, product};
use crate::pool::{Output, Pool};
use crate::system_memory::available_bytes;
use plan::ops::Write;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Rows, columns and inner dimension of the product.
const SIZE: usize = 480;
/// Long enough to reach the clock rate that a run will have.
const LASTS: Duration = Duration::from_millis(60);

/// Floating-point operations a second on so many threads. Takes about 60 ms. Each thread is timed
/// by its own processor clock, which stands still while another program runs: the peak is the
/// machine's, however busy it is.
pub fn peak_flops(threads: usize, isa: Isa) -> std::io::Result<f64> {
    std::thread::scope(|scope| {
        let thread = || std::thread::Builder::new().spawn_scoped(scope, || thread_peak(isa));
        let started: Vec<_> = (0..threads.max(1)).map(|_| thread()).collect::<Result<_, _>>()?;
        let failed = |_| std::io::Error::other("the measurement panicked");
        let rates = started.into_iter().map(|thread| thread.join().map_err(failed)?);
        rates.sum()
    })
}

/// The rate of this thread alone.
fn thread_peak(isa: Isa) -> std::io::Result<f64> {
    let pool = Pool::new(1)?;
    let (a, b) = (filled(SIZE * SIZE, 0.5)?, filled(SIZE * SIZE, 0.25)?);
    let (mut c, mut scratch) = (filled(SIZE * SIZE, 0.0)?, filled(SCRATCH, 0.0)?);
    let factors = Product {
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
        product(&pool, isa, &mut scratch, &factors, &mut c);
        best = (processor_seconds() - round).min(best);
    }
    Ok(2.0 * (SIZE as f64).powi(3) / best)
}

/// Seconds that this thread has computed.
fn processor_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Bytes of each of the two buffers that are copied: more than caches hold.
const COPIED: usize = 64 << 20;

/// Free bytes below which nothing is taken for a measurement.
const PLENTY: u64 = 1 << 30;

/// A buffer, or an error where there is no memory for it.
fn filled(count: usize, value: f32) -> std::io::Result<Vec<f32>> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(count).map_err(std::io::Error::other)?;
    buffer.resize(count, value);
    Ok(buffer)
}

/// Bytes a second through memory, read and written, on so many threads. Takes about 60 ms. An error
/// where memory is too scarce to take some for this, in the system or in the caller's budget.
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
