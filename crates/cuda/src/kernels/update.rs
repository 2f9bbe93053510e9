//! Launches of the update: norm, loss scale, AdamW.

use super::count;
use crate::constants::constants;
use crate::kernel_source::{ModuleSpec, Source};
use crate::lowering::{Extent, Lowering};
use crate::signature::{In, Master, Moment, Out, WeightCopy, WorkCount, signatures};
use crate::step::Step;
use plan::ops::{AdamW, GRAD_NORM_BLOCK, GradNorm, LossScaler, NormOfSums, Scaling, SquareSums};
use plan::{BackendError, Dtype, StepState};

signatures! {
    /// Sums of squares, one for each block of gradients.
    NormPartials = norm_partials(
        blocks: WorkCount<u32>,
        elements: u64,
        gradients: In<f32>,
        partials: Out<f64>,
    );
    /// The norm.
    NormTotal = norm_total(blocks: WorkCount<u32>, partials: In<f64>, state: Out<StepState>);
    /// The norm from the sums of all ranks.
    NormOfRanks = norm_of_sums(
        blocks: WorkCount<u32>,
        ranks: u32,
        partials: In<f64>,
        state: Out<StepState>,
    );
    /// Clip factor and loss scale.
    ScaleLoss = loss_scaler(
        blocks: WorkCount<u32>,
        state: Out<StepState>,
        step: In<Step>,
        growth_interval: u32,
    );
    /// The update of weights and moments.
    UpdateWeights = adamw(
        elements: WorkCount<u64>,
        weights: Out<Master>,
        copy: Out<WeightCopy>,
        gradients: Out<f32>,
        m: Out<Moment>,
        v: Out<Moment>,
        state: In<StepState>,
        step: In<Step>,
        beta1: f64,
        beta2: f64,
        eps: f64,
        weight_decay: f64,
        first: u64,
    );
}

constants! {
    Constants {
        NORM_BLOCK: u64,
        MOMENT: Dtype,
        MASTER: Dtype,
        COPY: Dtype,
        HAS_COPY: bool,
        SPLIT: bool,
        ROUND_STOCHASTICALLY: bool,
    }
    fixed { THREADS, PACK }
}

pub(super) static UPDATE: Source = Source {
    file: "update.cu",
    signatures: SIGNATURES,
    constants: Constants::NAMES,
    parts: &[include_str!("update.cu")],
    warpgroups: false,
};

const THREADS: u32 = 512;
/// Enough blocks for any GPU; each block strides over the rest.
const MOST_BLOCKS: u64 = 2048;
/// Elements that a thread takes at a time.
const PACK: u64 = 4;

fn module(moments: Dtype, master: Dtype, copy: Option<Dtype>) -> ModuleSpec {
    let constants = Constants {
        NORM_BLOCK: GRAD_NORM_BLOCK,
        MOMENT: moments,
        MASTER: master,
        COPY: copy.unwrap_or(Dtype::F32),
        HAS_COPY: copy.is_some(),
        SPLIT: master == Dtype::U16,
        ROUND_STOCHASTICALLY: moments != Dtype::F32,
    };
    constants.module(&UPDATE)
}

/// For kernels that do not use the constants.
fn plain() -> ModuleSpec {
    module(Dtype::F32, Dtype::F32, None)
}

pub(super) fn grad_norm(cx: &mut Lowering<'_>, op: &GradNorm) -> Result<(), BackendError> {
    let elements = cx.shape(op.gradients).elements();
    let blocks = elements.div_ceil(GRAD_NORM_BLOCK);
    let counted = WorkCount(count(blocks, "blocks of gradients")?);
    let partials = cx.write(op.partials)?;
    let gradients = cx.read(op.gradients)?;
    let squares = NormPartials { blocks: counted, elements, gradients, partials };
    cx.launch(plain(), Extent::new(blocks, THREADS), squares)?;
    let state = cx.write(op.state)?;
    let total = NormTotal { blocks: counted, partials: partials.read(), state };
    cx.launch(plain(), Extent::new(1, THREADS), total)
}

/// The kernel of [`grad_norm`] on a range that begins with a block.
pub(super) fn square_sums(cx: &mut Lowering<'_>, op: &SquareSums) -> Result<(), BackendError> {
    let elements = cx.shape(op.gradients).elements();
    let blocks = elements.div_ceil(GRAD_NORM_BLOCK);
    let kernel = NormPartials {
        blocks: WorkCount(count(blocks, "blocks of gradients")?),
        elements,
        gradients: cx.read(op.gradients)?,
        partials: cx.write::<f64>(op.partials)?.plus(op.first_block * 8),
    };
    cx.launch(plain(), Extent::new(blocks, THREADS), kernel)
}

pub(super) fn norm_of_sums(cx: &mut Lowering<'_>, op: &NormOfSums) -> Result<(), BackendError> {
    let &[ranks, blocks, _] = cx.shape(op.partials).dims() else {
        return Err(super::unsupported("sums of squares that are not by rank".to_string()));
    };
    let kernel = NormOfRanks {
        blocks: WorkCount(count(blocks, "blocks of gradients")?),
        ranks: count(ranks, "ranks")?,
        partials: cx.read(op.partials)?,
        state: cx.write(op.state)?,
    };
    cx.launch(plain(), Extent::new(1, THREADS), kernel)
}

pub(super) fn loss_scaler(cx: &mut Lowering<'_>, op: &LossScaler) -> Result<(), BackendError> {
    let interval = match op.scaling {
        Scaling::Off => 0,
        Scaling::Dynamic { growth_interval } => growth_interval,
    };
    let kernel = ScaleLoss {
        blocks: WorkCount(1),
        state: cx.write(op.state)?,
        step: cx.step(),
        growth_interval: interval,
    };
    cx.launch(plain(), Extent::new(1, 32), kernel)
}

pub(super) fn adamw(cx: &mut Lowering<'_>, op: &AdamW) -> Result<(), BackendError> {
    let elements = cx.shape(op.weights).elements();
    let moments = cx.dtype(op.m);
    if moments == Dtype::F16 {
        return Err(super::unsupported("moments of f16".to_string()));
    }
    let copy = op.copy.map(|copy| cx.dtype(copy));
    let kernel = UpdateWeights {
        elements: WorkCount(elements),
        weights: cx.write(op.weights)?,
        copy: cx.maybe_write(op.copy)?,
        gradients: cx.write(op.gradients)?,
        m: cx.write(op.m)?,
        v: cx.write(op.v)?,
        state: cx.read(op.state)?,
        step: cx.step(),
        beta1: op.beta1,
        beta2: op.beta2,
        eps: op.eps,
        weight_decay: op.weight_decay,
        first: op.first,
    };
    let blocks = elements.div_ceil(u64::from(THREADS) * PACK).min(MOST_BLOCKS);
    let module = module(moments, cx.dtype(op.weights), copy);
    cx.launch(module, Extent::new(blocks, THREADS), kernel)
}
