//! Linear layers joined with a GELU: Hopper's kernel beside the library and the kernels of GELU, at
//! sizes that tiles do not divide.

use crate::fixture::{gpu, load};
use fitgpt_cuda::{CudaOptions, Gpu};
use plan::gpu_scratch::WarpgroupLinear;
use plan::ops::{GeluBefore, GeluKind, GeluOfSums, Linear, LinearBackwardInput};
use plan::{
    Dtype, Phase, Plan, Role, ScheduleBuilder, SegmentId, Shape, StepInputs, TensorId, half,
};
use std::rc::Rc;

/// Tokens, width, and width of the hidden layer. All have columns to the right of all whole tiles.
/// On a GPU of 132 multiprocessors, of the tiles of the first 132 stay whole and 33 are divided;
/// all of the second are divided, none of the third.
const SIZES: [(u64, u64, u64); 3] = [(4200, 64, 1096), (1031, 200, 1600), (2200, 64, 1000)];

/// Every form, with the same inputs.
struct Forms {
    segment: SegmentId,
    inputs: Vec<TensorId>,
    /// Sums; the same computed without GELU.
    sums: [TensorId; 2],
    /// GELU of the sums that are kept, and of those that are not.
    out: [TensorId; 2],
    /// Gradients through a GELU; the second overwrites its input with GELU's result.
    gradients: [TensorId; 2],
    again: TensorId,
}

fn forms(dtype: Dtype, kind: GeluKind, (tokens, width, hidden): (u64, u64, u64)) -> (Plan, Forms) {
    let mut builder = ScheduleBuilder::with_scratch(Rc::new(crate::fixture::MOST_SCRATCH));
    let mut tensor = |name: &str, dims: &[u64]| {
        builder.run_tensor(name, dtype, Shape::new(dims).unwrap(), Role::Activation).unwrap()
    };
    let [narrow, wide] = [[tokens, width], [tokens, hidden]];
    let (x, d_out) = (tensor("x", &narrow), tensor("d_out", &narrow));
    let (up, bias, down) = (
        tensor("up", &[hidden, width]),
        tensor("bias", &[hidden]),
        tensor("down", &[width, hidden]),
    );
    let (before, again) = (tensor("before", &wide), tensor("again", &wide));
    let [kept, plain, out, other, gradient, through] =
        ["kept", "plain", "out", "other", "gradient", "through"].map(|name| tensor(name, &wide));
    let mut segment = builder.segment("forms", Phase::Train);
    for (to, gelu) in [
        (out, Some(GeluOfSums { kind, sums: Some(kept) })),
        (other, Some(GeluOfSums { kind, sums: None })),
        (plain, None),
    ] {
        let bias = Some(bias);
        let linear = |workspace| Linear { x, w: up, bias, out: to, gelu, workspace };
        segment.push_with_workspace(linear).unwrap();
    }
    for (d_x, x, again) in [(gradient, before, false), (through, again, true)] {
        let gelu = Some(GeluBefore { kind, x, again });
        let input = |workspace| LinearBackwardInput { d_out, w: down, d_x, gelu, workspace };
        segment.push_with_workspace(input).unwrap();
    }
    let segment = segment.finish();
    let inputs = vec![x, d_out, up, bias, down, before, again];
    let (sums, out, gradients) = ([kept, plain], [out, other], [gradient, through]);
    (Plan::new(builder.finish()).unwrap(), Forms { segment, inputs, sums, out, gradients, again })
}

/// About normal numbers: the sum of four that are uniform.
fn numbers(seed: u64, count: u64) -> Vec<f32> {
    let one = |index: u64| {
        let bits = (index + 1 + (seed << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bits = (bits ^ bits >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let parts = [0, 16, 32, 48].map(|shift| f32::from((bits >> shift & 0xffff) as u16));
        (parts.iter().sum::<f32>() / 65536.0 - 2.0) * 1.7
    };
    (0..count).map(one).collect()
}

/// The results, in the order of `sums`, `out`, `gradients` and `again`.
fn run(gpu: &Gpu, plan: Plan, forms: &Forms, warpgroups: bool) -> Vec<Vec<f32>> {
    let options = CudaOptions { warpgroups, ..CudaOptions::new(gpu) };
    let mut backend = load(gpu, plan, &options).unwrap();
    for (seed, &input) in forms.inputs.iter().enumerate() {
        let tensor = backend.plan().schedule.tensors.get(input);
        let (dtype, elements) = (tensor.dtype, tensor.shape.elements());
        // What the GELU is computed of is the same in both gradients.
        let seed = if input == forms.again { seed - 1 } else { seed };
        let mut bytes = Vec::new();
        half::encode_weights(dtype, &numbers(seed as u64, elements), &mut bytes);
        backend.write(input, &bytes).unwrap();
    }
    backend.run(forms.segment, &StepInputs::default()).unwrap();
    let results = forms.sums.iter().chain(&forms.out).chain(&forms.gradients).chain([&forms.again]);
    let read = |&tensor: &TensorId| {
        let tensors = &backend.plan().schedule.tensors;
        let (dtype, bytes) = (tensors.get(tensor).dtype, tensors.bytes(tensor).get());
        let mut content = vec![0; bytes as usize];
        backend.read(tensor, &mut content).unwrap();
        let mut numbers = Vec::new();
        half::decode(dtype, &content, &mut numbers);
        numbers
    };
    results.map(read).collect()
}

/// Sums may be rounded the other way where they are added in another order, and what follows
/// differs by as much.
fn is_near(dtype: Dtype, ours: &[f32], others: &[f32]) -> bool {
    let (relative, absolute) = match dtype {
        Dtype::Bf16 => (0.017, 4e-3),
        _ => (2.2e-3, 5e-4),
    };
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= absolute + relative * b.abs();
    ours.len() == others.len() && ours.iter().zip(others).all(near)
}

#[test]
fn joined_layers_are_the_layer_and_its_gelu() {
    let Some(gpu) = gpu() else { return };
    for sizes in SIZES {
        let (tokens, width, hidden) = sizes;
        for dtype in [Dtype::Bf16, Dtype::F16] {
            assert!(WarpgroupLinear::new(dtype, tokens, hidden, width).is_some(), "{sizes:?}");
            for kind in [GeluKind::Erf, GeluKind::Tanh] {
                let (plan, forms) = forms(dtype, kind, sizes);
                let warpgroups = gpu.info().has_warpgroups();
                let ours = run(&gpu, plan.clone(), &forms, warpgroups);
                let others = run(&gpu, plan.clone(), &forms, false);
                let at = format!("{sizes:?} {dtype} {kind:?}");
                assert_eq!(ours, run(&gpu, plan, &forms, warpgroups), "{at}: twice");
                assert_eq!(ours[0], ours[1], "{at}: sums with and without GELU");
                assert_eq!(ours[2], ours[3], "{at}: GELU of sums that are kept or not");
                assert_eq!(ours[4], ours[5], "{at}: gradients with GELU again or not");
                assert_eq!(ours[6], others[6], "{at}: GELU again");
                for (index, (ours, others)) in ours.iter().zip(&others).enumerate() {
                    assert!(ours.iter().any(|x| x.abs() > 0.1), "{at}: nothing in {index}");
                    assert!(is_near(dtype, ours, others), "{at}: result {index}");
                }
            }
        }
    }
}
