//! How long a run will take according to the cost model. `train` and `plan` print it if it is more
//! than an hour; `train` asks for confirmation if it is more than a week.

use crate::device::Device;
use crate::interrupt;
use crate::measure;
use crate::numbers::{date, duration, grouped, short};
use crate::screen;
use search::{Machine, Planned, Prediction};
use spec::RunSpec;
use std::time::{SystemTime, UNIX_EPOCH};
use train::setup::Setup;

/// Runs of more seconds than this are announced.
const LONG: f64 = 3600.0;

/// Runs of more seconds than this need a confirmation.
const VERY_LONG: f64 = 7.0 * 86_400.0;

/// Beyond this many seconds no end date is printed.
const FAR: f64 = 3.0 * 365.25 * 86_400.0;

/// The table's prediction may be wrong by this factor. A run that is short even then is not
/// measured.
const DOUBT: f64 = 4.0;

/// The predicted length of a run.
pub struct RunLength {
    /// The announcement; none for a short run.
    text: Option<String>,
    seconds: f64,
}

impl RunLength {
    /// Predicts a run that is about to start on this device.
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

    /// Prints the announcement of a long run.
    pub fn show(&self) {
        if let Some(text) = &self.text {
            screen::notice(text);
        }
    }

    /// Asks at a terminal whether to start a run of more than a week. True if nobody needs to be
    /// asked.
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

/// The run without the iterations that are done.
pub fn left_of(run: &RunSpec, done: u64) -> RunSpec {
    RunSpec { max_iters: run.max_iters.saturating_sub(done), ..run.clone() }
}

/// The announcement of a run of more than an hour: tokens, time per iteration, end.
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
