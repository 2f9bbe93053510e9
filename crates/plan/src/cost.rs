//! How long steps take. Each step is bound by its operations or by its bytes, whichever takes
//! longer, and launching it costs time as well. Matmuls hide most of their memory traffic behind
//! their operations, but not all. The heads alternate between matmuls and passes over memory, so
//! both count.

use crate::hardware::Hardware;
use crate::lanes::Lane;
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
    /// One word for reports.
    pub fn name(self) -> &'static str {
        match self {
            Ceiling::Matmuls => "matmuls",
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
    let (computing, rate) = match kind(op, tensors) {
        Kind::Copy => return (Ceiling::Link, bytes / hardware.link),
        Kind::Attention => (Ceiling::Attention, hardware.attention),
        Kind::Head { .. } | Kind::Matmul | Kind::Pass => (Ceiling::Matmuls, hardware.matmul),
    };
    let (computed, moved) = (operation.flops(tensors) as f64 / rate, bytes / hardware.bandwidth);
    if computed >= moved { (computing, computed) } else { (Ceiling::Memory, moved) }
}

/// What determines the time of an op.
enum Kind {
    /// A copy between the memories of device and host.
    Copy,
    /// Bound by the rate of attention or by memory.
    Attention,
    /// A matmul, which does not hide all of its traffic.
    Matmul,
    /// Alternates between matmuls and passes over memory.
    Head {
        /// Bytes of the passes.
        passes: u64,
    },
    /// One pass over the operands.
    Pass,
}

/// What determines the time of each op; a new op is added here.
fn kind(op: &Op, tensors: &Tensors) -> Kind {
    match op {
        Op::Transfer(_) => Kind::Copy,
        Op::Attention(_) | Op::AttentionBackward(_) | Op::AttentionDecode(_) => Kind::Attention,
        Op::Linear(_) | Op::LinearBackwardInput(_) | Op::LinearBackwardWeight(_) => Kind::Matmul,
        Op::HeadTrain(head) => Kind::Head { passes: head.bytes_between_matmuls(tensors) },
        Op::HeadEval(head) => Kind::Head { passes: head.bytes_between_matmuls(tensors) },
        Op::Embed(_)
        | Op::EmbedBackward(_)
        | Op::LayerNorm(_)
        | Op::LayerNormBackward(_)
        | Op::Gelu(_)
        | Op::GeluBackward(_)
        | Op::CacheStore(_)
        | Op::SelectPosition(_)
        | Op::GradNorm(_)
        | Op::LossScaler(_)
        | Op::AdamW(_) => Kind::Pass,
    }
}

/// Predicted seconds of one step.
pub fn step_seconds(op: &Op, tensors: &Tensors, hardware: &Hardware) -> f64 {
    let operation = op.operation();
    let (flops, bytes) = (operation.flops(tensors) as f64, operation.bytes(tensors) as f64);
    let moving = bytes / hardware.bandwidth;
    let seconds = match kind(op, tensors) {
        Kind::Copy => bytes / hardware.link,
        Kind::Attention => (flops / hardware.attention).max(moving),
        Kind::Matmul => (flops / hardware.matmul + NOT_HIDDEN * moving).max(moving),
        Kind::Head { passes } => flops / hardware.matmul + passes as f64 / hardware.bandwidth,
        Kind::Pass => (flops / hardware.matmul).max(moving),
    };
    hardware.times.seconds(op, tensors, seconds + hardware.launch)
}

/// Predicted seconds of one run of a segment.
pub fn segment_seconds(schedule: &Schedule, segment: SegmentId, hardware: &Hardware) -> f64 {
    let steps = &schedule.segment(segment).steps;
    let seconds = |step: &Step| step_seconds(&step.op, &schedule.tensors, hardware);
    let on = |lane| steps.iter().filter(|step| step.lane == lane).map(seconds).sum::<f64>();
    // Copies run beside kernels, and both directions beside each other.
    Lane::ALL.map(on).into_iter().fold(0.0, f64::max)
}
