//! Prints the logits that a model computes on the CPU, for comparisons with other programs.
//!
//! `logits CHECKPOINT ID ...` prints, for every beginning of the ids, a line with a JSON list.
//! `logits CHECKPOINT --greedy=N ID ...` prints the N most likely tokens after the ids.

#[path = "../tests/it/on_cpu.rs"]
mod on_cpu;

use fitgpt_train::generate::next_logits;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, ids @ ..] = &arguments[..] else {
        return Err("logits CHECKPOINT ID ...".into());
    };
    let (count, ids) = match ids.first().and_then(|first| first.strip_prefix("--greedy=")) {
        Some(count) => (count.parse()?, &ids[1..]),
        None => (0, ids),
    };
    let mut ids: Vec<i32> = ids.iter().map(|id| id.parse()).collect::<Result<_, _>>()?;
    let mut engine = on_cpu::sampling_engine(name)?;
    for _ in 0..count {
        let logits = next_logits(&mut engine, &ids)?;
        let best = (0..logits.len()).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
        ids.push(best.unwrap_or(0) as i32);
    }
    if count > 0 {
        println!("{}", serde_json::Value::from(&ids[ids.len() - count..]));
        return Ok(());
    }
    for end in 1..=ids.len() {
        println!("{}", serde_json::Value::from(next_logits(&mut engine, &ids[..end])?));
    }
    Ok(())
}
