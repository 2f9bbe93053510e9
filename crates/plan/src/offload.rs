//! Keeps activations in the host's memory from the forward pass to the backward pass, as a rewrite
//! of the schedule. Copies leave behind the last forward step that uses a tensor and return before
//! the first backward step that does, beside the kernels of other layers. Only memory and time
//! change: the bytes that return are those that left.
//!
//! Whoever chooses the tensors decides how much the link carries; this module decides when. A
//! layer's copies must have left when the next layer with copies starts its forward, and they start
//! to return when the layer before that one (in the order of the backward pass) does its backward.
//! So at most two layers' tensors are on the device for the sake of copies.

use crate::bytes::Bytes;
use crate::error::PlanError;
use crate::lanes::{Lane, derive_waits};
use crate::ops::Transfer;
use crate::schedule::{Pass, Schedule, SegmentId, Step};
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
    left: usize,
    /// The first backward step that uses it.
    needed: usize,
}

fn size(schedule: &Schedule, tensor: TensorId) -> Result<u64, PlanError> {
    let too_large = || PlanError::ArenaTooLarge { at: "activations on the host".to_owned() };
    schedule.tensors.bytes(tensor).aligned().map(Bytes::get).ok_or_else(too_large)
}

/// Where the backward of a segment starts.
fn start_of_backward(steps: &[Step]) -> usize {
    steps.iter().position(|step| step.pass != Pass::Forward).unwrap_or(steps.len())
}

/// The trips of those tensors that can make one, by layer.
fn trips(schedule: &Schedule, segment: SegmentId, tensors: &BTreeSet<TensorId>) -> Vec<Trip> {
    let steps = &schedule.segment(segment).steps;
    let split = start_of_backward(steps);
    let table = &schedule.tensors;
    let viewed: BTreeSet<TensorId> =
        table.ids().filter_map(|id| Some(table.get(id).view?.root)).collect();
    let touches =
        |step: &Step, id: TensorId| step.operands().iter().any(|operand| operand.tensor == id);
    let trip = |&tensor: &TensorId| {
        let row = table.get(tensor);
        let stays = row.scope != Scope::Segment(segment) || row.io != Io::Device;
        if stays || row.view.is_some() || viewed.contains(&tensor) {
            return None;
        }
        let left = steps[..split].iter().rposition(|step| touches(step, tensor))?;
        let needed = split + steps[split..].iter().position(|step| touches(step, tensor))?;
        Some(Trip { tensor, layer: row.layer?, left, needed })
    };
    let mut found: Vec<Trip> = tensors.iter().filter_map(trip).collect();
    found.sort_by_key(|trip| (trip.layer, trip.left));
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
    let first_of = |range: std::ops::Range<usize>, layer: u32| {
        let start = range.start;
        let of_layer = |step: &Step| step.layer == Some(layer) && step.lane == Lane::Compute;
        steps[range].iter().position(of_layer).map(|index| start + index)
    };
    let mut layers: Vec<u32> = trips.iter().map(|trip| trip.layer).collect();
    layers.dedup();
    let mut found = BTreeMap::new();
    for (index, &layer) in layers.iter().enumerate() {
        // Above the last one, as far as below it.
        let below = index.checked_sub(1).map(|below| layers[below]);
        let gap = below.map_or(2, |below| layer - below);
        let next = layers.get(index + 1).copied().unwrap_or(layer.saturating_add(gap));
        let free = first_of(0..split, next).unwrap_or(split);
        let before = next.saturating_sub(1).max(layer.saturating_add(1));
        let back = first_of(split..steps.len(), before).unwrap_or(split);
        found.insert(layer, Times { free, back });
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

fn rewrite(
    schedule: &mut Schedule,
    segment: SegmentId,
    trips: &[Trip],
    host: TensorId,
) -> Result<(), PlanError> {
    let steps = std::mem::take(&mut schedule.segment_mut(segment).steps);
    let split = start_of_backward(&steps);
    let mut at: BTreeMap<usize, Inserted<'_>> = BTreeMap::new();
    let times = times(&steps, trips);
    for (&layer, times) in &times {
        at.entry(times.free).or_default().free.push(layer);
    }
    for trip in trips {
        at.entry(trip.left + 1).or_default().leaving.push(trip);
        let back = times.get(&trip.layer).map_or(trip.needed, |times| times.back);
        at.entry(back.min(trip.needed)).or_default().returning.push(trip);
    }
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
