//! Linear layers joined with a GELU: Hopper's kernel beside the library and the kernels of GELU, at
//! sizes that tiles do not divide.

use crate::fixture::{gpu, load};
use fitgpt_cuda::{CudaOptions, Gpu, LoweringOptions, Tiles, modules};
use plan::ops::{GeluBefore, GeluKind, GeluOfSums, Linear, LinearBackwardInput};
use plan::{
    Dtype, Phase, Plan, Role, ScheduleBuilder, SegmentId, Shape, StepInputs, TensorId, half,
};
use std::rc::Rc;

/// Tokens, width, and width of the hidden layer. On a GPU of 132 multiprocessors:
const SIZES: [(u64, u64, u64); 5] = [
    // 132 tiles stay whole, 33 are divided, and 136 columns are to the right of all.
    (4200, 64, 1096),
    // All tiles are divided.
    (1031, 200, 1600),
    // No tile is divided.
    (2200, 64, 1000),
    // Fewer numbers in a sum than a copy takes.
    (9000, 16, 200),
    // Tiles divide it; a sum has more parts than the ring of stages.
    (2048, 384, 1536),
];

/// Every form, with the same inputs.
struct Forms {
    segment: SegmentId,
    inputs: Vec<TensorId>,
    /// Sums; the same computed without GELU.
    sums: [TensorId; 2],
    /// The same without bias.
    unbiased: TensorId,
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
    let names = ["kept", "plain", "out", "other", "gradient", "through", "unbiased"];
    let [kept, plain, out, other, gradient, through, unbiased] =
        names.map(|name| tensor(name, &wide));
    let mut segment = builder.segment("forms", Phase::Train);
    for (to, gelu, bias) in [
        (out, Some(GeluOfSums { kind, sums: Some(kept) }), Some(bias)),
        (other, Some(GeluOfSums { kind, sums: None }), Some(bias)),
        (plain, None, Some(bias)),
        (unbiased, None, None),
    ] {
        let linear =
            |workspace| Linear { x, w: up, bias, out: to, gelu, residual: None, workspace };
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
    let forms = Forms { segment, inputs, sums, unbiased, out, gradients, again };
    (Plan::new(builder.finish()).unwrap(), forms)
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

/// The results, in the order of `sums`, `out`, `gradients`, `again` and `unbiased`.
fn run(gpu: &Gpu, plan: &Plan, forms: &Forms, options: &CudaOptions) -> Vec<Vec<f32>> {
    let mut backend = load(gpu, plan.clone(), options).unwrap();
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
    let results = forms.sums.iter().chain(&forms.out).chain(&forms.gradients);
    let results = results.chain([&forms.again, &forms.unbiased]);
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

/// Hopper's kernel beside the library, on as many multiprocessors as there are and on a few.
fn compare(gpu: &Gpu, dtype: Dtype, kind: GeluKind, sizes: (u64, u64, u64)) {
    let (plan, forms) = forms(dtype, kind, sizes);
    let options = CudaOptions::new(gpu);
    let ours = run(gpu, &plan, &forms, &options);
    let others = run(gpu, &plan, &forms, &CudaOptions { warpgroups: false, ..options.clone() });
    let at = format!("{sizes:?} {dtype} {kind:?}");
    for multiprocessors in [options.multiprocessors, 7] {
        let options = CudaOptions { multiprocessors, ..options.clone() };
        let again = run(gpu, &plan, &forms, &options);
        assert!(ours == again, "{at}: other bits on {multiprocessors} multiprocessors");
    }
    assert_eq!(ours[0], ours[1], "{at}: sums with and without GELU");
    assert_eq!(ours[2], ours[3], "{at}: GELU of sums that are kept or not");
    assert_eq!(ours[4], ours[5], "{at}: gradients with GELU again or not");
    assert_eq!(ours[6], others[6], "{at}: GELU again");
    for (index, (ours, others)) in ours.iter().zip(&others).enumerate() {
        assert!(ours.iter().any(|x| x.abs() > 0.1), "{at}: nothing in {index}");
        assert!(is_near(dtype, ours, others), "{at}: result {index}");
    }
}

#[test]
fn joined_layers_are_the_layer_and_its_gelu() {
    let Some(gpu) = gpu() else { return };
    for sizes in SIZES {
        for dtype in [Dtype::Bf16, Dtype::F16] {
            compare(&gpu, dtype, GeluKind::Erf, sizes);
        }
    }
    compare(&gpu, Dtype::Bf16, GeluKind::Tanh, SIZES[0]);
}

/// So that the comparison is not one of the library with itself.
#[test]
fn the_kernel_of_our_own_is_used() {
    for sizes in SIZES {
        let (plan, _) = forms(Dtype::Bf16, GeluKind::Erf, sizes);
        let options = LoweringOptions {
            tf32: true,
            tiles: Tiles::of(90),
            warpgroups: true,
            multiprocessors: 132,
        };
        let found = modules(&plan, options).unwrap();
        let used = found.iter().filter(|used| used.module.file() == "linear_hopper.cu").count();
        // With GELU, keeping sums and not; without, with bias and without; two gradients.
        assert_eq!((used, found.len()), (6, 6), "{sizes:?}");
    }
}
