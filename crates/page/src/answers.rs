//! What the page asks of the rest of the program, which this crate does not know.

use serde_json::Value;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Why there is no answer: a sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// What is asked of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleWish {
    /// The prompt.
    pub prompt: String,
    /// Divides the logits.
    pub temperature: f64,
    /// Only this many of the most likely tokens; 0 = all.
    pub top_k: u64,
    /// Only the fewest tokens that have this probability together.
    pub top_p: f64,
    /// Seed of the draws.
    pub seed: u64,
    /// Most tokens.
    pub tokens: u64,
}

/// The load of the GPU at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hardware {
    /// Percentage of time in which a kernel ran.
    pub busy: Option<f64>,
    /// Megahertz of the multiprocessors.
    pub clock: Option<f64>,
    /// Degrees Celsius.
    pub temperature: Option<f64>,
    /// Watts.
    pub power: Option<f64>,
}

/// Pairs of a query: names and values.
pub type Query = [(String, String)];

/// What the page asks of the rest of the program. Every call may take a while; the server makes
/// them on threads of lowest priority.
pub trait Answers: Send + Sync {
    /// Version, cards, and what can be chosen in a plan.
    fn about(&self) -> Value;

    /// A plan for these settings, with the bytes that nanoGPT needs.
    fn plan(&self, query: &Query) -> Result<Value, Refused>;

    /// The largest model that fits with these settings.
    fn largest(&self, query: &Query) -> Result<Value, Refused>;

    /// The arena of a plan in one phase.
    fn arena(&self, query: &Query) -> Result<Value, Refused>;

    /// The arena of a run, by the `start` event of its log.
    fn arena_of_run(
        &self,
        start: &events::Start,
        is_own: bool,
        query: &Query,
    ) -> Result<Value, Refused>;

    /// A diagnosis of a log.
    fn diagnose(&self, text: &str, language: Option<&str>, query: &Query)
    -> Result<Value, Refused>;

    /// The command that generates a text and writes a JSON object a line: a process of its own.
    fn sampler(&self, checkpoint: &std::path::Path) -> Result<Command, Refused>;

    /// The GPU's load, if this process trains on one.
    fn hardware(&self) -> Option<Hardware>;
}

/// What the page may change in a run that this process trains.
#[derive(Clone, Debug)]
pub struct Control {
    /// Set to stop after this step.
    pub stop: Arc<AtomicBool>,
    /// Set to save after this step.
    pub save: Arc<AtomicBool>,
}
