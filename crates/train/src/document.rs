//! The document of a checkpoint: the run's progress, its settings, how its iterations are cut. It
//! is parsed in bounded memory. Documents of every earlier version of this format are still read.

use crate::data_fingerprint::DataFingerprint;
use crate::error::TrainError;
use crate::plan_json::CutJson;
use crate::progress::RunProgress;
use checkpoint::bounded_json;
use model::Dims;
use search::Cut;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::Path;
use tokenizer::{CharTokenizer, Tokenizer};

/// Memory for parsed values, in addition to the document's size. The largest value is a position in
/// nanoGPT's stream: some hundred numbers, and one per sequence of a micro-batch.
const VALUES_LIMIT: usize = 24 << 20;

/// Everything in a checkpoint except its tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The run's progress.
    pub progress: RunProgress,
    /// All keys with their values.
    pub config: Value,
    /// The model's sizes, which are fixed for a run.
    pub dims: Dims,
    /// Converts ids to text; none if the data set has no tokenizer.
    pub tokenizer: Option<Tokenizer>,
    /// Fingerprint of the data files; none without files, and in checkpoints of older versions.
    pub data: Option<DataFingerprint>,
    /// Position of the batch stream.
    pub feed: Value,
    /// How an iteration is cut; none if the run only evaluates.
    pub plan: Option<Cut>,
    /// Hash of the training steps. A run resumes bit for bit with the same steps on the same kind
    /// of device with the same version.
    pub steps_hash: String,
    /// What the backend chose in addition to the plan: matmul algorithms by shape.
    pub choices: Vec<(String, String)>,
    /// Kind of the device.
    pub device: String,
    /// Number of compute threads, if the device is the CPU.
    pub threads: Option<u64>,
    /// Version of the program that saved it.
    pub version: String,
}

/// The document as it is written. Keys and their order are the format.
#[derive(Serialize)]
struct DocumentJson<'a> {
    iteration: u64,
    /// The bits of the f64: JSON readers may round a number.
    best_val_loss_bits: String,
    /// Absent in older versions, like the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    config: &'a Value,
    model: ModelJson,
    tokenizer: Option<TokenizerJson<'a>>,
    data: Value,
    feed: &'a Value,
    plan: Option<CutJson>,
    steps_hash: &'a str,
    choices: Map<String, Value>,
    device: &'a str,
    threads: Option<u64>,
    version: &'a str,
}

/// The model's sizes.
#[derive(Serialize, Deserialize)]
struct ModelJson {
    n_layer: u64,
    n_head: u64,
    n_embd: u64,
    block_size: u64,
    vocab_size: u64,
    bias: bool,
}

/// `"gpt2"`, the characters in the order of their ids, or the text of a tokenizer.json. With it,
/// `sample` needs no data set.
#[derive(Serialize)]
#[serde(untagged)]
enum TokenizerJson<'a> {
    Known(&'static str),
    Characters { characters: String },
    Json { json: &'a str },
}

/// The name of GPT-2's tokenizer.
const GPT2: &str = "gpt2";

impl Document {
    /// The JSON text in a checkpoint.
    pub(crate) fn to_json(&self) -> Result<String, TrainError> {
        let choice = |(name, choice): &(String, String)| (name.clone(), choice.as_str().into());
        let document = DocumentJson {
            iteration: self.progress.iteration,
            best_val_loss_bits: self.progress.best_val_loss.to_bits().to_string(),
            tokens: self.progress.tokens,
            seconds: self.progress.seconds,
            config: &self.config,
            model: ModelJson::from(&self.dims),
            tokenizer: self.tokenizer.as_ref().map(TokenizerJson::from),
            data: DataFingerprint::to_json(self.data.as_ref()),
            feed: &self.feed,
            plan: self.plan.as_ref().map(CutJson::from),
            steps_hash: &self.steps_hash,
            choices: self.choices.iter().map(choice).collect(),
            device: &self.device,
            threads: self.threads,
            version: &self.version,
        };
        serde_json::to_string(&document).map_err(|error| TrainError::Document { error })
    }

    /// Tokens that the run has trained on. A file that does not say had the same batches from the
    /// first iteration on, as far as its settings tell; none if they do not tell either.
    pub fn tokens_seen(&self) -> Option<u64> {
        let keys = ["batch_size", "block_size", "gradient_accumulation_steps"];
        let factor = |key: &str| self.config.get(key)?.as_u64();
        let of_settings = || {
            let start = Some(self.progress.iteration);
            keys.iter().fold(start, |product, key| product?.checked_mul(factor(key)?))
        };
        self.progress.tokens.or_else(of_settings)
    }

    /// Parses the JSON text; `path` is the checkpoint, for messages.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Document, TrainError> {
        let json = bounded_json::parse(text.as_bytes(), VALUES_LIMIT + text.len())
            .map_err(|error| mismatch(path, format!("its document cannot be read: {error}")))?;
        let mut parts = Parts { path, json };
        let bits: String = parts.take("best_val_loss_bits", "best loss")?;
        let bits = bits.parse().map_err(|_| parts.bad("best loss"))?;
        let dims = parts.take::<ModelJson>("model", "model")?.dims();
        let dims = dims.ok_or_else(|| parts.bad("model"))?;
        let fits = |found: &Tokenizer| u64::from(found.vocab_size()) <= dims.vocab_size;
        let tokenizer = match parts.value("tokenizer", "tokenizer")? {
            Value::Null => None,
            json => Some(tokenizer(json).filter(fits).ok_or_else(|| parts.bad("tokenizer"))?),
        };
        let plan: Option<CutJson> = parts.take("plan", "plan")?;
        let plan = plan.map(|json| json.cut().ok_or_else(|| parts.bad("plan"))).transpose()?;
        Ok(Document {
            progress: RunProgress {
                iteration: parts.take("iteration", "iteration")?,
                best_val_loss: f64::from_bits(bits),
                tokens: parts.json.get("tokens").and_then(Value::as_u64),
                seconds: parts.json.get("seconds").and_then(Value::as_f64),
            },
            config: parts.object("config", "config")?,
            dims,
            tokenizer,
            data: DataFingerprint::from_json(parts.json.get("data")),
            feed: parts.value("feed", "batch stream")?,
            plan,
            steps_hash: parts.take("steps_hash", "hash of its steps")?,
            choices: choices(parts.json.get("choices")),
            device: parts.take("device", "device")?,
            threads: parts.json.get("threads").and_then(Value::as_u64),
            version: parts.take("version", "version")?,
        })
    }
}

/// A parsed document whose parts are taken out one by one.
struct Parts<'a> {
    path: &'a Path,
    json: Value,
}

impl Parts<'_> {
    /// The value of a key, moved out and not copied: it may be large. `what` names it in messages.
    fn value(&mut self, key: &str, what: &str) -> Result<Value, TrainError> {
        self.json.get_mut(key).map(Value::take).ok_or_else(|| self.bad(what))
    }

    /// The same where it must be an object.
    fn object(&mut self, key: &str, what: &str) -> Result<Value, TrainError> {
        let value = self.value(key, what)?;
        if value.is_object() { Ok(value) } else { Err(self.bad(what)) }
    }

    /// The value of a key, parsed as `T`. Another shape is an error before anything large is built.
    fn take<T: DeserializeOwned>(&mut self, key: &str, what: &str) -> Result<T, TrainError> {
        let value = self.value(key, what)?;
        serde_json::from_value(value).map_err(|_| self.bad(what))
    }

    fn bad(&self, what: &str) -> TrainError {
        let what = format!("its document has no valid {what}; use another checkpoint");
        mismatch(self.path, what)
    }
}

/// Empty if the document has none: then the backend chooses again.
fn choices(json: Option<&Value>) -> Vec<(String, String)> {
    let fields = json.and_then(Value::as_object).into_iter().flatten();
    fields.filter_map(|(name, choice)| Some((name.clone(), choice.as_str()?.into()))).collect()
}

impl From<&Dims> for ModelJson {
    fn from(dims: &Dims) -> ModelJson {
        let Dims { n_layer, n_head, n_embd, block_size, vocab_size, bias } = *dims;
        ModelJson { n_layer, n_head, n_embd, block_size, vocab_size, bias }
    }
}

impl ModelJson {
    fn dims(self) -> Option<Dims> {
        let ModelJson { n_layer, n_head, n_embd, block_size, vocab_size, bias } = self;
        Dims { n_layer, n_head, n_embd, block_size, vocab_size, bias }.checked().ok()
    }
}

impl<'a> From<&'a Tokenizer> for TokenizerJson<'a> {
    fn from(tokenizer: &'a Tokenizer) -> TokenizerJson<'a> {
        match tokenizer {
            Tokenizer::Gpt2 => TokenizerJson::Known(GPT2),
            Tokenizer::Char(table) => {
                TokenizerJson::Characters { characters: table.characters().iter().collect() }
            }
            Tokenizer::Json(_) => {
                TokenizerJson::Json { json: tokenizer.to_json().unwrap_or_default() }
            }
        }
    }
}

/// Parses the tokenizer. Not with serde, which would copy a large value before it checks its shape.
fn tokenizer(json: Value) -> Option<Tokenizer> {
    match &json {
        Value::String(name) if name == GPT2 => Some(Tokenizer::Gpt2),
        _ => match (json.get("characters"), json.get("json")) {
            (Some(characters), _) => {
                let characters = characters.as_str()?.chars().collect();
                CharTokenizer::new(characters).map(Tokenizer::Char)
            }
            (None, Some(text)) => Tokenizer::from_json(text.as_str()?.as_bytes()).ok(),
            (None, None) => None,
        },
    }
}

/// The error for a checkpoint that cannot be used here.
pub(crate) fn mismatch(path: &Path, what: String) -> TrainError {
    TrainError::Mismatch { path: path.to_path_buf(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by a version that made its JSON by hand.
    const OLD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/checkpoints/2026-11.safetensors");

    #[test]
    fn an_old_document_is_read_and_written_again_byte_for_byte() {
        let path = Path::new(OLD);
        let reader = checkpoint::Reader::open(path).unwrap();
        let document = Document::parse(path, reader.document()).unwrap();
        assert_eq!(document.progress.iteration, 5);
        assert_eq!((document.dims.n_embd, document.dims.vocab_size), (8, 66));
        assert_eq!(document.plan.as_ref().unwrap().slices, [2]);
        assert_eq!(document.to_json().unwrap(), reader.document());
    }

    #[test]
    fn tokens_are_counted_or_come_from_the_settings() {
        let path = Path::new(OLD);
        let reader = checkpoint::Reader::open(path).unwrap();
        let mut document = Document::parse(path, reader.document()).unwrap();
        assert_eq!((document.progress.tokens, document.progress.seconds), (None, None));
        document.config = serde_json::json!({"batch_size": 4, "block_size": 8,
                                             "gradient_accumulation_steps": 2});
        assert_eq!(document.tokens_seen(), Some(5 * 64));
        (document.progress.tokens, document.progress.seconds) = (Some(99), Some(1.5));
        let again = Document::parse(path, &document.to_json().unwrap()).unwrap();
        assert_eq!((again.tokens_seen(), again.progress.seconds), (Some(99), Some(1.5)));
        document.progress.tokens = None;
        document.config = serde_json::json!({"batch_size": 4});
        assert_eq!(document.tokens_seen(), None);
    }

    #[test]
    fn the_vocabulary_of_a_tokenizer_json_is_kept() {
        let path = Path::new(OLD);
        let reader = checkpoint::Reader::open(path).unwrap();
        let mut document = Document::parse(path, reader.document()).unwrap();
        let json = Tokenizer::Gpt2.to_json().unwrap();
        document.dims.vocab_size = 50_257;
        document.tokenizer = Some(Tokenizer::from_json(json.as_bytes()).unwrap());
        let text = document.to_json().unwrap();
        assert!(text.contains("\"tokenizer\":{\"json\":\"{\\\"version"));
        assert_eq!(Document::parse(path, &text).unwrap(), document);
        let damaged = text.replacen("ByteLevel", "Whitespace", 1);
        let error = Document::parse(path, &damaged).unwrap_err().to_string();
        assert!(error.contains("no valid tokenizer"), "{error}");
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let path = Path::new(OLD);
        let reader = checkpoint::Reader::open(path).unwrap();
        let good: Value = serde_json::from_str(reader.document()).unwrap();
        let refused = |json: &Value| {
            let error = Document::parse(path, &json.to_string()).unwrap_err().to_string();
            error.split("no valid ").nth(1).unwrap_or(&error).to_owned()
        };
        for (key, what) in [
            ("iteration", "iteration; "),
            ("best_val_loss_bits", "best loss; "),
            ("config", "config; "),
            ("model", "model; "),
            ("tokenizer", "tokenizer; "),
            ("feed", "batch stream; "),
            ("plan", "plan; "),
            ("steps_hash", "hash of its steps; "),
            ("device", "device; "),
            ("version", "version; "),
        ] {
            let mut json = good.clone();
            json.as_object_mut().unwrap().remove(key);
            assert!(refused(&json).starts_with(what), "without {key}: {}", refused(&json));
            json[key] = if key == "feed" { continue } else { serde_json::json!([1]) };
            assert!(refused(&json).starts_with(what), "{key}: {}", refused(&json));
        }
        // A vocabulary larger than the model's, and invalid sizes.
        for (key, value, what) in [
            ("tokenizer", serde_json::json!("gpt2"), "tokenizer; "),
            ("tokenizer", serde_json::json!("gpt9"), "tokenizer; "),
            ("best_val_loss_bits", serde_json::json!("-1"), "best loss; "),
        ] {
            let mut json = good.clone();
            json[key] = value;
            assert!(refused(&json).starts_with(what), "{json}");
        }
        let mut json = good;
        json["model"]["n_head"] = 3.into();
        assert!(refused(&json).starts_with("model; "));
    }
}
