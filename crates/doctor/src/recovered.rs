//! Recovers the run that failed, from the settings that the log echoes and from the user's
//! arguments. The user's arguments win.

use crate::log::{Log, Origin, Setting};
use crate::torch::{TorchRun, WORKSPACE, WORKSPACE_HOPPER};
use model::{Architecture, Dims, GPT2_ROWS};
use plan::Dtype;
use search::machine::gpu_format;
use spec::{Command, Environment, KEYS, RunSpec, Settings, SpecError, World, resolve};

/// The settings of the run that the doctor examines.
#[derive(Clone, Debug, PartialEq)]
pub struct RecoveredRun {
    /// Every key, resolved.
    pub run: RunSpec,
    /// The model's sizes.
    pub dims: Dims,
    /// The run as PyTorch executes it.
    pub torch: TorchRun,
    /// Keys in the config files that nanoGPT does not know.
    pub foreign: Vec<String>,
    /// Config files that were named.
    pub files: Vec<String>,
    /// Every given key with its value, including those from files.
    pub settings: Vec<Setting>,
    /// Keys in the log that nanoGPT does not know: a fork's.
    pub unknown_keys: Vec<String>,
    /// What is wrong with the settings themselves. The run is examined with the nearest sound ones.
    pub defects: Vec<Defect>,
    /// The differences from nanoGPT's defaults, as arguments.
    pub arguments: Vec<String>,
}

/// Settings with which the program cannot run at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// `n_head` does not divide `n_embd`.
    Heads {
        /// Width of the model.
        n_embd: u64,
        /// Heads.
        n_head: u64,
        /// The nearest number of heads that does; the run is examined with it.
        nearest: u64,
    },
}

/// Keys of ours that nanoGPT ignores in a file.
const NOT_NANOGPT: [&str; 4] =
    ["eval_batch_size", "eval_block_size", "grad_checkpoint", "optimizer_state"];

impl RecoveredRun {
    /// Recovers a run from a log and arguments; `None` if neither describes the run. `characters`
    /// gives the vocabulary of a data set of characters that is known by name.
    pub fn recover(
        log: Option<&Log>,
        given: &[String],
        world: &World<'_>,
        card: Option<&str>,
        characters: fn(&str) -> Option<u64>,
    ) -> Result<Option<RecoveredRun>, SpecError> {
        // nanoGPT's defaults belong to nanoGPT only.
        let log = log.filter(|log| log.program.program.is_nanogpt());
        let echoed = log.map_or(Vec::new(), |log| shown(log, given, world));
        let told = log.is_some_and(|log| log.run.parameters.is_some() || log.run.has_beginning);
        if echoed.is_empty() && given.is_empty() && !told {
            return Ok(None);
        }
        // Naming a data set selects nanoGPT's defaults instead of those of the built-in run.
        let usual = KEYS.iter().find(|key| key.name == "dataset");
        let usual = usual.map(|key| key.default_for(Command::Train).plain());
        let first = [format!("--dataset={}", usual.unwrap_or_default())];
        let typed: Vec<String> = first.iter().chain(&echoed).chain(given).cloned().collect();
        let rows = |run: &RunSpec| {
            let said = log.and_then(|log| log.run.vocab_size).or_else(|| characters(&run.dataset));
            said.unwrap_or(GPT2_ROWS)
        };
        let Resolved { settings, run, dims, defects } = Resolved::of(typed, world, rows)?;
        let repaired = defects.iter().map(|Defect::Heads { nearest, .. }| heads(*nearest));
        let arguments = echoed.into_iter().chain(given.iter().cloned()).chain(repaired).collect();
        let foreign =
            NOT_NANOGPT.iter().filter(|key| settings.get(key).is_some_and(|s| s.is_given()));
        let named = settings.iter().filter(|setting| setting.is_given());
        let named = named.filter(|setting| setting.key.name != "device");
        let typed_any = !given.is_empty();
        let origin = |key: &str| {
            let typed = format!("--{key}=");
            let given = given.iter().any(|argument| argument.starts_with(&typed));
            let shown = log.and_then(|log| log.run.settings.iter().rfind(|row| row.key == key));
            // A config file may give it, too.
            let default = if typed_any { Origin::Given } else { Origin::Assumed };
            shown.filter(|_| !given).map_or(default, |row| row.origin)
        };
        let named = named.map(|setting| Setting {
            key: setting.key.name.to_string(),
            value: setting.value.plain(),
            origin: origin(setting.key.name),
        });
        Ok(Some(RecoveredRun {
            settings: named.collect(),
            unknown_keys: log.map_or(Vec::new(), |log| log.run.unknown_keys.clone()),
            defects,
            torch: torch_run(&run, dims, log, card),
            foreign: foreign.map(ToString::to_string).collect(),
            files: log.map_or(Vec::new(), |log| log.run.files.clone()),
            arguments,
            run,
            dims,
        }))
    }

    /// Parameters of the model, position embeddings included.
    pub fn parameters(&self) -> u64 {
        let reported = self.run.architecture().reported_parameters(&self.dims).unwrap_or(0);
        reported.saturating_add(self.dims.block_size.saturating_mul(self.dims.n_embd))
    }

    /// Whether the log's parameter count and tokens per iteration match this run.
    pub fn agrees_with(&self, log: &Log) -> bool {
        let counted = self.run.architecture().reported_parameters(&self.dims);
        let model = log.run.parameters.is_none_or(|said| said.is(counted.unwrap_or(0)));
        let tokens = self.run.tokens_per_iteration();
        model && log.run.tokens_per_iteration.is_none_or(|said| said == tokens)
    }
}

/// The settings that a log shows, as arguments. Those with which no run is possible are left out,
/// since a log must not end in a usage error.
fn shown(log: &Log, given: &[String], world: &World<'_>) -> Vec<String> {
    let rows = &log.run.settings;
    let last = |at: usize, row: &Setting| !rows[at + 1..].iter().any(|later| later.key == row.key);
    let known = |row: &Setting| {
        KEYS.iter().any(|known| known.name == row.key && known.used_by(Command::Train))
    };
    // Of several values of a key, the last one counts.
    let rows = rows.iter().enumerate().filter(|(at, row)| known(row) && last(*at, row));
    let arguments = rows.map(|(_, row)| format!("--{}={}", row.key, row.value));
    let readable: Vec<String> = arguments.filter(|one| is_readable(one, world)).collect();
    let sound = |typed: &[String]| {
        let first = "--dataset=x".to_string();
        let all = [first].iter().chain(typed).chain(given).cloned().collect();
        Resolved::of(all, world, |_| GPT2_ROWS).is_ok()
    };
    // What the user types is wrong by itself, or nothing is.
    if sound(&readable) || !sound(&[]) {
        return readable;
    }
    readable.into_iter().fold(Vec::new(), |mut kept, one| {
        kept.push(one);
        if !sound(&kept) {
            kept.pop();
        }
        kept
    })
}

/// What settings mean.
struct Resolved {
    settings: Settings,
    run: RunSpec,
    dims: Dims,
    defects: Vec<Defect>,
}

impl Resolved {
    /// Resolves arguments. Heads that do not divide the width are replaced by the nearest number
    /// that does: memory hardly depends on it.
    fn of(
        mut typed: Vec<String>,
        world: &World<'_>,
        rows: impl Fn(&RunSpec) -> u64,
    ) -> Result<Resolved, SpecError> {
        typed.push("--device=cuda".to_string());
        let environment = Environment { cuda_devices: 1, ..Environment::default() };
        let settings = Settings::read(Command::Train, &typed, world)?;
        let (run, _) = resolve(&settings, &environment)?;
        let (n_embd, n_head, pairs) = match run.dims(rows(&run)) {
            Ok(dims) => return Ok(Resolved { settings, run, dims, defects: Vec::new() }),
            Err(SpecError::Heads { n_embd, n_head, nearest }) => (n_embd, n_head, nearest),
            Err(other) => return Err(other),
        };
        let nearest = pairs.iter().find(|pair| pair.n_embd == n_embd).map_or(1, |pair| pair.n_head);
        typed.push(heads(nearest));
        let settings = Settings::read(Command::Train, &typed, world)?;
        let (run, _) = resolve(&settings, &environment)?;
        let dims = run.dims(rows(&run))?;
        Ok(Resolved {
            settings,
            run,
            dims,
            defects: vec![Defect::Heads { n_embd, n_head, nearest }],
        })
    }
}

fn heads(count: u64) -> String {
    format!("--n_head={count}")
}

/// Whether we can read an echoed line. It may be Python code that only Python can evaluate; such
/// lines are skipped.
fn is_readable(argument: &str, world: &World<'_>) -> bool {
    let all = ["--dataset=x".to_string(), argument.to_string()];
    Settings::read(Command::Train, &all, world).is_ok()
}

fn torch_run(run: &RunSpec, dims: Dims, log: Option<&Log>, card: Option<&str>) -> TorchRun {
    let hopper = card.is_some_and(|name| name.contains("H100") || name.contains("H200"));
    let large = log.and_then(|log| log.message.capacity.as_ref()).map_or(0, |size| size.bytes);
    let hopper = hopper || large > 100 << 30;
    let compiled = match log {
        Some(log) if log.traceback.compiled => true,
        Some(log) if log.traceback.is_eager() => false,
        _ => run.compile,
    };
    let Architecture::Gpt2(model) = run.architecture();
    TorchRun {
        model,
        dims,
        batch: run.batch_size,
        eval_batch: run.batch_size,
        positions: run.block_size,
        compute: match run.dtype {
            spec::RequestedDtype::Float32 => Dtype::F32,
            other => gpu_format(other),
        },
        compiled,
        dropout: run.dropout,
        accumulation: run.gradient_accumulation_steps,
        checkpointed: false,
        keeps_logits: true,
        resumed: run.init_from == spec::InitFrom::Resume,
        workspace: if hopper { WORKSPACE_HOPPER } else { WORKSPACE },
    }
}
