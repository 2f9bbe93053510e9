//! The generator as callers see it: draws, fills, skips, and its state for checkpoints.

use super::mt19937::{Mt19937, WORDS};
use super::normal;

/// From here on `randint` takes two words per value. PyTorch up to 2.6 had 2^32.
const TWO_WORDS_FROM: u64 = 1 << 28;

/// `torch.Generator` on the CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Generator {
    engine: Mt19937,
    /// The second value of the last pair of a short `normal_fill`.
    cached_normal: Option<f64>,
}

impl Generator {
    /// As `manual_seed` leaves it. Only the low 32 bits of the seed count, as in PyTorch.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { engine: Mt19937::new(seed), cached_normal: None }
    }

    /// The next 32 bits.
    pub fn random_u32(&mut self) -> u32 {
        self.engine.next()
    }

    /// The next 64 bits: two words, the high one first.
    pub fn random_u64(&mut self) -> u64 {
        let high = u64::from(self.engine.next());
        high << 32 | u64::from(self.engine.next())
    }

    /// One value of `torch.rand` in f32: a multiple of 2^-24 in [0, 1).
    pub fn uniform(&mut self) -> f32 {
        normal::uniform(self.engine.next())
    }

    /// One value of `torch.randint(high, …)`: in `0..high`, with PyTorch's slight bias.
    ///
    /// Takes one word for `high` below 2^28, else two (PyTorch 2.7 and later; before, the border
    /// was 2^32). PyTorch refuses a `high` of 0; here it is taken as 1.
    pub fn randint(&mut self, high: u64) -> u64 {
        if high < TWO_WORDS_FROM {
            u64::from(self.engine.next()) % high.max(1)
        } else {
            self.random_u64() % high
        }
    }

    /// Passes over `draws` words of 32 bits, at a tenth of the cost of drawing them.
    pub fn skip(&mut self, draws: u64) {
        self.engine.skip(draws);
    }

    /// `out.normal_(mean, std)`. PyTorch refuses a negative `std`; here it is computed with.
    pub fn normal_fill(&mut self, out: &mut [f32], mean: f64, std: f64) {
        if out.len() >= normal::BLOCK {
            return normal::fill_blocks(&mut self.engine, out, mean as f32, std as f32);
        }
        for value in out {
            let standard = normal::next_f64(&mut self.engine, &mut self.cached_normal);
            *value = (standard * std + mean) as f32;
        }
    }

    /// Words that a `normal_fill` of `n` values would take now.
    ///
    /// From 16 values on it is `n`, and 16 more unless `n` is a multiple of 16. Below, it depends
    /// on whether a value is left over from an earlier short fill.
    #[must_use]
    pub fn normal_draws(&self, n: u64) -> u64 {
        normal::draws(n, self.cached_normal.is_some())
    }

    /// Leaves the generator as a `normal_fill` of `n` values would, for values nobody reads. Short
    /// fills change the left-over value too, so `skip(normal_draws(n))` is not enough for them.
    pub fn skip_normal(&mut self, n: u64) {
        if n >= normal::BLOCK as u64 {
            return self.skip(self.normal_draws(n));
        }
        for _ in 0..n {
            normal::next_f64(&mut self.engine, &mut self.cached_normal);
        }
    }

    /// Everything that decides the draws to come.
    #[must_use]
    pub fn state(&self) -> State {
        State {
            words: self.engine.words,
            index: self.engine.index as u32,
            cached_normal: self.cached_normal,
        }
    }

    /// The generator that gave `state`.
    ///
    /// # Errors
    ///
    /// When no generator can be in that state.
    pub fn from_state(state: State) -> Result<Self, StateError> {
        let index = state.index as usize;
        if index > WORDS {
            return Err(StateError::Index(state.index));
        }
        // Of word 0 the recurrence sees the top bit only.
        if state.words[0] >> 31 == 0 && state.words[1..].iter().all(|&word| word == 0) {
            return Err(StateError::Zero);
        }
        if let Some(value) = state.cached_normal
            && !value.is_finite()
        {
            return Err(StateError::CachedNormal(value));
        }
        let engine = Mt19937 { words: state.words, index };
        Ok(Self { engine, cached_normal: state.cached_normal })
    }
}

/// A generator's state, for checkpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The engine's words.
    pub words: [u32; WORDS],
    /// How many of them are used: 0 to 624.
    pub index: u32,
    /// The normal value left over from the last short fill.
    pub cached_normal: Option<f64>,
}

/// Why a state was refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StateError {
    /// More words used than there are.
    Index(u32),
    /// The state from which only zeros follow; no seed leads there.
    Zero,
    /// A left-over normal that is infinite or not a number.
    CachedNormal(f64),
}

impl std::fmt::Display for StateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Index(index) => write!(f, "generator index is {index}, at most {WORDS} is valid"),
            Self::Zero => write!(f, "generator words are all zero, which no seed leads to"),
            Self::CachedNormal(value) => write!(f, "generator's cached normal is {value}"),
        }
    }
}

impl std::error::Error for StateError {}
