//! Launches of the update: norm, loss scale, AdamW.

use super::count;
use crate::lowering::{Extent, Kernel, Lowering, Place, Source, arguments, flag, format_name};
use plan::ops::{AdamW, GRAD_NORM_BLOCK, GradNorm, LossScaler, Scaling};
use plan::{BackendError, Dtype};

static UPDATE: Source = Source { file: "update.cu", parts: &[include_str!("update.cu")] };

const THREADS: u32 = 512;
/// Enough blocks for any GPU; each walks on in strides.
const MOST_BLOCKS: u64 = 2048;
const ELEMENTS_OF_A_THREAD: u64 = 4;

fn kernel(moments: Dtype, copy: Option<Dtype>, entry: &'static str) -> Kernel {
    let constants = vec![
        ("NORM_BLOCK", GRAD_NORM_BLOCK.to_string()),
        ("MOMENT", format_name(moments).to_string()),
        ("COPY", format_name(copy.unwrap_or(Dtype::F32)).to_string()),
        ("HAS_COPY", flag(copy.is_some())),
        ("ROUND_STOCHASTICALLY", flag(moments != Dtype::F32)),
    ];
    Kernel { source: &UPDATE, constants, entry }
}

fn plain(entry: &'static str) -> Kernel {
    kernel(Dtype::F32, None, entry)
}

pub(super) fn grad_norm(cx: &mut Lowering<'_>, op: &GradNorm) -> Result<(), BackendError> {
    let elements = cx.shape(op.gradients).elements();
    let blocks = elements.div_ceil(GRAD_NORM_BLOCK);
    let (partials, state) = (cx.place(op.partials)?, cx.place(op.state)?);
    let counted = count(blocks, "blocks of gradients")?;
    let arguments = arguments![counted, elements, cx.place(op.gradients)?, partials];
    cx.launch(plain("norm_partials"), Extent::new(blocks, THREADS), arguments)?;
    let arguments = arguments![counted, partials, state];
    cx.launch(plain("norm_total"), Extent::new(1, THREADS), arguments)
}

pub(super) fn loss_scaler(cx: &mut Lowering<'_>, op: &LossScaler) -> Result<(), BackendError> {
    let interval = match op.scaling {
        Scaling::Off => 0,
        Scaling::Dynamic { growth_interval } => growth_interval,
    };
    let arguments = arguments![1u32, cx.place(op.state)?, Place::Step, interval];
    cx.launch(plain("loss_scaler"), Extent::new(1, 32), arguments)
}

pub(super) fn adamw(cx: &mut Lowering<'_>, op: &AdamW) -> Result<(), BackendError> {
    let elements = cx.shape(op.weights).elements();
    let moments = cx.dtype(op.m);
    if moments == Dtype::F16 {
        return Err(super::unsupported("moments of f16".to_string()));
    }
    let copy = op.copy.map(|copy| cx.dtype(copy));
    let arguments = arguments![
        elements,
        cx.place(op.weights)?,
        cx.maybe(op.copy)?,
        cx.place(op.gradients)?,
        cx.place(op.m)?,
        cx.place(op.v)?,
        cx.place(op.state)?,
        Place::Step,
        op.beta1,
        op.beta2,
        op.eps,
        op.weight_decay,
        op.first,
    ];
    let blocks = elements.div_ceil(u64::from(THREADS) * ELEMENTS_OF_A_THREAD).min(MOST_BLOCKS);
    cx.launch(kernel(moments, copy, "adamw"), Extent::new(blocks, THREADS), arguments)
}
