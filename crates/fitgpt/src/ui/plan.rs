//! A plan for the page: settings of an address in, one document out, within the time of a mouse
//! move. Only keys of a table are accepted, and none of them names a file.

use super::here::Here;
use crate::invocation::program;
use crate::plan_report::{PlanReport, document, sentence};
use crate::planning::{self, host_memory};
use ::page::{Query, Refused};
use ::train::TrainError;
use doctor::fixes::device_bytes;
use doctor::recovered::RecoveredRun;
use model::{Dims, GPT2_ROWS};
use plan::hardware::{CARDS, Card, Hardware};
use plan::report::Bill;
use search::{Machine, SearchError, plan_for, suggestions};
use serde_json::{Map, Value, json};
use spec::shell::quoted;
use spec::{Command, Environment, Key, RunSpec, Settings, World, resolve};

/// The word for this machine instead of a card.
const HERE: &str = "here";

/// Keys that an address may set, with the largest value of a number: beyond, planning would take
/// longer than a mouse move.
const SETTABLE: [(&str, Option<u64>); 19] = [
    ("n_layer", Some(192)),
    ("n_head", Some(1024)),
    ("n_embd", Some(32_768)),
    ("block_size", Some(1 << 20)),
    ("batch_size", Some(4096)),
    ("gradient_accumulation_steps", Some(4096)),
    ("dropout", None),
    ("bias", None),
    ("dtype", None),
    ("grad_checkpoint", None),
    ("optimizer_state", None),
    ("offload", None),
    ("residual", None),
    ("vram", None),
    ("max_iters", None),
    ("eval_interval", None),
    ("eval_iters", None),
    ("compile", None),
    ("dataset", None),
];

/// Data sets that an address may name: their vocabularies are known without reading a file.
const DATA_SETS: [&str; 5] =
    ["openwebtext", "shakespeare_char", "shakespeare", "fineweb-edu", "builtin"];

/// Most sequences of an iteration.
const MOST_SEQUENCES: u64 = 65_536;

/// What can be chosen.
pub fn choices() -> Value {
    let card = |card: &Card| {
        json!({ "name": card.name, "memory_bytes": card.hardware(false).memory.get(),
                "supported": card.is_supported() })
    };
    let defaults = SETTABLE.iter().filter_map(|(name, most)| {
        let key = Key::find(name)?;
        let default = document::plain(&key.default_for(Command::Train));
        let words = key.values.words();
        let about = key.meaning_for(Command::Train);
        let row = json!({ "default": default, "words": words, "most": most, "about": about });
        Some(((*name).to_string(), row))
    });
    json!({ "cards": CARDS.iter().map(card).collect::<Vec<_>>(), "data_sets": DATA_SETS,
            "keys": Map::from_iter(defaults) })
}

/// A run and its machine, from an address.
pub struct PagePlan {
    pub run: RunSpec,
    pub dims: Dims,
    pub machine: Machine,
    /// The rates for predictions, if they are known.
    rates: Option<Hardware>,
    card: Option<&'static Card>,
    /// The keys that were set, as arguments.
    arguments: Vec<String>,
    wants_suggestions: bool,
}

impl PagePlan {
    /// Reads an address.
    pub fn new(query: &Query, here: &Here) -> Result<PagePlan, Refused> {
        let arguments = arguments_of(query)?;
        let gpu = ::page::get(query, "gpu");
        let card = match gpu.unwrap_or(HERE) {
            HERE => None,
            name => Some(planning::find_gpu(name).map_err(|error| Refused(error.to_string()))?),
        };
        let on_gpu = card.is_some() || here.has_gpu();
        let (run, dims) = resolved(&arguments, on_gpu)?;
        let (machine, rates) = match card {
            Some(card) => {
                let machine = planning::gpu_machine(Some(card), &run);
                let machine = machine.map_err(|error| Refused(error.to_string()))?;
                let rates = card.is_supported().then(|| machine.hardware.clone());
                (machine, rates)
            }
            None => here.machine(&run).map_err(Refused)?,
        };
        let wants_suggestions = ::page::get(query, "suggest").is_some();
        Ok(PagePlan { run, dims, machine, rates, card, arguments, wants_suggestions })
    }

    /// The plan with everything that is reported about it.
    pub fn report(&self) -> Result<PlanReport, Refused> {
        let planned = plan_for(&self.run, self.dims, &self.machine);
        let planned = planned.map_err(|error| Refused(TrainError::from(error).to_string()))?;
        Ok(self.report_of(planned))
    }

    fn report_of(&self, planned: search::Planned) -> PlanReport {
        let PagePlan { run, dims, machine, .. } = self;
        let prediction = self.rates.as_ref().map(|rates| planned.predict(run, rates));
        let basis = match &self.rates {
            Some(rates) if !rates.times.is_empty() => planning::STEP_TIMES,
            Some(_) if self.card.is_none() && machine.host.is_none() => planning::QUICK,
            _ => planning::TABLE,
        };
        let (bill, host) = (Bill::new(&planned.plan), host_memory(run, &planned, machine));
        let rates = self.rates.clone().unwrap_or_else(|| machine.hardware.clone());
        let (run, machine, dims, fleet) = (run.clone(), machine.clone(), *dims, None);
        PlanReport { run, dims, machine, planned, bill, prediction, basis, rates, fleet, host }
    }

    /// One document, whether it fits or not.
    pub fn document(&self) -> Result<Value, Refused> {
        let PagePlan { run, dims, machine, .. } = self;
        let named = self.rates.is_some();
        let (mut found, text) = match plan_for(run, *dims, machine) {
            Ok(planned) => {
                let report = self.report_of(planned);
                (document::of(&report), Some(sentence::of(&report)))
            }
            Err(SearchError::DoesNotFit(mut refusal)) => {
                if self.wants_suggestions {
                    refusal.suggestions = suggestions(run, *dims, machine, &machine.hardware);
                }
                (document::of_refusal(run, machine, &refusal, named), None)
            }
            Err(error) => (document::of_error(run, machine, &error.to_string()), None),
        };
        let parameters = run.architecture().reported_parameters(dims).ok();
        let more = json!({
            "sentence": text,
            "parameters": parameters,
            "card_bytes": machine.hardware.memory.get(),
            "supported": self.card.is_none_or(Card::is_supported),
            "nanogpt_bytes": self.nanogpt_bytes(),
            "config": self.config(),
            "command": self.command(),
            "settings": self.settings(),
        });
        if let (Value::Object(found), Value::Object(more)) = (&mut found, more) {
            found.extend(more);
        }
        Ok(found)
    }

    /// Bytes that nanoGPT needs in PyTorch, by the doctor's model.
    fn nanogpt_bytes(&self) -> Option<u64> {
        let card = self.card.map(|card| card.name);
        let recovered = without_files(|world| {
            let characters = data::known::characters;
            RecoveredRun::recover(None, &self.arguments, world, card, characters)
        });
        let recovered = recovered.ok().flatten()?;
        device_bytes(&recovered.torch).ok()
    }

    /// Keys and values that were set.
    fn settings(&self) -> Value {
        let pair = |argument: &String| {
            let (key, value) = argument.strip_prefix("--")?.split_once('=')?;
            Some((key.to_string(), json!(value)))
        };
        Value::Object(self.arguments.iter().filter_map(pair).collect())
    }

    /// The settings as a nanoGPT config.
    fn config(&self) -> String {
        let mut text = format!("# planned for {}\n", self.machine.hardware.name);
        for argument in &self.arguments {
            let Some((key, value)) = argument.strip_prefix("--").and_then(|a| a.split_once('='))
            else {
                continue;
            };
            let Some(Ok(value)) = Key::find(key).map(|key| key.accept_text(value)) else {
                continue;
            };
            text += &format!("{key} = {}\n", python(&value));
        }
        text
    }

    fn command(&self) -> String {
        let arguments: Vec<String> = self.arguments.iter().map(|one| quoted(one)).collect();
        format!("{} train {}", program(), arguments.join(" "))
    }
}

fn python(value: &spec::Value) -> String {
    match value {
        spec::Value::Bool(true) => "True".to_string(),
        spec::Value::Bool(false) => "False".to_string(),
        spec::Value::Str(text) => {
            format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n"))
        }
        other => other.plain(),
    }
}

/// The keys of an address as arguments. Keys that the page does not know are refused.
fn arguments_of(query: &Query) -> Result<Vec<String>, Refused> {
    const OTHERS: [&str; 4] = ["gpu", "phase", "suggest", "view"];
    let mut arguments = vec!["--dataset=openwebtext".to_string()];
    for (name, value) in query.iter().filter(|(name, _)| !OTHERS.contains(&name.as_str())) {
        let shown: String = name.chars().take(40).collect();
        let row = SETTABLE.iter().find(|(known, _)| known == name);
        let Some((_, most)) = row else {
            return Err(Refused(format!("'{shown}' cannot be set here")));
        };
        if name == "dataset" && !DATA_SETS.contains(&value.as_str()) {
            return Err(Refused(format!("dataset is one of {}", DATA_SETS.join(", "))));
        }
        let number = value.parse::<u64>();
        if let Some(most) = most
            && !number.is_ok_and(|number| (1..=*most).contains(&number))
        {
            return Err(Refused(format!("{shown} is a whole number from 1 to {most} here")));
        }
        if value.len() > 40 {
            return Err(Refused(format!("the value of {shown} is too long")));
        }
        let prefix = format!("--{name}=");
        arguments.retain(|argument| !argument.starts_with(&prefix));
        arguments.push(prefix + value);
    }
    Ok(arguments)
}

/// Checks settings and sizes without any file.
pub fn resolved(arguments: &[String], on_gpu: bool) -> Result<(RunSpec, Dims), Refused> {
    let device = if on_gpu { "--device=cuda" } else { "--device=cpu" };
    let mut all = arguments.to_vec();
    all.push(device.to_string());
    let failed = |error: spec::SpecError| Refused(error.to_string());
    let settings =
        without_files(|world| Settings::read(Command::Train, &all, world)).map_err(failed)?;
    let environment = Environment { cuda_devices: u32::from(on_gpu), ..Environment::default() };
    let (run, _) = resolve(&settings, &environment).map_err(failed)?;
    if run.sequences_per_iteration() > MOST_SEQUENCES {
        let what = format!("at most {MOST_SEQUENCES} sequences an iteration are planned here");
        return Err(Refused(what));
    }
    let rows = match run.dataset == data::BUILTIN {
        true => u64::from(data::corpus::VOCABULARY),
        false => data::known::characters(&run.dataset).unwrap_or(GPT2_ROWS),
    };
    let dims = run.dims(rows).map_err(failed)?;
    Ok((run, dims))
}

/// Calls `work` with a world without files.
pub fn without_files<T>(work: impl FnOnce(&World<'_>) -> T) -> T {
    let read = |_: &str| Err(std::io::Error::other("the page reads no files"));
    work(&World { read: &read, unix_time: 0.0 })
}
