//! `fitgpt train`: reads the settings, plans, and trains. `run_report` prints what comes before and
//! after the loop.

use super::{INTERRUPTED, line};
use crate::bill;
use crate::console_sink::{Bar, ConsoleSink, ConsoleSpec};
use crate::device::{Device, Seat, host_notice};
use crate::fellow_ranks::{self, Fellows, Started};
use crate::flags::{FlagSet, flags};
use crate::invocation::{environment, settings};
use crate::numbers::{duration, parse_duration};
use crate::own_text::{self, OwnText};
use crate::plan_choice::Rivals;
use crate::plan_report::sentence;
use crate::planning::{Origin, host_memory};
use crate::run_length::RunLength;
use crate::stream_sample::{self, stream_sample};
use crate::ui::UiAnswers;
use crate::ui::serve::PageFlags;
use crate::{interrupt, metric_sinks, pretrained, run_report, screen};
use ::page::{Control, Page, Registry, Settings as Served};
use ::train::TrainError;
use ::train::engine::Engine;
use ::train::feed;
use ::train::generate::{SampleRequest, generate};
use ::train::outer::OuterStep;
use ::train::run::{HostBuffers, Others, Outcome, Run};
use ::train::sampling::DrawOptions;
use ::train::save::Document;
use ::train::saved_run::SavedRun;
use ::train::setup::Setup;
use data::{Dataset, Split};
use events::{Emitter, Sample, Sink, What};
use plan::Phase;
use plan::report::steps_hash;
use search::{Cut, HostBytes, Machine, Planned, schedule_without_host};
use serde_json::Value;
use spec::{
    Command, Connection, Environment, RunSpec, Sampler, SamplingKeys, Settings, SpecError, Values,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const STOPPING: &str = "stopping (Ctrl-C again: exit at once, without saving)";

/// Tokens of the sample at the end.
const SAMPLE_TOKENS: u64 = 350;

flags! {
    /// The flags of `train`.
    pub struct Flags {
        /// total time including preparation, such as 90s, 10min (the default) or 2h
        time: Option<String> = "--time", "DURATION" Values::Any, only "your own text";
        /// start a run of more than a week without asking
        yes: bool = "--yes";
        /// with --ui: the page's port; without it 7070, or the next one that is free
        port: Option<String> = "--port", "N" Values::Any;
        /// with --ui: serve on this address instead of on this machine only; needs the token that
        /// is printed
        host: Option<String> = "--host", "ADDRESS" Values::Any;
        /// with --ui: also open the browser
        open: bool = "--open";
    }
}

/// The command's row.
pub static COMMAND: super::Command = super::Command {
    name: "train",
    about: "train on your text (train book.txt), with a config, or the built-in demo",
    text: &[
        "Trains a GPT. Without arguments: a small character model on the built-in corpus, in two \
         minutes on two cores. On your own text: a model sized for this machine and the time you \
         give it. With a config file (nanoGPT's .py, or .toml): the same as nanoGPT's train.py.",
    ],
    usage: &[
        line("fitgpt train [--key=value ...]", "the built-in demo"),
        line("fitgpt train TEXT|FOLDER|DATA_SET [--time 10min] [--key=value ...]", "your own text"),
        line("fitgpt train config.py|config.toml ... [--key=value ...]", "a config file"),
    ],
    examples: &[
        line("fitgpt train --n_layer=4 --dropout=0.1", "the built-in demo with another model"),
        line("fitgpt train book.txt --time 30min", "prepares data/book, trains in out-book"),
        line("fitgpt train book.txt", "again: resumes an interrupted run"),
        line("fitgpt train config/train_shakespeare_char.py", "on the GPU, if there is one"),
        line(
            "fitgpt train config/case_a_124m_b64.py --vram=8GiB",
            "never uses more GPU memory than that",
        ),
        line("fitgpt train --init_from=resume --out_dir=out", "resume a run that stopped"),
        line("fitgpt train --ui --open", "watch it in the browser"),
    ],
    notes: &[
        "Arguments are read from left to right; the last one wins. Ctrl-C saves and exits with \
         code 130; a second Ctrl-C exits at once. nanoGPT's bare train.py is `train \
         config/train_gpt2.py`. `fitgpt devices` lists the devices; --device=cpu does not use the \
         GPU. OMP_NUM_THREADS limits the CPU threads.",
    ],
    lists_data_sets: false,
    arguments: &[Values::DataSet, Values::File],
    flags: Flags::TABLE,
    closing: &[],
    keys: Some(Command::Train),
    run,
};

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let (flags, rest) = Flags::read(arguments)?;
    let rest: Vec<String> = rest.into_iter().map(with_value).collect();
    let page = flags.page(&rest)?;
    let seconds = flags.time.as_deref().map(seconds_of).transpose()?;
    let Some((index, path)) = own_text::path_among(&rest)? else {
        if let Some(seconds) = seconds {
            let time = duration(seconds);
            let what =
                format!("--time {time} is for your own text: fitgpt train book.txt --time {time}");
            return Err(SpecError::Conflict { what }.into());
        }
        let settings = settings(Command::Train, &rest)?;
        let started = Started::find(&settings, arguments)?;
        if let Some(name) = started.name() {
            screen::speak_as(name);
        }
        if !started.rank().is_first() {
            screen::silence();
        }
        let device = match started.rank().has_others() {
            true => None,
            false => asked_gpu(&settings)?,
        };
        let typed = Typed { device, settings, own_text: None };
        return run_settings(typed, started, flags.yes, &page, &interrupt::catch(STOPPING));
    };
    let mut keys = rest;
    keys.remove(index);
    let stop = interrupt::catch(STOPPING);
    let request = own_text::TextArguments { path: &path, keys: &keys, seconds };
    let alone = Started::alone(&keys)?;
    match own_text::settings_for(&request, &stop)? {
        OwnText::Run(settings, device) => {
            let typed = Typed { settings: *settings, device, own_text: Some(path) };
            run_settings(typed, alone, flags.yes, &page, &stop)
        }
        OwnText::Finished => Ok(0),
        OwnText::Interrupted => Ok(INTERRUPTED),
    }
}

/// `--ui` is short for `--ui=True`.
fn with_value(argument: String) -> String {
    if argument == "--ui" { "--ui=True".to_string() } else { argument }
}

impl Flags {
    /// The flags of the page. Without the page they would do nothing.
    fn page(&self, rest: &[String]) -> Result<PageFlags, TrainError> {
        let page = PageFlags { host: self.host.clone(), port: self.port.clone(), open: self.open };
        let has_page = rest.iter().any(|argument| argument.starts_with("--ui="));
        let given = [("--port", page.port.is_some()), ("--host", page.host.is_some())];
        let given = given.into_iter().chain([("--open", page.open)]).find(|(_, given)| *given);
        match given {
            Some((flag, _)) if !has_page => {
                let what = format!("{flag} is about the page: add --ui");
                Err(SpecError::Conflict { what }.into())
            }
            _ => page.place().map(|_| page),
        }
    }
}

/// The settings as typed, and the device if it is already open.
struct Typed {
    settings: Settings,
    device: Option<Device>,
    /// The text that the settings were chosen for.
    own_text: Option<String>,
}

/// Opens the device if the settings require a GPU, so that a missing GPU is reported before missing
/// data.
fn asked_gpu(settings: &Settings) -> Result<Option<Device>, TrainError> {
    let asked = settings.asks_for_gpu();
    Ok(asked.map(|asked| Device::find(spec::RequestedDevice::Auto, Some(asked))).transpose()?)
}

/// Plans and trains a run.
fn run_settings(
    typed: Typed,
    started: Started,
    yes: bool,
    page: &PageFlags,
    stop: &Arc<AtomicBool>,
) -> Result<u8, TrainError> {
    let model = pretrained::open(&typed.settings)?;
    let environment = Environment { rank: started.rank(), ..environment() };
    let setup = Setup::new(typed.settings, &environment, model)?;
    let device = match typed.device {
        Some(device) => device,
        None if started.rank().has_others() => {
            let may_share_gpu = setup.spec.ranks.backend == Connection::Mpi;
            let (local_rank, local_ranks) = (started.local_rank(), started.local_ranks());
            let may_see_one_gpu = started.may_see_one_gpu();
            let seat = Seat { local_rank, local_ranks, may_share_gpu, may_see_one_gpu };
            Device::of_rank(setup.spec.device, gpu_setting(&setup), seat)?
        }
        None => Device::find(setup.spec.device, gpu_setting(&setup))?,
    };
    if let Some(line) = started.line() {
        screen::line(&line);
    }
    run_report::introduce(&setup, &device)?;
    if !started.rank().has_others() {
        return run_on(setup, device, None, typed.own_text, (yes, page), stop);
    }
    // Nobody reads the request to stop while ranks wait for each other.
    let mut fellows = interrupt::nothing_to_save(|| started.join(&setup, device.is_gpu()))?;
    let mut device = device;
    if let Err(error) = device.connect(&mut fellows, setup.spec.rank) {
        fellows.fail(&error.into());
    }
    fellows.step();
    match run_on(setup, device, Some(&fellows), typed.own_text, (yes, page), stop) {
        Ok(code) => fellows.goodbye().map(|()| code),
        Err(error) => fellows.fail(&error),
    }
}

/// Plans and trains on a device, alone or among other ranks.
fn run_on(
    mut setup: Setup,
    device: Device,
    fellows: Option<&Fellows>,
    own_text: Option<String>,
    (yes, page): (bool, &PageFlags),
    stop: &Arc<AtomicBool>,
) -> Result<u8, TrainError> {
    let loaded = load(&setup, &device, fellows)?;
    let Loaded { mut engine, document, host, planned_length, arena } = loaded;
    if let Some(fellows) = fellows {
        engine.count_steps(fellows.steps());
        fellows.step();
    }
    let is_first = setup.spec.rank.is_first();
    let has_others = setup.spec.rank.has_others(); // who would wait for the answer
    if !has_others && !planned_length.is_confirmed(yes) {
        return Ok(INTERRUPTED);
    }
    if is_first {
        setup.check_room(&engine, &document)?;
    }
    let mut buffers = HostBuffers::new(&setup.spec, &host)?;
    let Sinks { mut sinks, bar, written, is_guest, peak_flops } = sinks(&setup, &device)?;
    let (page, save_now) = match is_first {
        true => own_page(&setup, page, arena, &device, stop, &mut sinks)?,
        false => (None, Arc::default()),
    };
    let mut events = emitter(sinks)?;
    let start = Instant::now();
    let seen = || device.held_bytes();
    let shows_end = own_text.is_some() || setup.dataset.floor().is_some();
    let others = fellows.map_or(&() as &dyn Others, |fellows| fellows);
    let watch = Watch {
        stop,
        save_now: &save_now,
        events: &mut events,
        device_bytes: &seen,
        peak_flops,
        others,
    };
    let ended = train(&mut setup, &mut engine, document, &mut buffers, watch, shows_end);
    match ended {
        Err(_) => fellow_ranks::failing(),
        // Everything is saved. The others wait while the first rank prints, perhaps to a console
        // that nobody reads, and shows a sample.
        Ok(_) => others.allow(Duration::MAX),
    }
    if !events.flush(stop) {
        // Nobody reads the console, and the run was asked to stop: anything printed would hang.
        return ended.map(|_| INTERRUPTED);
    }
    if let Some(bar) = bar {
        bar.clear();
    }
    let mut outcome = ended.inspect_err(|error| run_report::rescue(&setup, error))?;
    outcome.checkpoint = outcome.checkpoint.filter(|_| !is_guest);
    let resume = run_report::resume_command(&setup, own_text.as_deref());
    run_report::conclude(&setup, &outcome, start.elapsed().as_secs_f64(), &resume);
    if !outcome.interrupted && is_first {
        run_report::compare(&setup, &outcome);
        // The other ranks have left; NCCL would notice.
        if shows_end && !(has_others && device.is_gpu()) {
            show_sample(&setup, &mut engine, &outcome, stop, &mut events)?;
        }
        run_report::next_commands(&setup.spec, &outcome, &written);
    }
    let interrupted = outcome.interrupted || stop.load(Ordering::Relaxed);
    mpi::finished();
    drop(events);
    page.iter().for_each(Page::say_goodbye);
    Ok(if interrupted { INTERRUPTED } else { 0 })
}

/// Where a run's events go.
struct Sinks {
    sinks: Vec<Box<dyn Sink>>,
    bar: Option<Bar>,
    /// What is written for other programs.
    written: metric_sinks::Written,
    /// Whether it is an evaluation in another run's folder.
    is_guest: bool,
    peak_flops: Option<f64>,
}

/// Takes the run's folder and opens its log. Only the first rank has sinks.
fn sinks(setup: &Setup, device: &Device) -> Result<Sinks, TrainError> {
    if !setup.spec.rank.is_first() {
        let (sinks, written) = (Vec::new(), metric_sinks::Written::default());
        return Ok(Sinks { sinks, bar: None, written, is_guest: false, peak_flops: None });
    }
    let log = setup.claim()?;
    let spec = console_spec(setup, device)?;
    let (more, written) = metric_sinks::of(&setup.spec);
    let peak_flops = spec.peak_flops;
    let console = ConsoleSink::new(spec);
    let bar = Some(console.bar());
    // Add a new sink here, or in `metric_sinks`.
    let mut sinks: Vec<Box<dyn Sink>> = vec![Box::new(console)];
    let is_guest = log.is_none();
    sinks.extend(log.map(|log| -> Box<dyn Sink> { Box::new(log) }));
    sinks.extend(more);
    Ok(Sinks { sinks, bar, written, is_guest, peak_flops })
}

/// Why the run needs a GPU, if it does: a given key, or the saved run was trained on one.
fn gpu_setting(setup: &Setup) -> Option<String> {
    let on_gpu = |saved: &SavedRun| saved.document.device.starts_with("cuda");
    let resumed = setup.saved.as_ref().filter(|saved| on_gpu(saved));
    let resumed = resumed.map(|_| "a run that was trained on a GPU".to_string());
    setup.settings.asks_for_gpu().or(resumed)
}

/// A run whose memory is allocated.
struct Loaded {
    engine: Engine,
    document: Document,
    host: HostBytes,
    planned_length: RunLength,
    /// The arena for the page, by phase; empty without one.
    arena: Vec<(&'static str, Value)>,
}

/// The page of a run, if it has one, and the flag with which it asks for a save. Its sink is added.
fn own_page(
    setup: &Setup,
    flags: &PageFlags,
    arena: Vec<(&'static str, Value)>,
    device: &Device,
    stop: &Arc<AtomicBool>,
    sinks: &mut Vec<Box<dyn Sink>>,
) -> Result<(Option<Page>, Arc<AtomicBool>), TrainError> {
    let save = Arc::new(AtomicBool::new(false));
    if !setup.spec.metrics.ui {
        return Ok((None, save));
    }
    let registry = Arc::new(Registry::new(Vec::new()));
    sinks.push(Box::new(registry.own(Path::new(&setup.spec.out_dir))));
    let control = Control { stop: Arc::clone(stop), save: Arc::clone(&save) };
    let answers = Arc::new(UiAnswers::of_run(arena, device.load_reader()));
    let (host, port) = flags.place()?;
    // Only a run of one rank can save at any moment.
    let control = Some(control).filter(|_| !setup.spec.rank.has_others());
    let served = Served { host, port, registry, answers, control, is_polite: true };
    Ok((Some(flags.serve(served)?), save))
}

/// How a run is stopped and watched.
struct Watch<'a> {
    stop: &'a AtomicBool,
    save_now: &'a AtomicBool,
    events: &'a mut Emitter,
    device_bytes: &'a dyn Fn() -> Option<u64>,
    peak_flops: Option<f64>,
    others: &'a dyn Others,
}

/// Starts the stream of events.
fn emitter(sinks: Vec<Box<dyn Sink>>) -> Result<Emitter, TrainError> {
    Emitter::new(sinks).map_err(|error| TrainError::Threads { error })
}

/// `90s`, `10min`, `1h30m`, `2h`, `1d`.
fn seconds_of(given: &str) -> Result<f64, SpecError> {
    let shown: String = given.chars().take(40).collect();
    parse_duration(given).filter(|seconds| (1.0..=1e9).contains(seconds)).ok_or_else(|| {
        let what = format!("--time '{shown}': write a duration such as 90s, 10min, 1h30m or 2h");
        SpecError::Conflict { what }
    })
}

/// Plans, prints the plan, and allocates the memory.
fn load(setup: &Setup, device: &Device, fellows: Option<&Fellows>) -> Result<Loaded, TrainError> {
    let mut machine = device.machine(&setup.spec)?;
    if let Some(notice) = host_notice(&setup.spec) {
        screen::notice(&notice);
    }
    let before = setup.saved.as_ref().filter(|saved| saved.document.device == device.kind());
    let choices = before.map_or(&[][..], |saved| &saved.document.choices);
    let origin = origin(setup, device, &machine)?;
    let plan = |machine: &Machine| {
        let (run, dims) = (&setup.spec, setup.dims);
        let planned = origin.planned(run, dims, machine, Some(device), &screen::notice)?;
        if let Some(fellows) = fellows {
            let of_cut = |cut: &Cut| sentence::of_cut(cut, run);
            let cut = planned.cut().as_ref().map_or(String::new(), of_cut);
            fellows.agree("the plan (give all ranks the same --vram and --ram)", &cut)?;
        }
        show_bill(&setup.spec, &planned, machine);
        show_plan(&setup.spec, &planned, machine);
        Ok::<_, TrainError>(planned)
    };
    let loaded = device.load_planned(&setup.spec, &mut machine, choices, &screen::notice, plan)?;
    let (planned, backend) = loaded;
    run_report::held(device, backend.arena_bytes(), machine.budget);
    let planned_length = RunLength::new(setup, &planned, &machine, device);
    planned_length.show();
    let cut = planned.cut();
    let has_page = setup.spec.metrics.ui;
    let arena = if has_page { crate::ui::all_phases(&planned, &machine) } else { Vec::new() };
    let steps = steps(setup, &machine, &planned)?;
    let Planned { program, host, .. } = planned;
    let mut document = setup.document(cut, steps, device.kind());
    document.choices = backend.choices();
    document.threads = device.threads();
    if let Some(text) = setup.saved.as_ref().and_then(|saved| saved.other_bits(&document)) {
        screen::notice(&text);
    }
    if let Some(text) = setup.saved.as_ref().and_then(|_| one_ranks_moments(&setup.spec)) {
        screen::notice(text);
    }
    let engine = Engine::new(backend, program, setup.dims);
    Ok(Loaded { engine, document, host, planned_length, arena })
}

/// The hash of the steps that train. Whether activations went to host memory is left out: a run may
/// resume without, and keeps its bits.
fn steps(setup: &Setup, machine: &Machine, planned: &Planned) -> Result<String, TrainError> {
    let cut = planned.cut().filter(|cut| cut.layers_on_host() > 0);
    let other = cut.map(|cut| schedule_without_host(&setup.spec, setup.dims, machine, &cut));
    let other = other.transpose()?;
    let schedule = other.as_ref().unwrap_or(&planned.plan.schedule);
    let hash = steps_hash(schedule, Phase::Train, &model::implied_attributes());
    Ok(format!("{hash:016x}"))
}

/// What a checkpoint of ranks that train alone does not keep.
fn one_ranks_moments(spec: &RunSpec) -> Option<&'static str> {
    let trains_alone = spec.rank.has_others() && spec.ranks.sync == spec::Sync::Diloco;
    trains_alone.then_some(
        "note: with sync='diloco' each rank has moments of its own and a checkpoint keeps one: all \
         ranks go on with the moments of rank 0, so losses will not be bit for bit those of an \
         uninterrupted run",
    )
}

/// Where the plan comes from. A resumed run keeps its plan; for a new one, plans
/// any of which may be the fastest may be timed now.
fn origin(setup: &Setup, device: &Device, machine: &Machine) -> Result<Origin, TrainError> {
    let saved = setup.saved.as_ref().map(|saved| &saved.document);
    let saved = saved.filter(|_| !setup.spec.eval_only);
    Origin::find(saved, || {
        if setup.spec.rank.has_others() {
            return Ok(None); // ranks would time differently
        }
        let rivals = Rivals::find(&setup.spec, setup.dims, machine, device)?;
        Ok(rivals.and_then(|rivals| rivals.choose()))
    })
}

/// Loads or draws the weights, positions the batches, and runs the loop.
fn train(
    setup: &mut Setup,
    engine: &mut Engine,
    document: Document,
    buffers: &mut HostBuffers,
    Watch { stop, save_now, events, device_bytes, peak_flops, others }: Watch<'_>,
    evaluate_at_end: bool,
) -> Result<Outcome, TrainError> {
    let mut generator = rng::torch::Generator::new(setup.spec.seed);
    engine.initialise(&mut generator)?;
    if setup.spec.sampler == Sampler::Nanogpt && !setup.spec.rank.is_first() {
        // As in nanoGPT, each rank has its own generator, and all take the first one's weights.
        generator = rng::torch::Generator::new(setup.spec.seed + setup.spec.rank.rank as u64);
        engine.skip_initialisation(&mut generator);
    }
    let outer = OuterStep::of(&setup.spec).filter(|_| !setup.spec.eval_only);
    if let Some(step) = outer {
        engine.begin_outer(step)?;
    }
    if let Some(saved) = &mut setup.saved {
        saved.load(engine, buffers.tensor())?;
    }
    if let Some(model) = &mut setup.pretrained {
        model.load_weights(engine, buffers.tensor())?;
    }
    engine.restart_outer()?;
    let Setup { spec, dataset, saved, .. } = setup;
    let mut feed = feed::open(spec, dataset, generator)?;
    // Another program's file has no position: as in nanoGPT, the batches start again.
    // A checkpoint has the position of the first rank's generator alone.
    let is_own = spec.sampler == Sampler::Fitgpt || spec.rank.is_first();
    if is_own && saved.as_ref().is_some_and(SavedRun::has_position) {
        feed.restore(&document.feed)?;
    }
    let feed = &mut *feed;
    let eval_sample = EvalSample::new(spec, dataset, stop)?;
    let sampler = |engine: &mut Engine| eval_sample.as_ref().map_or(Ok(None), |s| s.text(engine));
    let run = Run {
        spec,
        engine,
        feed,
        events,
        document,
        device_bytes,
        peak_flops,
        evaluate_at_end,
        stop,
        others,
        save_now,
        sampler: eval_sample.is_some().then_some(&sampler),
    };
    run.execute(buffers)
}

fn show_bill(run: &RunSpec, planned: &Planned, machine: &Machine) {
    screen::line("");
    let host = host_memory(run, planned, machine);
    screen::line(&bill::text(planned, machine, &host, screen::width()));
}

/// Prints how the run is cut, its memory and its hash.
fn show_plan(run: &RunSpec, planned: &Planned, machine: &Machine) {
    let cut = planned.cut().map(|cut| sentence::of_cut(&cut, run));
    let cut = cut.unwrap_or_else(|| "evaluation only".to_string());
    let memory = sentence::memory(planned.device_bytes(machine), machine.budget);
    let plan = format!("plan: {cut}: {memory}, hash {:016x}", planned.hash());
    screen::line(&(screen::wrapped(&plan, 6, screen::wrap_width()) + "\n"));
}

fn console_spec(setup: &Setup, device: &Device) -> Result<ConsoleSpec, TrainError> {
    let Setup { spec, dims, saved, .. } = setup;
    let flops = spec.architecture().training_flops_per_token(dims, spec.block_size);
    Ok(ConsoleSpec {
        started_at: saved.as_ref().map_or(0, |saved| saved.document.progress.iteration),
        max_iters: spec.max_iters,
        eval_interval: spec.eval_interval,
        flops_per_token: flops.map_err(search::SearchError::from)?,
        peak_flops: device.peak_flops(spec).map(|peak| peak * spec.rank.ranks as f64),
    })
}

/// Tokens of the text at an evaluation.
const EVAL_SAMPLE_TOKENS: u64 = 120;

/// What is generated at each evaluation: the same prompt and the same random stream, so that only
/// the weights differ.
struct EvalSample<'a> {
    tokenizer: tokenizer::Tokenizer,
    prompt: Vec<i32>,
    spec: &'a RunSpec,
    stop: &'a AtomicBool,
}

impl<'a> EvalSample<'a> {
    /// None if the key is off, or if nothing turns the data set's ids into text.
    fn new(
        spec: &'a RunSpec,
        dataset: &Dataset,
        stop: &'a AtomicBool,
    ) -> Result<Option<EvalSample<'a>>, TrainError> {
        let Some(tokenizer) = dataset.tokenizer().ok().filter(|_| spec.eval_sample) else {
            return Ok(None);
        };
        let prompt = tokenizer.encode(&spec.sampling.start).or_else(|_| first_token(dataset))?;
        Ok(Some(EvalSample { tokenizer, prompt, spec, stop }))
    }

    fn text(&self, engine: &mut Engine) -> Result<Option<String>, TrainError> {
        let keys = &self.spec.sampling;
        let top_k = keys.top_k.map_or(0, |k| usize::try_from(k).unwrap_or(0));
        let request = SampleRequest {
            prompt: self.prompt.clone(),
            max_new_tokens: EVAL_SAMPLE_TOKENS,
            options: DrawOptions { temperature: keys.temperature, top_k, top_p: keys.top_p },
            seed: self.spec.seed,
            index: 0,
        };
        let mut decoder = self.tokenizer.decoder();
        let mut text: String = self.prompt.iter().map(|&id| decoder.push(id)).collect();
        generate(engine, &request, |id| {
            text += &decoder.push(id);
            !self.stop.load(Ordering::Relaxed)
        })?;
        text += &decoder.finish();
        Ok((!self.stop.load(Ordering::Relaxed)).then_some(text))
    }
}

/// Generates a sample: the built-in demo and runs on the user's own text end with one.
fn show_sample(
    setup: &Setup,
    engine: &mut Engine,
    outcome: &Outcome,
    stop: &AtomicBool,
    events: &mut Emitter,
) -> Result<(), TrainError> {
    let Setup { spec, dataset, .. } = setup;
    let (Ok(tokenizer), Some(_)) = (dataset.tokenizer(), &outcome.evaluation) else {
        return Ok(());
    };
    screen::line(&screen::strong("\na sample of what it generates"));
    let keys = SamplingKeys { max_new_tokens: SAMPLE_TOKENS, ..spec.sampling.clone() };
    // A vocabulary without the line end cannot encode the usual prompt: use any of its characters.
    let prompt = tokenizer.encode(&keys.start).or_else(|_| first_token(dataset))?;
    let (tokenizer, keys) = (&tokenizer, &keys);
    let sample = stream_sample::Sample { tokenizer, keys, stops: &[], seed: spec.seed, index: 0 };
    let (iter, mut text) = (outcome.iteration, String::new());
    let keep_going = || !stop.load(Ordering::Relaxed);
    let is_whole = stream_sample(engine, &sample, &prompt, &keep_going, &mut |part| text += part)?;
    screen::line("");
    if is_whole {
        events.emit(What::Sample(Arc::new(Sample { iter, text })));
    }
    Ok(())
}

/// The first token of the validation text.
fn first_token(dataset: &Dataset) -> Result<Vec<i32>, TrainError> {
    let mut ids = [0];
    dataset.split(Split::Val).read(0, &mut ids)?;
    Ok(ids.to_vec())
}
