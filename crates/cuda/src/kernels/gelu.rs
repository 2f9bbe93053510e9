//! Launches of GELU and its gradient.

use crate::constants::constants;
use crate::kernel_source::Source;
use crate::lowering::{Extent, Lowering, pack_of};
use crate::signature::{In, Launch, Out, T, WorkCount, signatures};
use plan::ops::{Gelu, GeluBackward, GeluBefore, GeluKind};
use plan::{BackendError, Dtype, TensorId};

signatures! {
    /// The function.
    GeluForward = gelu_forward(packs: WorkCount<u64>, x: In<T>, out: Out<T>);
    /// Its gradient in place. In the re-emitting form, `x` is overwritten with the function.
    GeluGradient = gelu_backward(packs: WorkCount<u64>, x: Out<T>, d: Out<T>);
}

constants! {
    Constants { T: Dtype, VEC: u64, TANH: bool, AGAIN: bool }
    fixed { THREADS }
}

/// The function itself.
pub(super) const FUNCTION: &str = include_str!("gelu.cuh");

pub(crate) static GELU: Source = Source {
    file: "gelu.cu",
    signatures: SIGNATURES,
    constants: Constants::NAMES,
    parts: &[FUNCTION, include_str!("gelu.cu")],
    warpgroups: false,
};

const THREADS: u32 = 256;

fn launch<K: Launch>(
    cx: &mut Lowering<'_>,
    (kind, again): (GeluKind, bool),
    x: TensorId,
    kernel: impl FnOnce(WorkCount<u64>) -> K,
) -> Result<(), BackendError> {
    let (elements, dtype) = (cx.shape(x).elements(), cx.dtype(x));
    let pack = pack_of(elements, &[dtype]);
    let constants = Constants { T: dtype, VEC: pack, TANH: kind == GeluKind::Tanh, AGAIN: again };
    let packs = elements / pack;
    let extent = Extent::new(packs.div_ceil(u64::from(THREADS)), THREADS);
    cx.launch(constants.module(&GELU), extent, kernel(WorkCount(packs)))
}

pub(super) fn forward(cx: &mut Lowering<'_>, op: &Gelu) -> Result<(), BackendError> {
    apply(cx, op.kind, op.x, op.out)
}

/// GELU of `x`, which may be `out` itself.
pub(super) fn apply(
    cx: &mut Lowering<'_>,
    kind: GeluKind,
    x: TensorId,
    out: TensorId,
) -> Result<(), BackendError> {
    let (from, out) = (cx.read(x)?, cx.write(out)?);
    launch(cx, (kind, false), x, |packs| GeluForward { packs, x: from, out })
}

pub(super) fn backward(cx: &mut Lowering<'_>, op: &GeluBackward) -> Result<(), BackendError> {
    slope(cx, GeluBefore { kind: op.kind, x: op.x, again: op.again }, op.d)
}

/// `d` times the slope of a GELU.
pub(super) fn slope(
    cx: &mut Lowering<'_>,
    gelu: GeluBefore,
    d: TensorId,
) -> Result<(), BackendError> {
    let GeluBefore { kind, x, again } = gelu;
    let (at, d) = (cx.write_if(again, x)?, cx.write(d)?);
    launch(cx, (kind, again), x, |packs| GeluGradient { packs, x: at, d })
}
