//! No panic on any input: what the plan does not allow is an error that carries the number.

use crate::fixture::{ids_to_bytes, setup};
use fitgpt_cpu::{CpuBackend, CpuOptions};
use model::gpt2::GenerateSpec;
use plan::ops::{Gelu, GeluKind};
use plan::{
    Backend, BackendError, Bytes, Dtype, Io, Phase, Plan, Role, ScheduleBuilder, Shape, StepInputs,
};

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
    let error = run.backend.read_at(inner, 0, &mut [0; 4]).unwrap_err().to_string();
    assert!(error.contains("only while its segment runs"), "{error}");
    let weights = run.program.parameters[0].weight;
    for offset in [83 * 51 * 4 - 3, u64::MAX] {
        let error = run.backend.write_at(weights, offset, &[0; 4]).unwrap_err().to_string();
        assert!(error.contains("has 16932 bytes, 4 from"), "{error}");
    }
    run.backend.write_at(weights, 83 * 51 * 4 - 4, &[0; 4]).unwrap();
}

/// Inputs and outputs of single segments share bytes: what is stale is refused, not computed with.
#[test]
fn stale_inputs_and_outputs() {
    let mut builder = ScheduleBuilder::new();
    let mut ids = Vec::new();
    for name in ["a", "b"] {
        let mut segment = builder.segment(name, Phase::Train);
        let shape = Shape::new(&[8]).unwrap();
        let mut tensor = |name: &str, io: Io| {
            segment.host_tensor(name, Dtype::F32, shape, Role::Activation, io).unwrap()
        };
        let (x, out) = (tensor("x", Io::Input), tensor("out", Io::Output));
        segment.push(Gelu { x, out, kind: GeluKind::Erf }).unwrap();
        ids.push((segment.finish(), x, out));
    }
    let plan = Plan::new(builder.finish()).unwrap();
    let mut backend = CpuBackend::new(plan, CpuOptions::new(1)).unwrap();
    let [(a, x_a, out_a), (b, x_b, out_b)] = ids[..] else { panic!("two segments") };
    let (step, mut content) = (StepInputs::default(), [0; 32]);
    assert!(backend.run(a, &step).is_err(), "nothing was written");
    backend.write(x_a, &content).unwrap();
    backend.write(x_b, &content).unwrap();
    assert!(backend.run(a, &step).is_err(), "b's input stands there now");
    backend.run(b, &step).unwrap();
    backend.read(out_b, &mut content).unwrap();
    assert!(backend.read(out_a, &mut content).is_err(), "a did not run last");
    assert!(backend.run(b, &step).is_err(), "b's input may be gone");
    assert!(backend.read(x_b, &mut content).is_err() && backend.write(out_b, &content).is_err());
}

#[test]
fn a_refused_run_leaves_the_gradients() {
    let setup = setup();
    let mut run = setup.run(CpuOptions::new(2));
    let slice = run.program.train[0].clone();
    let ids = ids_to_bytes(&vec![1; 7 * 90]);
    run.backend.write(slice.tokens, &ids).unwrap();
    run.backend.write(slice.targets, &ids).unwrap();
    let beyond = StepInputs { first_row: 1, ..StepInputs::default() };
    assert!(run.backend.run(slice.segment, &beyond).is_err());
    assert!(run.gradients().iter().flatten().all(|&g| g == 0.0));
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
    assert!(error.contains("linear on 4 threads in"), "{error}");
    let plan = Plan::new(setup().program().schedule).unwrap();
    assert!(CpuBackend::new(plan, CpuOptions::new(usize::MAX / 2)).is_err(), "no wrap");
}

#[test]
fn an_arena_that_the_machine_does_not_have() {
    let mut builder = ScheduleBuilder::new();
    let shape = Shape::new(&[1 << 50]).unwrap();
    builder.run_tensor("weights", Dtype::F32, shape, Role::Weight).unwrap();
    let plan = Plan::new(builder.finish()).unwrap();
    let error = CpuBackend::new(plan, CpuOptions::new(1)).map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "an arena of 4096.00 TiB (4503599627370496 bytes) cannot be had");
}
