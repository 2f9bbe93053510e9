//! Windows over a stream of tokens: all of it, once, or random ones.

use crate::engine::Rows;
use crate::error::TrainError;
use crate::eval::{Estimate, Running};
use crate::feed::Feed;
use crate::scoring::{Batch, Source, TextBytes, Total};
use data::{Split, TokenStream};

/// A window: inputs from `start` on, each with the token that follows it as target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first input's place in the stream.
    pub start: u64,
    /// Inputs.
    pub inputs: usize,
    /// Targets that are not scored, from the first.
    pub unscored: usize,
}

/// The windows that score a whole stream.
///
/// Without a stride they follow each other as nanoGPT's sequences do: `positions` inputs, and every
/// token but the stream's first is scored once. With a stride they are those of Hugging Face's
/// strided perplexity: windows of `positions` tokens that begin `stride` tokens apart and score
/// only tokens that no window before had.
#[derive(Clone, Debug)]
pub struct Windows {
    tokens: u64,
    positions: u64,
    stride: Option<u64>,
    start: u64,
    /// Where the last window ended.
    end: u64,
}

impl Windows {
    /// The windows over `tokens` tokens.
    pub fn new(tokens: u64, positions: u64, stride: Option<u64>) -> Windows {
        Windows { tokens, positions, stride, start: 0, end: 0 }
    }
}

impl Iterator for Windows {
    type Item = Window;

    fn next(&mut self) -> Option<Window> {
        let Windows { tokens, positions, stride, start, end: before } = *self;
        if before >= tokens || start + 1 >= tokens {
            return None;
        }
        let longest = if stride.is_some() { positions } else { positions + 1 };
        let end = (start + longest).min(tokens);
        self.end = end;
        self.start = start + stride.unwrap_or(positions);
        let unscored = match stride {
            Some(_) => before.saturating_sub(start + 1),
            None => 0,
        };
        Some(Window { start, inputs: (end - start - 1) as usize, unscored: unscored as usize })
    }
}

/// Scores a whole stream.
pub struct Whole<'a> {
    stream: &'a TokenStream,
    windows: Windows,
    text: &'a TextBytes,
    /// The losses so far.
    pub total: Total,
    /// The share of the stream that was filled into batches.
    pub share: f64,
}

impl<'a> Whole<'a> {
    /// From the stream's beginning.
    pub fn new(stream: &'a TokenStream, windows: Windows, text: &'a TextBytes) -> Whole<'a> {
        Whole { stream, windows, text, total: Total::default(), share: 0.0 }
    }
}

impl Source for Whole<'_> {
    fn fill(&mut self, rows: &mut Rows) -> Result<Batch, TrainError> {
        let mut batch = Batch::default();
        let places = rows.tokens.chunks_mut(rows.positions);
        for (tokens, targets) in places.zip(rows.targets.chunks_mut(rows.positions)) {
            targets.fill(-1);
            let Some(window) = self.windows.next() else { continue };
            let Window { start, inputs, unscored } = window;
            self.stream.read(start, &mut tokens[..inputs])?;
            self.stream.read(start + 1, &mut targets[..inputs])?;
            tokens[inputs..].fill(0);
            targets[..unscored].fill(-1);
            batch.rows += 1;
            batch.tokens += (inputs - unscored) as u64;
            batch.bytes += self.text.sum(&targets[..inputs]);
            self.share = (start + inputs as u64) as f64 / self.stream.len() as f64;
        }
        Ok(batch)
    }

    fn take(&mut self, batch: Batch, losses: &[f32]) {
        self.total.add(batch, losses);
    }
}

/// Scores random batches, as nanoGPT's `estimate_loss` does.
pub struct RandomBatches<'a> {
    feed: &'a mut dyn Feed,
    split: Split,
    iteration: u64,
    batches: u64,
    text: &'a TextBytes,
    done: u64,
    /// The losses so far.
    pub total: Total,
    means: Running,
    positions: usize,
}

impl<'a> RandomBatches<'a> {
    /// `batches` batches of a split.
    pub fn new(
        feed: &'a mut dyn Feed,
        (split, iteration, batches): (Split, u64, u64),
        text: &'a TextBytes,
    ) -> RandomBatches<'a> {
        let (total, means) = (Total::default(), Running::default());
        RandomBatches { feed, split, iteration, batches, text, done: 0, total, means, positions: 1 }
    }

    /// The share of the batches that were filled.
    pub fn share(&self) -> f64 {
        self.done as f64 / self.batches.max(1) as f64
    }

    /// The mean and its standard error; none before the second sequence.
    pub fn estimate(&self) -> Option<Estimate> {
        self.means.has_spread().then(|| self.means.estimate())
    }
}

impl Source for RandomBatches<'_> {
    fn fill(&mut self, rows: &mut Rows) -> Result<Batch, TrainError> {
        if self.done == self.batches {
            return Ok(Batch::default());
        }
        self.feed.eval(self.split, self.iteration, self.done, rows)?;
        self.done += 1;
        self.positions = rows.positions;
        let (tokens, bytes) = (rows.targets.len() as u64, self.text.sum(&rows.targets));
        Ok(Batch { rows: rows.tokens.len() / rows.positions, tokens, bytes })
    }

    fn take(&mut self, batch: Batch, losses: &[f32]) {
        self.total.add(batch, losses);
        self.means.add_all(losses, self.positions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokens that each window scores, and how many come before the first of them.
    fn scored(tokens: u64, positions: u64, stride: Option<u64>) -> Vec<(Vec<u64>, u64)> {
        let windows = Windows::new(tokens, positions, stride);
        let of = |Window { start, inputs, unscored }: Window| {
            let first = start + 1 + unscored as u64;
            ((first..start + 1 + inputs as u64).collect(), first - start)
        };
        windows.map(of).collect()
    }

    #[test]
    fn without_a_stride_every_token_but_the_first_is_scored_once() {
        let windows = scored(10, 4, None);
        assert_eq!(windows, [(vec![1, 2, 3, 4], 1), (vec![5, 6, 7, 8], 1), (vec![9], 1)]);
        assert_eq!(scored(9, 4, None).len(), 2);
        assert_eq!(scored(2, 4, None), [(vec![1], 1)]);
        assert_eq!(scored(1, 4, None), []);
        assert_eq!(scored(0, 4, None), []);
    }

    /// By hand from the loop in transformers' documentation: windows of 4, 2 apart.
    #[test]
    fn strides_are_those_of_transformers() {
        let windows = scored(9, 4, Some(2));
        let want = [(vec![1, 2, 3], 1), (vec![4, 5], 2), (vec![6, 7], 2), (vec![8], 2)];
        assert_eq!(windows, want);
        // Without overlap the first token of each window has no context.
        assert_eq!(scored(8, 4, Some(4)), [(vec![1, 2, 3], 1), (vec![5, 6, 7], 1)]);
        let single = scored(6, 4, Some(1));
        assert_eq!(single, [(vec![1, 2, 3], 1), (vec![4], 3), (vec![5], 3)]);
    }

    #[test]
    fn bytes_of_special_and_unknown_tokens_do_not_count() {
        let text = TextBytes::of(&tokenizer::Tokenizer::Gpt2, 50_304);
        assert_eq!(text.sum(&[15496, 995, 50256, 50_300, -1]), "Hello world".len() as u64);
        let total = Total { nats: 8.0 * std::f64::consts::LN_2, tokens: 2, bytes: 11 };
        assert!((total.bits_per_byte().unwrap() - 8.0 / 11.0).abs() < 1e-12);
        assert_eq!((Total::default().loss(), Total::default().bits_per_byte()), (None, None));
    }
}
