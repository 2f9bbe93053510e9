//! The binary: finds the command, runs it, and returns its exit code. One file per command.
#![forbid(unsafe_code)]

mod commands;
mod flags;
mod help;
mod completion;
mod version;
mod invocation;

mod device;
mod fellow_ranks;
mod own_text;
mod planning;
mod fleet;
mod model_name;
mod pretrained;
mod bill;
mod run_report;
mod run_length;
mod console_sink;
mod metric_sinks;
mod stream_sample;
mod stop_text;
mod eval_report;
mod refusal;

mod plan_report;
mod sweep;
mod link_table;
mod measure;
mod timing;
mod plan_choice;
mod bench_report;
mod survey;
mod doctor_document;
mod comparison;
mod ui;
mod preparation;
mod byte_bar;

mod screen;
mod numbers;
mod interrupt;

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
