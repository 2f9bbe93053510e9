//! Settings in a checkpoint: all keys of `train` as one JSON object. A resumed run takes them from
//! there unless the user gives others.

use crate::error::TrainError;
use serde_json::{Map, Number, Value as Json};
use spec::{Command, Origin, Setting, SettingNotice, Settings, Value};

/// Keys that belong to one call of the command, not to the run.
const OF_THE_CALL: [&str; 7] =
    ["out_dir", "init_from", "eval_only", "accept_changed_data", "backend", "gpus", "ui"];

/// Keys that a model cannot change: as in nanoGPT, a resumed run always takes them from its
/// checkpoint.
const OF_THE_MODEL: [&str; 4] = ["n_layer", "n_head", "n_embd", "bias"];

/// Keys that come with the optimizer's state: nanoGPT takes them from its checkpoint, whatever else
/// is given.
pub const OF_THE_OPTIMIZER: [&str; 3] = ["weight_decay", "beta1", "beta2"];

/// Keys that another program's file supplies if they are not given.
const IF_NOT_GIVEN: [&str; 2] = ["block_size", "gelu"];

/// Whose settings a checkpoint has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Our own: a run goes on with all of them.
    Ours,
    /// Another program's: only those that its tensors depend on, as in nanoGPT.
    Foreign {
        /// Whether it has moments.
        has_moments: bool,
    },
}

/// All keys of `train` as JSON.
pub fn to_json(settings: &Settings) -> Json {
    let of_train = settings.iter().filter(|setting| setting.key.used_by(Command::Train));
    let entry = |setting: &Setting| (setting.key.name.to_string(), json(&setting.value));
    Json::Object(of_train.map(entry).collect::<Map<_, _>>())
}

/// The keys of the run that the user gave, with their values.
pub fn given(settings: &Settings) -> Vec<(&'static str, Json)> {
    let of_run =
        |setting: &&Setting| setting.is_given() && !OF_THE_CALL.contains(&setting.key.name);
    let pair = |setting: &Setting| (setting.key.name, json(&setting.value));
    settings.iter().filter(of_run).map(pair).collect()
}

fn json(value: &Value) -> Json {
    match value {
        Value::Int(number) => Json::from(*number),
        Value::Float(number) => Number::from_f64(*number).map_or(Json::Null, Json::Number),
        Value::Bool(flag) => Json::from(*flag),
        Value::Str(text) => Json::from(text.as_str()),
    }
}

/// Fills in settings from a checkpoint: for `train` the model's sizes and every key that was not
/// given, for `sample` every key that is not its own. Keys that this version no longer has are
/// skipped. Returns notices about given keys that are not used.
pub fn fill_in(
    settings: &mut Settings,
    config: &Json,
    whose: Whose,
) -> Result<Vec<SettingNotice>, TrainError> {
    let is_kept = |setting: &Setting| match settings.command() {
        _ if whose != Whose::Ours => is_kept_beside(setting, whose),
        Command::Train if OF_THE_MODEL.contains(&setting.key.name) => false,
        Command::Train => setting.is_given() || OF_THE_CALL.contains(&setting.key.name),
        Command::Sample => setting.key.used_by(Command::Sample),
    };
    let replaced: Vec<Setting> =
        settings.iter().filter(|setting| !is_kept(setting)).cloned().collect();
    let mut unused = Vec::new();
    for Setting { key, value: given, origin } in replaced {
        let Some(stored) = config.get(key.name).and_then(value) else {
            continue;
        };
        let is_given = matches!(origin, Origin::File { .. } | Origin::Argument { .. });
        if is_given && given != stored {
            let name = key.name;
            let part = if OF_THE_OPTIMIZER.contains(&name) { "optimizer" } else { "model" };
            let text = format!("{name}={given} is ignored: the checkpoint's {part} has {stored}");
            unused.push(SettingNotice { key: name, text });
        }
        settings.set(key.name, stored, Origin::Checkpoint)?;
    }
    Ok(unused)
}

/// Fills in settings for an evaluation: all that the checkpoint has, except keys that were given
/// and those of the machine (`device`, `dtype`, memory, `seed`), which are the call's, as in
/// `sample`.
pub fn fill_in_for_evaluation(settings: &mut Settings, config: &Json) -> Result<(), TrainError> {
    let is_kept = |setting: &Setting| {
        let name = setting.key.name;
        let of_call = OF_THE_CALL.contains(&name) || setting.key.used_by(Command::Sample);
        let of_model = OF_THE_MODEL.contains(&name) || IF_NOT_GIVEN.contains(&name);
        setting.is_given() && !OF_THE_MODEL.contains(&name) || of_call && !of_model
    };
    let replaced: Vec<&str> =
        settings.iter().filter(|setting| !is_kept(setting)).map(|row| row.key.name).collect();
    for key in replaced {
        if let Some(stored) = config.get(key).and_then(value) {
            settings.set(key, stored, Origin::Checkpoint)?;
        }
    }
    Ok(())
}

/// Whether a key keeps its value beside another program's file.
fn is_kept_beside(setting: &Setting, whose: Whose) -> bool {
    let name = setting.key.name;
    let has_moments = whose == Whose::Foreign { has_moments: true };
    let is_fixed = OF_THE_MODEL.contains(&name) || has_moments && OF_THE_OPTIMIZER.contains(&name);
    let is_filled_in = IF_NOT_GIVEN.contains(&name) && !setting.is_given();
    !(is_fixed || is_filled_in)
}

fn value(json: &Json) -> Option<Value> {
    match json {
        Json::Bool(flag) => Some(Value::Bool(*flag)),
        Json::String(text) => Some(Value::Str(text.clone())),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Some(Value::Int(number)),
            None => number.as_f64().map(Value::Float),
        },
        Json::Null | Json::Array(_) | Json::Object(_) => None,
    }
}
