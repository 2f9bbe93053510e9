//! The training loop, with nanoGPT's semantics: save and evaluate when due, then run an iteration.
//! It emits an event for everything that happens. It writes checkpoints and nothing else.

use crate::engine::{Engine, Report, Rows};
use crate::error::TrainError;
use crate::eval::{Evaluation, evaluate};
use crate::feed::Feed;
use crate::host::resident_bytes;
use crate::lr::{Schedule, learning_rate};
use crate::plan_json::CutJson;
use crate::save::{self, Document, best_ckpt_path, best_path, newest_path};
use crate::save_ckpt;
use crate::saving::{Ended, Saved, Saving, Unsaved};
use crate::shards;
use checkpoint::link_best;
use data::Split;
use events::{Emitter, End, Evaluated, Evaluating, Iteration, Reason, Sample, Save, Start, What};
use plan::{StepInputs, StepState};
use search::HostBytes;
use spec::{CheckpointFormat, RunSpec, Sampler, Sync};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// After a request to stop, an iteration that would take more seconds than this is abandoned.
const PATIENCE: f64 = 2.0;

/// The loss of an iteration that takes fewer seconds than this is read while the next one runs.
/// Longer iterations do not need it, and report at once.
const SHORT_ITERATION: f64 = 0.25;

/// If the last evaluation took fewer seconds than this, evaluate first and save afterwards: a state
/// with the best loss is then written once. If evaluation is longer, save first, because a crash
/// during it would lose all iterations since the last save.
const SHORT_EVALUATION: f64 = 5.0;

/// A save may be as slow as a disk with so many bytes per second before other ranks give up waiting
/// for it.
const SLOW_DISK: u64 = 2_000_000;

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The first iteration.
    pub started_at: u64,
    /// The iteration that a resumed run would start with.
    pub iteration: u64,
    /// The last evaluation.
    pub evaluation: Option<Evaluation>,
    /// Whether it stopped early because it was asked to.
    pub interrupted: bool,
    /// The newest checkpoint, if there is one.
    pub checkpoint: Option<PathBuf>,
}

/// A run that is ready to start.
pub struct Run<'a> {
    /// The settings.
    pub spec: &'a RunSpec,
    /// The program on its backend, with its weights loaded.
    pub engine: &'a mut Engine,
    /// The source of batches.
    pub feed: &'a mut dyn Feed,
    /// Receives the run's events.
    pub events: &'a mut Emitter,
    /// The document of its checkpoints, which includes the run's progress.
    pub document: Document,
    /// Returns the bytes that the process holds on its device; none if the device is the host.
    pub device_bytes: &'a dyn Fn() -> Option<u64>,
    /// The device's peak in operations per second, if it is known.
    pub peak_flops: Option<f64>,
    /// Whether to evaluate after the last iteration even if no evaluation is due.
    pub evaluate_at_end: bool,
    /// Set from outside to stop the run after the current iteration.
    pub stop: &'a AtomicBool,
    /// Is told what other ranks must know of this one; `&()` in a run of one rank.
    pub others: &'a dyn Others,
    /// Set from outside to save after the current iteration.
    pub save_now: &'a AtomicBool,
    /// Generates the text of an evaluation; none if `eval_sample` is off.
    pub sampler: Option<&'a TextSampler<'a>>,
}

/// What other ranks must know of this one. They see its steps by themselves
/// ([`Engine::count_steps`]).
pub trait Others {
    /// An iteration begins.
    fn progress(&self, iteration: u64);

    /// How long the first rank may take now for what the others do not do.
    fn allow(&self, time: Duration);
}

/// There are none.
impl Others for () {
    fn progress(&self, _: u64) {}
    fn allow(&self, _: Duration) {}
}

/// Generates a text; none if it was asked to stop half-way.
pub type TextSampler<'a> = dyn Fn(&mut Engine) -> Result<Option<String>, TrainError> + 'a;

/// The host's buffers, allocated before the first step.
pub struct HostBuffers {
    rows: Rows,
    /// Whether `rows` already has the batch of the next iteration.
    is_drawn: bool,
    eval_rows: Rows,
    /// Of the latest iteration or evaluation batch, and of the one before it.
    reports: [Report; 2],
    /// The iteration whose report has not been read.
    launched: Option<Launched>,
    /// When the last report was read, and the seconds of its iteration.
    reported: Option<(Instant, f64)>,
    /// Seconds of the last evaluation.
    eval_seconds: f64,
    /// The iteration of the newest checkpoint.
    saved_at: u64,
    /// Seconds of this process that the document's progress has.
    counted_seconds: f64,
    /// Whether all ranks know that one of them was asked to stop.
    stop_agreed: bool,
    save: Vec<u8>,
    saving: Saving,
}

/// An iteration that was given to the device.
struct Launched {
    iteration: u64,
    lr: f64,
    start: Instant,
}

impl HostBuffers {
    /// Allocates the buffers that a run needs.
    pub fn new(spec: &RunSpec, host: &HostBytes) -> Result<HostBuffers, TrainError> {
        Ok(HostBuffers {
            rows: Rows::of_bytes(host.train_batch, spec.block_size)?,
            is_drawn: false,
            eval_rows: Rows::of_bytes(host.eval_batch, spec.eval_block_size)?,
            reports: Default::default(),
            launched: None,
            reported: None,
            eval_seconds: f64::INFINITY,
            saved_at: 0,
            counted_seconds: 0.0,
            stop_agreed: false,
            save: save::buffer(host)?,
            saving: Saving::default(),
        })
    }

    /// A buffer for the largest tensor of a checkpoint.
    pub fn tensor(&mut self) -> &mut [u8] {
        &mut self.save
    }
}

impl Run<'_> {
    /// Runs the loop to the end, or until `stop` is set.
    pub fn execute(mut self, host: &mut HostBuffers) -> Result<Outcome, TrainError> {
        let started_at = self.document.progress.iteration;
        let start = self.start();
        self.events.emit(What::Start(Arc::new(start)));
        // After a panic, log the end of the run before the panic continues.
        let ended = catch_unwind(AssertUnwindSafe(|| match self.spec.eval_only {
            true => self.evaluate(host, false).map(|found| (found, found.is_none())),
            false => self.train(host),
        }));
        self.allow_save();
        let saved = self.end_save(host);
        self.others.allow(Duration::ZERO);
        let (ended, save_error) = match (ended, saved) {
            (Ok(Ok(_)), Err(error)) => (Ok(Err(error)), None),
            (ended, saved) => (ended, saved.err()),
        };
        let mut end = self.ended(ended.as_ref().ok());
        if let Some(error) = save_error {
            let before = end.message.unwrap_or_default();
            end.message = Some(format!("{before}; and the last save failed: {error}"));
        }
        self.events.emit(What::End(Arc::new(end)));
        let (evaluation, interrupted) = ended.unwrap_or_else(|panic| resume_unwind(panic))?;
        let (checkpoint, iteration) = (self.checkpoint(), self.document.progress.iteration);
        Ok(Outcome { started_at, iteration, evaluation, interrupted, checkpoint })
    }

    fn start(&self) -> Start {
        let Document { progress, config, dims, steps_hash, version, device, .. } = &self.document;
        let plan = serde_json::to_value(self.document.plan.as_ref().map(CutJson::from));
        let network = self.spec.architecture();
        let flops = network.training_flops_per_token(dims, self.spec.block_size);
        Start {
            schema: events::SCHEMA.to_string(),
            iter: progress.iteration,
            config: config.clone(),
            vocab_size: dims.vocab_size,
            steps_hash: steps_hash.clone(),
            version: version.clone(),
            device: device.clone(),
            plan: plan.unwrap_or_default(),
            arena_bytes: Some(self.engine.arena_bytes()),
            tokens_per_iteration: Some(self.spec.tokens_per_iteration()),
            tokens_before: progress.tokens,
            seconds_before: progress.seconds,
            flops_per_token: flops.ok(),
            peak_flops: self.peak_flops,
        }
    }

    /// The event of the end; `ended` is none after a panic.
    fn ended(&self, ended: Option<&Result<(Option<Evaluation>, bool), TrainError>>) -> End {
        let (reason, message) = match ended {
            Some(Ok((_, false))) => (Reason::Finished, None),
            Some(Ok((_, true))) => (Reason::Interrupted, None),
            Some(Err(error)) => (reason(error), Some(error.to_string())),
            None => (Reason::Error, Some("a bug in fitgpt ended the run".to_string())),
        };
        End {
            iter: self.document.progress.iteration,
            reason,
            message,
            checkpoint: self.checkpoint().map(|path| path.display().to_string()),
        }
    }

    /// The newest checkpoint, if there is one.
    fn checkpoint(&self) -> Option<PathBuf> {
        Some(newest_path(self.spec)).filter(|path| path.exists())
    }

    /// The loop. Does nothing if the run is already finished. The flag is true if it was stopped.
    fn train(&mut self, host: &mut HostBuffers) -> Result<(Option<Evaluation>, bool), TrainError> {
        let (started_at, interval) = (self.document.progress.iteration, self.spec.eval_interval);
        let mut last = None;
        host.saved_at = started_at;
        while self.document.progress.iteration <= self.spec.max_iters {
            let iteration = self.document.progress.iteration;
            if iteration > started_at && self.average(host, iteration)? {
                self.save_stopped(host)?;
                return Ok((last, true));
            }
            if iteration.is_multiple_of(interval) {
                self.settle(host)?;
                let is_new = iteration > started_at;
                // Ranks measure different times, but must do the same.
                let is_short = host.eval_seconds < SHORT_EVALUATION && !self.has_others();
                let is_unsaved = is_new && is_short;
                if is_new && !is_unsaved && self.keeps_newest() {
                    self.save(host)?;
                }
                match self.evaluate(host, is_unsaved)? {
                    Some(evaluation) => last = Some(evaluation),
                    None => return Ok((last, true)),
                }
            }
            if self.iteration(host)? {
                self.document.progress.advance(self.spec.tokens_per_iteration());
            }
            if self.is_stopped(host) {
                self.settle(host)?;
                self.take_back(host);
                self.save_stopped(host)?;
                return Ok((last, true));
            }
            if self.document.progress.iteration > self.spec.max_iters {
                return self.end(host, last);
            }
            // Other ranks would not know of it.
            let can_save = !self.has_others() && !self.engine.has_outer();
            if can_save && self.save_now.swap(false, Ordering::Relaxed) {
                self.settle(host)?;
                self.take_back(host);
                self.save_stopped(host)?;
            }
        }
        Ok((last, false))
    }

    /// If it is due, averages with ranks that train alone. Only then they have the same weights, so
    /// only then they save and stop. Returns whether one was asked to stop.
    fn average(&mut self, host: &mut HostBuffers, iteration: u64) -> Result<bool, TrainError> {
        if !self.engine.average_if_due(iteration)? {
            return Ok(false);
        }
        let asked = self.stop.load(Ordering::Relaxed);
        if !self.has_others() {
            return Ok(asked);
        }
        self.settle(host)?;
        self.engine.ask_to_stop(asked)?;
        self.engine.begin_report_of_all(&mut host.reports[0])?;
        self.engine.finish_report(&mut host.reports[0])?;
        Ok(host.reports[0].is_stopped())
    }

    /// After the last iteration: saves, then evaluates if `evaluate_at_end` is set and that
    /// iteration had no evaluation.
    fn end(
        &mut self,
        host: &mut HostBuffers,
        last: Option<Evaluation>,
    ) -> Result<(Option<Evaluation>, bool), TrainError> {
        self.settle(host)?;
        self.engine.average_now()?;
        let was_due = self.spec.max_iters.is_multiple_of(self.spec.eval_interval);
        // nanoGPT's file stays as the last evaluation left it: resumed in either program, the run
        // does that iteration again.
        if self.is_native() || (!was_due && self.keeps_newest()) {
            self.save(host)?;
        }
        if !self.evaluate_at_end || was_due {
            return Ok((last, false));
        }
        let found = self.evaluate(host, false)?;
        Ok((found.or(last), found.is_none()))
    }

    /// Whether there are other ranks, with which this one must stay in step.
    fn has_others(&self) -> bool {
        self.spec.rank.has_others()
    }

    /// Whether to stop: at once if this is the only rank, else when the losses of an iteration have
    /// brought the request to all ranks.
    fn is_stopped(&self, host: &HostBuffers) -> bool {
        match (self.engine.has_outer(), self.has_others()) {
            (true, _) => false, // see `average`
            (false, true) => host.stop_agreed,
            (false, false) => self.stop.load(Ordering::Relaxed),
        }
    }

    fn is_native(&self) -> bool {
        self.spec.checkpoint_format == CheckpointFormat::Native
    }

    /// Whether a state is saved that is not the best. As in nanoGPT, its only file may be kept for
    /// the best.
    fn keeps_newest(&self) -> bool {
        self.is_native() || self.spec.always_save_checkpoint
    }

    fn out_dir(&self) -> PathBuf {
        PathBuf::from(&self.spec.out_dir)
    }

    /// Evaluates, then saves the state if it is the best, or if it is not saved yet. Returns none
    /// if the run was asked to stop half-way.
    fn evaluate(
        &mut self,
        host: &mut HostBuffers,
        is_unsaved: bool,
    ) -> Result<Option<Evaluation>, TrainError> {
        let (iteration, batches) = (self.document.progress.iteration, self.spec.eval_iters);
        // Evaluation may draw from training's stream, and a resumed run evaluates again: its
        // checkpoint needs the stream's position from before the evaluation.
        let stream = self.feed.state();
        let (buffers, began) = ((&mut host.eval_rows, &mut host.reports), Instant::now());
        let found = evaluate(self.engine, self.feed, batches, buffers, iteration, &mut |share| {
            self.events.emit(What::Evaluating(Evaluating { iter: iteration, share }));
            !self.stop.load(Ordering::Relaxed)
        })?;
        let Some(found) = found else {
            if !self.spec.eval_only {
                self.feed.restore(&stream)?;
                self.save_stopped(host)?;
            }
            return Ok(None);
        };
        host.eval_seconds = began.elapsed().as_secs_f64();
        if !(found.train.loss.is_finite() && found.val.loss.is_finite()) {
            return Err(self.diverged());
        }
        let (loss, least) = (found.val.loss, self.document.progress.best_val_loss);
        // An equal loss without `best`: the process ended after the save and before the link.
        // Ranks may see the folder at different times, so they look at the loss alone.
        let is_unlinked = || {
            let is_alone = iteration > 0 && self.is_native() && !self.has_others();
            is_alone && !best_path(&self.out_dir()).exists()
        };
        let best = loss < least || (loss == least && is_unlinked());
        // Emitted before the save, which may fail.
        let event = self.evaluated(&found, best, host.eval_seconds * 1e3);
        self.events.emit(What::Evaluated(Arc::new(event)));
        if best {
            self.document.progress.best_val_loss = found.val.loss;
        }
        // Iteration 0 has no checkpoint: the weights are still the initial ones.
        let is_kept = best && iteration > 0 && !self.spec.eval_only;
        if is_kept || (is_unsaved && self.keeps_newest()) {
            self.document.feed = stream;
            // Also if it was saved before: the file must contain its own loss, which later
            // evaluations have to beat.
            self.write(host, is_kept)?;
        }
        self.sample(iteration)?;
        Ok(Some(found))
    }

    /// Generates a text with the weights of this evaluation. It has its own random stream and
    /// changes no bit of the run.
    fn sample(&mut self, iter: u64) -> Result<(), TrainError> {
        let Some(sampler) = self.sampler else { return Ok(()) };
        if let Some(text) = sampler(self.engine)? {
            self.events.emit(What::Sample(Arc::new(Sample { iter, text })));
        }
        Ok(())
    }

    fn evaluated(&self, found: &Evaluation, best: bool, ms: f64) -> Evaluated {
        Evaluated {
            iter: self.document.progress.iteration,
            train_loss: found.train.loss,
            val_loss: found.val.loss,
            train_standard_error: found.train.standard_error,
            val_standard_error: found.val.standard_error,
            tokens: found.tokens,
            best: Some(best),
            ms: Some(ms),
            arena_bytes: self.engine.arena_bytes(),
            device_bytes_seen: (self.device_bytes)(),
            note: self.note(),
        }
    }

    fn note(&self) -> Option<String> {
        let (eval, train) = (self.spec.eval_block_size, self.spec.block_size);
        (eval != train).then(|| {
            format!("eval_block_size={eval}: not comparable with losses at block_size={train}")
        })
    }

    /// Runs one iteration. Returns false if it was abandoned after a request to stop; the run's
    /// state is then unchanged.
    fn iteration(&mut self, host: &mut HostBuffers) -> Result<bool, TrainError> {
        let (start, iteration) = (Instant::now(), self.document.progress.iteration);
        let (step, has_others) = (step_inputs(self.spec, iteration), self.has_others());
        self.others.progress(iteration);
        self.engine.step_to(iteration);
        if !host.is_drawn {
            self.feed.mark();
            self.feed.train(iteration, &mut host.rows)?;
        }
        host.is_drawn = false;
        let has_outer = self.engine.has_outer();
        let mut keep_going = |share: f64| {
            let elapsed = start.elapsed().as_secs_f64();
            let rest = if share > 0.0 { elapsed * (1.0 - share) / share } else { 0.0 };
            // Other ranks wait for this one's gradients, or average with it later.
            rest < PATIENCE || has_others || has_outer || !self.stop.load(Ordering::Relaxed)
        };
        if !self.engine.train_rows(&host.rows, &step, &mut keep_going)? {
            self.feed.rewind();
            return Ok(false);
        }
        if has_others {
            self.engine.ask_to_stop(self.stop.load(Ordering::Relaxed))?;
        }
        self.engine.update(&step)?;
        host.reports.swap(0, 1);
        self.engine.begin_report(&mut host.reports[0], self.spec.sequences_per_iteration())?;
        // A GPU is still busy with the update, so this costs no time.
        self.draw_ahead(host);
        let before = host.launched.replace(Launched { iteration, lr: step.lr, start });
        if let Some(before) = before {
            self.report(host, before, 1)?;
        }
        let is_short = host.reported.is_some_and(|(_, seconds)| seconds < SHORT_ITERATION);
        if host.reports[0].is_here() || !is_short || has_others {
            self.settle(host)?;
        }
        Ok(true)
    }

    /// Reports the latest iteration, if that has not been done.
    fn settle(&mut self, host: &mut HostBuffers) -> Result<(), TrainError> {
        match host.launched.take() {
            Some(launched) => self.report(host, launched, 0),
            None => Ok(()),
        }
    }

    /// Waits for the losses of an iteration and emits its event, after that of a save that has
    /// ended.
    fn report(
        &mut self,
        host: &mut HostBuffers,
        launched: Launched,
        report: usize,
    ) -> Result<(), TrainError> {
        let Launched { iteration, lr, start } = launched;
        if let Some(ended) = host.saving.ended() {
            self.tell_saved(ended)?;
        }
        let state = self.engine.finish_report(&mut host.reports[report])?;
        host.stop_agreed = host.reports[report].is_stopped();
        let is_logged = iteration.is_multiple_of(self.spec.log_interval);
        let Some(loss) = self.last_loss(&host.reports[report], &state) else {
            // The iteration after it may have begun.
            self.document.progress.iteration = iteration;
            return Err(TrainError::Diverged { iteration, lr });
        };
        // Iterations overlap on the host; each takes the time since the one before ended.
        let start = host.reported.map_or(start, |(at, _)| at.max(start));
        let seconds = start.elapsed().as_secs_f64();
        host.reported = Some((Instant::now(), seconds));
        self.events.emit(What::Iteration(Iteration {
            iter: iteration,
            loss,
            lr,
            grad_norm: f64::from(state.grad_norm),
            loss_scale: f64::from(state.loss_scale),
            tokens_per_second: self.spec.tokens_per_iteration() as f64 / seconds,
            ms: seconds * 1e3,
            arena_bytes: self.engine.arena_bytes(),
            device_bytes_seen: is_logged.then(self.device_bytes).flatten(),
            resident_bytes: is_logged.then(resident_bytes).flatten(),
            is_logged,
        }));
        Ok(())
    }

    /// Draws the batch of the next iteration, unless a save or an evaluation comes first: they need
    /// the feed where it is. A batch that cannot be drawn is an error of the next iteration.
    fn draw_ahead(&mut self, host: &mut HostBuffers) {
        let next = self.document.progress.iteration + 1;
        if next > self.spec.max_iters || next.is_multiple_of(self.spec.eval_interval) {
            return;
        }
        self.feed.mark();
        host.is_drawn = true;
        if self.feed.train(next, &mut host.rows).is_err() {
            self.take_back(host);
        }
    }

    /// Returns a batch that was drawn ahead to the feed.
    fn take_back(&mut self, host: &mut HostBuffers) {
        if std::mem::take(&mut host.is_drawn) {
            self.feed.rewind();
        }
    }

    /// The loss of an iteration's last micro-batch over all ranks, as nanoGPT prints it; none if
    /// the run diverged.
    fn last_loss(&self, report: &Report, state: &StepState) -> Option<f64> {
        let spec = self.spec;
        let (sequences, group) = (spec.sequences_per_iteration(), spec.sequences_per_group());
        let (batch, ranks) = (spec.batch_size, spec.rank.ranks as u64);
        if self.engine.has_outer() {
            return self.own_loss(report, state);
        }
        // Sequence `row` belongs to group `row / group`, whose rank has its loss.
        let loss_of = |row: u64| report.losses_of((row / group % ranks) as usize)[row as usize];
        // Without loss scaling, a norm that is not finite has already broken the weights.
        let is_broken = state.loss_scale == 1.0 && !state.grad_norm.is_finite();
        if is_broken || !(0..sequences).all(|row| loss_of(row).is_finite()) {
            return None;
        }
        let sum = |rows: Range<u64>| rows.map(|row| f64::from(loss_of(row))).sum::<f64>();
        let (sum, rows) = match spec.sampler {
            Sampler::Fitgpt => (sum(sequences - batch..sequences), batch),
            // Each rank has micro-batches of its own.
            Sampler::Nanogpt => {
                let last_of = |rank: u64| sum((rank + 1) * group - batch..(rank + 1) * group);
                ((0..ranks).map(last_of).sum(), batch * ranks)
            }
        };
        Some(sum / (rows * spec.block_size) as f64)
    }

    /// The same of a rank that trains alone: of its own last micro-batch.
    fn own_loss(&self, report: &Report, state: &StepState) -> Option<f64> {
        let (spec, group) = (self.spec, self.spec.sequences_per_group());
        let first = spec.rank.rank as u64 * group;
        let own = &report.losses()[first as usize..(first + group) as usize];
        let is_broken = state.loss_scale == 1.0 && !state.grad_norm.is_finite();
        if is_broken || !own.iter().all(|loss| loss.is_finite()) {
            return None;
        }
        let rows = spec.batch_size.min(group);
        let last = &own[(group - rows) as usize..];
        let sum: f64 = last.iter().map(|&loss| f64::from(loss)).sum();
        Some(sum / (rows * spec.block_size) as f64)
    }

    /// Saves the state as `last`. Broken weights are an error, and `last` stays as it was.
    fn save(&mut self, host: &mut HostBuffers) -> Result<(), TrainError> {
        self.document.feed = self.feed.state();
        if !self.has_finite_loss(host)? {
            return Err(self.diverged());
        }
        self.write(host, false)
    }

    /// Saves the state of a run that is stopped, unless it is saved already. A file that is kept
    /// for the best state is then replaced, and the best one gets a file of its own.
    fn save_stopped(&mut self, host: &mut HostBuffers) -> Result<(), TrainError> {
        if self.document.progress.iteration <= host.saved_at {
            return Ok(());
        }
        if !self.keeps_newest() && self.spec.rank.is_first() {
            self.allow_save();
            self.end_save(host)?;
            let (newest, best) = (newest_path(self.spec), best_ckpt_path(&self.out_dir()));
            let is_kept = save_ckpt::is_best(&best, self.document.progress.best_val_loss);
            if newest.exists() && !is_kept {
                link_best(&newest, &best)?;
            }
        }
        self.save(host)
    }

    /// Writes the state, and leaves the rest of the save to a thread.
    fn write(&mut self, host: &mut HostBuffers, is_best: bool) -> Result<(), TrainError> {
        self.engine.step();
        self.allow_save();
        let written = self.write_now(host, is_best);
        self.others.allow(Duration::ZERO);
        written
    }

    /// Other ranks wait for a save, and a large one on a slow disk takes long; before it may come
    /// the end of the last save.
    fn allow_save(&self) {
        if self.has_others() {
            let bytes = save::tensor_bytes(self.engine).saturating_mul(2);
            self.others.allow(Duration::from_secs(bytes / SLOW_DISK));
        }
    }

    fn write_now(&mut self, host: &mut HostBuffers, is_best: bool) -> Result<(), TrainError> {
        // A save that failed does not prevent this one.
        let before = self.end_save(host);
        self.count_seconds(host);
        if !self.spec.rank.is_first() {
            // The first rank writes; this one contributes its shard.
            shards::attend(self.engine)?;
            host.saved_at = self.document.progress.iteration;
            return before;
        }
        let (last, began) = (newest_path(self.spec), Instant::now());
        let (engine, document, buffer) = (&mut *self.engine, &self.document, &mut host.save[..]);
        let written = match self.spec.checkpoint_format {
            CheckpointFormat::Native => save::write(engine, &last, document, buffer)?,
            CheckpointFormat::Ckpt => save_ckpt::write(engine, &last, document, self.spec, buffer)?,
        };
        let is_linked = is_best && self.is_native();
        let best = is_linked.then(|| best_path(&self.out_dir()));
        let obsolete = (is_best && !self.is_native()).then(|| best_ckpt_path(&self.out_dir()));
        let iteration = self.document.progress.iteration;
        host.saved_at = iteration;
        let records = self.events.settle();
        host.saving.start(Unsaved { written, records, last, best, obsolete, iteration, began });
        before
    }

    /// Adds the time since the last save to the run's.
    fn count_seconds(&mut self, host: &mut HostBuffers) {
        let now = self.events.seconds();
        let new = now - std::mem::replace(&mut host.counted_seconds, now);
        let seconds = &mut self.document.progress.seconds;
        *seconds = seconds.map(|before| before + new);
    }

    /// Waits for the save that is under way, if there is one.
    fn end_save(&mut self, host: &mut HostBuffers) -> Result<(), TrainError> {
        self.tell_saved(host.saving.wait())
    }

    fn tell_saved(&mut self, ended: Ended) -> Result<(), TrainError> {
        for Saved { path, iteration, ms } in ended.saved {
            let path = path.display().to_string();
            self.events.emit(What::Save(Arc::new(Save { iter: iteration, path, ms })));
        }
        ended.error.map_or(Ok(()), Err)
    }

    /// Whether the weights still give a finite loss on one slice of an evaluation. An update can
    /// break the weights although its own loss was fine, and the next loss comes after the save.
    fn has_finite_loss(&mut self, host: &mut HostBuffers) -> Result<bool, TrainError> {
        let rows = &mut host.eval_rows;
        self.feed.eval(Split::Val, self.document.progress.iteration, 0, rows)?;
        self.feed.restore(&self.document.feed)?;
        self.engine.eval_rows(rows, &mut |share| share == 0.0)?;
        let first = self.engine.program().eval_slices.first().copied().unwrap_or(0);
        Ok(self.engine.row_losses(first)?.iter().all(|loss| loss.is_finite()))
    }

    /// The error for a loss that is not finite; the learning rate is that of the previous update.
    fn diverged(&self) -> TrainError {
        let iteration = self.document.progress.iteration;
        let lr = learning_rate(&schedule(self.spec), iteration.saturating_sub(1));
        TrainError::Diverged { iteration, lr }
    }
}

fn reason(error: &TrainError) -> Reason {
    match error {
        TrainError::Diverged { .. } | TrainError::BrokenWeights { .. } => Reason::Diverged,
        _ => Reason::Error,
    }
}

fn step_inputs(spec: &RunSpec, iteration: u64) -> StepInputs {
    StepInputs {
        lr: learning_rate(&schedule(spec), iteration),
        grad_clip: spec.grad_clip.unwrap_or(0.0),
        iteration,
        seed: spec.seed,
        // A rank that trains alone has only its own tokens.
        inverse_tokens: 1.0
            / match spec.ranks.sync {
                Sync::Gradients => spec.tokens_per_iteration(),
                Sync::Diloco => spec.tokens_per_rank(),
            } as f32,
        ..StepInputs::default()
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
