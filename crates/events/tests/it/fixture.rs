//! Sinks that collect, stall, fail or panic, and one event of each kind.

use fitgpt_events::{
    End, Evaluated, Evaluating, Event, Iteration, Notice, Reason, SCHEMA, Sample, Save, Sink,
    SinkError, Start, What,
};
use serde_json::json;
use std::sync::{Arc, Mutex};

/// Collects events; stalls while the test holds `gate`.
#[derive(Clone, Default)]
pub struct Collector {
    pub events: Arc<Mutex<Vec<Event>>>,
    pub gate: Arc<Mutex<()>>,
    /// Whether it takes unlogged iterations too, as the console does.
    pub takes_every_event: bool,
}

impl Collector {
    pub fn whats(&self) -> Vec<What> {
        self.events.lock().unwrap().iter().map(|event| event.what.clone()).collect()
    }

    /// Numbers of the iterations.
    pub fn iterations(&self) -> Vec<u64> {
        let number = |what: What| match what {
            What::Iteration(iteration) => Some(iteration.iter),
            _ => None,
        };
        self.whats().into_iter().filter_map(number).collect()
    }

    pub fn notices(&self) -> Vec<Notice> {
        let notice = |what: What| match what {
            What::Notice(notice) => Some(Notice::clone(&notice)),
            _ => None,
        };
        self.whats().into_iter().filter_map(notice).collect()
    }
}

impl Sink for Collector {
    fn name(&self) -> &'static str {
        "the collector"
    }

    fn takes_every_event(&self) -> bool {
        self.takes_every_event
    }

    fn take(&mut self, event: &Event) -> Result<(), SinkError> {
        drop(self.gate.lock().unwrap());
        self.events.lock().unwrap().push(event.clone());
        Ok(())
    }
}

/// Fails on every event, or panics if `panics` is set.
pub struct Broken {
    pub panics: bool,
}

impl Sink for Broken {
    fn name(&self) -> &'static str {
        "the broken one"
    }

    fn take(&mut self, _: &Event) -> Result<(), SinkError> {
        if self.panics {
            panic!("planted");
        }
        Err("the disk is full".into())
    }
}

pub fn iteration(iter: u64) -> What {
    What::Iteration(Iteration {
        iter,
        loss: 2.5,
        lr: 1e-3,
        grad_norm: 0.5,
        loss_scale: 1.0,
        tokens_per_second: 1e4,
        ms: 12.5,
        arena_bytes: 4096,
        device_bytes_seen: Some(8192),
        resident_bytes: Some(16384),
        is_logged: true,
    })
}

pub fn start() -> What {
    What::Start(Arc::new(Start {
        schema: SCHEMA.to_string(),
        iter: 0,
        config: json!({ "n_layer": 1 }),
        vocab_size: 66,
        steps_hash: "3b944b498d5996d7".to_string(),
        version: "0.0.0".to_string(),
        device: "cpu".to_string(),
        plan: json!({ "slices": [2] }),
        arena_bytes: Some(4096),
        tokens_per_iteration: Some(16),
        tokens_before: Some(0),
        seconds_before: Some(0.0),
        flops_per_token: Some(1e6),
        peak_flops: Some(1e11),
    }))
}

pub fn end() -> What {
    What::End(Arc::new(End {
        iter: 7,
        reason: Reason::Diverged,
        message: Some("the loss is NaN or infinite".to_string()),
        checkpoint: Some("out/last.safetensors".to_string()),
    }))
}

pub fn save(iter: u64) -> What {
    What::Save(Arc::new(Save { iter, path: "out/last.safetensors".to_string(), ms: 3.5 }))
}

/// One event of each kind, every field set.
pub fn one_of_each() -> [What; 8] {
    [
        start(),
        iteration(0),
        What::Evaluating(Evaluating { iter: 0, share: 0.5 }),
        What::Evaluated(Arc::new(Evaluated {
            iter: 0,
            train_loss: 2.5,
            val_loss: 2.75,
            train_standard_error: 0.25,
            val_standard_error: 0.125,
            tokens: 64,
            best: Some(true),
            ms: Some(100.0),
            arena_bytes: 4096,
            device_bytes_seen: Some(8192),
            note: Some("not comparable".to_string()),
        })),
        save(1),
        What::Notice(Arc::new(Notice { text: "missing".to_string(), dropped: Some(3) })),
        What::Sample(Arc::new(Sample { iter: 7, text: "\nonce\n".to_string() })),
        end(),
    ]
}
