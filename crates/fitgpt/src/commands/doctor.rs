//! `fitgpt doctor`: reads an out-of-memory log and names the cause and the fix. Needs no device and
//! no network.

use super::line;
use crate::doctor_document;
use crate::flags::{FlagSet, flags};
use crate::invocation::{program, with_world};
use crate::screen::{self, coloured, faint, show, show_json, strong};
use ::train::TrainError;
use doctor::diagnosis::Diagnosis;
use doctor::log::Log;
use doctor::recovered::RecoveredRun;
use doctor::report::{Report, bytes};
use doctor::words::Language;
use plan::hardware::Card;
use spec::{Memory, SpecError, Value, Values};
use std::io::{Read, Seek};
use std::path::Path;

flags! {
    /// The flags of `doctor`.
    pub struct Flags {
        /// the card, if the log does not name it
        gpu: Option<String> = "--gpu", "NAME" Values::Card;
        /// GPU memory that the run could use: '11.69GiB', '8GB'
        vram: Option<String> = "--vram", "SIZE" Values::Any;
        /// one JSON document (fitgpt.doctor/1, docs/doctor-json.md)
        json: bool = "--json";
        /// the report as Markdown
        markdown: bool = "--markdown";
        /// write the report in this language instead of the one in LANG
        lang: Option<String> = "--lang", "LANGUAGE" Values::Words(&Language::CODES);
    }
}

/// The command's row.
pub static COMMAND: super::Command = super::Command {
    name: "doctor",
    about: "explain why a PyTorch run ran out of memory, and what to change",
    text: &[
        "Reads the log of a run that died with `CUDA out of memory` and reports which tensor did \
         not fit, in which phase, what held the rest of the memory, which of the usual advice \
         helps here, what to change in nanoGPT, and the command that runs it unchanged with \
         fitgpt. Needs no device and no network.",
    ],
    usage: &[line(
        "fitgpt doctor [LOG|-] [config.py|config.toml ...] [--key=value ...] [flags]",
        "",
    )],
    examples: &[
        line("fitgpt doctor oom.log", ""),
        line(
            "python train.py config/mine.py 2>&1 | tee run.log; fitgpt doctor run.log \
             config/mine.py",
            "",
        ),
        line(
            "fitgpt doctor config/case_a_124m_b64.py --gpu 'RTX 4070'",
            "would it run out of memory in PyTorch?",
        ),
    ],
    notes: &[],
    lists_data_sets: false,
    arguments: &[Values::File],
    flags: Flags::TABLE,
    closing: &["With nanoGPT's keys, give the settings that the log does not show."],
    keys: Some(spec::Command::Train),
    run,
};

/// At most this much of a log is read; its end matters most.
const MOST_LOG_BYTES: u64 = 64 << 20;

/// Columns of the longest bar.
const BAR: f64 = 30.0;

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let (flags, rest) = Flags::read(arguments)?;
    if flags.json && flags.markdown {
        let what = "--json and --markdown are two forms of the report: give one of them";
        return Err(SpecError::Conflict { what: what.to_string() }.into());
    }
    let (logs, rest): (Vec<String>, Vec<String>) =
        rest.into_iter().partition(|argument| is_log(argument));
    let log = match logs.as_slice() {
        [] if rest.is_empty() && !screen::is_input_terminal() => Some(read("-")?),
        [] => None,
        [one] => Some(read(one)?),
        [_, second, ..] => {
            let what = format!("give one log at a time; '{second}' is a second one");
            return Err(SpecError::Conflict { what }.into());
        }
    };
    if log.is_none() && rest.is_empty() {
        let what = "give a log (a file, or - for standard input), a config, or both; see \
                    fitgpt doctor --help";
        return Err(SpecError::Conflict { what: what.to_string() }.into());
    }
    let language = language(flags.lang.as_deref())?;
    let log = log.map(|content| Log::read(&content));
    let named = log.as_ref().and_then(|log| log.run.card.as_deref()).and_then(Card::find);
    let card = match flags.gpu.as_deref() {
        Some(name) => Some(crate::planning::find_gpu(name)?),
        None => named,
    };
    let vram = flags.vram.as_deref().map(|size| memory(size, card)).transpose()?;
    let recovered = with_world(|world| {
        let card = card.map(|gpu| gpu.name);
        RecoveredRun::recover(log.as_ref(), &rest, world, card, data::known::characters)
    })?;
    let diagnosis = Diagnosis::new(log, recovered, card, vram)?;
    let program = program();
    let report = Report { diagnosis: &diagnosis, language, program: &program };
    if flags.json {
        show_json(&doctor_document::of(&report))?;
    } else if flags.markdown {
        show(&report.markdown())?;
    } else {
        show(&text(&report))?;
    }
    Ok(0)
}

/// A log is standard input, or a file that is not a config.
fn is_log(argument: &str) -> bool {
    let config = argument.ends_with(".py") || argument.ends_with(".toml");
    argument == "-" || (!argument.starts_with("--") && !config)
}

fn read(path: &str) -> Result<Vec<u8>, TrainError> {
    let mut content = Vec::new();
    let ended = match path {
        "-" => std::io::stdin().lock().take(MOST_LOG_BYTES).read_to_end(&mut content),
        path => read_ends(path, &mut content),
    };
    let failed = |error| TrainError::Io {
        path: Path::new(path).to_path_buf(),
        doing: "read",
        error,
        advice: "give the path of a log, or - and paste it",
    };
    ended.map_err(failed)?;
    Ok(content)
}

/// Reads the beginning and the end of a long file: the settings and the error.
fn read_ends(path: &str, content: &mut Vec<u8>) -> std::io::Result<usize> {
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    if length <= MOST_LOG_BYTES {
        return file.take(MOST_LOG_BYTES).read_to_end(content);
    }
    let mut head = file.by_ref().take(MOST_LOG_BYTES / 4);
    let read = head.read_to_end(content)?;
    file.seek(std::io::SeekFrom::End(-((MOST_LOG_BYTES / 2) as i64)))?;
    Ok(read + file.take(MOST_LOG_BYTES / 2).read_to_end(content)?)
}

fn language(asked: Option<&str>) -> Result<Language, SpecError> {
    match asked {
        Some(code) => Language::of(code).ok_or_else(|| {
            let what =
                format!("unknown --lang '{code}'; choose one of {}", Language::CODES.join(", "));
            SpecError::Conflict { what }
        }),
        None => {
            let set = ["LC_ALL", "LC_MESSAGES", "LANG"].into_iter();
            let first = set.filter_map(|name| std::env::var(name).ok()).find(|v| !v.is_empty());
            Ok(first.and_then(|value| Language::of(&value)).unwrap_or(Language::English))
        }
    }
}

fn memory(size: &str, card: Option<&Card>) -> Result<u64, SpecError> {
    let bad = || SpecError::Conflict {
        what: format!("--vram '{size}': write a size such as '11.69GiB' or '8GB'"),
    };
    match Memory::parse(&Value::Str(size.to_string())).ok_or_else(bad)? {
        Memory::Bytes(bytes) => Ok(bytes.get()),
        Memory::Auto => card.map(|card| card.hardware(false).memory.get()).ok_or_else(bad),
        Memory::Percent(percent) => {
            let all = card.ok_or_else(bad)?.hardware(false).memory.get();
            Ok((all as f64 * percent / 100.0) as u64)
        }
    }
}

/// The report as text: half a screen of sentences, then tables, then commands.
fn text(report: &Report<'_>) -> String {
    let labels = report.language.words().labels();
    let width = screen::wrap_width();
    let mut text = String::new();
    for line in report.summary() {
        text += &(screen::wrapped(&line, 0, width) + "\n");
    }
    let budget = report.diagnosis.budget;
    let memory: Vec<Row> = report.memory().into_iter().map(|(name, n)| (name, n, n)).collect();
    text += &table(labels.memory, &memory, None);
    let peaks = report.peaks().into_iter().map(|(phase, n, needed)| (phase.to_string(), n, needed));
    text += &table(labels.peaks, &peaks.collect::<Vec<Row>>(), budget);
    if !report.diagnosis.advice.is_empty() {
        text += &format!("\n{}\n", strong(labels.advice));
        for [verdict, advice, saved, note] in report.advice() {
            let saved = if saved.is_empty() { saved } else { format!(" ({saved})") };
            let line = format!("  {verdict}: {advice}{saved}; {note}");
            text += &(screen::wrapped(&line, 6, width) + "\n");
        }
    }
    if report.diagnosis.recovered.is_some() && budget.is_some() {
        text += &format!("\n{}\n", strong(labels.fixes));
        if report.diagnosis.fixes.is_empty() && report.diagnosis.log.is_some() {
            text += &format!("  {}\n", labels.nothing);
        }
        for fix in &report.diagnosis.fixes {
            text += &(screen::wrapped(&format!("  {}", report.fix(fix)), 6, width) + "\n");
        }
    }
    if !report.diagnosis.unknown.is_empty() {
        text += &format!("\n{}\n", strong(labels.unknown));
        for unknown in &report.diagnosis.unknown {
            let line = format!("  {}", report.language.words().unknown(*unknown));
            text += &(screen::wrapped(&line, 4, width) + "\n");
        }
    }
    for (title, command) in report.commands() {
        text += &format!("\n{}\n  {command}\n", strong(title));
    }
    text
}

/// A name, the bytes to show, and the bytes that the card needs for it.
type Row = (String, u64, u64);

fn table(title: &str, rows: &[Row], budget: Option<u64>) -> String {
    let largest = rows.iter().map(|(_, count, _)| *count).chain(budget).max().unwrap_or(1).max(1);
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}\n", strong(title));
    for (name, count, needed) in rows {
        let columns = (*count as f64 / largest as f64 * BAR).round() as usize;
        let bar = coloured(&"█".repeat(columns.max(1)));
        let over = budget.filter(|budget| needed > budget);
        let over = over.map_or_else(String::new, |budget| format!(" > {}", bytes(budget)));
        let with = if needed == count { String::new() } else { format!(" → {}", bytes(*needed)) };
        text += &format!("  {:>11} {bar} {}{with}{over}\n", bytes(*count), faint(name));
    }
    text
}
