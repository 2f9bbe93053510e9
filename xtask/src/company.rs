//! `cargo xtask company`: how fast the demo is when other programs share its cores. It is timed
//! alone, then two, three and four runs at once, then next to a busy loop. Each result is compared
//! with a run alone just before it.

use crate::bench::{Machine, quoted};
use crate::flags;
use crate::process::{self, Failure};
use crate::scratch::ScratchFolder;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The flags, for the usage text.
pub const FLAGS: &str = "[--seconds N] [--keep bench-history]";

const KNOWN: [&str; 2] = ["--seconds", "--keep"];

/// Tokens per iteration of the demo.
const TOKENS: f64 = 512.0;

/// Set-up and the first iterations are not timed.
const WARM_UP: Duration = Duration::from_millis(1500);

/// The lowest acceptable ratio on two cores: of all runs together, and of one run next to a busy
/// loop.
const TOGETHER: f64 = 0.85;
const BESIDE_A_LOOP: f64 = 0.45;

/// One measurement.
struct Measurement {
    name: String,
    alone: f64,
    company: f64,
    least: f64,
}

impl Measurement {
    fn ratio(&self) -> f64 {
        self.company / self.alone
    }
}

/// Measures, prints, and fails if a ratio is too low.
pub fn run(args: &[String]) -> Result<(), Failure> {
    let mut found = flags::read("company", &KNOWN, FLAGS, args).map_err(Failure::Usage)?;
    let seconds = match found.remove("--seconds").unwrap_or("6".to_owned()).parse() {
        Ok(seconds @ 1..=600) => Duration::from_secs(seconds),
        _ => return Err(Failure::Usage("--seconds needs 1 to 600".to_owned())),
    };
    process::run(process::cargo().args(["build", "--release", "--quiet"]))?;
    let mut measurements = Vec::new();
    for runs in 2..=4 {
        let alone = together(1, seconds)?;
        let company = together(runs, seconds)?;
        let name = format!("{runs} runs at once");
        measurements.push(Measurement { name, alone, company, least: TOGETHER });
    }
    let alone = together(1, seconds)?;
    let mut busy = Killed(start(Command::new("sh").args(["-c", "while :; do :; done"]))?);
    let company = together(1, seconds);
    busy.end();
    let name = "one run and a busy loop".to_owned();
    measurements.push(Measurement { name, alone, company: company?, least: BESIDE_A_LOOP });
    println!("tokens/s                      alone   together   ratio   needed");
    for measurement in &measurements {
        let Measurement { name, alone, company, least } = measurement;
        let ratio = measurement.ratio();
        println!("{name:<27} {alone:>7.0}    {company:>7.0}    {ratio:.2}     {least:.2}");
    }
    if let Some(folder) = found.remove("--keep") {
        let path = keep(Path::new(&folder), args, &measurements)?;
        println!("kept in {}", path.display());
    }
    match measurements.iter().find(|measurement| measurement.ratio() < measurement.least) {
        Some(measurement) => Err(Failure::Task(format!(
            "{}: the ratio is below {}",
            measurement.name, measurement.least
        ))),
        None => Ok(()),
    }
}

/// Tokens per second of `runs` runs at once, summed.
fn together(runs: usize, seconds: Duration) -> Result<f64, Failure> {
    let scratch = ScratchFolder::new("company").map_err(|error| failed(&scratch_error(&error)))?;
    let folders: Vec<PathBuf> = (0..runs).map(|run| scratch.path.join(run.to_string())).collect();
    let mut children = Vec::new();
    for folder in &folders {
        let mut command = Command::new(process::workspace_root().join("target/release/fitgpt"));
        command.args(["train", "--device=cpu", "--max_iters=10000000", "--log_interval=1"]);
        command.args(["--eval_iters=1", "--eval_interval=10000000"]);
        command.arg(format!("--out_dir={}", folder.display())).current_dir(&scratch.path);
        children.push(Killed(start(&mut command)?));
    }
    std::thread::sleep(WARM_UP);
    let count = || folders.iter().map(|folder| iterations(folder)).sum::<usize>();
    let (start, before) = (Instant::now(), count());
    std::thread::sleep(seconds);
    let done = count() - before;
    let elapsed = start.elapsed().as_secs_f64();
    children.iter_mut().for_each(Killed::end);
    match done {
        0 => Err(failed("no iteration finished; on a slow machine, try --seconds 60")),
        done => Ok(done as f64 * TOKENS / elapsed),
    }
}

/// Number of iterations that a run has logged.
fn iterations(folder: &Path) -> usize {
    let log = std::fs::read_to_string(folder.join("log.jsonl")).unwrap_or_default();
    log.matches("\"kind\":\"iter\"").count()
}

fn start(command: &mut Command) -> Result<Child, Failure> {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.spawn().map_err(|error| failed(&error.to_string()))
}

/// A process that is killed after the measurement.
struct Killed(Child);

impl Killed {
    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.end();
    }
}

fn failed(what: &str) -> Failure {
    Failure::Task(format!("company: {what}"))
}

fn scratch_error(error: &std::io::Error) -> String {
    format!("scratch folder: {error}")
}

/// Writes `<date>_<machine>_<commit>_company.json`.
fn keep(folder: &Path, args: &[String], measurements: &[Measurement]) -> Result<PathBuf, Failure> {
    let machine = Machine::read();
    let row = |measurement: &Measurement| {
        format!(
            "    {{\"what\": {}, \"alone_tokens_per_second\": {:.0}, \
             \"together_tokens_per_second\": {:.0}, \"ratio\": {:.3}}}",
            quoted(&measurement.name),
            measurement.alone,
            measurement.company,
            measurement.ratio()
        )
    };
    let rows: Vec<String> = measurements.iter().map(row).collect();
    let command = format!("cargo xtask company {}", args.join(" "));
    let json = format!(
        "{{\n  \"schema\": \"fitgpt.bench_history/1\",\n  \"command\": {},\n  \"date\": {},\n  \
         \"commit\": {},\n  \"cpu\": {},\n  \"cpus\": {},\n  \"runs\": [\n{}\n  ]\n}}\n",
        quoted(command.trim()),
        quoted(&machine.date),
        quoted(&machine.commit),
        quoted(&machine.cpu),
        machine.cpus,
        rows.join(",\n")
    );
    let name = format!("{}_{}_{}_company.json", machine.date, machine.slug(), machine.commit);
    let path = folder.join(name);
    std::fs::write(&path, json).map_err(|error| failed(&error.to_string()))?;
    Ok(path)
}
