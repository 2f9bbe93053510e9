//! GELU in both forms, over the whole range where it is neither zero nor the identity; and the
//! re-emitting gradient, which overwrites its input with its output.

use crate::case::{Attribute, Case, Tolerance};
use crate::case_builder::{CaseBuilder, STANDARD, backward, spread};
use plan::ops::{Gelu, GeluKind, Op};
use plan::{PlanError, StepInputs};

const TOLERANCE: Tolerance = Tolerance {
    absolute: 5e-6,
    relative: 2e-6,
    reason: "erf, exp or tanh in f32; 1 - tanh² in the derivative costs PyTorch 1e-6",
};

/// Zeros, denormal-free small values, the tails, and far beyond them.
const EDGES: [f32; 24] = [
    0.0, -0.0, 1e-6, -1e-6, 1e-3, -1e-3, 0.5, -0.5, 1.0, -1.0, 2.5, -2.5, 4.0, -4.0, 5.5, -5.5,
    6.5, -6.5, 9.0, -9.0, 15.0, -15.0, 100.0, -100.0,
];

pub fn cases() -> Result<Vec<Case>, PlanError> {
    let mut all = Vec::new();
    for (kind, word) in [(GeluKind::Erf, "erf"), (GeluKind::Tanh, "tanh")] {
        let normal = CaseBuilder::new(&format!("gelu_{word}"), "gelu", TOLERANCE);
        let values = normal.drawn("x", &[3, 7, 29], spread(2.0))?;
        all.push(case(normal, (kind, word), &[3, 7, 29], values, false)?);
        let edges = CaseBuilder::new(&format!("gelu_{word}_edges"), "gelu", TOLERANCE);
        // Steps through the range that are not round numbers, then the edges.
        let walk = (0..226).map(|i| (i - 113) as f32 * 0.0703);
        let values: Vec<f32> = walk.chain(EDGES).collect();
        all.push(case(edges, (kind, word), &[250], values, false)?);
        let again = CaseBuilder::new(&format!("gelu_{word}_again"), "gelu", TOLERANCE);
        let values = again.drawn("x", &[2, 5, 23], spread(2.0))?;
        all.push(case(again, (kind, word), &[2, 5, 23], values, true)?);
    }
    Ok(all)
}

fn case(
    mut case: CaseBuilder,
    (kind, word): (GeluKind, &'static str),
    dims: &[u64],
    values: Vec<f32>,
    again: bool,
) -> Result<Case, PlanError> {
    case.attribute("form", Attribute::Text(word));
    let x = case.given("x", dims, values)?;
    let out = case.tensor("out", dims)?;
    let d = case.input("d_out", dims, STANDARD)?;
    let mut segment = case.segment();
    segment.push(Gelu { x, out, kind })?;
    backward(&mut segment, &[], &[(out, d)], [])?;
    let segment = segment.finish();
    case.run(segment, StepInputs::default());
    case.read("out", out);
    case.read("d_x", d); // in place
    if again {
        case.read("again", x);
    }
    // The size of the edge values is not a useful scale for a finite-difference step.
    if dims.len() > 1 {
        case.loss_dot("out", "d_out");
        case.gradient("x", "d_x");
    }
    let mut case = case.finish();
    case.rewrite(|op| {
        if let Op::GeluBackward(gradient) = op {
            gradient.again = again;
        }
    });
    Ok(case)
}
