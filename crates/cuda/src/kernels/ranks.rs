//! Launches of what travels between ranks: the kernels before and after it, and the exchange
//! itself, which the transport does.

use super::{count, unsupported};
use crate::constants::constants;
use crate::kernel_source::{ModuleSpec, Source};
use crate::lowering::{Extent, Location, Lowering};
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lowering::{LoweringOptions, Work, lower};
    use crate::tiles::Tiles;
    use plan::{
        Dtype, GpuScratch, Lane, Phase, Plan, Rank, Role, ScheduleBuilder, Shape, TensorId,
    };
    use std::rc::Rc;

    const SECOND: Rank = Rank { rank: 1, ranks: 3 };

    fn builder() -> ScheduleBuilder {
        ScheduleBuilder::with_scratch(Rc::new(GpuScratch { warpgroups: false }))
    }

    fn tensor(b: &mut ScheduleBuilder, name: &str, dtype: Dtype, elements: u64) -> TensorId {
        let shape = Shape::new(&[elements]).unwrap();
        b.run_tensor(name, dtype, shape, Role::Gradient).unwrap()
    }

    /// What a step becomes.
    fn lowered(mut b: ScheduleBuilder, lane: Lane, op: plan::ops::Op) -> Vec<Work> {
        let mut segment = b.segment("one", Phase::Train);
        segment.push_on(lane, op).unwrap();
        segment.finish();
        let plan = Plan::new(b.finish()).unwrap();
        let options = LoweringOptions {
            tf32: false,
            tiles: Tiles::Small,
            warpgroups: false,
            multiprocessors: 1,
        };
        lower(&plan, options).unwrap().segments.remove(0).remove(0)
    }

    /// Kernels by name, and what travels.
    fn said(work: &[Work]) -> Vec<String> {
        let say = |work: &Work| match work {
            Work::Kernel(kernel) => kernel.signature.entry.to_string(),
            Work::Copy { from, to, bytes } => format!("copy {bytes} {from:?} {to:?}"),
            Work::Fill { bytes, .. } => format!("fill {bytes}"),
            Work::Travel(Travel::AllToAll { send, received, pieces }) => {
                let place = if send == received { "in place" } else { "elsewhere" };
                format!("all to all {place} {pieces:?}")
            }
            Work::Travel(Travel::AllGather { pieces, .. }) => format!("all gather {pieces:?}"),
            Work::Matmul(_) => "matmul".to_string(),
        };
        work.iter().map(say).collect()
    }

    fn summed(rank: Rank, wire: Dtype, has_total: bool) -> Vec<Work> {
        let mut b = builder();
        let pieces = Pieces::of_blocks(rank, 100, 16);
        let gradients = tensor(&mut b, "gradients", Dtype::F32, 100);
        let total = has_total.then(|| tensor(&mut b, "total", Dtype::F32, pieces.own()));
        let make = |workspace| ReduceScatter { gradients, total, workspace, pieces, wire };
        let op = b.with_workspace(Lane::Communication, make).unwrap();
        lowered(b, Lane::Communication, op)
    }

    #[test]
    fn gradients_are_rounded_sent_and_added() {
        let single = said(&summed(SECOND, Dtype::F32, true));
        assert_eq!(single, ["all to all elsewhere [128, 128, 144]", "add_rows"]);
        let halves = said(&summed(SECOND, Dtype::Bf16, false));
        assert_eq!(halves, ["to_wire", "all to all elsewhere [64, 64, 72]", "add_rows"]);
    }

    /// 101 numbers of 16 bits end at byte 202; what arrives begins at 204.
    #[test]
    fn what_arrives_begins_where_f32_may() {
        let mut b = builder();
        let pieces = Pieces::of_blocks(SECOND, 101, 16);
        let gradients = tensor(&mut b, "gradients", Dtype::F32, 101);
        let (total, wire) = (None, Dtype::F16);
        let make = |workspace| ReduceScatter { gradients, total, workspace, pieces, wire };
        let op = b.with_workspace(Lane::Communication, make).unwrap();
        let work = lowered(b, Lane::Communication, op);
        let Work::Travel(Travel::AllToAll { send, received, .. }) = &work[1] else {
            panic!("{work:?}");
        };
        assert_eq!(send.plus(204), *received);
    }

    #[test]
    fn one_rank_rounds_and_sends_to_itself() {
        let plain = said(&summed(Rank::ONLY, Dtype::F32, false));
        assert_eq!(plain, ["all to all in place [400]"]);
        let total = said(&summed(Rank::ONLY, Dtype::F32, true));
        assert_eq!(total, ["all to all in place [400]", "add_rows"]);
        let halves = said(&summed(Rank::ONLY, Dtype::F16, true));
        assert_eq!(halves, ["round_alone", "all to all in place [400]", "add_rows"]);
    }

    #[test]
    fn a_piece_is_copied_to_its_place_and_gathered() {
        let mut b = builder();
        let pieces = Pieces::of_blocks(SECOND, 100, 16);
        let buffer = tensor(&mut b, "buffer", Dtype::Bf16, 100);
        let piece = Some(tensor(&mut b, "piece", Dtype::Bf16, pieces.own()));
        let work = lowered(b, Lane::Communication, AllGather { piece, buffer, pieces }.into());
        let Work::Travel(Travel::AllGather { buffer, pieces }) = &work[1] else {
            panic!("{work:?}");
        };
        assert_eq!(pieces, &[64, 64, 72]);
        let Work::Copy { to, bytes, .. } = &work[0] else { panic!("{work:?}") };
        assert_eq!((*to, *bytes), (buffer.plus(64), 64));
    }

    #[test]
    fn clear_is_a_fill() {
        let mut b = builder();
        let tensor = tensor(&mut b, "tensor", Dtype::F32, 100);
        assert_eq!(said(&lowered(b, Lane::Compute, Clear { tensor }.into())), ["fill 400"]);
    }

    #[test]
    fn ops_between_ranks_have_their_own_lane() {
        let mut b = builder();
        let buffer = tensor(&mut b, "buffer", Dtype::F32, 100);
        let pieces = Pieces::of_blocks(SECOND, 100, 16);
        let mut segment = b.segment("one", Phase::Train);
        segment.push(AllGather { piece: None, buffer, pieces }).unwrap();
        segment.finish();
        let plan = Plan::new(b.finish()).unwrap();
        let options = LoweringOptions {
            tf32: false,
            tiles: Tiles::Small,
            warpgroups: false,
            multiprocessors: 1,
        };
        let error = lower(&plan, options).map(|_| ()).unwrap_err().to_string();
        assert!(error.ends_with("all_gather on the lane of compute"), "{error}");
    }
}
