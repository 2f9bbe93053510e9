//! `fitgpt ui`: serves a page in the browser for finished and running runs, plans, diagnoses and
//! samples. It only reads.

use super::line;
use crate::flags::{FlagSet, flags};
use crate::interrupt;
use crate::screen;
use crate::ui::UiAnswers;
use crate::ui::serve::PageFlags;
use ::page::{Registry, Settings};
use ::train::TrainError;
use spec::{SpecError, Values};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

flags! {
    /// The flags of `ui`.
    pub struct Flags {
        /// the port; without it 7070, or the next one that is free
        port: Option<String> = "--port", "N" Values::Any;
        /// serve on this address instead of on this machine only; needs the token that is printed
        host: Option<String> = "--host", "ADDRESS" Values::Any;
        /// also open the browser
        open: bool = "--open";
    }
}

/// The command's row.
pub static COMMAND: super::Command = super::Command {
    name: "ui",
    about: "show runs, memory and plans in the browser",
    text: &[
        "Serves a page on this machine: the losses of runs as they train, the memory of their \
         plans, sliders that plan a model for any card, the doctor, and a playground for trained \
         models. It only reads. `fitgpt train ... --ui` serves its own run and can save and stop \
         it.",
    ],
    usage: &[line("fitgpt ui [RUN_DIR ...] [flags]", "")],
    examples: &[
        line("fitgpt ui", "every run in this folder"),
        line("fitgpt ui out-a out-b --open", "opens the browser"),
        line("fitgpt ui /mnt/other-machine/out", "a folder that is re-read"),
        line("ssh -L 7070:localhost:7070 gpu-box fitgpt ui", "a run on another machine"),
    ],
    notes: &["The page is reached from this machine only. Everything that it shows is also JSON: \
         docs/page-api.md."],
    lists_data_sets: false,
    arguments: &[Values::Folder],
    flags: Flags::TABLE,
    closing: &[],
    keys: None,
    run,
};

/// Runs the command until Ctrl-C.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let (Flags { port, host, open }, names) = Flags::read(arguments)?;
    let flags = PageFlags { host, port, open };
    if let Some(missing) = names.iter().find(|name| !PathBuf::from(name).exists()) {
        let shown: String = missing.chars().take(200).collect();
        let what = format!("there is no '{shown}': give the out_dir of a run, or a folder of runs");
        return Err(SpecError::Conflict { what }.into());
    }
    let places = match names.is_empty() {
        true => vec![PathBuf::from(".")],
        false => names.into_iter().map(PathBuf::from).collect(),
    };
    let (host, port) = flags.place()?;
    let registry = Arc::new(Registry::new(places));
    let answers = Arc::new(UiAnswers::new());
    let settings = Settings { host, port, registry, answers, control: None, is_polite: false };
    let stop = interrupt::catch("");
    let page = flags.serve(settings)?;
    screen::line(&screen::faint("Ctrl-C ends it"));
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(page);
    Ok(0)
}
