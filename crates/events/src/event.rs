//! The events and their fields, named as in `log.jsonl`. `docs/log-json.md` explains each field; a
//! test compares it with this file.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// The schema that [`Start`] carries.
pub const SCHEMA: &str = "fitgpt.log/2";

/// Every kind of event, as a log names it.
pub const KINDS: [&str; 8] =
    ["start", "iter", "evaluating", "eval", "save", "notice", "sample", "end"];

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// What happened.
    #[serde(flatten)]
    pub what: What,
    /// When.
    #[serde(flatten)]
    pub time: Time,
}

/// When an event happened.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// Seconds since 1970, by the machine's clock.
    pub unix_time: f64,
    /// Seconds since the process began to train; never goes back.
    pub seconds: f64,
}

/// What happened. Frequent events are `Copy`, so that they never allocate; the others are shared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum What {
    /// The run starts or resumes.
    Start(Arc<Start>),
    /// An iteration is done.
    #[serde(rename = "iter")]
    Iteration(Iteration),
    /// An evaluation is under way. Not written to the log.
    Evaluating(Evaluating),
    /// An evaluation is done.
    #[serde(rename = "eval")]
    Evaluated(Arc<Evaluated>),
    /// A checkpoint was saved.
    Save(Arc<Save>),
    /// Something the user should know; the run continues.
    Notice(Arc<Notice>),
    /// The model generated a text.
    Sample(Arc<Sample>),
    /// The run ends.
    End(Arc<End>),
}

/// Settings and plan of a run that starts or resumes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// [`SCHEMA`], or an older one.
    pub schema: String,
    /// The first iteration.
    pub iter: u64,
    /// Every key with its value.
    pub config: Value,
    /// Rows of the token embedding.
    pub vocab_size: u64,
    /// Hash of the training steps.
    pub steps_hash: String,
    /// Version of the program.
    pub version: String,
    /// Kind of the device.
    pub device: String,
    /// How an iteration is cut; null if the run only evaluates.
    #[serde(default)]
    pub plan: Value,
    /// Bytes of the arena on the device. Absent in `fitgpt.log/1`, like the next field.
    #[serde(default)]
    pub arena_bytes: Option<u64>,
    /// Tokens per iteration.
    #[serde(default)]
    pub tokens_per_iteration: Option<u64>,
    /// Tokens that the run trained on before this process. Absent in older logs, like the next
    /// fields.
    #[serde(default)]
    pub tokens_before: Option<u64>,
    /// Seconds that it trained before this process; none if its checkpoint does not say.
    #[serde(default)]
    pub seconds_before: Option<f64>,
    /// Floating-point operations per token, as nanoGPT counts them.
    #[serde(default)]
    pub flops_per_token: Option<f64>,
    /// The device's peak in operations per second; none if it is not known.
    #[serde(default)]
    pub peak_flops: Option<f64>,
}

/// One iteration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Iteration {
    /// Its number.
    pub iter: u64,
    /// Mean loss of the last micro-batch, as nanoGPT prints it.
    pub loss: f64,
    /// Learning rate.
    pub lr: f64,
    /// Norm of the gradients before clipping. JSON has no infinity: `null` is parsed as NaN.
    #[serde(deserialize_with = "number_or_nan")]
    pub grad_norm: f64,
    /// Loss scale.
    pub loss_scale: f64,
    /// Tokens per second.
    pub tokens_per_second: f64,
    /// Milliseconds that it took.
    pub ms: f64,
    /// Bytes that the plan takes on the device.
    pub arena_bytes: u64,
    /// Bytes that the process holds on the device according to the driver; none on a CPU, and
    /// between logged iterations.
    pub device_bytes_seen: Option<u64>,
    /// Resident bytes of the process; none between logged iterations.
    pub resident_bytes: Option<u64>,
    /// Whether it is one of every `log_interval` iterations, which the log and the console show.
    #[serde(skip, default = "yes")]
    pub is_logged: bool,
}

/// Progress of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluating {
    /// The iteration before which it happens.
    pub iter: u64,
    /// The share that is done, from 0 to 1.
    pub share: f64,
}

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluated {
    /// The iteration before which it happened.
    pub iter: u64,
    /// Mean loss of the training split.
    pub train_loss: f64,
    /// Mean loss of the validation split.
    pub val_loss: f64,
    /// Standard error of `train_loss`.
    pub train_standard_error: f64,
    /// Standard error of `val_loss`.
    pub val_standard_error: f64,
    /// Tokens evaluated per split.
    pub tokens: u64,
    /// Whether this is the lowest validation loss so far. Absent in `fitgpt.log/1`, like the next.
    #[serde(default)]
    pub best: Option<bool>,
    /// Milliseconds that it took.
    #[serde(default)]
    pub ms: Option<f64>,
    /// Bytes that the plan takes on the device.
    pub arena_bytes: u64,
    /// Bytes that the process holds on the device according to the driver; none on a CPU.
    pub device_bytes_seen: Option<u64>,
    /// Why the loss is not comparable with the training loss, if it is not.
    pub note: Option<String>,
}

/// A checkpoint that was saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Save {
    /// The iteration that a resumed run would start with.
    pub iter: u64,
    /// The file.
    pub path: String,
    /// Milliseconds that it took.
    pub ms: f64,
}

/// Something the user should know; the run continues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    /// The whole text.
    pub text: String,
    /// Number of events that a sink did not get, if this is the reason for the notice.
    pub dropped: Option<u64>,
}

/// A text that the model generated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Number of iterations the model was trained for.
    pub iter: u64,
    /// The prompt and the generated text.
    pub text: String,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The iteration that a resumed run would start with.
    pub iter: u64,
    /// Why.
    pub reason: Reason,
    /// The error, if there was one.
    pub message: Option<String>,
    /// The newest checkpoint, if there is one.
    pub checkpoint: Option<String>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// All iterations are done.
    Finished,
    /// It was asked to stop.
    Interrupted,
    /// The loss or the weights are NaN or infinite.
    Diverged,
    /// Anything else: the disk, the device, the data.
    Error,
}

fn yes() -> bool {
    true
}

fn number_or_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}
