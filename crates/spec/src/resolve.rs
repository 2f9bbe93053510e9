//! Turns settings into a [`RunSpec`]. Every check of a value, or of two values together, is here
//! and only here. Each error gives the value and what to do next.

use crate::error::{SpecError, shown};
use crate::keys::Command;
use crate::memory::Memory;
use crate::run_spec::{
    CheckpointFormat, Connection, Gelu, GradCheckpoint, InitFrom, MetricsKeys, Offload,
    OptimizerState, Pretrained, PretrainedModel, RanksKeys, ReduceDtype, RequestedDevice,
    RequestedDtype, Residual, RunSpec, Sampler, SamplingKeys, Sync,
};
use crate::settings::{Setting, Settings};
use crate::value::Value;
use plan::Rank;
use plan::ops::GeluKind;
use std::fmt;

/// What the process finds around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Which of the run's ranks this process is.
    pub rank: Rank,
    /// Number of GPUs that this program can use.
    pub cuda_devices: u32,
    /// What the files of `init_from`'s model say, if it names one and they were read.
    pub pretrained: Option<PretrainedModel>,
}

/// One line about a setting that has another effect than its user may expect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingNotice {
    /// The key.
    pub key: &'static str,
    /// The whole line.
    pub text: String,
}

impl fmt::Display for SettingNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Checks all settings and returns the run that they describe, with notices.
pub fn resolve(
    settings: &Settings,
    environment: &Environment,
) -> Result<(RunSpec, Vec<SettingNotice>), SpecError> {
    let typed = Typed { settings };
    let mut run = typed.run()?;
    if let InitFrom::Pretrained(named) = &mut run.init_from {
        named.model = environment.pretrained.or(named.model);
        let most = named.model.map_or(u64::MAX, |model| model.dims.block_size);
        if !typed.setting("block_size").is_given() && run.block_size > most {
            run.block_size = most;
            run.eval_block_size = typed.or_same("eval_block_size", most)?;
        }
    }
    run.rank = environment.rank;
    check_products(&run)?;
    check_pairs(&typed, &run)?;
    check_ranks(&typed, &run)?;
    let notices = notices(&typed, &run, environment);
    Ok((run, notices))
}

/// The largest size accepted; ids and positions are 32 bits wide.
const LARGEST: i64 = 1 << 31;

/// The largest count of samples or tokens: every smaller integer is exact in an f64.
const MOST: i64 = 1 << 53;

/// Limits of iterations and of batches: they are 32 and 16 bits of the key of a random stream.
const LAST_ITERATION: i64 = u32::MAX as i64;
const MOST_BATCHES: i64 = 1 << 16;

/// More GPUs than one machine has.
const MOST_GPUS: i64 = 64;

/// Reads settings by type.
struct Typed<'a> {
    settings: &'a Settings,
}

impl Typed<'_> {
    fn setting(&self, name: &str) -> &Setting {
        self.settings.get(name).expect("keys.rs has a row for every key that is resolved here")
    }

    fn out_of_range(&self, name: &str, needs: String) -> SpecError {
        let Setting { key, value, origin } = self.setting(name).clone();
        SpecError::OutOfRange { name: key.name, given: value, at: origin, needs }
    }

    /// A whole number within a range.
    fn whole(&self, name: &str, least: i64, most: i64) -> Result<u64, SpecError> {
        let setting = self.setting(name);
        match setting.value {
            Value::Int(number) if (least..=most).contains(&number) => Ok(number as u64),
            _ => {
                let limit = match setting.value {
                    Value::Int(number) if number > most => format!("at most {most}"),
                    _ => format!("at least {least}"),
                };
                let default = setting.key.default_for(self.settings.command());
                Err(self
                    .out_of_range(name, format!("it must be {limit}; the default is {default}")))
            }
        }
    }

    fn size(&self, name: &str) -> Result<u64, SpecError> {
        self.whole(name, 1, LARGEST)
    }

    fn iterations(&self, name: &str) -> Result<u64, SpecError> {
        self.whole(name, 0, LAST_ITERATION)
    }

    fn batches(&self, name: &str) -> Result<u64, SpecError> {
        self.whole(name, 1, MOST_BATCHES)
    }

    /// A finite number that satisfies `test`; `range` describes it in the message.
    fn number(&self, name: &str, test: fn(f64) -> bool, range: &str) -> Result<f64, SpecError> {
        let setting = self.setting(name);
        match setting.value {
            Value::Float(number) if number.is_finite() && test(number) => Ok(number),
            _ => {
                let default = setting.key.default_for(self.settings.command());
                Err(self
                    .out_of_range(name, format!("it must be {range}; the default is {default}")))
            }
        }
    }

    fn fraction(&self, name: &str) -> Result<f64, SpecError> {
        self.number(name, |x| (0.0..1.0).contains(&x), "at least 0 and below 1")
    }

    fn not_negative(&self, name: &str) -> Result<f64, SpecError> {
        self.number(name, |x| x >= 0.0, "finite and at least 0")
    }

    fn flag(&self, name: &str) -> bool {
        self.setting(name).value == Value::Bool(true)
    }

    fn text(&self, name: &str) -> String {
        self.setting(name).value.plain()
    }

    fn filled(&self, name: &str) -> Result<String, SpecError> {
        let text = self.text(name);
        let bad = text.trim().is_empty() || text.contains('\0');
        let needs = || format!("it must not be empty; the default is {}", self.default(name));
        if bad { Err(self.out_of_range(name, needs())) } else { Ok(text) }
    }

    fn default(&self, name: &str) -> Value {
        self.setting(name).key.default_for(self.settings.command())
    }

    /// A word of the key, converted by `meaning`.
    fn word<T>(&self, name: &str, meaning: fn(&str) -> Option<T>) -> Result<T, SpecError> {
        let given = self.text(name);
        meaning(&given).ok_or_else(|| self.unknown_word(name))
    }

    fn unknown_word(&self, name: &str) -> SpecError {
        let Setting { key, value, origin } = self.setting(name).clone();
        SpecError::UnknownWord { key, given: value, at: origin }
    }

    fn memory(&self, name: &str) -> Result<Memory, SpecError> {
        let value = &self.setting(name).value;
        if Memory::lacks_unit(value) {
            let number = value.plain().trim().to_string();
            // Memory is below 200 when counted in GiB, above when counted in MiB.
            let unit = if number.parse::<f64>().is_ok_and(|n| n < 200.0) { "GiB" } else { "MiB" };
            let needs = format!("a bare number is bytes; did you mean {number}{unit}?");
            return Err(self.out_of_range(name, needs));
        }
        Memory::parse(value).ok_or_else(|| self.unknown_word(name))
    }

    fn ranks(&self) -> Result<RanksKeys, SpecError> {
        let zero = &self.setting("zero").value;
        let zero = match zero {
            Value::Int(-1) => None,
            Value::Int(0) => Some(false),
            Value::Int(1) => Some(true),
            _ => return Err(self.out_of_range("zero", "it must be 0, 1 or -1".to_string())),
        };
        let groups = self.whole("reduce_groups", 0, MOST_BATCHES)?;
        Ok(RanksKeys {
            // nanoGPT's configs may name anything; it matters only between ranks (`check_ranks`).
            backend: Connection::of(&self.text("backend")).unwrap_or(Connection::Auto),
            gpus: self.whole("gpus", 0, MOST_GPUS)?,
            zero,
            reduce_groups: (groups > 0).then_some(groups),
            reduce_dtype: self.word("reduce_dtype", ReduceDtype::of)?,
            sync: self.word("sync", Sync::of)?,
            sync_every: self.whole("sync_every", 1, LAST_ITERATION)?,
            outer_lr: self.not_negative("outer_lr")?,
            outer_momentum: self.fraction("outer_momentum")?,
        })
    }

    fn device(&self) -> Result<RequestedDevice, SpecError> {
        let text = self.text("device");
        RequestedDevice::of(&text).ok_or_else(|| match text.split(':').next() {
            Some(other @ ("mps" | "xpu" | "hip" | "rocm" | "xla" | "tpu")) => {
                let needs = format!("there is no {other} backend; use cpu, or cuda on Linux");
                self.out_of_range("device", needs)
            }
            _ => self.unknown_word("device"),
        })
    }

    fn init_from(&self) -> Result<InitFrom, SpecError> {
        let init = InitFrom::of(&self.text("init_from"));
        if init == InitFrom::Scratch && self.settings.command() == Command::Sample {
            let needs =
                "untrained weights generate noise; use 'resume', which reads out_dir's checkpoint";
            return Err(self.out_of_range("init_from", needs.to_string()));
        }
        Ok(init)
    }

    fn sampling(&self) -> Result<SamplingKeys, SpecError> {
        let top_k = self.whole("top_k", 0, MOST)?;
        Ok(SamplingKeys {
            start: self.text("start"),
            num_samples: self.whole("num_samples", 1, MOST)?,
            max_new_tokens: self.whole("max_new_tokens", 1, MOST)?,
            temperature: self.number("temperature", |x| x >= 0.0, "0 or above")?,
            top_k: (top_k > 0).then_some(top_k),
            top_p: self.number("top_p", |x| x > 0.0 && x <= 1.0, "above 0 and at most 1")?,
        })
    }

    fn metrics(&self) -> Result<MetricsKeys, SpecError> {
        let trackio = self.flag("trackio");
        let name = |key: &str| if trackio { self.filled(key) } else { Ok(self.text(key)) };
        let is_named = !self.text("wandb_run_name").trim().is_empty();
        Ok(MetricsKeys {
            tensorboard: self.flag("tensorboard"),
            csv: self.flag("csv"),
            trackio,
            ui: self.flag("ui"),
            wandb_project: name("wandb_project")?,
            wandb_run_name: is_named.then(|| name("wandb_run_name")).transpose()?,
        })
    }

    /// Off, unless a page shows the texts.
    fn eval_sample(&self) -> bool {
        match self.setting("eval_sample").is_given() {
            true => self.flag("eval_sample"),
            false => self.flag("eval_sample") || self.flag("ui"),
        }
    }

    /// A size for evaluation; 0 means the size that training uses.
    fn or_same(&self, name: &str, same: u64) -> Result<u64, SpecError> {
        let given = self.whole(name, 0, LARGEST)?;
        Ok(if given == 0 { same } else { given })
    }

    fn run(&self) -> Result<RunSpec, SpecError> {
        let (batch_size, block_size) = (self.size("batch_size")?, self.size("block_size")?);
        let grad_clip = self.not_negative("grad_clip")?;
        Ok(RunSpec {
            command: self.settings.command(),
            out_dir: self.filled("out_dir")?,
            eval_interval: self.whole("eval_interval", 1, MOST)?,
            log_interval: self.whole("log_interval", 1, MOST)?,
            eval_iters: self.batches("eval_iters")?,
            eval_sample: self.eval_sample(),
            eval_only: self.flag("eval_only"),
            always_save_checkpoint: self.flag("always_save_checkpoint"),
            checkpoint_format: self.word("checkpoint_format", CheckpointFormat::of)?,
            init_from: self.init_from()?,
            accept_changed_data: self.flag("accept_changed_data"),
            metrics: self.metrics()?,
            dataset: self.filled("dataset")?,
            gradient_accumulation_steps: self.batches("gradient_accumulation_steps")?,
            batch_size,
            block_size,
            n_layer: self.whole("n_layer", 1, model::MOST_LAYERS as i64)?,
            n_head: self.size("n_head")?,
            n_embd: self.size("n_embd")?,
            dropout: self.fraction("dropout")?,
            bias: self.flag("bias"),
            gelu: self.word("gelu", Gelu::of)?,
            learning_rate: self.not_negative("learning_rate")?,
            max_iters: self.iterations("max_iters")?,
            weight_decay: self.not_negative("weight_decay")?,
            beta1: self.fraction("beta1")?,
            beta2: self.fraction("beta2")?,
            grad_clip: (grad_clip > 0.0).then_some(grad_clip),
            decay_lr: self.flag("decay_lr"),
            warmup_iters: self.iterations("warmup_iters")?,
            lr_decay_iters: self.iterations("lr_decay_iters")?,
            min_lr: self.not_negative("min_lr")?,
            device: self.device()?,
            dtype: self.word("dtype", RequestedDtype::of)?,
            compile: self.flag("compile"),
            autotune: self.flag("autotune"),
            eval_batch_size: self.or_same("eval_batch_size", batch_size)?,
            eval_block_size: self.or_same("eval_block_size", block_size)?,
            grad_checkpoint: self.word("grad_checkpoint", GradCheckpoint::of)?,
            vram: self.memory("vram")?,
            ram: self.memory("ram")?,
            optimizer_state: self.word("optimizer_state", OptimizerState::of)?,
            offload: self.word("offload", Offload::of)?,
            residual: self.word("residual", Residual::of)?,
            seed: self.whole("seed", 0, i64::MAX)?,
            sampler: self.word("sampler", Sampler::of)?,
            ranks: self.ranks()?,
            rank: Rank::ONLY,
            sampling: self.sampling()?,
        })
    }
}

/// The tokens of an iteration and of an evaluation must fit in 63 bits.
fn check_products(run: &RunSpec) -> Result<(), SpecError> {
    let train = [run.batch_size, run.gradient_accumulation_steps, run.block_size];
    let eval = [run.eval_batch_size, run.eval_iters, run.eval_block_size];
    for (names, [a, b, c]) in [
        ("batch_size x gradient_accumulation_steps x block_size", train),
        ("eval_batch_size x eval_iters x eval_block_size", eval),
    ] {
        let product = a.checked_mul(b).and_then(|rows| rows.checked_mul(c));
        if product.is_none_or(|tokens| tokens > i64::MAX as u64) {
            let what =
                format!("{names} = {a} x {b} x {c}: more than 2^63 tokens; make one smaller");
            return Err(SpecError::Conflict { what });
        }
    }
    Ok(())
}

fn check_pairs(typed: &Typed<'_>, run: &RunSpec) -> Result<(), SpecError> {
    let RunSpec { batch_size, block_size, eval_batch_size, eval_block_size, .. } = *run;
    if eval_block_size > block_size {
        let needs = format!("it must be at most block_size={block_size}; 0 means block_size");
        return Err(typed.out_of_range("eval_block_size", needs));
    }
    if run.sampler == Sampler::Nanogpt && eval_batch_size != batch_size {
        let what = format!(
            "eval_batch_size={eval_batch_size} with sampler='nanogpt': nanoGPT evaluates batches \
             of batch_size={batch_size}; use eval_batch_size=0 or sampler='fitgpt'"
        );
        return Err(SpecError::Conflict { what });
    }
    if let InitFrom::Pretrained(Pretrained { name, model: Some(model) }) = &run.init_from {
        let most = model.dims.block_size;
        if block_size > most {
            let needs = format!("{} has {most} positions; use block_size={most}", shown(name));
            return Err(typed.out_of_range("block_size", needs));
        }
    }
    Ok(())
}

/// nanoGPT's file has one parameter's state after the other, and no place for an outer step.
fn check_saving(run: &RunSpec) -> Result<(), SpecError> {
    let what = match (run.checkpoint_format, run.ranks.sync, run.ranks.zero) {
        (CheckpointFormat::Ckpt, Sync::Diloco, _) => {
            "checkpoint_format='ckpt' cannot hold the outer step of sync='diloco'; use \
             checkpoint_format='native' and `fitgpt export --to ckpt`"
        }
        (CheckpointFormat::Ckpt, Sync::Gradients, Some(true)) => {
            "checkpoint_format='ckpt' with zero=1: nanoGPT's file would need all shards once for \
             each parameter; use zero=0, or checkpoint_format='native' and `fitgpt export --to \
             ckpt`"
        }
        _ => return Ok(()),
    };
    Err(SpecError::Conflict { what: what.to_string() })
}

/// An iteration's sequences must divide among groups, and groups among ranks.
fn check_ranks(typed: &Typed<'_>, run: &RunSpec) -> Result<(), SpecError> {
    let (ranks, groups) = (run.rank.ranks as u64, run.groups());
    if ranks > 1 {
        typed.word("backend", Connection::of)?;
        check_saving(run)?;
    }
    let sequences = run.sequences_per_iteration();
    if !groups.is_multiple_of(ranks) {
        let needs = format!("it must be a multiple of the {ranks} ranks; 0 means {ranks}");
        return Err(typed.out_of_range("reduce_groups", needs));
    }
    if !sequences.is_multiple_of(groups) {
        let (batch, steps) = (run.batch_size, run.gradient_accumulation_steps);
        let of = if groups == ranks { "ranks" } else { "groups (reduce_groups)" };
        let less = sequences / groups * groups;
        let what = format!(
            "batch_size={batch} x gradient_accumulation_steps={steps} = {sequences} sequences \
             cannot be divided among {groups} {of}; {} or {} can",
            less.max(groups),
            less + groups
        );
        return Err(SpecError::Conflict { what });
    }
    if run.ranks.sync == Sync::Diloco && !run.eval_interval.is_multiple_of(run.ranks.sync_every) {
        let every = run.ranks.sync_every;
        let needs = format!(
            "with sync='diloco' it must be a multiple of sync_every={every}, because only then all \
             ranks have the same weights; the next one is {}",
            run.eval_interval.next_multiple_of(every)
        );
        return Err(typed.out_of_range("eval_interval", needs));
    }
    if run.sampler == Sampler::Nanogpt && (groups != ranks || !run.steps_divide_among(ranks)) {
        let steps = run.gradient_accumulation_steps;
        let what = format!(
            "sampler='nanogpt' on {ranks} ranks: nanoGPT divides \
             gradient_accumulation_steps={steps} among them; use a multiple of \
             {ranks} and reduce_groups=0, or sampler='fitgpt'"
        );
        return Err(SpecError::Conflict { what });
    }
    Ok(())
}

/// Keys that have an effect on a GPU only.
const GPU_ONLY: [&str; 3] = ["vram", "offload", "residual"];

fn notices(typed: &Typed<'_>, run: &RunSpec, environment: &Environment) -> Vec<SettingNotice> {
    let mut found = Vec::new();
    let mut say = |key: &'static str, text: String| found.push(SettingNotice { key, text });
    let cpu = match run.device {
        RequestedDevice::Cpu => true,
        RequestedDevice::Auto => environment.cuda_devices == 0,
        RequestedDevice::Cuda(_) => false,
    };
    let given = |name: &str| typed.setting(name).is_given();
    if cpu && matches!(run.dtype, RequestedDtype::Bfloat16 | RequestedDtype::Float16) {
        let dtype = typed.text("dtype");
        say("dtype", format!("dtype='{dtype}' is ignored: the CPU computes in float32"));
    }
    if run.command == Command::Train {
        train_notices(typed, run, &mut say);
        if let Some(why) = why_activations_stay(typed, run).filter(|_| !cpu) {
            say("offload", why);
        }
    }
    if cpu && run.compile && given("compile") {
        say("compile", "compile=True is ignored: it has no effect on the CPU".to_string());
    }
    for name in GPU_ONLY {
        let Setting { key, value, .. } = typed.setting(name);
        let changed = *value != key.default_for(run.command);
        if cpu && changed && key.used_by(run.command) {
            let text = format!("{name}={value} is ignored on the CPU; ram limits its memory");
            say(key.name, text);
        }
    }
    found
}

/// What is written instead of wandb's metrics, and how to see it.
fn instead_of_wandb(run: &RunSpec) -> String {
    let (out_dir, keys) = (&run.out_dir, &run.metrics);
    let mut written = vec![format!("{out_dir}/log.jsonl (fitgpt compare {out_dir})")];
    if keys.tensorboard {
        written.push(format!("{out_dir}/tensorboard (tensorboard --logdir {out_dir})"));
    }
    if keys.csv {
        written.push(format!("{out_dir}/metrics.csv"));
    }
    if keys.trackio {
        written.push(format!("trackio's inbox (trackio show --project {})", keys.wandb_project));
    }
    let others = match written.len() {
        1 => "; tensorboard=True, csv=True or trackio=True writes them for other tools",
        _ => "",
    };
    let written = written.join(", ");
    format!("wandb_log=True sends nothing to wandb; the metrics are in {written}{others}")
}

/// Why `offload='activations'` has no effect on a GPU; none if it has one.
fn why_activations_stay(typed: &Typed<'_>, run: &RunSpec) -> Option<String> {
    let ignored = "offload='activations' is ignored";
    let value = &typed.setting("grad_checkpoint").value;
    match (run.offload, run.grad_checkpoint, run.rank.has_others()) {
        (Offload::Activations, GradCheckpoint::Always | GradCheckpoint::Never, _) => {
            Some(format!("{ignored}: grad_checkpoint={value} decides what every layer keeps"))
        }
        (Offload::Activations, GradCheckpoint::Auto, true) => {
            Some(format!("{ignored} in a run of several ranks"))
        }
        _ => None,
    }
}

fn train_notices(typed: &Typed<'_>, run: &RunSpec, say: &mut impl FnMut(&'static str, String)) {
    if typed.flag("wandb_log") {
        say("wandb_log", instead_of_wandb(run));
    }
    if Connection::of(&typed.text("backend")).is_none() {
        let backend = &typed.setting("backend").value;
        say("backend", format!("backend={backend} is ignored in a run of one rank"));
    }
    if run.ranks.backend == Connection::Gloo {
        say("backend", "backend='gloo' means 'auto': NCCL between GPUs, MPI between CPUs".into());
    }
    if run.sampler == Sampler::Nanogpt && run.dropout > 0.0 {
        let dropout = run.dropout;
        say(
            "sampler",
            format!(
                "sampler='nanogpt' reproduces nanoGPT only with dropout=0.0; here dropout={dropout}"
            ),
        );
    }
    if run.checkpoint_format == CheckpointFormat::Ckpt && run.gelu_kind() == GeluKind::Tanh {
        let text = "nanoGPT computes the erf form of GELU: it will read this run's ckpt.pt, but \
                    get slightly other losses than gelu='tanh'";
        say("checkpoint_format", text.to_string());
    }
    if run.decay_lr && run.min_lr > run.learning_rate {
        let (least, most) = (run.min_lr, run.learning_rate);
        let text = format!("min_lr={least} is above learning_rate={most}: the rate will rise");
        say("min_lr", text);
    }
    let (last, decayed) = (run.max_iters, run.lr_decay_iters);
    if run.decay_lr && last > decayed {
        let text = format!(
            "max_iters={last} is beyond lr_decay_iters={decayed}: the rate then stays at min_lr"
        );
        say("lr_decay_iters", text);
    }
    if run.eval_block_size != run.block_size {
        let (eval, train) = (run.eval_block_size, run.block_size);
        let text = format!(
            "eval_block_size={eval}: losses are not comparable with those at block_size={train}"
        );
        say("eval_block_size", text);
    }
    if let InitFrom::Pretrained(Pretrained { name, .. }) = &run.init_from {
        for key in ["n_layer", "n_head", "n_embd", "bias"] {
            let Setting { key, value, .. } = typed.setting(key);
            if typed.setting(key.name).is_given() {
                let name = shown(name);
                say(key.name, format!("{}={value} is ignored: {name} fixes it", key.name));
            }
        }
    }
}
