//! Runs a program, notes when it printed each line, and reads what it reports.

use super::record::median;
use crate::process::shown;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

/// What a program printed, and how long it took.
#[derive(Debug)]
pub struct Watched {
    seconds: f64,
    /// Lines of standard output, each with the seconds since the start.
    lines: Vec<(f64, String)>,
}

/// A program that runs. Dropped before its end, it is killed.
#[derive(Debug)]
pub struct Started {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    log: PathBuf,
    start: Instant,
    lines: Vec<(f64, String)>,
}

/// Runs a program to its end.
pub fn watch(command: &mut Command, log: &Path) -> Result<Watched, String> {
    let mut started = Started::new(command, log)?;
    started.input = None;
    while started.read_line()? {}
    started.end()?;
    Ok(started.watched())
}

impl Started {
    /// Starts a program. Its standard error goes into a file, whose last line is the reason of a
    /// failure.
    pub fn new(command: &mut Command, log: &Path) -> Result<Started, String> {
        let errors = File::create(log).map_err(|error| format!("its log: {error}"))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let start = Instant::now();
        let child = command.spawn();
        let mut child = child.map_err(|e| format!("{}: not started: {e}", shown(command)))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().ok_or("its output is not ours")?);
        Ok(Started { child, input, output, log: log.to_owned(), start, lines: Vec::new() })
    }

    /// Reads until the program prints `ready`.
    pub fn wait_ready(&mut self) -> Result<(), String> {
        self.read_to(|line| line == "ready")
    }

    /// Lets a program that is ready work once; its seconds count from here.
    pub fn ask(&mut self) -> Result<Watched, String> {
        self.lines.clear();
        self.start = Instant::now();
        // If it has ended, its log says why.
        let _ = self.input.as_mut().map(|input| input.write_all(b"go\n"));
        self.read_to(|line| line.starts_with('{'))?;
        Ok(self.watched())
    }

    fn watched(&mut self) -> Watched {
        let seconds = self.start.elapsed().as_secs_f64();
        Watched { seconds, lines: std::mem::take(&mut self.lines) }
    }

    fn read_to(&mut self, is_last: impl Fn(&str) -> bool) -> Result<(), String> {
        while self.read_line()? {
            if self.lines.last().is_some_and(|(_, line)| is_last(line)) {
                return Ok(());
            }
        }
        self.end()?;
        Err("it ended early".to_owned())
    }

    fn end(&mut self) -> Result<(), String> {
        let status = self.child.wait().map_err(|error| format!("its end: {error}"))?;
        match status.success() {
            true => Ok(()),
            false => Err(last_line(&self.log).unwrap_or_else(|| status.to_string())),
        }
    }

    fn read_line(&mut self) -> Result<bool, String> {
        let mut line = Vec::new();
        let read = self.output.read_until(b'\n', &mut line);
        let read = read.map_err(|error| format!("its output: {error}"))?;
        if read > 0 {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            self.lines.push((self.start.elapsed().as_secs_f64(), text));
        }
        Ok(read > 0)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // After its end both do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last line of a log that is not blank, cut to a length for tables.
fn last_line(log: &Path) -> Option<String> {
    let text = String::from_utf8_lossy(&std::fs::read(log).ok()?).into_owned();
    let line = text.lines().rfind(|line| !line.trim().is_empty())?;
    Some(line.trim().chars().take(300).collect())
}

impl Watched {
    /// The report of a program that timed iterations: all of its output, or the last line.
    pub fn iterations(&self) -> Result<Value, String> {
        let lines = || self.lines.iter().map(|(_, line)| line.as_str());
        let whole = serde_json::from_str(&lines().collect::<Vec<_>>().join("\n")).ok();
        let last = || lines().rev().find_map(|line| serde_json::from_str(line).ok());
        let report: Value = whole.or_else(last).ok_or("printed no JSON")?;
        match report["tokens_per_second"].as_f64() {
            Some(rate) if rate > 0.0 => Ok(report),
            _ => Err("its report has no positive tokens_per_second".to_owned()),
        }
    }

    /// The report of a whole run, from the lines that both programs print. Milliseconds of an
    /// iteration are by the clock: from the first to the last line between two evaluations. If each
    /// iteration has a line, it says when the second was done.
    pub fn whole_run(&self) -> Result<Value, String> {
        let mut stretches: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
        let (mut losses, mut second) = (Vec::new(), None);
        for (seconds, line) in &self.lines {
            if let (Some(iteration), Some(stretch)) =
                (number_after(line, "iter "), stretches.last_mut())
            {
                stretch.push((iteration, *seconds));
                if iteration == 1.0 {
                    second = Some(*seconds);
                }
            } else if line.starts_with("step ") {
                stretches.push(Vec::new());
                losses.extend(
                    line.split_once("val loss ").and_then(|(_, rest)| number_after(rest, "")),
                );
            }
        }
        let last = stretches.iter().flatten().next_back().map(|(iteration, _)| *iteration);
        let each = stretches.iter().filter_map(|stretch| {
            let ((from, start), (to, end)) = (stretch.first()?, stretch.last()?);
            (to > from).then(|| (end - start) / (to - from) * 1e3)
        });
        let ms = median(each.collect()).ok_or("printed no two lines of iterations in a row")?;
        Ok(json!({
            "seconds": self.seconds,
            "second_iteration_seconds": second,
            "ms_per_iteration": ms,
            "last_iteration": last,
            "evaluations": losses.len(),
            "best_val_loss": losses.into_iter().min_by(f64::total_cmp),
        }))
    }
}

/// The number that follows the words at the start of a line.
fn number_after(line: &str, words: &str) -> Option<f64> {
    let rest = line.strip_prefix(words)?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::ScratchFolder;

    fn of_shell(script: &str, folder: &ScratchFolder) -> Result<Watched, String> {
        watch(Command::new("sh").args(["-c", script]), &folder.path.join("log"))
    }

    #[test]
    fn a_failure_is_the_last_line_of_its_errors() {
        let folder = ScratchFolder::new("watch").unwrap();
        let why = of_shell("echo a >&2; echo 'out of memory' >&2; echo >&2; exit 1", &folder);
        assert_eq!(why.unwrap_err(), "out of memory");
        assert_eq!(of_shell("exit 3", &folder).unwrap_err(), "exit status: 3");
        let why = watch(&mut Command::new("/no/such"), &folder.path.join("log")).unwrap_err();
        assert!(why.starts_with("/no/such: not started"), "{why}");
    }

    #[test]
    fn a_program_that_is_ready_works_once_for_each_question() {
        let folder = ScratchFolder::new("watch-wait").unwrap();
        let script = "echo noise; echo ready; n=0; \
                      while read line; do \
                          n=$((n + 1)); echo \"{\\\"n\\\": $n}\"; [ $n = 1 ] || break; \
                      done; echo lost >&2; exit 1";
        let mut command = Command::new("sh");
        let log = folder.path.join("log");
        let mut started = Started::new(command.args(["-c", script]), &log).unwrap();
        started.wait_ready().unwrap();
        for want in ["{\"n\": 1}", "{\"n\": 2}"] {
            let lines = started.ask().unwrap().lines;
            assert_eq!(lines.iter().map(|(_, line)| line).collect::<Vec<_>>(), [want]);
        }
        assert_eq!(started.ask().unwrap_err(), "lost");
        let mut early = Started::new(&mut Command::new("true"), &log).unwrap();
        assert_eq!(early.wait_ready().unwrap_err(), "it ended early");
    }

    #[test]
    fn reports_are_read_on_one_line_and_on_several() {
        let report = |lines: &[&str]| {
            let lines = lines.iter().map(|line| (0.0, (*line).to_owned())).collect();
            Watched { seconds: 1.0, lines }.iterations()
        };
        for lines in [
            &["{", "  \"tokens_per_second\": 5.5,", " \"ops\": [{\"ms\": 1}]", "}"][..],
            &["number of parameters: 5M", "{\"tokens_per_second\": 5.5}"],
        ] {
            assert_eq!(report(lines).unwrap()["tokens_per_second"], 5.5, "{lines:?}");
        }
        for lines in [&["nothing"][..], &["{\"tokens_per_second\": null}"], &[]] {
            assert!(report(lines).is_err(), "{lines:?}");
        }
    }

    #[test]
    fn iterations_are_timed_between_evaluations() {
        let lines = [
            (1.0, "step 0: train loss 4.2, val loss 4.1649"),
            (9.0, "iter 0: loss 4.1828, time 1.00ms, mfu 2.00%"),
            (9.1, "iter 10: loss 4.0"),
            (9.3, "iter 20: loss 4.0"),
            (15.0, "step 30: train loss 2.1, val loss 2.2 (± 0.0010), best so far"),
            (15.5, "iter 30: loss 2.0"),
            (15.7, "iter 40: loss 2.0"),
        ];
        let lines = lines.map(|(seconds, line)| (seconds, line.to_owned())).to_vec();
        let report = Watched { seconds: 16.0, lines }.whole_run().unwrap();
        // 15 and 20 ms.
        assert!((report["ms_per_iteration"].as_f64().unwrap() - 17.5).abs() < 1e-6, "{report}");
        assert_eq!(report["last_iteration"], 40.0);
        assert!(report["second_iteration_seconds"].is_null());
        assert_eq!((&report["evaluations"], &report["best_val_loss"]), (&json!(2), &json!(2.2)));
        let lines =
            [(1.5, "iter 0: loss 4.2"), (1.75, "iter 1: loss 4.2"), (2.0, "iter 2: loss 4.1")];
        let lines = lines.map(|(seconds, line)| (seconds, line.to_owned())).to_vec();
        let report = Watched { seconds: 3.0, lines }.whole_run().unwrap();
        assert_eq!(
            (&report["second_iteration_seconds"], &report["ms_per_iteration"]),
            (&json!(1.75), &json!(250.0))
        );
        let nothing = Watched { seconds: 1.0, lines: vec![(0.5, "iter 0: loss 1".to_owned())] };
        assert!(nothing.whole_run().is_err());
    }
}
