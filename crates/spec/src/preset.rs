//! The built-in preset: what `train` does when it is not told what to learn from. A small character
//! model of the built-in corpus, minutes on two cores. Keys on the command line change it.

use crate::keys::{Command, Literal};
use crate::settings::{Origin, Setting, Settings};
use crate::value::Value;
use Literal::{Float, Int, Str};

/// What the preset says of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Row {
    /// This value.
    Is(Literal),
    /// Whatever another key is.
    Like(&'static str),
}

use Row::{Is, Like};

/// The preset. A row after the one that it is like. Stories are about 110 characters long, so that
/// 256 see a whole one. Small and often: with two minutes to spend, many cheap updates learn more
/// than few large ones (`docs/experiments.md`).
pub const PRESET: [(&str, Row); 18] = [
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

/// Only for `train`, and only when no config file, no dataset and no init_from is given.
pub fn applies(settings: &Settings) -> bool {
    let leaves = |setting: &Setting| setting.is_given() && is_source(setting.key.name);
    let train = settings.command() == Command::Train;
    train && settings.files().is_empty() && !settings.iter().any(leaves)
}

/// Keys that say what to learn from.
fn is_source(name: &str) -> bool {
    matches!(name, "dataset" | "init_from")
}

/// Fills in what was not given.
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
