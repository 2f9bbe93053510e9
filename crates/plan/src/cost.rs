//! How long steps take. Each step is bound by its operations or by its bytes, whichever takes
//! longer, and launching it costs time as well. Matmuls hide most of their memory traffic behind
//! their operations, but not all. The heads alternate between matmuls and passes over memory, so
//! both count.

use crate::hardware::Hardware;
use crate::ops::Op;
use crate::schedule::{Schedule, SegmentId, Step};
use crate::tensor::Tensors;

/// The part of a matmul's traffic that its operations do not hide. Fitted to 360 matmuls on an H200
/// (`docs/experiments.md`), with a root-mean-square error of 12 %.
const NOT_HIDDEN: f64 = 0.26;

/// The hardware limit that bounds a step's speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ceiling {
    /// The rate of matmuls.
    Matmuls,
    /// The rate of attention.
    Attention,
    /// Memory traffic.
    Memory,
    /// The connection to the host's memory.
    Link,
}

impl Ceiling {
    /// One word for reports. Stored reports contain it, so it does not change.
    pub fn name(self) -> &'static str {
        match self {
            Ceiling::Matmuls => "products",
            Ceiling::Attention => "attention",
            Ceiling::Memory => "memory",
            Ceiling::Link => "link",
        }
    }
}

/// The limit that bounds a step, and its seconds at that limit if everything else were hidden and
/// launching were free.
pub fn ceiling(op: &Op, tensors: &Tensors, hardware: &Hardware) -> (Ceiling, f64) {
    let operation = op.operation();
    let bytes = operation.bytes(tensors) as f64;
    if let Op::Transfer(_) = op {
        return (Ceiling::Link, bytes / hardware.link);
    }
    let (computing, rate) = rate(op, hardware);
    let (computed, moved) = (operation.flops(tensors) as f64 / rate, bytes / hardware.bandwidth);
    if computed >= moved { (computing, computed) } else { (Ceiling::Memory, moved) }
}

/// The units that execute an op's operations, and their rate per second.
fn rate(op: &Op, hardware: &Hardware) -> (Ceiling, f64) {
    match op {
        Op::Attention(_) | Op::AttentionBackward(_) | Op::AttentionDecode(_) => {
            (Ceiling::Attention, hardware.attention)
        }
        _ => (Ceiling::Matmuls, hardware.matmul),
    }
}

/// Predicted seconds of one step.
pub fn step_seconds(op: &Op, tensors: &Tensors, hardware: &Hardware) -> f64 {
    let operation = op.operation();
    let (_, rate) = rate(op, hardware);
    let computing = operation.flops(tensors) as f64 / rate;
    let moving = |bytes: u64| bytes as f64 / hardware.bandwidth;
    let seconds = match op {
        Op::Transfer(_) => operation.bytes(tensors) as f64 / hardware.link,
        Op::HeadTrain(head) => computing + moving(head.bytes_between_matmuls(tensors)),
        Op::HeadEval(head) => computing + moving(head.bytes_between_matmuls(tensors)),
        Op::Linear(_) | Op::LinearBackwardInput(_) | Op::LinearBackwardWeight(_) => {
            let bytes = moving(operation.bytes(tensors));
            (computing + NOT_HIDDEN * bytes).max(bytes)
        }
        _ => computing.max(moving(operation.bytes(tensors))),
    };
    hardware.times.seconds(op, tensors, seconds + hardware.launch)
}

/// Predicted seconds of one run of a segment.
pub fn segment_seconds(schedule: &Schedule, segment: SegmentId, hardware: &Hardware) -> f64 {
    let seconds = |step: &Step| step_seconds(&step.op, &schedule.tensors, hardware);
    schedule.segment(segment).steps.iter().map(seconds).sum()
}
