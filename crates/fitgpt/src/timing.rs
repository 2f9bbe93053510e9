//! Times whole iterations and evaluation batches of a loaded plan on random tokens: for `bench`,
//! and for `train TEXT`, which chooses the length of a run by them.

use crate::measure;
use plan::StepInputs;
use spec::RunSpec;
use std::time::Instant;
use train::TrainError;
use train::engine::{Engine, Rows};

/// Iterations before the timed ones, to warm up caches, clocks and graphs.
pub const WARM_UP: u64 = 3;

/// Small, so that the weights stay in a normal range.
const LEARNING_RATE: f64 = 1e-4;

/// Seconds of whole iterations, like those of `train` except for reading text. Reading the state at
/// the end of each waits for the device.
pub fn training(
    engine: &mut Engine,
    run: &RunSpec,
    vocabulary: u64,
    count: Count,
) -> Result<Vec<f64>, TrainError> {
    let sequences = run.sequences_per_iteration();
    let rows = random_rows(sequences, run.block_size, vocabulary)?;
    let inverse_tokens = 1.0 / run.tokens_per_iteration() as f32;
    timed(count, |iteration| {
        let step = StepInputs {
            lr: LEARNING_RATE,
            grad_clip: run.grad_clip.unwrap_or(0.0),
            iteration,
            seed: run.seed,
            inverse_tokens,
            ..StepInputs::default()
        };
        engine.train_rows(&rows, &step, &mut |_| true)?;
        engine.update(&step)?;
        engine.state()?;
        let losses = engine.row_losses(sequences)?;
        // Times of a computation on NaNs would be meaningless.
        match losses.iter().all(|loss| loss.is_finite()) {
            true => Ok(()),
            false => Err(TrainError::Diverged { iteration, lr: LEARNING_RATE }),
        }
    })
}

/// Seconds of evaluation batches.
pub fn evaluation(
    engine: &mut Engine,
    run: &RunSpec,
    vocabulary: u64,
    count: Count,
) -> Result<Vec<f64>, TrainError> {
    if engine.program().eval.is_empty() {
        return Ok(Vec::new());
    }
    let rows = random_rows(run.eval_batch_size, run.eval_block_size, vocabulary)?;
    timed(count, |_| {
        engine.eval_rows(&rows, &mut |_| true)?;
        engine.row_losses(run.eval_batch_size)?;
        Ok(())
    })
}

/// Sequences of random ids, as frequent as in text.
fn random_rows(sequences: u64, positions: u64, vocabulary: u64) -> Result<Rows, TrainError> {
    let mut rows = Rows::new(sequences, positions)?;
    let (tokens, targets) = (&mut rows.tokens, &mut rows.targets);
    let mut ids = measure::zipf(tokens.len() as u64 + 1, vocabulary);
    let mut last = ids.next().unwrap_or(0);
    for ((token, target), id) in tokens.iter_mut().zip(targets).zip(ids) {
        (*token, *target) = (last, id);
        last = id;
    }
    Ok(rows)
}

/// How many repetitions are timed: as many as fit in `seconds`, between `least` and `most`.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// The fewest repetitions.
    pub least: usize,
    /// The most repetitions.
    pub most: usize,
    /// After this many seconds, the fewest are enough.
    pub seconds: f64,
}

impl Count {
    /// The default of `bench`.
    pub const USUAL: Count = Count { least: 5, most: 20, seconds: 10.0 };

    /// Exactly this many, however long they take.
    pub fn exactly(count: usize) -> Count {
        Count { least: count, most: count, seconds: 0.0 }
    }
}

/// Seconds of each repetition of some work, after warming up.
fn timed(
    count: Count,
    mut work: impl FnMut(u64) -> Result<(), TrainError>,
) -> Result<Vec<f64>, TrainError> {
    let Count { least, most, seconds: patience } = count;
    (0..WARM_UP).try_for_each(&mut work)?;
    let start = Instant::now();
    let mut seconds: Vec<f64> = Vec::new();
    loop {
        let done = seconds.len();
        if done >= most || (done >= least && start.elapsed().as_secs_f64() > patience) {
            return Ok(seconds);
        }
        let before = Instant::now();
        work(WARM_UP + done as u64)?;
        seconds.push(before.elapsed().as_secs_f64());
    }
}

/// The median; none of an empty list.
pub fn median(mut seconds: Vec<f64>) -> Option<f64> {
    seconds.sort_by(f64::total_cmp);
    let upper = *seconds.get(seconds.len() / 2)?;
    let lower = *seconds.get((seconds.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_the_middle() {
        assert_eq!(median(Vec::new()), None);
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn work_is_warmed_up_and_counted() {
        let mut seen = Vec::new();
        let seconds = timed(Count::exactly(2), |iteration| {
            seen.push(iteration);
            Ok(())
        });
        assert_eq!(seconds.unwrap().len(), 2);
        assert_eq!(seen, [0, 1, 2, 3, 4]);
        assert_eq!(timed(Count::USUAL, |_| Ok(())).unwrap().len(), Count::USUAL.most);
    }

    #[test]
    fn every_id_is_followed_by_its_target() {
        let rows = random_rows(2, 3, 65).unwrap();
        assert_eq!(rows.tokens[1..], rows.targets[..5]);
        assert!(rows.tokens.iter().chain(&rows.targets).all(|id| (0..65).contains(id)));
    }

    #[test]
    fn ids_are_as_frequent_as_in_text() {
        let ids: Vec<i32> = measure::zipf(100_000, 50_304).collect();
        let share = |id: i32| ids.iter().filter(|&&each| each == id).count() as f64 / 1e5;
        // ln((k + 2) / (k + 1)) / ln(50305)
        for (id, want) in [(0, 0.0640), (1, 0.0375), (9, 0.0088)] {
            assert!((share(id) - want).abs() < 0.0005, "{id}: {}", share(id));
        }
        assert!(ids.iter().all(|id| (0..50_304).contains(id)));
        assert!(ids.iter().max().is_some_and(|&most| most > 50_000));
        assert!(measure::zipf(100, 1).all(|id| id == 0));
    }
}
