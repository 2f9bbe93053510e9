//! Causal attention: head sizes that do not fill a vector, lengths around tiles of 64 and 128,
//! dropout.

use crate::case::{Attribute, Case, Tolerance};
use crate::case_builder::{CaseBuilder, STANDARD, backward};
use crate::masks::{MaskPlace, attention_mask};
use crate::values::Values;
use plan::ops::{Attention, Dropout, DropoutSite};
use plan::{PlanError, Scratch, StepInputs};
use std::rc::Rc;

const TOLERANCE: Tolerance = Tolerance {
    absolute: 1e-5,
    relative: 1e-5,
    reason: "f32 products over a head and sums over up to 130 keys, exp of scores of order 1",
};

const SHARP_TOLERANCE: Tolerance = Tolerance {
    absolute: 3e-4,
    relative: 1e-4,
    reason: "scores reach hundreds: their rounding, 2e-5, is a relative error of each probability",
};

struct Sizes {
    name: &'static str,
    rows: u64,
    positions: u64,
    heads: u64,
    head_size: u64,
    dropout: f32,
    /// Queries are multiplied by this.
    sharpness: f32,
}

const fn sizes(name: &'static str, rows: u64, positions: u64, heads: u64, size: u64) -> Sizes {
    Sizes { name, rows, positions, heads, head_size: size, dropout: 0.0, sharpness: 1.0 }
}

#[rustfmt::skip]
const TABLE: [Sizes; 15] = [
    sizes("attention_one", 1, 1, 1, 1),
    sizes("attention_t1", 3, 1, 2, 5),
    sizes("attention_hs1", 2, 7, 3, 1),
    sizes("attention_hs5", 2, 7, 3, 5),
    sizes("attention_hs16_t65", 1, 65, 2, 16),
    sizes("attention_hs48_t130", 1, 130, 1, 48),
    sizes("attention_hs64_t64", 1, 64, 1, 64),
    sizes("attention_hs1_t130", 3, 130, 2, 1),
    sizes("attention_hs64_t257", 1, 257, 1, 64),
    sizes("attention_hs72_t129", 1, 129, 1, 72),
    sizes("attention_hs128_t70", 1, 70, 1, 128),
    Sizes { dropout: 0.25, ..sizes("attention_dropout_t1", 2, 1, 3, 5) },
    Sizes { dropout: 0.1, ..sizes("attention_dropout_hs48_t70", 1, 70, 1, 48) },
    Sizes { dropout: 0.2, ..sizes("attention_dropout_t130", 2, 130, 2, 1) },
    Sizes { sharpness: 40.0, ..sizes("attention_sharp", 1, 37, 2, 16) },
];

const STEP: StepInputs = StepInputs {
    lr: 0.0,
    grad_clip: 0.0,
    iteration: 5,
    seed: 42,
    first_row: 7,
    inverse_tokens: 1.0,
    position: 0,
};

pub fn cases(scratch: &Rc<dyn Scratch>) -> Result<Vec<Case>, PlanError> {
    TABLE.iter().map(|sizes| case(sizes, scratch)).collect()
}

fn case(sizes: &Sizes, scratch: &Rc<dyn Scratch>) -> Result<Case, PlanError> {
    let &Sizes { rows, positions, heads, .. } = sizes;
    let width = heads * sizes.head_size;
    let tolerance = if sizes.sharpness > 1.0 { SHARP_TOLERANCE } else { TOLERANCE };
    let mut case = CaseBuilder::with_scratch(sizes.name, "attention", tolerance, scratch);
    case.attribute("heads", Attribute::Int(heads as i64));
    let qkv_dims = [rows, positions, 3 * width];
    let mut values = case.drawn("qkv", &qkv_dims, STANDARD)?;
    for token in values.chunks_exact_mut(3 * width as usize) {
        token[..width as usize].iter_mut().for_each(|query| *query *= sizes.sharpness);
    }
    let qkv = case.given("qkv", &qkv_dims, values)?;
    let d_out = case.input("d_out", &[rows, positions, width], STANDARD)?;
    let dropout = dropout(&mut case, sizes);
    let out = case.tensor("out", &[rows, positions, width])?;
    let lse = case.tensor("lse", &[rows, heads, positions])?;
    let mut segment = case.segment();
    let attend = |workspace| Attention { qkv, out, lse, heads, dropout, workspace };
    segment.push_with_workspace(attend)?;
    let [d_qkv] = backward(&mut segment, &[], &[(out, d_out)], [qkv])?;
    let segment = segment.finish();
    case.run(segment, STEP);
    case.read("out", out);
    case.read("lse", lse);
    case.read("d_qkv", d_qkv);
    case.loss_dot("out", "d_out");
    if sizes.sharpness == 1.0 {
        case.gradient("qkv", "d_qkv"); // for sharp scores, a step that f32 can see is not small
    }
    Ok(case.finish())
}

fn dropout(case: &mut CaseBuilder, sizes: &Sizes) -> Option<Dropout> {
    if sizes.dropout == 0.0 {
        return None;
    }
    let &Sizes { rows, positions, heads, .. } = sizes;
    let dropout = Dropout { probability: sizes.dropout, layer: 1, site: DropoutSite::Attention };
    let place =
        MaskPlace { seed: STEP.seed, iteration: STEP.iteration, first_row: STEP.first_row * heads };
    let values = attention_mask(dropout, place, rows * heads, positions);
    case.aside("mask", &[rows, heads, positions, positions], Values::F32(values));
    Some(dropout)
}
