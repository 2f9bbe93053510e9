//! The one table of keys: name, type, default, meaning, group, commands. The parser, `--help`,
//! `docs/keys.md` and the config that a run logs are derived from it.

use crate::memory;
use crate::nearest;
use crate::py_file;
use crate::run_spec::{
    CheckpointFormat, Connection, Gelu, GradCheckpoint, InitFrom, Offload, OptimizerState,
    ReduceDtype, RequestedDevice, RequestedDtype, Residual, Sampler, Sync,
};
use crate::value::Value;
use crate::words::Values;

/// A command that takes keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `train`, and every command about a training run (`plan`, `bench`, `doctor`).
    Train,
    /// `sample`.
    Sample,
}

impl Command {
    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Command::Train => "train",
            Command::Sample => "sample",
        }
    }
}

/// What a key accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number.
    Int,
    /// A number; a whole number is converted.
    Float,
    /// True or False.
    Bool,
    /// Text.
    Str,
    /// True, False or a word.
    BoolOrStr,
    /// A whole number or text.
    IntOrStr,
}

impl Kind {
    /// What the key needs, for messages.
    pub fn needs(self) -> &'static str {
        match self {
            Kind::Int => "a whole number",
            Kind::Float => "a number",
            Kind::Bool => "True or False",
            Kind::Str => "a string",
            Kind::BoolOrStr => "True, False or a string",
            Kind::IntOrStr => "a string or a whole number",
        }
    }

    /// The type's name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Int => "int",
            Kind::Float => "float",
            Kind::Bool => "bool",
            Kind::Str => "str",
            Kind::BoolOrStr => "bool or str",
            Kind::IntOrStr => "int or str",
        }
    }
}

/// A value for a `const` table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Literal {
    /// A whole number.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// True or False.
    Bool(bool),
    /// Text.
    Str(&'static str),
}

impl From<Literal> for Value {
    fn from(literal: Literal) -> Value {
        match literal {
            Literal::Int(number) => Value::Int(number),
            Literal::Float(number) => Value::Float(number),
            Literal::Bool(flag) => Value::Bool(flag),
            Literal::Str(text) => Value::Str(text.to_string()),
        }
    }
}

/// Keys that help shows together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Outputs, evaluation, and what the weights start from.
    Output,
    /// Metrics for other programs.
    Metrics,
    /// The data set, and the tokens per iteration.
    Data,
    /// The model itself.
    Model,
    /// AdamW.
    Optimizer,
    /// The learning rate over the run.
    Rate,
    /// Device, number format, compilation.
    System,
    /// Evaluation, beyond nanoGPT.
    Evaluation,
    /// Budgets and the planner's permissions, beyond nanoGPT.
    Memory,
    /// Several GPUs or machines.
    Ranks,
    /// Random streams, beyond nanoGPT's training keys.
    Randomness,
    /// Text from a trained model.
    Sampling,
}

impl Group {
    /// All groups, in the order of the table.
    pub const ALL: [Group; 12] = [
        Group::Output,
        Group::Metrics,
        Group::Data,
        Group::Model,
        Group::Optimizer,
        Group::Rate,
        Group::System,
        Group::Evaluation,
        Group::Memory,
        Group::Ranks,
        Group::Randomness,
        Group::Sampling,
    ];

    /// A heading.
    pub fn title(self) -> &'static str {
        match self {
            Group::Output => "Output and evaluation",
            Group::Metrics => "Metrics for other programs",
            Group::Data => "Data",
            Group::Model => "Model",
            Group::Optimizer => "Optimizer (AdamW)",
            Group::Rate => "Learning rate",
            Group::System => "System",
            Group::Evaluation => "Evaluation, beyond nanoGPT",
            Group::Memory => "Memory, beyond nanoGPT",
            Group::Ranks => "Several GPUs or machines",
            Group::Randomness => "Randomness",
            Group::Sampling => "Sampling",
        }
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// As it is typed.
    pub name: &'static str,
    /// What it accepts.
    pub kind: Kind,
    /// Its value where the user gives none.
    pub default: Literal,
    /// The default of `sample`, where nanoGPT's `sample.py` has another.
    pub sample_default: Option<Literal>,
    /// Which values of its type it accepts.
    pub values: Values,
    /// Meaning and values for `sample`, where they are others.
    pub sample_help: Option<(&'static str, Values)>,
    /// The group it is shown in.
    pub group: Group,
    /// Whether `train` uses it.
    pub train: bool,
    /// Whether `sample` uses it.
    pub sample: bool,
    /// What it means, one line.
    pub doc: &'static str,
}

impl Key {
    /// The row of the key with this name.
    pub fn find(name: &str) -> Option<&'static Key> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// The key that a misspelled name probably means.
    pub fn nearest(name: &str) -> Option<&'static str> {
        nearest::nearest(name, KEYS.iter().map(|key| key.name))
    }

    /// Whether the command uses it.
    pub fn used_by(&self, command: Command) -> bool {
        match command {
            Command::Train => self.train,
            Command::Sample => self.sample,
        }
    }

    /// Its default for this command.
    pub fn default_for(&self, command: Command) -> Value {
        match (command, self.sample_default) {
            (Command::Sample, Some(literal)) => literal.into(),
            _ => self.default.into(),
        }
    }

    /// What it means for this command, with the values that it accepts.
    pub fn meaning_for(&self, command: Command) -> String {
        match (command, self.sample_help) {
            (Command::Sample, Some((doc, values))) => values.explained(doc),
            _ => self.values.explained(self.doc),
        }
    }

    /// Which values it accepts for this command.
    pub fn values_for(&self, command: Command) -> Values {
        match (command, self.sample_help) {
            (Command::Sample, Some((_, values))) => values,
            _ => self.values,
        }
    }

    /// Converts a value to this key's type; returns it unchanged as an error if it cannot.
    pub fn accept(&self, value: Value) -> Result<Value, Value> {
        match (self.kind, value) {
            (Kind::Float, Value::Int(number)) => Ok(Value::Float(number as f64)),
            (Kind::Int | Kind::IntOrStr, value @ Value::Int(_))
            | (Kind::Float, value @ Value::Float(_))
            | (Kind::Bool | Kind::BoolOrStr, value @ Value::Bool(_))
            | (Kind::Str | Kind::BoolOrStr | Kind::IntOrStr, value @ Value::Str(_)) => Ok(value),
            (_, value) => Err(value),
        }
    }

    /// Parses the text of `--key=text`: Python literals as in nanoGPT, strings with or without
    /// quotes, `True` or `true`. A value of another type is returned as an error.
    pub fn accept_text(&self, text: &str) -> Result<Value, Value> {
        let flag = match text.trim() {
            "True" | "true" => Some(Value::Bool(true)),
            "False" | "false" => Some(Value::Bool(false)),
            _ => None,
        };
        let string = || Value::Str(py_file::unquoted(text).unwrap_or_else(|| text.to_string()));
        let value = match self.kind {
            Kind::Str => None,
            Kind::BoolOrStr => flag,
            Kind::Int | Kind::Float | Kind::Bool | Kind::IntOrStr => {
                flag.or_else(|| py_file::literal(text)).filter(|value| {
                    // `--vram=8.5` stays text: the message about the missing unit quotes it.
                    self.kind != Kind::IntOrStr || !matches!(value, Value::Float(_))
                })
            }
        };
        self.accept(value.unwrap_or_else(string))
    }
}

use Group::{
    Data, Evaluation, Memory, Metrics, Model, Optimizer, Output, Randomness, Ranks, Rate, Sampling,
    System,
};

const fn key(group: Group, name: &'static str, default: Literal, doc: &'static str) -> Key {
    let kind = match default {
        Literal::Int(_) => Kind::Int,
        Literal::Float(_) => Kind::Float,
        Literal::Bool(_) => Kind::Bool,
        Literal::Str(_) => Kind::Str,
    };
    let (sample_default, sample_help, values) = (None, None, Values::Any);
    let (train, sample) = (true, false);
    Key { name, kind, default, sample_default, values, sample_help, group, train, sample, doc }
}

const fn int(group: Group, name: &'static str, default: i64, doc: &'static str) -> Key {
    key(group, name, Literal::Int(default), doc)
}

const fn float(group: Group, name: &'static str, default: f64, doc: &'static str) -> Key {
    key(group, name, Literal::Float(default), doc)
}

const fn flag(group: Group, name: &'static str, default: bool, doc: &'static str) -> Key {
    key(group, name, Literal::Bool(default), doc)
}

const fn text(group: Group, name: &'static str, default: &'static str, doc: &'static str) -> Key {
    key(group, name, Literal::Str(default), doc)
}

impl Key {
    const fn of(self, kind: Kind) -> Key {
        Key { kind, ..self }
    }

    const fn takes(self, values: Values) -> Key {
        Key { values, ..self }
    }

    const fn words(self, words: &'static [&'static str]) -> Key {
        self.takes(Values::Words(words))
    }

    /// `sample` uses it too, with the same default.
    const fn shared(self) -> Key {
        Key { sample: true, ..self }
    }

    /// `sample` uses it too, with a default of its own.
    const fn shared_as(self, default: Literal) -> Key {
        Key { sample: true, sample_default: Some(default), ..self }
    }

    /// For `sample` it means something else.
    const fn sample_says(self, doc: &'static str, values: Values) -> Key {
        Key { sample_help: Some((doc, values)), ..self }
    }

    /// Only `sample` uses it.
    const fn only_sample(self) -> Key {
        Key { sample: true, train: false, ..self }
    }
}

/// What `init_from` accepts beside its words.
const NAMED: &str = ", a checkpoint's file, a folder, or a hub id, e.g. 'me/model'";

/// All keys: nanoGPT's in its order, then ours, then those of its `sample.py`.
#[rustfmt::skip]
pub static KEYS: &[Key] = &[
    text(Output, "out_dir", "out", "folder of checkpoints and log.jsonl")
        .takes(Values::Folder).shared(),
    int(Output, "eval_interval", 2000,
        "iterations between evaluations; the first is before iteration 0"),
    int(Output, "log_interval", 1, "iterations between printed and logged losses"),
    int(Output, "eval_iters", 200, "batches per split in each evaluation"),
    flag(Output, "eval_only", false, "evaluate once and stop"),
    flag(Output, "always_save_checkpoint", true,
         "for ckpt.pt: save at every evaluation; False: only if the val loss improves"),
    text(Output, "init_from", "scratch",
         "start from new weights, out_dir's checkpoint, or a trained model (docs/huggingface.md)")
        .takes(Values::WordsOrPath(InitFrom::WORDS, NAMED))
        .shared_as(Literal::Str("resume"))
        .sample_says("out_dir's checkpoint, or a trained model (docs/huggingface.md)",
                     Values::WordsOrPath(InitFrom::TRAINED, NAMED)),
    text(Output, "checkpoint_format", "native",
         "'native': last.safetensors and best.safetensors; 'ckpt': nanoGPT's ckpt.pt")
        .words(CheckpointFormat::WORDS),
    flag(Output, "accept_changed_data", false,
         "resume even if data files have changed since the run was saved"),

    flag(Metrics, "wandb_log", false,
         "nothing is sent to wandb: out_dir/log.jsonl has everything; other tools: keys below"),
    text(Metrics, "wandb_project", "owt", "trackio's project"),
    text(Metrics, "wandb_run_name", "",
         "trackio's name of the run; empty = the name of out_dir and the time of the start"),
    flag(Metrics, "tensorboard", false, "also write events for TensorBoard in out_dir/tensorboard"),
    flag(Metrics, "csv", false, "also write a table, out_dir/metrics.csv"),
    flag(Metrics, "trackio", false, "also write lines into trackio's inbox folder"),
    flag(Metrics, "ui", false,
         "serve a page of the run in this machine's browser while it trains; --ui is the same"),

    text(Data, "dataset", "openwebtext",
         "folder under data/ with train.bin and val.bin; 'builtin' needs no files")
        .takes(Values::DataSet),
    int(Data, "gradient_accumulation_steps", 5 * 8, "micro-batches per update"),
    int(Data, "batch_size", 12, "sequences per micro-batch"),

    int(Model, "block_size", 1024, "tokens per sequence: the longest context"),
    int(Model, "n_layer", 12, "transformer blocks"),
    int(Model, "n_head", 12, "attention heads; n_embd must be a multiple of it"),
    int(Model, "n_embd", 768, "width of the residual stream"),
    float(Model, "dropout", 0.0, "dropout probability in training; 0 for pretraining"),
    flag(Model, "bias", false, "biases in linear layers and layer norms, as in GPT-2"),
    text(Model, "gelu", "auto",
         "form of GELU; 'auto': that of the checkpoint or trained model, else 'erf'")
        .words(Gelu::WORDS),

    float(Optimizer, "learning_rate", 6e-4, "peak learning rate, reached after warm-up"),
    int(Optimizer, "max_iters", 600_000, "number of the last iteration; counting starts at 0"),
    float(Optimizer, "weight_decay", 1e-1, "weight decay of tensors with two or more dimensions"),
    float(Optimizer, "beta1", 0.9, "decay rate of the first moment"),
    float(Optimizer, "beta2", 0.95, "decay rate of the second moment"),
    float(Optimizer, "grad_clip", 1.0, "clip gradients at this global norm; 0 = no clipping"),

    flag(Rate, "decay_lr", true, "warm-up, then cosine decay; False: constant learning_rate"),
    int(Rate, "warmup_iters", 2000, "iterations of linear warm-up"),
    int(Rate, "lr_decay_iters", 600_000, "iteration that reaches min_lr; usually max_iters"),
    float(Rate, "min_lr", 6e-5, "lowest learning rate; usually learning_rate / 10"),

    text(System, "device", "auto", "where to compute; 'auto': a GPU if there is one")
        .takes(Values::WordsOr(RequestedDevice::WORDS, " or a GPU by number, e.g. 'cuda:1'"))
        .shared(),
    text(System, "dtype", "auto",
         "number format of the computation; 'auto': 'float32' on the CPU, 'bfloat16' on CUDA")
        .words(RequestedDtype::WORDS).shared(),
    flag(System, "compile", true, "on a GPU, capture and replay CUDA graphs; ignored on the CPU")
        .shared_as(Literal::Bool(false)),
    flag(System, "autotune", true,
         "on a GPU, time matmuls at first use and nearly equal plans before a long run; keep the \
          fastest. False: time nothing"),

    int(Evaluation, "eval_batch_size", 0, "sequences per evaluation batch; 0 = batch_size"),
    int(Evaluation, "eval_block_size", 0, "tokens per evaluation sequence; 0 = block_size"),
    flag(Evaluation, "eval_sample", false,
         "generate and log a text at each evaluation, from the same prompt and seed; on with ui"),

    text(Memory, "grad_checkpoint", "auto",
         "recompute activations: 'auto' if the budget requires it, True always, False never")
        .of(Kind::BoolOrStr).words(GradCheckpoint::WORDS),
    text(Memory, "vram", "auto",
         "GPU memory to use: 'auto' (what is free, minus 256 MiB), '11.69GiB', '8G', '80%'")
        .of(Kind::IntOrStr).takes(memory::Memory::VALUES).shared(),
    text(Memory, "ram", "auto",
         "host memory of the whole process: 'auto' (90% of what is free), '24GiB', '50%'")
        .of(Kind::IntOrStr).takes(memory::Memory::VALUES).shared(),
    text(Memory, "optimizer_state", "float32",
         "number format of AdamW's moments; 'auto': the planner may choose, once per run")
        .words(OptimizerState::WORDS),
    flag(Memory, "offload", false,
         "what to keep in host memory: False (nothing), 'optimizer' (the optimizer's state), \
          'activations' (where that beats recomputing them), 'auto' (either or both, if needed or \
          faster)")
        .of(Kind::BoolOrStr).words(Offload::WORDS),
    text(Memory, "residual", "auto", "number format of the residual stream; 'auto' = dtype")
        .words(Residual::WORDS),

    text(Ranks, "backend", "auto",
         "what connects ranks: 'nccl' between GPUs, 'mpi' between CPUs; 'auto' or 'gloo': the one \
          that fits").words(Connection::WORDS),
    int(Ranks, "gpus", 0,
        "train on this many GPUs of this machine, one process each; 0 = what the launcher says"),
    int(Ranks, "zero", -1,
        "1: each rank keeps a shard of AdamW's state (ZeRO-1); 0: all of it; -1: 1 from two ranks")
        .words(&["-1", "0", "1"]),
    int(Ranks, "reduce_groups", 0,
        "groups of sequences whose gradients are added in a fixed order; 0 = number of ranks. Runs \
         with the same number give the same bits on 1, 2, … CPU ranks"),
    text(Ranks, "reduce_dtype", "float32", "number format in which gradients travel")
        .words(ReduceDtype::WORDS),
    text(Ranks, "sync", "gradients",
         "'gradients': add up all gradients at every iteration; 'diloco': train alone for \
          sync_every iterations, then average the changes").words(Sync::WORDS),
    int(Ranks, "sync_every", 50, "with sync='diloco': iterations between two averages"),
    float(Ranks, "outer_lr", 0.7, "with sync='diloco': learning rate of the outer step"),
    float(Ranks, "outer_momentum", 0.9, "with sync='diloco': Nesterov momentum of the outer step"),

    int(Randomness, "seed", 1337, "seed of all random streams").shared(),
    text(Randomness, "sampler", "fitgpt",
         "'nanogpt' replays PyTorch's generator: same initial weights and batches as nanoGPT")
        .words(Sampler::WORDS),

    text(Sampling, "start", "\n", "the prompt; 'FILE:prompt.txt' reads it from a file")
        .only_sample(),
    int(Sampling, "num_samples", 10, "samples to generate").only_sample(),
    int(Sampling, "max_new_tokens", 500, "tokens to generate per sample").only_sample(),
    float(Sampling, "temperature", 0.8,
          "below 1: more predictable; above 1: more varied; 0: always the most likely token")
        .only_sample(),
    int(Sampling, "top_k", 200, "sample from the k most likely tokens only; 0 = all").only_sample(),
    float(Sampling, "top_p", 1.0,
          "sample from the fewest tokens that have this probability together; 1 = all")
        .only_sample(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_consistent() {
        for (index, key) in KEYS.iter().enumerate() {
            assert!(KEYS[..index].iter().all(|other| other.name != key.name), "{}", key.name);
            assert!(key.train || key.sample, "{} is used by no command", key.name);
            for command in [Command::Train, Command::Sample] {
                let default = key.default_for(command);
                assert_eq!(key.accept(default.clone()), Ok(default), "{}", key.name);
            }
            let end = key.doc.ends_with('.');
            assert_eq!(key.values.obsolete(key.doc), Vec::<&str>::new(), "{}", key.name);
            assert!(!key.doc.is_empty() && !key.doc.contains(['\n', '|']) && !end, "{}", key.name);
        }
        let order = |key: &Key| Group::ALL.iter().position(|&group| group == key.group);
        assert!(KEYS.windows(2).all(|pair| order(&pair[0]) <= order(&pair[1])));
    }

    #[test]
    fn argument_texts_become_the_keys_type() {
        let accept = |name: &str, text: &str| Key::find(name).unwrap().accept_text(text);
        let string = |text: &str| Value::Str(text.to_string());
        for (name, text, want) in [
            ("batch_size", "32", Ok(Value::Int(32))),
            ("batch_size", " 1_000 ", Ok(Value::Int(1000))),
            ("batch_size", "5*8", Ok(Value::Int(40))),
            ("batch_size", "0x10", Ok(Value::Int(16))),
            ("batch_size", "12.0", Err(Value::Float(12.0))),
            ("batch_size", "True", Err(Value::Bool(true))),
            ("batch_size", "'3'", Err(string("3"))),
            ("batch_size", "many", Err(string("many"))),
            ("batch_size", "", Err(string(""))),
            ("dropout", "0", Ok(Value::Float(0.0))),
            ("dropout", "-.5", Ok(Value::Float(-0.5))),
            ("learning_rate", "1", Ok(Value::Float(1.0))),
            ("learning_rate", "6e-4", Ok(Value::Float(6e-4))),
            ("compile", "False", Ok(Value::Bool(false))),
            ("compile", "true", Ok(Value::Bool(true))),
            ("compile", "1", Err(Value::Int(1))),
            ("compile", "'False'", Err(string("False"))),
            ("start", "123", Ok(string("123"))),
            ("start", "True", Ok(string("True"))),
            ("start", "'a' \"b\\n\"", Ok(string("ab\n"))),
            ("start", "'a' + 'b'", Ok(string("'a' + 'b'"))),
            ("start", r"\n", Ok(string(r"\n"))),
            ("start", "it's", Ok(string("it's"))),
            ("start", "", Ok(string(""))),
            ("dataset", "a=b", Ok(string("a=b"))),
            ("grad_checkpoint", "true", Ok(Value::Bool(true))),
            ("grad_checkpoint", "auto", Ok(string("auto"))),
            ("grad_checkpoint", "'auto'", Ok(string("auto"))),
            ("offload", "False", Ok(Value::Bool(false))),
            ("vram", "8000000000", Ok(Value::Int(8_000_000_000))),
            ("vram", "11.69GiB", Ok(string("11.69GiB"))),
            ("vram", "'80%'", Ok(string("80%"))),
            ("vram", "True", Err(Value::Bool(true))),
        ] {
            assert_eq!(accept(name, text), want, "--{name}={text}");
        }
    }
}
