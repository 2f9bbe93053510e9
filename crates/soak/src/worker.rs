//! A worker: a process that runs every n-th case of a section and prints a line for each finding.
//! Before each case it writes the case's name to a file, so that the supervisor knows which case
//! killed it.

use crate::panics::caught;
use crate::section::{Cases, Environment, SECTIONS, Section};
use crate::tally::Tally;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest message of a finding.
const MESSAGE: usize = 1500;

/// Bytes of the file with the case's name.
const BEAT: usize = 128;

/// Which cases a worker runs, and for how long.
#[derive(Clone, Debug)]
pub struct Share {
    /// The section's name, or that of a part.
    pub name: String,
    /// The first case.
    pub first: u64,
    /// Distance to the next case.
    pub step: u64,
    /// Number of cases; `None` to run until the time is over.
    pub cases: Option<u64>,
    /// The time limit.
    pub time: Duration,
    /// The file with the name of the current case.
    pub beat: PathBuf,
}

impl Share {
    /// As arguments of a process.
    pub fn to_words(&self) -> Vec<String> {
        let cases = self.cases.map_or("-".to_owned(), |cases| cases.to_string());
        let (first, step) = (self.first.to_string(), self.step.to_string());
        let time = self.time.as_millis().to_string();
        vec![self.name.clone(), first, step, cases, time, self.beat.display().to_string()]
    }

    /// Parses the arguments of [`Share::to_words`].
    pub fn from_words(words: &[String]) -> Option<Share> {
        let [name, first, step, cases, time, beat] = words else { return None };
        Some(Share {
            name: name.clone(),
            first: first.parse().ok()?,
            step: step.parse().ok()?,
            cases: cases.parse().ok(),
            time: Duration::from_millis(time.parse().ok()?),
            beat: PathBuf::from(beat),
        })
    }
}

/// The line of a finding: name and number of the case, and what is wrong.
pub fn finding_line(name: &str, case: u64, message: &str) -> String {
    let end = message.char_indices().nth(MESSAGE).map_or(message.len(), |(at, _)| at);
    let message = message[..end].replace(['\n', '\r', '\t'], " | ");
    format!("finding\t{name}\t{case}\t{message}\n")
}

/// The section that a name belongs to.
///
/// # Errors
///
/// When there is none.
pub fn section_of(name: &str) -> Result<&'static Section, String> {
    let own = name.split('/').next().unwrap_or_default();
    let found = SECTIONS.iter().find(|section| section.name == own);
    found.ok_or_else(|| format!("no section is called '{own}'"))
}

/// Runs a share; lines go to `out`.
///
/// # Errors
///
/// When the section cannot be prepared, or `out` is closed.
pub fn run(share: &Share, environment: &Environment, out: &mut dyn Write) -> Result<(), String> {
    let mut cases = (section_of(&share.name)?.open)(environment, &share.name)?;
    let beat = File::create(&share.beat).map_err(|error| error.to_string())?;
    let mut tally = Tally::default();
    let (start, mut told) = (Instant::now(), Instant::now());
    let (mut index, mut done) = (share.first, 0);
    while share.cases.map_or(start.elapsed() < share.time, |cases| done < cases) {
        let found = one(&mut *cases, (&share.name, index), &beat, &mut tally);
        let line = found.map_err(|error| error.to_string())?;
        if !line.is_empty() || told.elapsed() > Duration::from_secs(1) {
            told = Instant::now();
            let lines = line + &tally.take_lines();
            send(out, &lines)?;
        }
        index += share.step;
        done += 1;
    }
    let mut lines = tally.take_lines();
    lines += "done\n";
    send(out, &lines)
}

/// Runs a case; returns the line of its finding, if any.
fn one(
    cases: &mut dyn Cases,
    (name, index): (&str, u64),
    beat: &File,
    tally: &mut Tally,
) -> io::Result<String> {
    let (name, case) = cases.locate(index).unwrap_or_else(|| (name.to_owned(), index));
    let mut text = format!("{index}\t{name}\t{case}\n").into_bytes();
    text.resize(BEAT, b'\n');
    beat.write_all_at(&text, 0)?;
    tally.count("cases");
    let outcome = caught(|| cases.run(index, tally)).and_then(|outcome| outcome);
    Ok(match outcome {
        Ok(()) => String::new(),
        Err(message) => finding_line(&name, case, &message),
    })
}

fn send(out: &mut dyn Write, lines: &str) -> Result<(), String> {
    let sent = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
    sent.map_err(|error| error.to_string())
}

/// The last case of a worker: index, name and number.
pub fn read_beat(path: &Path) -> Option<(u64, String, u64)> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut parts = text.lines().next()?.split('\t');
    Some((parts.next()?.parse().ok()?, parts.next()?.to_owned(), parts.next()?.parse().ok()?))
}
