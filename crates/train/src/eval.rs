//! Evaluation: the mean loss of so many batches of a split, with its standard error. It runs in the
//! training arena, never sees logits whole, and changes nothing that training reads.

use crate::engine::{Engine, Rows};
use crate::error::TrainError;
use crate::feed::Feed;
use data::Split;

/// Loss of one split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Mean over all tokens.
    pub loss: f64,
    /// Standard error of the mean, from the spread of the sequences' means.
    pub standard_error: f64,
}

/// Losses of both splits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Of the training text.
    pub train: Estimate,
    /// Of the validation text.
    pub val: Estimate,
    /// Tokens of each split.
    pub tokens: u64,
}

/// Evaluates `batches` batches of both splits, training text first, as nanoGPT does. `rows` is the
/// room for one batch and says how large it is. Before each slice `go_on` hears which share is
/// done; where it answers no, there is no evaluation.
pub fn evaluate(
    engine: &mut Engine,
    feed: &mut dyn Feed,
    batches: u64,
    rows: &mut Rows,
    iteration: u64,
    go_on: &mut dyn FnMut(f64) -> bool,
) -> Result<Option<Evaluation>, TrainError> {
    let sequences = (rows.tokens.len() / rows.positions) as u64;
    let mut estimates = [Estimate { loss: 0.0, standard_error: 0.0 }; 2];
    for (half, split) in [Split::Train, Split::Val].into_iter().enumerate() {
        let mut means = Running::default();
        for batch in 0..batches {
            feed.eval(split, iteration, batch, rows)?;
            let mut go_on = |share: f64| {
                let share = (batch as f64 + share) / batches as f64;
                go_on((half as f64 + share) / 2.0)
            };
            if !engine.eval_rows(rows, &mut go_on)? {
                return Ok(None);
            }
            let losses = engine.row_losses(sequences)?;
            losses.iter().for_each(|&loss| means.add(f64::from(loss) / rows.positions as f64));
        }
        estimates[half] = means.estimate();
    }
    let [train, val] = estimates;
    Ok(Some(Evaluation { train, val, tokens: batches * rows.tokens.len() as u64 }))
}

/// Mean and spread of numbers that come one by one (Welford).
#[derive(Clone, Copy, Debug, Default)]
struct Running {
    count: f64,
    mean: f64,
    /// Sum of squared distances from the mean.
    spread: f64,
}

impl Running {
    fn add(&mut self, number: f64) {
        self.count += 1.0;
        let before = number - self.mean;
        self.mean += before / self.count;
        self.spread += before * (number - self.mean);
    }

    fn estimate(&self) -> Estimate {
        let variance = self.spread / (self.count - 1.0).max(1.0);
        let standard_error = (variance / self.count.max(1.0)).sqrt();
        Estimate { loss: self.mean, standard_error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_error_is_that_of_the_mean() {
        let summary = |numbers: &[f64]| {
            let mut running = Running::default();
            numbers.iter().for_each(|&number| running.add(number));
            running.estimate()
        };
        let four = summary(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(four.loss, 2.5);
        assert!((four.standard_error - (5.0f64 / 3.0 / 4.0).sqrt()).abs() < 1e-12);
        assert_eq!(summary(&[2.0]), Estimate { loss: 2.0, standard_error: 0.0 });
    }
}
