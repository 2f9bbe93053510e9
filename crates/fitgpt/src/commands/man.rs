//! `fitgpt man`: the man pages, to read in a pager or to install.

use super::line;
use crate::flags::{FlagSet, flags};
use crate::help::man::{Page, pages};
use crate::screen::show;
use ::train::TrainError;
use spec::{SpecError, Values};
use std::path::{Path, PathBuf};

flags! {
    /// The flags of `man`.
    pub struct Flags {
        /// write all pages into this folder instead, such as ~/.local/share/man/man1
        out: Option<String> = "--out", "FOLDER" Values::Folder;
    }
}

/// The command's row.
pub static COMMAND: super::Command = super::Command {
    name: "man",
    about: "print a man page, or install all of them",
    text: &["Prints the man page of the program or of a command, in the format that man reads. \
             The pip package installs the pages in share/man of its environment."],
    usage: &[line("fitgpt man [COMMAND] [flags]", "")],
    examples: &[
        line("fitgpt man train | man -l -", ""),
        line("fitgpt man --out ~/.local/share/man/man1", "then: man fitgpt-train"),
    ],
    notes: &[],
    lists_data_sets: false,
    arguments: &[Values::Any],
    flags: Flags::TABLE,
    closing: &[],
    keys: None,
    run,
};

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let (flags, rest) = Flags::read(arguments)?;
    if let (Some(_), Some(name)) = (&flags.out, rest.first()) {
        let what = format!("--out writes all pages; leave '{name}' out");
        return Err(SpecError::Conflict { what }.into());
    }
    if let Some(folder) = &flags.out {
        return install(Path::new(folder));
    }
    let file = match rest.as_slice() {
        [] => "fitgpt.1".to_string(),
        [name] => format!("fitgpt-{}.1", super::find(name)?.name),
        [_, second, ..] => {
            let what = format!("man prints one page; leave '{second}' out");
            return Err(SpecError::Conflict { what }.into());
        }
    };
    let page = pages().into_iter().find(|page| page.file == file);
    show(&page.map(|page| page.text).unwrap_or_default())?;
    Ok(0)
}

fn install(folder: &Path) -> Result<u8, TrainError> {
    let failed = |path: PathBuf, doing: &'static str| {
        move |error| TrainError::Io { path, doing, error, advice: "choose another folder" }
    };
    std::fs::create_dir_all(folder).map_err(failed(folder.to_path_buf(), "make"))?;
    let pages = pages();
    for Page { file, text } in &pages {
        let path = folder.join(file);
        std::fs::write(&path, text).map_err(failed(path, "write"))?;
    }
    show(&format!("wrote {} pages to {}\n", pages.len(), folder.display()))?;
    Ok(0)
}
