//! What nanoGPT's checkpoint means: the model's weights under PyTorch's names, the optimizer's
//! state by number (first all parameters with weight decay, then the others), sizes, progress and
//! settings.

use super::archive::Archive;
use super::names::{Element, listed};
use super::pickled::{TRAINED_SECONDS, TRAINED_TOKENS};
use super::source::{Content, TorchSource};
use super::view::{View, natural, number};
use crate::error::ForeignProblem;
use crate::foreign::ForeignModel;
use crate::shown;
use model::{Architecture, Dims, Gpt2, MOST_LAYERS, Param};
use pickle::{Limits, Value};
use plan::StepState;
use plan::ops::GeluKind;
use serde_json::{Map, Value as Json};
use std::path::Path;

/// What `torch.compile` and distributed training put before a name.
const PREFIXES: [&str; 2] = ["_orig_mod.", "module."];

/// What nanoGPT's model puts before all names but that of the head.
const TRANSFORMER: &str = "transformer.";
const HEAD: &str = "lm_head.weight";
/// The parameter that the head shares.
const TOKENS: &str = "wte.weight";

/// Masks that older versions kept in their checkpoints.
const MASKS: [&str; 2] = [".attn.bias", ".attn.masked_bias"];

/// The value that nanoGPT never changes.
pub const EPS: f64 = 1e-8;

fn damaged(what: impl Into<String>) -> ForeignProblem {
    ForeignProblem::Damaged { what: what.into() }
}

fn refused(what: impl Into<String>) -> ForeignProblem {
    ForeignProblem::Refused { what: what.into() }
}

/// Reads everything except the tensors' content.
pub fn read(path: &Path, archive: Archive) -> Result<ForeignModel, ForeignProblem> {
    if archive.content("byteorder", 16)?.is_some_and(|order| order != b"little") {
        return Err(refused("it was written on a big-endian machine: save it again on this one"));
    }
    let limits = limits(archive.bytes, archive.entry("data.pkl").map_or(0, |entry| entry.bytes));
    let pickled = archive.content("data.pkl", limits.input_bytes as u64)?.unwrap_or_default();
    let saved = pickle::parse_calls(&pickled, &limits, &listed()).map_err(|error| {
        let entry = archive.full_name("data.pkl");
        refused(format!("its entry {}: {error}", shown(&entry)))
    })?;
    drop(pickled);
    let unchecked = archive.is_unchecked.then(|| {
        format!(
            "{} was saved without CRC-32 checksums (torch.serialization.set_crc32_options): its \
             structure and all sizes were checked, its contents cannot be",
            path.display()
        )
    });
    let dims = dims(&saved)?;
    let params = Architecture::Gpt2(Gpt2 { gelu: GeluKind::Erf })
        .parameters(&dims)
        .map_err(|error| refused(format!("its sizes: {error}")))?;
    let mut tensors = TorchSource::new(path.to_owned(), archive);
    add_weights(&mut tensors, &saved, &params)?;
    let optimizer = add_moments(&mut tensors, &saved, &params)?;
    let numbered = |key: &str| match saved.get(key) {
        Some(value) => number(value, tensors.archive(), key),
        None => Ok(None),
    };
    let iteration = numbered("iter_num")?.unwrap_or(0.0);
    if !(0.0..=9e15).contains(&iteration) {
        return Err(damaged(format!("iter_num is {iteration}")));
    }
    let best_val_loss = numbered("best_val_loss")?;
    let tokens = saved.get(TRAINED_TOKENS).and_then(natural);
    let seconds = match saved.get(TRAINED_SECONDS) {
        Some(Value::Float(seconds)) if *seconds >= 0.0 && seconds.is_finite() => Some(*seconds),
        _ => None,
    };
    let config = saved.get("config").map(json_entries).unwrap_or_default();
    let gelu = match config.get("gelu").and_then(Json::as_str) {
        Some("tanh") => "tanh",
        _ => "erf",
    };
    Ok(ForeignModel {
        path: path.to_owned(),
        tensors: Box::new(tensors),
        dims,
        iteration: iteration as u64,
        best_val_loss,
        tokens,
        seconds,
        config,
        has_moments: optimizer.is_some(),
        optimizer: optimizer.unwrap_or_default(),
        gelu: Some(gelu),
        tokenizer: None,
        no_tokenizer: None,
        notices: unchecked.into_iter().collect(),
    })
}

/// Parameters of a layer with biases.
const LAYER_PARAMETERS: usize = 12;

/// Values of a parameter: its tensor, both moments and its step, each with its storage, sizes,
/// strides and names. That is 75, and 90 with those that the pickle makes on the way.
const PARAMETER_VALUES: usize = 100;

/// Values of the largest model.
const MOST_VALUES: usize = MOST_LAYERS as usize * LAYER_PARAMETERS * PARAMETER_VALUES;

/// Memory that a reader may take for a file: so many times its size, and this (`docs/limits.md`).
const PER_BYTE: u64 = 4;
const FIXED: u64 = 64 << 20;
/// The part of it that is not for the pickle.
const OTHERS: u64 = 8 << 20;

/// The limits on the pickle of a file: enough for the largest model, but no more memory than a
/// reader may take. The pickle itself and its texts are in memory, too.
fn limits(file_bytes: u64, pickle_bytes: u64) -> Limits {
    let memory = file_bytes.saturating_mul(PER_BYTE).saturating_add(FIXED - OTHERS);
    let memory = memory.saturating_sub(pickle_bytes.saturating_mul(2));
    let values = usize::try_from(memory / Limits::VALUE_BYTES).unwrap_or(MOST_VALUES);
    Limits { values: values.min(MOST_VALUES), ..Limits::default() }
}

/// The model's sizes.
fn dims(saved: &Value) -> Result<Dims, ForeignProblem> {
    let Some(arguments) = saved.get("model_args").filter(|_| saved.get("model").is_some()) else {
        let keys = saved.as_dict().unwrap_or_default().iter().filter_map(|(key, _)| key.as_str());
        let keys: Vec<String> = keys.take(6).map(shown).collect();
        return Err(refused(format!(
            "this is not nanoGPT's checkpoint: that is a dict with model and model_args, this is a \
             {} with {}; give the ckpt.pt that train.py wrote",
            saved.type_name(),
            if keys.is_empty() { "neither".to_owned() } else { keys.join(", ") }
        )));
    };
    let size = |key: &str| {
        let found = arguments.get(key).and_then(natural);
        found.ok_or_else(|| damaged(format!("its model_args have no {key}")))
    };
    let dims = Dims {
        n_layer: size("n_layer")?,
        n_head: size("n_head")?,
        n_embd: size("n_embd")?,
        block_size: size("block_size")?,
        vocab_size: size("vocab_size")?,
        bias: match arguments.get("bias") {
            Some(Value::Bool(bias)) => *bias,
            // Files from before there was such an argument: every layer had a bias.
            None => true,
            Some(_) => return Err(damaged("its model_args have no bias")),
        },
    };
    dims.checked().map_err(|error| refused(format!("its model_args: {error}")))
}

/// The name without what compiling and nanoGPT's modules put before it.
fn short(name: &str) -> &str {
    let mut name = name;
    while let Some(rest) = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)) {
        name = rest;
    }
    name.strip_prefix(TRANSFORMER).unwrap_or(name)
}

/// Adds the weights; every tensor of the file must be one of the model's, and the other way round.
fn add_weights(
    tensors: &mut TorchSource,
    saved: &Value,
    params: &[Param],
) -> Result<(), ForeignProblem> {
    let model = saved.get("model").and_then(Value::as_dict);
    let model = model.ok_or_else(|| damaged("its model is not a dict"))?;
    let mut views: Vec<Option<View>> = params.iter().map(|_| None).collect();
    let places: std::collections::HashMap<&str, usize> =
        params.iter().enumerate().map(|(index, param)| (param.name.as_str(), index)).collect();
    let mut head = None;
    for (name, value) in model {
        let name = name.as_str().ok_or_else(|| damaged("a tensor's name is no string"))?;
        let view = || {
            let view = View::of(value, tensors.archive(), &shown(name))?;
            view.ok_or_else(|| damaged(format!("{} is not a tensor", shown(name))))
        };
        match (short(name), places.get(short(name))) {
            (_, Some(&index)) => views[index] = Some(view()?),
            (HEAD, None) => head = Some(view()?),
            (other, None) if MASKS.iter().any(|mask| other.ends_with(mask)) => {}
            (_, None) => {
                let name = shown(name);
                return Err(refused(format!(
                    "it has a tensor {name}, which a GPT-2 of its sizes lacks: this is another \
                     model"
                )));
            }
        }
    }
    for (param, view) in params.iter().zip(views) {
        let name = &param.name;
        let view = view.ok_or_else(|| damaged(format!("its model has no {name}")))?;
        check_shape(&view, param, name)?;
        let content = match head.take_if(|_| name == TOKENS) {
            // nanoGPT loads the head last, into the same matrix.
            Some(head) if !head.is_same(&view) => {
                check_shape(&head, param, HEAD)?;
                Content::View(head, Some(view))
            }
            _ => Content::View(view, None),
        };
        tensors.add(format!("weights/{name}"), content);
    }
    Ok(())
}

fn check_shape(view: &View, param: &Param, name: &str) -> Result<(), ForeignProblem> {
    let is_float =
        matches!(view.element, Element::F64 | Element::F32 | Element::F16 | Element::BF16);
    if view.shape == param.shape.dims() && is_float {
        return Ok(());
    }
    let (found, wanted) = (&view.shape, param.shape.dims());
    Err(damaged(format!(
        "{name} is {:?} {found:?}, but its model_args say floats {wanted:?}",
        view.element
    )))
}

/// Adds the moments and the step state. Returns the settings that come with them; none if the file
/// has no moments.
fn add_moments(
    tensors: &mut TorchSource,
    saved: &Value,
    params: &[Param],
) -> Result<Option<Map<String, Json>>, ForeignProblem> {
    let Some(optimizer) = saved.get("optimizer") else {
        return Ok(None);
    };
    let entries = optimizer.get("state").and_then(Value::as_dict).unwrap_or_default();
    if entries.is_empty() {
        return Ok(None);
    }
    let settings = group_settings(optimizer, params)?;
    let by_number: std::collections::HashMap<i64, &Value> =
        entries.iter().filter_map(|(key, value)| Some((key.as_int()?, value))).collect();
    let decayed = params.iter().filter(|param| param.decays());
    let order = decayed.chain(params.iter().filter(|param| !param.decays()));
    let mut steps = None;
    for (index, param) in order.enumerate() {
        let name = &param.name;
        let state = by_number.get(&(index as i64)).copied();
        let state = state.ok_or_else(|| damaged(format!("its optimizer has no {name}")))?;
        for (kind, key) in [("m", "exp_avg"), ("v", "exp_avg_sq")] {
            let what = format!("{key} of {name}");
            let view = match state.get(key) {
                Some(value) => View::of(value, tensors.archive(), &what)?,
                None => None,
            };
            let view = view.ok_or_else(|| damaged(format!("its optimizer has no {what}")))?;
            check_shape(&view, param, &what)?;
            tensors.add(format!("{kind}/{name}"), Content::View(view, None));
        }
        let step = match state.get("step") {
            Some(step) => number(step, tensors.archive(), "step")?,
            None => None,
        };
        let step = step.filter(|step| (0.0..=9e15).contains(step));
        let step = step.ok_or_else(|| damaged(format!("its optimizer has no step of {name}")))?;
        if *steps.get_or_insert(step) != step {
            return Err(refused("its parameters were updated differently often: not nanoGPT's"));
        }
    }
    let updates = steps.unwrap_or(0.0) as u64;
    let state = StepState { updates, ..StepState::initial(1.0) };
    tensors.add("state".to_owned(), Content::Words(state.to_words().to_vec()));
    Ok(Some(settings))
}

/// The settings of the optimizer's two groups. What this program has no key for must be as nanoGPT
/// has it.
fn group_settings(
    optimizer: &Value,
    params: &[Param],
) -> Result<Map<String, Json>, ForeignProblem> {
    let not_two = || refused("its optimizer does not have nanoGPT's two groups of parameters");
    let groups = match optimizer.get("param_groups") {
        Some(Value::List(groups)) => groups,
        _ => return Err(damaged("its optimizer has no param_groups")),
    };
    let [decayed, others] = &groups[..] else {
        return Err(not_two());
    };
    let numbers = |group: &Value| match group.get("params") {
        Some(Value::List(numbers)) => numbers.iter().map(natural).collect::<Option<Vec<u64>>>(),
        _ => None,
    };
    let count = params.iter().filter(|param| param.decays()).count() as u64;
    let all = (numbers(decayed), numbers(others));
    if all != (Some((0..count).collect()), Some((count..params.len() as u64).collect())) {
        return Err(not_two());
    }
    for key in ["amsgrad", "maximize"] {
        if groups.iter().any(|group| group.get(key) == Some(&Value::Bool(true))) {
            return Err(refused(format!("its optimizer has {key}, which nanoGPT does not use")));
        }
    }
    if groups.iter().any(|group| group.get("eps").and_then(float) != Some(EPS)) {
        return Err(refused(format!("its optimizer has another eps than nanoGPT's {EPS:e}")));
    }
    if others.get("weight_decay").and_then(float) != Some(0.0) {
        return Err(refused("its optimizer decays biases and norms, which nanoGPT's does not"));
    }
    let betas = match decayed.get("betas") {
        Some(Value::Tuple(betas) | Value::List(betas)) => betas.iter().map(float).collect(),
        _ => Vec::new(),
    };
    let values = [
        ("weight_decay", decayed.get("weight_decay").and_then(float)),
        ("beta1", betas.first().copied().flatten()),
        ("beta2", betas.get(1).copied().flatten()),
    ];
    let found = values.map(|(key, value)| {
        let value = value.and_then(serde_json::Number::from_f64);
        let value = value.ok_or_else(|| damaged(format!("its optimizer has no {key}")))?;
        Ok((key.to_owned(), Json::Number(value)))
    });
    found.into_iter().collect()
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Float(number) => Some(*number),
        Value::Int(number) => Some(*number as f64),
        _ => None,
    }
}

/// The entries of a dict that are plain settings.
fn json_entries(value: &Value) -> Map<String, Json> {
    let entry = |(key, value): &(Value, Value)| {
        let value = match value {
            Value::Bool(flag) => Json::from(*flag),
            Value::Int(number) => Json::from(*number),
            Value::Float(number) => Json::from(*number),
            Value::Str(text) => Json::from(text.as_str()),
            _ => return None,
        };
        Some((key.as_str()?.to_owned(), value))
    };
    value.as_dict().unwrap_or_default().iter().filter_map(entry).collect()
}
