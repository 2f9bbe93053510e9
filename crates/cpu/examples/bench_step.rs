//! Times whole training steps (forward, backward, clip, AdamW) of a GPT-2 on the CPU and prints one
//! JSON line with the median. `cargo xtask bench` compares it with nanoGPT.

use fitgpt_cpu::{CpuBackend, CpuOptions, CpuScratch};
use model::{
    AdamW, Dims, Draft, Gpt2, ModelSpec, Optimizer, OptimizerSpec, Program, ProgramSpec, TrainSpec,
    Types,
};
use plan::ops::{GeluKind, Scaling};
use plan::{Backend, BackendError, Plan, StepInputs, StepState, verify};
use std::collections::BTreeMap;
use std::error::Error;
use std::rc::Rc;
use std::time::Instant;

const FLAGS: [(&str, u64); 11] = [
    ("n_layer", 6),
    ("n_head", 6),
    ("n_embd", 384),
    ("block_size", 256),
    ("vocab", 65),
    ("batch_size", 64),
    ("threads", 2),
    ("steps", 5),
    ("warmup", 1),
    ("slice", 0),
    ("head_chunk", 4096),
];

fn flags() -> Result<BTreeMap<&'static str, u64>, Box<dyn Error>> {
    let mut values: BTreeMap<&'static str, u64> = FLAGS.into_iter().collect();
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let known = FLAGS.iter().find(|(name, _)| flag.strip_prefix("--") == Some(name));
        let (name, _) = known.ok_or_else(|| format!("unknown flag {flag}"))?;
        let value = arguments.next().ok_or_else(|| format!("{flag} needs a value"))?;
        values.insert(name, value.parse()?);
    }
    Ok(values)
}

fn dims(flags: &BTreeMap<&'static str, u64>) -> Result<Dims, Box<dyn Error>> {
    let dims = Dims {
        n_layer: flags["n_layer"],
        n_head: flags["n_head"],
        n_embd: flags["n_embd"],
        block_size: flags["block_size"],
        vocab_size: flags["vocab"],
        bias: false,
    };
    Ok(dims.checked()?)
}

fn draft(flags: &BTreeMap<&'static str, u64>, dims: Dims) -> Result<Draft, Box<dyn Error>> {
    let slice = if flags["slice"] == 0 { flags["batch_size"] } else { flags["slice"] };
    let scratch = CpuScratch { threads: flags["threads"] as usize };
    let optimizer = OptimizerSpec {
        rule: Optimizer::AdamW(AdamW::NANOGPT),
        scaling: Scaling::Off,
        offload: None,
    };
    let spec = ProgramSpec {
        model: ModelSpec {
            dims,
            dropout: 0.0,
            architecture: Gpt2 { gelu: GeluKind::Erf }.into(),
            types: Types::F32,
        },
        train: Some(TrainSpec {
            sharing: model::Sharing::NONE,
            slices: vec![slice],
            positions: dims.block_size,
            head_chunk: flags["head_chunk"],
            loss_rows: flags["batch_size"],
            levels: Vec::new(),
            optimizer,
        }),
        eval: None,
        generate: None,
    };
    Ok(Draft::new(&spec, Rc::new(scratch))?)
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn initialise(
    backend: &mut CpuBackend,
    program: &Program,
    dims: &Dims,
) -> Result<(), Box<dyn Error>> {
    let mut generator = rng::torch::Generator::new(1337);
    let table: Vec<_> = program.parameters.iter().map(|p| p.param.clone()).collect();
    let mut failed = None;
    program.architecture.initialise(dims, &table, &mut generator, |index, first, values| {
        let weight = program.parameters[index].weight;
        let result = backend.write_at(weight, first * 4, &bytes_of(values));
        failed = failed.take().or(result.err());
    });
    let state = StepState::initial(1.0).to_words();
    let words: Vec<u8> = state.iter().flat_map(|word| word.to_le_bytes()).collect();
    backend.write(program.state, &words)?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}

fn main() -> Result<(), Box<dyn Error>> {
    let flags = flags()?;
    let dims = dims(&flags)?;
    let Draft { program, schedule, .. } = draft(&flags, dims)?;
    let plan = Plan::new(schedule)?;
    let options = CpuOptions::new(flags["threads"] as usize);
    let proved = verify(plan, CpuScratch { threads: options.threads });
    let mut backend = CpuBackend::new(proved.map_err(BackendError::from)?, options)?;
    initialise(&mut backend, &program, &dims)?;
    let (rows, positions) = (flags["batch_size"], flags["block_size"]);
    let slice = &program.train[0];
    let mut stream = rng::Stream::new(1, rng::Purpose::TrainBatch, 0);
    let ids: Vec<u8> = (0..slice.rows * positions + 1)
        .flat_map(|_| (stream.below(flags["vocab"]) as i32).to_le_bytes())
        .collect();
    let mut times = Vec::new();
    let mut loss = vec![0u8; rows as usize * 4];
    let tokens = rows * positions;
    for step in 0..flags["warmup"] + flags["steps"] {
        let start = Instant::now();
        for first_row in (0..rows).step_by(slice.rows as usize) {
            backend.write(slice.tokens, &ids[..ids.len() - 4])?;
            backend.write(slice.targets, &ids[4..])?;
            let inverse_tokens = 1.0 / tokens as f32;
            let inputs = StepInputs { first_row, inverse_tokens, ..StepInputs::default() };
            backend.run(slice.segment, &inputs)?;
        }
        let inputs = StepInputs { lr: 6e-4, grad_clip: 1.0, ..StepInputs::default() };
        backend.run(program.update.ok_or("no update segment")?, &inputs)?;
        backend.read(program.row_loss.ok_or("no losses")?, &mut loss)?;
        let (words, _) = loss.as_chunks::<4>();
        let sum: f64 = words.iter().map(|&word| f64::from(f32::from_le_bytes(word))).sum();
        eprintln!("step {step}: loss {:.4}, {:?}", sum / tokens as f64, start.elapsed());
        if step >= flags["warmup"] {
            times.push(start.elapsed().as_secs_f64());
        }
    }
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    println!(
        concat!(
            "{{\"who\":\"fitgpt\",\"tokens_per_second\":{:.1},\"ms_per_iteration\":{:.2},",
            "\"arena_bytes\":{},\"isa\":\"{}\",\"threads\":{}}}"
        ),
        tokens as f64 / median,
        median * 1e3,
        backend.arena_bytes().get(),
        options.isa.name(),
        options.threads,
    );
    Ok(())
}
