//! How far a run is: what a checkpoint keeps besides the model, and what a resumed run counts on
//! from.

/// The progress of a run between two iterations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunProgress {
    /// The next iteration.
    pub iteration: u64,
    /// Best validation loss so far.
    pub best_val_loss: f64,
    /// Tokens trained on, whatever batch sizes the run had; none in files that do not say.
    pub tokens: Option<u64>,
    /// Seconds of training, evaluations included; none in files that do not say.
    pub seconds: Option<f64>,
}

impl RunProgress {
    /// Before the first iteration.
    pub const START: RunProgress = RunProgress {
        iteration: 0,
        best_val_loss: f64::INFINITY,
        tokens: Some(0),
        seconds: Some(0.0),
    };

    /// An iteration of so many tokens is done.
    pub(crate) fn advance(&mut self, tokens: u64) {
        self.iteration += 1;
        self.tokens = self.tokens.map(|before| before.saturating_add(tokens));
    }
}
