//! `fitgpt plan`: the bill before the run, for this machine or for a card by name. It needs no data
//! set and touches no device.

use super::{environment, line, settings, show};
use crate::bill::{self, HostMemory};
use crate::device::{self, Device};
use crate::flags::{FlagSet, flags};
use crate::plan_report::{PlanReport, arena_map, document, sentence, timeline};
use crate::{measure, refusal, run_length, screen, sweep};
use ::train::save::Document;
use ::train::{TrainError, setup};
use model::Dims;
use plan::hardware::{CARDS, Card};
use plan::report::Bill;
use search::{Machine, Planned, SearchError, plan_again, plan_for, suggestions};
use serde_json::{Value, json};
use spec::{Command, Environment, InitFrom, Memory, RunSpec, Settings, SpecError, Values, resolve};
use std::path::Path;

flags! {
    /// What `plan` takes beside keys.
    pub struct Flags {
        /// a card by name, with the memory a program gets of it; `--gpu list` lists them
        gpu: Option<String> = "--gpu", "NAME" Values::Card;
        /// so much memory: '11.69GiB', '8GB', or '80%' of the card that --gpu names; without --gpu,
        /// of the GPU that is here if it has as much
        vram: Option<String> = "--vram", "SIZE" Values::Any;
        /// one JSON document (fitgpt.plan/1, docs/plan-json.md) on standard output
        json: bool = "--json";
        /// the arena as a picture: time across, address up, coloured by role; - is standard output
        svg: Option<String> = "--svg", "FILE" Values::File;
        /// a row for each value of a key; a width gets heads that divide it; repeat it for a grid
        sweep: Vec<String> = "--sweep", "KEY=A,B,C" Values::Key;
        /// run the plan's steps here once, and predict by their times from now on
        measure: bool = "--measure";
    }
}

/// The command's row.
pub static COMMAND: super::Command = super::Command {
    name: "plan",
    about: "the bill before the run: memory by role and phase, the plan, its speed",
    text: &[
        "Plans a training run and shows the bill: every byte by role, the peak of each phase, how \
         the batch is cut, what is recomputed, how fast it will be. It needs no data set and no \
         GPU.",
    ],
    usage: &[line("fitgpt plan [config.py|config.toml ...] [--key=value ...] [flags]", "")],
    examples: &[
        line("fitgpt plan", "the built-in run on this CPU"),
        line("fitgpt plan config/case_a_124m_b64.py --gpu 'RTX 4070'", ""),
        line("fitgpt plan config/case_a_124m_b64.py --vram 8GiB --json", ""),
        line("fitgpt plan config/train_gpt2.py --gpu 'RTX 3060' --sweep batch_size=8,16,32", ""),
    ],
    notes: &[],
    lists_data_sets: false,
    arguments: &[Values::File],
    flags: Flags::TABLE,
    closing: &[
        "Both --gpu and --vram plan for CUDA in the config's dtype. Exit code 3: it does not fit; \
         what is missing, the largest tensors and settings that fit are told.",
    ],
    keys: Some(Command::Train),
    run,
};

/// Names that a refusal of a GPU's name gives.
const NEAREST: usize = 4;

/// Rates to choose a plan by for a card that is known by its memory alone: the project's own 12 GB
/// card. No prediction is made of them.
const UNNAMED: &str = "RTX 4070";

/// What predictions rest on.
const QUICK: &str = "a quick measurement";
const STEP_TIMES: &str = "measured step times";
const TABLE: &str = "the table of GPUs";

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let (flags, rest) = Flags::read(arguments)?;
    if flags.gpu.as_deref() == Some("list") {
        return list_gpus(flags.json);
    }
    if !flags.sweep.is_empty() {
        return sweep::run(&flags, &rest);
    }
    let case = Case::new(&Elsewhere::of(&flags), &rest)?;
    let json = flags.json;
    let is_picture = flags.svg.as_deref() == Some("-");
    if !json && !is_picture {
        case.introduce();
    }
    if flags.measure {
        case.measure(json)?;
    }
    let report = match case.plan() {
        Ok(report) => report,
        Err(TrainError::Search(SearchError::DoesNotFit(found))) => {
            if json {
                show_json(&document::of_refusal(&case.run, &case.machine, &found, case.named))?;
            }
            refusal::show(&found, case.named);
            return Ok(3);
        }
        Err(other) => {
            if json && other.exit_code() == 3 {
                show_json(&document::of_error(&case.run, &case.machine, &other.to_string()))?;
            }
            return Err(other);
        }
    };
    match flags.svg.as_deref() {
        Some("-") if json => {
            let what = "--svg - and --json both write to standard output: give --svg a file";
            return Err(SpecError::Conflict { what: what.to_string() }.into());
        }
        Some("-") => return show(&arena_map::svg(&report)).map(|()| 0),
        Some(path) => write_picture(path, &arena_map::svg(&report))?,
        None => {}
    }
    if json {
        show_json(&document::of(&report))?;
        return Ok(0);
    }
    show_text(&report)?;
    if let Some(path) = flags.svg.as_deref() {
        screen::line(&format!("arena map: {path}"));
    }
    Ok(0)
}

/// The cards that `--gpu` knows.
fn list_gpus(json: bool) -> Result<u8, TrainError> {
    if json {
        let row = |gpu: &Card| {
            json!({
                "name": gpu.name,
                "memory_bytes": gpu.hardware(false).memory.get(),
                "supported": gpu.is_supported(),
            })
        };
        let all: Vec<Value> = CARDS.iter().map(row).collect();
        return show_json(&json!({ "schema": document::SCHEMA, "gpus": all })).map(|()| 0);
    }
    let row = |gpu: &Card| {
        let memory = gpu.hardware(false).memory.to_string();
        let mark = if gpu.is_supported() { "" } else { "  plan only: `train` refuses it" };
        format!("{:<22} {memory:>10}{mark}\n", gpu.name)
    };
    show(&CARDS.iter().map(row).collect::<String>())?;
    Ok(0)
}

/// Where to plan for, as flags say it: a card, its memory; neither where it is this machine.
#[derive(Default)]
pub struct Elsewhere<'a> {
    gpu: Option<&'a str>,
    vram: Option<&'a str>,
}

impl Elsewhere<'_> {
    /// What `plan`'s flags say.
    pub fn of(flags: &Flags) -> Elsewhere<'_> {
        Elsewhere { gpu: flags.gpu.as_deref(), vram: flags.vram.as_deref() }
    }
}

/// A run and where it is to be planned.
pub struct Case {
    /// What was asked for.
    pub run: RunSpec,
    /// The model's sizes.
    pub dims: Dims,
    /// Where.
    pub machine: Machine,
    /// Whether predictions can be made.
    pub named: bool,
    /// This machine, where the plan is for it.
    pub here: Option<Device>,
    /// The run that is to go on.
    before: Option<Document>,
    notices: Vec<String>,
}

impl Case {
    /// From flags and the arguments that are no flags.
    pub fn new(flags: &Elsewhere<'_>, arguments: &[String]) -> Result<Case, TrainError> {
        let mut arguments = arguments.to_vec();
        if let Some(size) = flags.vram {
            arguments.push(format!("--vram={size}"));
        }
        let gpu = flags.gpu.map(find_gpu).transpose()?;
        if gpu.is_some() || flags.vram.is_some() {
            arguments.push("--device=cuda".to_string());
        }
        let mut settings = settings(Command::Train, &arguments)?;
        let preset = settings.uses_preset();
        // `--vram` alone is a limit on the GPU that is here, unless it has less than that.
        let elsewhere = gpu.is_some() || (flags.vram.is_some() && !is_here(&settings)?);
        let present = if elsewhere { 0 } else { device::gpu_count() };
        let on_gpu = elsewhere || (present == 0 && speaks_of_a_gpu(&settings)?);
        let environment =
            Environment { cuda_devices: present.max(u32::from(on_gpu)), ..environment() };
        let resumed = setup::checkpoint_to_resume(&mut settings, &environment)?;
        let (saved, unused) = resumed.unzip();
        let (mut run, found) = resolve(&settings, &environment)?;
        let found = found.into_iter().chain(unused.into_iter().flatten());
        let mut notices: Vec<String> = found.map(|notice| notice.to_string()).collect();
        if preset {
            notices.push("no config, no dataset: the built-in preset of `train`".to_string());
        }
        let dims = match &saved {
            Some(document) => setup::resumed_dims(&mut run, document)?,
            None => {
                let (rows, notice) = vocabulary(&run)?;
                notices.extend(notice);
                run.dims(rows)?
            }
        };
        if let InitFrom::Gpt2(name) = run.init_from {
            notices.push(format!(
                "init_from='{}': planned with its sizes, but `train` refuses it: this version \
                 cannot read OpenAI's weights yet",
                name.word()
            ));
        }
        let before = saved.filter(|_| !run.eval_only);
        if !on_gpu {
            let here = Device::find(run.device, None)?;
            let machine = here.machine(&run)?;
            notices.extend(device::host_notice(&run));
            return Ok(Case { run, dims, machine, named: true, here: Some(here), before, notices });
        }
        notices.extend(gpu.filter(|gpu| !gpu.is_supported()).map(too_old));
        notices.extend(gpu.and_then(|gpu| above_the_card(gpu, &run)));
        let machine = gpu_machine(gpu, &run)?;
        let (head, most) = (dims.n_embd / dims.n_head, cuda::largest_head(machine.compute));
        if head > most {
            let what = "`train` has kernels for heads of at most";
            notices.push(format!("heads of {head} ({}): {what} {most}", machine.compute));
        }
        let named = gpu.is_some_and(Card::is_supported);
        Ok(Case { run, dims, machine, named, here: None, before, notices })
    }

    /// The lines before the bill.
    pub fn introduce(&self) {
        for notice in &self.notices {
            screen::notice(notice);
        }
    }

    /// Runs the plan here and keeps the times of its steps.
    fn measure(&self, quiet: bool) -> Result<(), TrainError> {
        let Some(here) = &self.here else {
            let what = "--measure runs the plan here: leave out --gpu, --vram and device='cuda'";
            return Err(SpecError::Conflict { what: what.to_string() }.into());
        };
        let say = |text: &str| screen::note(&format!("note: {text}"));
        let plan = |machine: &Machine| self.planned(machine);
        let mut machine = self.machine.clone();
        let loaded = here.load_planned(&self.run, &mut machine, &[], &say, plan)?;
        let (planned, mut backend) = loaded;
        let vocabulary = self.dims.vocab_size;
        let times = measure::time_segments(&mut *backend, &planned.program, vocabulary)?;
        let times = measure::op_times(&planned.plan, &times, &here.measured(&self.run));
        let kept = measure::keep(&times, here)?;
        let place =
            kept.map_or("nowhere: HOME is not set".to_string(), |p| p.display().to_string());
        if !quiet {
            let count = times.steps.len();
            screen::line(&format!("measured {count} kinds of steps, kept in {place}"));
        }
        Ok(())
    }

    /// The plan that a resumed run was saved with, if it still serves; else a new one.
    pub fn planned(&self, machine: &Machine) -> Result<Planned, TrainError> {
        let Case { run, dims, .. } = self;
        let stored = self.before.as_ref().and_then(|document| document.plan.as_ref());
        let again = stored.map(|cut| plan_again(run, *dims, machine, cut)).transpose()?;
        if let Some(Err(why)) = &again {
            screen::note(&format!("the saved plan is not used again: {why}"));
        }
        match again {
            Some(Ok(planned)) => Ok(planned),
            _ => Ok(plan_or_suggest(run, *dims, machine, self.here.as_ref())?),
        }
    }

    /// The plan, or a refusal with suggestions.
    pub fn plan(&self) -> Result<PlanReport, TrainError> {
        let Case { run, dims, machine, .. } = self;
        let planned = self.planned(machine)?;
        let done = self.before.as_ref().map_or(0, |document| document.progress.iteration);
        let left = &run_length::left_of(run, done);
        let (prediction, basis) = match &self.here {
            Some(here) => {
                let rates = measure::rates(here, run);
                let basis = match (rates.times.is_empty(), here) {
                    (true, Device::Cpu(_)) => QUICK,
                    (true, Device::Cuda(_)) => TABLE,
                    (false, _) => STEP_TIMES,
                };
                (Some(planned.predict(left, &rates)), basis)
            }
            None => (self.named.then(|| planned.predict(left, &machine.hardware)), TABLE),
        };
        let (bill, host) = (Bill::new(&planned.plan), host_memory(run, &planned, machine));
        let (run, machine) = (run.clone(), machine.clone());
        Ok(PlanReport { run, dims: *dims, machine, planned, bill, prediction, basis, host })
    }
}

/// A plan, or a refusal with settings that fit. A refusal measures nothing: memory is short. The
/// table of GPUs, or step times that were kept, say how fast the suggestions are; round figures for
/// any CPU do not.
pub fn plan_or_suggest(
    run: &RunSpec,
    dims: Dims,
    machine: &Machine,
    here: Option<&Device>,
) -> Result<Planned, SearchError> {
    plan_for(run, dims, machine).map_err(|error| match error {
        SearchError::DoesNotFit(mut refusal) => {
            let times = here.map(measure::find).unwrap_or_default();
            let is_guess = times.is_empty() && matches!(here, Some(Device::Cpu(_)));
            let rates = plan::hardware::Hardware { times, ..machine.hardware.clone() };
            refusal.suggestions = suggestions(run, dims, machine, &rates);
            for one in refusal.suggestions.iter_mut().filter(|_| is_guess) {
                one.tokens_per_second = None;
            }
            SearchError::DoesNotFit(refusal)
        }
        other => other,
    })
}

/// Whether the first GPU of this machine has the memory that settings ask for.
fn is_here(settings: &Settings) -> Result<bool, SpecError> {
    let (run, _) = resolve(settings, &Environment { cuda_devices: 1, ..environment() })?;
    let memory = device::gpu_memory(run.device);
    Ok(match run.vram {
        Memory::Bytes(asked) => memory.is_some_and(|memory| asked.get() <= memory),
        Memory::Auto | Memory::Percent(_) => memory.is_some(),
    })
}

/// Whether settings alone, without a flag, are for a GPU: a device of theirs, or its memory.
fn speaks_of_a_gpu(settings: &Settings) -> Result<bool, SpecError> {
    let (run, _) = resolve(settings, &Environment { cuda_devices: 1, ..environment() })?;
    Ok(match run.device {
        spec::RequestedDevice::Cpu => false,
        spec::RequestedDevice::Cuda(_) => true,
        spec::RequestedDevice::Auto => run.vram != Memory::Auto,
    })
}

/// What is said of a card that `train` has no kernels for.
fn too_old(card: &Card) -> String {
    let name = card.name;
    format!(
        "`train` refuses the {name}: its kernels need compute capability 8.0 (RTX 30 series, A100 \
         or newer). This plan is for memory only; no speed is predicted"
    )
}

/// No card gives more than it has.
fn above_the_card(gpu: &Card, run: &RunSpec) -> Option<String> {
    let memory = gpu.hardware(false).memory;
    match run.vram {
        Memory::Bytes(asked) if asked > memory => {
            let name = gpu.name;
            Some(format!("vram={asked}: the {name} has {memory}; planning with that"))
        }
        _ => None,
    }
}

/// A card of the table, or the names that are alike.
pub fn find_gpu(name: &str) -> Result<&'static Card, SpecError> {
    Card::find(name).ok_or_else(|| {
        let shown: String = name.chars().take(40).collect();
        let nearest = Card::nearest(name, NEAREST, strsim::levenshtein).join(", ");
        let what = format!(
            "--gpu '{shown}' is not in the table; the nearest are {nearest} (--gpu list lists all)"
        );
        SpecError::Conflict { what }
    })
}

/// A card by name, or by the size of its memory alone.
fn gpu_machine(gpu: Option<&Card>, run: &RunSpec) -> Result<Machine, SpecError> {
    let single = run.dtype == spec::RequestedDtype::Float32;
    let need = |what: &str| SpecError::Conflict { what: what.to_string() };
    let mut device = match gpu {
        Some(gpu) => gpu.hardware(single),
        None => find_gpu(UNNAMED)?.hardware(single),
    };
    let budget = match (run.vram, gpu) {
        (Memory::Bytes(bytes), Some(_)) => bytes.min(device.memory),
        (Memory::Bytes(bytes), None) => bytes,
        (Memory::Auto, Some(_)) => device.memory,
        (Memory::Percent(percent), Some(_)) => device::share(device.memory.get(), percent),
        (Memory::Auto | Memory::Percent(_), None) => {
            let what = "device='cuda': no GPU is used to plan; name one, e.g. --gpu 'RTX 4070', \
                        or give its memory, e.g. --vram 8GiB";
            return Err(need(what));
        }
    };
    if gpu.is_none() {
        device.name = format!("a GPU with {budget}");
        device.memory = budget;
    }
    // The card is elsewhere, and so is its host: without a word on it there is enough.
    let host = match run.ram {
        Memory::Auto => device::share(i64::MAX as u64, 100.0),
        asked => device::host_budget(asked),
    };
    Ok(Machine::gpu(device, run, budget, host))
}

/// Rows of the vocabulary without opening a data set, and what was assumed.
fn vocabulary(run: &RunSpec) -> Result<(u64, Option<String>), TrainError> {
    if let InitFrom::Gpt2(_) = run.init_from {
        return Ok((u64::from(data::GPT2_IDS), None)); // these models bring their own
    }
    let name = &run.dataset;
    if name == data::BUILTIN {
        return Ok((u64::from(data::corpus::VOCABULARY), None));
    }
    let folder = Path::new("data").join(name);
    let meta = folder.join("meta.pkl");
    if meta.exists() {
        return Ok((u64::from(data::Meta::read(&meta)?.vocab_size), None));
    }
    if folder.join("train.bin").exists() {
        return Ok((model::GPT2_ROWS, None));
    }
    let rows = data::known::characters(name).unwrap_or(model::GPT2_ROWS);
    let notice = format!("data set '{name}' is not here: planned with a vocabulary of {rows}");
    Ok((rows, Some(notice)))
}

/// What the host keeps outside the arena. Beside a GPU the program itself is not told: drivers take
/// what they take there.
pub fn host_memory(run: &RunSpec, planned: &Planned, machine: &Machine) -> Vec<HostMemory> {
    let buffers = planned.host.rows().map(|(name, bytes)| HostMemory { name, bytes });
    let [data, program] = device::beside_any_plan(run);
    let program = machine.host.is_none().then_some(program);
    buffers.into_iter().chain([data]).chain(program).collect()
}

/// A document to standard output.
pub fn show_json(document: &Value) -> Result<(), TrainError> {
    show(&format!("{document:#}\n"))
}

fn write_picture(path: &str, svg: &str) -> Result<(), TrainError> {
    std::fs::write(path, svg).map_err(|error| TrainError::Io {
        path: path.into(),
        doing: "write",
        error,
        advice: "give another --svg",
    })
}

fn show_text(report: &PlanReport) -> Result<(), TrainError> {
    let width = screen::width();
    let parameters = model::gpt2::reported_parameters(&report.dims).map_err(SearchError::from)?;
    let Dims { n_layer, n_head, n_embd, vocab_size, .. } = report.dims;
    let title = format!(
        "{:.2}M parameters ({n_layer} layers, {n_head} heads, width {n_embd}, vocabulary \
         {vocab_size}) on {}",
        parameters as f64 / 1e6,
        report.machine.hardware.name
    );
    let mut text = screen::wrapped(&title, 2, screen::wrap_width()) + "\n\n";
    text += &bill::whole(report, width);
    text.push('\n');
    text += &timeline::text(report, width);
    let plan = screen::wrapped(&format!("plan: {}", sentence::of(report)), 6, screen::wrap_width());
    let plan = plan.strip_prefix("plan:").unwrap_or(&plan);
    text += &format!("\n{}{plan}\n", screen::strong("plan:"));
    let mut last = format!("      hash {:016x}", report.planned.hash());
    if report.prediction.is_some() {
        last += &format!(", speed by {}", report.basis);
    }
    text += &(screen::faint(&last) + "\n");
    if let Some(long) = report.prediction.and_then(|found| run_length::of(&report.run, &found)) {
        text += &(screen::wrapped(&long, 6, screen::wrap_width()) + "\n");
    }
    show(&text)
}
