//! `cargo xtask check --cuda`: what only a GPU can check, as one list. With `--build-only DIR` the
//! programs and a script that runs the same list go into a folder, for a machine with a GPU and
//! without Rust.

use crate::process::{self, Failure};
use crate::scratch::ScratchFolder;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One program of the list.
struct Step {
    name: &'static str,
    /// The file name of the program in the folder.
    program: &'static str,
    arguments: &'static str,
}

const TESTS: &str = "cuda-tests";
const SOAK: &str = "fitgpt-soak";
const FITGPT: &str = "fitgpt";
const GOLDENS: &str = "goldens";

/// Tests first: they say most about what is wrong.
const STEPS: [Step; 6] = [
    Step { name: "tests of the cuda crate", program: TESTS, arguments: "" },
    Step { name: "random plans", program: SOAK, arguments: "plans --cuda --cases 100" },
    Step {
        name: "a run",
        program: FITGPT,
        arguments: "train --device=cuda --max_iters=20 --lr_decay_iters=40 --warmup_iters=5 \
                    --eval_interval=10 --out_dir=out",
    },
    Step {
        name: "the run resumed",
        program: FITGPT,
        arguments: "train --init_from=resume --device=cuda --max_iters=40 --out_dir=out",
    },
    Step {
        name: "the run without a stop",
        program: FITGPT,
        arguments: "train --device=cuda --max_iters=40 --lr_decay_iters=40 --warmup_iters=5 \
                    --eval_interval=10 --out_dir=whole",
    },
    Step {
        name: "both checkpoints have the same bits",
        program: SOAK,
        arguments: "compare out whole",
    },
];

/// What must not be missing where this runs.
const REQUIRED: &str = "gpu,nvrtc";

/// Builds the programs, then runs the list.
pub fn run() -> Result<(), Failure> {
    let scratch = ScratchFolder::new("cuda").map_err(|error| failed(&error))?;
    build(&scratch.path)?;
    for step in &STEPS {
        println!("== {}", step.name);
        let mut command = Command::new(scratch.path.join(step.program));
        command.args(step.arguments.split_whitespace()).current_dir(&scratch.path);
        process::run(command.env(requires::REQUIRE, REQUIRED))
            .map_err(|failure| Failure::Task(format!("check --cuda: {}: {failure}", step.name)))?;
    }
    println!("check --cuda: all {} steps passed", STEPS.len());
    Ok(())
}

/// Builds the programs into a folder, beside a script that runs the list.
pub fn build_only(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    build(folder)?;
    let goldens = folder.join(GOLDENS);
    std::fs::create_dir_all(&goldens).map_err(|error| failed(&error))?;
    let kept = process::workspace_root().join("crates/conformance/golden/data");
    for file in std::fs::read_dir(kept).map_err(|error| failed(&error))? {
        let file = file.map_err(|error| failed(&error))?;
        let copied = std::fs::copy(file.path(), goldens.join(file.file_name()));
        copied.map_err(|error| failed(&error))?;
    }
    let path = folder.join("run.sh");
    std::fs::write(&path, script()).map_err(|error| failed(&error))?;
    println!("check --cuda: on the machine with the GPU: sh {}", path.display());
    Ok(())
}

/// The list for a shell.
fn script() -> String {
    let mut text = format!(
        "# The GPU list of `cargo xtask check --cuda`; ends at the first failure.\nset -eu\n\
         bin=$(cd \"$(dirname \"$0\")\" && pwd)\n\
         export {}={REQUIRED} FITGPT_GOLDENS=\"$bin/{GOLDENS}\"\ncd \"$(mktemp -d)\"\n",
        requires::REQUIRE
    );
    for Step { name, program, arguments } in &STEPS {
        text += format!("echo '== {name}'\n\"$bin/{program}\" {arguments}").trim_end();
        text.push('\n');
    }
    text + &format!("echo 'check --cuda: all {} steps passed'\n", STEPS.len())
}

fn build(folder: &Path) -> Result<(), Failure> {
    let tests = "test --no-run --locked -p fitgpt-cuda --test it";
    let programs = "build --locked -p fitgpt -p fitgpt-soak --bins";
    for (words, wanted) in
        [(tests, &[("it", TESTS)][..]), (programs, &[(FITGPT, FITGPT), (SOAK, SOAK)])]
    {
        let mut cargo = process::cargo();
        cargo.args(words.split_whitespace()).arg("--message-format=json-render-diagnostics");
        let messages = process::capture(&mut cargo)?;
        for (target, name) in wanted {
            let built = executable(&messages, target)
                .ok_or(Failure::Task(format!("check --cuda: cargo built no {target}")))?;
            std::fs::copy(&built, folder.join(name)).map_err(|error| failed(&error))?;
        }
    }
    Ok(())
}

/// The executable of a target, from cargo's messages.
fn executable(messages: &str, target: &str) -> Option<PathBuf> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut named = artifacts.filter(|message| message["target"]["name"] == target);
    named.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

fn failed(error: &std::io::Error) -> Failure {
    Failure::Task(format!("check --cuda: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_in_cargos_messages() {
        let messages = "noise\n\
            {\"target\":{\"name\":\"it\"},\"executable\":null}\n\
            {\"target\":{\"name\":\"it\"},\"executable\":\"/t/it\"}\n";
        assert_eq!(executable(messages, "it"), Some(PathBuf::from("/t/it")));
        assert_eq!(executable(messages, "other"), None);
    }

    /// The script with programs that only say their name, one of which fails.
    #[test]
    fn the_script_runs_the_list_and_ends_at_a_failure() {
        let folder = ScratchFolder::new("cuda-script").unwrap();
        let program = |name: &str, code: u8| {
            let path = folder.path.join(name);
            let text =
                format!("#!/bin/sh\necho \"{name} $* requires $FITGPT_REQUIRE\"\nexit {code}\n");
            std::fs::write(&path, text).unwrap();
            process::run(Command::new("chmod").arg("+x").arg(&path)).unwrap();
        };
        std::fs::write(folder.path.join("run.sh"), script()).unwrap();
        let mut run = Command::new("sh");
        run.arg(folder.path.join("run.sh"));
        [TESTS, SOAK, FITGPT].iter().for_each(|name| program(name, 0));
        let said = process::capture(&mut run).unwrap();
        assert!(said.contains("cuda-tests  requires gpu,nvrtc"), "{said}");
        assert!(said.contains("fitgpt-soak compare out whole "), "{said}");
        assert!(said.ends_with("check --cuda: all 6 steps passed\n"), "{said}");
        program(SOAK, 1);
        assert!(process::capture(&mut run).is_err());
    }
}
