//! How long a run will take, from the cost model: told before it starts where that is more than an
//! hour, and asked about where it is more than a week. `plan` and `train` say the same.

use crate::device::Device;
use crate::interrupt;
use crate::measure;
use crate::numbers::{date, duration, grouped, short};
use crate::screen;
use search::{Machine, Planned, Prediction};
use spec::RunSpec;
use std::time::{SystemTime, UNIX_EPOCH};
use train::setup::Setup;

/// Seconds from which the length of a run is told.
const LONG: f64 = 3600.0;

/// Seconds from which it is asked about.
const VERY_LONG: f64 = 7.0 * 86_400.0;

/// Years from which a date says nothing.
const FAR: f64 = 3.0 * 365.25 * 86_400.0;

/// A table's prediction may be wrong by this factor: below it nothing is measured.
const DOUBT: f64 = 4.0;

/// The length of a run.
pub struct RunLength {
    /// None where it is short.
    text: Option<String>,
    seconds: f64,
}

impl RunLength {
    /// Of a run that is about to start here. What is surely short is not measured.
    pub fn new(setup: &Setup, planned: &Planned, machine: &Machine, device: &Device) -> RunLength {
        let done = setup.saved.as_ref().map_or(0, |saved| saved.document.progress.iteration);
        let run = left_of(&setup.spec, done);
        let by_table = planned.predict(&run, &machine.hardware);
        let prediction = match by_table.run_seconds * DOUBT < LONG {
            true => by_table,
            false => planned.predict(&run, &measure::rates(device, &run)),
        };
        RunLength { text: of(&run, &prediction), seconds: prediction.run_seconds }
    }

    /// Tells it where it is long.
    pub fn show(&self) {
        if let Some(text) = &self.text {
            screen::notice(text);
        }
    }

    /// Asks whoever sits at a terminal whether to start a run of more than a week.
    pub fn is_confirmed(&self, yes: bool) -> bool {
        let asks = screen::is_terminal() && screen::is_input_terminal();
        if self.seconds <= VERY_LONG || yes || !asks {
            return true;
        }
        let time = duration(self.seconds);
        let _ = screen::out(&format!("Start a run of about {time}? [y/N] (--yes skips this) "));
        let answer = interrupt::answer().unwrap_or_default();
        if !matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
            screen::line("not started");
            return false;
        }
        true
    }
}

/// A run without the iterations that are done.
pub fn left_of(run: &RunSpec, done: u64) -> RunSpec {
    RunSpec { max_iters: run.max_iters.saturating_sub(done), ..run.clone() }
}

/// The sentence about a run of more than an hour: tokens, time of an iteration, end.
pub fn of(run: &RunSpec, prediction: &Prediction) -> Option<String> {
    let seconds = prediction.run_seconds;
    if seconds <= LONG {
        return None;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
    let end = match seconds < FAR {
        true => format!(", until {}", date(now + seconds)),
        false => String::new(),
    };
    let iterations = run.max_iters;
    let tokens = iterations as f64 * run.tokens_per_iteration() as f64;
    let each =
        prediction.tokens_per_second.map_or(0.0, |rate| run.tokens_per_iteration() as f64 / rate);
    let each = match each < 60.0 {
        true if each < 1.0 => format!("{:.0} ms", each * 1e3),
        true => format!("{each:.1} s"),
        false => duration(each),
    };
    Some(format!(
        "a long run: {} tokens, {} iterations of about {each}: about {}{end}",
        short(tokens),
        grouped(iterations),
        duration(seconds)
    ))
}
