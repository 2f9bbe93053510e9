//! The segment of the update: gradient norm, loss scale, and the optimizer over two groups of
//! parameters. If the optimizer's state is in host memory, it passes through the device window by
//! window: while one is updated, the next arrives and the last one returns.

use crate::communication;
use crate::optimizer::{OptimizerSpec, UpdatePart};
use crate::run_tensors::{Flat, RunTensors, element_offset, missing};
use plan::ops::{
    AllGather, Clear, GRAD_NORM_BLOCK, GradNorm, LossScaler, NormOfSums, SquareSums, Transfer,
};
use plan::{
    Dtype, Lane, Pass, Phase, Pieces, PlanError, Role, ScheduleBuilder, Scope, SegmentBuilder,
    SegmentId, Shape, TensorId,
};
use std::collections::VecDeque;
use std::ops::Range;

/// Elements of offloaded state that pass through the device at a time: 16 MiB of f32, large enough
/// for a copy at full rate.
pub const OFFLOAD_WINDOW: u64 = 1 << 22;

/// Models beyond 8.6 billion parameters get larger windows, so that planning takes little time and
/// memory.
const MOST_WINDOWS: u64 = 1 << 11;

/// Elements of any format whose bytes are a multiple of what views must begin at.
const ALIGNED: u64 = 128;

/// Windows that are on their way to the device ahead of the one that is updated. With two, three
/// windows of master weights and state are alive: one arrives while another returns, and neither
/// waits for the update of the third.
const WINDOWS_AHEAD: usize = 2;

/// A range of all parameters that one op updates.
struct Part {
    first: u64,
    elements: u64,
    weight_decay: f64,
    /// The weights and the optimizer's state, on the device or the host.
    state: Vec<TensorId>,
    gradients: TensorId,
    copy: Option<TensorId>,
}

/// Builds the segment.
pub(crate) fn segment(
    builder: &mut ScheduleBuilder,
    run: &RunTensors,
    spec: &OptimizerSpec,
) -> Result<SegmentId, PlanError> {
    let parts = parts(builder, run, spec)?;
    let norm = Norm::new(builder, run)?;
    // Ranks that train alone wait for nobody.
    let losses = match run.sharing.has_groups() {
        true => communication::gathered_losses(builder, run),
        false => None,
    };
    let windows = run.shard.windows.iter();
    let mut weights = Vec::new();
    if run.sharing.is_sharded() {
        let gathered = |window| communication::gathered_weights(builder, run, window);
        weights = windows.map(gathered).collect::<Result<_, _>>()?;
    }
    let mut segment = builder.segment("update", Phase::Train);
    segment.set_pass(Pass::Update);
    norm.push(&mut segment, run.state)?;
    segment.push(LossScaler { state: run.state, scaling: spec.scaling })?;
    if let Some(losses) = losses {
        segment.push_on(Lane::Communication, losses)?;
    }
    change_all(&mut segment, run, spec, &parts, weights)?;
    if let (false, Some(totals)) = (run.sharing.is_sharded(), run.totals) {
        segment.push(Clear { tensor: totals })?;
    }
    Ok(segment.finish())
}

/// Appends the updates of all parts. State that is in host memory comes and goes beside them, and
/// `weights`, what ranks gather of the weights, follows as soon as this rank's piece is updated.
fn change_all(
    segment: &mut SegmentBuilder<'_>,
    run: &RunTensors,
    spec: &OptimizerSpec,
    parts: &[Part],
    weights: Vec<AllGather>,
) -> Result<(), PlanError> {
    let windows = run.shard.windows.iter().map(|window| window.first + window.pieces.total());
    let mut weights = windows.zip(weights).peekable();
    let mut coming = parts.iter();
    let mut arriving = VecDeque::new();
    for part in coming.by_ref().take(WINDOWS_AHEAD) {
        arriving.push_back(arrive(segment, part)?);
    }
    for part in parts {
        while let Some((_, weights)) = weights.next_if(|(end, _)| *end <= part.first) {
            segment.push_on(Lane::Communication, weights)?;
        }
        if let Some(part) = coming.next() {
            arriving.push_back(arrive(segment, part)?);
        }
        let here = arriving.pop_front().unwrap_or_else(|| part.state.clone());
        change(segment, part, &here, run.state, spec)?;
        let back = here.into_iter().zip(part.state.iter().copied());
        for (from, to) in back.filter(|(from, to)| from != to) {
            segment.push_on(Lane::Download, Transfer { from, to })?;
        }
    }
    weights.try_for_each(|(_, weights)| segment.push_on(Lane::Communication, weights))
}

/// The steps that make the norm of all gradients, after every rank has what it needs of them.
enum Norm {
    /// Of this rank's gradients, which are all; first brought together if ranks have summed pieces.
    Whole { gathered: Vec<AllGather>, gradients: TensorId, blocks: Shape },
    /// From the sums of squares of all ranks' pieces.
    OfPieces { pieces: Vec<SquareSums>, own: TensorId, all: AllGather, sums: TensorId },
}

impl Norm {
    fn new(b: &mut ScheduleBuilder, run: &RunTensors) -> Result<Norm, PlanError> {
        let gradients = run.flat.gradients.as_ref().ok_or_else(|| missing("gradients"))?.root;
        let count = run.total.div_ceil(GRAD_NORM_BLOCK);
        if !run.sharing.is_sharded() {
            let windows = run.shard.windows.iter().filter(|_| run.sharing.has_groups());
            let gathered = windows.map(|window| communication::gathered_gradients(b, run, window));
            let gathered = gathered.collect::<Result<_, _>>()?;
            let blocks = Shape::new(&[count, 2])?;
            return Ok(Norm::Whole { gathered, gradients, blocks });
        }
        let (rank, ranks) = (run.sharing.rank, run.sharing.rank.ranks as u64);
        let mut sums = |name: &str, dims: &[u64]| {
            b.run_tensor(name, Dtype::U32, Shape::new(dims)?, Role::State)
        };
        let own = sums("norm_partials", &[count, 2])?;
        let everybody = sums("norm_partials of all ranks", &[ranks, count, 2])?;
        let words = count.saturating_mul(2);
        let flat = |b: &mut ScheduleBuilder, root, words| {
            communication::window_of(b, root, 0, words, None)
        };
        let all = AllGather {
            piece: Some(flat(b, own, words)?),
            buffer: flat(b, everybody, words.saturating_mul(ranks))?,
            pieces: Pieces::equal(rank, words),
        };
        let pieces = run.shard.pieces.iter().map(|piece| {
            let gradients = communication::sum_of(b, run, piece)?;
            let first_block = piece.first / GRAD_NORM_BLOCK;
            Ok(SquareSums { gradients, partials: own, first_block })
        });
        let pieces = pieces.collect::<Result<_, PlanError>>()?;
        Ok(Norm::OfPieces { pieces, own, all, sums: everybody })
    }

    fn push(self, segment: &mut SegmentBuilder<'_>, state: TensorId) -> Result<(), PlanError> {
        match self {
            Norm::Whole { gathered, gradients, blocks } => {
                for op in gathered {
                    segment.push_on(Lane::Communication, op)?;
                }
                let partials =
                    segment.local("norm_partials", Dtype::U32, blocks, Role::Partials)?;
                segment.push(GradNorm { gradients, partials, state })
            }
            Norm::OfPieces { pieces, own, all, sums } => {
                segment.push(Clear { tensor: own })?;
                for piece in pieces {
                    segment.push(piece)?;
                }
                segment.push_on(Lane::Communication, all)?;
                segment.push(NormOfSums { partials: sums, state })
            }
        }
    }
}

/// Elements of a window, where `wanted` of `total` are asked for. Windows begin where views may.
fn window(wanted: u64, total: u64) -> u64 {
    let least = (total / MOST_WINDOWS).next_multiple_of(ALIGNED);
    wanted.max(least).max(1)
}

/// Consecutive elements with one weight decay that this rank updates.
struct Stretch {
    name: &'static str,
    first: u64,
    elements: u64,
    weight_decay: f64,
    /// Where its state begins in the arrays of state.
    at: u64,
    /// Where its gradients are, and which of their elements is its first.
    gradients: (TensorId, u64),
}

/// The parameters with weight decay and the others; of both only what is in this rank's shard, if
/// ranks divide the update among themselves.
fn stretches(
    run: &RunTensors,
    builder: &mut ScheduleBuilder,
    decay: f64,
) -> Result<Vec<Stretch>, PlanError> {
    let gradients = run.flat.gradients.as_ref().ok_or_else(|| missing("gradients"))?.root;
    let groups = [("decayed", 0..run.decayed, decay), ("other", run.decayed..run.total, 0.0)];
    let mut found = Vec::new();
    if !run.sharing.is_sharded() {
        for (name, Range { start, end }, weight_decay) in groups {
            let (elements, gradients) = (end - start, (gradients, start));
            found.push(Stretch {
                name,
                first: start,
                elements,
                weight_decay,
                at: start,
                gradients,
            });
        }
        return Ok(found);
    }
    for piece in &run.shard.pieces {
        let sum = communication::sum_of(builder, run, piece)?;
        for (name, group, weight_decay) in groups.clone() {
            let first = piece.first.max(group.start);
            let end = (piece.first + piece.elements).min(group.end);
            if first < end {
                let (at, from) = (piece.at + (first - piece.first), first - piece.first);
                let (elements, gradients) = (end - first, (sum, from));
                found.push(Stretch { name, first, elements, weight_decay, at, gradients });
            }
        }
    }
    Ok(found)
}

/// The stretches that this rank updates, each divided into windows if state is offloaded.
fn parts(
    builder: &mut ScheduleBuilder,
    run: &RunTensors,
    spec: &OptimizerSpec,
) -> Result<Vec<Part>, PlanError> {
    let Flat { compute, master, state, .. } = &run.flat;
    let weight_decay = spec.rule.rule().weight_decay();
    let mut parts = Vec::new();
    for stretch in stretches(run, builder, weight_decay)? {
        let size = window(spec.offload.unwrap_or(stretch.elements), run.total);
        let mut done = 0;
        while done < stretch.elements {
            let elements = size.min(stretch.elements - done);
            let first = stretch.first + done;
            let is_whole = elements == stretch.elements && !run.sharing.is_sharded();
            let label = match is_whole {
                true => stretch.name.to_string(),
                false => format!("{} {first}", stretch.name),
            };
            let shape = Shape::new(&[elements])?;
            let mut window = |root: TensorId, at: u64| {
                let tensor = builder.tensors().get(root);
                let (name, dtype) = (format!("{} {label}", tensor.name), tensor.dtype);
                builder.window(&name, shape, root, element_offset(at, dtype)?, None)
            };
            let copy = master.as_ref().map(|_| window(compute.root, first)).transpose()?;
            // f32 weights that kernels read are whole on every rank.
            let weights = match master {
                Some(master) => window(master.root, stretch.at + done)?,
                None => window(compute.root, first)?,
            };
            let mut all = vec![weights];
            for (_, role) in state {
                all.push(window(role.root, stretch.at + done)?);
            }
            let (gradients, from) = stretch.gradients;
            parts.push(Part {
                first,
                elements,
                weight_decay: stretch.weight_decay,
                copy,
                state: all,
                gradients: window(gradients, from + done)?,
            });
            done += elements;
        }
    }
    Ok(parts)
}

/// The tensors that the update works on: the state itself, or its copy on the device.
fn arrive(segment: &mut SegmentBuilder<'_>, part: &Part) -> Result<Vec<TensorId>, PlanError> {
    let mut here = part.state.clone();
    // A window reuses the bytes of one that has gone back to the host by then; the first windows
    // those of the norm's partial sums.
    segment.join(Lane::Upload);
    for tensor in &mut here {
        let (from, row) = (*tensor, segment.tensor(*tensor).clone());
        if row.scope == Scope::Host {
            let shape = Shape::new(&[part.elements])?;
            *tensor = segment.local(&format!("{} here", row.name), row.dtype, shape, row.role)?;
            segment.push_on(Lane::Upload, Transfer { from, to: *tensor })?;
        }
    }
    Ok(here)
}

/// Appends the optimizer's own op.
fn change(
    segment: &mut SegmentBuilder<'_>,
    part: &Part,
    here: &[TensorId],
    step_state: TensorId,
    spec: &OptimizerSpec,
) -> Result<(), PlanError> {
    let &Part { first, weight_decay, gradients, copy, .. } = part;
    let (&weights, state) = here.split_first().ok_or_else(|| missing("weights"))?;
    let split = segment.tensor(weights).dtype == Dtype::U16;
    let part =
        UpdatePart { first, weight_decay, weights, copy, split, gradients, state, step_state };
    segment.push(spec.rule.rule().op(part)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_huge_models_are_few_and_aligned() {
        assert_eq!(window(OFFLOAD_WINDOW, 1_557_000_000), OFFLOAD_WINDOW);
        assert_eq!(window(5, 1000), 5);
        for total in [40_000_000_001, 330_123_456_789, u64::MAX / 8] {
            let elements = window(OFFLOAD_WINDOW, total);
            assert!(elements.is_multiple_of(ALIGNED) && total / elements <= MOST_WINDOWS);
        }
    }
}
