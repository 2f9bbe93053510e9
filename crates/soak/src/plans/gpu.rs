//! A plan executed on GPU 0 inside a random budget, by the driver's count.

use super::draw::Drawn;
use super::execute::rows;
use crate::tally::Tally;
use cuda::{CubinCache, CudaBackend, CudaOptions, Gpu, LoadError};
use plan::Bytes;
use plan::StepInputs;
use rng::Stream;
use spec::{Machine, Planned, SpecError, plan_for};
use train::TrainError;
use train::engine::Engine;
use train::generate::{Request, generate};
use train::sampling::Choice;

/// Code that loads with a new shape makes what is beside the arena grow; then it is planned again.
const PLANNED_AGAIN: usize = 12;

/// How far the loss of new weights may be from that of a guess.
const NEAR_A_GUESS: f32 = 0.3;

/// The GPU, and what the process held there before any plan.
pub struct Device {
    gpu: Gpu,
    at_start: u64,
}

impl Device {
    /// GPU 0.
    pub fn open() -> Result<Device, String> {
        let gpu = Gpu::open(0, CubinCache::standard()).map_err(|error| error.to_string())?;
        let at_start = gpu.held_bytes().map_err(|error| error.to_string())?;
        Ok(Device { gpu, at_start })
    }

    /// Plans, loads, trains, evaluates, generates; then asks the driver.
    pub fn execute(
        &self,
        drawn: &Drawn,
        draws: &mut Stream,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let budget = self.at_start + (24 << 20) + draws.below(400 << 20);
        let bytes = |count| Bytes::new(count).ok_or("no number of bytes");
        let table = plan::device::Gpu::find("RTX 4070").ok_or("no such row")?.device(false);
        let device = plan::device::Device { context: bytes(self.at_start + (16 << 20))?, ..table };
        let machine = Machine::gpu(device, &drawn.run, bytes(budget)?, bytes(4 << 30)?);
        let Some((planned, backend)) = self.load(drawn, machine)? else {
            tally.count("refused");
            return Ok(());
        };
        tally.count("executed");
        let mut engine = Engine::new(Box::new(backend), planned.program, drawn.dims);
        let loss = run(&mut engine, drawn).map_err(|error| error.to_string())?;
        let guess = (drawn.dims.vocab_size as f32).ln();
        if (loss - guess).abs() > NEAR_A_GUESS || loss.is_nan() {
            return Err(format!("loss {loss} of new weights, {guess} expected"));
        }
        let held = self.gpu.held_bytes().map_err(|error| error.to_string())?;
        match held <= budget {
            true => Ok(()),
            false => Err(format!("{held} bytes held, {budget} allowed")),
        }
    }

    fn load(
        &self,
        drawn: &Drawn,
        mut machine: Machine,
    ) -> Result<Option<(Planned, CudaBackend)>, String> {
        for _ in 0..PLANNED_AGAIN {
            let planned = match plan_for(&drawn.run, drawn.dims, &machine) {
                Ok(planned) => planned,
                Err(SpecError::DoesNotFit(_)) => return Ok(None),
                Err(error) => return Err(error.to_string()),
            };
            let budget = Some(machine.budget.get());
            let options = CudaOptions { budget, ..CudaOptions::new(&self.gpu) };
            match CudaBackend::new(&self.gpu, planned.plan.clone(), &options) {
                Ok(backend) => return Ok(Some((planned, backend))),
                Err(LoadError::OverBudget { beside, .. }) => {
                    let more = machine.device.context.get() + (1 << 20);
                    let context = Bytes::new(beside.max(more));
                    machine.device.context = context.ok_or("no number of bytes")?;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Err(format!("planned again {PLANNED_AGAIN} times"))
    }
}

/// Runs everything once; gives the mean loss of the first iteration.
fn run(engine: &mut Engine, drawn: &Drawn) -> Result<f32, TrainError> {
    let Drawn { run, dims, .. } = drawn;
    engine.initialise(&mut rng::torch::Generator::new(1))?;
    let inverse_tokens = 1.0 / run.tokens_per_iteration() as f32;
    let step = StepInputs { lr: 1e-3, grad_clip: 1.0, inverse_tokens, ..StepInputs::default() };
    let sequences = run.sequences_per_iteration();
    let batch = rows(sequences, run.block_size, dims.vocab_size, 0)?;
    engine.train_rows(&batch, &step, &mut |_| true)?;
    engine.update(&step)?;
    let losses = engine.row_losses(sequences)?;
    let mean = losses.iter().sum::<f32>() / (sequences * run.block_size) as f32;
    let eval = rows(run.eval_batch_size, run.eval_block_size, dims.vocab_size, 1)?;
    engine.eval_rows(&eval, &mut |_| true)?;
    let choice = Choice { temperature: 1.0, top_k: 0 };
    let request = Request { prompt: vec![1, 2, 3], max_new_tokens: 3, choice, seed: 1, index: 0 };
    generate(engine, &request, |_| true)?;
    Ok(mean)
}
