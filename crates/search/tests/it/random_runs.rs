//! 300 random runs. A planned run is within its budget. A refused run could not have been planned:
//! at every level of recompute, more bytes are alive at once than are available.

use crate::typing::run_of;
use fitgpt_search::{Machine, SearchError, StateOptions, plan_for};
use model::{Dims, Draft, Level, ModelSpec, OptimizerSpec, ProgramSpec, TrainSpec};
use plan::hardware::{CARDS, Card};
use plan::ops::Scaling;
use plan::verify::defects;
use plan::{Bytes, Plan};
use spec::RunSpec;
use std::rc::Rc;

/// A linear congruential generator: the same runs every time.
struct Draws(u64);

impl Draws {
    fn uniform_f64(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.uniform_f64() * n as f64) as u64
    }
}

/// A random number, evenly distributed in its logarithm.
fn spread(draws: &mut Draws, least: f64, most: f64) -> f64 {
    least * (most / least).powf(draws.uniform_f64())
}

fn random_run(draws: &mut Draws) -> (RunSpec, Dims) {
    let n_head = 1 + draws.below(16);
    let head = [16, 32, 48, 64, 80][draws.below(5) as usize];
    let word = |draws: &mut Draws, words: &[&str]| {
        words[draws.below(words.len() as u64) as usize].to_string()
    };
    let arguments = [
        "--dataset=x".to_string(),
        format!("--n_layer={}", 1 + draws.below(24)),
        format!("--n_head={n_head}"),
        format!("--n_embd={}", n_head * head),
        format!("--block_size={}", spread(draws, 16.0, 2048.0) as u64),
        format!("--batch_size={}", spread(draws, 1.0, 200.0) as u64),
        format!("--gradient_accumulation_steps={}", spread(draws, 1.0, 40.0) as u64),
        format!("--eval_batch_size={}", draws.below(70)),
        format!("--bias={}", word(draws, &["True", "False"])),
        format!("--dropout={}", word(draws, &["0.0", "0.1"])),
        format!("--dtype={}", word(draws, &["float32", "bfloat16", "float16"])),
        format!("--residual={}", word(draws, &["auto", "float32"])),
        format!("--optimizer_state={}", word(draws, &["float32", "bfloat16", "auto"])),
        format!("--offload={}", word(draws, &["False", "optimizer", "activations", "auto"])),
        format!("--grad_checkpoint={}", word(draws, &["auto", "auto", "auto", "True", "False"])),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let run = run_of(&arguments).unwrap();
    let vocabulary = spread(draws, 60.0, 60_000.0) as u64;
    let dims = run.dims(vocabulary).unwrap();
    (run, dims)
}

fn bytes(count: f64) -> Bytes {
    Bytes::new(count as u64).unwrap()
}

/// Bytes alive at the fullest step of a slice of one sequence with these levels, which no layout
/// can undercut. Computed from the model alone, without the planner.
fn bound(
    run: &RunSpec,
    dims: Dims,
    machine: &Machine,
    state_options: StateOptions,
    levels: &[Level],
) -> u64 {
    let optimizer = OptimizerSpec {
        rule: run.optimizer(state_options.format),
        scaling: Scaling::Off,
        offload: state_options.offload.then_some(1 << 23),
    };
    let train = TrainSpec {
        sharing: model::Sharing::NONE,
        slices: vec![1],
        positions: run.block_size,
        head_chunk: 1,
        loss_rows: run.sequences_per_iteration(),
        levels: levels.to_vec(),
        optimizer,
    };
    let types = machine.types(run);
    let model =
        ModelSpec { dims, dropout: run.dropout as f32, architecture: run.architecture(), types };
    let eval = Some(model::EvalSpec {
        slices: vec![1],
        positions: run.eval_block_size,
        head_chunk: 1,
        loss_rows: run.eval_batch_size,
    });
    let prefill = vec![dims.block_size];
    let generate = Some(model::GenerateSpec { rows: 1, prefill });
    let spec = ProgramSpec { model, train: Some(train), eval, generate };
    let draft = Draft::new(&spec, Rc::clone(&machine.scratch)).unwrap();
    Plan::new(draft.schedule).unwrap().lower_bound().get()
}

fn refusal_is_right(run: &RunSpec, dims: Dims, machine: &Machine, draws: &mut Draws) {
    let room = machine.budget.get().saturating_sub(machine.hardware.context.get());
    let allowed: &[Level] = match run.grad_checkpoint {
        spec::GradCheckpoint::Auto => &Level::ALL,
        spec::GradCheckpoint::Always => &[Level::R6],
        spec::GradCheckpoint::Never => &[Level::R0],
    };
    let layers = dims.n_layer as usize;
    let mut vectors: Vec<Vec<Level>> = allowed.iter().map(|&level| vec![level; layers]).collect();
    for _ in 0..2 {
        let mut mixed: Vec<Level> =
            (0..layers).map(|_| allowed[draws.below(allowed.len() as u64) as usize]).collect();
        mixed.sort_unstable_by(|a, b| b.cmp(a));
        vectors.push(mixed);
    }
    for state_options in StateOptions::permitted(run, machine) {
        for levels in &vectors {
            let least = bound(run, dims, machine, state_options, levels);
            assert!(least > room, "{run:?} {dims:?}: {levels:?} needs {least} of {room}");
        }
    }
}

#[test]
fn plans_keep_to_their_budget_and_refusals_are_right() {
    let mut draws = Draws(77);
    let (mut planned_runs, mut refused_runs, mut tight) = (0, 0, 0);
    for round in 0..300 {
        let (run, dims) = random_run(&mut draws);
        let gpu: &Card = &CARDS[draws.below(CARDS.len() as u64) as usize];
        let single = run.dtype == spec::RequestedDtype::Float32;
        let spacious = Machine::gpu(gpu.hardware(single), &run, bytes(1e15), bytes(1e15));
        let free = plan_for(&run, dims, &spacious).unwrap().device_bytes(&spacious) as f64;
        // Around what the run would use freely: some fit easily, some barely, some not at all.
        let budget = bytes(free * spread(&mut draws, 0.15, 1.3));
        let machine = Machine { budget, ..spacious };
        match plan_for(&run, dims, &machine) {
            Ok(planned) => {
                planned_runs += 1;
                tight += u32::from((budget.get() as f64) < free);
                assert_eq!(defects(&planned.plan, &*machine.scratch), [], "{round}");
                let needed = planned.device_bytes(&machine);
                assert!(needed <= budget.get(), "{round}: {needed} of {}", budget.get());
                let cut = planned.cut().unwrap();
                let sequences = run.sequences_per_iteration();
                assert_eq!(cut.slices.iter().sum::<u64>(), sequences, "{round}");
            }
            Err(SearchError::DoesNotFit(refusal)) => {
                refused_runs += 1;
                assert!(refusal.missing > Bytes::ZERO && !refusal.largest.is_empty());
                refusal_is_right(&run, dims, &machine, &mut draws);
            }
            Err(other) => panic!("{round}: {other}"),
        }
    }
    println!(
        "{planned_runs} planned ({tight} in less than they would take), {refused_runs} refused"
    );
    assert!(planned_runs > 100 && refused_runs > 30 && tight > 50);
}
