//! No panic on any input: a value that the plan does not allow is an error that contains the value.

use crate::fixture::{ids_to_bytes, setup};
use fitgpt_cpu::{CpuBackend, CpuOptions, CpuScratch};
use model::GenerateSpec;
use plan::ops::{Gelu, GeluKind, SelectPosition};
use plan::{
    Backend, BackendError, Bytes, Dtype, Io, Phase, Plan, Role, ScheduleBuilder, Shape, StepInputs,
    StepState, verify,
};

/// Proves a plan for this many threads and loads it.
fn load(plan: Plan, threads: usize) -> Result<CpuBackend, BackendError> {
    CpuBackend::new(verify(plan, CpuScratch { threads })?, CpuOptions::new(threads))
}

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

/// Inputs and outputs of segments share bytes: stale ones are refused, not used.
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
    let mut backend = load(Plan::new(builder.finish()).unwrap(), 1).unwrap();
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
    assert!(backend.write_at(x_a, 30, &[0; 4]).is_err(), "beyond the tensor");
    assert!(backend.run(a, &step).is_err(), "a refused write is no write");
}

/// A segment with two inputs of which only one was written; and a segment that failed.
#[test]
fn half_written_inputs_and_outputs_of_a_failed_run() {
    let mut builder = ScheduleBuilder::new();
    let mut segment = builder.segment("s", Phase::Train);
    let shape = Shape::new(&[2, 3, 4]).unwrap();
    let mut tensor = |name: &str, shape: Shape, io: Io| {
        segment.host_tensor(name, Dtype::F32, shape, Role::Activation, io).unwrap()
    };
    let (x, other) = (tensor("x", shape, Io::Input), tensor("other", shape, Io::Input));
    let out = tensor("out", Shape::new(&[2, 1, 4]).unwrap(), Io::Output);
    let echo = tensor("echo", shape, Io::Output);
    segment.push(Gelu { x: other, out: echo, kind: GeluKind::Erf }).unwrap();
    segment.push(SelectPosition { x, out }).unwrap();
    let segment = segment.finish();
    let mut backend = load(Plan::new(builder.finish()).unwrap(), 1).unwrap();
    let at = |position: u64| StepInputs { position, ..StepInputs::default() };
    backend.write(x, &[0; 96]).unwrap();
    assert!(backend.run(segment, &at(0)).is_err(), "the other input was not written");
    backend.write(other, &[0; 96]).unwrap();
    assert!(backend.run(segment, &at(3)).is_err(), "there are three positions");
    assert!(backend.read(out, &mut [0; 32]).is_err(), "it did not run to its end");
    backend.write(x, &[0; 96]).unwrap();
    backend.write(other, &[0; 96]).unwrap();
    backend.run(segment, &at(2)).unwrap();
    backend.read(out, &mut [0; 32]).unwrap();
}

/// The cache shares bytes with training: decoding on what training left gives NaN, not a guess.
#[test]
fn what_a_phase_kept_is_gone_after_another_phase() {
    let mut setup = setup();
    setup.generate = Some(GenerateSpec { rows: 1, prefill: vec![8] });
    let mut run = setup.run(CpuOptions::new(2));
    let generate = run.program.generate.clone().unwrap();
    let decode = StepInputs { position: 8, ..StepInputs::default() };
    run.backend.run(generate.prefill[0].segment, &StepInputs::default()).unwrap();
    run.backend.run(generate.decode.segment, &decode).unwrap();
    assert!(run.read(generate.decode.logits).iter().all(|logit| logit.is_finite()));
    run.backend.run(run.program.eval[0].segment, &StepInputs::default()).unwrap();
    run.backend.run(generate.decode.segment, &decode).unwrap();
    assert!(run.read(generate.decode.logits).iter().all(|logit| logit.is_nan()));
}

#[test]
fn norms_of_huge_and_tiny_gradients() {
    for (value, finite) in [(1e30, true), (1e-30, true), (f32::MAX, true), (f32::INFINITY, false)] {
        let mut run = setup().run(CpuOptions::new(2));
        let gradient = run.program.parameters[0].gradient.unwrap();
        let mut content = vec![0; 83 * 51 * 4];
        content[..4].copy_from_slice(&value.to_le_bytes());
        run.backend.write(gradient, &content).unwrap();
        run.update();
        let mut words = [[0; 4]; StepState::WORDS];
        run.backend.read(run.program.state, words.as_flattened_mut()).unwrap();
        let state = StepState::from_words(&words.map(u32::from_le_bytes));
        assert_eq!((state.grad_norm, state.found_inf), (value, !finite));
    }
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
    let schedule = setup().draft().schedule;
    let mut plan = Plan::new(schedule.clone()).unwrap();
    let place = plan.layouts[0].placements.last_mut().unwrap();
    place.offset = Bytes::ZERO;
    let error = load(plan, 1).map(|_| ()).unwrap_err();
    assert!(matches!(error, BackendError::BadPlan { .. }), "{error}");

    // A workspace for three threads does not serve four, whatever the proof was made for.
    let plan = Plan::new(schedule).unwrap();
    for threads in [4, usize::MAX / 2] {
        let error = load(plan.clone(), threads).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("step 2 (linear) has"), "{error}");
        assert!(error.contains("bytes of workspace"), "{error}");
    }
    let proved = verify(plan, setup().scratch()).unwrap();
    let error = CpuBackend::new(proved, CpuOptions::new(4)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("4 threads with the workspace of 3"), "{error}");
}

#[test]
fn an_arena_that_the_machine_does_not_have() {
    let mut builder = ScheduleBuilder::new();
    let shape = Shape::new(&[1 << 50]).unwrap();
    builder.run_tensor("weights", Dtype::F32, shape, Role::Weight).unwrap();
    let error = load(Plan::new(builder.finish()).unwrap(), 1).map(|_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "an arena of 4096.00 TiB (4503599627370496 bytes) cannot be allocated; lower batch_size, \
         block_size or the model, or free memory"
    );
}
