//! `fitgpt compare`: a table and a chart of several runs, from their logs. Reads only.

use super::line;
use crate::comparison::{Comparison, document, runs_here};
use crate::flags::{FlagSet, flags};
use crate::screen;
use crate::screen::{show, show_json};
use ::train::TrainError;
use checkpoint::NewFile;
use events::LogReader;
use plots::compare::{By, Chart, LOSS, RunLog, VAL_LOSS, png, svg};
use plots::metrics::METRICS;
use spec::nearest::nearest;
use spec::{SpecError, Values};
use std::path::{Path, PathBuf};

flags! {
    /// The flags of `compare`.
    pub struct Flags {
        /// what the chart is drawn over; without it the terminal shows iterations, a picture all
        /// three
        by: Option<String> = "--by", "AXIS" Values::Words(By::WORDS);
        /// the metric to plot, such as grad_norm (docs/metrics.md); without it the val loss, and
        /// behind it the loss of iterations
        metric: Option<String> = "--metric", "NAME" Values::Any;
        /// do not cut off the beginning of a run where it is much higher than the rest
        full: bool = "--full";
        /// logarithmic iterations, tokens and time
        log: bool = "--log";
        /// draw the chart to this file, or to standard output for -
        svg: Option<String> = "--svg", "FILE" Values::File;
        /// the same as pixels
        png: Option<String> = "--png", "FILE" Values::File;
        /// one JSON document (fitgpt.compare/1, docs/compare-json.md) on standard output
        json: bool = "--json";
    }
}

/// The command's row.
pub static COMMAND: super::Command = super::Command {
    name: "compare",
    about: "compare runs: a table, and a chart of their losses by iteration, tokens, time",
    text: &[
        "Compares runs by their logs: how far each came, its best validation loss, its speed, the \
         settings that differ, and a chart. Runs may still be training.",
    ],
    usage: &[line("fitgpt compare [OUT_DIR|log.jsonl ...] [flags]", "")],
    examples: &[
        line("fitgpt compare", "every run in this folder"),
        line("fitgpt compare out-a out-b --by time", ""),
        line("fitgpt compare out-a out-b --svg losses.svg --png losses.png", ""),
        line("fitgpt compare out --metric grad_norm --log", ""),
    ],
    notes: &[],
    lists_data_sets: false,
    arguments: &[Values::Folder, Values::File],
    flags: Flags::TABLE,
    closing: &[],
    keys: None,
    run,
};

/// What `--svg` and `--png` accept instead of a file.
const STANDARD_OUTPUT: &str = "-";

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let (flags, mut names) = Flags::read(arguments)?;
    flags.check()?;
    let by = flags.by()?;
    let metrics = flags.metrics()?;
    if names.is_empty() {
        names = runs_here();
    }
    if names.is_empty() {
        let what = "there is no run in this folder: give an out_dir or a log.jsonl".to_string();
        return Err(SpecError::Conflict { what }.into());
    }
    let (names, runs) = read_all(names, &metrics)?;
    let chart = Chart::new(&runs, flags.log, flags.full);
    let panels = by.map_or(By::ALL.to_vec(), |by| vec![by]);
    flags.draw(&chart, &panels)?;
    if flags.json {
        show_json(&document(&runs, &names.iter().map(|name| log_path(name)).collect::<Vec<_>>()))?;
    } else if !flags.is_picture() {
        let by = by.unwrap_or(By::Iteration);
        show(&Comparison { runs: &runs, chart: &chart, by }.text())?;
        for path in [&flags.svg, &flags.png].into_iter().flatten() {
            screen::line(&format!("chart: {path}"));
        }
    }
    Ok(0)
}

/// A run's name and what its log says.
type NamedRun = (String, RunLog);

/// Reads the logs. A file that is no log does not stop the others, unless it is the only one.
fn read_all(
    names: Vec<String>,
    metrics: &[&str],
) -> Result<(Vec<String>, Vec<NamedRun>), TrainError> {
    let (mut found, mut runs, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for name in names {
        match read(&log_path(&name), metrics) {
            Ok(log) => {
                runs.push((shown(&name), log));
                found.push(name);
            }
            Err(error @ TrainError::Mismatch { .. }) => refused.push(error),
            Err(error) => return Err(error),
        }
    }
    if runs.is_empty() && !refused.is_empty() {
        return Err(refused.remove(0));
    }
    for error in refused {
        screen::note(&format!("note: left out: {error}"));
    }
    Ok((found, runs))
}

/// A folder's log, or the file itself.
fn log_path(name: &str) -> PathBuf {
    let path = Path::new(name);
    if path.is_dir() { path.join("log.jsonl") } else { path.to_path_buf() }
}

/// The run's name: its folder as it was typed.
fn shown(name: &str) -> String {
    let name = name.strip_suffix("/log.jsonl").unwrap_or(name).trim_end_matches('/');
    let name = name.strip_prefix("./").unwrap_or(name);
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn read(path: &Path, metrics: &[&str]) -> Result<RunLog, TrainError> {
    let failed = |error| TrainError::Io {
        path: path.to_path_buf(),
        doing: "read the log",
        error,
        advice: "give a run's out_dir or its log.jsonl",
    };
    // A pipe or a device would never end.
    if !path.metadata().map_err(failed)?.is_file() {
        return Err(failed(std::io::Error::other("it is not a regular file")));
    }
    let log = RunLog::read(LogReader::open(path).map_err(failed)?, metrics);
    // A run that has just begun has an empty log.
    if log.events == 0 && path.metadata().map_err(failed)?.len() > 0 {
        let problem = log.first_problem.unwrap_or("none is an event".to_string());
        let what = format!(
            "none of its lines is about a run ({problem}); give the out_dir of a `fitgpt train`, \
             or the log.jsonl in it"
        );
        return Err(TrainError::Mismatch { path: path.to_path_buf(), what });
    }
    Ok(log)
}

impl Flags {
    fn check(&self) -> Result<(), SpecError> {
        let outputs = [
            ("--json", self.json),
            ("--svg -", self.svg.as_deref() == Some(STANDARD_OUTPUT)),
            ("--png -", self.png.as_deref() == Some(STANDARD_OUTPUT)),
        ];
        let given: Vec<&str> =
            outputs.iter().filter(|(_, given)| *given).map(|(flag, _)| *flag).collect();
        match given[..] {
            [] | [_] => Ok(()),
            _ => {
                let what = format!("{} all write to standard output: give files", given.join(", "));
                Err(SpecError::Conflict { what })
            }
        }
    }

    fn by(&self) -> Result<Option<By>, SpecError> {
        let Some(word) = &self.by else { return Ok(None) };
        let by = By::of(word);
        by.map(Some).ok_or_else(|| {
            let what = format!("--by '{word}': there are {}", By::WORDS.join(", "));
            SpecError::Conflict { what }
        })
    }

    /// The metrics of the chart.
    fn metrics(&self) -> Result<Vec<&'static str>, SpecError> {
        let Some(name) = &self.metric else { return Ok(vec![VAL_LOSS, LOSS]) };
        let known = || METRICS.iter().map(|metric| metric.name);
        match known().find(|found| found == name) {
            Some(found) => Ok(vec![found]),
            None => {
                let guess = nearest(name, known()).map(|name| format!("; did you mean {name}?"));
                let (known, guess) = (known().collect::<Vec<_>>(), guess.unwrap_or_default());
                let shown: String = name.chars().take(40).collect();
                let what = format!("--metric '{shown}': there are {}{guess}", known.join(", "));
                Err(SpecError::Conflict { what })
            }
        }
    }

    fn is_picture(&self) -> bool {
        [&self.svg, &self.png].into_iter().any(|path| path.as_deref() == Some(STANDARD_OUTPUT))
    }

    fn draw(&self, chart: &Chart, panels: &[By]) -> Result<(), TrainError> {
        if let Some(path) = &self.svg {
            put(path, svg(chart, panels).as_bytes())?;
        }
        if let Some(path) = &self.png {
            put(path, &png(chart, panels).map_err(TrainError::Output)?)?;
        }
        Ok(())
    }
}

/// Writes a picture, whole or not at all.
fn put(path: &str, content: &[u8]) -> Result<(), TrainError> {
    if path == STANDARD_OUTPUT {
        return screen::show_bytes(content);
    }
    let mut file = NewFile::create(Path::new(path), content.len() as u64)?;
    file.append(content)?;
    file.finish()?;
    Ok(())
}
