//! Text for the page's playground. The page starts this program again as a child (`__playground
//! CHECKPOINT`), which reads one wish from its standard input, computes on the CPU with the lowest
//! priority, and writes a JSON object a line: the start, each token with its probability and its
//! rivals, the end or an error.

use crate::device::Device;
use crate::invocation::{environment, settings};
use crate::screen;
use ::page::{Refused, lowest_priority};
use ::train::TrainError;
use ::train::engine::Engine;
use ::train::found;
use ::train::generate::{SampleRequest, generate_explained};
use ::train::sampling::DrawOptions;
use ::train::save;
use ::train::setup::SampleSetup;
use search::{Machine, plan_for_sample};
use serde_json::{Value, json};
use spec::RequestedDevice;
use std::io::BufRead;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use tokenizer::Tokenizer;

/// The word with which the page calls.
pub const PLAYGROUND: &str = "__playground";

/// Most likely tokens that are shown beside the one that was drawn.
const RIVALS: usize = 8;

/// Most bytes of a wish.
const MOST_WISH: u64 = 1 << 20;

/// The command of the child. One thread: what it computes is waited for by a reader, not a run.
pub fn command(checkpoint: &Path) -> Result<Command, Refused> {
    let program = std::env::current_exe();
    let program = program.map_err(|error| Refused(format!("cannot find fitgpt: {error}")))?;
    let mut command = Command::new(program);
    command.arg(PLAYGROUND).arg(checkpoint).env("OMP_NUM_THREADS", "1");
    Ok(command)
}

/// Runs the child. Errors are lines for the page, not for the terminal.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    lowest_priority();
    let done = generate(arguments);
    if let Err(error) = &done {
        tell(&json!({ "error": error.to_string() }));
    }
    Ok(u8::from(done.is_err()))
}

fn generate(arguments: &[String]) -> Result<(), TrainError> {
    let [checkpoint] = arguments else {
        let what = format!("{PLAYGROUND} is for the page: fitgpt ui");
        return Err(TrainError::Text { what });
    };
    let wish = wish()?;
    let model = found::open(Path::new(checkpoint))?;
    let device_key = ["--device=cpu".to_string()];
    let keys = settings(spec::Command::Sample, &device_key)?;
    let mut setup = SampleSetup::new(keys, &environment(), Some(model))?;
    let text = wish.get("prompt").and_then(Value::as_str).unwrap_or("\n");
    let prompt = setup.tokenizer.encode(text)?;
    if prompt.is_empty() {
        return Err(TrainError::EmptyPrompt);
    }
    let (spec, dims) = (&setup.spec, setup.dims);
    let device = Device::find(RequestedDevice::Cpu, None)?;
    let mut machine = device.machine(spec)?;
    let plan = |machine: &Machine| Ok::<_, TrainError>(plan_for_sample(spec, dims, machine)?);
    let (planned, backend) = device.load_planned(spec, &mut machine, &[], &|_| {}, plan)?;
    let bytes = planned.device_bytes(&machine);
    let mut engine = Engine::new(backend, planned.program, dims);
    let mut buffer = save::buffer(&planned.host)?;
    setup.saved.load(&mut engine, &mut buffer)?;
    drop(buffer);
    let parameters = spec.architecture().reported_parameters(&dims).ok();
    let iteration = setup.saved.document.progress.iteration;
    tell(&json!({ "start": { "iter": iteration, "parameters": parameters, "bytes": bytes } }));
    let request = request(&wish, prompt);
    stream(&mut engine, &setup.tokenizer, &request)
}

/// Writes the tokens. A page that has gone closes the pipe, and nothing more is computed.
fn stream(
    engine: &mut Engine,
    tokenizer: &Tokenizer,
    request: &SampleRequest,
) -> Result<(), TrainError> {
    let (began, mut count) = (Instant::now(), 0u64);
    let mut decoder = tokenizer.decoder();
    request.prompt.iter().for_each(|&id| {
        decoder.push(id);
    });
    generate_explained(engine, request, |id, logits| {
        count += 1;
        let best = most_likely(logits, RIVALS);
        let rivals = best.iter().map(|&(id, p)| json!([tokenizer.decode(&[id]), rounded(p)]));
        let p = rounded(probability(logits, id));
        let rivals: Vec<Value> = rivals.collect();
        tell(&json!({ "token": decoder.push(id), "raw": tokenizer.decode(&[id]), "p": p,
                      "rivals": rivals }))
    })?;
    let rest = decoder.finish();
    let seconds = began.elapsed().as_secs_f64();
    tell(&json!({ "end": { "tokens": count, "seconds": seconds, "rest": rest } }));
    Ok(())
}

fn request(wish: &Value, prompt: Vec<i32>) -> SampleRequest {
    let number = |name: &str, usual: f64| wish.get(name).and_then(Value::as_f64).unwrap_or(usual);
    let whole = |name: &str, usual: u64| wish.get(name).and_then(Value::as_u64).unwrap_or(usual);
    SampleRequest {
        prompt,
        max_new_tokens: whole("tokens", 200),
        options: DrawOptions {
            temperature: number("temperature", 0.8),
            top_k: usize::try_from(whole("top_k", 200)).unwrap_or(0),
            top_p: number("top_p", 1.0),
        },
        seed: whole("seed", 1337),
        index: 0,
    }
}

fn wish() -> Result<Value, TrainError> {
    use std::io::Read;
    let mut line = String::new();
    let read = std::io::stdin().lock().take(MOST_WISH).read_line(&mut line);
    let what = "the page sent no wish".to_string();
    read.map_err(TrainError::Output)?;
    serde_json::from_str(&line).map_err(|_| TrainError::Text { what })
}

/// Writes a line; false if nobody reads it.
fn tell(line: &Value) -> bool {
    screen::out(&format!("{line}\n")).is_ok()
}

/// Four digits are enough to read.
fn rounded(p: f64) -> f64 {
    (p * 1e4).round() / 1e4
}

/// The model's own probability of a token, before temperature, top-k and top-p.
fn probability(logits: &[f32], id: i32) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |logit: f32| f64::from(logit - max).exp();
    let total: f64 = logits.iter().map(|&logit| weight(logit)).sum();
    let own = usize::try_from(id).ok().and_then(|id| logits.get(id));
    own.map_or(0.0, |&logit| weight(logit) / total)
}

/// The most likely tokens and their probabilities, most likely first.
fn most_likely(logits: &[f32], count: usize) -> Vec<(i32, f64)> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    let by_logit = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]);
    if order.len() > count {
        order.select_nth_unstable_by(count, by_logit);
        order.truncate(count);
    }
    order.sort_by(by_logit);
    order.into_iter().map(|id| (id as i32, probability(logits, id as i32))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_add_up_and_rivals_are_in_order() {
        let logits = [1f32.ln(), 2f32.ln(), 5f32.ln(), 2f32.ln()];
        let best = most_likely(&logits, 3);
        assert_eq!(best[0].0, 2);
        assert!((best[0].1 - 0.5).abs() < 1e-6);
        assert_eq!(best.len(), 3);
        let all: f64 = (0..4).map(|id| probability(&logits, id)).sum();
        assert!((all - 1.0).abs() < 1e-9);
        assert_eq!(probability(&logits, -1), 0.0);
        assert_eq!(most_likely(&[0.0], 8).len(), 1);
    }
}
