//! Executes a plan on GPU 0 within a random budget, measured by the driver. Then executes the same
//! run in one slice without recompute; the losses must be the same up to rounding.

use super::draw::Drawn;
use super::execute::{REORDERED, RunResult, keeping_everything, nearly, run};
use crate::tally::Tally;
use cuda::{CubinCache, CudaBackend, CudaOptions, Gpu, LoadError};
use plan::hardware::{Card, Hardware};
use plan::{Bytes, Dtype, GpuScratch, Proved, verify};
use rng::Stream;
use search::{Cut, Machine, Planned, SearchError, plan_for};
use train::engine::Engine;

/// Loading code for a new shape increases the memory outside the arena; then the run is planned
/// again, at most this often.
const PLANNED_AGAIN: usize = 12;

/// How far the loss of new weights may be from that of a uniform guess.
const NEAR_A_GUESS: f32 = 0.3;

/// Largest relative difference of a loss with 16-bit matmuls: other slices have other shapes, so
/// other kernels round differently.
const REORDERED_16_BIT: f32 = 2e-2;

/// Memory for a run without recompute; all of these models need much less.
const SPACIOUS: u64 = 8 << 30;

/// The GPU, and the memory that the process held there before any plan.
pub struct TestGpu {
    gpu: Gpu,
    at_start: u64,
}

impl TestGpu {
    /// Opens GPU 0.
    pub fn open() -> Result<TestGpu, String> {
        let gpu = Gpu::open(0, CubinCache::standard()).map_err(|error| error.to_string())?;
        let at_start = gpu.held_bytes().map_err(|error| error.to_string())?;
        Ok(TestGpu { gpu, at_start })
    }

    /// Plans, trains, evaluates and generates; checks the memory with the driver; then compares
    /// losses.
    pub fn execute(
        &self,
        drawn: &Drawn,
        draws: &mut Stream,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let budget = self.at_start + (24 << 20) + draws.below(400 << 20);
        let bytes = |count| Bytes::new(count).ok_or("no number of bytes");
        let table = Card::find("RTX 4070").ok_or("no such row")?.hardware(false);
        let (context, warpgroups) =
            (bytes(self.at_start + (16 << 20))?, self.gpu.scratch().warpgroups);
        let hardware = Hardware { context, warpgroups, ..table };
        let machine = Machine::gpu(hardware, &drawn.run, bytes(budget)?, bytes(4 << 30)?);
        let spacious = Machine { budget: bytes(SPACIOUS)?, ..machine.clone() };
        let Some((planned, backend)) = self.load(drawn, machine)? else {
            tally.count("refused");
            return Ok(());
        };
        tally.count("executed");
        let cut = planned.cut().ok_or("nothing is trained")?;
        let found = self.inside(budget, planned, backend, drawn)?;
        near_a_guess(&found, drawn)?;
        let want = self.unlimited(cut, drawn, &spacious)?;
        let share = if spacious.compute == Dtype::F32 { REORDERED } else { REORDERED_16_BIT };
        nearly(&found, &want, share)
    }

    /// Runs a plan and asks the driver for the memory while only this plan is loaded.
    fn inside(
        &self,
        budget: u64,
        planned: Planned,
        backend: CudaBackend,
        drawn: &Drawn,
    ) -> Result<RunResult, String> {
        let mut engine = Engine::new(Box::new(backend), planned.program, drawn.dims);
        let trace = run(&mut engine, drawn)?;
        let held = self.gpu.held_bytes().map_err(|error| error.to_string())?;
        match held <= budget {
            true => Ok(trace),
            false => Err(format!("{held} bytes held, but {budget} allowed")),
        }
    }

    /// The same run without a limit: one slice, nothing recomputed. The optimizer state has the
    /// same format as in the plan it is compared with, because the format changes losses.
    fn unlimited(&self, cut: Cut, drawn: &Drawn, spacious: &Machine) -> Result<RunResult, String> {
        let slices = vec![drawn.run.sequences_per_iteration()];
        let planned = keeping_everything(Cut { slices, ..cut }, drawn, spacious)?;
        let options = CudaOptions::new(&self.gpu);
        let proved = self.proved(&planned)?;
        let backend = CudaBackend::new(&self.gpu, proved, &options);
        let backend = backend.map_err(|error| format!("without a limit: {error}"))?;
        let mut engine = Engine::new(Box::new(backend), planned.program, drawn.dims);
        run(&mut engine, drawn).map_err(|what| format!("without a limit: {what}"))
    }

    fn load(
        &self,
        drawn: &Drawn,
        mut machine: Machine,
    ) -> Result<Option<(Planned, CudaBackend)>, String> {
        for _ in 0..PLANNED_AGAIN {
            let planned = match plan_for(&drawn.run, drawn.dims, &machine) {
                Ok(planned) => planned,
                Err(SearchError::DoesNotFit(_)) => return Ok(None),
                Err(error) => return Err(error.to_string()),
            };
            let budget = Some(machine.budget.get());
            let options = CudaOptions { budget, ..CudaOptions::new(&self.gpu) };
            match CudaBackend::new(&self.gpu, self.proved(&planned)?, &options) {
                Ok(backend) => return Ok(Some((planned, backend))),
                Err(LoadError::OverBudget { outside_arena, .. }) => {
                    let more = machine.hardware.context.get() + (1 << 20);
                    let context = Bytes::new(outside_arena.max(more));
                    machine.hardware.context = context.ok_or("no number of bytes")?;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Err(format!("planned again {PLANNED_AGAIN} times"))
    }

    fn proved(&self, planned: &Planned) -> Result<Proved<GpuScratch>, String> {
        let proved = verify(planned.plan.clone(), self.gpu.scratch());
        proved.map_err(|defects| format!("not sound: {defects:?}"))
    }
}

/// Checks the mean loss of the first iteration: new weights can only guess.
fn near_a_guess(trace: &RunResult, drawn: &Drawn) -> Result<(), String> {
    let sequences = drawn.run.sequences_per_iteration();
    let losses = trace.train_losses.iter().take(sequences as usize);
    let loss = losses.sum::<f32>() / (sequences * drawn.run.block_size) as f32;
    let guess = (drawn.dims.vocab_size as f32).ln();
    match (loss - guess).abs() <= NEAR_A_GUESS {
        true => Ok(()),
        false => Err(format!("the loss of new weights is {loss}, but {guess} is expected")),
    }
}
