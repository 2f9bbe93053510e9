//! No panic on any input: what the plan does not allow is an error that carries the number.

use crate::fixture::{ids_to_bytes, setup};
use fitgpt_cpu::{CpuBackend, CpuOptions};
use model::gpt2::GenerateSpec;
use plan::{Backend, BackendError, Bytes, Plan, StepInputs};

#[test]
fn tokens_and_targets_outside_the_vocabulary() {
    let setup = setup();
    for (bad, in_targets, want) in [
        (83, false, "token id is 83, it must be 0 or more and below 83"),
        (-1, false, "token id is -1, it must be 0 or more and below 83"),
        (83, true, "target is 83, it must be 0 or more and below 83"),
        (-2, true, "target is -2, it must be 0 or more and below 83"),
        (i32::MAX, true, "target is 2147483647, it must be 0 or more and below 83"),
    ] {
        let mut run = setup.run(CpuOptions::new(2));
        let slice = run.program.train[0].clone();
        let good = vec![1; 7 * 90];
        let mut wrong = good.clone();
        wrong[400] = bad;
        let (tokens, targets) = if in_targets { (&good, &wrong) } else { (&wrong, &good) };
        run.backend.write(slice.tokens, &ids_to_bytes(tokens)).unwrap();
        run.backend.write(slice.targets, &ids_to_bytes(targets)).unwrap();
        let error = run.backend.run(slice.segment, &StepInputs::default()).unwrap_err();
        assert_eq!(error.to_string(), want);
    }
}

#[test]
fn rows_and_positions_beyond_the_plan() {
    let mut setup = setup();
    setup.generate = Some(GenerateSpec { rows: 1, prefill: vec![8] });
    let mut run = setup.run(CpuOptions::new(2));
    let generate = run.program.generate.clone().unwrap();
    let eval = run.program.eval[0].segment;
    for (segment, inputs) in [
        (eval, StepInputs { first_row: 1, ..StepInputs::default() }),
        (eval, StepInputs { first_row: u64::MAX, ..StepInputs::default() }),
        (generate.prefill[0].segment, StepInputs { position: 8, ..StepInputs::default() }),
        (generate.decode.segment, StepInputs { position: 90, ..StepInputs::default() }),
        (generate.decode.segment, StepInputs { position: u64::MAX, ..StepInputs::default() }),
    ] {
        let error = run.backend.run(segment, &inputs).unwrap_err();
        assert!(matches!(error, BackendError::BadInput { .. }), "{error}");
    }
}

#[test]
fn host_buffers_of_the_wrong_size_and_tensors_without_a_place() {
    let mut run = setup().run(CpuOptions::new(1));
    let tokens = run.program.train[0].tokens;
    let error = run.backend.write(tokens, &[0; 4]).unwrap_err().to_string();
    assert!(error.contains("has 2520 bytes, the host gave 4"), "{error}");
    let inner = run.backend.plan().schedule.tensors.find("h.0.qkv").unwrap();
    let error = run.backend.read(inner, &mut [0; 4]).unwrap_err().to_string();
    assert!(error.contains("only while its segment runs"), "{error}");
}

#[test]
fn plans_that_are_not_sound_or_do_not_fit() {
    let program = setup().program();
    let mut plan = Plan::new(program.schedule.clone()).unwrap();
    let place = plan.layouts[0].placements.last_mut().unwrap();
    place.offset = Bytes::ZERO;
    let error = CpuBackend::new(plan, CpuOptions::new(1)).map(|_| ()).unwrap_err();
    assert!(matches!(error, BackendError::BadPlan { .. }), "{error}");

    // A workspace for three threads does not serve four.
    let plan = Plan::new(program.schedule).unwrap();
    let error = CpuBackend::new(plan, CpuOptions::new(4)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("on 4 threads in a workspace of"), "{error}");
}
