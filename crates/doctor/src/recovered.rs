//! Recovers the run that failed, from the settings that the log echoes and from the user's
//! arguments. The user's arguments win.

use crate::log::Log;
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
    pub settings: Vec<(String, String)>,
    /// The differences from nanoGPT's defaults, as arguments.
    pub arguments: Vec<String>,
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
        let echoed: Vec<String> = log
            .map_or(Vec::new(), |log| log.run.settings.clone())
            .into_iter()
            .filter(|(key, _)| {
                KEYS.iter().any(|known| known.name == key && known.used_by(Command::Train))
            })
            .map(|(key, value)| format!("--{key}={value}"))
            .filter(|argument| is_readable(argument, world))
            .collect();
        let told = log.is_some_and(|log| log.run.parameters.is_some() || log.run.has_beginning);
        if echoed.is_empty() && given.is_empty() && !told {
            return Ok(None);
        }
        // Naming a data set selects nanoGPT's defaults instead of those of the built-in run.
        let usual = KEYS.iter().find(|key| key.name == "dataset");
        let usual = usual.map(|key| key.default_for(Command::Train).plain());
        let first = [format!("--dataset={}", usual.unwrap_or_default())];
        let typed: Vec<String> = first.iter().chain(&echoed).chain(given).cloned().collect();
        let last = ["--device=cuda".to_string()];
        let all: Vec<String> = typed.iter().chain(&last).cloned().collect();
        let settings = Settings::read(Command::Train, &all, world)?;
        let (run, _) =
            resolve(&settings, &Environment { cuda_devices: 1, ..Environment::default() })?;
        let rows = log.and_then(|log| log.run.vocab_size).or_else(|| characters(&run.dataset));
        let rows = rows.unwrap_or(GPT2_ROWS);
        let dims = run.dims(rows)?;
        let foreign =
            NOT_NANOGPT.iter().filter(|key| settings.get(key).is_some_and(|s| s.is_given()));
        let named = settings.iter().filter(|setting| setting.is_given());
        let named = named.filter(|setting| setting.key.name != "device");
        let named = named.map(|setting| (setting.key.name.to_string(), setting.value.plain()));
        Ok(Some(RecoveredRun {
            settings: named.collect(),
            torch: torch_run(&run, dims, log, card),
            foreign: foreign.map(ToString::to_string).collect(),
            files: log.map_or(Vec::new(), |log| log.run.files.clone()),
            arguments: echoed.into_iter().chain(given.iter().cloned()).collect(),
            run,
            dims,
        }))
    }

    /// Whether the log's parameter count and tokens per iteration match this run.
    pub fn agrees_with(&self, log: &Log) -> bool {
        let counted = self.run.architecture().reported_parameters(&self.dims);
        let counted = counted.map_or(0.0, |n| n as f64 / 1e6);
        let model = log.run.parameters.is_none_or(|said| (counted - said).abs() < 0.006);
        let tokens = self.run.tokens_per_iteration();
        model && log.run.tokens_per_iteration.is_none_or(|said| said == tokens)
    }
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
        resumed: run.init_from == spec::InitFrom::Resume,
        workspace: if hopper { WORKSPACE_HOPPER } else { WORKSPACE },
    }
}
