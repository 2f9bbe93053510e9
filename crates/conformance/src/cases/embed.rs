//! Embeddings: repeated tokens, fewer positions than the table has, no table of positions, dropout,
//! and the position of a decode step.

use crate::case::{Attribute, Case, Tolerance};
use crate::case_builder::{CaseBuilder, STANDARD, backward};
use crate::masks::{MaskPlace, mask};
use crate::values::Values;
use plan::ops::{Dropout, DropoutSite, Embed, PositionFrom};
use plan::{PlanError, Scratch, StepInputs};
use std::rc::Rc;

const TOLERANCE: Tolerance = Tolerance {
    absolute: 4e-6,
    relative: 1e-6,
    reason: "sums of one gradient for each use of a token or position, at most 40, of order 1",
};

struct Sizes {
    name: &'static str,
    rows: u64,
    positions: u64,
    /// Positions that are embedded; 0 where none are learned.
    block: u64,
    vocabulary: u64,
    width: u64,
    /// Tokens are drawn below this, so that they repeat.
    used: u64,
    dropout: f32,
}

const TABLE: [Sizes; 5] = [
    Sizes {
        name: "embed",
        rows: 2,
        positions: 5,
        block: 5,
        vocabulary: 13,
        width: 7,
        used: 13,
        dropout: 0.0,
    },
    Sizes {
        name: "embed_repeated",
        rows: 4,
        positions: 9,
        block: 11,
        vocabulary: 17,
        width: 33,
        used: 3,
        dropout: 0.0,
    },
    Sizes {
        name: "embed_dropout",
        rows: 3,
        positions: 6,
        block: 9,
        vocabulary: 11,
        width: 18,
        used: 5,
        dropout: 0.1,
    },
    Sizes {
        name: "embed_without_positions",
        rows: 3,
        positions: 7,
        block: 0,
        vocabulary: 9,
        width: 12,
        used: 4,
        dropout: 0.1,
    },
    Sizes {
        name: "embed_one",
        rows: 1,
        positions: 1,
        block: 1,
        vocabulary: 1,
        width: 1,
        used: 1,
        dropout: 0.0,
    },
];

const STEP: StepInputs = StepInputs {
    lr: 0.0,
    grad_clip: 0.0,
    iteration: 3,
    seed: 8,
    first_row: 2,
    inverse_tokens: 1.0,
    position: 0,
};

pub fn cases(scratch: &Rc<dyn Scratch>) -> Result<Vec<Case>, PlanError> {
    let mut all = TABLE.iter().map(|sizes| case(sizes, scratch)).collect::<Result<Vec<_>, _>>()?;
    all.push(decode()?);
    Ok(all)
}

fn case(sizes: &Sizes, scratch: &Rc<dyn Scratch>) -> Result<Case, PlanError> {
    let &Sizes { rows, positions, block, vocabulary, width, used, .. } = sizes;
    let mut case = CaseBuilder::with_scratch(sizes.name, "embed", TOLERANCE, scratch);
    case.attribute("position", Attribute::Int(0));
    let ids = case.drawn_ids("tokens", &[rows, positions], used)?;
    let tokens = case.ids("tokens", &[rows, positions], ids)?;
    let wte = case.input("wte", &[vocabulary, width], STANDARD)?;
    let learned = block > 0;
    let wpe = learned.then(|| case.input("wpe", &[block, width], STANDARD)).transpose()?;
    let d_out = case.input("d_out", &[rows, positions, width], STANDARD)?;
    let d_wte = case.input("d_wte", &[vocabulary, width], STANDARD)?;
    let d_wpe = learned.then(|| case.input("d_wpe", &[block, width], STANDARD)).transpose()?;
    let dropout = (sizes.dropout > 0.0).then_some(Dropout {
        probability: sizes.dropout,
        layer: 0,
        site: DropoutSite::Embedding,
    });
    if let Some(dropout) = dropout {
        let first_row = STEP.first_row * positions;
        let place = MaskPlace { seed: STEP.seed, iteration: STEP.iteration, first_row };
        let values = mask(dropout, place, rows * positions, width);
        case.aside("mask", &[rows, positions, width], Values::F32(values));
    }
    let out = case.tensor("out", &[rows, positions, width])?;
    let mut segment = case.segment();
    segment.push(Embed { tokens, wte, wpe, out, position: PositionFrom::Zero, dropout })?;
    let gradients: Vec<_> = [(wte, d_wte)].into_iter().chain(wpe.zip(d_wpe)).collect();
    backward(&mut segment, &gradients, &[(out, d_out)], [])?;
    let segment = segment.finish();
    case.run(segment, STEP);
    case.read("out", out);
    case.read("d_wte", d_wte);
    case.loss_dot("out", "d_out");
    case.accumulated("wte", "d_wte");
    if let Some(d_wpe) = d_wpe {
        case.read("d_wpe", d_wpe);
        case.accumulated("wpe", "d_wpe");
    }
    Ok(case.finish())
}

/// One token of each sequence, in the middle of the context.
fn decode() -> Result<Case, PlanError> {
    let (rows, block, vocabulary, width, position) = (3, 8, 10, 12, 5);
    let mut case = CaseBuilder::new("embed_decode", "embed", TOLERANCE);
    case.attribute("position", Attribute::Int(position as i64));
    let ids = case.drawn_ids("tokens", &[rows, 1], vocabulary)?;
    let tokens = case.ids("tokens", &[rows, 1], ids)?;
    let wte = case.input("wte", &[vocabulary, width], STANDARD)?;
    let wpe = case.input("wpe", &[block, width], STANDARD)?;
    let out = case.tensor("out", &[rows, 1, width])?;
    let mut segment = case.segment();
    let from = PositionFrom::Step;
    segment.push(Embed { tokens, wte, wpe: Some(wpe), out, position: from, dropout: None })?;
    let segment = segment.finish();
    case.run(segment, StepInputs { position, ..STEP });
    case.read("out", out);
    Ok(case.finish())
}
