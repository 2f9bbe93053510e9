//! The generator's interface: draws, fills, skips, and its state for checkpoints.

use super::mt19937::{Mt19937, WORDS};
use super::normal;

/// From this `high` on, `randint` takes two words per value. Up to PyTorch 2.6 it was 2^32.
const TWO_WORDS_FROM: u64 = 1 << 28;

/// `torch.Generator` on the CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Generator {
    engine: Mt19937,
    /// The second value of the last pair of a short `normal_fill`.
    cached_normal: Option<f64>,
}

impl Generator {
    /// A generator after `manual_seed(seed)`. As in PyTorch, only the low 32 bits of the seed
    /// count.
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
    /// Takes one word for `high` below 2^28, else two (PyTorch 2.7 and later; before, the threshold
    /// was 2^32). PyTorch refuses a `high` of 0; here it counts as 1.
    pub fn randint(&mut self, high: u64) -> u64 {
        if high < TWO_WORDS_FROM {
            u64::from(self.engine.next()) % high.max(1)
        } else {
            self.random_u64() % high
        }
    }

    /// Skips `draws` words of 32 bits, at a tenth of the cost of drawing them.
    pub fn skip(&mut self, draws: u64) {
        self.engine.skip(draws);
    }

    /// `out.normal_(mean, std)`. PyTorch refuses a negative `std`; here it is used as it is.
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
    /// For 16 values and more it is `n`, plus 16 unless `n` is a multiple of 16. For fewer, it
    /// depends on whether a value is left over from an earlier short fill.
    #[must_use]
    pub fn normal_draws(&self, n: u64) -> u64 {
        normal::draws(n, self.cached_normal.is_some())
    }

    /// Advances the generator as a `normal_fill` of `n` values would, without making the values.
    /// For short fills `skip(normal_draws(n))` is not enough, because they also change the
    /// left-over value.
    pub fn skip_normal(&mut self, n: u64) {
        if n >= normal::BLOCK as u64 {
            return self.skip(self.normal_draws(n));
        }
        for _ in 0..n {
            normal::next_f64(&mut self.engine, &mut self.cached_normal);
        }
    }

    /// Everything that determines the next draws.
    #[must_use]
    pub fn state(&self) -> State {
        State {
            words: self.engine.words,
            index: self.engine.index as u32,
            cached_normal: self.cached_normal,
        }
    }

    /// The generator that returned `state`.
    ///
    /// # Errors
    ///
    /// When no generator can be in that state.
    pub fn from_state(state: State) -> Result<Self, StateError> {
        let index = state.index as usize;
        if index > WORDS {
            return Err(StateError::Index(state.index));
        }
        // The recurrence reads only the top bit of word 0.
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
    /// The state that generates only zeros; no seed produces it.
    Zero,
    /// A left-over normal that is infinite or NaN.
    CachedNormal(f64),
}

impl std::fmt::Display for StateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Index(index) => {
                write!(f, "generator index is {index}, but at most {WORDS} is valid")
            }
            Self::Zero => write!(f, "generator words are all zero, which no seed produces"),
            Self::CachedNormal(value) => write!(f, "generator's cached normal is {value}"),
        }
    }
}

impl std::error::Error for StateError {}
