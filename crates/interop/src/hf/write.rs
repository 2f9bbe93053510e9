//! Writes a folder that `AutoModelForCausalLM` and `AutoTokenizer` load.

use super::{CONFIG, shards, tokenizer};
use crate::export::{ExportError, ExportModel, Meter, Precision};
use crate::new_folder::{self, Existing, NewFolder};
use crate::weights::{Order, Weights};
use checkpoint::{SaveError, TensorInfo, safetensors};
use model::{ModuleKind, NORM_EPSILON, Param, ParamKind};
use plan::ops::GeluKind;
use serde_json::{Value, json};
use std::path::Path;

/// How text is generated; `transformers` reads it beside the model.
const GENERATION: &str = "generation_config.json";

/// Refuses the name of a folder that exists already, unless it may be replaced: then it may hold
/// nothing but the files of a model.
///
/// # Errors
///
/// When it is to be kept, or holds anything else.
pub fn check_folder(path: &Path, existing: Existing) -> Result<(), ExportError> {
    new_folder::check_free(path, existing, &names())
}

/// The names of all files that may be written.
fn names() -> Vec<&'static str> {
    [&[CONFIG, GENERATION, shards::SINGLE][..], &tokenizer::NAMES].concat()
}

/// Writes the model as a folder; returns the bytes of its files. `report` gets the bytes written so
/// far and in all, and returns whether to go on.
///
/// # Errors
///
/// When the model cannot be read, the folder not be written, or a weight is beyond the largest
/// number of `precision`.
pub fn write(
    path: &Path,
    model: &ExportModel,
    precision: Precision,
    existing: Existing,
    report: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<u64, ExportError> {
    let mut weights = Weights::new(model)?;
    let infos: Vec<TensorInfo> = weights.params().map(|param| info(param, precision)).collect();
    let orders: Vec<Order> = weights.params().map(order).collect();
    let start = safetensors::file_start(&[("format", "pt")], &infos)
        .map_err(|problem| SaveError { path: path.join(shards::SINGLE), problem })?;
    let mut small = vec![
        (CONFIG, format!("{:#}\n", config(model, precision))),
        (GENERATION, format!("{:#}\n", generation_config(model))),
    ];
    let block_size = model.dims.block_size;
    small.extend(model.tokenizer.into_iter().flat_map(|found| tokenizer::files(found, block_size)));
    let of_weights =
        infos.iter().filter_map(TensorInfo::bytes).fold(start.len() as u64, |a, b| a + b);
    let total = small.iter().fold(of_weights, |sum, (_, text)| sum + text.len() as u64);
    let mut meter = Meter::start(total, report)?;
    let mut folder = NewFolder::create(path, existing, &names(), total)?;
    for (name, text) in small {
        folder.file(name, |append| append(text.as_bytes()))?;
        meter.add(text.len())?;
    }
    folder.file(shards::SINGLE, |append| {
        append(&start)?;
        meter.add(start.len())?;
        for (position, order) in orders.into_iter().enumerate() {
            weights.load(position)?.write(order, precision, &mut |block| {
                append(block)?;
                meter.add(block.len())
            })?;
        }
        Ok(())
    })?;
    folder.finish()
}

/// The tensor as it is in the file.
fn info(param: &Param, precision: Precision) -> TensorInfo {
    let mut shape = param.shape.dims().to_vec();
    if order(param) == Order::Columns {
        shape.reverse();
    }
    TensorInfo::new(format!("transformer.{}", param.name), precision.dtype(), &shape)
}

/// Hugging Face's Conv1D has inputs × outputs.
fn order(param: &Param) -> Order {
    match (param.module.kind, param.kind) {
        (ModuleKind::Linear, ParamKind::Weight) => Order::Columns,
        _ => Order::Rows,
    }
}

fn config(model: &ExportModel, precision: Precision) -> Value {
    let end = model.tokenizer.and_then(tokenizer::end_of_text);
    let dims = &model.dims;
    json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": match model.gelu {
            GeluKind::Erf => "gelu",
            GeluKind::Tanh => "gelu_new",
        },
        "vocab_size": dims.vocab_size,
        "n_positions": dims.block_size,
        "n_ctx": dims.block_size,
        "n_embd": dims.n_embd,
        "n_layer": dims.n_layer,
        "n_head": dims.n_head,
        "n_inner": null,
        "layer_norm_epsilon": NORM_EPSILON,
        "scale_attn_weights": true,
        "scale_attn_by_inverse_layer_idx": false,
        "reorder_and_upcast_attn": false,
        "tie_word_embeddings": true,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "initializer_range": 0.02,
        "bos_token_id": end,
        "eos_token_id": end,
        "torch_dtype": precision.name(),
        "use_cache": true,
    })
}

fn generation_config(model: &ExportModel) -> Value {
    // Longer texts than the context would be an error.
    let most = model.dims.block_size;
    match model.tokenizer.and_then(tokenizer::end_of_text) {
        Some(end) => json!({"bos_token_id": end, "eos_token_id": end, "pad_token_id": end,
                            "max_length": most}),
        None => json!({"max_length": most}),
    }
}
