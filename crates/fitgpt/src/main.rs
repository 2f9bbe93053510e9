//! The binary: finds the command, runs it, turns its end into an exit code. One file per command.
#![forbid(unsafe_code)]

mod bench_report;
mod bill;
mod commands;
mod device;
mod doctor_document;
mod flags;
mod help;
mod interrupt;
mod invocation;
mod measure;
mod numbers;
mod own_text;
mod plan_report;
mod planning;
mod preparation;
mod progress;
mod refusal;
mod run_length;
mod run_report;
mod screen;
mod speak;
mod survey;
mod sweep;
mod timing;

use search::SearchError;
use std::ffi::OsString;
use std::process::ExitCode;
use train::TrainError;

fn main() -> ExitCode {
    let typed = std::env::args_os().skip(1);
    let arguments: Result<Vec<String>, OsString> = typed.map(OsString::into_string).collect();
    let ended = match arguments {
        Ok(arguments) => commands::run(&arguments),
        Err(text) => {
            let what = format!("argument {text:?} is not UTF-8; rename the file or folder");
            Err(spec::SpecError::Conflict { what }.into())
        }
    };
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            match &error {
                TrainError::Search(SearchError::DoesNotFit(found)) => refusal::show(found, true),
                other => screen::error(&other.to_string()),
            }
            ExitCode::from(error.exit_code())
        }
    }
}
