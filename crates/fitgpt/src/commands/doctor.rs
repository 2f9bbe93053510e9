//! `fitgpt doctor`: reads an out-of-memory log and names the cause and the fix. Needs no device and
//! no network.

use super::line;
use crate::doctor_document;
use crate::flags::{FlagSet, flags};
use crate::invocation::{program, with_world};
use crate::screen::{self, coloured, faint, show, show_json, strong};
use ::train::TrainError;
use doctor::diagnosis::{Diagnosis, Given};
use doctor::log::{Log, ends};
use doctor::markdown::markdown;
use doctor::recovered::RecoveredRun;
use doctor::report::Report;
use doctor::words::{Language, Refusal, fill};
use plan::hardware::Card;
use spec::{Memory, SpecError, Value, Values};
use std::path::Path;

flags! {
    /// The flags of `doctor`.
    pub struct Flags {
        /// the card, if the log does not name it
        gpu: Option<String> = "--gpu", "NAME" Values::Card;
        /// GPU memory that is free for the run: '11.69GiB', '8GB'
        vram: Option<String> = "--vram", "SIZE" Values::Any;
        /// GPU memory that other programs hold: '1.97GiB'
        used: Option<String> = "--used", "SIZE" Values::Any;
        /// one JSON document (fitgpt.doctor/2, docs/doctor-json.md)
        json: bool = "--json";
        /// the report as Markdown
        markdown: bool = "--markdown";
        /// the report's language; without it the language of the text, else of LANG
        lang: Option<String> = "--lang", "LANGUAGE" Values::Words(&Language::CODES);
    }
}

/// The command's row.
pub static COMMAND: super::Command = super::Command {
    name: "doctor",
    about: "explain why a PyTorch run ran out of memory, and what to change",
    text: &[
        "Reads the log of a run that died with `CUDA out of memory`, or a whole post about one, \
         and reports what held the memory, which tensor did not fit and when, which advice helps \
         here, what to change in nanoGPT, and the command that runs it unchanged with fitgpt. For \
         other programs it says what their messages say, and what is not known. Needs no device \
         and no network.",
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
            "fitgpt doctor config/case_a_124m_b64.py --gpu 'RTX 4070' --used 1.97GiB",
            "would it run out of memory in PyTorch?",
        ),
    ],
    notes: &[],
    lists_data_sets: false,
    arguments: &[Values::File],
    flags: Flags::TABLE,
    closing: &[
        "With nanoGPT's keys, give the settings that the log does not show.",
        "Exit codes: 0 diagnosed, or a config alone fits; 3 a config alone would not fit with a \
         margin of 7 %; 4 there was nothing to diagnose.",
    ],
    keys: Some(spec::Command::Train),
    run,
};

/// Columns of the longest bar.
const BAR: f64 = 30.0;

/// A config alone would not fit.
const WOULD_NOT_FIT: u8 = 3;
/// Nothing to diagnose.
const NOTHING: u8 = 4;

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let (flags, rest) = Flags::read(arguments)?;
    let asked = flags.lang.as_deref().map(spoken).transpose()?;
    let usual = asked.unwrap_or_else(of_environment);
    if flags.json && flags.markdown {
        return Err(refused(usual, Refusal::TwoForms, &[]).into());
    }
    let (logs, rest): (Vec<String>, Vec<String>) =
        rest.into_iter().partition(|argument| is_log(argument));
    let log = match logs.as_slice() {
        [] if rest.is_empty() && !screen::is_input_terminal() => Some(read("-")?),
        [] => None,
        [one] => Some(read(one)?),
        [_, second, ..] => {
            return Err(refused(usual, Refusal::SecondLog, &[("name", second)]).into());
        }
    };
    if log.is_none() && rest.is_empty() {
        return Err(refused(usual, Refusal::NoInput, &[]).into());
    }
    let log = log.map(|content| Log::read(&content));
    let language = asked.or_else(|| log.as_ref()?.language).unwrap_or(usual);
    let named = log.as_ref().and_then(|log| log.run.card.as_deref()).and_then(Card::find);
    let card = match flags.gpu.as_deref() {
        Some(name) => Some(crate::planning::find_gpu(name)?),
        None => named,
    };
    let size = |flag: &str, given: Option<&str>| {
        let bad =
            |text: &str| refused(language, Refusal::BadSize, &[("flag", flag), ("name", text)]);
        given.map(|text| memory(text, card).ok_or_else(|| bad(text))).transpose()
    };
    let vram = size("--vram", flags.vram.as_deref())?;
    let used = size("--used", flags.used.as_deref())?;
    let recovered = with_world(|world| {
        let card = card.map(|gpu| gpu.name);
        RecoveredRun::recover(log.as_ref(), &rest, world, card, data::known::characters)
    })?;
    let diagnosis = Diagnosis::new(log, recovered, Given { card, vram, used })?;
    let program = program();
    let report = Report { diagnosis: &diagnosis, language, program: &program };
    if flags.json {
        show_json(&doctor_document::of(&report))?;
    } else if flags.markdown {
        show(&markdown(&report))?;
    } else {
        show(&text(&report))?;
    }
    Ok(match () {
        () if diagnosis.is_empty() => NOTHING,
        () if diagnosis.would_not_fit() => WOULD_NOT_FIT,
        () => 0,
    })
}

/// A log is standard input, or a file that is not a config.
fn is_log(argument: &str) -> bool {
    let config = argument.ends_with(".py") || argument.ends_with(".toml");
    argument == "-" || (!argument.starts_with("--") && !config)
}

fn read(path: &str) -> Result<Vec<u8>, TrainError> {
    let content = match path {
        "-" => ends::of_pipe(std::io::stdin().lock()),
        path => std::fs::File::open(path).and_then(ends::of_file),
    };
    content.map_err(|error| TrainError::Io {
        path: Path::new(path).to_path_buf(),
        doing: "read",
        error,
        advice: "give the path of a log, or - and paste it",
    })
}

fn spoken(code: &str) -> Result<Language, SpecError> {
    Language::of(code).ok_or_else(|| {
        let what = format!("unknown --lang '{code}'; choose one of {}", Language::CODES.join(", "));
        SpecError::Conflict { what }
    })
}

fn of_environment() -> Language {
    let set = ["LC_ALL", "LC_MESSAGES", "LANG"].into_iter();
    let first = set.filter_map(|name| std::env::var(name).ok()).find(|value| !value.is_empty());
    first.and_then(|value| Language::of(&value)).unwrap_or(Language::English)
}

fn refused(language: Language, refusal: Refusal, names: &[(&str, &str)]) -> SpecError {
    SpecError::Conflict { what: fill(language.words().refusal(refusal), names) }
}

fn memory(size: &str, card: Option<&Card>) -> Option<u64> {
    let all = card.map(|card| card.hardware(false).memory.get());
    match Memory::parse(&Value::Str(size.to_string()))? {
        Memory::Bytes(bytes) => Some(bytes.get()),
        Memory::Auto => all,
        Memory::Percent(percent) => Some((all? as f64 * percent / 100.0) as u64),
    }
}

/// The report as text: half a screen of sentences, then tables, then commands.
fn text(report: &Report<'_>) -> String {
    let words = report.language.words();
    let labels = words.labels();
    let found = report.diagnosis;
    let width = screen::wrap_width();
    let mut text = String::new();
    for line in report.summary() {
        text += &(screen::wrapped(&line, 0, width) + "\n");
    }
    let memory: Vec<Row> = report.memory().into_iter().map(|(name, n)| (name, n, n)).collect();
    text += &table(report, labels.memory, &memory, None);
    if let Some(total) = report.total() {
        text += &format!("{}\n", faint(&screen::wrapped(&format!("  {total}"), 14, width)));
    }
    let peaks = report.peaks().into_iter().map(|(phase, n, needed)| (phase.to_string(), n, needed));
    let free = found.room.map(|room| room.free());
    text += &table(report, labels.peaks, &peaks.collect::<Vec<Row>>(), free);
    for (title, claimed) in [(labels.claims, true), (labels.advice, false)] {
        let rows = report.advice(claimed).into_iter().map(|[verdict, advice, saved, note]| {
            let saved = report.bracketed(&saved);
            format!("{verdict}{}{advice}{saved}{}{note}", labels.colon, labels.then)
        });
        text += &list(title, rows, 6, width);
    }
    let lacks = found.lacks_fixes().then(|| labels.nothing.to_string());
    let fixes = found.fixes.iter().map(|fix| report.fix(fix)).chain(lacks);
    text += &list(labels.fixes, fixes, 6, width);
    text += &list(labels.remedies, report.remedies().into_iter().map(String::from), 4, width);
    let unknown = found.unknown.iter().map(|unknown| words.unknown(*unknown).to_string());
    text += &list(labels.unknown, unknown, 4, width);
    for (title, command) in report.commands() {
        text += &format!("\n{}\n  {command}\n", strong(&screen::wrapped(&title, 0, width)));
    }
    if let Some((title, patch)) = report.patch_title().zip(found.patch.as_ref()) {
        text += &format!("\n{}\n", strong(&screen::wrapped(&title, 0, width)));
        for line in patch.diff().lines() {
            text += &format!("  {line}\n");
        }
        text += &(screen::wrapped(&report.patch_limits(), 0, width) + "\n");
    }
    text
}

/// A titled list; nothing if it has no rows.
fn list(title: &str, rows: impl Iterator<Item = String>, indent: usize, width: usize) -> String {
    let line = |row: String| screen::wrapped(&format!("  {row}"), indent, width) + "\n";
    let rows: String = rows.map(line).collect();
    if rows.is_empty() { rows } else { format!("\n{}\n{rows}", strong(title)) }
}

/// A name, the bytes to show, and the bytes that the card needs for it.
type Row = (String, u64, u64);

fn table(report: &Report<'_>, title: &str, rows: &[Row], free: Option<u64>) -> String {
    let largest = rows.iter().map(|(_, count, _)| *count).chain(free).max().unwrap_or(1).max(1);
    if rows.is_empty() {
        return String::new();
    }
    let bytes = |count: u64| report.bytes(count);
    let width = screen::wrap_width();
    let bar_width = BAR.min(width.saturating_sub(50).max(5) as f64);
    let mut text = format!("\n{}\n", strong(title));
    for (name, count, needed) in rows {
        let columns = (*count as f64 / largest as f64 * bar_width).round() as usize;
        let columns = columns.max(1);
        let bar = coloured(&"█".repeat(columns));
        let over = free.filter(|free| needed > free);
        let over = over.map_or_else(String::new, |free| format!(" > {}", bytes(free)));
        let with = if needed == count { String::new() } else { format!(" → {}", bytes(*needed)) };
        let name =
            screen::wrapped(&format!("{name}{with}{over}"), 0, width.saturating_sub(15 + columns));
        let mut lines = name.lines();
        let first = lines.next().unwrap_or_default();
        text += &format!("  {:>11} {bar} {}\n", bytes(*count), faint(first));
        for line in lines {
            text += &format!("{}{}\n", " ".repeat(15 + columns), faint(line));
        }
    }
    text
}
