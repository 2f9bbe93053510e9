//! The program behind `cargo xtask soak`: the supervisor, and with `work` one of its workers. With
//! `compare` it compares the checkpoints of two runs, for `cargo xtask check --cuda`.

#![forbid(unsafe_code)]

use fitgpt_soak::options::Options;
use fitgpt_soak::worker::{self, Share};
use fitgpt_soak::{SECTIONS, document, jobs, supervise};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// Number of arguments that describe a worker's share.
const SHARE_WORDS: usize = 6;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first() {
        Some((word, rest)) if word == "work" => work(rest).map(|()| 0),
        Some((word, rest)) if word == "compare" => compare(rest).map(|()| 0),
        _ => soak(&arguments),
    };
    match outcome {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

fn work(words: &[String]) -> Result<(), String> {
    let (share, rest) = words.split_at_checked(SHARE_WORDS).ok_or("a worker needs its share")?;
    let share = Share::from_words(share).ok_or("a worker's share is invalid")?;
    let options = Options::read(rest)?;
    worker::run(&share, &options.environment, &mut std::io::stdout().lock())
}

/// Compares the checkpoints of two runs, tensor by tensor.
fn compare(words: &[String]) -> Result<(), String> {
    let [found, want] = words else {
        return Err("compare needs the folders of two runs".to_owned());
    };
    let [found, want] = [found, want]
        .map(|folder| jobs::trained(Path::new(folder)).map_err(|what| format!("{folder}: {what}")));
    let found = found?;
    jobs::same(&found, &want?)?;
    println!("{} parts have the same bits", found.len());
    Ok(())
}

/// Runs the sections; returns the number of findings.
fn soak(arguments: &[String]) -> Result<usize, String> {
    let options = Options::read(arguments)?;
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    ctrlc::set_handler(move || asked.store(true, Ordering::Relaxed))
        .map_err(|error| format!("cannot catch Ctrl-C: {error}"))?;
    let mut ended = Vec::new();
    let mut given_up = 0;
    for section in SECTIONS.iter().filter(|section| section.is_meant(&options.name)) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        println!("== {}: {}", section.name, section.about);
        if let Some(why) = (section.skipped)(&options.environment) {
            println!("skipped: {why}");
            continue;
        }
        match supervise::run(section, &options, &stop) {
            Ok(section) => ended.push(section),
            Err(message) => {
                println!("FAILED {message}");
                given_up += 1;
            }
        }
    }
    let findings: usize = ended.iter().map(|section| section.findings.len()).sum();
    if let Some(folder) = &options.keep {
        let command = format!("cargo xtask soak {}", shown(arguments));
        let document = document::of(&options, command.trim(), &ended);
        let path = document::keep(folder, &options, &document).map_err(|e| e.to_string())?;
        println!("kept in {}", path.display());
    }
    println!("soak: {findings} findings, seed {}", options.environment.seed);
    Ok(findings + given_up)
}

/// What the user typed, without what `xtask` added.
fn shown(arguments: &[String]) -> String {
    let added = ["--binary=", "--faults=", "--commit=", "--date=", "--cpu="];
    let typed = arguments.iter().filter(|word| !added.iter().any(|flag| word.starts_with(flag)));
    typed.map(String::as_str).collect::<Vec<_>>().join(" ")
}
