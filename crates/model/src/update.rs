//! The segment of the update: gradient norm, loss scale, and the optimizer over two groups of
//! parameters. If the optimizer's state is in host memory, it passes through the device window by
//! window: while one is updated, the next arrives and the last one returns.

use crate::optimizer::{OptimizerSpec, UpdatePart};
use crate::run_tensors::{Flat, FlatRole, RunTensors, element_offset, missing};
use plan::ops::{GRAD_NORM_BLOCK, GradNorm, LossScaler, Transfer};
use plan::{
    Dtype, Lane, Pass, Phase, PlanError, Role, ScheduleBuilder, Scope, SegmentBuilder, SegmentId,
    Shape, TensorId,
};
use std::collections::VecDeque;

/// Elements of offloaded state that pass through the device at a time: 16 MiB of f32, large enough
/// for a copy at full rate.
pub const OFFLOAD_WINDOW: u64 = 1 << 22;

/// Models beyond 34 billion parameters get larger windows, so that planning stays quick.
const MOST_WINDOWS: u64 = 1 << 13;

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
    let gradients = run.flat.gradients.as_ref().ok_or_else(|| missing("gradients"))?.root;
    let state = run.state;
    let mut segment = builder.segment("update", Phase::Train);
    segment.set_pass(Pass::Update);
    let blocks = Shape::new(&[run.total.div_ceil(GRAD_NORM_BLOCK), 2])?;
    let partials = segment.local("norm_partials", Dtype::U32, blocks, Role::Partials)?;
    segment.push(GradNorm { gradients, partials, state })?;
    segment.push(LossScaler { state, scaling: spec.scaling })?;
    let mut coming = parts.iter();
    let mut arriving = VecDeque::new();
    for part in coming.by_ref().take(WINDOWS_AHEAD) {
        arriving.push_back(arrive(&mut segment, part)?);
    }
    for part in &parts {
        if let Some(part) = coming.next() {
            arriving.push_back(arrive(&mut segment, part)?);
        }
        let here = arriving.pop_front().unwrap_or_else(|| part.state.clone());
        change(&mut segment, part, &here, state, spec)?;
        let back = here.into_iter().zip(part.state.iter().copied());
        for (from, to) in back.filter(|(from, to)| from != to) {
            segment.push_on(Lane::Download, Transfer { from, to })?;
        }
    }
    Ok(segment.finish())
}

/// Elements of a window, where `wanted` of `total` are asked for. Windows begin where views may.
fn window(wanted: u64, total: u64) -> u64 {
    let least = (total / MOST_WINDOWS).next_multiple_of(ALIGNED);
    wanted.max(least).max(1)
}

/// The parameters with weight decay and the others, each divided into windows if state is
/// offloaded.
fn parts(
    builder: &mut ScheduleBuilder,
    run: &RunTensors,
    spec: &OptimizerSpec,
) -> Result<Vec<Part>, PlanError> {
    let Flat { compute, master, gradients, state } = &run.flat;
    let gradients = gradients.as_ref().ok_or_else(|| missing("gradients"))?;
    let weights = master.as_ref().unwrap_or(compute);
    let weight_decay = spec.rule.rule().weight_decay();
    let groups =
        [("decayed", 0..run.decayed, weight_decay), ("other", run.decayed..run.total, 0.0)];
    let mut parts = Vec::new();
    for (group, range, weight_decay) in groups {
        let size = window(spec.offload.unwrap_or(range.end - range.start), run.total);
        let mut first = range.start;
        while first < range.end {
            let elements = size.min(range.end - first);
            let shape = Shape::new(&[elements])?;
            let label = match elements == range.end - range.start {
                true => group.to_string(),
                false => format!("{group} {first}"),
            };
            let mut window = |role: &FlatRole| {
                let tensor = builder.tensors().get(role.root);
                let (name, dtype) = (format!("{} {label}", tensor.name), tensor.dtype);
                builder.window(&name, shape, role.root, element_offset(first, dtype)?, None)
            };
            parts.push(Part {
                first,
                elements,
                weight_decay,
                copy: master.as_ref().map(|_| window(compute)).transpose()?,
                state: std::iter::once(weights)
                    .chain(state.iter().map(|(_, role)| role))
                    .map(&mut window)
                    .collect::<Result<_, _>>()?,
                gradients: window(gradients)?,
            });
            first += elements;
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
    let part = UpdatePart { first, weight_decay, weights, copy, gradients, state, step_state };
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
