//! A run under `mpiexec`: starts it, finds the processes of its ranks, waits for its end within a
//! bound, and reads who is blamed for it.

use super::BOUND;
use crate::jobs::{GROUPED, Job};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The silence after which ranks give each other up, instead of the usual minute.
pub const SILENCE: Duration = Duration::from_secs(4);

/// The variable that tells the processes of one run from all others.
const MARK: &str = "FITGPT_SOAK_RUN";

/// How long after `mpiexec` its ranks may still be there.
const AFTERWARDS: Duration = Duration::from_secs(3);

/// Starts `mpiexec` with SIGPIPE ignored, as `fitgpt` itself runs. Otherwise MPICH's may write to a
/// rank that has just been killed, die of that signal without a word, and take with it the ranks
/// that could have said why.
const LAUNCH: &str = "trap '' PIPE; exec \"$0\" \"$@\"";

/// Lines of what a run printed that a finding shows.
const LAST_LINES: usize = 12;

/// What is started.
pub struct Programs {
    pub mpiexec: PathBuf,
    pub binary: PathBuf,
}

/// A run under `mpiexec`.
pub struct Started {
    child: Child,
    mark: String,
}

/// How a run ended.
pub struct Ended {
    /// The time since the fault; none if there was no fault.
    pub since: Option<Duration>,
    /// What all ranks printed as errors.
    pub errors: String,
    /// Whether the launcher has said that a rank is gone.
    is_told: bool,
    /// How the launcher ended, and the end of what all printed, for a finding.
    last_words: String,
}

/// Ranks whose end may be said to be the cause.
pub struct Blamed {
    pub ranks: Vec<usize>,
    /// Words that the line must have.
    pub words: &'static str,
}

impl Started {
    /// Starts the job on so many ranks. It resumes if there is something to resume.
    pub fn new(
        programs: &Programs,
        place: &Path,
        ranks: usize,
        more: &[&str],
    ) -> Result<Started, String> {
        Started::each(programs, place, &|command| {
            command.args(["-n", &ranks.to_string()]).arg(&programs.binary);
            command.args(GROUPED.arguments(place)).args(more);
        })
    }

    /// Starts `mpiexec` with the arguments that `fill` adds.
    pub fn each(
        programs: &Programs,
        place: &Path,
        fill: &dyn Fn(&mut Command),
    ) -> Result<Started, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{number}", std::process::id());
        let mut command = Job::program(Path::new("/bin/sh"), place);
        command.args(["-c", LAUNCH]).arg(&programs.mpiexec);
        fill(&mut command);
        command.env(MARK, &mark).env("FITGPT_SILENCE", SILENCE.as_secs().to_string());
        // Less than a pipe holds; read after the end.
        let child = command.stdout(Stdio::piped()).spawn();
        let child = child.map_err(|error| format!("{}: {error}", programs.mpiexec.display()))?;
        Ok(Started { child, mark })
    }

    /// The processes of its ranks.
    pub fn processes(&self) -> Vec<(usize, Pid)> {
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let rank = |entry: std::fs::DirEntry| {
            let process: i32 = entry.file_name().to_str()?.parse().ok()?;
            let variables = std::fs::read(entry.path().join("environ")).ok()?;
            let variables = String::from_utf8_lossy(&variables).into_owned();
            let value = |name: &str| {
                let all = variables.split('\0').filter_map(|pair| pair.split_once('='));
                all.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next()
            };
            (value(MARK)? == self.mark).then_some(())?;
            Some((value("PMI_RANK")?.parse().ok()?, Pid::from_raw(process)?))
        };
        all.filter_map(rank).collect()
    }

    /// Waits for the process of a rank and sends it a signal; none if the run has ended before.
    pub fn signal(&mut self, rank: usize, signal: Signal) -> Option<Instant> {
        while self.child.try_wait().ok()?.is_none() {
            let found = self.processes().into_iter().find(|(other, _)| *other == rank);
            if let Some((_, process)) = found {
                let sent = Instant::now();
                return kill_process(process, signal).ok().map(|()| sent);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }

    /// Waits for so long, or until it ends; true if it is still there.
    pub fn runs_for(&mut self, time: Duration) -> bool {
        let start = Instant::now();
        while start.elapsed() < time {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return false;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        true
    }

    /// Runs to its end, which must be a good one.
    pub fn finished(self) -> Result<(), String> {
        let output = self.output(Duration::from_secs(120))?;
        let output = output.ok_or("a rank was stopped")?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let errors = String::from_utf8_lossy(&output.stderr).into_owned();
                Err(format!("ended with {:?}: {}", output.status.code(), errors.trim()))
            }
        }
    }

    /// Waits for the end after a fault; without one, the run must have succeeded.
    pub fn after(self, fault: Option<Instant>) -> Result<Ended, String> {
        self.after_within(BOUND, fault)
    }

    /// The same for a fault that takes longer to be noticed.
    pub fn after_within(self, bound: Duration, fault: Option<Instant>) -> Result<Ended, String> {
        let Some(fault) = fault else {
            return self.finished().map(|()| Ended::undisturbed());
        };
        let Some(output) = self.output(bound)? else {
            return Ok(Ended::undisturbed());
        };
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        // The run may have been done when the fault came.
        let since = (!output.status.success()).then(|| fault.elapsed());
        let said = String::from_utf8_lossy(&output.stdout);
        let is_told = said.contains("BAD TERMINATION") || errors.contains("[mpiexec@");
        let last: Vec<&str> = said.lines().rev().take(LAST_LINES).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        let last_words = format!("{}; printed at last:\n{}", output.status, last.join("\n"));
        Ok(Ended { since, errors, is_told, last_words })
    }

    /// Waits for the end of the launcher and of all ranks. What does not end is killed and a
    /// finding. None: one rank was stopped when all had finished and were about to leave, so that
    /// only the launcher waits for it.
    fn output(mut self, bound: Duration) -> Result<Option<Output>, String> {
        let ended = !self.runs_for(bound);
        let mut left = self.processes();
        let until = Instant::now() + AFTERWARDS;
        while ended && !left.is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
            left = self.processes();
        }
        for (_, process) in &left {
            let _ = kill_process(*process, Signal::KILL);
        }
        if !ended {
            let _ = self.child.kill();
        }
        let output = self.child.wait_with_output().map_err(|error| error.to_string())?;
        if ended && left.is_empty() {
            return Ok(Some(output));
        }
        if left.len() == 1 && output.stderr.is_empty() {
            return Ok(None);
        }
        let ranks: Vec<usize> = left.iter().map(|(rank, _)| *rank).collect();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(format!("ranks {ranks:?} did not end within {bound:?}: {}", errors.trim()))
    }
}

impl Ended {
    /// The end of a run that no fault has reached.
    fn undisturbed() -> Ended {
        let (errors, last_words) = (String::new(), String::new());
        Ended { since: None, errors, is_told: false, last_words }
    }

    /// Who said what happened: us, or only the launcher.
    ///
    /// # Errors
    ///
    /// Nobody did, or another rank is blamed.
    pub fn blames(&self, blamed: &Blamed) -> Result<&'static str, String> {
        let lines = self.errors.lines().filter(|line| line.starts_with("error: "));
        let ours: Vec<&str> = lines.collect();
        let is_right = |line: &&&str| {
            let names = |rank: &usize| line.contains(&format!("rank {rank} "));
            line.contains("to start MPI")
                || (line.contains(blamed.words) && blamed.ranks.iter().any(names))
        };
        match (ours.iter().filter(is_right).count(), ours.len()) {
            (0, 0) if self.is_told => Ok("launcher"),
            // MPI itself ends the process: on any error until it is initialised, and on errors that
            // it deems fatal afterwards.
            (0, 0) if self.errors.contains("Fatal error in internal_") => Ok("MPI"),
            (right, all) if right == all && all > 0 => Ok("fitgpt"),
            _ => Err(format!(
                "ranks {:?} were to blame: {}\nmpiexec: {}",
                blamed.ranks,
                self.errors.trim(),
                self.last_words
            )),
        }
    }
}
