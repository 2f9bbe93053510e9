//! The built-in preset: what `train` does without a data set. It trains a small character model on
//! the built-in corpus, in minutes on two cores. Keys on the command line change it.

use crate::keys::{Command, Literal};
use crate::settings::{Origin, Setting, Settings};
use crate::value::Value;
use Literal::{Float, Int, Str};

/// What the preset sets a key to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PresetValue {
    /// This value.
    Is(Literal),
    /// The value of another key.
    Like(&'static str),
}

use PresetValue::{Is, Like};

/// The preset. A row that copies another key comes after that key's row. Stories have about 110
/// characters, so a context of 256 covers a whole one. Batches are small because within two minutes
/// many cheap updates reach a lower loss than a few large ones (`docs/experiments.md`).
pub const PRESET: [(&str, PresetValue); 18] = [
    ("out_dir", Is(Str("out-builtin"))),
    ("dataset", Is(Str("builtin"))),
    ("n_layer", Is(Int(2))),
    ("n_head", Is(Int(2))),
    ("n_embd", Is(Int(64))),
    ("block_size", Is(Int(256))),
    ("dropout", Is(Float(0.0))),
    ("batch_size", Is(Int(2))),
    ("gradient_accumulation_steps", Is(Int(1))),
    ("learning_rate", Is(Float(4e-3))),
    ("min_lr", Is(Float(4e-5))),
    ("max_iters", Is(Int(20_000))),
    ("warmup_iters", Is(Int(100))),
    ("lr_decay_iters", Like("max_iters")),
    ("beta2", Is(Float(0.99))),
    ("eval_interval", Is(Int(2000))),
    ("eval_iters", Is(Int(100))),
    ("log_interval", Is(Int(1000))),
];

/// The preset applies to `train` without a config file, `dataset` and `init_from`.
pub fn applies(settings: &Settings) -> bool {
    let leaves = |setting: &Setting| setting.is_given() && is_source(setting.key.name);
    let train = settings.command() == Command::Train;
    train && settings.files().is_empty() && !settings.iter().any(leaves)
}

/// Whether a key says what to train on.
fn is_source(name: &str) -> bool {
    matches!(name, "dataset" | "init_from")
}

/// Sets the keys that the user did not give.
pub fn apply(settings: &mut Settings) {
    for (name, row) in PRESET {
        let value: Option<Value> = match row {
            Is(literal) => Some(literal.into()),
            Like(other) => settings.get(other).map(|setting| setting.value.clone()),
        };
        let given = settings.get(name).is_none_or(Setting::is_given);
        if let (Some(value), false) = (value, given) {
            let set = settings.set(name, value, Origin::Preset);
            debug_assert_eq!(set, Ok(()), "a row of the preset has the type of its key");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Key;

    #[test]
    fn rows_name_keys_and_have_their_types() {
        for (index, (name, row)) in PRESET.into_iter().enumerate() {
            let key = Key::find(name).unwrap();
            assert!(PRESET[..index].iter().all(|(other, _)| *other != name), "{name} twice");
            match row {
                Is(literal) => assert!(key.accept(literal.into()).is_ok(), "{name}"),
                Like(other) => {
                    assert_eq!(Key::find(other).unwrap().kind, key.kind, "{name}");
                    assert!(PRESET[..index].iter().any(|(before, _)| *before == other), "{name}");
                }
            }
        }
    }
}
