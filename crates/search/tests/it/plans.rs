//! From settings to a plan that is proved sound: training, evaluation alone, sampling.

use crate::typing::run_of;
use fitgpt_search::{Machine, Planned, plan_for, plan_for_sample};
use plan::hardware::Card;
use plan::verify::defects;
use plan::{Bytes, NoScratch, Plan};
use spec::RunSpec;
use std::rc::Rc;

fn run(arguments: &[&str]) -> RunSpec {
    run_of(arguments).unwrap()
}

/// A machine that computes in f32 and has unlimited memory.
fn spacious() -> Machine {
    let hardware = Card::find("H200").unwrap().hardware(true);
    let budget = Bytes::new(1 << 50).unwrap();
    Machine { hardware, scratch: Rc::new(NoScratch), budget, host: None, compute: plan::Dtype::F32 }
}

fn planned(run: &RunSpec, vocab_size: u64) -> (model::Program, Plan) {
    let dims = run.dims(vocab_size).unwrap();
    let Planned { program, plan, .. } = plan_for(run, dims, &spacious()).unwrap();
    assert_eq!(defects(&plan, &NoScratch), []);
    (program, plan)
}

#[test]
fn losses_of_an_iteration_and_of_an_evaluation_have_room() {
    let rows = |arguments: &[&str]| {
        let (program, plan) = planned(&run(arguments), 65);
        plan.schedule.tensors.get(program.row_loss.unwrap()).shape.elements()
    };
    assert_eq!(rows(&["--batch_size=4", "--gradient_accumulation_steps=100"]), 400);
    assert_eq!(rows(&["--batch_size=4", "--eval_batch_size=8", "--eval_iters=30"]), 8);
}

#[test]
fn evaluation_alone_has_no_gradients() {
    let arguments = ["--eval_only=True", "--eval_block_size=64"];
    let (program, plan) = planned(&run(&arguments), 65);
    assert!(program.train.is_empty() && program.update.is_none());
    assert!(program.parameters.iter().all(|parameter| parameter.gradient.is_none()));
    assert!(plan.arena_bytes < planned(&run(&[]), 65).1.arena_bytes);
}

#[test]
fn prompts_of_every_length_have_a_prefill() {
    for (block_size, want) in
        [(1, &[1u64] as &[u64]), (100, &[16, 32, 64, 100]), (128, &[16, 32, 64, 128])]
    {
        let block = format!("--block_size={block_size}");
        let run = run(&[&block, "--n_layer=1", "--n_embd=16", "--n_head=2", "--batch_size=1"]);
        let dims = run.dims(65).unwrap();
        let planned = plan_for_sample(&run, dims, &spacious()).unwrap();
        let (program, plan) = (planned.program, planned.plan);
        assert_eq!(defects(&plan, &NoScratch), []);
        let lengths = program.generate.unwrap().prefill;
        let lengths: Vec<u64> = lengths.iter().map(|segment| segment.positions).collect();
        assert_eq!(lengths, want);
        assert!(program.train.is_empty() && program.eval.is_empty());
    }
}

#[test]
fn impossible_sizes_are_refused() {
    let run = run(&["--n_embd=2147483648", "--n_head=1", "--batch_size=4"]);
    let dims = run.dims(2_147_483_648).unwrap();
    let message = plan_for(&run, dims, &spacious()).unwrap_err().to_string();
    assert!(message.starts_with("no plan: ") && !message.contains('\n'), "{message}");
    let short = model::Dims { block_size: 64, ..self::run(&[]).dims(65).unwrap() };
    let message = plan_for(&self::run(&[]), short, &spacious()).unwrap_err().to_string();
    assert_eq!(message, "block_size=256: the model has 64 positions; use at most 64");
}
