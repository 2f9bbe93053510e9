//! The project's own tasks: `cargo xtask check`, `tidy`, `map`, `golden`, `peers`, `soak`,
//! `fuzz`, `bench`, `company`, `new-op`, `dependencies`, `dist`.
//!
//! Two small dependencies, so that it builds in seconds and is never what breaks the build.
//! `TASKS` is the one list of commands: dispatch and usage text both come from it.

#![forbid(unsafe_code)]

mod check;
mod gpu_check;
mod tidy;
mod golden;
mod peers;
mod parity;
mod interop;
mod page;
mod soak;
mod fuzz;
mod bench;
mod company;
mod new_op;
mod crate_map;
mod dependencies;
mod dist;

mod flags;
mod process;
mod scratch;

use process::Failure;
use std::process::ExitCode;

/// One command of `cargo xtask`.
struct Task {
    name: &'static str,
    flags: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<(), Failure>,
}

const TASKS: [Task; 12] = [
    Task {
        name: "check",
        flags: check::FLAGS,
        about: "the one test command: format, tidy, clippy, tests, docs; --cuda: the GPU checks",
        run: check::run,
    },
    Task {
        name: "tidy",
        flags: "",
        about: "rules that no compiler checks: arrows between crates, file openings, limits, names",
        run: tidy::run,
    },
    Task {
        name: "map",
        flags: "",
        about: "draw docs/crates.svg again, after a crate or an arrow has changed",
        run: crate_map::run,
    },
    Task {
        name: "dependencies",
        flags: "",
        about: "licences and second versions of the crates that we build on",
        run: dependencies::run,
    },
    Task {
        name: "dist",
        flags: dist::FLAGS,
        about: "wheel, source package, tarball, SBOM and checksums; --twice compares two builds",
        run: dist::run,
    },
    Task {
        name: "golden",
        flags: golden::FLAGS,
        about: "make the PyTorch goldens again, all or those of NAME; --check only compares",
        run: golden::run,
    },
    Task {
        name: "peers",
        flags: peers::FLAGS,
        about: "tests against real programs (nanoGPT, PyTorch): list the last runs, or run one",
        run: peers::run,
    },
    Task {
        name: "soak",
        flags: soak::FLAGS,
        about: "random plans, kills, file system faults, hostile bytes: far more cases than check",
        run: soak::run,
    },
    Task {
        name: "fuzz",
        flags: fuzz::FLAGS,
        about: "damaged and hostile files into every reader: the soak's bytes, a million of them",
        run: fuzz::run,
    },
    Task {
        name: "bench",
        flags: bench::FLAGS,
        about: "time our step next to nanoGPT's, on the CPU or on a GPU, and keep the numbers",
        run: bench::run,
    },
    Task {
        name: "company",
        flags: company::FLAGS,
        about: "measure how much speed the demo keeps when other programs share its cores",
        run: company::run,
    },
    Task {
        name: "new-op",
        flags: new_op::FLAGS,
        about: "write the files of a new op as skeletons, and list what to do next",
        run: new_op::run,
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure @ Failure::Usage(_)) => {
            eprintln!("{failure}\n\n{}", usage());
            ExitCode::from(2)
        }
        Err(failure @ Failure::Task(_)) => {
            eprintln!("{failure}");
            ExitCode::from(1)
        }
    }
}

fn dispatch(args: &[String]) -> Result<(), Failure> {
    let Some((name, rest)) = args.split_first() else {
        return Err(Failure::Usage("which task?".to_owned()));
    };
    match TASKS.iter().find(|task| task.name == name) {
        Some(task) => (task.run)(rest),
        None => Err(Failure::Usage(format!("no task is called '{name}'"))),
    }
}

fn usage() -> String {
    let mut text = String::from("usage: cargo xtask <task>\n");
    for task in &TASKS {
        text += format!("\n  {:<7} {} {}", task.name, task.about, task.flags).trim_end();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_task_and_unknown_task_are_usage_errors() {
        for args in [vec![], vec!["chekc".to_owned()]] {
            assert!(matches!(dispatch(&args), Err(Failure::Usage(_))), "{args:?}");
        }
    }

    #[test]
    fn unknown_flags_are_usage_errors() {
        for task in &TASKS {
            let outcome = (task.run)(&["--no-such-flag".to_owned()]);
            assert!(matches!(outcome, Err(Failure::Usage(_))), "{}", task.name);
        }
    }
}
