//! `cargo xtask peers`: tests against real programs that are too slow for the check, or need what
//! few machines have. It prints when each was last run and on which commit. With a NAME it runs one
//! and, if it passes, records that in `bench-history/peers.json`.

use crate::bench::Machine;
use crate::flags;
use crate::process::{self, Failure};
use crate::scratch::ScratchFolder;
use crate::{golden, interop, page, parity};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::process::Command;

/// The flags, for the usage text.
pub const FLAGS: &str = "[NAME [its flags]]";

/// One row of the table.
struct Peer {
    name: &'static str,
    about: &'static str,
    needs: &'static str,
    run: fn(&[String]) -> Result<(), Failure>,
}

const PEERS: [Peer; 6] = [
    Peer {
        name: "nanogpt",
        about: "trains with fitgpt and with the real nanoGPT, and compares all losses",
        needs: parity::FLAGS,
        run: parity::run,
    },
    Peer {
        name: "goldens",
        about: "recomputes every golden of the conformance suite with PyTorch",
        needs: "a Python with torch and numpy (FITGPT_PYTHON)",
        run: check_goldens,
    },
    Peer {
        name: "tiktoken",
        about: "prepares a text with fitgpt and with nanoGPT's code on Python's tiktoken, and \
                compares all bytes",
        needs: TIKTOKEN_FLAGS,
        run: check_tiktoken,
    },
    Peer {
        name: "pickles",
        about: "makes the files that the pickle crate's tests read again with Python's pickle",
        needs: "a Python (FITGPT_PYTHON)",
        run: check_pickles,
    },
    Peer {
        name: "interop",
        about: "other programs read our files and write files for us; xtask/src/interop.rs says \
                how to add one",
        needs: INTEROP_NEEDS,
        run: interop::run,
    },
    Peer {
        name: "page",
        about: "a browser drives the page: live runs, plans, the doctor, samples, pictures",
        needs: page::NEEDS,
        run: page::run,
    },
];

const INTEROP_NEEDS: &str = "a Python (FITGPT_PYTHON) with what the scripts import: torch, \
    transformers, tokenizers, tiktoken, xllamacpp, gguf, tensorboard, trackio; \
    [--nanogpt DIR] [--only SCRIPT] [--binary FILE] [--python PY]";

/// The rank file is r50k_base.tiktoken; it is in the crate tiktoken-rs, too.
const TIKTOKEN_FLAGS: &str = "--ranks FILE --text FILE [--python PY]";
const TIKTOKEN_SCRIPT: &str = "crates/prepare/tests/golden/reference.py";

const PICKLES: &str = "crates/pickle/tests/it/fixtures";
const PICKLES_SCRIPT: &str = "make.py";

/// The last run of each: name → {date, commit}.
const RECORDS: &str = "bench-history/peers.json";

fn check_goldens(args: &[String]) -> Result<(), Failure> {
    process::expect_no_arguments("peers goldens", args)?;
    golden::run(&["--check".to_owned()])
}

/// Prepares the text like both of nanoGPT's shakespeare scripts; the script compares.
fn check_tiktoken(args: &[String]) -> Result<(), Failure> {
    let known = ["--ranks", "--text", "--python"];
    let mut found =
        flags::read("tiktoken", &known, TIKTOKEN_FLAGS, args).map_err(Failure::Usage)?;
    let mut needed = |flag: &str| {
        found.remove(flag).ok_or_else(|| Failure::Usage(format!("tiktoken needs {flag}")))
    };
    let (ranks, text) = (needed("--ranks")?, needed("--text")?);
    let python = needed("--python").unwrap_or_else(|_| process::default_python());
    process::run(process::cargo().args(["build", "--release", "--quiet"]))?;
    let scratch = scratch("tiktoken")?;
    for (name, tokenizer) in [("shakespeare", "gpt2"), ("shakespeare_char", "char")] {
        let mut ours = Command::new(process::target_folder().join("release/fitgpt"));
        ours.args(["prepare", &text, "--format", "text", "--tokenizer", tokenizer, "--out"]);
        process::run(ours.arg(scratch.path.join(name)))?;
    }
    let script = process::workspace_root().join(TIKTOKEN_SCRIPT);
    process::run(Command::new(python).arg(script).args([ranks, text]).arg(&scratch.path))
}

/// Lets the script write beside a copy of itself, and compares all files.
fn check_pickles(args: &[String]) -> Result<(), Failure> {
    process::expect_no_arguments("peers pickles", args)?;
    let (scratch, kept) = (scratch("pickles")?, process::workspace_root().join(PICKLES));
    let script = scratch.path.join(PICKLES_SCRIPT);
    let copied = std::fs::copy(kept.join(PICKLES_SCRIPT), &script);
    copied.map_err(|error| failed(&script, &error))?;
    process::run(Command::new(process::default_python()).arg(&script))?;
    let files = |folder: &Path| golden::files_below(folder).map_err(|e| failed(folder, &e));
    let (kept, made) = (files(&kept)?, files(&scratch.path)?);
    let differences = golden::differences(&kept, &made);
    if differences.is_empty() {
        println!("pickles: all {} files are the same", kept.len());
        return Ok(());
    }
    Err(Failure::Task(format!("pickles: {}", differences.join("\n"))))
}

fn scratch(purpose: &str) -> Result<ScratchFolder, Failure> {
    ScratchFolder::new(purpose).map_err(|error| failed(&std::env::temp_dir(), &error))
}

/// Prints the table, or runs one row and records it.
pub fn run(args: &[String]) -> Result<(), Failure> {
    let path = process::workspace_root().join(RECORDS);
    let mut records = read(&path)?;
    let Some((name, rest)) = args.split_first() else {
        println!("{}", table(&records));
        return Ok(());
    };
    let Some(peer) = PEERS.iter().find(|peer| peer.name == name) else {
        let names: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
        let names = names.join(", ");
        return Err(Failure::Usage(format!("no peer is called '{name}'; there are {names}")));
    };
    if let Some(lacking) = page::lacks().filter(|_| peer.name == "page") {
        println!("peers: page was not run: {lacking}");
        return Ok(());
    }
    // Of what is built now; while it runs, the tree may change.
    let Machine { date, commit, .. } = Machine::read();
    (peer.run)(rest)?;
    if rest.iter().any(|word| word.starts_with("--only")) {
        println!("peers: {name}: this part passed; only a run of all is recorded");
        return Ok(());
    }
    records.insert(name.clone(), json!({"date": date, "commit": commit}));
    let text = format!("{:#}\n", Value::Object(records));
    std::fs::write(&path, text).map_err(|error| failed(&path, &error))?;
    println!("peers: {name} passed; recorded in {RECORDS}: commit that file");
    Ok(())
}

/// Empty before the first run.
fn read(path: &Path) -> Result<Map<String, Value>, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| failed(path, &error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Map::new()),
        Err(error) => Err(failed(path, &error)),
    }
}

fn table(records: &Map<String, Value>) -> String {
    let row = |peer: &Peer| {
        let word = |key: &str| records.get(peer.name)?.get(key)?.as_str();
        let last = match (word("date"), word("commit")) {
            (Some(date), Some(commit)) => format!("last run {date} on {commit}"),
            _ => "never run".to_owned(),
        };
        format!("{:<8} {last}: {}; needs {}", peer.name, peer.about, peer.needs)
    };
    PEERS.iter().map(row).collect::<Vec<_>>().join("\n")
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::Task(format!("peers: {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_when_each_was_run() {
        let mut records = Map::new();
        records.insert("goldens".to_owned(), json!({"date": "2026-01-02", "commit": "abc1234"}));
        let text = table(&records);
        assert_eq!(text.lines().count(), PEERS.len());
        assert!(text.contains("\ngoldens  last run 2026-01-02 on abc1234: "), "{text}");
        assert!(text.starts_with("nanogpt  never run: "), "{text}");
    }

    #[test]
    fn an_unknown_peer_is_a_usage_error_and_records_are_read() {
        let outcome = run(&["netscape".to_owned()]).unwrap_err().to_string();
        assert!(
            outcome.contains("there are nanogpt, goldens, tiktoken, pickles, interop, page"),
            "{outcome}"
        );
        assert!(read(Path::new("/no/such/file")).unwrap().is_empty());
        assert!(read(&process::workspace_root().join("Cargo.toml")).is_err());
    }
}
