//! Weights in two halves, as AdamW updates them: the bits of f32 weights at every step, and a
//! bfloat16 upper half that is nearest to the weight.

use crate::fixture::{gpu, load};
use fitgpt_cuda::CudaOptions;
use plan::ops::AdamW;
use plan::{
    Backend, Dtype, Phase, Plan, Role, ScheduleBuilder, SegmentId, Shape, StepInputs, StepState,
    TensorId, half,
};

/// Not a multiple of what a thread takes at a time.
const ELEMENTS: u64 = 4099;
const STEPS: u64 = 6;

/// The same update of whole weights and of halves.
struct Updates {
    segment: SegmentId,
    state: TensorId,
    whole: Tensors,
    split: Tensors,
}

struct Tensors {
    weights: TensorId,
    copy: TensorId,
    gradients: TensorId,
    moments: [TensorId; 2],
}

fn tensors(builder: &mut ScheduleBuilder, name: &str, kept: Dtype, moments: Dtype) -> Tensors {
    let mut tensor = |what: &str, dtype, role| {
        let shape = Shape::new(&[ELEMENTS]).unwrap();
        builder.run_tensor(&format!("{name} {what}"), dtype, shape, role).unwrap()
    };
    Tensors {
        weights: tensor("weights", kept, Role::Master),
        copy: tensor("copy", Dtype::Bf16, Role::Weight),
        gradients: tensor("gradients", Dtype::F32, Role::Gradient),
        moments: ["m", "v"].map(|moment| tensor(moment, moments, Role::Moment)),
    }
}

fn updates(moments: Dtype) -> (Plan, Updates) {
    let mut builder = ScheduleBuilder::new();
    let words = Shape::new(&[StepState::WORDS as u64]).unwrap();
    let state = builder.run_tensor("state", Dtype::U32, words, Role::State).unwrap();
    let whole = tensors(&mut builder, "whole", Dtype::F32, moments);
    let split = tensors(&mut builder, "split", Dtype::U16, moments);
    let mut segment = builder.segment("update", Phase::Train);
    for (tensors, split) in [(&whole, false), (&split, true)] {
        let &Tensors { weights, copy, gradients, moments: [m, v] } = tensors;
        let (beta1, beta2, eps, weight_decay, copy) = (0.9, 0.95, 1e-8, 0.1, Some(copy));
        let op = AdamW {
            weights,
            copy,
            split,
            gradients,
            m,
            v,
            state,
            beta1,
            beta2,
            eps,
            weight_decay,
            first: 7,
        };
        segment.push(op).unwrap();
    }
    let segment = segment.finish();
    (Plan::new(builder.finish()).unwrap(), Updates { segment, state, whole, split })
}

/// Weights between 1e-4 and 2, some exactly between two bfloat16, a few that are not finite.
fn first_weights() -> Vec<f32> {
    let weight = |index: u64| {
        let bits = (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
        let exponent = 113 + bits % 15;
        let lower = if index.is_multiple_of(5) { 0x8000 } else { bits >> 9 & 0xffff };
        let number = f32::from_bits(bits & 0x807f_0000 | exponent << 23 | lower);
        match index {
            11 => f32::INFINITY,
            12 => f32::NAN,
            13 => f32::MAX,
            _ => number,
        }
    };
    (0..ELEMENTS).map(weight).collect()
}

fn write(backend: &mut dyn Backend, to: TensorId, numbers: &[f32]) {
    let (mut bytes, dtype) = (Vec::new(), backend.plan().schedule.tensors.get(to).dtype);
    half::encode_weights(dtype, numbers, &mut bytes);
    backend.write(to, &bytes).unwrap();
}

fn read_halves(backend: &mut dyn Backend, from: TensorId) -> Vec<u16> {
    let mut bytes = vec![0; backend.plan().schedule.tensors.bytes(from).get() as usize];
    backend.read(from, &mut bytes).unwrap();
    bytes.as_chunks::<2>().0.iter().map(|&half| u16::from_le_bytes(half)).collect()
}

fn read_words(backend: &mut dyn Backend, from: TensorId) -> Vec<u32> {
    let mut bytes = vec![0; ELEMENTS as usize * 4];
    backend.read(from, &mut bytes).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

#[test]
fn halves_have_the_bits_of_whole_weights() {
    let Some(gpu) = gpu() else { return };
    for moments in [Dtype::F32, Dtype::Bf16] {
        let (plan, updates) = updates(moments);
        let mut backend = load(&gpu, plan, &CudaOptions::new(&gpu)).unwrap();
        let backend = &mut *backend;
        for Tensors { weights, copy, moments, .. } in [&updates.whole, &updates.split] {
            write(backend, *weights, &first_weights());
            write(backend, *copy, &first_weights());
            moments.iter().for_each(|&moment| write(backend, moment, &[0.0; ELEMENTS as usize]));
        }
        let mut changed = 0;
        for step in 0..STEPS {
            let gradient = |index: u64| ((index * 31 + step * 7) % 201) as f32 / 100.0 - 1.0;
            let gradients: Vec<f32> = (0..ELEMENTS).map(gradient).collect();
            write(backend, updates.whole.gradients, &gradients);
            write(backend, updates.split.gradients, &gradients);
            let state =
                StepState { updates: step + 1, grad_multiplier: 1.0, ..StepState::initial(1.0) };
            let words = state.to_words().map(u32::to_le_bytes);
            backend.write(updates.state, words.as_flattened()).unwrap();
            let inputs = StepInputs { lr: 1e-3, seed: 3, ..StepInputs::default() };
            backend.run(updates.segment, &inputs).unwrap();
            let whole = read_words(backend, updates.whole.weights);
            let upper = read_halves(backend, updates.split.copy);
            let lower = read_halves(backend, updates.split.weights);
            for (index, (&bits, halves)) in whole.iter().zip(upper.iter().zip(&lower)).enumerate() {
                let halves = [*halves.0, *halves.1];
                let (want, got) = (f32::from_bits(bits), half::joined(halves));
                assert!(
                    got.to_bits() == bits || (got.is_nan() && want.is_nan()),
                    "step {step}, weight {index}: {got} in halves, {want} whole"
                );
                assert_eq!(halves[0], half::split(want)[0], "step {step}, weight {index}");
                changed += usize::from(want.to_bits() != first_weights()[index].to_bits());
            }
        }
        assert!(changed > 5 * ELEMENTS as usize, "{changed} weights changed");
    }
}
