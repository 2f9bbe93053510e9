//! `config.json`: what of it decides the arithmetic. Whatever fitgpt would compute differently is
//! refused by name.

use crate::error::{ForeignError, ForeignProblem};
use crate::{bounded_file, shown};
use model::{Dims, NORM_EPSILON};
use serde_json::Value;
use std::path::Path;

/// Most bytes of the file; usual ones have one thousand.
const MOST_BYTES: u64 = 1 << 20;

/// What a `config.json` says about a GPT-2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The model's sizes. GPT-2's modules always have biases.
    pub dims: Dims,
    /// `"erf"` or `"tanh"`.
    pub gelu: &'static str,
    /// Whether the head is the token embedding whatever the file of weights has.
    pub is_tied: bool,
}

/// Our names for the activation functions of Hugging Face that are a form of GELU.
const GELUS: [(&str, &str); 3] =
    [("gelu", "erf"), ("gelu_new", "tanh"), ("gelu_pytorch_tanh", "tanh")];

/// Switches that change the arithmetic, with the only value that is read.
const SWITCHES: [(&str, bool); 4] = [
    ("scale_attn_weights", true),
    ("scale_attn_by_inverse_layer_idx", false),
    ("reorder_and_upcast_attn", false),
    ("add_cross_attention", false),
];

impl Config {
    /// Reads a `config.json`.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or describes a model that fitgpt does not compute.
    pub fn read(path: &Path) -> Result<Config, ForeignError> {
        let json = bounded_file::read_json(path, MOST_BYTES)?;
        Config::of(&json).map_err(|what| ForeignError {
            path: path.to_owned(),
            problem: ForeignProblem::Refused { what },
        })
    }

    /// Keys that are missing have Hugging Face's defaults.
    fn of(json: &Value) -> Result<Config, String> {
        if !json.is_object() {
            return Err("it is not a JSON object; is it a model's config.json?".to_owned());
        }
        check_kind(json)?;
        let dims = Dims {
            n_layer: size(json, "n_layer", 12)?,
            n_head: size(json, "n_head", 12)?,
            n_embd: size(json, "n_embd", 768)?,
            block_size: size(json, "n_positions", size(json, "n_ctx", 1024)?)?,
            vocab_size: size(json, "vocab_size", 50_257)?,
            bias: true,
        };
        let dims = dims.checked().map_err(|error| error.to_string())?;
        check_arithmetic(json, &dims)?;
        let name = json.get("activation_function").map_or(Some("gelu_new"), Value::as_str);
        let name = name.ok_or("activation_function is not a word")?;
        let known = GELUS.into_iter().find(|(theirs, _)| *theirs == name);
        let (_, gelu) = known.ok_or_else(|| {
            let known = GELUS.map(|(theirs, _)| theirs).join(", ");
            format!(
                "activation_function is '{}', but fitgpt computes only {known}: a model with \
                 another one cannot be used",
                shown(name)
            )
        })?;
        Ok(Config { dims, gelu, is_tied: flag(json, "tie_word_embeddings", true)? })
    }
}

/// Refuses other models by name.
fn check_kind(json: &Value) -> Result<(), String> {
    match json.get("model_type").and_then(Value::as_str) {
        Some("gpt2") => {}
        Some(other) => {
            return Err(format!(
                "model_type is '{}', but fitgpt reads only 'gpt2': name a GPT-2 model",
                shown(other)
            ));
        }
        None => {
            return Err("it has no model_type; fitgpt reads models of model_type 'gpt2'".to_owned());
        }
    }
    if json.get("quantization_config").is_some_and(|value| !value.is_null()) {
        return Err(
            "its weights are quantized (quantization_config): name the model with weights \
                    in float32, float16 or bfloat16"
                .to_owned(),
        );
    }
    Ok(())
}

/// Refuses what would compute something else.
fn check_arithmetic(json: &Value, dims: &Dims) -> Result<(), String> {
    let cannot = "fitgpt cannot compute this model";
    for (key, wanted) in SWITCHES {
        let found = flag(json, key, wanted)?;
        if found != wanted {
            return Err(format!("{key} is {found}, but only {wanted} is supported: {cannot}"));
        }
    }
    let inner = size(json, "n_inner", 4 * dims.n_embd)?;
    if inner != 4 * dims.n_embd {
        let wanted = 4 * dims.n_embd;
        return Err(format!(
            "n_inner is {inner}, but only 4 n_embd = {wanted} is supported: {cannot}"
        ));
    }
    let epsilon = json.get("layer_norm_epsilon").map_or(Some(NORM_EPSILON), Value::as_f64);
    match epsilon {
        Some(epsilon) if (epsilon - NORM_EPSILON).abs() < 1e-12 => Ok(()),
        Some(epsilon) => Err(format!(
            "layer_norm_epsilon is {epsilon:e}, but only {NORM_EPSILON:e} is supported: {cannot}"
        )),
        None => Err("layer_norm_epsilon is not a number".to_owned()),
    }
}

/// A size; the default if the key is missing or null.
fn size(json: &Value, key: &str, default: u64) -> Result<u64, String> {
    match json.get(key) {
        None | Some(Value::Null) => Ok(default),
        Some(value) => value.as_u64().ok_or_else(|| format!("{key} is not a size")),
    }
}

fn flag(json: &Value, key: &str, default: bool) -> Result<bool, String> {
    match json.get(key) {
        None | Some(Value::Null) => Ok(default),
        Some(value) => value.as_bool().ok_or_else(|| format!("{key} is neither true nor false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_are_those_of_hugging_face() {
        let config = Config::of(&json!({"model_type": "gpt2"})).unwrap();
        let dims = Dims {
            n_layer: 12,
            n_head: 12,
            n_embd: 768,
            block_size: 1024,
            vocab_size: 50_257,
            bias: true,
        };
        assert_eq!(config, Config { dims, gelu: "tanh", is_tied: true });
        let old = json!({"model_type": "gpt2", "n_ctx": 64, "n_inner": null,
                         "activation_function": "gelu", "tie_word_embeddings": false});
        let config = Config::of(&old).unwrap();
        assert_eq!((config.dims.block_size, config.gelu, config.is_tied), (64, "erf", false));
    }

    #[test]
    fn what_computes_something_else_is_refused_by_name() {
        for (key, value, want) in [
            ("model_type", json!("llama"), "model_type is 'llama', but fitgpt reads only 'gpt2'"),
            ("model_type", json!(null), "it has no model_type"),
            ("activation_function", json!("relu"), "activation_function is 'relu'"),
            ("activation_function", json!(7), "activation_function is not a word"),
            ("layer_norm_epsilon", json!(1e-6), "layer_norm_epsilon is 1e-6, but only 1e-5"),
            ("layer_norm_epsilon", json!("x"), "layer_norm_epsilon is not a number"),
            ("scale_attn_weights", json!(false), "scale_attn_weights is false, but only true"),
            ("scale_attn_by_inverse_layer_idx", json!(true), "is true, but only false"),
            ("reorder_and_upcast_attn", json!(true), "reorder_and_upcast_attn is true"),
            ("n_inner", json!(100), "n_inner is 100, but only 4 n_embd = 3072"),
            ("n_head", json!(7), "n_embd=768 cannot be divided by n_head=7"),
            ("n_layer", json!(-1), "n_layer is not a size"),
            ("n_embd", json!(u64::MAX), "n_embd=18446744073709551615: the largest"),
            ("tie_word_embeddings", json!("no"), "tie_word_embeddings is neither true nor false"),
            ("quantization_config", json!({}), "its weights are quantized"),
        ] {
            let mut json = json!({"model_type": "gpt2"});
            json[key] = value;
            let error = Config::of(&json).unwrap_err();
            assert!(error.contains(want), "{key}: {error}");
        }
    }
}
