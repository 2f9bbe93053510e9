//! Launches of GELU and its gradient.

use crate::lowering::{Extent, Kernel, Lowering, Source, arguments, flag, format_name, pack_of};
use plan::ops::{Gelu, GeluBackward, GeluKind};
use plan::{BackendError, TensorId};

static GELU: Source = Source { file: "gelu.cu", parts: &[include_str!("gelu.cu")] };

const THREADS: u32 = 256;

fn launch(
    cx: &mut Lowering<'_>,
    entry: &'static str,
    (kind, again): (GeluKind, bool),
    [x, other]: [TensorId; 2],
) -> Result<(), BackendError> {
    let (elements, dtype) = (cx.shape(x).elements(), cx.dtype(x));
    let pack = pack_of(elements, &[dtype]);
    let constants = vec![
        ("T", format_name(dtype).to_string()),
        ("VEC", pack.to_string()),
        ("TANH", flag(kind == GeluKind::Tanh)),
        ("AGAIN", flag(again)),
    ];
    let packs = elements / pack;
    let arguments = arguments![packs, cx.place(x)?, cx.place(other)?];
    let extent = Extent::new(packs.div_ceil(u64::from(THREADS)), THREADS);
    cx.launch(Kernel { source: &GELU, constants, entry }, extent, arguments)
}

pub(super) fn forward(cx: &mut Lowering<'_>, op: &Gelu) -> Result<(), BackendError> {
    launch(cx, "gelu_forward", (op.kind, false), [op.x, op.out])
}

pub(super) fn backward(cx: &mut Lowering<'_>, op: &GeluBackward) -> Result<(), BackendError> {
    launch(cx, "gelu_backward", (op.kind, op.again), [op.x, op.d])
}
