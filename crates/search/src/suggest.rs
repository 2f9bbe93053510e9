//! What to change when nothing fits: the nearest settings that do, each with its costs and what it
//! means for training. Settings that do not change the mathematics come first, a smaller model
//! last.

use crate::machine::{Machine, gpu_format};
use crate::plan_for::{may_fit, plan_if_it_fits};
use crate::planned::Planned;
use model::Dims;
use plan::Dtype;
use plan::hardware::Hardware;
use spec::Value;
use spec::{
    Gpt2, GradCheckpoint, InitFrom, Offload, OptimizerState, Pretrained, RequestedDtype, Residual,
    RunSpec,
};

/// How many suggestions a refusal has at most.
const MOST: usize = 3;

/// How many smaller models are planned in full before the search gives up.
const SMALLER_TRIED: usize = 4;

/// The shortest context to suggest.
const SHORTEST: u64 = 128;

/// Settings that fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Suggestion {
    /// Keys with their values.
    pub settings: Vec<(&'static str, Value)>,
    /// Bytes of the device.
    pub device_bytes: u64,
    /// Bytes of the host's arena.
    pub host_bytes: u64,
    /// Tokens of an iteration.
    pub tokens_per_iteration: u64,
    /// Predicted speed, if the run trains.
    pub tokens_per_second: Option<f64>,
    /// What it means.
    pub note: String,
}

impl Suggestion {
    /// As the user types it after a command.
    pub fn arguments(&self) -> String {
        let typed = |(key, value): &(&str, Value)| format!("--{key}={}", value.plain());
        self.settings.iter().map(typed).collect::<Vec<_>>().join(" ")
    }
}

/// A change of a run that may make it fit.
struct Change {
    run: RunSpec,
    dims: Dims,
    settings: Vec<(&'static str, Value)>,
    /// What it means, once its plan is known.
    note: Box<dyn Fn(&Planned) -> String>,
}

/// The nearest settings that fit, with the speed that `rates` predict.
pub fn suggestions(
    run: &RunSpec,
    dims: Dims,
    machine: &Machine,
    rates: &Hardware,
) -> Vec<Suggestion> {
    let mut found = Vec::new();
    for candidate in candidates(run, dims, machine) {
        if found.len() + 1 < MOST {
            found.extend(suggestion(candidate, machine, rates));
        }
    }
    let smaller = smaller(run, dims, machine).into_iter().take(SMALLER_TRIED);
    found.extend(smaller.filter_map(|one| suggestion(one, machine, rates)).next());
    found
}

/// Only the nearest settings that fit.
pub fn first_suggestion(
    run: &RunSpec,
    dims: Dims,
    machine: &Machine,
    rates: &Hardware,
) -> Option<Suggestion> {
    let near = candidates(run, dims, machine).into_iter();
    let first = near.filter_map(|candidate| suggestion(candidate, machine, rates)).next();
    first.or_else(|| {
        let smaller = smaller(run, dims, machine).into_iter().take(SMALLER_TRIED);
        smaller.filter_map(|one| suggestion(one, machine, rates)).next()
    })
}

fn suggestion(candidate: Change, machine: &Machine, rates: &Hardware) -> Option<Suggestion> {
    let Change { run, dims, settings, note } = candidate;
    let compute = match machine.host {
        Some(_) => gpu_format(run.dtype),
        None => machine.compute,
    };
    // The rates are valid only for the format that was asked for.
    let has_rates = compute == machine.compute;
    let machine = &Machine { compute, ..machine.clone() };
    let planned = plan_if_it_fits(&run, dims, machine).ok()??;
    Some(Suggestion {
        settings,
        device_bytes: planned.device_bytes(machine),
        host_bytes: planned.plan.host_bytes.get(),
        tokens_per_iteration: run.tokens_per_iteration(),
        tokens_per_second: planned.predict(&run, rates).tokens_per_second.filter(|_| has_rates),
        note: note(&planned),
    })
}

fn text(word: &str) -> Value {
    Value::Str(word.to_string())
}

/// Changes that keep the model as it is, the smallest change first.
fn candidates(run: &RunSpec, dims: Dims, machine: &Machine) -> Vec<Change> {
    let mut all = Vec::new();
    let mut add = |run: RunSpec, settings: Vec<(&'static str, Value)>, note: &'static str| {
        all.push(Change { run, dims, settings, note: Box::new(move |_| note.to_string()) });
    };
    if run.grad_checkpoint == GradCheckpoint::Never {
        let run = RunSpec { grad_checkpoint: GradCheckpoint::Auto, ..run.clone() };
        let note = "recomputes activations where memory requires it; the results are the same";
        add(run, vec![("grad_checkpoint", text("auto"))], note);
    }
    if run.residual == Residual::Float32 && machine.compute != Dtype::F32 {
        let run = RunSpec { residual: Residual::Auto, ..run.clone() };
        add(run, vec![("residual", text("auto"))], "the residual stream in 16 bits, as llm.c does");
    }
    if run.dtype == RequestedDtype::Float32 && machine.host.is_some() {
        let run = RunSpec { dtype: RequestedDtype::Bfloat16, ..run.clone() };
        add(run, vec![("dtype", text("bfloat16"))], "activations in 16 bits, nanoGPT's default");
    }
    if run.offload == Offload::Optimizer && machine.host.is_some() {
        let here = RunSpec { offload: Offload::Never, ..run.clone() };
        add(here, vec![("offload", Value::Bool(false))], "the optimizer's state on the device");
    }
    let halves = RunSpec { optimizer_state: OptimizerState::Bfloat16, ..run.clone() };
    if run.optimizer_state == OptimizerState::Float32 {
        let note = "AdamW's moments in 16 bits, rounded stochastically: it trains as well, but \
                    is not bit-identical";
        add(halves.clone(), vec![("optimizer_state", text("bfloat16"))], note);
    }
    let on_device = matches!(run.offload, Offload::Never | Offload::Activations);
    if on_device && machine.host.is_some() {
        // Activations stay permitted where they were.
        let (offload, word) = match run.offload {
            Offload::Activations => (Offload::Auto, "auto"),
            _ => (Offload::Optimizer, "optimizer"),
        };
        let setting = ("offload", text(word));
        let moved = RunSpec { offload, ..run.clone() };
        all.push(Change { run: moved, dims, settings: vec![setting.clone()], note: moved_note() });
        if run.optimizer_state == OptimizerState::Float32 {
            let both = RunSpec { offload, ..halves };
            let settings = vec![("optimizer_state", text("bfloat16")), setting];
            all.push(Change { run: both, dims, settings, note: moved_note() });
        }
    }
    if run.optimizer_state == OptimizerState::Float32 {
        // Pairs of changes, for when one is not enough.
        let halves = RunSpec { optimizer_state: OptimizerState::Bfloat16, ..run.clone() };
        all.extend(shorter(run, dims));
        all.extend(shorter(&halves, dims).map(|mut pair| {
            pair.settings.insert(0, ("optimizer_state", text("bfloat16")));
            pair
        }));
    } else {
        all.extend(shorter(run, dims));
    }
    all
}

fn moved_note() -> Box<dyn Fn(&Planned) -> String> {
    Box::new(|planned| {
        let (host, cut) = (planned.plan.host_bytes, planned.cut());
        let has_activations = cut.as_ref().is_some_and(|cut| cut.layers_on_host() > 0);
        let has_state = cut.is_some_and(|cut| cut.state_options.offload);
        let copied = format!("in {host} of host memory; each update waits until state is copied");
        match (has_state, has_activations) {
            (true, true) => format!("the optimizer's state and some activations {copied}"),
            (false, true) => format!("some activations in {host} of host memory"),
            (true, false) => format!("the optimizer's state {copied}"),
            (false, false) => "nothing has to be offloaded then".to_string(),
        }
    })
}

/// Half the context and twice the sequences, so that an iteration has as many tokens.
fn shorter(run: &RunSpec, dims: Dims) -> Option<Change> {
    let block_size = run.block_size / 2;
    let batch_size = run.batch_size.checked_mul(2)?;
    if block_size < SHORTEST || run.eval_only {
        return None;
    }
    let changed = RunSpec {
        block_size,
        batch_size,
        eval_block_size: run.eval_block_size.min(block_size),
        ..run.clone()
    };
    let int = |number: u64| Value::Int(number as i64);
    Some(Change {
        run: changed,
        // An existing model keeps its positions, even if fewer are used.
        dims: match run.init_from {
            InitFrom::Resume => dims,
            InitFrom::Scratch | InitFrom::Pretrained(_) => Dims { block_size, ..dims },
        },
        settings: vec![("block_size", int(block_size)), ("batch_size", int(batch_size))],
        note: Box::new(move |_| {
            format!("contexts of {block_size} tokens; losses are not comparable with longer ones")
        }),
    })
}

/// Models with the same head size that may fit, the largest first: narrower ones, then also
/// shallower ones.
fn smaller(run: &RunSpec, dims: Dims, machine: &Machine) -> Vec<Change> {
    match &run.init_from {
        InitFrom::Scratch => {}
        InitFrom::Resume => return Vec::new(), // the size of an existing model is fixed
        InitFrom::Pretrained(named) => {
            return named.openai().map_or(Vec::new(), |name| smaller_gpt2(run, name, dims));
        }
    }
    let head = dims.n_embd / dims.n_head.max(1);
    let narrower = |heads: u64| Dims { n_head: heads, n_embd: heads * head, ..dims };
    let flatter = |layers: u64| Dims { n_layer: layers, ..narrower(dims.n_head.div_ceil(2)) };
    // Halve the width at most; below that, remove layers.
    let widths: Vec<Dims> = (dims.n_head.div_ceil(2)..dims.n_head).rev().map(narrower).collect();
    let depths: Vec<Dims> = (1..dims.n_layer).rev().map(flatter).collect();
    let narrowest = (1..dims.n_head.div_ceil(2)).rev();
    let narrow = narrowest.map(|heads| Dims { n_layer: 1, ..narrower(heads) }).collect();
    let sizes = [widths, depths, narrow].concat();
    let may_fit = |dims: &Dims| may_fit(run, *dims, machine).unwrap_or(false);
    let first = sizes.partition_point(|dims| !may_fit(dims));
    sizes[first..].iter().filter_map(|found| smaller_one(run, dims, *found)).collect()
}

/// OpenAI's smaller models, the largest first.
fn smaller_gpt2(run: &RunSpec, name: Gpt2, dims: Dims) -> Vec<Change> {
    let smaller = Gpt2::ALL.into_iter().rev().skip_while(move |other| *other != name).skip(1);
    let candidate = |other: Gpt2| {
        let init_from = InitFrom::Pretrained(Pretrained::of_openai(other));
        let run = RunSpec { init_from, ..run.clone() };
        let dims = Dims { block_size: dims.block_size, ..other.dims() };
        let parameters = run.architecture().reported_parameters(&dims).ok()? as f64 / 1e6;
        let settings = vec![("init_from", text(other.word()))];
        let note = format!("a smaller model: {parameters:.1}M parameters");
        Some(Change { run, dims, settings, note: Box::new(move |_| note.clone()) })
    };
    smaller.filter_map(candidate).collect()
}

fn smaller_one(run: &RunSpec, dims: Dims, found: Dims) -> Option<Change> {
    let parameters = run.architecture().reported_parameters(&found).ok()? as f64 / 1e6;
    let before = run.architecture().reported_parameters(&dims).ok()? as f64 / 1e6;
    let int = |number: u64| Value::Int(number as i64);
    let all = [
        ("n_layer", found.n_layer, dims.n_layer),
        ("n_head", found.n_head, dims.n_head),
        ("n_embd", found.n_embd, dims.n_embd),
    ];
    let changed = all.iter().filter(|(_, now, before)| now != before);
    Some(Change {
        run: run.clone(),
        dims: found,
        settings: changed.map(|(key, now, _)| (*key, int(*now))).collect(),
        note: Box::new(move |_| {
            format!("a smaller model: {parameters:.1}M parameters instead of {before:.1}M")
        }),
    })
}
