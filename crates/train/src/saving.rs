//! The end of a save, beside training: a thread waits until the file is on the disk and puts it in
//! its place. At most one save is under way.

use crate::error::TrainError;
use checkpoint::{Written, link_best};
use events::Settling;
use plan::BackendError;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, SendError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

/// A checkpoint that was written and is not in its place yet.
pub struct Unsaved {
    /// The file.
    pub written: Written,
    /// The files of metrics, whose points before the checkpoint are written first: a run that is
    /// killed and resumed has no gap in them.
    pub records: Settling,
    /// Its place.
    pub last: PathBuf,
    /// The name that the file gets in addition, if it is the best.
    pub best: Option<PathBuf>,
    /// A file that this one makes obsolete.
    pub obsolete: Option<PathBuf>,
    /// The iteration that it contains.
    pub iteration: u64,
    /// When the save began.
    pub began: Instant,
}

/// A name under which a checkpoint was saved.
pub struct Saved {
    /// The file's name.
    pub path: PathBuf,
    /// The iteration that it contains.
    pub iteration: u64,
    /// How long it took in all.
    pub ms: f64,
}

/// What a save did.
#[derive(Default)]
pub struct Ended {
    /// The names under which the checkpoint is in place.
    pub saved: Vec<Saved>,
    /// Why it is not in place, or has no second name.
    pub error: Option<TrainError>,
}

/// The save that is under way, if there is one.
#[derive(Default)]
pub struct Saving {
    thread: Option<Thread>,
    /// A save that this thread ended, because no other could be started.
    ended_here: Option<Ended>,
    is_under_way: bool,
}

/// A thread that ends saves, started for the first one.
struct Thread {
    unsaved: Sender<Unsaved>,
    ended: Receiver<Ended>,
    handle: JoinHandle<()>,
}

impl Thread {
    fn start() -> std::io::Result<Thread> {
        let (unsaved, jobs) = mpsc::channel::<Unsaved>();
        let (results, ended) = mpsc::channel();
        let work = move || {
            for job in jobs {
                if results.send(job.finish()).is_err() {
                    return;
                }
            }
        };
        let handle = Builder::new().name("save".to_string()).spawn(work)?;
        Ok(Thread { unsaved, ended, handle })
    }
}

impl Saving {
    /// Starts the end of a save. The one before must have been taken with [`Saving::wait`].
    pub fn start(&mut self, unsaved: Unsaved) {
        self.is_under_way = true;
        if self.thread.is_none() {
            self.thread = Thread::start().ok();
        }
        let refused = match &self.thread {
            Some(thread) => thread.unsaved.send(unsaved).err().map(|SendError(unsaved)| unsaved),
            None => Some(unsaved),
        };
        self.ended_here = refused.map(Unsaved::finish);
    }

    /// A save that has ended and was not taken yet.
    pub fn ended(&mut self) -> Option<Ended> {
        let there = || self.thread.as_ref()?.ended.try_recv().ok();
        let ended = self.ended_here.take().or_else(there)?;
        self.is_under_way = false;
        Some(ended)
    }

    /// Waits for the save that is under way, if there is one.
    pub fn wait(&mut self) -> Ended {
        if !std::mem::take(&mut self.is_under_way) {
            return Ended::default();
        }
        let there = || self.thread.as_ref()?.ended.recv().ok();
        let ended = self.ended_here.take().or_else(there);
        // The thread ends early only by a panic.
        ended.unwrap_or_else(|| {
            let what = "the thread that saves has panicked".to_string();
            let error = Some(BackendError::Internal { what }.into());
            Ended { saved: Vec::new(), error }
        })
    }
}

impl Drop for Saving {
    /// A process that ends would end the thread half-way.
    fn drop(&mut self) {
        if let Some(Thread { unsaved, handle, .. }) = self.thread.take() {
            drop(unsaved);
            let _ = handle.join();
        }
    }
}

impl Unsaved {
    fn finish(self) -> Ended {
        let Unsaved { written, records, last, best, obsolete, iteration, began } = self;
        let saved = |path| Saved { path, iteration, ms: began.elapsed().as_secs_f64() * 1e3 };
        records.wait();
        if let Err(error) = written.finish() {
            return Ended { saved: Vec::new(), error: Some(error.into()) };
        }
        if let Some(obsolete) = obsolete {
            let _ = std::fs::remove_file(obsolete); // usually there is none
        }
        let mut ended = Ended { saved: vec![saved(last.clone())], error: None };
        match best.map(|best| link_best(&last, &best).map(|_| best)) {
            Some(Ok(best)) => ended.saved.push(saved(best)),
            Some(Err(error)) => ended.error = Some(error.into()),
            None => {}
        }
        ended
    }
}
