//! What this CPU can do, measured: the best rate of our own matrix product on a size that fits its
//! caches. The yardstick of "share of this device's peak" in the trainer's lines.

use crate::isa::Isa;
use crate::kernels::gemm::{Matrix, Product, SCRATCH, product};
use crate::pool::Pool;
use plan::ops::Write;
use std::time::{Duration, Instant};

/// Rows, columns and inner dimension of the product.
const SIZE: usize = 480;
/// Long enough to reach the clock rate that a run will have.
const LASTS: Duration = Duration::from_millis(60);

/// Floating-point operations a second on so many threads. Takes about 60 ms.
pub fn peak_flops(threads: usize, isa: Isa) -> std::io::Result<f64> {
    let pool = Pool::new(threads)?;
    let (a, b) = (vec![0.5f32; SIZE * SIZE], vec![0.25f32; SIZE * SIZE]);
    let (mut c, mut scratch) = (vec![0.0f32; SIZE * SIZE], vec![0.0f32; SCRATCH * pool.threads()]);
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
        let round = Instant::now();
        product(&pool, isa, &mut scratch, &factors, &mut c);
        best = round.elapsed().as_secs_f64().min(best);
    }
    Ok(2.0 * (SIZE as f64).powi(3) / best)
}
