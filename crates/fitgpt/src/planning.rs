//! A run and the machine to plan it for, as `plan`, its sweep and `bench` need them, and functions
//! that `train` and `doctor` share with them. The commands parse arguments and print.

use crate::bill::HostMemory;
use crate::device::{self, Device};
use crate::fleet::Fleet;
use crate::invocation::{environment, settings};
use crate::plan_choice::{Choice, Rivals};
use crate::plan_report::{FleetReport, PlanReport};
use crate::{measure, pretrained, run_length, screen};
use ::train::save::Document;
use ::train::{TrainError, setup};
use model::Dims;
use plan::Rank;
use plan::hardware::{Card, Hardware};
use plan::links::Topology;
use plan::report::Bill;
use search::{Cut, Machine, Planned, SearchError, best_plans, plan_again, plan_for, suggestions};
use spec::{Command, Environment, Memory, RunSpec, Settings, SpecError, resolve};
use std::cell::OnceCell;
use std::path::Path;

/// How many similar names the error for an unknown GPU lists.
const NEAREST: usize = 4;

/// The card whose rates are used to choose a plan if only the memory is given. No speed is
/// predicted from them.
const UNNAMED: &str = "RTX 4070";

/// What a prediction is based on: this CPU, timed now.
pub const QUICK: &str = "a quick measurement";
/// Kept times of steps.
pub const STEP_TIMES: &str = "measured step times";
/// The table of cards.
pub const TABLE: &str = "the table of GPUs";

/// The card to plan for, as given by flags; empty for this machine.
#[derive(Clone, Copy, Default)]
pub struct Elsewhere<'a> {
    /// A card by name.
    pub gpu: Option<&'a str>,
    /// The memory to use.
    pub vram: Option<&'a str>,
    /// The machines; none if one rank is planned, whatever `gpus` says.
    pub fleet: Option<Fleet<'a>>,
}

/// A run and the machine to plan it for.
pub struct Planning {
    /// The settings.
    pub run: RunSpec,
    /// The model's sizes.
    pub dims: Dims,
    /// The machine.
    pub machine: Machine,
    /// Whether the card is known, so that its speed can be predicted.
    pub named: bool,
    /// How its GPUs are connected, if there are several ranks.
    pub topology: Option<Topology>,
    /// This machine's device, if the plan is for it.
    pub here: Option<Device>,
    /// The document of the run to resume.
    before: Option<Document>,
    /// Found when it is first needed.
    choice: OnceCell<Choice>,
    notices: Vec<String>,
}

/// Whether the plan is for a GPU that is not opened here, and what the settings are resolved in.
fn surroundings(
    flags: &Elsewhere<'_>,
    settings: &Settings,
) -> Result<(bool, Environment), TrainError> {
    // `--vram` alone limits the GPU of this machine, unless that GPU has less memory.
    let elsewhere = flags.gpu.is_some() || (flags.vram.is_some() && !is_here(settings)?);
    let present = if elsewhere { 0 } else { device::gpu_count() };
    let rank = flags.fleet.map_or(Rank::ONLY, |fleet| fleet.rank(settings));
    let asks = rank.has_others() || speaks_of_a_gpu(settings)?;
    let on_gpu = elsewhere || (present == 0 && asks);
    let cuda_devices = present.max(u32::from(on_gpu));
    let environment = Environment { rank, cuda_devices, ..environment() };
    Ok((on_gpu, pretrained::sizes(settings, environment)?))
}

impl Planning {
    /// Reads flags, and the arguments that are not flags.
    pub fn new(flags: &Elsewhere<'_>, arguments: &[String]) -> Result<Planning, TrainError> {
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
        let (on_gpu, environment) = surroundings(flags, &settings)?;
        let resumed = setup::checkpoint_to_resume(&mut settings, &environment)?;
        let (saved, unused) = resumed.unzip();
        let (mut run, found) = resolve(&settings, &environment)?;
        refuse_cpu_ranks(&run)?;
        let found = found.into_iter().chain(unused.into_iter().flatten());
        let mut notices: Vec<String> = found.map(|notice| notice.to_string()).collect();
        if preset {
            notices.push("no config and no dataset: the built-in demo of `train`".to_string());
        }
        let dims = match &saved {
            Some(document) => setup::resumed_dims(&mut run, document)?,
            None => {
                let (rows, notice) = vocabulary(&run)?;
                notices.extend(notice);
                run.dims(rows)?
            }
        };
        let before = saved.filter(|_| !run.eval_only);
        let here = (!on_gpu).then(|| Device::find(run.device, None)).transpose()?;
        let mut machine = match &here {
            Some(here) => here.machine(&run)?,
            None => gpu_machine(gpu, &run)?,
        };
        match &here {
            Some(_) => notices.extend(device::host_notice(&run)),
            None => notices.extend(of_card(gpu, &run, &dims, &machine)),
        }
        let topology = connect(flags, &settings, &mut machine)?;
        let named = here.is_some() || gpu.is_some_and(Card::is_supported);
        let choice = OnceCell::new();
        Ok(Planning { run, dims, machine, named, topology, here, before, choice, notices })
    }

    /// Prints the notices before the bill.
    pub fn introduce(&self) {
        for notice in &self.notices {
            screen::notice(notice);
        }
    }

    /// The line about matmuls of the plan that `train` will time first; none if all are known.
    pub fn untimed_matmuls(&self, planned: &Planned) -> Result<Option<String>, TrainError> {
        let Some(here) = &self.here else {
            return Ok(None);
        };
        let before = self.before.as_ref().filter(|document| document.device == here.kind());
        let choices = before.map_or(&[][..], |document| &document.choices);
        let untimed = here.untimed_matmuls(&planned.plan, &self.run, choices)?;
        let text = format!(
            "{untimed} matmuls of this plan are not timed on this GPU yet: `train` and `bench` do \
             so at their start, once, in a few seconds"
        );
        Ok((untimed > 0).then_some(text))
    }

    /// The line about plans that `train` will time first; none if there is nothing to choose.
    pub fn untimed_plans(&self) -> Result<Option<String>, TrainError> {
        let open = match self.origin()? {
            Origin::New => self.choice()?.open,
            Origin::Saved { .. } | Origin::Timed(_) => 0,
        };
        let text = format!(
            "any of {open} plans may be the fastest: `train` times them at its start, once, in a \
             few seconds, and may take another than this one"
        );
        Ok((open > 0).then_some(text))
    }

    /// What is known about the plans among which `train` would choose by timing.
    fn choice(&self) -> Result<&Choice, TrainError> {
        if let Some(found) = self.choice.get() {
            return Ok(found);
        }
        let Planning { run, dims, machine, .. } = self;
        let rivals = |here| Rivals::find(run, *dims, machine, here);
        // Ranks would time differently, so `train` does not time with several.
        let here = self.here.as_ref().filter(|_| !run.rank.has_others());
        let rivals = here.map(rivals).transpose()?.flatten();
        Ok(self.choice.get_or_init(|| rivals.map(|found| found.choice()).unwrap_or_default()))
    }

    fn origin(&self) -> Result<Origin, TrainError> {
        Origin::find(self.before.as_ref(), || Ok(self.choice()?.fastest.clone()))
    }

    /// The plan that `train` would take, as far as it is known without timing.
    pub fn planned(&self, machine: &Machine) -> Result<Planned, TrainError> {
        let here = self.here.as_ref();
        self.origin()?.planned(&self.run, self.dims, machine, here, &screen::note)
    }

    /// The best plans by the cost model, whatever a resumed run was saved with.
    pub fn best(&self, machine: &Machine, count: usize) -> Result<Vec<Planned>, TrainError> {
        Ok(best_plans(&self.run, self.dims, machine, count)?)
    }

    /// The plan, or a refusal with suggestions.
    pub fn plan(&self) -> Result<PlanReport, TrainError> {
        let Planning { run, dims, machine, .. } = self;
        let planned = self.planned(machine)?;
        let done = self.before.as_ref().map_or(0, |document| document.progress.iteration);
        let left = &run_length::left_of(run, done);
        let (rates, basis) = self.rates();
        let prediction = self.named.then(|| planned.predict(left, &rates));
        let (bill, host) = (Bill::new(&planned.plan), host_memory(run, &planned, machine));
        let (run, machine, dims, fleet) = (run.clone(), machine.clone(), *dims, None);
        let mut report =
            PlanReport { run, dims, machine, planned, bill, prediction, basis, rates, fleet, host };
        let fleet = self.topology.map(|topology| FleetReport::new(&report, topology));
        report.fleet = fleet.transpose()?;
        Ok(report)
    }

    /// The rates to predict with, and what they are based on.
    fn rates(&self) -> (Hardware, &'static str) {
        let Some(here) = &self.here else { return (self.machine.hardware.clone(), TABLE) };
        let rates = measure::rates(here, &self.run);
        let basis = match (rates.times.is_empty(), here) {
            (true, Device::Cpu(_)) => QUICK,
            (true, Device::Cuda(_)) => TABLE,
            (false, _) => STEP_TIMES,
        };
        (Hardware { network: self.machine.hardware.network, ..rates }, basis)
    }
}

/// Where the plan of a run comes from.
pub enum Origin {
    /// The run was saved with it.
    Saved {
        /// The plan.
        cut: Cut,
        /// CPU threads at that time.
        threads: Option<u64>,
    },
    /// It was the fastest of several when they were timed.
    Timed(Cut),
    /// The planner searches.
    New,
}

impl Origin {
    /// The plan that a run was saved with; else the fastest of those timed, if `fastest` knows it.
    pub fn find(
        saved: Option<&Document>,
        fastest: impl FnOnce() -> Result<Option<Cut>, TrainError>,
    ) -> Result<Origin, TrainError> {
        let of = |saved: &Document| {
            Some(Origin::Saved { cut: saved.plan.clone()?, threads: saved.threads })
        };
        match saved.and_then(of) {
            Some(origin) => Ok(origin),
            None => Ok(fastest()?.map_or(Origin::New, Origin::Timed)),
        }
    }

    /// This plan if it still fits; else a line says why, and a new one is made, or refused with
    /// settings that fit.
    pub fn planned(
        &self,
        run: &RunSpec,
        dims: Dims,
        machine: &Machine,
        here: Option<&Device>,
        say: &dyn Fn(&str),
    ) -> Result<Planned, TrainError> {
        let cut = match self {
            Origin::Saved { cut, .. } | Origin::Timed(cut) => cut,
            Origin::New => return Ok(plan_or_suggest(run, dims, machine, here)?),
        };
        match plan_again(run, dims, machine, cut)? {
            Ok(planned) => {
                let layers = planned.cut().map_or(0, |now| now.layers_on_host());
                let is_permitted = machine.may_offload_activations(run);
                let fewer = cut.layers_on_host().saturating_sub(layers);
                not_on_host(fewer, is_permitted).iter().for_each(|text| say(text));
                Ok(planned)
            }
            Err(why) => {
                say(&self.refusal(&why, here.and_then(Device::threads)));
                Ok(plan_or_suggest(run, dims, machine, here)?)
            }
        }
    }

    /// The line that says why it is not taken. More threads need more scratch memory, so it names
    /// the number that a saved plan was made for.
    fn refusal(&self, why: &str, now: Option<u64>) -> String {
        match self {
            Origin::Saved { threads, .. } => {
                let hint = match (threads, now) {
                    (Some(then), Some(now)) if *then < now && why.contains("needs") => format!(
                        "; {now} threads need more memory than the {then} of the saved run: \
                         OMP_NUM_THREADS={then} may allow its plan"
                    ),
                    _ => String::new(),
                };
                format!("the saved plan cannot be reused: {why}{hint}")
            }
            Origin::Timed(_) | Origin::New => {
                format!("the plan that was fastest when timed no longer fits: {why}")
            }
        }
    }
}

/// The line about layers of a plan made before whose activations no longer go to host memory; none
/// if there are no such layers.
fn not_on_host(layers: usize, is_permitted: bool) -> Option<String> {
    let why = match is_permitted {
        true => "it has too little room now",
        false => "this run may not use it for them",
    };
    let text = format!(
        "the plan kept activations of {layers} layers in host memory; {why}, so they are \
         recomputed, which changes neither slices nor bits"
    );
    (layers > 0).then_some(text)
}

/// A plan, or a refusal with settings that fit. A refusal measures nothing: memory is short. Speeds
/// of the suggestions come from the table of GPUs or from kept step times; the rough rates of a CPU
/// are too inaccurate to show.
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

/// Whether the GPU of this machine has the memory that the settings ask for.
fn is_here(settings: &Settings) -> Result<bool, SpecError> {
    let (run, _) = resolve(settings, &Environment { cuda_devices: 1, ..environment() })?;
    let memory = device::gpu_memory(run.device);
    Ok(match run.vram {
        Memory::Bytes(asked) => memory.is_some_and(|memory| asked.get() <= memory),
        Memory::Auto | Memory::Percent(_) => memory.is_some(),
    })
}

/// Whether the settings, without a flag, ask for a GPU: by `device` or by `vram`.
fn speaks_of_a_gpu(settings: &Settings) -> Result<bool, SpecError> {
    let (run, _) = resolve(settings, &Environment { cuda_devices: 1, ..environment() })?;
    Ok(match run.device {
        spec::RequestedDevice::Cpu => false,
        spec::RequestedDevice::Cuda(_) => true,
        spec::RequestedDevice::Auto => run.vram != Memory::Auto,
    })
}

/// Links and machines are for GPUs: the ranks of a CPU run are started by MPI.
fn refuse_cpu_ranks(run: &RunSpec) -> Result<(), SpecError> {
    if run.rank.has_others() && run.device == spec::RequestedDevice::Cpu {
        let what = "--gpus and --nodes plan for GPUs: leave out device='cpu'";
        return Err(SpecError::Conflict { what: what.to_string() });
    }
    Ok(())
}

/// Connects the machine with the other ranks.
fn connect(
    flags: &Elsewhere<'_>,
    settings: &Settings,
    machine: &mut Machine,
) -> Result<Option<Topology>, SpecError> {
    let topology = flags.fleet.map(|fleet| fleet.topology(settings, &machine.hardware));
    let topology = topology.transpose()?.flatten();
    if let Some(topology) = &topology {
        machine.hardware.network = topology.network();
    }
    Ok(topology)
}

/// The notices about a card that is not here.
fn of_card(gpu: Option<&Card>, run: &RunSpec, dims: &Dims, machine: &Machine) -> Vec<String> {
    let (head, most) = (dims.n_embd / dims.n_head.max(1), cuda::largest_head(machine.compute));
    let what = "`train` has kernels for heads of at most";
    let wide = || format!("heads of {head} ({}): {what} {most}", machine.compute);
    let old = gpu.filter(|gpu| !gpu.is_supported()).map(too_old);
    let above = gpu.and_then(|gpu| above_the_card(gpu, run));
    old.into_iter().chain(above).chain((head > most).then(wide)).collect()
}

/// The notice about a card that `train` has no kernels for.
fn too_old(card: &Card) -> String {
    let name = card.name;
    format!(
        "`train` refuses the {name}: its kernels need compute capability 8.0 (RTX 30 series, A100 \
         or newer). This plan is for memory only; no speed is predicted"
    )
}

/// The notice about a `vram` larger than the card's memory.
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

/// Finds a card in the table; the error lists similar names.
pub fn find_gpu(name: &str) -> Result<&'static Card, SpecError> {
    Card::find(name).ok_or_else(|| {
        let shown: String = name.chars().take(40).collect();
        let nearest = Card::nearest(name, NEAREST, strsim::levenshtein).join(", ");
        let what = format!(
            "unknown --gpu '{shown}'; the nearest names are {nearest} (--gpu list lists all)"
        );
        SpecError::Conflict { what }
    })
}

/// A machine with this card, or with an unknown card of `vram` bytes.
pub fn gpu_machine(gpu: Option<&Card>, run: &RunSpec) -> Result<Machine, SpecError> {
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
            let what = "device='cuda': there is no GPU here to plan for; name one, e.g. --gpu \
                        'RTX 4070', or give its memory, e.g. --vram 8GiB";
            return Err(need(what));
        }
    };
    if gpu.is_none() {
        device.name = format!("a GPU with {budget}");
        device.memory = budget;
    }
    // The card's host is another machine: unless `ram` is given, assume enough memory.
    let host = match run.ram {
        Memory::Auto => device::share(i64::MAX as u64, 100.0),
        asked => device::host_budget(asked),
    };
    Ok(Machine::gpu(device, run, budget, host))
}

/// Size of the vocabulary without opening the data set, and a notice if it was assumed.
fn vocabulary(run: &RunSpec) -> Result<(u64, Option<String>), TrainError> {
    if run.init_from.pretrained().is_some() {
        return Ok((u64::from(tokenizer::GPT2_IDS), None)); // these models have their own vocabulary
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
    let notice = format!("data set '{name}' does not exist here: assuming a vocabulary of {rows}");
    Ok((rows, Some(notice)))
}

/// Host memory outside the arena. With a GPU the program itself is not listed, because the driver's
/// share of host memory is unknown.
pub fn host_memory(run: &RunSpec, planned: &Planned, machine: &Machine) -> Vec<HostMemory> {
    let buffers = planned.host.rows().into_iter().map(|(name, bytes)| HostMemory { name, bytes });
    let [data, program] = device::fixed_host_memory(run);
    let program = machine.host.is_none().then_some(program);
    buffers.into_iter().chain([data]).chain(program).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use search::StateOptions;

    #[test]
    fn a_plan_that_no_longer_fits_is_named_by_its_origin() {
        let cut = || Cut {
            slices: vec![1],
            head_chunk: 1,
            levels: Vec::new(),
            state_options: StateOptions::DEFAULT,
        };
        let timed = Origin::find(None, || Ok(Some(cut()))).unwrap();
        let want = "the plan that was fastest when timed no longer fits: it needs more";
        assert_eq!(timed.refusal("it needs more", None), want);
        let saved = Origin::Saved { cut: cut(), threads: Some(2) };
        let want = "the saved plan cannot be reused: it has 3 layers, not 2";
        assert_eq!(saved.refusal("it has 3 layers, not 2", Some(4)), want);
        let text = saved.refusal("it needs more", Some(4));
        assert!(text.ends_with("OMP_NUM_THREADS=2 may allow its plan"), "{text}");
        assert!(matches!(Origin::find(None, || Ok(None)).unwrap(), Origin::New));
    }

    #[test]
    fn activations_that_no_longer_go_to_the_host_are_said() {
        assert_eq!(not_on_host(0, true), None);
        let want = "the plan kept activations of 9 layers in host memory; it has too little room \
                    now, so they are recomputed, which changes neither slices nor bits";
        assert_eq!(not_on_host(9, true).unwrap(), want);
        assert!(not_on_host(9, false).unwrap().contains("this run may not use it for them"));
    }
}
