//! Layer normalisation: alone, after a residual addition, with dropout on the branch, and with the
//! re-emitting gradient, which overwrites the output's gradient with the output.

use crate::case::{Attribute, Case, Tolerance};
use crate::case_builder::{CaseBuilder, NEAR_ONE, Normal, STANDARD, backward, spread};
use crate::masks::{MaskPlace, mask};
use crate::values::Values;
use model::NORM_EPSILON;
use plan::ops::{Branch, Dropout, DropoutSite, LayerNorm, NormalisedAgain, Op};
use plan::{PlanError, Scratch, StepInputs};
use std::rc::Rc;

const TOLERANCE: Tolerance = Tolerance {
    absolute: 2e-5,
    relative: 1e-5,
    reason: "f32 sums over a row, and over up to 330 rows for gain and bias, of order 1",
};

const OFFSET_TOLERANCE: Tolerance = Tolerance {
    absolute: 5e-4,
    relative: 1e-5,
    reason: "a mean near 100, of a deviation of 1, is known to 1e-5 or 1e-4; a variance in one \
             pass would be off by 1e-3 and more",
};

const FLAT_TOLERANCE: Tolerance = Tolerance {
    absolute: 2e-4,
    relative: 1e-5,
    reason: "a deviation of 0.02 turns rounding of 1e-7 into 1e-5; without eps, 1 % would be wrong",
};

/// What is added to the stream before the norm.
#[derive(Clone, Copy, PartialEq)]
enum Join {
    Nothing,
    Branch,
    DroppedBranch,
}

/// Whether the stream already has a gradient when the norm's is added.
#[derive(Clone, Copy, PartialEq)]
enum Residual {
    Absent,
    Delivered,
}

struct Sizes {
    name: &'static str,
    dims: [u64; 3],
    bias: bool,
    join: Join,
    residual: Residual,
    x: Normal,
    tolerance: Tolerance,
    epsilon: f64,
    /// Whether to use the re-emitting gradient.
    again: bool,
}

use Join::{Branch as Joined, DroppedBranch, Nothing};
use Residual::{Absent, Delivered};

const fn sizes(name: &'static str, dims: [u64; 3], bias: bool, join: Join) -> Sizes {
    Sizes {
        name,
        dims,
        bias,
        join,
        residual: Delivered,
        x: STANDARD,
        tolerance: TOLERANCE,
        epsilon: NORM_EPSILON,
        again: false,
    }
}

const OFFSET: Normal = Normal { mean: 100.0, deviation: 1.0 };

const TABLE: [Sizes; 15] = [
    Sizes { residual: Absent, ..sizes("layernorm", [2, 3, 8], true, Nothing) },
    Sizes { residual: Absent, ..sizes("layernorm_no_bias", [1, 7, 33], false, Nothing) },
    sizes("layernorm_residual", [2, 5, 19], true, Nothing),
    Sizes {
        x: OFFSET,
        tolerance: OFFSET_TOLERANCE,
        ..sizes("layernorm_offset", [1, 5, 40], true, Nothing)
    },
    Sizes {
        x: spread(0.02),
        tolerance: FLAT_TOLERANCE,
        ..sizes("layernorm_flat", [1, 6, 16], true, Nothing)
    },
    sizes("layernorm_blocks", [2, 165, 5], true, Nothing),
    Sizes { residual: Absent, ..sizes("layernorm_branch", [2, 4, 15], true, Joined) },
    sizes("layernorm_branch_residual", [3, 3, 12], false, Joined),
    sizes("layernorm_dropout", [2, 6, 21], true, DroppedBranch),
    sizes("layernorm_dropout_blocks", [2, 150, 6], false, DroppedBranch),
    // An epsilon that no model uses, so that it must come from the op.
    Sizes { epsilon: 0.03, ..sizes("layernorm_epsilon", [1, 6, 10], true, Joined) },
    Sizes { again: true, residual: Absent, ..sizes("layernorm_again", [2, 3, 9], true, Nothing) },
    Sizes { again: true, ..sizes("layernorm_again_branch", [2, 5, 14], false, Joined) },
    Sizes { again: true, ..sizes("layernorm_again_dropout", [2, 4, 13], true, DroppedBranch) },
    // Several blocks of tokens: no block may read what another one has overwritten as a gradient.
    Sizes { again: true, ..sizes("layernorm_again_blocks", [2, 165, 4], true, Nothing) },
];

const STEP: StepInputs = StepInputs {
    lr: 0.0,
    grad_clip: 0.0,
    iteration: 11,
    seed: 1337,
    first_row: 3,
    inverse_tokens: 1.0,
    position: 0,
};

pub fn cases(scratch: &Rc<dyn Scratch>) -> Result<Vec<Case>, PlanError> {
    TABLE.iter().map(|sizes| case(sizes, scratch)).collect()
}

fn case(sizes: &Sizes, scratch: &Rc<dyn Scratch>) -> Result<Case, PlanError> {
    let width = sizes.dims[2];
    let mut case = CaseBuilder::with_scratch(sizes.name, "layernorm", sizes.tolerance, scratch);
    case.attribute("residual", Attribute::Int((sizes.residual == Delivered).into()));
    case.attribute("eps", Attribute::Float(sizes.epsilon));
    let op = operation(&mut case, sizes)?;
    let d_gain = case.input("d_gain", &[width], STANDARD)?;
    let mut accumulators = vec![(op.gain, d_gain)];
    let d_bias = op.bias.map(|_| case.input("d_bias", &[width], STANDARD)).transpose()?;
    accumulators.extend(op.bias.zip(d_bias));
    let d_out = case.input("d_out", &sizes.dims, STANDARD)?;
    let mut delivered = vec![(op.out, d_out)];
    if sizes.residual == Delivered {
        let normalised = op.add.as_ref().map_or(op.x, |add| add.sum);
        delivered.push((normalised, case.input("d_sum", &sizes.dims, STANDARD)?));
    }
    let mut segment = case.segment();
    segment.push(op.clone())?;
    let branch = op.add.as_ref().map_or(op.x, |add| add.branch);
    let [d_x, d_branch] = backward(&mut segment, &accumulators, &delivered, [op.x, branch])?;
    let segment = segment.finish();
    case.run(segment, STEP);
    for (label, tensor) in [("out", op.out), ("mean", op.mean), ("rstd", op.rstd), ("d_x", d_x)] {
        case.read(label, tensor);
    }
    case.read("d_gain", d_gain);
    if let Some(d_bias) = d_bias {
        case.read("d_bias", d_bias);
    }
    if let Some(add) = &op.add {
        case.read("sum", add.sum);
    }
    if sizes.join == DroppedBranch {
        case.read("d_branch", d_branch);
    }
    if sizes.again {
        case.read("again", d_out);
    }
    differentiate(&mut case, sizes);
    let mut case = case.finish();
    case.rewrite(|step| {
        if let Op::LayerNormBackward(gradient) = step {
            gradient.again = sizes.again.then_some(NormalisedAgain { bias: op.bias });
        }
    });
    Ok(case)
}

/// The op with its inputs and outputs.
fn operation(case: &mut CaseBuilder, sizes: &Sizes) -> Result<LayerNorm, PlanError> {
    let [rows, positions, width] = sizes.dims;
    let bias = sizes.bias.then(|| case.input("bias", &[width], spread(0.3))).transpose()?;
    Ok(LayerNorm {
        x: case.input("x", &sizes.dims, sizes.x)?,
        add: branch(case, sizes)?,
        gain: case.input("gain", &[width], NEAR_ONE)?,
        bias,
        out: case.tensor("out", &sizes.dims)?,
        mean: case.tensor("mean", &[rows * positions])?,
        rstd: case.tensor("rstd", &[rows * positions])?,
        epsilon: sizes.epsilon,
    })
}

fn branch(case: &mut CaseBuilder, sizes: &Sizes) -> Result<Option<Branch>, PlanError> {
    if sizes.join == Nothing {
        return Ok(None);
    }
    let branch = case.input("branch", &sizes.dims, STANDARD)?;
    let sum = case.tensor("sum", &sizes.dims)?;
    let dropout = Dropout { probability: 0.25, layer: 2, site: DropoutSite::AttentionProjection };
    let dropout = (sizes.join == DroppedBranch).then_some(dropout);
    if let Some(dropout) = dropout {
        let [rows, positions, width] = sizes.dims;
        let first_row = STEP.first_row * positions;
        let place = MaskPlace { seed: STEP.seed, iteration: STEP.iteration, first_row };
        let values = mask(dropout, place, rows * positions, width);
        case.aside("mask", &sizes.dims, Values::F32(values));
    }
    Ok(Some(Branch { branch, dropout, sum }))
}

fn differentiate(case: &mut CaseBuilder, sizes: &Sizes) {
    case.loss_dot("out", "d_out");
    case.accumulated("gain", "d_gain");
    if sizes.bias {
        case.accumulated("bias", "d_bias");
    }
    match (sizes.join, sizes.residual) {
        // `x` would be both an input and an output of the loss.
        (Nothing, Delivered) => return,
        (_, Delivered) => case.loss_dot("sum", "d_sum"),
        (_, Absent) => {}
    }
    case.gradient("x", "d_x");
    match sizes.join {
        Nothing => {}
        Joined => case.gradient("branch", "d_x"), // the stream's gradient is the branch's too
        DroppedBranch => case.gradient("branch", "d_branch"),
    }
}
