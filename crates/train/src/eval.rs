//! Evaluation: the mean loss of so many batches of a split, with its standard error. It runs in the
//! training arena, never sees logits whole, and changes nothing that training reads.

use crate::engine::{Engine, Rows};
use crate::error::TrainError;
use crate::feed::Feed;
use data::Split;
use plan::StepInputs;

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
/// room for one batch and says how large it is. Before each batch `go_on` hears which share is
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
    let mut means = Vec::with_capacity((batches * sequences) as usize);
    let mut estimates = [Estimate { loss: 0.0, standard_error: 0.0 }; 2];
    for (half, split) in [Split::Train, Split::Val].into_iter().enumerate() {
        means.clear();
        for batch in 0..batches {
            let share = batch as f64 / batches as f64;
            if !go_on((half as f64 + share) / 2.0) {
                return Ok(None);
            }
            feed.eval(split, iteration, batch, rows)?;
            engine.eval_rows(rows, &StepInputs::default())?;
            let losses = engine.row_losses(sequences)?;
            means.extend(losses.iter().map(|&loss| f64::from(loss) / rows.positions as f64));
        }
        estimates[half] = summary(&means);
    }
    let [train, val] = estimates;
    Ok(Some(Evaluation { train, val, tokens: batches * rows.tokens.len() as u64 }))
}

fn summary(means: &[f64]) -> Estimate {
    let count = means.len().max(1) as f64;
    let loss = means.iter().sum::<f64>() / count;
    let spread: f64 = means.iter().map(|mean| (mean - loss) * (mean - loss)).sum();
    let standard_error = (spread / (count - 1.0).max(1.0) / count).sqrt();
    Estimate { loss, standard_error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_error_is_that_of_the_mean() {
        let four = summary(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(four.loss, 2.5);
        assert!((four.standard_error - (5.0f64 / 3.0 / 4.0).sqrt()).abs() < 1e-12);
        assert_eq!(summary(&[2.0]), Estimate { loss: 2.0, standard_error: 0.0 });
    }
}
