//! The cheap part of `cargo xtask peers interop`: scripts that take seconds, with other programs'
//! Python packages. `xtask/src/interop.rs` says how a script is run and what it prints.

use crate::fixture::TempDir;
use requires::{Need, absent};
use std::process::Command;

/// TensorBoard's and trackio's own readers return what `log.jsonl` holds.
#[test]
fn other_programs_read_the_metrics() {
    let dir = TempDir::empty("peers-sinks");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../plots/tests/peers/sinks.py");
    let python = std::env::var("FITGPT_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut command = Command::new(python);
    command.arg(script).current_dir(&dir.0).env("FITGPT", env!("CARGO_BIN_EXE_fitgpt"));
    let Ok(output) = command.env("PYTHONDONTWRITEBYTECODE", "1").output() else {
        return absent(Need::Peers, "there is no Python here");
    };
    let said = String::from_utf8_lossy(&output.stdout);
    match output.status.code() {
        Some(77) => absent(Need::Peers, said.trim()),
        code => {
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(code, Some(0), "{said}\n{error}");
            let compared = said.lines().filter(|line| line.ends_with(')')).count();
            assert_eq!(compared, 3, "{said}");
        }
    }
}
