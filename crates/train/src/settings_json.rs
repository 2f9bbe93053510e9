//! Settings in a checkpoint: all keys of `train` as one JSON object, and back into settings where
//! the user gave nothing else.

use crate::error::TrainError;
use serde_json::{Map, Number, Value as Json};
use spec::{Command, Origin, Setting, Settings, Value};

/// Keys that say how this very command is to be done, not what the run is.
const OF_THE_CALL: [&str; 3] = ["out_dir", "init_from", "eval_only"];

/// All keys of `train`.
pub fn to_json(settings: &Settings) -> Json {
    let of_train = settings.iter().filter(|setting| setting.key.used_by(Command::Train));
    let entry = |setting: &Setting| (setting.key.name.to_string(), json(&setting.value));
    Json::Object(of_train.map(entry).collect::<Map<_, _>>())
}

/// Keys of the run that were given, with their values.
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

/// Takes over what a checkpoint says, for `train` whatever was not given, for `sample` whatever is
/// not a key of its own. Keys that this version does not have are left out: an older version's.
pub fn fill_in(settings: &mut Settings, config: &Json) -> Result<(), TrainError> {
    let of_call = |setting: &Setting| match settings.command() {
        Command::Train => setting.is_given() || OF_THE_CALL.contains(&setting.key.name),
        Command::Sample => setting.key.used_by(Command::Sample),
    };
    let names: Vec<&str> = settings
        .iter()
        .filter(|setting| !of_call(setting))
        .map(|setting| setting.key.name)
        .collect();
    for name in names {
        if let Some(value) = config.get(name).and_then(value) {
            settings.set(name, value, Origin::Checkpoint)?;
        }
    }
    Ok(())
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
