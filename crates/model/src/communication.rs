//! What travels between ranks: gradients at the end of a group, losses, and the shards of state
//! that a checkpoint needs in one piece.

use crate::program::{AverageSegments, ShardedRole};
use crate::run_tensors::{FlatRole, RunTensors, element_offset, missing};
use crate::sharing::{Piece, Window};
use plan::ops::{AllGather, Op, ReduceScatter, Transfer};
use plan::{
    Lane, Pass, Phase, Pieces, PlanError, ScheduleBuilder, Scope, SegmentId, Shape, Tensor,
    TensorId, View,
};

/// The sums of gradients over all ranks, window by window. Each is inserted where its gradients are
/// complete. Empty without groups.
pub(crate) fn departures(b: &mut ScheduleBuilder, run: &RunTensors) -> Result<Vec<Op>, PlanError> {
    match run.sharing.has_groups() {
        true => sums(b, run),
        false => Ok(Vec::new()),
    }
}

/// The sums of all windows of gradients over all ranks.
fn sums(b: &mut ScheduleBuilder, run: &RunTensors) -> Result<Vec<Op>, PlanError> {
    let wire = run.sharing.wire;
    let mut ops = Vec::new();
    for window in &run.shard.windows {
        let gradients = gradients_of(b, run, window)?;
        let total = match own_piece(run, window) {
            Some(piece) => total_of(b, run, &piece)?,
            None => None,
        };
        let pieces = window.pieces.clone();
        let make = |workspace| ReduceScatter { gradients, total, workspace, pieces, wire };
        ops.push(b.with_workspace(Lane::Communication, make)?);
    }
    Ok(ops)
}

/// The segments with which ranks average their weights; none unless they do. The host writes how
/// far this rank's weights have moved into the array of gradients, and gets the sum over all ranks
/// of its pieces. Then it writes the averages of its pieces there, in the format in which they
/// travel, and gets those of all ranks.
pub(crate) fn averaging(
    b: &mut ScheduleBuilder,
    run: &RunTensors,
) -> Result<Option<AverageSegments>, PlanError> {
    if !run.sharing.averages || !run.sharing.rank.has_others() {
        return Ok(None);
    }
    let sums = sums(b, run)?;
    let mut gathered = Vec::new();
    let root = run.flat.gradients.as_ref().ok_or_else(|| missing("gradients"))?.root;
    for window in &run.shard.windows {
        let like = Some((run.sharing.wire, "average"));
        let buffer = window_of(b, root, window.first, window.pieces.total(), like)?;
        gathered.push(AllGather { piece: None, buffer, pieces: window.pieces.clone() });
    }
    let mut segment = b.segment("sum of changes", Phase::Train);
    segment.set_pass(Pass::Update);
    for op in sums {
        segment.push_on(Lane::Communication, op)?;
    }
    let sum = segment.finish();
    let mut segment = b.segment("gather averages", Phase::Train);
    segment.set_pass(Pass::Update);
    for op in gathered {
        segment.push_on(Lane::Communication, op)?;
    }
    Ok(Some(AverageSegments { sum, gather: segment.finish() }))
}

/// The gradients of a window.
pub(crate) fn gradients_of(
    b: &mut ScheduleBuilder,
    run: &RunTensors,
    window: &Window,
) -> Result<TensorId, PlanError> {
    let role = run.flat.gradients.as_ref().ok_or_else(|| missing("gradients"))?;
    window_of(b, role.root, window.first, window.pieces.total(), None)
}

/// This rank's piece of a window.
fn own_piece(run: &RunTensors, window: &Window) -> Option<Piece> {
    let first = window.first + window.pieces.before_own();
    run.shard.pieces.iter().find(|piece| piece.first == first && window.pieces.own() > 0).copied()
}

/// Where the sum of a piece over several rounds is; none with one round.
fn total_of(
    b: &mut ScheduleBuilder,
    run: &RunTensors,
    piece: &Piece,
) -> Result<Option<TensorId>, PlanError> {
    run.totals.map(|root| window_of(b, root, piece.at, piece.elements, None)).transpose()
}

/// Where the sum of a piece over all ranks and rounds is.
pub(crate) fn sum_of(
    b: &mut ScheduleBuilder,
    run: &RunTensors,
    piece: &Piece,
) -> Result<TensorId, PlanError> {
    let gradients = run.flat.gradients.as_ref().ok_or_else(|| missing("gradients"))?.root;
    match total_of(b, run, piece)? {
        Some(total) => Ok(total),
        None => window_of(b, gradients, piece.first, piece.elements, None),
    }
}

/// Brings the sums of all ranks together in the gradients of a window.
pub(crate) fn gathered_gradients(
    b: &mut ScheduleBuilder,
    run: &RunTensors,
    window: &Window,
) -> Result<AllGather, PlanError> {
    let piece = match own_piece(run, window) {
        Some(piece) => total_of(b, run, &piece)?,
        None => None,
    };
    let buffer = gradients_of(b, run, window)?;
    Ok(AllGather { piece, buffer, pieces: window.pieces.clone() })
}

/// Brings the updated weights of all ranks together in a window.
pub(crate) fn gathered_weights(
    b: &mut ScheduleBuilder,
    run: &RunTensors,
    window: &Window,
) -> Result<AllGather, PlanError> {
    let root = run.flat.compute.root;
    let buffer = window_of(b, root, window.first, window.pieces.total(), None)?;
    Ok(AllGather { piece: None, buffer, pieces: window.pieces.clone() })
}

/// The op that brings the losses of all ranks together; none in a run of one rank.
pub(crate) fn gathered_losses(b: &ScheduleBuilder, run: &RunTensors) -> Option<AllGather> {
    let (piece, buffer) = (run.row_loss?, run.row_losses?);
    let each = b.tensors().get(piece).shape.elements();
    let pieces = Pieces::equal(run.sharing.rank, each);
    Some(AllGather { piece: Some(piece), buffer, pieces })
}

/// The segment that does so after an evaluation.
pub(crate) fn gather_losses(
    b: &mut ScheduleBuilder,
    run: &RunTensors,
) -> Result<Option<SegmentId>, PlanError> {
    let Some(op) = gathered_losses(b, run) else { return Ok(None) };
    let mut segment = b.segment("gather losses", Phase::Eval);
    segment.push_on(Lane::Communication, op)?;
    Ok(Some(segment.finish()))
}

/// The segments that put shards of state together.
pub(crate) fn sharded_roles(
    b: &mut ScheduleBuilder,
    run: &RunTensors,
) -> Result<Vec<ShardedRole>, PlanError> {
    let roles = run.flat.master.iter().chain(run.flat.state.iter().map(|(_, role)| role));
    roles.filter(|role| role.is_sharded).map(|role| sharded_role(b, run, role)).collect()
}

fn sharded_role(
    b: &mut ScheduleBuilder,
    run: &RunTensors,
    role: &FlatRole,
) -> Result<ShardedRole, PlanError> {
    let gradients = run.flat.gradients.as_ref().ok_or_else(|| missing("gradients"))?.root;
    let row = b.tensors().get(role.root).clone();
    let mut ops = Vec::new();
    for window in &run.shard.windows {
        // In the format of the role, which may have fewer bytes than a gradient.
        let like = Some((row.dtype, "gathered"));
        let (mut piece, mut arrives) = (None, None);
        if let Some(own) = own_piece(run, window) {
            let from = window_of(b, role.root, own.at, own.elements, None)?;
            // State in host memory comes to its place in the buffer first.
            match row.scope {
                Scope::Host => {
                    let to = window_of(b, gradients, own.first, own.elements, like)?;
                    arrives = Some(Transfer { from, to });
                }
                _ => piece = Some(from),
            }
        }
        let buffer = window_of(b, gradients, window.first, window.pieces.total(), like)?;
        ops.push((arrives, AllGather { piece, buffer, pieces: window.pieces.clone() }));
    }
    let mut segment = b.segment(&format!("gather {}", row.name), Phase::Train);
    segment.set_pass(Pass::Update);
    for (arrives, gather) in ops {
        if let Some(arrives) = arrives {
            segment.push_on(Lane::Upload, arrives)?;
        }
        segment.push_on(Lane::Communication, gather)?;
    }
    let gather = segment.finish();
    let size = row.dtype.size();
    let first = role.windows.iter().map(|&id| b.tensors().root(id).1.get() / size).collect();
    Ok(ShardedRole { root: role.root, gather, gathered: role.windows.clone(), first })
}

/// A view of `elements` elements of a flat array, in its own number format or another.
pub(crate) fn window_of(
    b: &mut ScheduleBuilder,
    root: TensorId,
    first: u64,
    elements: u64,
    like: Option<(plan::Dtype, &str)>,
) -> Result<TensorId, PlanError> {
    let row = b.tensors().get(root).clone();
    let (dtype, name) = match like {
        Some((dtype, name)) => (dtype, format!("{name} {first}")),
        None => (row.dtype, format!("{} {first}", row.name)),
    };
    let view = Some(View { root, offset: element_offset(first, dtype)? });
    b.tensor(Tensor { name, dtype, shape: Shape::new(&[elements])?, view, ..row })
}
