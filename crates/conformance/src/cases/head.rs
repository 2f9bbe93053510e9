//! The head in training and evaluation: odd vocabularies, with padding and without, tokens without
//! a target, several chunks, losses of rows that belong to other slices, a loss scale, and logits
//! that would overflow exp.

use crate::case::{Attribute, Case, Tolerance};
use crate::case_builder::{CaseBuilder, Normal, STANDARD, spread};
use crate::values::stream;
use plan::ops::{HeadEval, HeadTrain};
use plan::{PlanError, Scratch, StepInputs, StepState, TensorId};
use std::rc::Rc;

const LOSS_TOLERANCE: Tolerance = Tolerance {
    absolute: 1e-5,
    relative: 2e-6,
    reason: "f32 logits of order 1, a sum of exp over the vocabulary, sums of up to 150 losses",
};

const LARGE_LOSS_TOLERANCE: Tolerance =
    Tolerance { absolute: 2e-4, relative: 2e-6, reason: "logits reach hundreds, known to 2e-5" };

/// Gradients are as large as the factor on the loss; those of the weights are added to 0.1.
fn gradient_tolerance(sizes: &Sizes, factor: f64) -> Tolerance {
    if sizes.x.deviation > 1.0 {
        let reason = "logits are known to 2e-5, which is a relative error of each probability";
        return Tolerance { absolute: 1e-4 * factor, relative: 1e-4, reason };
    }
    let reason = "probabilities are known to 1e-6; sums over tokens or the vocabulary";
    Tolerance { absolute: 1e-5 * factor + 1e-7, relative: 1e-5, reason }
}

#[derive(Clone, Copy)]
struct Sizes {
    name: &'static str,
    rows: u64,
    positions: u64,
    width: u64,
    vocabulary: u64,
    /// Rows of the weight that are no tokens. They are not zero here, so that they would be seen.
    padding: u64,
    chunk: u64,
    loss_rows: u64,
    first_row: u64,
    loss_scale: f32,
    x: Normal,
    targets: Targets,
}

/// Which tokens have no target.
#[derive(Clone, Copy)]
enum Targets {
    All,
    /// A fifth of them.
    Some,
    /// A fifth of them, and the whole second sequence.
    NoSecondRow,
}

const SMALL: Sizes = Sizes {
    name: "v7",
    rows: 3,
    positions: 5,
    width: 6,
    vocabulary: 7,
    padding: 0,
    chunk: 15,
    loss_rows: 3,
    first_row: 0,
    loss_scale: 1.0,
    x: STANDARD,
    targets: Targets::All,
};

const TABLE: [Sizes; 8] = [
    SMALL,
    Sizes { name: "one", rows: 1, positions: 1, width: 1, vocabulary: 1, chunk: 1, ..SMALL },
    Sizes {
        name: "v65",
        rows: 2,
        positions: 13,
        width: 16,
        vocabulary: 65,
        chunk: 32, // more than there are
        loss_rows: 5,
        first_row: 2,
        loss_scale: 4.0,
        targets: Targets::Some,
        ..SMALL
    },
    Sizes {
        name: "v131_chunks",
        rows: 4,
        positions: 150,
        width: 5,
        vocabulary: 131,
        chunk: 256,
        loss_rows: 6,
        first_row: 1,
        targets: Targets::Some,
        ..SMALL
    },
    Sizes {
        name: "no_targets",
        positions: 11,
        vocabulary: 19,
        chunk: 33,
        targets: Targets::NoSecondRow,
        ..SMALL
    },
    Sizes {
        name: "large_logits",
        vocabulary: 33,
        x: spread(60.0),
        targets: Targets::Some,
        ..SMALL
    },
    Sizes { name: "v7_padded", padding: 2, targets: Targets::Some, ..SMALL },
    Sizes {
        name: "v257_padded_chunks",
        rows: 2,
        positions: 129,
        width: 2,
        vocabulary: 257,
        padding: 63,
        chunk: 256,
        loss_rows: 2,
        targets: Targets::Some,
        ..SMALL
    },
];

pub fn cases(scratch: &Rc<dyn Scratch>) -> Result<Vec<Case>, PlanError> {
    let mut all = Vec::new();
    for sizes in &TABLE {
        all.push(train(sizes, scratch)?);
        all.push(eval(sizes, scratch)?);
    }
    Ok(all)
}

/// The tensors that both heads share.
struct Head {
    case: CaseBuilder,
    x: TensorId,
    w: TensorId,
    targets: TensorId,
    token_loss: TensorId,
    row_loss: TensorId,
    slab: TensorId,
    step: StepInputs,
}

fn head(sizes: &Sizes, kind: &'static str, scratch: &Rc<dyn Scratch>) -> Result<Head, PlanError> {
    let &Sizes { rows, positions, width, chunk, loss_rows, first_row, padding, .. } = sizes;
    let columns = sizes.vocabulary + padding;
    let tolerance = if sizes.x.deviation > 1.0 { LARGE_LOSS_TOLERANCE } else { LOSS_TOLERANCE };
    let mut case =
        CaseBuilder::with_scratch(&format!("{kind}_{}", sizes.name), kind, tolerance, scratch);
    let x = case.input("x", &[rows, positions, width], sizes.x)?;
    let w = case.input("w", &[columns, width], spread(0.7))?;
    let ids = draw_targets(&case, sizes)?;
    let valid = ids.iter().filter(|&&id| id >= 0).count().max(1);
    let targets = case.ids("targets", &[rows, positions], ids)?;
    let row_loss = case.input("row_loss", &[loss_rows], STANDARD)?;
    let token_loss = case.tensor("token_loss", &[rows * positions])?;
    let slab = case.tensor("slab", &[chunk, columns])?;
    let inverse_tokens = 1.0 / valid as f32;
    let step = StepInputs { first_row, inverse_tokens, ..StepInputs::default() };
    case.attribute("first_row", Attribute::Int(first_row as i64));
    case.attribute("inverse_tokens", Attribute::Float(inverse_tokens.into()));
    case.attribute("loss_scale", Attribute::Float(sizes.loss_scale.into()));
    if padding > 0 {
        case.attribute("padding", Attribute::Int(padding as i64));
    }
    Ok(Head { case, x, w, targets, token_loss, row_loss, slab, step })
}

fn draw_targets(case: &CaseBuilder, sizes: &Sizes) -> Result<Vec<i32>, PlanError> {
    let dims = [sizes.rows, sizes.positions];
    let mut ids = case.drawn_ids("targets", &dims, sizes.vocabulary)?;
    let mut dice = stream(sizes.name, "without target");
    for (index, id) in ids.iter_mut().enumerate() {
        let fifth = dice.below(5) == 0;
        let second_row = index as u64 / sizes.positions == 1;
        let none = match sizes.targets {
            Targets::All => false,
            Targets::Some => fifth,
            Targets::NoSecondRow => fifth || second_row,
        };
        if none {
            *id = -1;
        }
    }
    Ok(ids)
}

fn train(sizes: &Sizes, scratch: &Rc<dyn Scratch>) -> Result<Case, PlanError> {
    let Head { mut case, x, w, targets, token_loss, row_loss, slab, step } =
        head(sizes, "head_train", scratch)?;
    let d_w = case.input("d_w", &[sizes.vocabulary + sizes.padding, sizes.width], spread(0.1))?;
    let padding = sizes.padding;
    let state = case.state(&StepState::initial(sizes.loss_scale))?;
    let mut segment = case.segment();
    segment.push_with_workspace(|workspace| HeadTrain {
        x,
        w,
        d_w,
        targets,
        token_loss,
        row_loss,
        slab,
        state,
        padding,
        workspace,
    })?;
    let segment = segment.finish();
    case.run(segment, step);
    case.read("token_loss", token_loss);
    case.read("row_loss", row_loss);
    let factor = f64::from(step.inverse_tokens) * f64::from(sizes.loss_scale);
    case.set_tolerance(gradient_tolerance(sizes, factor));
    case.read("d_x", x); // in place
    case.read("d_w", d_w);
    // A vocabulary of one token has no gradient, and with large logits no step is both small and
    // visible in f32.
    if sizes.x.deviation == 1.0 && sizes.vocabulary > 1 {
        case.loss_sum("token_loss", factor); // known better than the sums of rows
        case.gradient("x", "d_x");
        case.accumulated("w", "d_w");
    }
    Ok(case.finish())
}

fn eval(sizes: &Sizes, scratch: &Rc<dyn Scratch>) -> Result<Case, PlanError> {
    let Head { mut case, x, w, targets, token_loss, row_loss, slab, step } =
        head(sizes, "head_eval", scratch)?;
    let padding = sizes.padding;
    let mut segment = case.segment();
    segment.push_with_workspace(|workspace| HeadEval {
        x,
        w,
        targets,
        token_loss,
        row_loss,
        slab,
        padding,
        workspace,
    })?;
    let segment = segment.finish();
    case.run(segment, step);
    case.read("token_loss", token_loss);
    case.read("row_loss", row_loss);
    Ok(case.finish())
}
