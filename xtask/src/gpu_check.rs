//! `cargo xtask check --cuda`: what only a GPU can check, as one list. With `--build-only DIR` the
//! programs and the script that runs the list go into a folder, for a machine with a GPU and no
//! Rust.

use crate::process::{self, Failure};
use crate::scratch::ScratchFolder;
use std::path::Path;
use std::process::Command;

/// One program of the list.
struct Step {
    name: &'static str,
    /// The file name of the program in the folder.
    program: &'static str,
    /// Joined by spaces.
    arguments: &'static [&'static str],
}

const TESTS: &str = "cuda-tests";
const SOAK: &str = "fitgpt-soak";
const FITGPT: &str = "fitgpt";
const GOLDENS: &str = "goldens";
const SCRIPT: &str = "run.sh";

/// What the stopped and the whole run have in common, so that their bits can be compared.
const TRAIN: &str = "train --device=cuda --lr_decay_iters=40 --warmup_iters=5 --eval_interval=10";

/// Tests first: they say most about what is wrong.
const STEPS: [Step; 6] = [
    // Without the test that lists the source files, which are elsewhere.
    Step {
        name: "tests of the cuda crate",
        program: TESTS,
        arguments: &["--skip every_file_of_kernels_is_compiled"],
    },
    Step { name: "random plans", program: SOAK, arguments: &["plans --cuda --cases 200"] },
    Step { name: "a run", program: FITGPT, arguments: &[TRAIN, "--max_iters=20 --out_dir=out"] },
    Step {
        name: "the run resumed",
        program: FITGPT,
        arguments: &["train --init_from=resume --device=cuda --max_iters=40 --out_dir=out"],
    },
    Step {
        name: "the run without a stop",
        program: FITGPT,
        arguments: &[TRAIN, "--max_iters=40 --out_dir=whole"],
    },
    Step {
        name: "both checkpoints have the same bits",
        program: SOAK,
        arguments: &["compare out whole"],
    },
];

/// What must not be missing where this runs.
const REQUIRED: &str = "gpu,nvrtc";

/// Builds the folder, then runs its script.
pub fn run() -> Result<(), Failure> {
    let scratch = ScratchFolder::new("cuda").map_err(|error| failed(&error))?;
    fill(&scratch.path)?;
    process::run(Command::new("sh").arg(scratch.path.join(SCRIPT)))
}

/// Builds the folder for another machine.
pub fn build_only(folder: &Path) -> Result<(), Failure> {
    fill(folder)?;
    let script = folder.join(SCRIPT);
    println!("check --cuda: on the machine with the GPU: sh {}", script.display());
    Ok(())
}

/// Writes all that the list needs: programs, goldens, script.
fn fill(folder: &Path) -> Result<(), Failure> {
    let goldens = folder.join(GOLDENS);
    std::fs::create_dir_all(&goldens).map_err(|error| failed(&error))?;
    build(folder)?;
    let kept = process::workspace_root().join("crates/conformance/golden/data");
    for file in std::fs::read_dir(kept).map_err(|error| failed(&error))? {
        let file = file.map_err(|error| failed(&error))?;
        let copied = std::fs::copy(file.path(), goldens.join(file.file_name()));
        copied.map_err(|error| failed(&error))?;
    }
    std::fs::write(folder.join(SCRIPT), script()).map_err(|error| failed(&error))
}

/// The list for a shell. Every step runs, whatever failed before it.
fn script() -> String {
    let mut text = SCRIPT_HEAD.replace("REQUIRED", REQUIRED);
    for Step { name, program, arguments } in &STEPS {
        let arguments = arguments.join(" ");
        text += format!("step '{name}' {program} {arguments}").trim_end();
        text.push('\n');
    }
    text + SCRIPT_TAIL
}

/// A skipped test fails by `FITGPT_REQUIRE`. What may be skipped is listed at the end.
const SCRIPT_HEAD: &str = r#"# The GPU list of `cargo xtask check --cuda`: sh run.sh
# Prints one line for each step, and the log of a step that failed. Ends with 1 if one failed.
set -u
bin=$(cd "$(dirname "$0")" && pwd) || exit 1
work=$(mktemp -d) && cd "$work" || exit 1
trap 'rm -rf "$work"' EXIT
export FITGPT_REQUIRE=REQUIRED FITGPT_GOLDENS="$bin/goldens" FITGPT_SKIPS="$work/skips"
unset FITGPT_KERNELS
steps=0 failed=0
step() {
    name=$1 program=$2
    shift 2
    start=$(date +%s)
    "$bin/$program" "$@" >log 2>&1 </dev/null
    code=$?
    seconds=$(($(date +%s) - start))
    steps=$((steps + 1))
    verdict=ok
    if [ "$code" -ne 0 ]; then
        failed=$((failed + 1)) verdict=FAILED
        echo "---- $name: the end of its log (status $code)"
        tail -n 60 log
        echo "----"
    fi
    last=$(grep -v '^[[:space:]]*$' log | tail -n 1 | cut -c 1-90)
    printf '%-6s %5s s  %-36s %s\n' "$verdict" "$seconds" "$name" "$last"
}
"#;

const SCRIPT_TAIL: &str = r#"if [ -s skips ]; then
    echo "skipped:"
    sort -u skips
fi
if [ "$failed" -ne 0 ]; then
    echo "check --cuda: $failed of $steps steps FAILED"
    exit 1
fi
echo "check --cuda: all $steps steps passed"
"#;

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
            let built = process::executable(&messages, target)
                .ok_or(Failure::Task(format!("check --cuda: cargo built no {target}")))?;
            let copy = folder.join(name);
            std::fs::copy(&built, &copy).map_err(|error| failed(&error))?;
            // The names of functions are two thirds of the file. Without `strip` they stay.
            let _ = process::ask(Command::new("strip").arg(&copy));
        }
    }
    Ok(())
}

fn failed(error: &std::io::Error) -> Failure {
    Failure::Task(format!("check --cuda: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The script with programs that only say their name, one of which fails.
    #[test]
    fn the_script_runs_the_list_and_names_what_failed() {
        let folder = ScratchFolder::new("cuda-script").unwrap();
        let program = |name: &str, ends: &str| {
            let path = folder.path.join(name);
            let text = format!("#!/bin/sh\necho \"{name} $* requires $FITGPT_REQUIRE\"\n{ends}\n");
            std::fs::write(&path, text).unwrap();
            process::run(Command::new("chmod").arg("+x").arg(&path)).unwrap();
        };
        std::fs::write(folder.path.join(SCRIPT), script()).unwrap();
        let run = || {
            let output = Command::new("sh").arg(folder.path.join(SCRIPT)).output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            (output.status.code().unwrap(), said)
        };
        [TESTS, SOAK, FITGPT].iter().for_each(|name| program(name, ""));
        let (code, said) = run();
        assert_eq!((code, said.lines().count()), (0, STEPS.len() + 1), "{said}");
        assert!(said.contains(" tests of the cuda crate "), "{said}");
        assert!(said.contains("fitgpt-soak compare out whole requires gpu,nvrtc\n"), "{said}");
        assert!(said.ends_with("check --cuda: all 6 steps passed\n"), "{said}");
        program(SOAK, "exit 3");
        program(TESTS, "echo 'python\ta::x\twhy' >>\"$FITGPT_SKIPS\"");
        let (code, said) = run();
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("---- random plans: the end of its log (status 3)\n"), "{said}");
        assert!(said.contains("\nskipped:\npython"), "{said}");
        assert!(said.ends_with("check --cuda: 2 of 6 steps FAILED\n"), "{said}");
    }
}
