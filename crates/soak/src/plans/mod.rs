//! `plans`: random models, settings and machines. Every plan is proved and within its budget; every
//! refusal has suggestions that fit. Every tenth run is small and executed.

mod draw;
mod execute;
mod gpu;

use crate::draws::{self, spread};
use crate::section::{Cases, Environment};
use crate::tally::Tally;
use draw::Drawn;
use plan::Bytes;
use plan::verify::defects;
use search::{Machine, Planned, SearchError, plan_for, suggestions};

/// In each round of this many cases, the cases in `EXECUTED` are small and executed: one for each
/// of two workers that alternate.
const ROUND: u64 = 20;
const EXECUTED: [u64; 2] = [0, 11];

/// Prepares the device.
///
/// # Errors
///
/// When a GPU is requested and there is none.
pub fn open(environment: &Environment, _: &str) -> Result<Box<dyn Cases>, String> {
    let gpu = if environment.cuda { Some(gpu::TestGpu::open()?) } else { None };
    Ok(Box::new(Runs { seed: environment.seed, gpu }))
}

struct Runs {
    seed: u64,
    gpu: Option<gpu::TestGpu>,
}

impl Cases for Runs {
    fn run(&mut self, index: u64, tally: &mut Tally) -> Result<(), String> {
        let mut stream = draws::of_case(self.seed, "plans", index);
        // On a GPU every case is executed; planning alone needs no GPU.
        let small = self.gpu.is_some() || EXECUTED.contains(&(index % ROUND));
        let drawn = match small {
            true => draw::small(&mut stream, self.gpu.is_some()),
            false => draw::any(&mut stream),
        }?;
        if let (true, Some(gpu)) = (small, &self.gpu) {
            let outcome = gpu.execute(&drawn, &mut stream, tally);
            return outcome.map_err(|what| format!("{what} ({})", drawn.typed()));
        }
        let threads = draws::between(&mut stream, 1, 3) as usize;
        let machine = if small || stream.below(3) == 0 {
            draw::cpu(threads)?
        } else {
            draw::gpu(&mut stream, &drawn)?
        };
        let share = spread(&mut stream, if small { 0.4 } else { 0.15 }, 1.3);
        let outcome = planned(&drawn, machine, share, small.then_some(threads), tally);
        outcome.map_err(|what| format!("{what} ({})", drawn.typed()))
    }
}

/// Plans with unlimited memory, then with a fraction of what that took. Executes the second plan if
/// `executed_on` gives a number of threads.
fn planned(
    drawn: &Drawn,
    spacious: Machine,
    share: f64,
    executed_on: Option<usize>,
    tally: &mut Tally,
) -> Result<(), String> {
    let free = plan_for(&drawn.run, drawn.dims, &spacious).map_err(|error| error.to_string())?;
    let needs = free.device_bytes(&spacious) as f64;
    let budget = (needs * share) as u64;
    let budget = Bytes::new(budget).ok_or("the budget is not a valid number of bytes")?;
    let machine = Machine { budget, ..spacious.clone() };
    match plan_for(&drawn.run, drawn.dims, &machine) {
        Ok(tight) => {
            tally.count("planned");
            check(&tight, drawn, &machine)?;
            match executed_on {
                Some(threads) => {
                    tally.count("executed");
                    execute::on_cpu(&tight, drawn, &spacious, threads)
                }
                None => Ok(()),
            }
        }
        Err(SearchError::DoesNotFit(refusal)) => {
            tally.count("refused");
            if refusal.missing == Bytes::ZERO && refusal.missing_host == Bytes::ZERO {
                return Err("refused, though nothing is missing".to_owned());
            }
            suggestions_fit(drawn, &machine, tally)?;
            // A run that is to be executed gets more memory until it fits.
            match executed_on {
                Some(_) => planned(drawn, spacious, more_than(share), executed_on, tally),
                None => Ok(()),
            }
        }
        Err(other) => Err(other.to_string()),
    }
}

/// Moves the fraction halfway towards 1, and a little more.
fn more_than(share: f64) -> f64 {
    (share + 1.0) / 2.0 + 0.01
}

fn check(planned: &Planned, drawn: &Drawn, machine: &Machine) -> Result<(), String> {
    let defects = defects(&planned.plan, &*machine.scratch);
    if !defects.is_empty() {
        return Err(format!("not sound: {defects:?}"));
    }
    let (needs, budget) = (planned.device_bytes(machine), machine.budget.get());
    if needs > budget {
        return Err(format!("{needs} bytes planned, but {budget} allowed"));
    }
    let cut = planned.cut().map_or(0, |cut| cut.slices.iter().sum());
    let sequences = drawn.run.sequences_per_iteration();
    match cut == sequences {
        true => Ok(()),
        false => Err(format!("slices of {cut} sequences, but there are {sequences}")),
    }
}

/// Each suggestion, added to the command, must make it fit.
fn suggestions_fit(drawn: &Drawn, machine: &Machine, tally: &mut Tally) -> Result<(), String> {
    for suggestion in suggestions(&drawn.run, drawn.dims, machine, &machine.hardware) {
        tally.count("suggestions");
        let typed = suggestion.arguments();
        let changed = drawn.with(&typed)?;
        let machine = changed.machine_like(machine);
        let planned = plan_for(&changed.run, changed.dims, &machine)
            .map_err(|error| format!("suggested {typed}, which is refused: {error}"))?;
        check(&planned, &changed, &machine).map_err(|what| format!("suggested {typed}: {what}"))?;
    }
    Ok(())
}
