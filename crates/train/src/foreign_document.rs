//! The document of a run that another program saved: its progress, its settings and sizes. What
//! only our own checkpoints have, such as a plan and a position in the data, stays empty.

use crate::document::Document;
use crate::progress::RunProgress;
use interop::ForeignModel;
use serde_json::Value;

/// The document of a model.
pub fn of(model: &ForeignModel) -> Document {
    let mut config = model.config.clone();
    let dims = model.dims;
    let sizes = [
        ("n_layer", dims.n_layer.into()),
        ("n_head", dims.n_head.into()),
        ("n_embd", dims.n_embd.into()),
        ("block_size", dims.block_size.into()),
        ("bias", Value::from(dims.bias)),
    ];
    let gelu = model.gelu.map(|gelu| ("gelu", Value::from(gelu)));
    config.extend(sizes.into_iter().chain(gelu).map(|(key, value)| (key.to_owned(), value)));
    config.extend(model.optimizer.clone());
    let best_val_loss = model.best_val_loss.filter(|loss| !loss.is_nan());
    Document {
        progress: RunProgress {
            iteration: model.iteration,
            best_val_loss: best_val_loss.unwrap_or(f64::INFINITY),
            tokens: model.tokens,
            seconds: model.seconds,
        },
        config: Value::Object(config),
        dims,
        tokenizer: model.tokenizer.clone(),
        data: None,
        feed: Value::Null,
        plan: None,
        steps_hash: String::new(),
        choices: Vec::new(),
        device: String::new(),
        threads: None,
        version: String::new(),
    }
}
