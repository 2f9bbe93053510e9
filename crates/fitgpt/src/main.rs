//! The binary: finds the command, runs it, turns its end into an exit code. One file per command.
#![forbid(unsafe_code)]

mod bill;
mod commands;
mod device;
mod interrupt;
mod numbers;
mod progress;
mod screen;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|text| text.to_string_lossy().into_owned()).collect();
    match commands::run(&arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            screen::error(&error.to_string());
            ExitCode::from(error.exit_code())
        }
    }
}
