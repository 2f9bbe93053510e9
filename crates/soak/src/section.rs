//! The table of sections.

use crate::tally::Tally;
use crate::{bytes, files, kills, plans, ranks};
use std::path::PathBuf;
use std::time::Duration;

/// What all cases share: seed, programs and device.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The seed of all cases.
    pub seed: u64,
    /// The real `fitgpt` binary.
    pub binary: PathBuf,
    /// The library that makes file system calls fail, if there is one.
    pub faults: Option<PathBuf>,
    /// Whether to execute plans on GPU 0 instead of the CPU.
    pub cuda: bool,
}

/// The cases of a section, with their shared state.
pub trait Cases {
    /// Runs a case; an error is a finding.
    ///
    /// # Errors
    ///
    /// What is wrong with the program.
    fn run(&mut self, index: u64, tally: &mut Tally) -> Result<(), String>;

    /// The name and number that run this case alone, if they differ from the section's.
    fn locate(&self, _index: u64) -> Option<(String, u64)> {
        None
    }
}

/// Prepares the cases of a section or a part of it.
pub type Open = fn(&Environment, &str) -> Result<Box<dyn Cases>, String>;

/// One row of the table.
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Its fraction of the total time.
    pub share: f64,
    /// Number of worker processes; sections that start other programs leave a core for them.
    pub workers: usize,
    /// A case that takes longer than this counts as hanging.
    pub limit: Duration,
    /// Names after a slash that select a part of it.
    pub parts: fn() -> Vec<&'static str>,
    /// Why it cannot run here; this is not a failure.
    pub skipped: fn(&Environment) -> Option<String>,
    /// Prepares the shared state; the name is that of the section or of a part.
    pub open: Open,
}

const MINUTE: Duration = Duration::from_secs(60);

fn no_parts() -> Vec<&'static str> {
    Vec::new()
}

fn never(_: &Environment) -> Option<String> {
    None
}

/// All sections, cheapest first.
pub const SECTIONS: [Section; 5] = [
    Section {
        name: "bytes",
        about: "hostile bytes for every reader: no panic, bounded time and memory",
        share: 0.2,
        workers: 2,
        limit: MINUTE,
        parts: bytes::names,
        skipped: never,
        open: bytes::open,
    },
    Section {
        name: "plans",
        about: "random runs planned and proved; every tenth is executed and compared",
        share: 0.4,
        workers: 2,
        limit: Duration::from_secs(300),
        parts: no_parts,
        skipped: never,
        open: plans::open,
    },
    Section {
        name: "kills",
        about: "kill -9 at random moments of train and prepare, then resumed to the end",
        share: 0.15,
        workers: 2,
        limit: Duration::from_secs(300),
        parts: no_parts,
        skipped: never,
        open: kills::open,
    },
    Section {
        name: "files",
        about: "errors, short writes, kills and power cuts at file system calls",
        share: 0.15,
        workers: 2,
        limit: Duration::from_secs(300),
        parts: no_parts,
        skipped: files::skipped,
        open: files::open,
    },
    Section {
        name: "ranks",
        about: "ranks killed, stopped, stuck, cut off or unlike the others, then resumed",
        share: 0.1,
        workers: 2,
        limit: Duration::from_secs(300),
        parts: ranks::names,
        skipped: ranks::skipped,
        open: ranks::open,
    },
];

impl Section {
    /// Whether a name on the command line selects this section or a part of it.
    pub fn is_meant(&self, name: &str) -> bool {
        self.name.starts_with(name) || self.full_names().any(|full| full == name)
    }

    fn full_names(&self) -> impl Iterator<Item = String> {
        (self.parts)().into_iter().map(|part| format!("{}/{part}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_select_by_beginning_or_by_part() {
        let meant = |name: &str| {
            let rows = SECTIONS.iter().filter(|section| section.is_meant(name));
            rows.map(|section| section.name).collect::<Vec<_>>()
        };
        assert_eq!(meant("by"), ["bytes"]);
        assert_eq!(meant("bytes/parquet"), ["bytes"]);
        assert!(meant("bytes/nothing").is_empty() && meant("x").is_empty());
        assert_eq!(meant("").len(), SECTIONS.len());
    }

    #[test]
    fn shares_are_a_whole() {
        let whole: f64 = SECTIONS.iter().map(|section| section.share).sum();
        assert!(whole <= 1.0 + 1e-9, "{whole}");
    }
}
