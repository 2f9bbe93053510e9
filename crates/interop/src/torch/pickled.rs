//! The pickle of a checkpoint as nanoGPT writes it, and the storages that it refers to. It has only
//! tensors and plain values: PyTorch loads it with `weights_only`.

use super::names::{Element, Name, index_of, listed};
use super::write::TorchRun;
use checkpoint::{Dtype, SaveProblem, TensorInfo};
use model::Param;
use pickle::{Call, Value};
use serde_json::Value as Json;
use std::collections::HashMap;

/// What a storage contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A tensor of the source, by its index.
    Tensor(usize),
    /// How often a parameter was updated, as an f32. Each has its own: PyTorch counts in place.
    Step,
}

/// A pickle, and its storages in the order of their names: `data/0` and so on.
pub struct Pickled {
    pub pickle: Vec<u8>,
    pub storages: Vec<Storage>,
}

/// The loss to beat before the first evaluation, as in nanoGPT.
const NO_LOSS: f64 = 1e9;

/// What nanoGPT's checkpoint does not have: how far the run is in tokens and in time.
pub const TRAINED_TOKENS: &str = "tokens";
/// See [`TRAINED_TOKENS`].
pub const TRAINED_SECONDS: &str = "seconds";

/// The pickle of a run.
pub fn of(
    run: &TorchRun,
    params: &[Param],
    tensors: &[TensorInfo],
) -> Result<Pickled, SaveProblem> {
    let places = tensors.iter().enumerate().map(|(at, tensor)| (tensor.name.as_str(), at));
    let mut parts = Parts { tensors, places: places.collect(), storages: Vec::new() };
    let mut model = Vec::new();
    let mut head = None;
    for param in params {
        let tensor = parts.tensor("weights", param)?;
        head = head.or_else(|| Some(tensor.clone()).filter(|_| param.name == "wte.weight"));
        model.push((text(&format!("transformer.{}", param.name)), tensor));
    }
    model.extend(head.map(|head| (text("lm_head.weight"), head)));
    let dims = run.dims;
    let arguments = [
        ("n_layer", int(dims.n_layer)),
        ("n_head", int(dims.n_head)),
        ("n_embd", int(dims.n_embd)),
        ("block_size", int(dims.block_size)),
        ("bias", Value::Bool(dims.bias)),
        ("vocab_size", int(dims.vocab_size)),
        ("dropout", Value::Float(run.dropout)),
    ];
    let loss = run.best_val_loss;
    let loss = if loss.is_finite() { loss } else { NO_LOSS };
    let mut saved = vec![(text("model"), Value::Dict(model))];
    if run.optimizer.is_some() {
        saved.push((text("optimizer"), optimizer(run, params, &mut parts)?));
    }
    saved.extend([
        (text("model_args"), dict(arguments)),
        (text("iter_num"), int(run.iteration)),
        (text("best_val_loss"), Value::Float(loss)),
        (text("config"), config(run)),
    ]);
    saved.extend(run.tokens.map(|tokens| (text(TRAINED_TOKENS), int(tokens))));
    saved.extend(run.seconds.map(|seconds| (text(TRAINED_SECONDS), Value::Float(seconds))));
    let pickle = pickle::write_calls(&Value::Dict(saved), &listed());
    Ok(Pickled { pickle, storages: parts.storages })
}

/// The storages found so far.
struct Parts<'a> {
    tensors: &'a [TensorInfo],
    places: HashMap<&'a str, usize>,
    storages: Vec<Storage>,
}

impl Parts<'_> {
    /// A parameter's weight or moment.
    fn tensor(&mut self, kind: &str, param: &Param) -> Result<Value, SaveProblem> {
        let name = format!("{kind}/{}", param.name);
        let bad = |why| SaveProblem::BadTensor { name: name.clone(), why };
        let at = *self.places.get(name.as_str()).ok_or_else(|| bad("is missing"))?;
        let tensor = &self.tensors[at];
        let element = match tensor.dtype {
            Dtype::F32 => Element::F32,
            Dtype::F16 => Element::F16,
            Dtype::BF16 => Element::BF16,
            _ => return Err(bad("is not of floats")),
        };
        if tensor.shape != param.shape.dims() {
            return Err(bad("has another shape than the model's sizes need"));
        }
        let shape = tensor.shape.clone();
        Ok(self.add(Storage::Tensor(at), element, &shape))
    }

    /// A contiguous tensor in a new storage.
    fn add(&mut self, storage: Storage, element: Element, shape: &[u64]) -> Value {
        let key = self.storages.len().to_string();
        self.storages.push(storage);
        let mut strides: Vec<u64> = Vec::new();
        let mut elements = 1;
        for extent in shape.iter().rev() {
            strides.push(elements);
            elements *= extent;
        }
        strides.reverse();
        let numbers = |all: &[u64]| Value::Tuple(all.iter().map(|&number| int(number)).collect());
        let id = vec![
            text("storage"),
            Value::Global(index_of(Name::Storage(element))),
            text(&key),
            text("cpu"),
            int(elements),
        ];
        let hooks =
            Call { function: index_of(Name::OrderedDict), arguments: Vec::new(), state: None };
        let arguments = vec![
            Value::Persistent(Box::new(Value::Tuple(id))),
            Value::Int(0),
            numbers(shape),
            numbers(&strides),
            Value::Bool(false),
            Value::Call(Box::new(hooks)),
        ];
        Value::Call(Box::new(Call { function: index_of(Name::Tensor), arguments, state: None }))
    }
}

/// AdamW's state as nanoGPT groups it: parameters with weight decay first.
fn optimizer(run: &TorchRun, params: &[Param], parts: &mut Parts) -> Result<Value, SaveProblem> {
    let Some(settings) = &run.optimizer else {
        return Ok(Value::None);
    };
    let decayed = params.iter().filter(|param| param.decays());
    let count = decayed.clone().count() as u64;
    let order = decayed.chain(params.iter().filter(|param| !param.decays()));
    let mut state = Vec::new();
    for (index, param) in order.enumerate() {
        let entry = [
            ("step", parts.add(Storage::Step, Element::F32, &[])),
            ("exp_avg", parts.tensor("m", param)?),
            ("exp_avg_sq", parts.tensor("v", param)?),
        ];
        state.push((int(index as u64), dict(entry)));
    }
    let group = |weight_decay: f64, first: u64, end: u64| {
        dict([
            ("lr", Value::Float(settings.learning_rate)),
            ("betas", Value::Tuple(settings.betas.map(Value::Float).to_vec())),
            ("eps", Value::Float(super::nanogpt::EPS)),
            ("weight_decay", Value::Float(weight_decay)),
            ("amsgrad", Value::Bool(false)),
            ("maximize", Value::Bool(false)),
            ("foreach", Value::None),
            ("capturable", Value::Bool(false)),
            ("differentiable", Value::Bool(false)),
            ("fused", if settings.is_fused { Value::Bool(true) } else { Value::None }),
            ("decoupled_weight_decay", Value::Bool(true)),
            ("params", Value::List((first..end).map(int).collect())),
        ])
    };
    let groups =
        vec![group(settings.weight_decay, 0, count), group(0.0, count, params.len() as u64)];
    Ok(dict([("state", Value::Dict(state)), ("param_groups", Value::List(groups))]))
}

/// The settings. Values that are not plain are left out.
fn config(run: &TorchRun) -> Value {
    let entry = |(key, value): (&String, &Json)| {
        let value = match value {
            Json::Bool(flag) => Value::Bool(*flag),
            Json::String(text) => Value::Str(text.clone()),
            Json::Number(number) => match number.as_i64() {
                Some(number) => Value::Int(number),
                None => Value::Float(number.as_f64()?),
            },
            _ => return None,
        };
        Some((text(key), value))
    };
    Value::Dict(run.config.iter().filter_map(entry).collect())
}

fn text(text: &str) -> Value {
    Value::Str(text.to_owned())
}

fn int(number: u64) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

fn dict<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Dict(entries.into_iter().map(|(key, value)| (text(key), value)).collect())
}
