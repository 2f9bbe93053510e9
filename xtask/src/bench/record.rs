//! The results of a bench: parsing what the programs print, medians, the table, the record file.

use super::machine::Machine;
use crate::process::Failure;
use std::path::{Path, PathBuf};

/// The schema of a record. (`fitgpt.bench/2` is what `fitgpt bench` prints: a run's report here.)
const SCHEMA: &str = "fitgpt.bench_history/1";

/// Whose step was timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Ours.
    Fitgpt,
    /// The peer's.
    Nanogpt,
}

impl Who {
    /// Its name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Who::Fitgpt => "fitgpt",
            Who::Nanogpt => "nanogpt",
        }
    }
}

/// One run of one program.
#[derive(Debug)]
pub struct Run {
    who: Who,
    round: u32,
    /// The number that is compared.
    pub tokens_per_second: f64,
    /// The line of JSON that the program printed.
    report: String,
}

impl Run {
    /// Parses a program's output: the last line of JSON.
    pub fn read(who: Who, round: u32, printed: &str) -> Result<Run, String> {
        let is_object = |line: &&str| line.starts_with('{') && line.ends_with('}');
        let report = printed.lines().map(str::trim).rfind(is_object);
        let report = report.ok_or("printed no line of JSON")?;
        let tokens_per_second = number(report, "tokens_per_second")
            .filter(|rate| rate.is_finite() && *rate > 0.0)
            .ok_or_else(|| format!("no positive tokens_per_second in {report}"))?;
        Ok(Run { who, round, tokens_per_second, report: report.to_owned() })
    }
}

/// The record of a bench.
#[derive(Debug)]
pub struct Record {
    /// Where and when.
    pub machine: Machine,
    /// Arguments after `cargo xtask bench`.
    pub command: Vec<String>,
    /// What was run and how often: keys, and values as JSON.
    pub settings: Vec<(&'static str, String)>,
    /// Every run, in the order they ran.
    pub runs: Vec<Run>,
}

impl Record {
    /// The results as text.
    pub fn table(&self) -> String {
        let mut text = String::from("tokens/s    median        each round\n");
        for who in [Who::Fitgpt, Who::Nanogpt] {
            let Some(median) = self.median_of(who) else { continue };
            let each: Vec<String> =
                self.rates_of(who).iter().map(|rate| format!("{rate:.1}")).collect();
            text += &format!("{:<8} {median:>9.1}        {}\n", who.name(), each.join("  "));
        }
        match self.ratio() {
            Some(ratio) => text + &format!("ratio of medians, fitgpt / nanogpt: {ratio:.3}"),
            None => text + "no ratio: there is nothing to compare with (give --nanogpt DIR)",
        }
    }

    /// Writes `<date>_<machine>_<commit>.json`; a second record of the same name gets a number.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, Failure> {
        let path = vacant(folder, &self.machine, "")?;
        std::fs::write(&path, self.json()).map_err(|error| failed(&path, &error))?;
        Ok(path)
    }

    /// The results as JSON.
    fn json(&self) -> String {
        let row = |run: &Run| {
            let (who, round) = (run.who.name(), run.round);
            format!("    {{\"who\": \"{who}\", \"round\": {round}, \"report\": {}}}", run.report)
        };
        let runs: Vec<String> = self.runs.iter().map(row).collect();
        let mut command = vec!["cargo xtask bench".to_owned()];
        command.extend(self.command.iter().cloned());
        let mut fields = vec![
            ("schema", quoted(SCHEMA)),
            ("command", quoted(&command.join(" "))),
            ("date", quoted(&self.machine.date)),
            ("commit", quoted(&self.machine.commit)),
            ("cpu", quoted(&self.machine.cpu)),
            ("cpus", self.machine.cpus.to_string()),
            ("gpu", self.machine.gpu.as_deref().map_or("null".to_owned(), quoted)),
        ];
        fields.extend(self.settings.iter().cloned());
        fields.extend([
            ("runs", format!("[\n{}\n  ]", runs.join(",\n"))),
            ("median_tokens_per_second", self.medians_json()),
            ("ratio", self.ratio().map_or("null".to_owned(), |ratio| ratio.to_string())),
        ]);
        let fields: Vec<String> =
            fields.iter().map(|(key, value)| format!("  \"{key}\": {value}")).collect();
        format!("{{\n{}\n}}\n", fields.join(",\n"))
    }

    fn medians_json(&self) -> String {
        let median_of = |who: Who| {
            let median = self.median_of(who).map_or("null".to_owned(), |rate| rate.to_string());
            format!("\"{}\": {median}", who.name())
        };
        format!("{{{}, {}}}", median_of(Who::Fitgpt), median_of(Who::Nanogpt))
    }

    fn rates_of(&self, who: Who) -> Vec<f64> {
        let own = self.runs.iter().filter(|run| run.who == who);
        own.map(|run| run.tokens_per_second).collect()
    }

    fn median_of(&self, who: Who) -> Option<f64> {
        median(self.rates_of(who))
    }

    /// Our speed divided by nanoGPT's.
    fn ratio(&self) -> Option<f64> {
        Some(self.median_of(Who::Fitgpt)? / self.median_of(Who::Nanogpt)?)
    }
}

/// The path of a new record in the folder: `<date>_<machine>_<commit><suffix>.json`, or with a
/// number.
pub fn vacant(folder: &Path, machine: &Machine, suffix: &str) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    let name = format!("{}_{}_{}{suffix}", machine.date, machine.slug(), machine.commit);
    let mut path = folder.join(format!("{name}.json"));
    let mut number = 1;
    while path.exists() {
        number += 1;
        path = folder.join(format!("{name}-{number}.json"));
    }
    Ok(path)
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Task(format!("{}: {error}", path.display()))
}

/// The median; none of an empty list.
pub fn median(mut rates: Vec<f64>) -> Option<f64> {
    rates.sort_by(f64::total_cmp);
    let upper = *rates.get(rates.len() / 2)?;
    let lower = *rates.get((rates.len() - 1) / 2)?;
    Some(lower + (upper - lower) / 2.0)
}

/// The number after `"key":` in a line of JSON, found by a text search.
fn number(json: &str, key: &str) -> Option<f64> {
    let (_, after) = json.split_once(&format!("\"{key}\""))?;
    let value = after.trim_start().strip_prefix(':')?.trim_start();
    let end = value.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'));
    value[..end.unwrap_or(value.len())].parse().ok()
}

/// A text as a JSON string.
pub fn quoted(text: &str) -> String {
    let mut json = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            c if c.is_control() => json.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(rates: &[(Who, f64)]) -> Record {
        let run = |(index, &(who, rate)): (usize, &(Who, f64))| {
            let line = format!("{{\"tokens_per_second\": {rate}}}");
            Run::read(who, index as u32 / 2 + 1, &line).unwrap()
        };
        Record {
            machine: Machine {
                cpu: "Test \"CPU\"".to_owned(),
                cpus: 2,
                gpu: None,
                commit: "abc1234-dirty".to_owned(),
                date: "2026-01-02".to_owned(),
            },
            command: vec!["--rounds".to_owned(), "2".to_owned()],
            settings: vec![("steps", "5".to_owned())],
            runs: rates.iter().enumerate().map(run).collect(),
        }
    }

    #[test]
    fn numbers_are_found_in_json() {
        for (json, want) in [
            ("{\"a\": 1, \"x\": 2.5e3}", Some(2500.0)),
            ("{\"x\" :-1}", Some(-1.0)),
            ("{\"x\":null}", None),
            ("{\"xx\": 1}", None),
            ("{\"x\"", None),
        ] {
            assert_eq!(number(json, "x"), want, "{json}");
        }
    }

    #[test]
    fn the_last_line_of_json_is_read() {
        let printed = "params 10\n{\"tokens_per_second\": 1}\n{\"tokens_per_second\": 2}\nbye\n";
        let run = Run::read(Who::Fitgpt, 1, printed).unwrap();
        assert_eq!(run.tokens_per_second, 2.0);
        for bad in ["", "nothing", "{\"ms\": 1}", "{\"tokens_per_second\": 0}"] {
            assert!(Run::read(Who::Fitgpt, 1, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn medians_are_of_the_middle() {
        for (rates, want) in [
            (vec![], None),
            (vec![3.0], Some(3.0)),
            (vec![9.0, 1.0, 2.0], Some(2.0)),
            (vec![4.0, 1.0, 2.0, 9.0], Some(3.0)),
        ] {
            assert_eq!(median(rates.clone()), want, "{rates:?}");
        }
    }

    #[test]
    fn the_table_gives_the_ratio_or_says_why_not() {
        let both = record(&[(Who::Fitgpt, 30.0), (Who::Nanogpt, 20.0)]);
        assert!(both.table().ends_with("fitgpt / nanogpt: 1.500"), "{}", both.table());
        let alone = record(&[(Who::Fitgpt, 30.0)]);
        assert!(alone.table().contains("no ratio"), "{}", alone.table());
        assert!(alone.json().contains("\"ratio\": null"));
    }

    #[test]
    fn the_record_is_kept_whole_and_never_overwritten() {
        let folder = std::env::temp_dir().join(format!("fitgpt-bench-{}", std::process::id()));
        let both = record(&[(Who::Fitgpt, 30.0), (Who::Nanogpt, 20.0)]);
        let paths = [both.write(&folder).unwrap(), both.write(&folder).unwrap()];
        let names = paths.each_ref().map(|path| path.file_name().unwrap().to_str().unwrap());
        assert_eq!(
            names,
            [
                "2026-01-02_test-cpu-2c_abc1234-dirty.json",
                "2026-01-02_test-cpu-2c_abc1234-dirty-2.json"
            ]
        );
        let text = std::fs::read_to_string(&paths[0]).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        for part in [
            "{\n  \"schema\": \"fitgpt.bench_history/1\",\n",
            "\"gpu\": null,\n  \"steps\": 5,\n",
            "\"command\": \"cargo xtask bench --rounds 2\"",
            "\"cpu\": \"Test \\\"CPU\\\"\"",
            "{\"who\": \"nanogpt\", \"round\": 1, \"report\": {\"tokens_per_second\": 20}}\n",
            "\"median_tokens_per_second\": {\"fitgpt\": 30, \"nanogpt\": 20}",
            "\"ratio\": 1.5\n}\n",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
