//! The loop: evaluation due? save due? then an iteration, then its line. nanoGPT's semantics.

use crate::engine::{Engine, Rows};
use crate::error::TrainError;
use crate::eval::{Evaluation, evaluate};
use crate::feed::Feed;
use crate::host::resident_bytes;
use crate::lr::{Schedule, learning_rate};
use crate::runlog::RunLog;
use crate::save::{self, Document, Progress, best_path, last_path};
use plan::StepInputs;
use serde_json::{Value, json};
use spec::RunSpec;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

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
}

/// What a run tells whoever shows it.
pub trait Observer {
    /// An iteration is done.
    fn iteration(&mut self, report: &IterationReport);
    /// An evaluation is done.
    fn evaluation(&mut self, iteration: u64, evaluation: &Evaluation, best: bool);
    /// The run was saved.
    fn saved(&mut self, iteration: u64, path: &Path);
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The next iteration that would run.
    pub iteration: u64,
    /// The last evaluation.
    pub evaluation: Option<Evaluation>,
    /// Whether it was asked to stop.
    pub interrupted: bool,
    /// Where the newest state is.
    pub checkpoint: PathBuf,
}

/// A run that is ready to go.
pub struct Run<'a> {
    /// What was asked for.
    pub spec: &'a RunSpec,
    /// The program on its backend, weights in place.
    pub engine: &'a mut Engine,
    /// Batches.
    pub feed: &'a mut dyn Feed,
    /// Where it stands.
    pub progress: Progress,
    /// All keys, for the log and the checkpoint.
    pub config: Value,
    /// Hash of the plan.
    pub plan_hash: String,
    /// The backend's name.
    pub device: String,
    /// Set from outside to end after the iteration that runs.
    pub stop: &'a AtomicBool,
}

impl Run<'_> {
    /// Runs to the end, or until it is asked to stop.
    pub fn go(mut self, observer: &mut dyn Observer) -> Result<Outcome, TrainError> {
        let out_dir = PathBuf::from(&self.spec.out_dir);
        let mut log = RunLog::open(&out_dir, &self.config)?;
        let mut rows = Rows::new(self.spec.sequences_per_iteration(), self.spec.block_size);
        let mut eval_rows = Rows::new(self.spec.eval_batch_size, self.spec.eval_block_size);
        let mut buffer = save::buffer(self.engine);
        let mut evaluation = None;
        let mut interrupted = false;
        let started_at = self.progress.iteration;
        if self.spec.eval_only {
            evaluation = Some(self.evaluate(&out_dir, &mut eval_rows, &mut log, observer)?);
        }
        // A run that was finished stays as it is.
        while !self.spec.eval_only && self.progress.iteration <= self.spec.max_iters {
            let iteration = self.progress.iteration;
            if iteration.is_multiple_of(self.spec.eval_interval) {
                if iteration > started_at {
                    self.save(&out_dir, &mut buffer, observer)?;
                }
                evaluation = Some(self.evaluate(&out_dir, &mut eval_rows, &mut log, observer)?);
            }
            self.iteration(&mut rows, &mut log, observer)?;
            self.progress.iteration += 1;
            interrupted = self.stop.load(Ordering::Relaxed);
            if interrupted || self.progress.iteration > self.spec.max_iters {
                self.save(&out_dir, &mut buffer, observer)?;
                break;
            }
        }
        let (iteration, checkpoint) = (self.progress.iteration, last_path(&out_dir));
        Ok(Outcome { iteration, evaluation, interrupted, checkpoint })
    }

    fn evaluate(
        &mut self,
        out_dir: &Path,
        rows: &mut Rows,
        log: &mut RunLog,
        observer: &mut dyn Observer,
    ) -> Result<Evaluation, TrainError> {
        let iteration = self.progress.iteration;
        let found = evaluate(self.engine, self.feed, self.spec.eval_iters, rows, iteration)?;
        let best = found.val.loss < self.progress.best_val_loss;
        if best {
            self.progress.best_val_loss = found.val.loss;
            // Iteration 0 has no checkpoint: nothing was learnt yet.
            if last_path(out_dir).exists() && iteration > 0 {
                checkpoint::link_best(&last_path(out_dir), &best_path(out_dir))?;
            }
        }
        log.write(json!({
            "kind": "eval",
            "iter": iteration,
            "train_loss": found.train.loss,
            "val_loss": found.val.loss,
            "train_standard_error": found.train.standard_error,
            "val_standard_error": found.val.standard_error,
            "tokens": found.tokens,
            "arena_bytes": self.engine.arena_bytes(),
            "note": self.note(),
        }))?;
        observer.evaluation(iteration, &found, best);
        Ok(found)
    }

    fn note(&self) -> Option<String> {
        let (eval, train) = (self.spec.eval_block_size, self.spec.block_size);
        (eval != train).then(|| {
            format!("eval_block_size={eval}: not comparable with losses at block_size={train}")
        })
    }

    fn iteration(
        &mut self,
        rows: &mut Rows,
        log: &mut RunLog,
        observer: &mut dyn Observer,
    ) -> Result<(), TrainError> {
        let start = Instant::now();
        let (spec, iteration) = (self.spec, self.progress.iteration);
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
        self.feed.train(iteration, rows)?;
        self.engine.train_rows(rows, &step)?;
        self.engine.update(&step)?;
        let state = self.engine.state()?;
        let losses = self.engine.row_losses(spec.sequences_per_iteration())?;
        let last = &losses[losses.len() - spec.batch_size as usize..];
        let sum: f64 = last.iter().map(|&loss| f64::from(loss)).sum();
        let seconds = start.elapsed().as_secs_f64();
        let report = IterationReport {
            iteration,
            loss: sum / (spec.batch_size * spec.block_size) as f64,
            lr,
            grad_norm: state.grad_norm,
            loss_scale: state.loss_scale,
            ms: seconds * 1e3,
            tokens_per_second: tokens as f64 / seconds,
        };
        if iteration.is_multiple_of(spec.log_interval) {
            log.write(json!({
                "kind": "iter",
                "iter": iteration,
                "loss": report.loss,
                "lr": lr,
                "grad_norm": report.grad_norm,
                "loss_scale": report.loss_scale,
                "tokens_per_second": report.tokens_per_second,
                "ms": report.ms,
                "arena_bytes": self.engine.arena_bytes(),
                "resident_bytes": resident_bytes(),
            }))?;
        }
        observer.iteration(&report);
        Ok(())
    }

    fn save(
        &mut self,
        out_dir: &Path,
        buffer: &mut [u8],
        observer: &mut dyn Observer,
    ) -> Result<(), TrainError> {
        let document = Document {
            progress: self.progress.clone(),
            config: self.config.clone(),
            feed: self.feed.state(),
            plan_hash: self.plan_hash.clone(),
            device: self.device.clone(),
        };
        let path = last_path(out_dir);
        save::save(self.engine, &path, &document, buffer)?;
        observer.saved(self.progress.iteration, &path);
        Ok(())
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
