//! The runs that the page shows: this process's own, and those whose logs it follows.

use crate::follow::{Follower, Progress, locked};
use crate::run::Run;
use crate::summary::{self, Around};
use events::{Event, Sink, SinkError, What};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The name of a log in its folder.
const LOG: &str = "log.jsonl";

/// Most runs.
const MOST_RUNS: usize = 64;

/// Most entries of a folder that are looked at.
const MOST_ENTRIES: usize = 4096;

/// How often logs are read on, and folders searched for new runs.
const READ_EVERY: Duration = Duration::from_millis(400);
const SEARCH_EVERY: u32 = 10;

/// One run that the page shows.
pub struct Shown {
    /// Its number in addresses: no path of a request reaches the file system.
    pub id: usize,
    /// Its name: the folder as it was typed.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Whether this process trains it.
    pub is_own: bool,
    /// What is known about it.
    pub run: Mutex<Run>,
    reading: Mutex<Option<f64>>,
}

impl Shown {
    /// Its summary.
    pub fn summary(&self) -> Value {
        let checkpoints = ["last", "best"].into_iter();
        let checkpoints = checkpoints.filter(|which| self.checkpoint(which).is_some()).collect();
        let (id, name, is_own) = (self.id, self.name.as_str(), self.is_own);
        let reading = *locked(&self.reading);
        let around = Around { id, name, is_own, reading, now: unix_time(), checkpoints };
        summary::of(&locked(&self.run), &around)
    }

    /// The file of `last` or `best`, if there is one.
    pub fn checkpoint(&self, which: &str) -> Option<PathBuf> {
        let names: &[&str] = match which {
            "last" => &["last.safetensors", "ckpt.pt"],
            "best" => &["best.safetensors", "ckpt-best.pt"],
            _ => &[],
        };
        names.iter().map(|name| self.folder.join(name)).find(|path| path.is_file())
    }

    fn read_on(&self, follower: &mut Follower) -> bool {
        let progress = follower.read_on(&self.run);
        let share = match progress {
            Progress::UpToDate => None,
            Progress::Share(share) => Some(share),
        };
        let mut reading = locked(&self.reading);
        if *reading != share {
            *reading = share;
            locked(&self.run).version += 1;
        }
        share.is_some()
    }
}

/// All runs.
#[derive(Default)]
pub struct Registry {
    runs: Mutex<Vec<Arc<Shown>>>,
    /// Where runs are looked for.
    places: Vec<PathBuf>,
}

impl Registry {
    /// Runs in these places: folders of runs, logs, or folders that hold folders of runs.
    pub fn new(places: Vec<PathBuf>) -> Registry {
        Registry { runs: Mutex::default(), places }
    }

    /// All runs, in the order in which they were found.
    pub fn all(&self) -> Vec<Arc<Shown>> {
        locked(&self.runs).clone()
    }

    /// The run of this number.
    pub fn get(&self, id: usize) -> Option<Arc<Shown>> {
        locked(&self.runs).get(id).cloned()
    }

    /// Adds the run that this process trains. What its log says so far is read now; the rest comes
    /// through the sink.
    pub fn own(&self, folder: &Path) -> RunSink {
        let shown = self.add(folder.to_path_buf(), true);
        if let Some(shown) = &shown {
            let mut follower = Follower::new(folder.join(LOG));
            if follower.path().is_file() {
                while shown.read_on(&mut follower) {}
            }
            locked(&shown.run).is_catching_up = false;
        }
        RunSink { shown }
    }

    fn add(&self, folder: PathBuf, is_own: bool) -> Option<Arc<Shown>> {
        let mut runs = locked(&self.runs);
        let is_known = runs.iter().any(|run| is_same(&run.folder, &folder));
        if is_known || runs.len() == MOST_RUNS {
            return None;
        }
        let (id, run, reading) = (runs.len(), Mutex::default(), Mutex::default());
        let shown = Arc::new(Shown { id, name: name(&folder), folder, is_own, run, reading });
        runs.push(Arc::clone(&shown));
        Some(shown)
    }

    /// Follows all logs until nobody else holds the registry. Runs on a thread of its own.
    pub fn follow(self: Arc<Registry>) {
        let mut followers: Vec<(Arc<Shown>, Follower)> = Vec::new();
        let mut round = 0;
        while Arc::strong_count(&self) > 1 {
            if round % SEARCH_EVERY == 0 {
                let found = self.search().into_iter().filter_map(|folder| self.add(folder, false));
                followers.extend(found.map(|shown| {
                    let log = shown.folder.join(LOG);
                    (shown, Follower::new(log))
                }));
            }
            let mut is_behind = false;
            for (shown, follower) in &mut followers {
                is_behind |= shown.read_on(follower);
            }
            if !is_behind {
                round += 1;
                std::thread::sleep(READ_EVERY);
            }
        }
    }

    /// Folders of runs in the given places. A folder without a log whose run was named stays:
    /// its run may begin later.
    fn search(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for place in &self.places {
            if place.file_name().is_some_and(|name| name == LOG) {
                let folder = place.parent().map(Path::to_path_buf).unwrap_or_default();
                found.push(if folder.as_os_str().is_empty() { ".".into() } else { folder });
                continue;
            }
            if place.join(LOG).is_file() {
                found.push(place.clone());
                continue;
            }
            let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
            let entries = entries.take(MOST_ENTRIES).map(|entry| match place.as_os_str() == "." {
                true => PathBuf::from(entry.file_name()),
                false => entry.path(),
            });
            let mut below: Vec<PathBuf> = entries.filter(|path| path.join(LOG).is_file()).collect();
            below.sort();
            found.extend(below);
        }
        found
    }
}

/// The folder's name as it was typed.
fn name(folder: &Path) -> String {
    let text = folder.to_string_lossy();
    let text = text.strip_prefix("./").unwrap_or(&text).trim_end_matches('/');
    text.chars().take(200).map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Seconds since 1970.
pub fn unix_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Hands the events of this process's run to the page. The training thread never waits for it.
pub struct RunSink {
    shown: Option<Arc<Shown>>,
}

impl Sink for RunSink {
    fn name(&self) -> &'static str {
        "the page"
    }

    fn takes_every_event(&self) -> bool {
        true
    }

    fn take(&mut self, event: &Event) -> Result<(), SinkError> {
        if let Some(shown) = &self.shown {
            // Notices about the page itself would come back for ever.
            let is_own = matches!(&event.what, What::Notice(notice) if notice.dropped.is_some());
            if !is_own {
                locked(&shown.run).take_event(event);
            }
        }
        Ok(())
    }
}
