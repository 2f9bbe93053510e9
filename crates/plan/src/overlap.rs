//! How long segments take: steps of different lanes run beside one another. A small simulation
//! plays the steps out. Adding up times along the waits would not do: two copies in opposite
//! directions slow each other down for as long as both run, and that depends on when they start.

use crate::cost::step_seconds;
use crate::hardware::Hardware;
use crate::lanes::Lane;
use crate::schedule::{Schedule, SegmentId, Step};
use std::collections::VecDeque;

/// Rate of copies in both directions together, where one direction alone is 1: measured over PCIe.
const BOTH_DIRECTIONS: f64 = 1.57;

/// The lanes that take time in a run of one rank.
const WITHOUT_NETWORK: [Lane; 3] = [Lane::Compute, Lane::Upload, Lane::Download];

/// Predicted times of one run of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SegmentTime {
    /// From its start to its end.
    pub seconds: f64,
    /// All steps that communicate, one after the other.
    pub communication: f64,
    /// The part of the communication that lengthens the segment. The rest is hidden behind
    /// computation.
    pub exposed: f64,
}

/// Predicted seconds of one run of a segment.
pub fn segment_seconds(schedule: &Schedule, segment: SegmentId, hardware: &Hardware) -> f64 {
    segment_time(schedule, segment, hardware).seconds
}

/// Predicted times of one run of a segment. Steps of one lane follow one another, and a step waits
/// for the steps of other lanes that it names. So gradients that are complete last (of the first
/// layers, and of embeddings that the head shares) have little or nothing to hide behind.
///
/// It assumes that communication takes nothing from the kernels beside it (NCCL's own kernels
/// occupy a few multiprocessors), that all ranks are at the same step, and that a segment starts
/// when the one before has ended on all lanes. Copies run beside kernels, and both directions
/// beside each other, but not at twice the rate.
pub fn segment_time(schedule: &Schedule, segment: SegmentId, hardware: &Hardware) -> SegmentTime {
    let steps = &schedule.segment(segment).steps;
    let times = times(schedule, steps, hardware);
    let on_wire = steps.iter().zip(&times).filter(|(step, _)| step.lane == Lane::Communication);
    let communication = on_wire.map(|(_, seconds)| seconds).sum::<f64>();
    let own = latest(&ends(steps, &times, &WITHOUT_NETWORK));
    if communication == 0.0 {
        return SegmentTime { seconds: own, ..SegmentTime::default() };
    }
    let seconds = latest(&ends(steps, &times, &Lane::ALL));
    // Never more than all of it, whatever rounding says.
    let exposed = (seconds - own).clamp(0.0, communication);
    SegmentTime { seconds, communication, exposed }
}

/// When each step of a segment ends, in seconds from the segment's start.
pub fn step_ends(schedule: &Schedule, segment: SegmentId, hardware: &Hardware) -> Vec<f64> {
    let steps = &schedule.segment(segment).steps;
    ends(steps, &times(schedule, steps, hardware), &Lane::ALL)
}

/// Seconds of each step on its lane.
fn times(schedule: &Schedule, steps: &[Step], hardware: &Hardware) -> Vec<f64> {
    let seconds = |step: &Step| {
        let copy = step.waits.iter().find(|&&wait| steps[wait].lane.is_copy());
        let lost = match step.lane {
            Lane::Compute if copy.is_some() => hardware.copy_wait,
            _ => 0.0,
        };
        lost + step_seconds(&step.op, &schedule.tensors, hardware)
    };
    steps.iter().map(seconds).collect()
}

fn latest(ends: &[f64]) -> f64 {
    ends.iter().copied().fold(0.0, f64::max)
}

/// When each step ends, if only steps of these lanes take time.
fn ends(steps: &[Step], times: &[f64], counted: &[Lane]) -> Vec<f64> {
    let mut queues = Lane::ALL.map(|lane| {
        let own = (0..steps.len()).filter(|&index| steps[index].lane == lane);
        own.collect::<VecDeque<usize>>()
    });
    let mut ends: Vec<Option<f64>> = vec![None; steps.len()];
    // By lane: the step that runs, and its seconds to go at the full rate.
    let mut running: [Option<(usize, f64)>; Lane::COUNT] = Default::default();
    let mut now = 0.0;
    loop {
        for (queue, running) in queues.iter_mut().zip(&mut running) {
            let is_ready =
                |index: &mut usize| steps[*index].waits.iter().all(|&w| ends[w].is_some());
            if running.is_none()
                && let Some(index) = queue.pop_front_if(is_ready)
            {
                let is_counted = counted.contains(&steps[index].lane);
                *running = Some((index, if is_counted { times[index] } else { 0.0 }));
            }
        }
        let copies = [Lane::Upload, Lane::Download].map(|lane| running[lane.index()]);
        let both = copies.iter().all(|copy| copy.is_some_and(|(_, left)| left > 0.0));
        let rate = |lane: Lane| match lane {
            lane if both && lane.is_copy() => BOTH_DIRECTIONS / 2.0,
            _ => 1.0,
        };
        let until = |lane: Lane| Some((running[lane.index()]?.1 / rate(lane), lane));
        let next = Lane::ALL.into_iter().filter_map(until).min_by(|a, b| a.0.total_cmp(&b.0));
        let Some((seconds, first)) = next else {
            break; // all steps have ended
        };
        now += seconds;
        for lane in Lane::ALL {
            let Some((index, left)) = &mut running[lane.index()] else { continue };
            *left = (*left - seconds * rate(lane)).max(0.0);
            if lane == first {
                ends[*index] = Some(now);
                running[lane.index()] = None;
            }
        }
    }
    ends.into_iter().map(|end| end.unwrap_or(now)).collect()
}
