//! A CPU with memory to spare, and a saved model on it. Also `examples/logits.rs` uses this file.

use cpu::{CpuBackend, CpuOptions, CpuScratch};
use fitgpt_train::engine::Engine;
use fitgpt_train::save;
use fitgpt_train::setup::SampleSetup;
use plan::Bytes;
use plan::hardware::Hardware;
use search::{Machine, plan_for_sample};
use spec::{Command, Environment, Settings, World};
use std::error::Error;
use std::rc::Rc;

pub const THREADS: usize = 2;

/// The CPU with memory to spare.
pub fn machine() -> Result<Machine, Box<dyn Error>> {
    let plenty = Bytes::new(1 << 40).ok_or("1 TiB is too much")?;
    let hardware = Hardware {
        name: "test".to_owned(),
        memory: plenty,
        context: Bytes::ZERO,
        matmul: 1e11,
        attention: 3e10,
        bandwidth: 2e10,
        link: 1e10,
        network: plan::hardware::Network::NONE,
        launch: 2e-5,
        copy_wait: 0.0,
        multiprocessors: 0,
        warpgroups: false,
        times: plan::op_times::OpTimes::default(),
    };
    let scratch = Rc::new(CpuScratch { threads: THREADS });
    Ok(Machine { hardware, scratch, budget: plenty, host: None, compute: plan::Dtype::F32 })
}

/// The model that a name means, loaded to sample from.
pub fn sampling_engine(name: &str) -> Result<Engine, Box<dyn Error>> {
    let nothing = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let world = World { read: &nothing, unix_time: 0.0 };
    let typed = [format!("--out_dir={name}"), "--device=cpu".to_owned()];
    let settings = Settings::read(Command::Sample, &typed, &world)?;
    let mut setup = SampleSetup::new(settings, &Environment::default(), None)?;
    let planned = plan_for_sample(&setup.spec, setup.dims, &machine()?)?;
    let proved = plan::verify(planned.plan, CpuScratch { threads: THREADS })
        .map_err(|defects| format!("{defects:?}"))?;
    let backend = CpuBackend::new(proved, CpuOptions::new(THREADS))?;
    let mut engine = Engine::new(Box::new(backend), planned.program, setup.dims);
    let mut buffer = save::buffer(&planned.host)?;
    setup.saved.load(&mut engine, &mut buffer)?;
    Ok(engine)
}
