//! The record of a lot: every run as it ended, the table, and tables of several records.

use super::cases::{ANCHOR, CASES, Case, Task, Work};
use super::machine::Machine;
use super::record::{Who, median};
use crate::process::Failure;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const SCHEMA: &str = "fitgpt.bench_lot/1";

const GIB: f64 = 1_073_741_824.0;

/// One program, once.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Name of the case.
    pub case: String,
    /// Whose program.
    pub who: Who,
    /// What it did.
    pub task: Task,
    /// From 1; the last visit of the anchor has a round of its own.
    pub round: u32,
    /// What the program reported, or why there is no report.
    pub outcome: Result<Value, String>,
}

impl Run {
    fn json(&self) -> Value {
        let Run { case, who, task, round, outcome } = self;
        let (key, value) = match outcome {
            Ok(report) => ("report", report.clone()),
            Err(why) => ("error", json!(why)),
        };
        let mut run =
            json!({ "case": case, "who": who.name(), "task": task.name(), "round": round });
        run[key] = value;
        run
    }

    fn of_json(run: &Value) -> Option<Run> {
        let who = [Who::Fitgpt, Who::Nanogpt].into_iter().find(|who| run["who"] == who.name())?;
        let task = Task::of_name(run["task"].as_str()?)?;
        let round = u32::try_from(run["round"].as_u64()?).ok()?;
        let outcome = match run.get("report") {
            Some(report) => Ok(report.clone()),
            None => Err(run["error"].as_str()?.to_owned()),
        };
        Some(Run { case: run["case"].as_str()?.to_owned(), who, task, round, outcome })
    }
}

/// The record of a lot.
#[derive(Debug)]
pub struct LotRecord {
    /// Where and when.
    pub machine: Machine,
    /// Arguments after `cargo xtask bench`.
    pub command: Vec<String>,
    /// How it was run.
    pub settings: Value,
    /// Every run so far.
    pub runs: Vec<Run>,
}

impl LotRecord {
    /// Writes it all anew.
    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        std::fs::write(path, self.json()).map_err(|error| failed(path, &error.to_string()))
    }

    /// A line for each field, and for each case and run.
    fn json(&self) -> String {
        let Machine { cpu, cpus, gpu, commit, date } = &self.machine;
        let table = Table { runs: &self.runs };
        let command = format!("cargo xtask bench {}", self.command.join(" "));
        let (ours, theirs) = (table.drift(Who::Fitgpt), table.drift(Who::Nanogpt));
        let lines = |values: Vec<String>| format!("[\n    {}\n  ]", values.join(",\n    "));
        let fields = [
            ("schema", json!(SCHEMA).to_string()),
            ("command", json!(command).to_string()),
            ("date", json!(date).to_string()),
            ("commit", json!(commit).to_string()),
            ("cpu", json!(cpu).to_string()),
            ("cpus", json!(cpus).to_string()),
            ("gpu", json!(gpu).to_string()),
            ("settings", self.settings.to_string()),
            ("anchor_drift", json!({ "fitgpt": ours, "nanogpt": theirs }).to_string()),
            ("cases", lines(table.cases().map(|case| table.json(case).to_string()).collect())),
            ("runs", lines(self.runs.iter().map(|run| run.json().to_string()).collect())),
        ];
        let fields = fields.map(|(key, value)| format!("  \"{key}\": {value}"));
        format!("{{\n{}\n}}\n", fields.join(",\n"))
    }

    /// The results as text.
    pub fn table(&self) -> String {
        Table { runs: &self.runs }.text()
    }
}

/// Prints the table of each record, or of all together.
pub fn print(paths: &[PathBuf]) -> Result<(), Failure> {
    let mut runs = Vec::new();
    for path in paths {
        let of_lot = read(path)?;
        let drift = Table { runs: &of_lot }.drift_line();
        println!("{}: {} runs; {drift}", path.display(), of_lot.len());
        runs.extend(of_lot);
    }
    println!("\n{}", Table { runs: &runs }.rows_text());
    Ok(())
}

fn read(path: &Path) -> Result<Vec<Run>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| failed(path, &error.to_string()))?;
    let record: Value =
        serde_json::from_str(&text).map_err(|error| failed(path, &error.to_string()))?;
    let runs = record["runs"].as_array().filter(|_| record["schema"] == SCHEMA);
    let runs = runs.and_then(|runs| runs.iter().map(Run::of_json).collect());
    runs.ok_or_else(|| failed(path, &format!("no record of the kind {SCHEMA}")))
}

fn failed(path: &Path, what: &str) -> Failure {
    Failure::Task(format!("{}: {what}", path.display()))
}

/// Medians over the runs of each case.
struct Table<'a> {
    runs: &'a [Run],
}

impl Table<'_> {
    fn of<'a>(&'a self, case: &'a str, who: Who, task: Task) -> impl Iterator<Item = &'a Run> {
        let same = move |run: &&Run| run.case == case && run.who == who && run.task == task;
        self.runs.iter().filter(same)
    }

    /// The median of a field.
    fn median(&self, case: &str, who: Who, task: Task, field: &str) -> Option<f64> {
        let reports = self.of(case, who, task).filter_map(|run| run.outcome.as_ref().ok());
        median(reports.filter_map(|report| report[field].as_f64()).collect())
    }

    fn speed(&self, case: &Case, who: Who) -> Option<f64> {
        self.median(self.source(case, who), who, Task::Iterations, "tokens_per_second")
    }

    fn gib(&self, case: &Case, who: Who) -> Option<f64> {
        // The driver counts nanoGPT's context, too, but cannot tell its bytes from those of
        // programs that wait.
        let field = match who {
            Who::Fitgpt => "device_bytes_seen",
            Who::Nanogpt => "reserved_peak_bytes",
        };
        self.median(self.source(case, who), who, Task::Iterations, field).map(|bytes| bytes / GIB)
    }

    /// The case whose runs count for this one.
    fn source(&self, case: &Case, who: Who) -> &'static str {
        match (case.work, who) {
            (Work::AnchorOfPeer, Who::Nanogpt) => ANCHOR,
            _ => case.name,
        }
    }

    fn ratio(&self, case: &Case) -> Option<f64> {
        Some(self.speed(case, Who::Fitgpt)? / self.speed(case, Who::Nanogpt)?)
    }

    /// Cases with a run, in the order of the list.
    fn cases(&self) -> impl Iterator<Item = &'static Case> {
        CASES.iter().filter(|case| self.runs.iter().any(|run| run.case == case.name))
    }

    fn json(&self, case: &Case) -> Value {
        let of = |who: Who| {
            let run = |field| self.median(case.name, who, Task::WholeRun, field);
            json!({
                "tokens_per_second": self.speed(case, who),
                "gib": self.gib(case, who),
                "whole_run_seconds": run("seconds"),
                "whole_run_ms_per_iteration": run("ms_per_iteration"),
            })
        };
        json!({
            "case": case.name,
            "about": case.about,
            "fitgpt": of(Who::Fitgpt),
            "nanogpt": of(Who::Nanogpt),
            "ratio": self.ratio(case),
        })
    }

    /// How much faster the anchor was at the end than at the start; none of a lot cut short.
    fn drift(&self, who: Who) -> Option<f64> {
        let speed = |run: &Run| run.outcome.as_ref().ok()?["tokens_per_second"].as_f64();
        let mut speeds = self.of(ANCHOR, who, Task::Iterations).map(speed);
        let (first, last) = (speeds.next()??, speeds.last()??);
        Some(last / first - 1.0)
    }

    fn drift_line(&self) -> String {
        let said = |who| match self.drift(who) {
            Some(drift) => format!("{} {:+.1} %", who.name(), drift * 100.0),
            None => format!("{} not known", who.name()),
        };
        let (ours, theirs) = (said(Who::Fitgpt), said(Who::Nanogpt));
        format!("(a) at the end against the start: {ours}, {theirs}")
    }

    fn text(&self) -> String {
        format!("{}{}\n", self.rows_text(), self.drift_line())
    }

    fn rows_text(&self) -> String {
        let mut text = row(["case", "work", "nanoGPT", "its GiB", "fitGPT", "its GiB", "ratio"]);
        text += "|---|---|--:|--:|--:|--:|--:|\n";
        let compared = |case: &&Case| !matches!(case.work, Work::WholeRun | Work::Loop);
        for case in self.cases().filter(compared) {
            let speed = |who| self.cell(case, who);
            let gib = |who| self.gib(case, who).map_or(String::new(), |gib| format!("{gib:.1}"));
            let ratio = self.ratio(case).map_or(String::new(), |ratio| format!("{ratio:.3}"));
            let (ours, theirs) = (Who::Fitgpt, Who::Nanogpt);
            let cells = [speed(theirs), gib(theirs), speed(ours), gib(ours), ratio];
            let [a, b, c, d, e] = cells.each_ref().map(String::as_str);
            text += &row([case.name, case.about, a, b, c, d, e]);
        }
        let whole = self.cases().filter(|case| case.work == Work::WholeRun);
        text += &whole.map(|case| self.whole_run(case)).collect::<String>();
        let loops = self.cases().filter(|case| case.work == Work::Loop);
        text += &loops.map(|case| self.loop_text(case)).collect::<String>();
        text += &self.cases().map(|case| self.plans(case)).collect::<String>();
        text + &self.failures()
    }

    /// The speed; a run that failed is said in its place.
    fn cell(&self, case: &Case, who: Who) -> String {
        let mut runs = self.of(self.source(case, who), who, Task::Iterations);
        match self.speed(case, who) {
            Some(rate) if rate < 1e4 => format!("{rate:.0} tok/s"),
            Some(rate) => format!("{:.1}k tok/s", rate / 1e3),
            None if runs.next().is_some() => "failed".to_owned(),
            None => String::new(),
        }
    }

    fn whole_run(&self, case: &Case) -> String {
        let median = |who, field| self.median(case.name, who, Task::WholeRun, field);
        let said = |who| match (median(who, "seconds"), median(who, "ms_per_iteration")) {
            (Some(seconds), Some(ms)) => {
                let loss = median(who, "best_val_loss").unwrap_or(f64::NAN);
                format!("{seconds:.1} s, {ms:.2} ms per iteration, best val loss {loss:.4}")
            }
            _ => "failed".to_owned(),
        };
        let last = median(Who::Fitgpt, "last_iteration").unwrap_or(0.0);
        let bench = self.median(case.name, Who::Fitgpt, Task::Iterations, "ms_per_iteration");
        let bench = bench.map_or("failed".to_owned(), |ms| format!("{ms:.2} ms per iteration"));
        let ratio = median(Who::Fitgpt, "seconds").zip(median(Who::Nanogpt, "seconds"));
        let ratio = ratio.map_or(String::new(), |(ours, theirs)| {
            format!("; {:.3} of nanoGPT's seconds", ours / theirs)
        });
        let (name, ours, theirs) = (case.name, said(Who::Fitgpt), said(Who::Nanogpt));
        format!(
            "\n{name}: whole run to iteration {last}\n  nanoGPT train  {theirs}\n  \
             fitGPT train   {ours}{ratio}\n  fitGPT bench   {bench}\n"
        )
    }

    /// `train` beside `bench`.
    fn loop_text(&self, case: &Case) -> String {
        let median = |task, field| self.median(case.name, Who::Fitgpt, task, field);
        let bench = median(Task::Iterations, "ms_per_iteration");
        let line = |task: Task| {
            let ms = median(task, "ms_per_iteration");
            let start = median(task, "second_iteration_seconds");
            let said = match (ms, start) {
                (Some(ms), Some(start)) => {
                    let more = bench.map(|bench| 100.0 * (ms / bench - 1.0));
                    let more = more.map_or(String::new(), |more| format!(" ({more:+.1} %)"));
                    format!("{ms:.2} ms per iteration{more}, the second done after {start:.1} s")
                }
                _ => "failed".to_owned(),
            };
            format!("  {:<19} {said}\n", task.name())
        };
        let bench = bench.map_or("failed".to_owned(), |ms| format!("{ms:.2} ms per iteration"));
        let (cold, warm) = (line(Task::ColdTrain), line(Task::WarmTrain));
        format!("\n{}: {}\n  {:<19} {bench}\n{cold}{warm}", case.name, case.about, "bench")
    }

    /// The best plans of a case by prediction, if they were timed.
    fn plans(&self, case: &Case) -> String {
        let of = |rank| (rank, Task::Plan(rank));
        let is_there =
            |&(_, task): &(u32, Task)| self.of(case.name, Who::Fitgpt, task).next().is_some();
        let line = |(rank, task): (u32, Task)| {
            let thousands = |field| {
                let rate = self.median(case.name, Who::Fitgpt, task, field);
                rate.map_or("failed".to_owned(), |rate| format!("{:.1}k", rate / 1e3))
            };
            let predicted = thousands("predicted_tokens_per_second");
            let measured = thousands("tokens_per_second");
            let reports =
                self.of(case.name, Who::Fitgpt, task).filter_map(|run| run.outcome.as_ref().ok());
            let plan = reports.last().and_then(|report| report["plan"].as_str()).unwrap_or("");
            format!("  {rank}  predicted {predicted}, measured {measured} tok/s: {plan}\n")
        };
        let lines: String = (1..).map(of).take_while(is_there).map(line).collect();
        match lines.is_empty() {
            true => lines,
            false => format!("\n{}: the best plans by prediction\n{lines}", case.name),
        }
    }

    fn failures(&self) -> String {
        let line = |run: &Run| {
            let why = run.outcome.as_ref().err()?;
            let (case, who, task) = (&run.case, run.who.name(), run.task.name());
            Some(format!("failed: {case}, {who}, {task}, round {}: {why}\n", run.round))
        };
        self.runs.iter().filter_map(line).collect()
    }
}

/// A row of a Markdown table that can be read as text, too.
fn row(cells: [&str; 7]) -> String {
    let [case, about, theirs, their_gib, ours, our_gib, ratio] = cells;
    format!(
        "| {case:<12} | {about:<34} | {theirs:>12} | {their_gib:>7} | {ours:>12} | {our_gib:>7} \
         | {ratio:>5} |\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::ScratchFolder;

    fn run(case: &str, who: Who, task: Task, round: u32, report: Value) -> Run {
        Run { case: case.to_owned(), who, task, round, outcome: Ok(report) }
    }

    fn speed(case: &str, who: Who, round: u32, rate: f64) -> Run {
        let bytes = 3.0 * GIB;
        let report = json!({
            "tokens_per_second": rate, "ms_per_iteration": 4.5,
            "device_bytes_seen": bytes, "reserved_peak_bytes": 2.0 * bytes,
        });
        run(case, who, Task::Iterations, round, report)
    }

    fn record() -> LotRecord {
        let whole = |who, seconds: f64| {
            let report = json!({
                "seconds": seconds, "ms_per_iteration": seconds / 10.0,
                "last_iteration": 500.0, "best_val_loss": 1.5,
            });
            run("char", who, Task::WholeRun, 1, report)
        };
        let train = |task, ms: f64, second: f64| {
            let report = json!({ "ms_per_iteration": ms, "second_iteration_seconds": second });
            run("loop", Who::Fitgpt, task, 1, report)
        };
        let plan = |rank, predicted: f64, rate: f64| {
            let report = json!({
                "predicted_tokens_per_second": predicted, "tokens_per_second": rate,
                "plan": "64 sequences as 2 x 32",
            });
            run("a", Who::Fitgpt, Task::Plan(rank), 1, report)
        };
        let mut lost = speed("1558m", Who::Nanogpt, 1, 1.0);
        lost.outcome = Err("nanoGPT ran out of memory: \"6 GiB\"".to_owned());
        let runs = vec![
            speed("a", Who::Fitgpt, 1, 600_000.0),
            speed("a", Who::Nanogpt, 1, 500_000.0),
            speed("a-no-limit", Who::Fitgpt, 1, 650_000.0),
            speed("1558m", Who::Fitgpt, 1, 9_000.0),
            lost,
            speed("char", Who::Fitgpt, 1, 4e6),
            whole(Who::Fitgpt, 40.0),
            whole(Who::Nanogpt, 160.0),
            train(Task::ColdTrain, 4.59, 9.0),
            train(Task::WarmTrain, 4.5, 2.25),
            speed("loop", Who::Fitgpt, 1, 6e5),
            plan(1, 6e5, 5.9e5),
            plan(2, 5.95e5, 6e5),
            speed("a", Who::Fitgpt, 2, 606_000.0),
            speed("a", Who::Nanogpt, 2, 490_000.0),
        ];
        let machine = Machine {
            cpu: "Test CPU".to_owned(),
            cpus: 2,
            gpu: Some("NVIDIA H200".to_owned()),
            commit: "abc1234".to_owned(),
            date: "2026-01-02".to_owned(),
        };
        let command = vec!["--case".to_owned(), "a,1558m".to_owned()];
        LotRecord { machine, command, settings: json!({"rounds": 1}), runs }
    }

    #[test]
    fn the_table_compares_every_case() {
        let table = record().table();
        let mut lines =
            table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        for want in [
            "| case | work | nanoGPT | its GiB | fitGPT | its GiB | ratio |",
            "|---|---|--:|--:|--:|--:|--:|",
            "| a | 124M, 64 x 1024, bfloat16 | 495.0k tok/s | 6.0 | 603.0k tok/s | 3.0 | 1.218 |",
            "| a-no-limit | the same, without a limit | 495.0k tok/s | 6.0 | 650.0k tok/s | 3.0 \
             | 1.313 |",
            "| 1558m | 1558M, 4 x 16, levers permitted | failed | | 9000 tok/s | 3.0 | |",
            "",
            "char: whole run to iteration 500",
            "nanoGPT train 160.0 s, 16.00 ms per iteration, best val loss 1.5000",
            "fitGPT train 40.0 s, 4.00 ms per iteration, best val loss 1.5000; 0.250 of \
             nanoGPT's seconds",
            "fitGPT bench 4.50 ms per iteration",
            "",
            "loop: 124M, 64 x 1024: train beside bench",
            "bench 4.50 ms per iteration",
            "train, empty cache 4.59 ms per iteration (+2.0 %), the second done after 9.0 s",
            "train 4.50 ms per iteration (+0.0 %), the second done after 2.2 s",
            "",
            "a: the best plans by prediction",
            "1 predicted 600.0k, measured 590.0k tok/s: 64 sequences as 2 x 32",
            "2 predicted 595.0k, measured 600.0k tok/s: 64 sequences as 2 x 32",
            "failed: 1558m, nanogpt, iterations, round 1: nanoGPT ran out of memory: \"6 GiB\"",
            "(a) at the end against the start: fitgpt +1.0 %, nanogpt -2.0 %",
        ] {
            assert_eq!(lines.next().as_deref(), Some(want), "{table}");
        }
        assert_eq!(lines.next(), None);
    }

    #[test]
    fn a_lot_cut_short_has_no_drift() {
        let mut record = record();
        record.runs.truncate(3);
        assert!(record.table().ends_with("start: fitgpt not known, nanogpt not known\n"));
        record.runs.clear();
        assert!(record.json().contains("\"anchor_drift\": {\"fitgpt\":null"), "{}", record.json());
    }

    #[test]
    fn a_record_is_read_back_whole() {
        let folder = ScratchFolder::new("lot-record").unwrap();
        let path = folder.path.join("lot.json");
        record().write(&path).unwrap();
        assert_eq!(read(&path).unwrap(), record().runs);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("{\n  \"schema\": \"fitgpt.bench_lot/1\",\n  \"command\": \"cargo")
        );
        assert!(text.contains("\"command\": \"cargo xtask bench --case a,1558m\""), "{text}");
        std::fs::write(&path, text.replace("bench_lot/1", "bench_history/1")).unwrap();
        assert!(read(&path).is_err());
        assert!(print(&[folder.path.join("none.json")]).is_err());
    }
}
