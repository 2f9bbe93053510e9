//! What is known about one run, from its events, in bounded memory.

use crate::points::{Place, Points};
use events::{End, Entry, Evaluated, Event, Iteration, Reason, Sample, Start, Time, What};
use plots::metrics::Recorder;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;

/// Metrics of iterations, and whether a view shows their lowest and highest values as a band.
pub const METRICS: [(&str, bool); 9] = [
    ("loss", true),
    ("lr", false),
    ("grad_norm", true),
    ("tokens_per_second", true),
    ("ms", false),
    ("mfu", false),
    ("loss_scale", false),
    ("device_bytes_seen", false),
    ("resident_bytes", false),
];

/// Readings of the GPU.
pub const HARDWARE: [(&str, bool); 4] =
    [("gpu_busy", false), ("gpu_clock", false), ("gpu_temperature", false), ("gpu_power", false)];

/// Most evaluations, marks and samples; beyond, every second old one is dropped.
const MOST_EVALS: usize = 4096;
const MOST_MARKS: usize = 2048;
const MOST_SAMPLES: usize = 256;

/// Characters of a notice and of a sample that are kept.
const NOTICE: usize = 2000;
const SAMPLE: usize = 16_000;

/// News that clients may not have yet.
const MOST_NEWS: usize = 1024;

/// Seconds between shown iterations that are not logged.
const BETWEEN: f64 = 0.1;

/// Logged iterations over which the speed of the whole run is taken.
const PACE: usize = 256;

/// One evaluation.
#[derive(Clone, Debug)]
pub struct Eval {
    place: Place,
    losses: [f64; 4],
    best: bool,
}

impl Eval {
    /// As the page shows it.
    pub fn json(&self) -> Value {
        let [train, val, train_error, val_error] = self.losses;
        json!({ "iter": self.place.iter, "tokens": self.place.tokens,
                "seconds": self.place.seconds, "train_loss": train, "val_loss": val,
                "train_standard_error": train_error, "val_standard_error": val_error,
                "best": self.best })
    }
}

/// Something that happened, for the time axis.
#[derive(Clone, Debug)]
pub struct Mark {
    place: Place,
    kind: &'static str,
    text: String,
}

impl Mark {
    /// As the page shows it.
    pub fn json(&self) -> Value {
        json!({ "iter": self.place.iter, "tokens": self.place.tokens,
                "seconds": self.place.seconds, "kind": self.kind, "text": self.text })
    }
}

/// One run.
#[derive(Debug, Default)]
pub struct Run {
    /// Values of the logged iterations.
    pub points: Points<9>,
    /// Readings of the GPU while it trains.
    pub hardware: Points<4>,
    /// Evaluations.
    pub evals: Vec<Eval>,
    /// Saves, notices, starts and the end.
    pub marks: Vec<Mark>,
    /// Texts that the model generated: iteration and text.
    pub samples: Vec<(u64, String)>,
    /// Settings and plan of the newest process.
    pub start: Option<Arc<Start>>,
    /// How it ended, if it did.
    pub end: Option<Arc<End>>,
    /// The newest iteration, logged or not.
    pub newest: Option<Iteration>,
    /// The lowest validation loss and its iteration.
    pub best: Option<(u64, f64)>,
    /// How far an evaluation is.
    pub evaluating: Option<f64>,
    /// When the newest event happened.
    pub updated: Option<f64>,
    /// When the first event of the run happened.
    pub began: Option<f64>,
    /// Seconds of training.
    pub seconds: Option<f64>,
    /// Largest numbers of bytes that were seen.
    pub most_device_bytes: Option<u64>,
    /// Resident memory at most.
    pub most_resident: Option<u64>,
    /// Events so far.
    pub events: u64,
    /// Lines that could not be read, and why the first could not.
    pub unreadable: u64,
    /// Why the first of them could not be read, or why the log cannot be.
    pub problem: Option<String>,
    /// Changes whenever something did.
    pub version: u64,
    /// Changes when clients must ask for everything again.
    pub generation: u64,
    recorder: Recorder,
    before: f64,
    is_ignored: bool,
    pace: VecDeque<(u64, f64)>,
    last_shown: f64,
    news: VecDeque<(u64, Value)>,
    newest_news: u64,
    /// A long log is being read: nobody is told about each line.
    pub is_catching_up: bool,
}

impl Run {
    /// Forgets everything: its log is read from the start.
    pub fn forget(&mut self, is_again: bool) {
        let (version, generation) = (self.version + 1, self.generation + u64::from(is_again));
        *self = Run { version, generation, newest_news: self.newest_news, ..Run::default() };
    }

    /// Takes an event of the process itself.
    pub fn take_event(&mut self, event: &Event) {
        self.take(&Entry { what: event.what.clone(), time: Some(event.time) });
    }

    /// Takes an event.
    pub fn take(&mut self, entry: &Entry) {
        self.version += 1;
        if let What::Start(start) = &entry.what {
            self.start(start, entry.time);
        }
        if self.is_ignored {
            return;
        }
        self.events += 1;
        if let Some(time) = entry.time {
            self.updated = Some(time.unix_time);
            self.began.get_or_insert(time.unix_time);
            self.seconds = Some(self.before + time.seconds);
        }
        match &entry.what {
            What::Iteration(at) => self.iteration(at, entry.time),
            What::Evaluating(at) => self.evaluating = Some(at.share.clamp(0.0, 1.0)),
            What::Evaluated(at) => self.evaluated(at),
            What::Save(save) => {
                let name = save.path.rsplit('/').next().unwrap_or_default();
                let text = format!("{name} saved in {:.0} ms", save.ms);
                self.mark(self.place(save.iter), "save", text);
            }
            What::Notice(notice) => {
                let place = self.points.last().unwrap_or_else(|| self.place(0));
                self.mark(place, "notice", notice.text.clone());
            }
            What::Sample(sample) => self.sample(sample),
            What::End(end) => self.ended(end),
            What::Start(_) => {}
        }
    }

    /// Adds a reading of the GPU.
    pub fn read_hardware(&mut self, values: [f64; 4]) {
        let Some(mut place) = self.points.last() else { return };
        if let Some(seconds) = self.seconds.filter(|seconds| *seconds >= place.seconds) {
            place.seconds = seconds;
        }
        self.version += 1;
        self.hardware.append(place, values);
        let row = [place.iter as f64, place.tokens, place.seconds].into_iter().chain(values);
        self.tell(|| json!({ "hardware": row.collect::<Vec<f64>>() }));
    }

    /// News after this number, oldest first, and the newest number. None if some are gone.
    pub fn news_since(&self, number: u64) -> Option<(u64, Vec<&Value>)> {
        let first = self.news.front().map_or(self.newest_news + 1, |(number, _)| *number);
        let found = || self.news.iter().filter(|(at, _)| *at > number).map(|(_, news)| news);
        (first <= number + 1).then(|| (self.newest_news, found().collect()))
    }

    /// Number of the newest news.
    pub fn newest_news(&self) -> u64 {
        self.newest_news
    }

    /// Iterations a second over the last logged ones, evaluations and saves included.
    pub fn pace(&self) -> Option<f64> {
        let (first, last) = (self.pace.front()?, self.pace.back()?);
        let (iters, seconds) = (last.0.checked_sub(first.0)?, last.1 - first.1);
        (iters > 0 && seconds > 0.0).then_some(iters as f64 / seconds)
    }

    /// Tokens trained on so far.
    pub fn tokens(&self) -> Option<f64> {
        self.recorder.tokens_before(self.newest?.iter.saturating_add(1))
    }

    fn start(&mut self, start: &Arc<Start>, time: Option<Time>) {
        let only_evaluates = start.config.get("eval_only") == Some(&Value::Bool(true));
        self.is_ignored = only_evaluates && self.start.is_some();
        if self.is_ignored {
            return;
        }
        self.recorder.start(start);
        self.points.cut(start.iter);
        self.hardware.cut(start.iter);
        // An evaluation at this iteration may stay: if it is repeated, the later one counts.
        self.evals.retain(|eval| eval.place.iter <= start.iter);
        self.samples.retain(|(iter, _)| *iter <= start.iter);
        self.marks.retain(|mark| mark.place.iter <= start.iter);
        self.find_best();
        let kept = if start.iter == 0 { 0.0 } else { self.last_seconds() };
        self.before = start.seconds_before.map_or(kept, |seconds| seconds.max(kept));
        if start.iter == 0 {
            (self.began, self.most_device_bytes, self.most_resident) = (None, None, None);
        }
        self.seconds = Some(self.before + time.map_or(0.0, |time| time.seconds));
        (self.end, self.newest, self.evaluating) = (None, None, None);
        self.pace.clear();
        self.last_shown = 0.0;
        self.generation += 1;
        self.start = Some(Arc::clone(start));
        let kind = if start.iter > 0 { "resume" } else { "start" };
        let text = format!("{kind} at iteration {} on {}", start.iter, start.device);
        self.mark(self.place(start.iter), kind, text);
    }

    fn last_seconds(&self) -> f64 {
        let evaluated = self.evals.last().map(|eval| eval.place.seconds);
        let trained = self.points.last().map(|place| place.seconds);
        [evaluated, trained].into_iter().flatten().fold(0.0, f64::max)
    }

    fn place(&self, iter: u64) -> Place {
        let tokens = self.recorder.tokens_before(iter).unwrap_or(f64::NAN);
        Place { iter, tokens, seconds: self.seconds.unwrap_or(f64::NAN) }
    }

    fn iteration(&mut self, at: &Iteration, time: Option<Time>) {
        let before = self.newest.replace(*at);
        self.evaluating = None;
        self.most_device_bytes = self.most_device_bytes.max(at.device_bytes_seen);
        self.most_resident = self.most_resident.max(at.resident_bytes);
        // Between logged iterations, some are shown too, so that the curve of a run of this process
        // moves; its log has fewer.
        let now = time.map_or(f64::NAN, |time| time.seconds);
        let is_shown = at.is_logged || now - self.last_shown >= BETWEEN;
        if is_shown {
            self.last_shown = now;
        }
        if !is_shown {
            // What is only known of logged iterations is kept.
            if let (Some(now), Some(before)) = (&mut self.newest, before) {
                now.device_bytes_seen = now.device_bytes_seen.or(before.device_bytes_seen);
                now.resident_bytes = now.resident_bytes.or(before.resident_bytes);
            }
            return;
        }
        let time = time.unwrap_or(Time { unix_time: 0.0, seconds: f64::NAN });
        let point = self.recorder.point(&Event { what: What::Iteration(*at), time });
        let mfu = point.and_then(|point| point.values()[MFU]).unwrap_or(f64::NAN);
        let bytes = |bytes: Option<u64>| bytes.map_or(f64::NAN, |bytes| bytes as f64);
        let values = [
            at.loss,
            at.lr,
            at.grad_norm,
            at.tokens_per_second,
            at.ms,
            mfu,
            at.loss_scale,
            bytes(at.device_bytes_seen),
            bytes(at.resident_bytes),
        ];
        let tokens = self.recorder.tokens_before(at.iter.saturating_add(1)).unwrap_or(f64::NAN);
        let place = Place { iter: at.iter, tokens, seconds: self.before + time.seconds };
        self.points.push(place, values);
        if self.pace.len() == PACE {
            self.pace.pop_front();
        }
        self.pace.push_back((at.iter, place.seconds));
        let row = [at.iter as f64, tokens, place.seconds].into_iter().chain(values);
        self.tell(|| json!({ "point": row.collect::<Vec<f64>>() }));
    }

    fn evaluated(&mut self, at: &Evaluated) {
        self.evaluating = None;
        self.evals.retain(|eval| eval.place.iter < at.iter);
        self.most_device_bytes = self.most_device_bytes.max(at.device_bytes_seen);
        let best = self.best.is_none_or(|(_, least)| at.val_loss < least);
        let losses = [at.train_loss, at.val_loss, at.train_standard_error, at.val_standard_error];
        let eval = Eval { place: self.place(at.iter), losses, best };
        self.tell(|| json!({ "eval": eval.json() }));
        self.evals.push(eval);
        thin(&mut self.evals, MOST_EVALS);
        self.find_best();
        if best {
            let text = format!("lowest validation loss so far: {:.4}", at.val_loss);
            self.mark(self.place(at.iter), "best", text);
        }
        if let Some(note) = &at.note {
            self.mark(self.place(at.iter), "notice", note.clone());
        }
    }

    fn find_best(&mut self) {
        let losses = self.evals.iter().map(|eval| (eval.place.iter, eval.losses[1]));
        let finite = losses.filter(|(_, loss)| loss.is_finite());
        self.best = finite.min_by(|a, b| a.1.total_cmp(&b.1));
    }

    fn sample(&mut self, sample: &Sample) {
        let text: String = sample.text.chars().take(SAMPLE).collect();
        self.tell(|| json!({ "sample": { "iter": sample.iter, "text": text } }));
        self.samples.retain(|(iter, _)| *iter != sample.iter);
        self.samples.push((sample.iter, text));
        thin(&mut self.samples, MOST_SAMPLES);
    }

    fn ended(&mut self, end: &Arc<End>) {
        let text = match (end.reason, &end.message) {
            (Reason::Finished, _) => "finished".to_string(),
            (Reason::Interrupted, _) => "stopped, and can be resumed".to_string(),
            (_, message) => message.clone().unwrap_or_else(|| "ended with an error".to_string()),
        };
        self.evaluating = None;
        self.mark(self.place(end.iter), "end", text);
        self.end = Some(Arc::clone(end));
    }

    fn mark(&mut self, place: Place, kind: &'static str, text: String) {
        let text = text.chars().take(NOTICE).collect();
        let mark = Mark { place, kind, text };
        self.tell(|| json!({ "mark": mark.json() }));
        self.marks.push(mark);
        thin(&mut self.marks, MOST_MARKS);
    }

    fn tell(&mut self, news: impl FnOnce() -> Value) {
        self.newest_news += 1;
        if self.is_catching_up {
            self.news.clear();
            return;
        }
        if self.news.len() == MOST_NEWS {
            self.news.pop_front();
        }
        self.news.push_back((self.newest_news, news()));
    }
}

/// Index of `mfu` in the table of metrics for other programs.
const MFU: usize = 6;

/// Drops every second of the older half if there are too many.
fn thin<T>(all: &mut Vec<T>, most: usize) {
    if all.len() <= most {
        return;
    }
    let (half, mut index) = (all.len() / 2, 0);
    all.retain(|_| {
        index += 1;
        index > half || index % 2 == 1
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_mfu_is_that_of_the_table() {
        assert_eq!(plots::metrics::METRICS[MFU].name, "mfu");
    }

    fn lines(text: &str) -> Run {
        let mut run = Run::default();
        for line in text.lines() {
            run.take(&events::parse_line(line.as_bytes()).unwrap().unwrap());
        }
        run
    }

    const START: &str = "{\"kind\":\"start\",\"schema\":\"fitgpt.log/2\",\"iter\":0,\
     \"config\":{\"max_iters\":9},\
     \"vocab_size\":65,\"steps_hash\":\"x\",\"version\":\"1\",\"device\":\"cpu\",\
     \"tokens_per_iteration\":100,\"tokens_before\":0,\"unix_time\":5,\"seconds\":0}";

    fn iteration(iter: u64, seconds: f64) -> String {
        format!(
            "{{\"kind\":\"iter\",\"iter\":{iter},\"loss\":2.5,\"lr\":0.1,\"grad_norm\":null,\
     \"loss_scale\":1,\"tokens_per_second\":50,\"ms\":2000,\"arena_bytes\":7,\
     \"device_bytes_seen\":null,\"resident_bytes\":9,\"unix_time\":6,\"seconds\":{seconds}}}"
        )
    }

    #[test]
    fn a_run_knows_its_pace_tokens_and_news() {
        let text = [START, &iteration(0, 1.0), &iteration(1, 3.0), &iteration(2, 5.0)].join("\n");
        let run = lines(&text);
        assert_eq!(run.pace(), Some(0.5));
        assert_eq!(run.tokens(), Some(300.0));
        assert_eq!(run.newest_news(), 4);
        let (newest, news) = run.news_since(2).unwrap();
        assert_eq!((newest, news.len()), (4, 2));
        assert_eq!(news[1]["point"][0], 2.0);
        assert_eq!(news[1]["point"][5], Value::Null);
    }

    #[test]
    fn a_resumed_run_takes_its_later_points_back() {
        let resumed = START.replace("\"iter\":0", "\"iter\":1");
        let text = [START, &iteration(0, 1.0), &iteration(1, 2.0), &resumed].join("\n");
        let run = lines(&text);
        assert_eq!(run.points.total(), 1);
        assert_eq!(run.generation, 2);
        assert_eq!(run.seconds, Some(1.0));
    }

    #[test]
    fn memory_is_bounded() {
        let mut run = lines(START);
        for iter in 0..20_000 {
            let text = "x".repeat(100);
            run.take(&Entry {
                what: What::Sample(Arc::new(Sample { iter, text: text.clone() })),
                time: None,
            });
            let notice = events::Notice { text, dropped: None };
            run.take(&Entry { what: What::Notice(Arc::new(notice)), time: None });
        }
        assert!(run.samples.len() <= MOST_SAMPLES && run.marks.len() <= MOST_MARKS);
        assert!(run.news_since(3).is_none() && run.news.len() <= MOST_NEWS);
        assert_eq!(run.samples.last().unwrap().0, 19_999);
    }
}
