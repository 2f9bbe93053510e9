//! Prints the logits that a model computes on the CPU, for comparisons with other programs.
//!
//! `logits CHECKPOINT ID ...` prints, for every beginning of the ids, a line with a JSON list.
//! `logits CHECKPOINT --greedy=N ID ...` prints the N most likely tokens after the ids.

use cpu::{CpuBackend, CpuOptions, CpuScratch};
use fitgpt_train::engine::Engine;
use fitgpt_train::generate::next_logits;
use fitgpt_train::save;
use fitgpt_train::setup::SampleSetup;
use plan::Bytes;
use plan::hardware::Hardware;
use search::{Machine, plan_for_sample};
use spec::{Command, Environment, Settings, World};
use std::error::Error;
use std::rc::Rc;

const THREADS: usize = 2;

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
    let mut setup = SampleSetup::new(settings(name)?, &Environment::default(), None)?;
    let planned = plan_for_sample(&setup.spec, setup.dims, &machine()?)?;
    let proved = plan::verify(planned.plan, CpuScratch { threads: THREADS })
        .map_err(|defects| format!("{defects:?}"))?;
    let backend = CpuBackend::new(proved, CpuOptions::new(THREADS))?;
    let mut engine = Engine::new(Box::new(backend), planned.program, setup.dims);
    let mut buffer = save::buffer(&planned.host)?;
    setup.saved.load(&mut engine, &mut buffer)?;
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

fn settings(name: &str) -> Result<Settings, Box<dyn Error>> {
    let nothing = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let world = World { read: &nothing, unix_time: 0.0 };
    let typed = [format!("--out_dir={name}"), "--device=cpu".to_owned()];
    Ok(Settings::read(Command::Sample, &typed, &world)?)
}

/// A CPU with memory to spare.
fn machine() -> Result<Machine, Box<dyn Error>> {
    let plenty = Bytes::new(1 << 40).ok_or("1 TiB is too much")?;
    let hardware = Hardware {
        name: "CPU".to_owned(),
        memory: plenty,
        context: Bytes::ZERO,
        matmul: 1e11,
        attention: 3e10,
        bandwidth: 2e10,
        link: 1e10,
        launch: 2e-5,
        multiprocessors: 0,
        warpgroups: false,
        times: plan::op_times::OpTimes::default(),
    };
    let scratch = Rc::new(CpuScratch { threads: THREADS });
    Ok(Machine { hardware, scratch, budget: plenty, host: None, compute: plan::Dtype::F32 })
}
