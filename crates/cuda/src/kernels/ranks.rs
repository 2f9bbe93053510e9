//! Launches of what travels between ranks: the kernels before and after it, and the exchange itself,
//! which the transport does.

use super::{count, unsupported};
use crate::constants::constants;
use crate::lowering::{Extent, Location, Lowering, ModuleSpec, Source};
use crate::signature::{In, Out, Wire, WorkCount, signatures};
use crate::transport::Travel;
use plan::ops::{AllGather, Clear, ReduceScatter};
use plan::{BackendError, Dtype, Pieces};

signatures! {
    /// Gradients in the format in which they travel.
    ToWire = to_wire(elements: WorkCount<u64>, gradients: In<f32>, sent: Out<Wire>);
    /// The same rounding where nothing travels.
    RoundAlone = round_alone(elements: WorkCount<u64>, gradients: Out<f32>);
    /// The sum of what arrived.
    AddRows = add_rows(
        elements: WorkCount<u64>,
        gradients: Out<f32>,
        total: Out<f32>,
        received: In<Wire>,
        first: u64,
        own: u64,
        ranks: u32,
    );
}

constants! {
    Constants { WIRE: Dtype, HAS_TOTAL: bool }
    fixed { THREADS }
}

pub(super) static RANKS: Source = Source {
    file: "ranks.cu",
    signatures: SIGNATURES,
    constants: Constants::NAMES,
    parts: &[include_str!("ranks.cu")],
    warpgroups: false,
};

const THREADS: u32 = 512;
/// Enough for the full rate of memory; each block strides over the rest.
const MOST_BLOCKS: u64 = 1024;

fn module(wire: Dtype, has_total: bool) -> ModuleSpec {
    Constants { WIRE: wire, HAS_TOTAL: has_total }.module(&RANKS)
}

fn extent(elements: u64) -> Extent {
    let blocks = elements.div_ceil(u64::from(THREADS)).min(MOST_BLOCKS);
    Extent::new(blocks, THREADS)
}

/// The length of each rank's piece, for elements of `size` bytes.
fn bytes_of(pieces: &Pieces, size: u64) -> Result<Vec<usize>, BackendError> {
    let bytes = |elements: &u64| {
        let bytes = elements.checked_mul(size).and_then(|bytes| usize::try_from(bytes).ok());
        bytes.ok_or_else(|| unsupported(format!("a piece of {elements} elements")))
    };
    pieces.lengths().iter().map(bytes).collect()
}

pub(super) fn clear(cx: &mut Lowering<'_>, op: &Clear) -> Result<(), BackendError> {
    let (at, bytes) = (cx.location(op.tensor)?, cx.bytes(op.tensor));
    on_device(at, "zeros")?;
    cx.fill(at, bytes);
    Ok(())
}

pub(super) fn all_gather(cx: &mut Lowering<'_>, op: &AllGather) -> Result<(), BackendError> {
    let size = cx.dtype(op.buffer).size();
    let buffer = cx.location(op.buffer)?;
    on_device(buffer, "gathered pieces")?;
    if let Some(piece) = op.piece {
        let (from, bytes) = (cx.location(piece)?, cx.bytes(piece));
        cx.copy(from, buffer.plus(op.pieces.before_own() * size), bytes);
    }
    cx.travel(Travel::AllGather { buffer, pieces: bytes_of(&op.pieces, size)? });
    Ok(())
}

pub(super) fn reduce_scatter(
    cx: &mut Lowering<'_>,
    op: &ReduceScatter,
) -> Result<(), BackendError> {
    if op.pieces.total() == 0 {
        return Ok(());
    }
    match op.pieces.ranks() {
        1 => alone(cx, op),
        _ => among_others(cx, op),
    }
}

/// One rank: its gradients travel to itself, in place.
fn alone(cx: &mut Lowering<'_>, op: &ReduceScatter) -> Result<(), BackendError> {
    let elements = op.pieces.total();
    if op.wire != Dtype::F32 {
        let kernel =
            RoundAlone { elements: WorkCount(elements), gradients: cx.write(op.gradients)? };
        cx.launch(module(op.wire, false), extent(elements), kernel)?;
    }
    let at = cx.location(op.gradients)?;
    let pieces = bytes_of(&op.pieces, Dtype::F32.size())?;
    cx.travel(Travel::AllToAll { send: at, received: at, pieces });
    match op.total {
        Some(_) => {
            let received = cx.read(op.gradients)?;
            add_rows(cx, op, Dtype::F32, received)
        }
        None => Ok(()),
    }
}

fn among_others(cx: &mut Lowering<'_>, op: &ReduceScatter) -> Result<(), BackendError> {
    let elements = op.pieces.total();
    let needed = op.workspace_bytes();
    if needed.is_none_or(|needed| needed > cx.bytes(op.workspace)) {
        let what = "a workspace that is too small for what travels".to_string();
        return Err(BackendError::Internal { what });
    }
    let workspace = cx.scratch::<Wire>(op.workspace)?;
    let (send, received) = match op.wire {
        Dtype::F32 => (cx.location(op.gradients)?, workspace),
        wire => {
            let gradients = cx.read(op.gradients)?;
            let kernel = ToWire { elements: WorkCount(elements), gradients, sent: workspace };
            cx.launch(module(wire, false), extent(elements), kernel)?;
            // What arrives begins where f32 may begin, as the workspace's size assumes.
            let sent = (elements * wire.size()).next_multiple_of(4);
            (workspace.pointer().location, workspace.plus(sent))
        }
    };
    cx.travel(Travel::AllToAll {
        send,
        received: received.pointer().location,
        pieces: bytes_of(&op.pieces, op.wire.size())?,
    });
    add_rows(cx, op, op.wire, received.read())
}

fn add_rows(
    cx: &mut Lowering<'_>,
    op: &ReduceScatter,
    wire: Dtype,
    received: In<Wire>,
) -> Result<(), BackendError> {
    let elements = op.pieces.total();
    let kernel = AddRows {
        elements: WorkCount(elements),
        gradients: cx.write(op.gradients)?,
        total: cx.maybe_write(op.total)?,
        received,
        first: op.pieces.before_own(),
        own: op.pieces.own(),
        ranks: count(op.pieces.ranks() as u64, "ranks")?,
    };
    cx.launch(module(wire, op.total.is_some()), extent(elements), kernel)
}

/// Refuses a place in the host's memory.
fn on_device(location: Location, what: &str) -> Result<(), BackendError> {
    match location {
        Location::Host(_) => Err(unsupported(format!("{what} in host memory"))),
        _ => Ok(()),
    }
}
