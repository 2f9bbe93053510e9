//! The loop: evaluation due? save due? then an iteration, then its line. nanoGPT's semantics.

use crate::engine::{Engine, Rows};
use crate::error::TrainError;
use crate::eval::{Evaluation, evaluate};
use crate::feed::Feed;
use crate::host::resident_bytes;
use crate::lr::{Schedule, learning_rate};
use crate::runlog::RunLog;
use crate::save::{self, Document, best_path, last_path};
use data::Split;
use plan::StepInputs;
use search::HostBytes;
use serde_json::{Value, json};
use spec::RunSpec;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Seconds that whoever asked to stop waits for the iteration; if it would take longer, it is given
/// up.
const PATIENCE: f64 = 2.0;

/// One iteration as it is printed and logged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IterationReport {
    /// Its number.
    pub iteration: u64,
    /// Mean loss of the last micro-batch, as nanoGPT prints it.
    pub loss: f64,
    /// Learning rate.
    pub lr: f64,
    /// Norm of the gradients before clipping.
    pub grad_norm: f32,
    /// Loss scale.
    pub loss_scale: f32,
    /// Milliseconds.
    pub ms: f64,
    /// Tokens a second.
    pub tokens_per_second: f64,
    /// Memory of the process where it computes, if the iteration is logged: what it holds on the
    /// device by the driver's count, or its resident memory on the host.
    pub memory_bytes: Option<u64>,
}

/// What a run tells whoever shows it.
pub trait Observer {
    /// An iteration is done.
    fn iteration(&mut self, report: &IterationReport);
    /// An evaluation is done.
    fn evaluation(&mut self, iteration: u64, evaluation: &Evaluation, best: bool);
    /// An evaluation goes on; so much of it is done, 0 to 1.
    fn evaluating(&mut self, _iteration: u64, _share: f64) {}
    /// Something went wrong that does not end the run.
    fn trouble(&mut self, error: &TrainError);
    /// The run was saved.
    fn saved(&mut self, iteration: u64, path: &Path);
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The iteration it began with.
    pub started_at: u64,
    /// The next iteration that would run.
    pub iteration: u64,
    /// The last evaluation.
    pub evaluation: Option<Evaluation>,
    /// Whether it was asked to stop.
    pub interrupted: bool,
    /// Where the newest state is, if anything was learnt.
    pub checkpoint: Option<PathBuf>,
}

/// A run that is ready to go.
pub struct Run<'a> {
    /// What was asked for.
    pub spec: &'a RunSpec,
    /// The program on its backend, weights in place.
    pub engine: &'a mut Engine,
    /// Batches.
    pub feed: &'a mut dyn Feed,
    /// The run's log.
    pub log: &'a mut RunLog,
    /// What its checkpoints say; the progress in it is where the run stands.
    pub document: Document,
    /// Bytes that the process holds on its device, where that is another memory than the host's.
    pub device_bytes: &'a dyn Fn() -> Option<u64>,
    /// Whether to evaluate once more after the last iteration where none was due there.
    pub evaluate_at_end: bool,
    /// Set from outside to end after the iteration that runs.
    pub stop: &'a AtomicBool,
}

/// The host's room, taken before the first step.
pub struct HostBuffers {
    rows: Rows,
    eval_rows: Rows,
    save: Vec<u8>,
}

impl HostBuffers {
    /// The room that a run needs, or the word that there is no memory for it.
    pub fn new(spec: &RunSpec, host: &HostBytes) -> Result<HostBuffers, TrainError> {
        Ok(HostBuffers {
            rows: Rows::of_bytes(host.train_batch, spec.block_size)?,
            eval_rows: Rows::of_bytes(host.eval_batch, spec.eval_block_size)?,
            save: save::buffer(host)?,
        })
    }
}

impl HostBuffers {
    /// Room for the largest tensor of a checkpoint.
    pub fn tensor(&mut self) -> &mut [u8] {
        &mut self.save
    }
}

impl Run<'_> {
    /// Runs to the end, or until it is asked to stop.
    pub fn go(
        mut self,
        host: &mut HostBuffers,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, TrainError> {
        let started_at = self.document.progress.iteration;
        if let Some(error) = self.log.start(&self.document) {
            observer.trouble(&error);
        }
        let (evaluation, interrupted) = if self.spec.eval_only {
            let evaluation = self.evaluate(host, observer)?;
            (evaluation, evaluation.is_none())
        } else {
            self.train(host, observer)?
        };
        let checkpoint = Some(last_path(&self.out_dir())).filter(|path| path.exists());
        let iteration = self.document.progress.iteration;
        Ok(Outcome { started_at, iteration, evaluation, interrupted, checkpoint })
    }

    /// The loop. A run that was finished stays as it is.
    fn train(
        &mut self,
        host: &mut HostBuffers,
        observer: &mut dyn Observer,
    ) -> Result<(Option<Evaluation>, bool), TrainError> {
        let (started_at, interval) = (self.document.progress.iteration, self.spec.eval_interval);
        let (mut last, mut saved_at) = (None, started_at);
        while self.document.progress.iteration <= self.spec.max_iters {
            let iteration = self.document.progress.iteration;
            if iteration.is_multiple_of(interval) {
                if iteration > started_at {
                    self.save(host, observer)?;
                    saved_at = iteration;
                }
                match self.evaluate(host, observer)? {
                    Some(evaluation) => last = Some(evaluation),
                    None => return Ok((last, true)),
                }
            }
            let done = self.iteration(host, observer)?;
            self.document.progress.iteration += u64::from(done);
            if self.stop.load(Ordering::Relaxed) {
                if self.document.progress.iteration > saved_at {
                    self.save(host, observer)?;
                }
                return Ok((last, true));
            }
            if self.document.progress.iteration > self.spec.max_iters {
                return self.end(host, observer, last);
            }
        }
        Ok((last, false))
    }

    /// After the last iteration: saved, and evaluated where that is wanted and none was due there.
    fn end(
        &mut self,
        host: &mut HostBuffers,
        observer: &mut dyn Observer,
        last: Option<Evaluation>,
    ) -> Result<(Option<Evaluation>, bool), TrainError> {
        self.save(host, observer)?;
        let was_due = self.spec.max_iters.is_multiple_of(self.spec.eval_interval);
        if !self.evaluate_at_end || was_due {
            return Ok((last, false));
        }
        let found = self.evaluate(host, observer)?;
        Ok((found.or(last), found.is_none()))
    }

    fn out_dir(&self) -> PathBuf {
        PathBuf::from(&self.spec.out_dir)
    }

    /// None when it was asked to stop half-way: what was learnt so far is saved by then.
    fn evaluate(
        &mut self,
        host: &mut HostBuffers,
        observer: &mut dyn Observer,
    ) -> Result<Option<Evaluation>, TrainError> {
        let (iteration, batches) = (self.document.progress.iteration, self.spec.eval_iters);
        // Evaluation may draw from the stream of training; a run that goes on evaluates again.
        let stream = self.feed.state();
        let rows = &mut host.eval_rows;
        let found = evaluate(self.engine, self.feed, batches, rows, iteration, &mut |share| {
            observer.evaluating(iteration, share);
            !self.stop.load(Ordering::Relaxed)
        })?;
        let Some(found) = found else {
            return Ok(None);
        };
        if !(found.train.loss.is_finite() && found.val.loss.is_finite()) {
            return Err(self.diverged());
        }
        let (loss, least) = (found.val.loss, self.document.progress.best_val_loss);
        // The same again: the run ended after this state was saved and before it was `best`.
        let is_unlinked = || iteration > 0 && !best_path(&self.out_dir()).exists();
        let best = loss < least || (loss == least && is_unlinked());
        if best {
            self.document.progress.best_val_loss = found.val.loss;
            // Iteration 0 has no checkpoint: nothing was learnt yet.
            if iteration > 0 && !self.spec.eval_only {
                self.keep_best(host, stream)?;
            }
        }
        let failed = self.log.write(json!({
            "kind": "eval",
            "iter": iteration,
            "train_loss": found.train.loss,
            "val_loss": found.val.loss,
            "train_standard_error": found.train.standard_error,
            "val_standard_error": found.val.standard_error,
            "tokens": found.tokens,
            "arena_bytes": self.engine.arena_bytes(),
            "device_bytes_seen": (self.device_bytes)(),
            "note": self.note(),
        }));
        if let Some(error) = failed {
            observer.trouble(&error);
        }
        observer.evaluation(iteration, &found, best);
        Ok(Some(found))
    }

    fn note(&self) -> Option<String> {
        let (eval, train) = (self.spec.eval_block_size, self.spec.block_size);
        (eval != train).then(|| {
            format!("eval_block_size={eval}: not comparable with losses at block_size={train}")
        })
    }

    /// One iteration. False when it was asked to stop and the rest would have taken long: then the
    /// run stands where it stood before.
    fn iteration(
        &mut self,
        host: &mut HostBuffers,
        observer: &mut dyn Observer,
    ) -> Result<bool, TrainError> {
        let start = Instant::now();
        let (spec, iteration) = (self.spec, self.document.progress.iteration);
        let lr = learning_rate(&schedule(spec), iteration);
        let tokens = spec.tokens_per_iteration();
        let step = StepInputs {
            lr,
            grad_clip: spec.grad_clip.unwrap_or(0.0),
            iteration,
            seed: spec.seed,
            inverse_tokens: 1.0 / tokens as f32,
            ..StepInputs::default()
        };
        let has_slices = self.engine.program().train_slices.len() > 1;
        let before = has_slices.then(|| self.feed.state());
        self.feed.train(iteration, &mut host.rows)?;
        let mut go_on = |share: f64| {
            let elapsed = start.elapsed().as_secs_f64();
            let rest = if share > 0.0 { elapsed * (1.0 - share) / share } else { 0.0 };
            rest < PATIENCE || !self.stop.load(Ordering::Relaxed)
        };
        if !self.engine.train_rows(&host.rows, &step, &mut go_on)? {
            self.feed.restore(&before.unwrap_or_default())?;
            return Ok(false);
        }
        self.engine.update(&step)?;
        let state = self.engine.state()?;
        let losses = self.engine.row_losses(spec.sequences_per_iteration())?;
        // Without a loss scale a norm that is no number has spoilt the weights already.
        let spoilt = state.loss_scale == 1.0 && !state.grad_norm.is_finite();
        if spoilt || !losses.iter().all(|loss| loss.is_finite()) {
            return Err(TrainError::Diverged { iteration, lr });
        }
        let last = &losses[losses.len() - spec.batch_size as usize..];
        let sum: f64 = last.iter().map(|&loss| f64::from(loss)).sum();
        let seconds = start.elapsed().as_secs_f64();
        let is_logged = iteration.is_multiple_of(spec.log_interval);
        let device_bytes = is_logged.then(self.device_bytes).flatten();
        let report = IterationReport {
            iteration,
            loss: sum / (spec.batch_size * spec.block_size) as f64,
            lr,
            grad_norm: state.grad_norm,
            loss_scale: state.loss_scale,
            ms: seconds * 1e3,
            tokens_per_second: tokens as f64 / seconds,
            memory_bytes: is_logged.then(|| device_bytes.or_else(resident_bytes)).flatten(),
        };
        if let Some(error) = self.log_iteration(&report, device_bytes) {
            observer.trouble(&error);
        }
        observer.iteration(&report);
        Ok(true)
    }

    fn log_iteration(
        &mut self,
        report: &IterationReport,
        device_bytes: Option<u64>,
    ) -> Option<TrainError> {
        if !report.iteration.is_multiple_of(self.spec.log_interval) {
            return None;
        }
        self.log.write(json!({
            "kind": "iter",
            "iter": report.iteration,
            "loss": report.loss,
            "lr": report.lr,
            "grad_norm": report.grad_norm,
            "loss_scale": report.loss_scale,
            "tokens_per_second": report.tokens_per_second,
            "ms": report.ms,
            "arena_bytes": self.engine.arena_bytes(),
            "device_bytes_seen": device_bytes,
            "resident_bytes": resident_bytes(),
        }))
    }

    /// Saves, unless the weights are spoilt: then `last` stays what it was.
    fn save(
        &mut self,
        host: &mut HostBuffers,
        observer: &mut dyn Observer,
    ) -> Result<(), TrainError> {
        self.document.feed = self.feed.state();
        if !self.gives_a_loss(host)? {
            return Err(self.diverged());
        }
        let path = last_path(&self.out_dir());
        save::save(self.engine, &path, &self.document, &mut host.save)?;
        observer.saved(self.document.progress.iteration, &path);
        Ok(())
    }

    /// Whether the weights still give a number, on one slice of an evaluation: an update may have
    /// spoilt them after its own loss was found good, and the next loss would tell too late.
    fn gives_a_loss(&mut self, host: &mut HostBuffers) -> Result<bool, TrainError> {
        let rows = &mut host.eval_rows;
        self.feed.eval(Split::Val, self.document.progress.iteration, 0, rows)?;
        self.feed.restore(&self.document.feed)?;
        self.engine.eval_rows(rows, &mut |share| share == 0.0)?;
        let first = self.engine.program().eval_slices.first().copied().unwrap_or(0);
        Ok(self.engine.row_losses(first)?.iter().all(|loss| loss.is_finite()))
    }

    /// Makes this state `best`. It is saved once more first: what is linked must say its own loss,
    /// which is what later evaluations have to beat.
    fn keep_best(&mut self, host: &mut HostBuffers, stream: Value) -> Result<(), TrainError> {
        let (last, best) = (last_path(&self.out_dir()), best_path(&self.out_dir()));
        self.document.feed = stream;
        save::save(self.engine, &last, &self.document, &mut host.save)?;
        checkpoint::link_best(&last, &best)?;
        Ok(())
    }

    /// The loss is no number; the rate is that of the update before.
    fn diverged(&self) -> TrainError {
        let iteration = self.document.progress.iteration;
        let lr = learning_rate(&schedule(self.spec), iteration.saturating_sub(1));
        TrainError::Diverged { iteration, lr }
    }
}

fn schedule(spec: &RunSpec) -> Schedule {
    Schedule {
        learning_rate: spec.learning_rate,
        min_lr: spec.min_lr,
        warmup_iters: spec.warmup_iters,
        lr_decay_iters: spec.lr_decay_iters,
        decay_lr: spec.decay_lr,
    }
}
