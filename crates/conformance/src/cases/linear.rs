//! Linear layers: forward, both gradients, with and without bias; and forward with the residual
//! stream added.

use crate::case::{Case, Tolerance};
use crate::case_builder::{CaseBuilder, STANDARD, backward, spread};
use plan::ops::Linear;
use plan::{PlanError, Scratch, StepInputs};
use std::rc::Rc;

const TOLERANCE: Tolerance = Tolerance {
    absolute: 5e-5,
    relative: 1e-5,
    reason: "f32 sums of up to 330 products of order 1, in any order; PyTorch's are off by 1e-5",
};

struct Sizes {
    name: &'static str,
    /// Dimensions of `x` but the last.
    tokens: &'static [u64],
    inputs: u64,
    outputs: u64,
    bias: bool,
}

const TABLE: [Sizes; 7] = [
    Sizes { name: "linear_one", tokens: &[1], inputs: 1, outputs: 1, bias: true },
    Sizes { name: "linear_bias", tokens: &[2, 5], inputs: 7, outputs: 3, bias: true },
    Sizes { name: "linear_plain", tokens: &[3, 11], inputs: 16, outputs: 48, bias: false },
    Sizes { name: "linear_token", tokens: &[1, 1], inputs: 65, outputs: 31, bias: true },
    Sizes { name: "linear_tiles", tokens: &[33], inputs: 131, outputs: 70, bias: true },
    // More than one block of 256 tokens in the sums of the weight's and the bias's gradient.
    Sizes { name: "linear_blocks", tokens: &[2, 165], inputs: 9, outputs: 5, bias: true },
    Sizes { name: "linear_block_edge", tokens: &[256], inputs: 4, outputs: 6, bias: false },
];

const ADDED: [Sizes; 3] = [
    Sizes { name: "linear_add_bias", tokens: &[2, 5], inputs: 7, outputs: 3, bias: true },
    Sizes { name: "linear_add_odd", tokens: &[17], inputs: 131, outputs: 18, bias: true },
    Sizes { name: "linear_add_plain", tokens: &[2, 5], inputs: 48, outputs: 8, bias: false },
];

pub fn cases(scratch: &Rc<dyn Scratch>) -> Result<Vec<Case>, PlanError> {
    let layers = TABLE.iter().map(|sizes| case(sizes, scratch));
    layers.chain(ADDED.iter().map(|sizes| added(sizes, scratch))).collect()
}

/// A layer that adds the residual stream. It has no gradients of its own: `fuse` makes it when the
/// backward has been emitted.
fn added(sizes: &Sizes, scratch: &Rc<dyn Scratch>) -> Result<Case, PlanError> {
    let &Sizes { name, tokens, inputs, outputs, bias } = sizes;
    let out_dims = [tokens, &[outputs]].concat();
    let mut case = CaseBuilder::with_scratch(name, "linear_add", TOLERANCE, scratch);
    let x = case.input("x", &[tokens, &[inputs]].concat(), STANDARD)?;
    let w = case.input("w", &[outputs, inputs], spread(0.5))?;
    let residual = Some(case.input("residual", &out_dims, STANDARD)?);
    let bias = bias.then(|| case.input("bias", &[outputs], STANDARD)).transpose()?;
    let out = case.tensor("out", &out_dims)?;
    let mut segment = case.segment();
    let linear = |workspace| Linear { x, w, bias, out, gelu: None, residual, workspace };
    segment.push_with_workspace(linear)?;
    let segment = segment.finish();
    case.run(segment, StepInputs::default());
    case.read("out", out);
    Ok(case.finish())
}

fn case(sizes: &Sizes, scratch: &Rc<dyn Scratch>) -> Result<Case, PlanError> {
    let &Sizes { name, tokens, inputs, outputs, bias } = sizes;
    let x_dims = [tokens, &[inputs]].concat();
    let out_dims = [tokens, &[outputs]].concat();
    let mut case = CaseBuilder::with_scratch(name, "linear", TOLERANCE, scratch);
    let x = case.input("x", &x_dims, STANDARD)?;
    let w = case.input("w", &[outputs, inputs], spread(0.5))?;
    let d_out = case.input("d_out", &out_dims, STANDARD)?;
    let d_w = case.input("d_w", &[outputs, inputs], STANDARD)?;
    let mut accumulators = vec![(w, d_w)];
    let mut bias_pair = None;
    if bias {
        let bias = case.input("bias", &[outputs], STANDARD)?;
        let d_bias = case.input("d_bias", &[outputs], STANDARD)?;
        accumulators.push((bias, d_bias));
        bias_pair = Some((bias, d_bias));
    }
    let out = case.tensor("out", &out_dims)?;
    let mut segment = case.segment();
    let bias = bias_pair.map(|(bias, _)| bias);
    let linear = |workspace| Linear { x, w, bias, out, gelu: None, residual: None, workspace };
    segment.push_with_workspace(linear)?;
    let [d_x] = backward(&mut segment, &accumulators, &[(out, d_out)], [x])?;
    let segment = segment.finish();
    case.run(segment, StepInputs::default());
    case.read("out", out);
    case.read("d_x", d_x);
    case.read("d_w", d_w);
    case.loss_dot("out", "d_out");
    case.gradient("x", "d_x");
    case.accumulated("w", "d_w");
    if let Some((_, d_bias)) = bias_pair {
        case.read("d_bias", d_bias);
        case.accumulated("bias", "d_bias");
    }
    Ok(case.finish())
}
