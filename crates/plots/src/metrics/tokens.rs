//! Tokens that a run has trained on. A resumed run may have other batches, so they are counted from
//! what the checkpoint says, not from iteration 0.

use events::Start;
use serde_json::Value;

/// The count of the process that trains now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tokens {
    /// The first iteration of the process, and the tokens before it.
    first: u64,
    before: Option<f64>,
    /// Tokens of an iteration.
    pub each: Option<u64>,
}

impl Tokens {
    /// A process starts or resumes the run.
    pub fn start(&mut self, start: &Start) {
        let each = start.tokens_per_iteration.or_else(|| of_settings(&start.config));
        let said = start.tokens_before.map(|tokens| tokens as f64);
        // An older log does not say: count on from the process before, unless its iterations are
        // taken back.
        let counted = || self.before(start.iter).filter(|_| start.iter >= self.first);
        let all = || each.map(|each| each as f64 * start.iter as f64);
        let before = said.or_else(counted).or_else(all);
        *self = Tokens { first: start.iter, before, each };
    }

    /// Tokens before an iteration of the process.
    pub fn before(&self, iter: u64) -> Option<f64> {
        let done = iter.saturating_sub(self.first);
        Some(self.before? + self.each? as f64 * done as f64)
    }
}

/// Tokens of an iteration by the settings: the first version of the log does not say it.
fn of_settings(config: &Value) -> Option<u64> {
    let keys = ["gradient_accumulation_steps", "batch_size", "block_size"];
    keys.iter().try_fold(1u64, |product, key| product.checked_mul(config.get(key)?.as_u64()?))
}
