//! How long steps take on a device: each is bound by its operations or by its bytes, whichever
//! takes longer, and costs a launch besides. The heads are products and passes in turns, so
//! there both count.

use crate::device::Device;
use crate::ops::Op;
use crate::schedule::{Schedule, SegmentId, Step};
use crate::tensor::Tensors;

/// Predicted seconds of one step.
pub fn step_seconds(op: &Op, tensors: &Tensors, device: &Device) -> f64 {
    let operation = op.operation();
    let rate = match op {
        Op::Attention(_) | Op::AttentionBackward(_) | Op::AttentionDecode(_) => device.attention,
        _ => device.products,
    };
    let computing = operation.flops(tensors) as f64 / rate;
    let moving = |bytes: u64| bytes as f64 / device.bandwidth;
    let seconds = match op {
        Op::Transfer(_) => operation.bytes(tensors) as f64 / device.link,
        Op::HeadTrain(head) => computing + moving(head.bytes_between_products(tensors)),
        Op::HeadEval(head) => computing + moving(head.bytes_between_products(tensors)),
        _ => computing.max(moving(operation.bytes(tensors))),
    };
    seconds + device.launch
}

/// Predicted seconds of one run of a segment.
pub fn segment_seconds(schedule: &Schedule, segment: SegmentId, device: &Device) -> f64 {
    let seconds = |step: &Step| step_seconds(&step.op, &schedule.tensors, device);
    schedule.segment(segment).steps.iter().map(seconds).sum()
}
