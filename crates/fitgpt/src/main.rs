//! The binary. Its commands come with the trainer; until then it says so and fails.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    eprintln!(
        "fitgpt {}: only the engine exists so far, no command runs yet.\n\
         See README.md; `cargo xtask check` tests what is here.",
        env!("CARGO_PKG_VERSION")
    );
    ExitCode::from(2)
}
