//! Losses of any windows of tokens, batch after batch. A target of -1 is not scored, so windows may
//! be shorter than a row, and may score only their last tokens.

use crate::engine::{Engine, Report, Rows};
use crate::error::TrainError;

/// What a batch scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Rows in use, from the first.
    pub rows: usize,
    /// Tokens that are scored.
    pub tokens: u64,
    /// Bytes of their text.
    pub bytes: u64,
}

/// Fills batches and takes their losses.
pub trait Source {
    /// Fills the next batch; one without rows is the end. Rows that are not used keep their content
    /// and are computed in vain.
    fn fill(&mut self, rows: &mut Rows) -> Result<Batch, TrainError>;

    /// Takes the summed loss of each of the batch's rows.
    fn take(&mut self, batch: Batch, losses: &[f32]);
}

/// Scores batches until the source ends, or until `keep_going` returns false: then the result is
/// false, and the batches taken so far count. The losses of a batch are read while the next one
/// runs.
pub fn score(
    engine: &mut Engine,
    rows: &mut Rows,
    source: &mut dyn Source,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<bool, TrainError> {
    let all = (rows.tokens.len() / rows.positions) as u64;
    let mut reports = [Report::default(), Report::default()];
    let mut running: Option<Batch> = None;
    let is_whole = loop {
        let batch = source.fill(rows)?;
        if batch.rows == 0 {
            break true;
        }
        if !engine.eval_rows(rows, &mut |_| keep_going())? {
            break false;
        }
        reports.swap(0, 1);
        engine.begin_report(&mut reports[0], all)?;
        if let Some(before) = running.replace(batch) {
            finish(engine, &mut reports[1], before, source)?;
        }
    };
    if let Some(last) = running {
        finish(engine, &mut reports[0], last, source)?;
    }
    Ok(is_whole)
}

fn finish(
    engine: &mut Engine,
    report: &mut Report,
    batch: Batch,
    source: &mut dyn Source,
) -> Result<(), TrainError> {
    engine.finish_report(report)?;
    let losses = report.losses();
    source.take(batch, &losses[..batch.rows.min(losses.len())]);
    Ok(())
}

/// The sum of many losses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Total {
    /// Summed loss in nats.
    pub nats: f64,
    /// Tokens that were scored.
    pub tokens: u64,
    /// Bytes of their text, as far as it is known.
    pub bytes: u64,
}

impl Total {
    /// Adds a batch.
    pub fn add(&mut self, batch: Batch, losses: &[f32]) {
        self.nats += losses.iter().map(|loss| f64::from(*loss)).sum::<f64>();
        self.tokens += batch.tokens;
        self.bytes += batch.bytes;
    }

    /// Mean loss in nats per token; none without tokens.
    pub fn loss(&self) -> Option<f64> {
        (self.tokens > 0).then(|| self.nats / self.tokens as f64)
    }

    /// Bits per byte of text; none if no byte is known.
    pub fn bits_per_byte(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.nats / std::f64::consts::LN_2 / self.bytes as f64)
    }
}

/// Bytes of text by id; empty if ids cannot be turned into text.
#[derive(Clone, Debug, Default)]
pub struct TextBytes(Vec<u32>);

impl TextBytes {
    /// Those of a tokenizer, for a model with this many ids.
    pub fn of(tokenizer: &tokenizer::Tokenizer, ids: u64) -> TextBytes {
        let ids = i32::try_from(ids).unwrap_or(i32::MAX).min(1 << 16);
        TextBytes((0..ids).map(|id| tokenizer.text_bytes(id).unwrap_or(0) as u32).collect())
    }

    /// Bytes of scored targets.
    pub fn sum(&self, targets: &[i32]) -> u64 {
        let of = |id: &i32| usize::try_from(*id).ok().and_then(|id| self.0.get(id)).copied();
        targets.iter().filter_map(of).map(u64::from).sum()
    }
}
