//! `fitgpt plan`: the bill before the run, for this machine or for a card by name. It needs no data
//! set and no device.

use super::line;
use crate::bill;
use crate::flags::{FlagSet, RANKS, flags, number};
use crate::fleet::{Fleet, NODES};
use crate::plan_report::{PlanReport, arena_map, document, sentence, timeline};
use crate::planning::{Elsewhere, Planning};
use crate::screen::{show, show_json};
use crate::sweep::Sweep;
use crate::{link_table, measure, numbers, refusal, run_length, screen};
use ::train::TrainError;
use model::Dims;
use plan::hardware::{CARDS, Card};
use plan::links::{Between, LINKS, Link};
use search::{Machine, SearchError};
use serde_json::{Value, json};
use spec::{Command, SpecError, Values};

/// What `--gpu` and `--link` accept in addition to names.
const LIST: &str = "list";

/// What `--link` accepts to compare links.
const ALL: &str = "all";

flags! {
    /// The flags of `plan`.
    pub struct Flags {
        /// plan for this card, with the memory that a program can use; `--gpu list` lists all
        gpu: Option<String> = "--gpu", "NAME" Values::CardOr(&[LIST]);
        /// GPU memory to plan with: '11.69GiB', '8GB', or '80%' of the --gpu card. Without --gpu:
        /// of this machine's GPU, or of an unnamed card if that GPU has less
        vram: Option<String> = "--vram", "SIZE" Values::Any;
        /// plan for N machines, each with --gpus GPUs; --link is what connects them
        nodes: Option<String> = "--nodes", "N" Values::Any;
        /// what connects machines ('10GbE') or the GPUs of one ('PCIe 4 x8', 'NVLink 4'; unless
        /// given, as usual for the card). Give it twice for both. `--link list` lists the links,
        /// `--link all` predicts the run for each
        link: Vec<String> = "--link", "NAME" Values::LinkOr(&[LIST, ALL]);
        /// one JSON document (fitgpt.plan/1, docs/plan-json.md) on standard output
        json: bool = "--json";
        /// draw the arena to this file, or to standard output for - (time across, address up,
        /// coloured by role)
        svg: Option<String> = "--svg", "FILE" Values::File;
        /// plan each value of a key, one row each; n_head is adapted to n_embd; give it twice for a
        /// grid
        sweep: Vec<String> = "--sweep", "KEY=A,B,C" Values::Key;
        /// list the N best plans; `bench --rank` times one of them
        best: Option<String> = "--best", "N" Values::Any;
        /// time the plan's steps on this machine; later predictions use these times
        measure: bool = "--measure";
    }
}

/// The command's row.
pub static COMMAND: super::Command = super::Command {
    name: "plan",
    about: "show what a run needs before it starts: bytes by role and phase, speed",
    text: &[
        "Plans a training run and shows its memory bill: every byte by role, the peak of each \
         phase, how the batch is split into slices, what is recomputed, the predicted speed. Needs \
         no data set and no GPU.",
    ],
    usage: &[line("fitgpt plan [config.py|config.toml ...] [--key=value ...] [flags]", "")],
    examples: &[
        line("fitgpt plan", "the built-in demo on this CPU"),
        line("fitgpt plan config/case_a_124m_b64.py --gpu 'RTX 4070'", ""),
        line("fitgpt plan config/case_a_124m_b64.py --vram 8GiB --json", ""),
        line("fitgpt plan config/train_gpt2.py --gpu 'RTX 3060' --sweep batch_size=8,16,32", ""),
        line(
            "fitgpt plan config/train_gpt2.py --gpu 'RTX 4090' --gpus=8 --nodes=2 --link=25GbE",
            "",
        ),
    ],
    notes: &[],
    lists_data_sets: false,
    arguments: &[Values::File],
    flags: Flags::TABLE,
    closing: &[
        "Both --gpu and --vram plan for CUDA in the config's dtype. If nothing fits, the exit code \
         is 3, and the error gives the missing bytes, the largest tensors and settings that fit.",
    ],
    keys: Some(Command::Train),
    run,
};

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let (flags, rest) = Flags::read(arguments)?;
    if flags.gpu.as_deref() == Some(LIST) {
        flags.refuse_with_list("--gpu list lists all cards", &rest)?;
        return list_gpus(flags.json);
    }
    if flags.link.iter().any(|name| name == LIST) {
        flags.refuse_with_list("--link list lists all links", &rest)?;
        return link_table::list(flags.json);
    }
    let (machines, links) = flags.machines()?;
    let fleet = Some(Fleet { machines, links: &links });
    let elsewhere = Elsewhere { gpu: flags.gpu.as_deref(), vram: flags.vram.as_deref(), fleet };
    if !flags.sweep.is_empty() {
        flags.refuse_with_sweep()?;
        let sweep = Sweep { wanted: &flags.sweep, elsewhere, rest: &rest, json: flags.json };
        return sweep.run();
    }
    one(&flags, &Planning::new(&elsewhere, &rest)?)
}

/// Plans one run and shows it in the form that the flags ask for.
fn one(flags: &Flags, planning: &Planning) -> Result<u8, TrainError> {
    let json = flags.json;
    let is_picture = flags.svg.as_deref() == Some("-");
    if !json && !is_picture {
        planning.introduce();
    }
    if let Some(given) = &flags.best {
        flags.refuse_with_best()?;
        return list_best(planning, number("--best", given, RANKS)?);
    }
    if flags.measure {
        measure_here(planning, json)?;
    }
    if flags.compares_links() {
        flags.refuse_with("--link all")?;
        refuse_to_compare(planning)?;
    }
    let report = match planning.plan() {
        Ok(report) => report,
        Err(error) => return no_plan(planning, error, json),
    };
    if flags.compares_links() {
        return link_table::all(&report, json);
    }
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
    match planning.untimed_matmuls(&report.planned) {
        Ok(untimed) => untimed.iter().for_each(|line| screen::notice(line)),
        // What this machine's GPU cannot run is worth knowing, but the plan is a plan.
        Err(error) => screen::notice(&error.to_string()),
    }
    planning.untimed_plans()?.iter().for_each(|line| screen::notice(line));
    if let Some(path) = flags.svg.as_deref() {
        screen::line(&format!("arena map: {path}"));
    }
    Ok(0)
}

/// Shows why there is no plan: as a document where `--json` asks for one, and for people.
fn no_plan(planning: &Planning, error: TrainError, json: bool) -> Result<u8, TrainError> {
    let Planning { run, machine, named, .. } = planning;
    match error {
        TrainError::Search(SearchError::DoesNotFit(found)) => {
            if json {
                show_json(&document::of_refusal(run, machine, &found, *named))?;
            }
            refusal::show(&found, *named);
            Ok(3)
        }
        other => {
            if json && other.exit_code() == 3 {
                show_json(&document::of_error(run, machine, &other.to_string()))?;
            }
            Err(other)
        }
    }
}

/// Refuses `--link all` where there is nothing to compare.
fn refuse_to_compare(planning: &Planning) -> Result<(), SpecError> {
    let what = match (&planning.topology, planning.named) {
        (Some(_), true) => return Ok(()),
        (None, _) => "--link all compares what connects ranks: give --gpus=2 or --nodes=2",
        (_, false) => "--link all predicts speed: name the card, e.g. --gpu 'RTX 4070'",
    };
    Err(SpecError::Conflict { what: what.to_string() })
}

impl Flags {
    /// How many machines, and the links by name. A network is planned with where all are compared.
    fn machines(&self) -> Result<(usize, Vec<String>), SpecError> {
        let machines = self.nodes.as_deref().map(|n| number("--nodes", n, NODES)).transpose()?;
        let machines = machines.unwrap_or(1);
        let mut links = self.link.clone();
        if self.compares_links() {
            let is_network =
                |name: &str| Link::find(name).is_some_and(|link| link.between == Between::Machines);
            links.retain(|name| name != ALL && !is_network(name));
            let network = LINKS.iter().find(|link| link.between == Between::Machines);
            let network = network.filter(|_| machines > 1).map(|link| link.name.to_string());
            links.extend(network);
        }
        Ok((machines, links))
    }

    fn compares_links(&self) -> bool {
        self.link.iter().any(|name| name == ALL)
    }

    /// A list does not depend on a run: only `--json` changes it.
    fn refuse_with_list(&self, list: &str, rest: &[String]) -> Result<(), SpecError> {
        let is_link = |name: &String| name != LIST || list.starts_with("--gpu");
        let flags = [
            ("--gpu", self.gpu.as_deref().is_some_and(|name| name != LIST)),
            ("--nodes", self.nodes.is_some()),
            ("--link", self.link.iter().any(is_link)),
            ("--vram", self.vram.is_some()),
            ("--svg", self.svg.is_some()),
            ("--sweep", !self.sweep.is_empty()),
            ("--best", self.best.is_some()),
            ("--measure", self.measure),
        ];
        let flag = flags.iter().find(|(_, given)| *given).map(|(flag, _)| *flag);
        match flag.or(rest.first().map(String::as_str)) {
            Some(other) => {
                let shown: String = other.chars().take(40).collect();
                let what = format!("{list}: leave out '{shown}'");
                Err(SpecError::Conflict { what })
            }
            None => Ok(()),
        }
    }

    fn refuse_with_sweep(&self) -> Result<(), SpecError> {
        self.refuse_with("--sweep")?;
        let others = [("--best", self.best.is_some()), ("--link all", self.compares_links())];
        match others.iter().find(|(_, given)| *given) {
            Some((other, _)) => {
                Err(SpecError::Conflict { what: format!("{other} or --sweep, not both") })
            }
            None => Ok(()),
        }
    }

    fn refuse_with_best(&self) -> Result<(), SpecError> {
        self.refuse_with("--best")?;
        match self.json {
            _ if self.compares_links() => {
                Err(SpecError::Conflict { what: "--best or --link all, not both".to_string() })
            }
            true => Err(SpecError::Conflict { what: "--best has no --json form".to_string() }),
            false => Ok(()),
        }
    }

    /// Refuses what is for a single plan.
    fn refuse_with(&self, several: &str) -> Result<(), SpecError> {
        for (flag, given) in [("--svg", self.svg.is_some()), ("--measure", self.measure)] {
            if given {
                let what = format!("{flag} is for one plan: leave out {several}");
                return Err(SpecError::Conflict { what });
            }
        }
        Ok(())
    }
}

/// The best plans, one paragraph each.
fn list_best(planning: &Planning, count: usize) -> Result<u8, TrainError> {
    let Planning { run, machine, .. } = planning;
    let mut text = String::new();
    for (index, planned) in planning.best(machine, count)?.iter().enumerate() {
        let Some(cut) = planned.cut() else { continue };
        let memory = sentence::memory(planned.device_bytes(machine), machine.budget);
        let rate = planned.predict(run, &machine.hardware).tokens_per_second.unwrap_or(0.0);
        let (cut, rate) = (sentence::of_cut(&cut, run), numbers::short(rate));
        let line = format!("{}. {cut}: {memory}, about {rate} tok/s", index + 1);
        text += &(screen::wrapped(&line, 3, screen::wrap_width()) + "\n");
    }
    show(&text)?;
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

/// Runs the plan on this machine and keeps the times of its steps.
fn measure_here(planning: &Planning, quiet: bool) -> Result<(), TrainError> {
    if planning.topology.is_some() {
        let what = "--measure times one rank: leave out --gpus and --nodes".to_string();
        return Err(SpecError::Conflict { what }.into());
    }
    let Some(here) = &planning.here else {
        let what =
            "--measure runs the plan on this machine: leave out --gpu, --vram and device='cuda'";
        return Err(SpecError::Conflict { what: what.to_string() }.into());
    };
    let say = |text: &str| screen::note(&format!("note: {text}"));
    let plan = |machine: &Machine| planning.planned(machine);
    let mut machine = planning.machine.clone();
    let loaded = here.load_planned(&planning.run, &mut machine, &[], &say, plan)?;
    let (planned, mut backend) = loaded;
    let vocabulary = planning.dims.vocab_size;
    let times = measure::time_segments(&mut *backend, &planned.program, vocabulary)?;
    let times = measure::op_times(&planned.plan, &times, &here.measured(&planning.run));
    let kept = measure::keep(&times, here)?;
    let place = kept.map_or("nowhere: HOME is not set".to_string(), |p| p.display().to_string());
    if !quiet {
        let count = times.steps.len();
        screen::line(&format!("times of {count} kinds of steps are kept in {place}"));
    }
    Ok(())
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
    let parameters = report.run.architecture().reported_parameters(&report.dims);
    let parameters = parameters.map_err(SearchError::from)?;
    let Dims { n_layer, n_head, n_embd, vocab_size, .. } = report.dims;
    let each = match report.run.rank.ranks {
        1 => String::new(),
        ranks => format!("each of {ranks} x "),
    };
    let title = format!(
        "{:.2}M parameters ({n_layer} layers, {n_head} heads, width {n_embd}, vocabulary \
         {vocab_size}) on {each}{}",
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
        last += &format!(", speed from {}", report.basis);
    }
    text += &(screen::faint(&last) + "\n");
    for line in report.fleet.iter().flat_map(|fleet| fleet.lines(&report.run)) {
        text += &(screen::wrapped(&line, 6, screen::wrap_width()) + "\n");
    }
    if let Some(long) = report.prediction.and_then(|found| run_length::of(&report.run, &found)) {
        text += &(screen::wrapped(&long, 6, screen::wrap_width()) + "\n");
    }
    show(&text)
}
