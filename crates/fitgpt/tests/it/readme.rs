//! The README's commands, in order, in a folder that looks like a fresh clone. What would take
//! minutes is made shorter by more keys; what needs a GPU is planned for one; what needs the
//! network gets as far as the network.

use crate::fixture::{Ended, TempDir};
use crate::interrupts::stopped;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The lines between ```sh fences, split into words as a shell does.
fn commands() -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let mut fenced = false;
    let mut found = Vec::new();
    for line in text.lines() {
        match line.trim() {
            "```sh" => fenced = true,
            "```" => fenced = false,
            command if fenced && !command.is_empty() => found.push(words(command)),
            _ => {}
        }
    }
    found
}

/// Words, with single quotes; a comment ends the line.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            '#' if !quoted => break,
            ' ' if !quoted => words.push(String::new()),
            letter => words.last_mut().unwrap().push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// A folder with what a clone has and the commands use.
fn clone(name: &str) -> TempDir {
    let dir = TempDir::empty(name);
    for name in ["LICENSE-APACHE", "LICENSE-MIT", "README.md"] {
        dir.write(name, &std::fs::read(root().join(name)).unwrap());
    }
    for folder in ["config", "crates/plan/src", "crates/plan/src/ops"] {
        for file in std::fs::read_dir(root().join(folder)).unwrap().map(Result::unwrap) {
            if file.path().is_file() {
                let name = format!("{folder}/{}", file.file_name().to_string_lossy());
                dir.write(&name, &std::fs::read(file.path()).unwrap());
            }
        }
    }
    dir
}

const SHORT_MODEL: [&str; 8] = [
    "--n_layer=1",
    "--n_head=1",
    "--n_embd=16",
    "--batch_size=2",
    "--eval_iters=1",
    "--eval_interval=1000",
    "--lr_decay_iters=7000",
    "--device=cpu",
];

/// Runs one command as far as this machine can.
fn run(dir: &TempDir, command: &[String]) -> Ended {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let with = |more: &[&str]| dir.run(&[&words[..], more].concat());
    match &words[..] {
        // A GPU: the same keys are planned for one.
        ["train", rest @ ..] if rest.iter().any(|word| word.starts_with("--vram")) => {
            dir.run(&[&["plan"], rest].concat())
        }
        ["train", text, ..] if !text.starts_with('-') && !text.contains('.') => {
            with(&["--time=3s", "--device=cpu"])
        }
        ["train", config, rest @ ..] if config.ends_with(".py") && rest.is_empty() => {
            with(&[&SHORT_MODEL[..], &["--max_iters=3", "--warmup_iters=1"]].concat())
        }
        ["train", _, "--init_from=resume", ..] => with(&["--max_iters=5", "--device=cpu"]),
        ["train", ..] => with(&["--max_iters=3", "--eval_iters=1", "--device=cpu"]),
        ["sample", ..] => with(&["--max_new_tokens=5"]),
        // The hub: nobody listens there, and the command says so.
        ["prepare", "fineweb-edu" | "shakespeare_char" | "openwebtext", ..] => {
            let mut command = dir.command(&words);
            let ended =
                Ended::from(command.env("HF_ENDPOINT", "http://127.0.0.1:9").output().unwrap());
            let offline = ended.code == Some(4) && ended.error.contains("cannot be reached");
            assert!(offline || ended.code == Some(0), "{words:?}: {ended:?}");
            Ended { code: Some(0), ..ended }
        }
        // A server: it runs until it is stopped.
        ["ui", ..] => stopped(dir.command(&words), "page:"),
        _ => dir.run(&words),
    }
}

#[test]
fn every_command_of_the_readme_works_in_order() {
    let dir = clone("readme");
    let all = commands();
    let fitgpt = |command: &Vec<String>| match command.first().map(String::as_str) {
        Some("fitgpt") => Some(command[1..].to_vec()),
        Some("cargo") if command[1] == "run" => Some(command[4..].to_vec()),
        _ => None,
    };
    let ours: Vec<Vec<String>> = all.iter().filter_map(fitgpt).collect();
    assert!(ours.len() >= 12, "{all:?}");
    for command in ours {
        let ended = run(&dir, &command);
        // The config that is shown to the doctor does not fit, which its exit code says.
        let want = if command[0] == "doctor" { 3 } else { 0 };
        assert_eq!(ended.code, Some(want), "fitgpt {}: {ended:?}", command.join(" "));
        let is_missing = !dir.path("data/shakespeare_char/train.bin").exists();
        if command[..] == ["prepare", "shakespeare_char"] && is_missing {
            stand_in(&dir);
        }
    }
}

/// A data set instead of the one that the network would have brought.
fn stand_in(dir: &TempDir) {
    let text = std::fs::read_to_string(dir.path("README.md")).unwrap();
    dir.write("input.txt", format!("ROMEO:{text}").as_bytes());
    let out = ["--out", "data/shakespeare_char", "--tokenizer=char", "--overwrite"];
    dir.run(&[&["prepare", "input.txt"], &out[..]].concat()).succeeded();
}

/// Words that the README repeats from the tables of data sets and of the doctor's languages.
#[test]
fn lists_of_the_readme_are_the_tables() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let between = |start: &str, end: &str| {
        let rest = text.split_once(start).unwrap_or_else(|| panic!("no '{start}'")).1;
        rest.split_once(end).unwrap_or_else(|| panic!("no '{end}' behind '{start}'")).0
    };
    let listed = between("a known data set (", ")");
    let listed: Vec<&str> = listed.split(',').map(str::trim).collect();
    assert_eq!(listed, data::known::DATA_SETS.map(|row| row.name));
    let languages: Vec<&str> = between("--lang ", "`").split('|').collect();
    assert_eq!(languages, doctor::words::Language::CODES);
}

/// The plan that the README quotes, and the picture of its arena, are those of the command above
/// them. `UPDATE_SNAPSHOTS=1 cargo test -p fitgpt --test it readme` draws the picture again.
#[test]
fn the_plan_of_the_readme_is_the_program_s() {
    let dir = clone("readme-plan");
    let is_it = |command: &&Vec<String>| command[..2] == ["fitgpt", "plan"];
    let all = commands();
    let command = all.iter().find(is_it).expect("the README plans something");
    let mut words: Vec<&str> = command[1..].iter().map(String::as_str).collect();
    words.extend(["--svg", "arena.svg"]);
    let printed = dir.run(&words).out;
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let start = printed.find("plan: ").expect("a line with the plan");
    let plan = one_line(printed[start..].lines().next().unwrap());
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(one_line(&text).contains(&plan), "the README does not quote '{plan}'");

    let picture = root().join("docs/arena.svg");
    let drawn = std::fs::read_to_string(dir.path("arena.svg")).unwrap();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&picture, &drawn).unwrap();
    }
    let kept = std::fs::read_to_string(&picture).unwrap();
    let message = "UPDATE_SNAPSHOTS=1 cargo test -p fitgpt --test it readme draws it again";
    assert!(kept == drawn, "docs/arena.svg is not the arena of '{plan}'; {message}");
}

/// Files that the README shows or links to.
#[test]
fn links_of_the_readme_lead_somewhere() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    for target in targets.filter(|target| !target.starts_with("http")) {
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let file = if file.is_empty() { "README.md" } else { file };
        let path = root().join(file);
        assert!(path.exists(), "{target}");
        if !anchor.is_empty() {
            let page = std::fs::read_to_string(path).unwrap();
            let kept = |c: &char| c.is_alphanumeric() || *c == ' ' || *c == '-';
            let slug = |line: &str| {
                let text = line.trim_start_matches(['#', ' ']).to_lowercase();
                text.chars().filter(kept).collect::<String>().replace(' ', "-")
            };
            let found = page.lines().any(|line| line.starts_with('#') && slug(line) == anchor);
            assert!(found, "{target}: no such heading");
        }
    }
}
