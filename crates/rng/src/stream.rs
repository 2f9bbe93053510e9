//! Independent random streams, named by seed, purpose and index.
//!
//! A stream visits the blocks `block = 0, 1, 2, …` of Philox with
//!
//! ```text
//! key     = [seed low, seed high]
//! counter = [block low, index low, index high, purpose << 24 | block high (24 bits)]
//! ```
//!
//! Seed, purpose and index occupy separate bits of the input, so no two streams overlap.

use crate::box_muller;
use crate::philox::philox4x32;

const WORDS_PER_BLOCK: u8 = 4;
const BLOCK_HIGH_MASK: u32 = 0x00FF_FFFF;

/// What a stream is for. The numbers are part of every result: append, never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Purpose {
    /// Initial weights; index: the parameter's row in the table.
    Init = 0,
    /// Where training sequences start; index: the batch.
    TrainBatch = 1,
    /// Where evaluation sequences start; index: the batch.
    EvalBatch = 2,
    /// The choice of tokens in generation; index: the sample.
    Sample = 3,
    /// Rounding of 16-bit optimizer state; index: the update.
    StochasticRounding = 4,
    /// The keys of dropout masks; index: the iteration. See [`crate::dropout`].
    Dropout = 5,
}

/// A sequence of random numbers that depends only on its seed, purpose and index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    key: [u32; 2],
    index: u64,
    purpose: Purpose,
    /// The next block to compute.
    block: u64,
    words: [u32; 4],
    /// How many of `words` were already returned.
    used: u8,
}

impl Stream {
    /// The stream at its beginning.
    #[must_use]
    pub const fn new(seed: u64, purpose: Purpose, index: u64) -> Self {
        Self {
            key: [seed as u32, (seed >> 32) as u32],
            index,
            purpose,
            block: 0,
            words: [0; 4],
            used: WORDS_PER_BLOCK,
        }
    }

    /// Words `4 * block ..` of this stream, independent of its current position. This is the form
    /// for parallel code, which takes word `i % 4` of block `i / 4` for element `i`. Blocks repeat
    /// after 2^56.
    #[inline(always)]
    #[must_use]
    pub const fn block(&self, block: u64) -> [u32; 4] {
        let last = (self.purpose as u32) << 24 | ((block >> 32) as u32 & BLOCK_HIGH_MASK);
        let index = [self.index as u32, (self.index >> 32) as u32];
        philox4x32([block as u32, index[0], index[1], last], self.key)
    }

    /// The next 32 bits.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        if self.used == WORDS_PER_BLOCK {
            self.words = self.block(self.block);
            self.block = self.block.wrapping_add(1);
            self.used = 0;
        }
        let word = self.words[usize::from(self.used % WORDS_PER_BLOCK)];
        self.used += 1;
        word
    }

    /// The next 64 bits: two words, the high one first.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let high = u64::from(self.next_u32());
        high << 32 | u64::from(self.next_u32())
    }

    /// A number in `0..n`, each equally likely. An `n` of 0 counts as 1: the result is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        let n = n.max(1);
        // Lemire 2019: the high half of x * n is the result. Reject the few x whose low half is
        // below 2^64 mod n, because they would make some results more likely.
        let surplus = n.wrapping_neg() % n;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(n);
            if product as u64 >= surplus {
                return (product >> 64) as u64;
            }
        }
    }

    /// A multiple of 2^-24 in [0, 1), each equally likely.
    #[inline]
    pub fn uniform(&mut self) -> f32 {
        (self.next_u32() >> 8) as f32 * box_muller::UNIFORM_STEP
    }

    /// A number in `[0, 1)` with 53 random bits.
    #[inline]
    pub fn uniform_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A draw from the standard normal distribution, made of two words. Its magnitude is at most
    /// 5.77. The bits are the same on every machine, because no libm is involved.
    #[inline]
    pub fn normal(&mut self) -> f32 {
        let u1 = 1.0 - self.uniform();
        box_muller::pair(u1, self.uniform()).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pins the layout of counter and key against the block function itself.
    #[test]
    fn counter_layout() {
        let seed = 0x1122_3344_5566_7788;
        let stream = Stream::new(seed, Purpose::Sample, 0x99AA_BBCC_DDEE_FF00);
        let want = philox4x32(
            [0x0506_0708, 0xDDEE_FF00, 0x99AA_BBCC, 0x0302_0304],
            [0x5566_7788, 0x1122_3344],
        );
        assert_eq!(stream.block(0x0002_0304_0506_0708), want);
    }

    #[test]
    fn first_words_are_pinned() {
        let mut stream = Stream::new(1337, Purpose::TrainBatch, 7);
        let words: [u32; 5] = std::array::from_fn(|_| stream.next_u32());
        let want = [242741455, 1286491164, 2759016077, 3079208226, 107104762];
        assert_eq!(words, want);
    }

    #[test]
    fn sequence_equals_blocks() {
        let mut stream = Stream::new(5, Purpose::Init, 3);
        let fresh = stream.clone();
        for i in 0..23_u64 {
            assert_eq!(stream.next_u32(), fresh.block(i / 4)[(i % 4) as usize]);
            // Reading another block does not move the stream.
            assert_eq!(stream.block(1), fresh.block(1));
        }
    }

    #[test]
    fn streams_differ() {
        let base = (7, Purpose::Init, 1);
        let others = [
            (8, Purpose::Init, 1),
            (7 | 1 << 40, Purpose::Init, 1),
            (7, Purpose::TrainBatch, 1),
            (7, Purpose::Init, 2),
            (7, Purpose::Init, 1 | 1 << 40),
        ];
        let first = |(seed, purpose, index)| Stream::new(seed, purpose, index).next_u64();
        for other in others {
            assert_ne!(first(base), first(other), "{other:?}");
        }
    }

    #[test]
    fn below_is_in_range_and_even() {
        let mut stream = Stream::new(1, Purpose::Sample, 0);
        assert_eq!((stream.below(0), stream.below(1)), (0, 0));
        // Three quarters of 2^64: a quarter of all draws must be rejected.
        let large = 3 << 62;
        let mut counts = [0_u32; 3];
        for _ in 0..30_000 {
            let draw = stream.below(large);
            assert!(draw < large);
            counts[(draw >> 62) as usize] += 1;
        }
        for count in counts {
            // Five standard deviations of a binomial of 30,000 at 1/3.
            assert!(count.abs_diff(10_000) < 409, "{counts:?}");
        }
    }

    #[test]
    fn uniform_and_normal_have_their_moments() {
        let mut stream = Stream::new(2, Purpose::Init, 0);
        let n = 1_000_000;
        let uniforms: Vec<f64> = (0..n).map(|_| f64::from(stream.uniform())).collect();
        let normals: Vec<f64> = (0..n).map(|_| f64::from(stream.normal())).collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / f64::from(n);
        let squares = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>() / f64::from(n);
        assert!(uniforms.iter().all(|u| (0.0..1.0).contains(u)));
        // Five standard errors each.
        assert!((mean(&uniforms) - 0.5).abs() < 5.0 * 0.2887e-3);
        assert!((squares(&uniforms) - 1.0 / 3.0).abs() < 5.0 * 0.2981e-3);
        assert!(mean(&normals).abs() < 5.0e-3);
        assert!((squares(&normals) - 1.0).abs() < 5.0 * 1.4142e-3);
    }
}
