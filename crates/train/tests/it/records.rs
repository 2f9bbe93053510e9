//! A checkpoint is not ahead of the files of metrics: a run that is killed right after a save, and
//! resumed, has no gap in them.

use crate::fixture::{self, TempDir, TinyFeed};
use events::{Emitter, Event, Sink, SinkError, What};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The iteration of the first checkpoint.
const FIRST_SAVE: u64 = 3;

/// A slow sink that collects, and says what was written before the checkpoint was there.
struct Slow {
    checkpoint: PathBuf,
    collected: Vec<u64>,
    in_time: Arc<Mutex<Vec<u64>>>,
}

impl Slow {
    fn write(&mut self) {
        if !self.checkpoint.exists() {
            self.in_time.lock().unwrap().append(&mut self.collected);
        }
    }
}

impl Sink for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn keeps_record(&self) -> bool {
        true
    }

    fn settle(&mut self) -> Result<(), SinkError> {
        self.write();
        Ok(())
    }

    fn take(&mut self, event: &Event) -> Result<(), SinkError> {
        if let What::Iteration(iteration) = &event.what {
            std::thread::sleep(Duration::from_millis(20));
            self.collected.push(iteration.iter);
        }
        Ok(())
    }
}

#[test]
fn a_checkpoint_waits_for_the_records_before_it() {
    let folder = TempDir::new("records");
    let spec = &fixture::run_spec(&folder.0, &[]);
    let mut engine = fixture::engine(spec);
    let in_time = Arc::new(Mutex::new(Vec::new()));
    let checkpoint = folder.0.join("last.safetensors");
    let slow = Slow { checkpoint, collected: Vec::new(), in_time: Arc::clone(&in_time) };
    let mut events = Emitter::new(vec![Box::new(slow)]).unwrap();
    fixture::execute(spec, &mut engine, &mut TinyFeed, &mut events);
    drop(events);
    assert_eq!(*in_time.lock().unwrap(), Vec::from_iter(0..FIRST_SAVE));
}
