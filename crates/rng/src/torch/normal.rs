//! `Tensor.normal_` on f32: how uniforms become normals, and how many words that takes.
//!
//! PyTorch has two algorithms. For 16 values and more it transforms blocks of 16 f32 uniforms. For
//! fewer it makes one value at a time in f64, and the generator keeps the second value of each pair
//! for the next short fill.

use super::mt19937::Mt19937;
use crate::box_muller::{self, LANES, UNIFORM_STEP};

/// Values that the vector kernel makes together, and the shortest fill that uses it.
pub(super) const BLOCK: usize = 2 * LANES;
/// Values filled with uniforms and then transformed while they are still in the cache.
const STRIPE: usize = 256 * BLOCK;

/// Words that a pair of the short algorithm takes: two 64-bit draws.
const WORDS_PER_PAIR: u64 = 4;

/// Words that a fill of `n` values takes, depending on whether the generator keeps a value.
pub(super) fn draws(n: u64, is_value_kept: bool) -> u64 {
    let block = BLOCK as u64;
    if n < block {
        let fresh = n.saturating_sub(u64::from(is_value_kept));
        return fresh.div_ceil(2) * WORDS_PER_PAIR;
    }
    let again = if n.is_multiple_of(block) { 0 } else { block };
    n.saturating_add(again)
}

/// The block algorithm, for `BLOCK` values and more; it leaves shorter slices unchanged.
pub(super) fn fill_blocks(engine: &mut Mt19937, out: &mut [f32], mean: f32, deviation: f32) {
    for stripe in out.chunks_mut(STRIPE) {
        fill_uniform(engine, stripe);
        let (blocks, _) = stripe.as_chunks_mut::<BLOCK>();
        for block in blocks {
            transform(block, mean, deviation);
        }
    }
    // PyTorch has no partial last block: it fills the last 16 elements again, although some of them
    // are already done.
    if !out.len().is_multiple_of(BLOCK)
        && let Some(block) = out.last_chunk_mut::<BLOCK>()
    {
        fill_uniform(engine, block);
        transform(block, mean, deviation);
    }
}

fn fill_uniform(engine: &mut Mt19937, out: &mut [f32]) {
    engine.fill(out, uniform);
}

/// PyTorch's f32 uniform: the low 24 bits of a word.
#[inline(always)]
pub(super) fn uniform(word: u32) -> f32 {
    // Through i32, because SSE2 has no vector conversion from u32.
    (word & 0x00ff_ffff) as i32 as f32 * UNIFORM_STEP
}

/// Uniforms to normals. Pairs are (i, i + 8), not neighbours.
fn transform(block: &mut [f32; BLOCK], mean: f32, deviation: f32) {
    let mut u1 = [0.0; LANES];
    let mut u2 = [0.0; LANES];
    for lane in 0..LANES {
        u1[lane] = 1.0 - block[lane];
        u2[lane] = block[lane + LANES];
    }
    box_muller::lanes(&mut u1, &mut u2, mean, deviation);
    block[..LANES].copy_from_slice(&u1);
    block[LANES..].copy_from_slice(&u2);
}

/// The short algorithm: one standard normal in f64. `kept` is the second value of the last pair.
///
/// Like PyTorch, it uses the system's f64 functions. Another libm may differ in the last bit of the
/// f64, which the cast to f32 hides in all but about one case in 2^28.
pub(super) fn next_f64(engine: &mut Mt19937, kept: &mut Option<f64>) -> f64 {
    if let Some(value) = kept.take() {
        return value;
    }
    let angle = std::f64::consts::TAU * uniform_f64(engine);
    let radius = (-2.0 * (-uniform_f64(engine)).ln_1p()).sqrt();
    *kept = Some(radius * angle.sin());
    radius * angle.cos()
}

fn uniform_f64(engine: &mut Mt19937) -> f64 {
    let high = u64::from(engine.next());
    let bits = high << 32 | u64::from(engine.next());
    const MASK: u64 = (1 << f64::MANTISSA_DIGITS) - 1;
    (bits & MASK) as f64 / (1_u64 << f64::MANTISSA_DIGITS) as f64
}
