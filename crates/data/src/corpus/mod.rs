//! The built-in corpus: short stories that this program generates from a seed.
//!
//! They come from a probabilistic grammar (`stories.txt`) in which every text has exactly one
//! derivation. So the probability of a text is the product of the probabilities of its choices, and
//! the mean of -ln p over the validation text is the loss that no model can beat: the *floor*. It
//! is computed exactly while the text is generated, not estimated.

mod grammar;
mod story;
mod recognise;

#[cfg(test)]
mod unambiguous;

pub use grammar::{Grammar, GrammarError};
pub use recognise::Derivation;

use rng::{Purpose, Stream};
use std::sync::OnceLock;

/// Loss of a 5-gram model on the built-in validation text, in nats per character: what a table of
/// short contexts can reach. A test checks this constant, so a run need not spend memory on the
/// table.
pub const FIVE_GRAM_LOSS: f64 = 0.692_823;

/// Seed of the built-in stories.
const SEED: u64 = 0x0066_6974_4750_5401;
/// Once the text has this many bytes, no further story is started.
const TRAIN_BYTES: usize = 4_000_000;
const VAL_BYTES: usize = 300_000;

/// Memory that the corpus takes as tokens. It is generated in memory, not read from a file.
pub const MEMORY_BYTES: u64 = 2 * (TRAIN_BYTES + VAL_BYTES) as u64;

/// Characters that occur in the built-in corpus.
pub const VOCABULARY: u32 = 66;

/// Text to train on and to evaluate on, from one grammar and two independent streams.
#[derive(Clone, Debug, PartialEq)]
pub struct Corpus {
    /// Training text: whole stories, each ending with an empty line.
    pub train: Vec<u8>,
    /// Validation text: other stories, in the same form.
    pub val: Vec<u8>,
    /// The grammar's own mean of -ln p per character of `val`.
    pub floor: f64,
    /// The characters that occur, in ascending order: a character's index is its id.
    pub vocabulary: Vec<u8>,
}

impl Corpus {
    /// The corpus that `train` uses when no data set is named.
    #[must_use]
    pub fn builtin() -> Self {
        Self::generate(SEED, TRAIN_BYTES, VAL_BYTES)
    }

    /// A corpus of at least these sizes.
    #[must_use]
    pub fn generate(seed: u64, train_bytes: usize, val_bytes: usize) -> Self {
        let (train, _) = write(seed, 0, train_bytes);
        let (val, nats) = write(seed, 1, val_bytes);
        let floor = nats / val.len().max(1) as f64;
        let mut occurs = [false; 256];
        train.iter().chain(&val).for_each(|&byte| occurs[usize::from(byte)] = true);
        let vocabulary = (0..=u8::MAX).filter(|&byte| occurs[usize::from(byte)]).collect();
        Self { train, val, floor, vocabulary }
    }

    /// The ids of a text. A character that is not in the vocabulary gets id 0.
    #[must_use]
    pub fn tokens(&self, text: &[u8]) -> Vec<u16> {
        let mut ids = [0; 256];
        for (id, &byte) in self.vocabulary.iter().enumerate() {
            ids[usize::from(byte)] = id as u16;
        }
        text.iter().map(|&byte| ids[usize::from(byte)]).collect()
    }
}

/// Generates at least `bytes` bytes of stories; returns them with their -ln p.
fn write(seed: u64, stream: u64, bytes: usize) -> (Vec<u8>, f64) {
    let mut draws = Stream::new(seed, Purpose::Sample, stream);
    let mut text = Vec::with_capacity(bytes + 1024);
    let mut nats = 0.0;
    while text.len() < bytes {
        nats += stories().write_story(&mut draws, &mut text);
    }
    (text, nats)
}

/// The grammar of the built-in stories.
#[must_use]
pub fn stories() -> &'static Grammar {
    static STORIES: OnceLock<Grammar> = OnceLock::new();
    STORIES.get_or_init(|| {
        Grammar::parse(include_str!("stories.txt")).expect("a test reads the same text")
    })
}
