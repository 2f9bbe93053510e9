//! Events of a run, and a folder for its files.

use events::{End, Evaluated, Event, Iteration, Reason, SCHEMA, Sink, Start, Time, What};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed when the value is dropped.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new() -> TempDir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fitgpt-plots-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        TempDir(path)
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An event `seconds` after the run's start.
pub fn at(seconds: f64, what: What) -> Event {
    Event { what, time: Time { unix_time: 1_795_010_709.25 + seconds, seconds } }
}

pub fn start(iter: u64) -> Event {
    let start = Start {
        schema: SCHEMA.to_string(),
        iter,
        config: json!({"n_layer": 2, "learning_rate": 0.001, "note": "a|b"}),
        vocab_size: 65,
        steps_hash: "0".to_string(),
        version: "0.0.0".to_string(),
        device: "cpu".to_string(),
        plan: serde_json::Value::Null,
        arena_bytes: Some(1),
        tokens_per_iteration: Some(100),
        tokens_before: Some(100 * iter),
        seconds_before: Some(iter as f64),
        flops_per_token: Some(2.0),
        peak_flops: Some(1e5),
    };
    at(0.0, What::Start(Arc::new(start)))
}

pub fn iteration(iter: u64, loss: f64) -> Event {
    let iteration = Iteration {
        iter,
        loss,
        lr: 1e-3,
        grad_norm: 0.5,
        loss_scale: 1.0,
        tokens_per_second: 1e4,
        ms: 10.0,
        arena_bytes: 1,
        device_bytes_seen: None,
        resident_bytes: Some(4096),
        is_logged: true,
    };
    at(iter as f64 / 100.0, What::Iteration(iteration))
}

pub fn evaluation(iter: u64, loss: f64) -> Event {
    let evaluated = Evaluated {
        iter,
        train_loss: loss,
        val_loss: loss + 0.5,
        train_standard_error: 0.25,
        val_standard_error: 0.125,
        tokens: 64,
        best: Some(true),
        ms: Some(100.0),
        arena_bytes: 1,
        device_bytes_seen: None,
        note: None,
    };
    at(iter as f64 / 100.0, What::Evaluated(Arc::new(evaluated)))
}

pub fn end(iter: u64) -> Event {
    let end = End { iter, reason: Reason::Finished, message: None, checkpoint: None };
    at(iter as f64, What::End(Arc::new(end)))
}

/// Hands all events to a sink; none may fail.
pub fn give(sink: &mut dyn Sink, events: &[Event]) {
    for event in events {
        sink.take(event).unwrap();
    }
}
