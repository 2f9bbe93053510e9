//! Machines that plans are made for.

use fitgpt_search::Machine;
use plan::hardware::Card;
use plan::{Bytes, Dtype, GpuScratch};
use std::rc::Rc;

/// This many GiB.
pub fn gib(gib: f64) -> Bytes {
    Bytes::new((gib * (1u64 << 30) as f64) as u64).unwrap()
}

/// A card with this much memory and this compute format.
pub fn card(name: &str, memory: f64, compute: Dtype) -> Machine {
    let hardware = Card::find(name).unwrap().hardware(false);
    let scratch = Rc::new(GpuScratch { warpgroups: hardware.warpgroups });
    let (budget, host) = (gib(memory), Some(gib(64.0)));
    Machine { hardware, scratch, budget, host, compute }
}
