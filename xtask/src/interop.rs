//! `cargo xtask peers interop`: other people's programs read what we write and write what we read.
//! Runs every `crates/*/tests/peers/*.py` and prints what each compared.
//!
//! A script runs in an empty folder of its own. It finds our program in `FITGPT`, the small
//! programs `convert` (tokenizers) and `logits` in the folder `FITGPT_EXAMPLES` and, if one was
//! given, a copy of nanoGPT in `FITGPT_NANOGPT`; it builds nothing itself. For each comparison it
//! prints one line, `name: figure (limit)`, such as `logits: largest difference 3.1e-6 (1e-4)`. It
//! exits with 0 if all are within their limits, and with 77 if this machine lacks something; its
//! last line on standard output then says what. Other lines may be printed too, as long as they do
//! not end with `)`. Anything random is seeded, and nothing is downloaded.

use crate::flags;
use crate::process::{self, Failure};
use crate::scratch::ScratchFolder;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The flags, for the usage text.
pub const FLAGS: &str = "[--only SCRIPT] [--binary FILE] [--nanogpt DIR] [--python PY]";

const KNOWN: [&str; 4] = ["--only", "--binary", "--nanogpt", "--python"];

/// The exit code of a script that could not run here.
const ABSENT: i32 = 77;

/// How a script ended.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed(String),
    /// The machine lacks something.
    Absent(String),
}

/// What a script gets.
struct Given {
    /// Our program.
    binary: PathBuf,
    /// The folder of the small programs.
    examples: PathBuf,
    /// A copy of nanoGPT.
    nanogpt: Option<PathBuf>,
}

/// What a script did.
struct Outcome {
    name: String,
    comparisons: Vec<String>,
    seconds: f64,
    verdict: Verdict,
}

/// Runs the scripts, or those whose name contains what `--only` gives.
pub fn run(args: &[String]) -> Result<(), Failure> {
    let mut found = flags::read("interop", &KNOWN, FLAGS, args).map_err(Failure::Usage)?;
    let only = found.remove("--only");
    let scripts = scripts(&process::workspace_root(), only.as_deref())?;
    let python = found.remove("--python").unwrap_or_else(process::default_python);
    let nanogpt = found.remove("--nanogpt").map(PathBuf::from);
    let given = Given {
        binary: match found.remove("--binary") {
            Some(binary) => whole(Path::new(&binary))?,
            None => built(&[], "fitgpt")?,
        },
        examples: examples()?,
        nanogpt: nanogpt.as_deref().map(whole).transpose()?,
    };
    let mut outcomes = Vec::new();
    for script in &scripts {
        outcomes.push(run_script(script, &python, &given)?);
    }
    println!("\n{}", table(&outcomes));
    let bad = outcomes.iter().filter(|outcome| outcome.verdict != Verdict::Passed).count();
    match bad {
        0 => Ok(()),
        bad => Err(Failure::Task(format!("interop: {bad} of {} did not pass", outcomes.len()))),
    }
}

/// All scripts in order of their names, or those whose name contains `only`.
fn scripts(root: &Path, only: Option<&str>) -> Result<Vec<PathBuf>, Failure> {
    let below = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let folders = below(&root.join("crates")).into_iter().map(|path| path.join("tests/peers"));
    let mut all: Vec<PathBuf> = folders.flat_map(|folder| below(&folder)).collect();
    all.retain(|path| path.extension().is_some_and(|ending| ending == "py"));
    all.sort();
    let names: Vec<String> = all.iter().map(|path| name(path)).collect();
    all.retain(|path| only.is_none_or(|only| name(path).contains(only)));
    match all.is_empty() {
        true => Err(Failure::Usage(format!("interop has no such script; it has {names:?}"))),
        false => Ok(all),
    }
}

/// `crates/fitgpt/tests/peers/plots.py` is `fitgpt/plots`.
fn name(script: &Path) -> String {
    let stem = script.file_stem().unwrap_or_default().to_string_lossy();
    let package = script.ancestors().nth(3).and_then(Path::file_name).unwrap_or_default();
    format!("{}/{stem}", package.to_string_lossy())
}

fn whole(path: &Path) -> Result<PathBuf, Failure> {
    let failed = |error| Failure::Task(format!("interop: {}: {error}", path.display()));
    path.canonicalize().map_err(failed)
}

/// Builds a program as users get it.
fn built(which: &[&str], name: &str) -> Result<PathBuf, Failure> {
    let mut build = process::cargo();
    build.args(["build", "--release", "--quiet", "--message-format=json"]).args(which);
    let messages = process::capture(&mut build)?;
    let found = process::executable(&messages, name);
    found.ok_or_else(|| Failure::Task(format!("interop: cargo built no {name}")))
}

/// Builds the small programs; returns their folder.
fn examples() -> Result<PathBuf, Failure> {
    let of_tokenizer = ["-p", "fitgpt-tokenizer", "--example", "convert"];
    built(&of_tokenizer, "convert")?;
    let of_train = ["-p", "fitgpt-train", "--example", "logits"];
    let logits = built(&of_train, "logits")?;
    Ok(logits.parent().unwrap_or(Path::new(".")).to_owned())
}

/// Runs a script in a folder of its own; its lines are shown as they come.
fn run_script(script: &Path, python: &str, given: &Given) -> Result<Outcome, Failure> {
    let name = name(script);
    println!("== {name}");
    let failed = |error| Failure::Task(format!("interop: {name}: {error}"));
    let scratch = ScratchFolder::new("interop").map_err(failed)?;
    let mut command = Command::new(python);
    command.arg(script).current_dir(&scratch.path);
    command.env("FITGPT", &given.binary).env("FITGPT_EXAMPLES", &given.examples);
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONUNBUFFERED", "1");
    let nanogpt = given.nanogpt.as_ref().map(|path| ("FITGPT_NANOGPT", path));
    command.env_remove("FITGPT_NANOGPT").envs(nanogpt);
    let started = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let (mut comparisons, mut last) = (Vec::new(), String::new());
    for line in child.stdout.take().into_iter().flat_map(|pipe| BufReader::new(pipe).lines()) {
        let line = line.map_err(failed)?;
        println!("{line}");
        if is_comparison(&line) {
            comparisons.push(line.clone());
        }
        last = line;
    }
    let code = child.wait().map_err(failed)?.code();
    let seconds = started.elapsed().as_secs_f64();
    let verdict = match code {
        Some(0) if comparisons.is_empty() => Verdict::Failed("it compared nothing".to_owned()),
        Some(0) => Verdict::Passed,
        Some(ABSENT) => Verdict::Absent(last),
        Some(code) => Verdict::Failed(format!("exit code {code}")),
        None => Verdict::Failed("ended by a signal".to_owned()),
    };
    Ok(Outcome { name, comparisons, seconds, verdict })
}

/// `name: figure (limit)`.
fn is_comparison(line: &str) -> bool {
    let figure = line.split_once(": ").and_then(|(_, rest)| rest.strip_suffix(')'));
    figure.is_some_and(|figure| figure.contains(" ("))
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for Outcome { name, comparisons, seconds, verdict } in outcomes {
        let verdict = match verdict {
            Verdict::Passed => "passed".to_owned(),
            Verdict::Failed(why) => format!("FAILED: {why}"),
            Verdict::Absent(what) => format!("NOT RUN: {what}"),
        };
        text += &format!("{name}: {verdict}, {seconds:.0} s\n");
        for line in comparisons {
            text += &format!("  {line}\n");
        }
    }
    let count: usize = outcomes.iter().map(|outcome| outcome.comparisons.len()).sum();
    format!("{text}interop: {count} comparisons by {} scripts", outcomes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stand-in for Python that prints and exits as told.
    fn outcome(script: &str) -> Outcome {
        let folder = ScratchFolder::new("interop-test").unwrap();
        let path = folder.path.join("crates/plots/tests/peers/x.py");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, script).unwrap();
        let found = scripts(&folder.path, Some("plots/x")).unwrap();
        assert_eq!(found, std::slice::from_ref(&path));
        assert!(scripts(&folder.path, Some("other")).is_err());
        let [binary, examples] = ["/bin/fitgpt", "/bin"].map(PathBuf::from);
        run_script(&path, "sh", &Given { binary, examples, nanogpt: None }).unwrap()
    }

    #[test]
    fn a_script_passes_fails_or_cannot_run() {
        let passed = outcome("echo \"loss: 0.0001 (1e-3)\"; test $FITGPT_EXAMPLES = /bin && ls");
        assert_eq!((passed.name.as_str(), passed.verdict), ("plots/x", Verdict::Passed));
        assert_eq!(passed.comparisons, ["loss: 0.0001 (1e-3)"]);
        let silent = outcome("echo done").verdict;
        assert_eq!(silent, Verdict::Failed("it compared nothing".to_owned()));
        let failed = outcome("echo 'loss: 9 (1)'; exit 1").verdict;
        assert_eq!(failed, Verdict::Failed("exit code 1".to_owned()));
        let absent = outcome("echo a; echo no module trackio; exit 77");
        assert_eq!(absent.verdict, Verdict::Absent("no module trackio".to_owned()));
        let text = table(&[absent]);
        assert!(text.starts_with("plots/x: NOT RUN: no module trackio, "), "{text}");
        assert!(text.ends_with("\ninterop: 0 comparisons by 1 scripts"), "{text}");
    }

    #[test]
    fn comparisons_are_told_from_other_lines() {
        assert!(is_comparison("logits: largest difference 3.1e-6 (1e-4)"));
        for line in ["loading (slow)", "x: y", "a: b)", ""] {
            assert!(!is_comparison(line), "{line}");
        }
    }
}
