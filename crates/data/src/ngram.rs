//! A character n-gram model with interpolated, modified Kneser-Ney smoothing. Its loss shows what a
//! good table of short contexts can reach, for comparison with a trained model.
//!
//! Chen and Goodman, "An empirical study of smoothing techniques for language modeling" (1998).
//! Counts are sorted runs instead of a hash table per context, so a few megabytes of text take well
//! under a second.

use std::collections::HashMap;

/// Four symbols of context and the next one: the classic 5-gram.
const ORDER: usize = 5;
/// Bits per symbol in a key; five of them fit 64 bits.
const SYMBOL_BITS: u32 = 12;
const SYMBOL_MASK: u64 = (1 << SYMBOL_BITS) - 1;

/// A 5-gram model of token ids.
#[derive(Clone, Debug)]
pub struct Ngram {
    vocab_size: u32,
    /// Indexed by the length of the context: 0 to 4.
    levels: Vec<Level>,
}

/// The probabilities after all contexts of one length.
#[derive(Clone, Debug, Default)]
struct Level {
    /// Each context and the range of its symbols in `symbols`.
    contexts: HashMap<u64, Continuations>,
    /// Per context, ascending: symbol and discounted probability.
    symbols: Vec<(u16, f64)>,
}

#[derive(Clone, Copy, Debug)]
struct Continuations {
    first: usize,
    end: usize,
    /// The probability mass left for the shorter context.
    rest: f64,
}

impl Ngram {
    /// Counts the n-grams of a training text. Ids of `vocab_size` and above, and above 4095, count
    /// as 0.
    #[must_use]
    pub fn train(tokens: &[u16], vocab_size: u32) -> Self {
        let vocab_size = vocab_size.clamp(1, SYMBOL_MASK as u32 + 1);
        let mut grams = count(tokens, vocab_size);
        let mut levels = Vec::with_capacity(ORDER);
        for length in (0..ORDER).rev() {
            levels.push(Level::from_counts(&grams));
            grams = continuations(&grams, length);
        }
        levels.reverse();
        Self { vocab_size, levels }
    }

    /// The mean of -ln p over a text, where each token's context is the four tokens before it
    /// (fewer at the beginning); 0 for no tokens.
    #[must_use]
    pub fn loss(&self, tokens: &[u16]) -> f64 {
        let mut key = 0;
        let mut sum = 0.0;
        for (position, &token) in tokens.iter().enumerate() {
            let symbol = known(token, self.vocab_size);
            sum -= self.probability(key, position.min(ORDER - 1), symbol).ln();
            key = (key << SYMBOL_BITS | u64::from(symbol)) & mask(ORDER - 1);
        }
        sum / tokens.len().max(1) as f64
    }

    /// p(symbol | the last `length` symbols of `key`).
    fn probability(&self, key: u64, length: usize, symbol: u16) -> f64 {
        let mut probability = 1.0 / f64::from(self.vocab_size);
        for level in 0..=length {
            probability = self.levels[level].mix(key & mask(level), symbol, probability);
        }
        probability
    }
}

impl Level {
    /// Builds a level from n-grams in ascending order, with their counts.
    fn from_counts(grams: &[(u64, u32)]) -> Self {
        let discounts = discounts(grams);
        let mut level = Self::default();
        for run in grams.chunk_by(|a, b| a.0 >> SYMBOL_BITS == b.0 >> SYMBOL_BITS) {
            let total: f64 = run.iter().map(|gram| f64::from(gram.1)).sum();
            let first = level.symbols.len();
            let mut taken = 0.0;
            for &(gram, count) in run {
                let discount = discounts[count.min(3) as usize];
                taken += discount;
                let share = (f64::from(count) - discount) / total;
                level.symbols.push(((gram & SYMBOL_MASK) as u16, share));
            }
            let context = Continuations { first, end: level.symbols.len(), rest: taken / total };
            level.contexts.insert(run[0].0 >> SYMBOL_BITS, context);
        }
        level
    }

    /// The probability at this level, given the probability after the shorter context.
    fn mix(&self, context: u64, symbol: u16, shorter: f64) -> f64 {
        let Some(context) = self.contexts.get(&context) else {
            return shorter;
        };
        let symbols = &self.symbols[context.first..context.end];
        let own = symbols.binary_search_by_key(&symbol, |entry| entry.0);
        own.map_or(0.0, |place| symbols[place].1) + context.rest * shorter
    }
}

/// All 5-grams of a text in ascending order, with their counts.
fn count(tokens: &[u16], vocab_size: u32) -> Vec<(u64, u32)> {
    let mut key = 0;
    let mut keys = Vec::with_capacity(tokens.len());
    for (position, &token) in tokens.iter().enumerate() {
        key = (key << SYMBOL_BITS | u64::from(known(token, vocab_size))) & mask(ORDER);
        if position + 1 >= ORDER {
            keys.push(key);
        }
    }
    keys.sort_unstable();
    keys.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u32)).collect()
}

/// The last `length` symbols of each n-gram, with the number of different symbols seen before
/// them: what Kneser-Ney counts in the shorter orders.
fn continuations(grams: &[(u64, u32)], length: usize) -> Vec<(u64, u32)> {
    let mut keys: Vec<u64> = grams.iter().map(|gram| gram.0 & mask(length)).collect();
    keys.sort_unstable();
    keys.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u32)).collect()
}

/// Discounts of counts 1, 2 and 3 or more (Chen and Goodman's estimate), by count.
fn discounts(grams: &[(u64, u32)]) -> [f64; 4] {
    let mut of = [0.0; 5];
    grams.iter().filter(|gram| gram.1 <= 4).for_each(|gram| of[gram.1 as usize] += 1.0);
    let [_, one, two, three, four] = of;
    let base = one / (one + 2.0 * two);
    // Never exactly 0: a symbol not seen after a context must keep some probability.
    let estimate = |count: f64, now: f64, next: f64| {
        let found = count - (count + 1.0) * base * next / now;
        if found.is_finite() { found.clamp(0.01, count) } else { 0.5 }
    };
    [0.0, estimate(1.0, one, two), estimate(2.0, two, three), estimate(3.0, three, four)]
}

/// The low bits that hold `length` symbols.
fn mask(length: usize) -> u64 {
    (1 << (SYMBOL_BITS * length as u32)) - 1
}

fn known(token: u16, vocab_size: u32) -> u16 {
    if u32::from(token) < vocab_size { token } else { 0 }
}
