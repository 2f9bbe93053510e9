//! 200 random runs with random budgets are planned, loaded and executed: trained, evaluated and
//! sampled from. None may fail, and none may hold more than its budget as the driver counts it.

use crate::fixture::gpu_alone;
use fitgpt_cuda::{CudaBackend, CudaOptions, Gpu, LoadError};
use model::Dims;
use plan::hardware::{Card, Hardware};
use plan::{Bytes, StepInputs, verify};
use rng::{Purpose, Stream};
use search::{Machine, Planned, SearchError, plan_for};
use spec::{Command, Environment, RunSpec, Settings, World, resolve};
use train::engine::{Engine, Rows};
use train::generate::{SampleRequest, generate};
use train::sampling::DrawOptions;

const RUNS: usize = 200;

/// Models whose kernels are shared by many runs, so that most come from the cache.
const MODELS: [&str; 8] = [
    "--n_head=2 --n_embd=64 --dtype=bfloat16 --bias=False",
    "--n_head=4 --n_embd=128 --dtype=bfloat16 --bias=True --dropout=0.1",
    "--n_head=2 --n_embd=96 --dtype=float16 --bias=False",
    "--n_head=4 --n_embd=128 --dtype=float16 --bias=True",
    "--n_head=2 --n_embd=64 --dtype=float32 --bias=False",
    "--n_head=3 --n_embd=96 --dtype=float32 --bias=True --dropout=0.2",
    "--n_head=4 --n_embd=128 --dtype=bfloat16 --bias=False --residual=float32",
    "--n_head=3 --n_embd=51 --dtype=bfloat16 --bias=True",
];

fn pick<'a>(draws: &mut Stream, words: &[&'a str]) -> &'a str {
    words[draws.below(words.len() as u64) as usize]
}

fn random_run(draws: &mut Stream) -> (RunSpec, Dims) {
    let mut arguments: Vec<String> =
        pick(draws, &MODELS).split(' ').map(ToString::to_string).collect();
    arguments.extend([
        "--dataset=x".to_string(),
        format!("--n_layer={}", 1 + draws.below(6)),
        format!("--block_size={}", pick(draws, &["64", "100", "256"])),
        format!("--batch_size={}", 1 + draws.below(48)),
        format!("--gradient_accumulation_steps={}", 1 + draws.below(4)),
        format!("--eval_batch_size={}", draws.below(30)),
        format!("--optimizer_state={}", pick(draws, &["float32", "bfloat16", "auto"])),
        format!("--offload={}", pick(draws, &["False", "optimizer", "activations", "auto"])),
        format!("--grad_checkpoint={}", pick(draws, &["auto", "auto", "True", "False"])),
    ]);
    let nothing = |_: &str| Err(std::io::Error::other("no files here"));
    let world = World { read: &nothing, unix_time: 0.0 };
    let settings = Settings::read(Command::Train, &arguments, &world).unwrap();
    let (run, _) = resolve(&settings, &Environment::default()).unwrap();
    let dims = run.dims([65, 512][draws.below(2) as usize]).unwrap();
    (run, dims)
}

/// Plans within the budget and loads. Plans again if code takes more memory than planned.
fn load(
    gpu: &Gpu,
    run: &RunSpec,
    dims: Dims,
    mut machine: Machine,
) -> Result<Option<(Planned, CudaBackend)>, String> {
    // The library loads code for each new shape and keeps it, so memory use outside the arena
    // grows.
    for _ in 0..12 {
        let planned = match plan_for(run, dims, &machine) {
            Ok(planned) => planned,
            Err(SearchError::DoesNotFit(_)) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let options = CudaOptions { budget: Some(machine.budget.get()), ..CudaOptions::new(gpu) };
        let proved = verify(planned.plan.clone(), gpu.scratch()).unwrap();
        match CudaBackend::new(gpu, proved, &options) {
            Ok(backend) => return Ok(Some((planned, backend))),
            Err(LoadError::OverBudget { outside_arena, .. }) => {
                let more = machine.hardware.context.get() + (1 << 20);
                machine.hardware.context = Bytes::new(outside_arena.max(more)).unwrap();
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Err("planned again twelve times".to_string())
}

fn rows(count: u64, positions: u64, vocabulary: u64) -> Rows {
    let mut rows = Rows::new(count, positions).unwrap();
    let mut stream = Stream::new(1, Purpose::TrainBatch, 0);
    rows.tokens.fill_with(|| stream.below(vocabulary) as i32);
    rows.targets.fill_with(|| stream.below(vocabulary) as i32);
    rows
}

/// Runs everything once. Returns how much of the budget is left.
fn execute(
    (gpu, budget): (&Gpu, u64),
    (planned, backend): (Planned, CudaBackend),
    run: &RunSpec,
    dims: Dims,
) -> Result<u64, String> {
    let mut engine = Engine::new(Box::new(backend), planned.program, dims);
    let said = |error: train::TrainError| error.to_string();
    engine.initialise(&mut rng::torch::Generator::new(1)).map_err(said)?;
    let step = StepInputs {
        lr: 1e-3,
        grad_clip: 1.0,
        inverse_tokens: 1.0 / run.tokens_per_iteration() as f32,
        ..StepInputs::default()
    };
    let sequences = run.sequences_per_iteration();
    engine
        .train_rows(&rows(sequences, run.block_size, dims.vocab_size), &step, &mut |_| true)
        .map_err(said)?;
    engine.update(&step).map_err(said)?;
    let state = engine.state().map_err(said)?;
    let losses = engine.row_losses(sequences).map_err(said)?;
    let mean = losses.iter().sum::<f32>() / (sequences * run.block_size) as f32;
    // New weights know nothing, so the loss is that of a guess.
    let guess = (dims.vocab_size as f32).ln();
    if !(state.grad_norm.is_finite() && (mean - guess).abs() < 0.3) {
        return Err(format!("loss {mean}, {guess} expected; norm {}", state.grad_norm));
    }
    let eval = rows(run.eval_batch_size, run.eval_block_size, dims.vocab_size);
    engine.eval_rows(&eval, &mut |_| true).map_err(said)?;
    let options = DrawOptions { temperature: 1.0, top_k: 0, top_p: 1.0 };
    let request =
        SampleRequest { prompt: vec![1, 2, 3], max_new_tokens: 3, options, seed: 1, index: 0 };
    generate(&mut engine, &request, |_| true).map_err(said)?;
    let held = gpu.held_bytes().map_err(|error| error.to_string())?;
    match held <= budget {
        true => Ok(budget - held),
        false => Err(format!("{held} bytes held, {budget} allowed")),
    }
}

#[test]
fn two_hundred_random_plans_stay_inside_their_budgets() {
    let Some(gpu) = gpu_alone() else { return };
    let mut draws = Stream::new(20, Purpose::Sample, 0);
    let at_start = gpu.held_bytes().unwrap();
    let (mut ran, mut refused, mut closest) = (0, 0, u64::MAX);
    while ran < RUNS {
        let (run, dims) = random_run(&mut draws);
        let budget = at_start + (24 << 20) + draws.below(400 << 20);
        let table = Card::find("RTX 4070").unwrap().hardware(false);
        let context = Bytes::new(at_start + (16 << 20)).unwrap();
        let warpgroups = gpu.scratch().warpgroups;
        let hardware = Hardware { context, warpgroups, ..table };
        let bytes = |count| Bytes::new(count).unwrap();
        let machine = Machine::gpu(hardware, &run, bytes(budget), bytes(4 << 30));
        let Some(loaded) = load(&gpu, &run, dims, machine).unwrap() else {
            refused += 1;
            continue;
        };
        let what = format!("run {ran}: {dims:?} {:?} in {budget}", loaded.0.cut());
        match execute((&gpu, budget), loaded, &run, dims) {
            Ok(left) => closest = closest.min(left),
            Err(error) => panic!("{what}: {error}"),
        }
        ran += 1;
    }
    println!("{ran} plans ran, {refused} were refused; the closest left {closest} bytes");
}
