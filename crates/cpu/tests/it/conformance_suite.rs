//! The cases and goldens that every backend must pass, on every instruction set of this CPU.

use crate::fixture::instruction_sets;
use conformance::{Failure, Summary, check_finite_differences, check_models, check_ops};
use fitgpt_cpu::{CpuBackend, CpuOptions, CpuScratch};
use plan::{Backend, BackendError, Plan, Scratch, verify};
use std::rc::Rc;

const THREADS: usize = 2;

type Check = fn(conformance::LoadBackend<'_>, &Rc<dyn Scratch>) -> Result<Summary, Vec<Failure>>;

fn passes(check: Check) {
    let scratch: Rc<dyn Scratch> = Rc::new(CpuScratch { threads: THREADS });
    for isa in instruction_sets() {
        let load = |plan: Plan| -> Result<Box<dyn Backend>, BackendError> {
            let options = CpuOptions { isa, poison: true, ..CpuOptions::new(THREADS) };
            let proved = verify(plan, CpuScratch { threads: THREADS })?;
            Ok(Box::new(CpuBackend::new(proved, options)?))
        };
        match check(&load, &scratch) {
            Ok(summary) => println!("{}: {summary}", isa.name()),
            Err(failures) => {
                let lines: Vec<String> = failures.iter().map(ToString::to_string).collect();
                panic!("{}:\n{}", isa.name(), lines.join("\n"));
            }
        }
    }
}

#[test]
fn every_op_matches_pytorch() {
    passes(check_ops);
}

#[test]
fn every_op_matches_finite_differences() {
    passes(check_finite_differences);
}

#[test]
fn whole_models_match_pytorch() {
    passes(check_models);
}
