//! Random runs and machines to plan them for.

use crate::draws::{between, pick, spread};
use model::Dims;
use plan::hardware::{CARDS, Hardware};
use plan::op_times::OpTimes;
use plan::{Bytes, Dtype};
use rng::Stream;
use search::Machine;
use spec::{
    Command, Environment, Offload, OptimizerState, RequestedDtype, Residual, RunSpec, Settings,
    World, resolve,
};
use std::rc::Rc;

/// A random run and its command-line arguments.
pub struct Drawn {
    arguments: Vec<String>,
    vocabulary: u64,
    pub run: RunSpec,
    pub dims: Dims,
}

impl Drawn {
    fn new(arguments: Vec<String>, vocabulary: u64) -> Result<Drawn, String> {
        let nothing = |_: &str| Err(std::io::ErrorKind::NotFound.into());
        let world = World { read: &nothing, unix_time: 0.0 };
        let settings = Settings::read(Command::Train, &arguments, &world);
        let settings = settings.map_err(|error| error.to_string())?;
        let run = resolve(&settings, &Environment::default()).map_err(|error| error.to_string())?.0;
        let dims = run.dims(vocabulary).map_err(|error| error.to_string())?;
        Ok(Drawn { arguments, vocabulary, run, dims })
    }

    /// The arguments as one line.
    pub fn typed(&self) -> String {
        format!("{}, vocabulary {}", self.arguments.join(" "), self.vocabulary)
    }

    /// The same run with more arguments.
    pub fn with(&self, more: &str) -> Result<Drawn, String> {
        let more = more.split(' ').map(str::to_owned);
        Drawn::new(self.arguments.iter().cloned().chain(more).collect(), self.vocabulary)
    }

    /// The machine for the number format that this run uses.
    pub fn machine_like(&self, machine: &Machine) -> Machine {
        match machine.host {
            None => machine.clone(),
            Some(host) => Machine::gpu(machine.hardware.clone(), &self.run, machine.budget, host),
        }
    }
}

/// Settings other than sizes that affect a plan.
fn settings(draws: &mut Stream) -> Vec<String> {
    let mut word = |key: &str, words: &[&str]| format!("--{key}={}", pick(draws, words));
    vec![
        "--dataset=x".to_owned(),
        word("bias", &["True", "False"]),
        word("dropout", &["0.0", "0.1"]),
        word("residual", Residual::WORDS),
        word("optimizer_state", OptimizerState::WORDS),
        word("offload", Offload::WORDS),
        word("grad_checkpoint", &["auto", "auto", "auto", "True", "False"]),
    ]
}

/// Any model that a user might train.
pub fn any(draws: &mut Stream) -> Result<Drawn, String> {
    let heads = between(draws, 1, 16);
    let head = *pick(draws, &[16, 32, 48, 64, 80]);
    let mut arguments = settings(draws);
    arguments.extend([
        format!("--n_layer={}", between(draws, 1, 24)),
        format!("--n_head={heads}"),
        format!("--n_embd={}", heads * head),
        format!("--block_size={}", spread(draws, 16.0, 2048.0) as u64),
        format!("--batch_size={}", spread(draws, 1.0, 200.0) as u64),
        format!("--gradient_accumulation_steps={}", spread(draws, 1.0, 40.0) as u64),
        format!("--eval_batch_size={}", draws.below(70)),
        format!("--dtype={}", pick(draws, &["float32", "bfloat16", "float16"])),
    ]);
    Drawn::new(arguments, spread(draws, 60.0, 60_000.0) as u64)
}

/// Models whose kernels are shared by many runs, so that a GPU finds most in its cache.
const GPU_MODELS: [&str; 6] = [
    "--n_head=2 --n_embd=64 --dtype=bfloat16",
    "--n_head=4 --n_embd=128 --dtype=bfloat16",
    "--n_head=2 --n_embd=96 --dtype=float16",
    "--n_head=2 --n_embd=64 --dtype=float32",
    "--n_head=3 --n_embd=96 --dtype=float32",
    "--n_head=3 --n_embd=51 --dtype=bfloat16",
];

/// A model that trains quickly.
pub fn small(draws: &mut Stream, for_gpu: bool) -> Result<Drawn, String> {
    let mut arguments = settings(draws);
    if for_gpu {
        arguments.extend(pick(draws, &GPU_MODELS).split(' ').map(str::to_owned));
        arguments.push(format!("--block_size={}", pick(draws, &[64, 100, 256])));
    } else {
        let heads = between(draws, 1, 4);
        let head = between(draws, 2, 20);
        arguments.extend([
            format!("--n_head={heads}"),
            format!("--n_embd={}", heads * head),
            format!("--block_size={}", between(draws, 8, 100)),
            "--dtype=float32".to_owned(),
        ]);
    }
    arguments.extend([
        format!("--n_layer={}", between(draws, 1, 5)),
        format!("--batch_size={}", between(draws, 1, 10)),
        format!("--gradient_accumulation_steps={}", between(draws, 1, 2)),
        format!("--eval_batch_size={}", draws.below(8)),
    ]);
    let vocabulary = if for_gpu { *pick(draws, &[65, 512]) } else { between(draws, 20, 400) };
    Drawn::new(arguments, vocabulary)
}

fn bytes(count: u64) -> Result<Bytes, String> {
    Bytes::new(count).ok_or_else(|| format!("{count} is not a valid number of bytes"))
}

const MUCH: u64 = 1 << 50;

/// This machine's CPU with some threads and practically unlimited memory.
pub fn cpu(threads: usize) -> Result<Machine, String> {
    let hardware = Hardware {
        name: "CPU".to_owned(),
        memory: bytes(MUCH)?,
        context: Bytes::ZERO,
        matmul: 1e11,
        attention: 3e10,
        bandwidth: 2e10,
        link: 2e10,
        network: plan::hardware::Network::NONE,
        launch: 2e-5,
        copy_wait: 0.0,
        multiprocessors: 0,
        warpgroups: false,
        times: OpTimes::default(),
    };
    let scratch = Rc::new(cpu::CpuScratch { threads });
    Ok(Machine { hardware, scratch, budget: bytes(MUCH)?, host: None, compute: Dtype::F32 })
}

/// A card of the table with practically unlimited memory; some hosts have little.
pub fn gpu(draws: &mut Stream, drawn: &Drawn) -> Result<Machine, String> {
    let card = pick(draws, &CARDS);
    let hardware = card.hardware(drawn.run.dtype == RequestedDtype::Float32);
    Ok(Machine::gpu(hardware, &drawn.run, bytes(MUCH)?, bytes(MUCH)?))
}
