//! fp16's loss scale on the device follows PyTorch's rule: inf skips the update, halves the scale
//! and leaves Adam's count unchanged; 2000 clean updates double the scale.

use crate::fixture::gpu;
use crate::small_run::{SmallRun, iterate, small_run};
use fitgpt_cuda::CudaOptions;
use model::Types;
use plan::{Dtype, StepState};
use train::engine::Engine;

fn fp16() -> SmallRun {
    let types = Types { compute: Dtype::F16, residual: Dtype::F16 };
    SmallRun { types, ..small_run() }
}

fn weights(engine: &mut Engine) -> Vec<u8> {
    let id = engine.program().parameters[0].weight;
    let mut content = vec![0; engine.plan().schedule.tensors.bytes(id).get() as usize];
    engine.backend().read(id, &mut content).unwrap();
    content
}

#[test]
fn an_overflow_skips_halves_and_leaves_adams_count() {
    let Some(gpu) = gpu() else { return };
    let mut engine = fp16().engine(&gpu, &CudaOptions::new(&gpu));
    let first = iterate(&mut engine, 0);
    assert_eq!((first.loss_scale, first.growth, first.updates), (65536.0, 1, 1));
    let before = weights(&mut engine);
    // No fp16 gradient survives this scale.
    let huge = 2f32.powi(60);
    engine.set_state(&StepState { loss_scale: huge, ..first }).unwrap();
    let skipped = iterate(&mut engine, 1);
    assert!(skipped.found_inf && skipped.skipped, "{skipped:?}");
    assert_eq!((skipped.loss_scale, skipped.growth, skipped.updates), (huge / 2.0, 0, 1));
    assert_eq!(weights(&mut engine), before, "a skipped update changes nothing");
    // Gradients were zeroed, so the next step is the same as without the skipped one.
    engine.set_state(&StepState { loss_scale: 65536.0, ..skipped }).unwrap();
    let next = iterate(&mut engine, 2);
    assert!(!next.skipped && next.grad_norm.is_finite(), "{next:?}");
    assert_ne!(weights(&mut engine), before);
}

#[test]
fn two_thousand_clean_updates_double_the_scale() {
    let Some(gpu) = gpu() else { return };
    let mut engine = fp16().engine(&gpu, &CudaOptions::new(&gpu));
    let first = engine.state().unwrap();
    engine.set_state(&StepState { growth: 1999, ..first }).unwrap();
    let doubled = iterate(&mut engine, 0);
    assert_eq!((doubled.loss_scale, doubled.growth, doubled.skipped), (131072.0, 0, false));
}
