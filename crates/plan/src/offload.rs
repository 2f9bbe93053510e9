//! Keeps activations in the host's memory from the forward pass to the backward pass, as a rewrite
//! of the schedule. Copies leave behind the last forward step that uses a tensor and return before
//! the first backward step that does, beside the kernels of other layers. Only memory and time
//! change: the bytes that return are those that left.
//!
//! Whoever chooses the tensors decides how much the link carries; this module decides when. A
//! layer's copies must have left when the next layer with copies starts its forward. In the
//! backward pass they start to return right behind that layer. So at most two layers' tensors are
//! on the device for the sake of copies.

use crate::bytes::Bytes;
use crate::error::PlanError;
use crate::lanes::{Lane, derive_waits};
use crate::ops::Transfer;
use crate::schedule::{Pass, Schedule, SegmentId, Step, start_of_backward};
use crate::tensor::{Dtype, Io, Role, Scope, Shape, Tensor, TensorId, View};
use std::collections::{BTreeMap, BTreeSet};

/// Sends the tensors of each segment to the host's memory and back. All segments share that memory,
/// because they run one after another. Tensors that belong to no layer, or that the backward does
/// not use, stay where they are.
pub fn offload(
    schedule: &mut Schedule,
    wanted: &[(SegmentId, BTreeSet<TensorId>)],
) -> Result<(), PlanError> {
    let of = |(segment, tensors): &(SegmentId, BTreeSet<TensorId>)| {
        (*segment, trips(schedule, *segment, tensors))
    };
    let all: Vec<(SegmentId, Vec<Trip>)> = wanted.iter().map(of).collect();
    let mut most = 0;
    for (_, trips) in &all {
        let sizes = trips.iter().map(|trip| size(schedule, trip.tensor));
        most = sizes.sum::<Result<u64, PlanError>>()?.max(most);
    }
    if most == 0 {
        return Ok(());
    }
    let host = schedule.tensors.add(Tensor {
        name: "activations on the host".to_owned(),
        dtype: Dtype::F32,
        shape: Shape::new(&[most.div_ceil(Dtype::F32.size())])?,
        role: Role::Activation,
        scope: Scope::Host,
        layer: None,
        io: Io::Device,
        view: None,
    })?;
    for (segment, trips) in all.iter().filter(|(_, trips)| !trips.is_empty()) {
        rewrite(schedule, *segment, trips, host)?;
    }
    Ok(())
}

/// A tensor that goes to the host and back.
struct Trip {
    tensor: TensorId,
    layer: u32,
    /// The last forward step that uses it.
    last_use: usize,
    /// The first backward step that uses it.
    next_use: usize,
}

fn size(schedule: &Schedule, tensor: TensorId) -> Result<u64, PlanError> {
    let too_large = || PlanError::ArenaTooLarge { at: "activations on the host".to_owned() };
    schedule.tensors.bytes(tensor).aligned().map(Bytes::get).ok_or_else(too_large)
}

/// The trips of those tensors that can make one, by layer.
fn trips(schedule: &Schedule, segment: SegmentId, tensors: &BTreeSet<TensorId>) -> Vec<Trip> {
    let steps = &schedule.segment(segment).steps;
    let split = start_of_backward(steps);
    let table = &schedule.tensors;
    let viewed: BTreeSet<TensorId> =
        table.ids().filter_map(|id| Some(table.get(id).view?.root)).collect();
    let uses = uses(steps, tensors);
    let trip = |&tensor: &TensorId| {
        let row = table.get(tensor);
        let stays = row.scope != Scope::Segment(segment) || row.io != Io::Device;
        if stays || row.view.is_some() || viewed.contains(&tensor) {
            return None;
        }
        let uses = uses.get(&tensor)?;
        let of_backward = uses.partition_point(|&step| step < split);
        let last_use = *uses[..of_backward].last()?;
        let next_use = *uses.get(of_backward)?;
        Some(Trip { tensor, layer: row.layer?, last_use, next_use })
    };
    let mut found: Vec<Trip> = tensors.iter().filter_map(trip).collect();
    found.sort_by_key(|trip| (trip.layer, trip.last_use));
    found
}

/// The steps that use each of the tensors, in order.
fn uses(steps: &[Step], tensors: &BTreeSet<TensorId>) -> BTreeMap<TensorId, Vec<usize>> {
    let mut found: BTreeMap<TensorId, Vec<usize>> = BTreeMap::new();
    for (index, step) in steps.iter().enumerate() {
        for operand in step.operands().into_iter().filter(|o| tensors.contains(&o.tensor)) {
            found.entry(operand.tensor).or_default().push(index);
        }
    }
    found
}

/// When the copies of a layer leave and return, as indexes of steps.
struct Times {
    /// The step that waits until all copies have left: from then on their bytes are free.
    free: usize,
    /// The step before which they start to return.
    back: usize,
}

/// The times of each layer with copies.
fn times(steps: &[Step], trips: &[Trip]) -> BTreeMap<u32, Times> {
    let split = start_of_backward(steps);
    let first = |range: std::ops::Range<usize>, is_it: &dyn Fn(&Step) -> bool| {
        let start = range.start;
        let found = steps[range].iter().position(|step| step.lane == Lane::Compute && is_it(step));
        found.map(|index| start + index)
    };
    // The head, where most is alive.
    let after_forward = first(split..steps.len(), &|_| true).unwrap_or(split);
    let last_layer = steps.iter().filter_map(|step| step.layer).max().unwrap_or(0);
    let mut layers: Vec<u32> = trips.iter().map(|trip| trip.layer).collect();
    layers.dedup();
    let mut found = BTreeMap::new();
    for (index, &layer) in layers.iter().enumerate() {
        // Above the topmost there is no such layer. Its copies get as many layers of time as those
        // below it got, but at most until the last layer; a single layer's get two.
        let below = index.checked_sub(1).map(|below| layers[below]);
        let gap = below.map_or(2, |below| layer - below);
        let topmost = || layer.saturating_add(gap).min(last_layer);
        let next = layers.get(index + 1).copied().unwrap_or_else(topmost);
        let of_layer = |layer: u32| move |step: &Step| step.layer == Some(layer);
        let in_forward = first(0..split, &of_layer(next)).filter(|_| next > layer);
        let behind = next.saturating_sub(1).max(layer.saturating_add(1));
        let back = first(split..steps.len(), &of_layer(behind)).unwrap_or(after_forward);
        found.insert(layer, Times { free: in_forward.unwrap_or(after_forward), back });
    }
    found
}

/// What is inserted before a step.
#[derive(Default)]
struct Inserted<'a> {
    leaving: Vec<&'a Trip>,
    returning: Vec<&'a Trip>,
    /// Layers whose copies must have left.
    free: Vec<u32>,
}

/// What is inserted, by the step that it precedes.
fn inserted<'a>(steps: &[Step], trips: &'a [Trip]) -> BTreeMap<usize, Inserted<'a>> {
    let mut at: BTreeMap<usize, Inserted<'_>> = BTreeMap::new();
    let times = times(steps, trips);
    for (&layer, times) in &times {
        at.entry(times.free).or_default().free.push(layer);
    }
    for trip in trips {
        at.entry(trip.last_use + 1).or_default().leaving.push(trip);
        let back = times.get(&trip.layer).map_or(trip.next_use, |times| times.back);
        at.entry(back.min(trip.next_use)).or_default().returning.push(trip);
    }
    at
}

fn rewrite(
    schedule: &mut Schedule,
    segment: SegmentId,
    trips: &[Trip],
    host: TensorId,
) -> Result<(), PlanError> {
    let steps = std::mem::take(&mut schedule.segment_mut(segment).steps);
    let split = start_of_backward(&steps);
    let mut at = inserted(&steps, trips);
    let places = places(schedule, segment, trips, host)?;
    let mut out: Vec<Step> = Vec::with_capacity(steps.len() + 2 * trips.len());
    // For each step before the rewrite, its index in `out`.
    let mut moved = Vec::with_capacity(steps.len());
    // By layer: the last copy that leaves.
    let mut last_copy: BTreeMap<u32, usize> = BTreeMap::new();
    for (index, mut step) in steps.into_iter().enumerate() {
        let Inserted { leaving, returning, free } = at.remove(&index).unwrap_or_default();
        for trip in leaving {
            last_copy.insert(trip.layer, out.len());
            let to = places[&trip.tensor].host;
            out.push(copy(Lane::Download, Transfer { from: trip.tensor, to }, trip.layer));
        }
        step.joins.iter_mut().for_each(|join| *join = moved[*join]);
        step.joins.extend(free.iter().filter_map(|layer| last_copy.get(layer)));
        if !returning.is_empty() {
            // What returns takes bytes that are free after the steps so far.
            let last_of = |lane: Lane| out.iter().rposition(|step| step.lane == lane);
            let joins = [Lane::Compute, Lane::Download].into_iter().filter_map(last_of).collect();
            let first = out.len();
            for trip in returning {
                let Place { host: from, back: to } = places[&trip.tensor];
                out.push(copy(Lane::Upload, Transfer { from, to }, trip.layer));
            }
            out[first].joins = joins;
        }
        if index >= split {
            for tensor in step.op.operation_mut().tensors_mut() {
                if let Some(place) = places.get(tensor) {
                    *tensor = place.back;
                }
            }
        }
        moved.push(out.len());
        out.push(step);
    }
    for step in &out {
        step.op.check(&schedule.tensors)?;
    }
    derive_waits(&schedule.tensors, &mut out);
    schedule.segment_mut(segment).steps = out;
    Ok(())
}

fn copy(lane: Lane, op: Transfer, layer: u32) -> Step {
    let pass = if lane == Lane::Download { Pass::Forward } else { Pass::Backward };
    let (waits, joins) = (Vec::new(), Vec::new());
    Step { op: op.into(), layer: Some(layer), pass, lane, waits, joins }
}

/// Where a tensor is while it is away, and where it is afterwards.
#[derive(Clone, Copy)]
struct Place {
    host: TensorId,
    back: TensorId,
}

/// One behind another in the host's memory.
fn places(
    schedule: &mut Schedule,
    segment: SegmentId,
    trips: &[Trip],
    host: TensorId,
) -> Result<BTreeMap<TensorId, Place>, PlanError> {
    let of = schedule.segment(segment).name.clone();
    let (mut places, mut taken) = (BTreeMap::new(), Bytes::ZERO);
    for trip in trips {
        let row = schedule.tensors.get(trip.tensor).clone();
        let on_host = Tensor {
            name: format!("{} of {of} on the host", row.name),
            scope: Scope::Host,
            view: Some(View { root: host, offset: taken }),
            ..row.clone()
        };
        let end = schedule.tensors.bytes(trip.tensor).aligned().and_then(|size| taken.plus(size));
        taken = end.ok_or_else(|| PlanError::ArenaTooLarge { at: on_host.name.clone() })?;
        let host = schedule.tensors.add(on_host)?;
        let name = format!("{} back", row.name);
        let back = schedule.tensors.add(Tensor { name, ..row })?;
        places.insert(trip.tensor, Place { host, back });
    }
    Ok(places)
}
