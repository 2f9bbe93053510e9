//! Starts the workers of a section and reads their output. If a case kills a worker, a new one
//! continues after that case. Prints progress every ten seconds and findings at once.

use crate::options::Options;
use crate::scratch::{ROOT, Scratch};
use crate::section::Section;
use crate::tally::Tally;
use crate::worker::{Share, read_beat};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Time between two checks of the workers.
const LOOK: Duration = Duration::from_millis(50);
const PROGRESS: Duration = Duration::from_secs(10);

/// After this many dead workers a section is abandoned, because something general is wrong.
const MOST_DEATHS: usize = 200;

/// Most findings of one name to print and keep; more are only counted.
const MOST_TOLD: usize = 40;

/// A failed case.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The section, or its part.
    pub name: String,
    /// The case.
    pub case: u64,
    /// What went wrong.
    pub message: String,
}

impl Finding {
    /// The command that runs the case alone.
    pub fn replay(&self, seed: u64) -> String {
        let Finding { name, case, .. } = self;
        format!("cargo xtask soak {name} --seed {seed} --cases 1 --first {case}")
    }
}

/// The result of a section.
#[derive(Debug)]
pub struct SectionResult {
    /// The section's name, or that of its part.
    pub name: String,
    /// Its counters.
    pub tally: Tally,
    /// Its findings.
    pub findings: Vec<Finding>,
    /// How long it took.
    pub time: Duration,
}

/// Runs a section for its fraction of the time, or for a number of cases.
///
/// # Errors
///
/// When workers cannot be started.
pub fn run(
    section: &Section,
    options: &Options,
    stop: &AtomicBool,
) -> Result<SectionResult, String> {
    let name = match options.name.contains('/') {
        true => options.name.clone(),
        false => section.name.to_owned(),
    };
    let alone = !options.name.is_empty();
    let share = if alone { 1.0 } else { section.share };
    let time = Duration::from_secs_f64(options.minutes * 60.0 * share);
    let scratch = Scratch::new("beats").map_err(|error| format!("scratch folder: {error}"))?;
    let (sender, lines) = channel();
    let ended = SectionResult { name, tally: Tally::default(), findings: Vec::new(), time };
    let mut watch = Watch { section, options, sender, ended, crew: Vec::new(), deaths: 0 };
    // Two workers on a GPU would count each other's memory if the driver does not separate
    // processes.
    let workers = if options.environment.cuda { 1 } else { section.workers as u64 };
    for number in 0..workers.min(options.cases.unwrap_or(workers)) {
        // Cases are dealt out in turn, so the first workers may get one more.
        let cases = options.cases.map(|cases| (cases + workers - 1 - number) / workers);
        let beat = scratch.path().join(number.to_string());
        let first = options.first + number;
        let name = watch.ended.name.clone();
        watch.start(Share { name, first, step: workers, cases, time, beat })?;
    }
    watch.until_done(&lines, stop)?;
    Ok(watch.ended)
}

/// A running worker.
struct Member {
    child: Child,
    share: Share,
    /// The current case and its start time.
    seen: (u64, Instant),
    started: Instant,
    errors: Option<std::thread::JoinHandle<String>>,
    /// Whether it reported that its share is done.
    is_done: bool,
}

impl Member {
    /// Kills the worker and all processes that it started.
    fn kill(&self) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _ = group.map(|group| kill_process_group(group, Signal::KILL));
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // After it has been reaped, its process group number may belong to another process.
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
            let _ = self.child.wait();
        }
    }
}

/// Output of a worker: its number and a line, or `None` at its end.
type Said = (u32, Option<String>);

struct Watch<'a> {
    section: &'a Section,
    options: &'a Options,
    sender: Sender<Said>,
    ended: SectionResult,
    crew: Vec<Member>,
    deaths: usize,
}

impl Watch<'_> {
    fn start(&mut self, share: Share) -> Result<(), String> {
        let own = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
        let environment = &self.options.environment;
        let mut command = Command::new(own);
        command.arg("work").args(share.to_words());
        command.args([format!("--seed={}", environment.seed)]);
        command.arg(format!("--binary={}", environment.binary.display()));
        command.args(environment.faults.iter().map(|path| format!("--faults={}", path.display())));
        command.args(environment.cuda.then_some("--cuda"));
        command.env(ROOT, share.beat.parent().unwrap_or(&share.beat));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A separate process group, so that Ctrl-C reaches only the supervisor, which then ends the
        // workers.
        let mut child = command.process_group(0).spawn().map_err(|error| error.to_string())?;
        let (number, sender) = (child.id(), self.sender.clone());
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    let _ = sender.send((number, Some(line)));
                }
                let _ = sender.send((number, None));
            });
        }
        let errors = child.stderr.take().map(|stderr| std::thread::spawn(move || end_of(stderr)));
        let (seen, started) = ((u64::MAX, Instant::now()), Instant::now());
        self.crew.push(Member { child, share, seen, started, errors, is_done: false });
        Ok(())
    }

    fn until_done(&mut self, lines: &Receiver<Said>, stop: &AtomicBool) -> Result<(), String> {
        let (start, mut told) = (Instant::now(), Instant::now());
        while !self.crew.is_empty() && !stop.load(Ordering::Relaxed) {
            if let Ok((number, line)) = lines.recv_timeout(LOOK) {
                match line {
                    Some(line) => self.hear(number, &line),
                    None => self.gone(number)?,
                }
            }
            self.end_what_hangs();
            if told.elapsed() > PROGRESS {
                told = Instant::now();
                println!("{}", self.progress(start.elapsed()));
            }
        }
        self.crew.clear();
        while let Ok((number, Some(line))) = lines.try_recv() {
            self.hear(number, &line);
        }
        self.ended.time = start.elapsed();
        println!("{}", self.progress(start.elapsed()));
        Ok(())
    }

    fn progress(&self, time: Duration) -> String {
        let SectionResult { name, tally, findings, .. } = &self.ended;
        let sums = tally.sums.iter().filter(|(name, _)| !name.contains('/'));
        let sums: Vec<String> = sums.map(|(name, sum)| format!("{sum} {name}")).collect();
        let seconds = time.as_secs();
        format!("{name}: {seconds} s, {}, {} findings", sums.join(", "), findings.len())
    }

    fn hear(&mut self, number: u32, line: &str) {
        if self.ended.tally.take_in(line) {
            return;
        }
        let mut parts = line.splitn(4, '\t');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("finding"), Some(name), Some(case), Some(message)) => {
                let case = case.parse().unwrap_or(0);
                self.found(Finding { name: name.to_owned(), case, message: message.to_owned() });
            }
            (Some("done"), ..) => {
                let member = self.crew.iter_mut().find(|member| member.child.id() == number);
                if let Some(member) = member {
                    member.is_done = true;
                }
            }
            _ => println!("{line}"),
        }
    }

    fn found(&mut self, finding: Finding) {
        let same = self.ended.findings.iter().filter(|other| other.name == finding.name).count();
        if same >= MOST_TOLD {
            return self.ended.tally.count("findings not told");
        }
        let replay = finding.replay(self.options.environment.seed);
        println!("FINDING {}: {}\n  {replay}", finding.name, finding.message);
        self.ended.findings.push(finding);
    }

    /// Handles the end of a worker. If the current case killed it, starts another one after that
    /// case.
    fn gone(&mut self, number: u32) -> Result<(), String> {
        let at = self.crew.iter().position(|member| member.child.id() == number);
        let Some(mut member) = at.map(|at| self.crew.swap_remove(at)) else { return Ok(()) };
        let status = member.child.wait().map_err(|error| error.to_string())?;
        let errors = member.errors.take().and_then(|thread| thread.join().ok());
        if member.is_done && status.success() {
            return Ok(());
        }
        let errors = errors.unwrap_or_default();
        let hung = member.seen.1.elapsed() > self.section.limit;
        let Some((index, name, case)) = read_beat(&member.share.beat) else {
            return Err(format!("{} cannot be prepared: {}", member.share.name, errors.trim()));
        };
        let message = death(status, hung.then_some(self.section.limit), &errors);
        self.found(Finding { name, case, message });
        self.deaths += 1;
        if self.deaths > MOST_DEATHS {
            println!("{} workers died: {} is abandoned", self.deaths, self.ended.name);
            self.crew.clear();
            return Ok(());
        }
        let done = (index - member.share.first) / member.share.step + 1;
        let share = Share {
            first: index + member.share.step,
            cases: member.share.cases.map(|cases| cases.saturating_sub(done)),
            time: member.share.time.saturating_sub(member.started.elapsed()),
            ..member.share.clone()
        };
        let _ = std::fs::remove_file(&share.beat);
        if share.cases == Some(0) || share.time.is_zero() {
            return Ok(());
        }
        self.start(share)
    }

    fn end_what_hangs(&mut self) {
        for member in &mut self.crew {
            let now = read_beat(&member.share.beat).map_or(u64::MAX, |(index, ..)| index);
            if member.seen.0 != now {
                member.seen = (now, Instant::now());
            }
            // `gone` runs when its output ends.
            if member.seen.1.elapsed() > self.section.limit {
                member.kill();
            }
        }
    }
}

/// The last lines of a process's standard error.
fn end_of(stderr: impl Read) -> String {
    let mut kept = String::new();
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        kept += &line;
        kept.push('\n');
        if kept.len() > 8000 {
            let half = kept.floor_char_boundary(kept.len() / 2);
            kept = kept.split_off(half);
        }
    }
    kept
}

fn death(status: ExitStatus, hung: Option<Duration>, errors: &str) -> String {
    if let Some(limit) = hung {
        return format!("takes longer than {} s", limit.as_secs());
    }
    let lines: Vec<&str> = errors.trim().lines().collect();
    let last = lines[lines.len().saturating_sub(4)..].join(" | ");
    format!("the worker died ({status}): {last}")
}
