//! The update's segment: norm, loss scale, AdamW over the two groups of parameters. Where the
//! optimizer's state lives in host memory it passes through the device window by window, the next
//! one on its way while one is worked on.

use crate::gpt2::OptimizerSpec;
use crate::run_tensors::{Flat, FlatRole, RunTensors, element_offset, missing};
use plan::ops::{AdamW, GRAD_NORM_BLOCK, GradNorm, LossScaler, Transfer};
use plan::{
    Dtype, Pass, Phase, PlanError, Role, ScheduleBuilder, Scope, SegmentBuilder, SegmentId, Shape,
    TensorId,
};

/// Elements of offloaded state that pass through the device at a time: 32 MiB of f32, long enough
/// for the full rate of a copy; two windows of master, m and v are alive together.
pub const OFFLOAD_WINDOW: u64 = 1 << 23;

/// A part of all parameters that is updated by one op.
struct Part {
    first: u64,
    elements: u64,
    weight_decay: f64,
    /// Weights, m and v, wherever they live.
    state: [TensorId; 3],
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
    let partials = segment.local("norm_partials", Dtype::U32, blocks, Role::Workspace)?;
    segment.push(GradNorm { gradients, partials, state })?;
    segment.push(LossScaler { state, scaling: spec.scaling })?;
    let mut next = parts.first().map(|part| arrive(&mut segment, part)).transpose()?;
    for (index, part) in parts.iter().enumerate() {
        let here = next.take().unwrap_or(part.state);
        next = parts.get(index + 1).map(|part| arrive(&mut segment, part)).transpose()?;
        adamw(&mut segment, part, here, state, spec)?;
        for (from, to) in here.into_iter().zip(part.state).filter(|(from, to)| from != to) {
            segment.push(Transfer { from, to })?;
        }
    }
    Ok(segment.finish())
}

/// Decayed parameters and the others, each in windows where state is offloaded.
fn parts(
    builder: &mut ScheduleBuilder,
    run: &RunTensors,
    spec: &OptimizerSpec,
) -> Result<Vec<Part>, PlanError> {
    let Flat { compute, master, gradients, moments } = &run.flat;
    let (Some(gradients), Some([m, v])) = (gradients, moments) else {
        return Err(missing("gradients"));
    };
    let weights = master.as_ref().unwrap_or(compute);
    let groups =
        [("decayed", 0..run.decayed, spec.weight_decay), ("other", run.decayed..run.total, 0.0)];
    let mut parts = Vec::new();
    for (group, range, weight_decay) in groups {
        let size = spec.offload.unwrap_or(range.end - range.start).max(1);
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
                state: [window(weights)?, window(m)?, window(v)?],
                gradients: window(gradients)?,
            });
            first += elements;
        }
    }
    Ok(parts)
}

/// Where a part's state is worked on: where it lives, or copied to the device.
fn arrive(segment: &mut SegmentBuilder<'_>, part: &Part) -> Result<[TensorId; 3], PlanError> {
    let mut here = part.state;
    for tensor in &mut here {
        let (from, row) = (*tensor, segment.tensor(*tensor).clone());
        if row.scope == Scope::Host {
            let shape = Shape::new(&[part.elements])?;
            *tensor = segment.local(&format!("{} here", row.name), row.dtype, shape, row.role)?;
            segment.push(Transfer { from, to: *tensor })?;
        }
    }
    Ok(here)
}

fn adamw(
    segment: &mut SegmentBuilder<'_>,
    part: &Part,
    [weights, m, v]: [TensorId; 3],
    state: TensorId,
    spec: &OptimizerSpec,
) -> Result<(), PlanError> {
    let &Part { first, weight_decay, gradients, copy, .. } = part;
    let OptimizerSpec { beta1, beta2, eps, .. } = *spec;
    segment.push(AdamW {
        weights,
        copy,
        gradients,
        m,
        v,
        state,
        beta1,
        beta2,
        eps,
        weight_decay,
        first,
    })
}
