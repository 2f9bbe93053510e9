//! What another program's file says about its model.

use checkpoint::TensorSource;
use model::Dims;
use serde_json::{Map, Value};
use std::path::PathBuf;
use tokenizer::Tokenizer;

/// A model of another program, opened.
pub struct ForeignModel {
    /// The file or folder.
    pub path: PathBuf,
    /// Its tensors under our names.
    pub tensors: Box<dyn TensorSource>,
    /// The model's sizes.
    pub dims: Dims,
    /// The next iteration of its run.
    pub iteration: u64,
    /// The best validation loss of its run.
    pub best_val_loss: Option<f64>,
    /// Tokens that its run has trained on; none if the file does not say.
    pub tokens: Option<u64>,
    /// Seconds that its run has trained; none if the file does not say.
    pub seconds: Option<f64>,
    /// The settings of its run under nanoGPT's keys; empty if the file has none.
    pub config: Map<String, Value>,
    /// The settings that come with the optimizer's state (`weight_decay`, `beta1`, `beta2`); empty
    /// without moments.
    pub optimizer: Map<String, Value>,
    /// Whether it has the optimizer's moments.
    pub has_moments: bool,
    /// `"erf"` or `"tanh"`; none if the file does not say.
    pub gelu: Option<&'static str>,
    /// Converts ids to text; none if the file does not say.
    pub tokenizer: Option<Tokenizer>,
    /// Why it has no tokenizer, if its format could have one.
    pub no_tokenizer: Option<String>,
    /// Lines for the user about what was assumed.
    pub notices: Vec<String>,
}
