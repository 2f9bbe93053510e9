//! Evaluation: the mean loss over batches of a split, with its standard error. It runs in the
//! training arena, never holds all logits at once, and changes nothing that training reads.

use crate::engine::{Engine, Report, Rows};
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
    /// Loss of the training split.
    pub train: Estimate,
    /// Loss of the validation split.
    pub val: Estimate,
    /// Tokens evaluated per split.
    pub tokens: u64,
}

/// Evaluates `batches` batches of both splits, the training split first, like nanoGPT. `rows` is
/// the buffer of one batch and sets its size. The losses of a batch are read while the next one
/// runs (`reports`). Before each slice, `keep_going` gets the share that is done. If it returns
/// false, the result is none. Ranks share the batches, and all of them get the result that one
/// rank would get.
pub fn evaluate(
    engine: &mut Engine,
    feed: &mut dyn Feed,
    batches: u64,
    (rows, reports): (&mut Rows, &mut [Report; 2]),
    iteration: u64,
    keep_going: &mut dyn FnMut(f64) -> bool,
) -> Result<Option<Evaluation>, TrainError> {
    let mut estimates = [Estimate { loss: 0.0, standard_error: 0.0 }; 2];
    let is_shared = engine.program().row_losses.is_some();
    for (half, split) in [Split::Train, Split::Val].into_iter().enumerate() {
        let mut keep_going = |share: f64| keep_going((half as f64 + share) / 2.0);
        let work = Work { batches, split, iteration };
        let found = match is_shared {
            true => shared_split(engine, feed, &work, rows, &mut reports[0], &mut keep_going)?,
            false => split_losses(engine, feed, &work, (rows, reports), &mut keep_going)?,
        };
        let Some(means) = found else { return Ok(None) };
        estimates[half] = means.estimate();
    }
    let [train, val] = estimates;
    Ok(Some(Evaluation { train, val, tokens: batches * rows.tokens.len() as u64 }))
}

/// What is evaluated.
struct Work {
    batches: u64,
    split: Split,
    iteration: u64,
}

/// The losses of a split, on one rank.
fn split_losses(
    engine: &mut Engine,
    feed: &mut dyn Feed,
    &Work { batches, split, iteration }: &Work,
    (rows, reports): (&mut Rows, &mut [Report; 2]),
    keep_going: &mut dyn FnMut(f64) -> bool,
) -> Result<Option<Running>, TrainError> {
    let sequences = (rows.tokens.len() / rows.positions) as u64;
    let mut means = Running::default();
    for batch in 0..batches {
        feed.eval(split, iteration, batch, rows)?;
        let mut keep_going = |share: f64| keep_going((batch as f64 + share) / batches as f64);
        if !engine.eval_rows(rows, &mut keep_going)? {
            return Ok(None);
        }
        reports.swap(0, 1);
        engine.begin_report(&mut reports[0], sequences)?;
        if batch > 0 {
            engine.finish_report(&mut reports[1])?;
            means.add_all(reports[1].losses(), rows.positions);
        }
    }
    if batches > 0 {
        engine.finish_report(&mut reports[0])?;
        means.add_all(reports[0].losses(), rows.positions);
    }
    Ok(Some(means))
}

/// The losses of a split whose batches the ranks share: each computes one, then all ranks get all
/// losses, in the order of the batches. A request to stop travels with them, so that all ranks stop
/// at the same batch.
fn shared_split(
    engine: &mut Engine,
    feed: &mut dyn Feed,
    &Work { batches, split, iteration }: &Work,
    rows: &mut Rows,
    report: &mut Report,
    keep_going: &mut dyn FnMut(f64) -> bool,
) -> Result<Option<Running>, TrainError> {
    let sequences = rows.tokens.len() / rows.positions;
    let rank = engine.program().sharing.rank;
    let sharing = if feed.is_shared() { rank.ranks as u64 } else { 1 };
    let mut means = Running::default();
    let mut first = 0;
    while first < batches {
        let here = sharing.min(batches - first);
        let asked = !keep_going(first as f64 / batches as f64);
        engine.step();
        if (rank.rank as u64) < here {
            feed.eval(split, iteration, first + rank.rank as u64, rows)?;
            engine.eval_rows(rows, &mut |_| true)?;
        } else {
            engine.skip_eval_rows();
        }
        engine.step();
        engine.ask_to_stop(asked)?;
        engine.begin_report_of_all(report)?;
        engine.finish_report(report)?;
        if report.is_stopped() {
            return Ok(None);
        }
        for rank in 0..here as usize {
            means.add_all(&report.losses_of(rank)[..sequences], rows.positions);
        }
        first += here;
    }
    Ok(Some(means))
}

/// Running mean and variance (Welford's algorithm).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Running {
    count: f64,
    mean: f64,
    /// Sum of squared differences from the mean.
    spread: f64,
}

impl Running {
    fn add(&mut self, number: f64) {
        self.count += 1.0;
        let before = number - self.mean;
        self.mean += before / self.count;
        self.spread += before * (number - self.mean);
    }

    pub(crate) fn add_all(&mut self, losses: &[f32], positions: usize) {
        losses.iter().for_each(|&loss| self.add(f64::from(loss) / positions as f64));
    }

    /// Whether there is a spread to estimate.
    pub(crate) fn has_spread(&self) -> bool {
        self.count > 1.0
    }

    pub(crate) fn estimate(&self) -> Estimate {
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
