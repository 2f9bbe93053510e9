//! Measured times of steps. Where a device has measurements, predictions use them instead of its
//! rates. A step that was itself measured gets its measured time. Other steps of the same op get
//! their prediction, corrected by the average error of the op's measured steps.

use crate::ops::Op;
use crate::tensor::Tensors;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Times of a device's steps; empty where nothing was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpTimes {
    /// Seconds by [`key`].
    pub steps: BTreeMap<String, f64>,
    /// Measured and predicted seconds, summed by op. Their ratio corrects other steps of the op.
    /// Because they are sums, the large steps decide, not the latest measurement.
    pub sums: BTreeMap<String, [f64; 2]>,
}

/// One measured step.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Identifies the step, see [`key`].
    pub key: String,
    /// Its op.
    pub op: &'static str,
    /// Seconds it took.
    pub measured: f64,
    /// Seconds that the cost model predicts from rates alone.
    pub predicted: f64,
}

impl OpTimes {
    /// From samples. Of several samples with the same key the fastest counts, because the others
    /// were disturbed by other work.
    pub fn new(samples: &[Sample]) -> OpTimes {
        let mut quickest: BTreeMap<&str, &Sample> = BTreeMap::new();
        for sample in samples {
            let least = quickest.entry(&sample.key).or_insert(sample);
            if sample.measured < least.measured {
                *least = sample;
            }
        }
        let steps = quickest.iter().map(|(key, best)| (key.to_string(), best.measured)).collect();
        let mut sums: BTreeMap<String, [f64; 2]> = BTreeMap::new();
        for best in quickest.values() {
            let sum = sums.entry(best.op.to_string()).or_default();
            sum[0] += best.measured;
            sum[1] += best.predicted;
        }
        OpTimes { steps, sums }
    }

    /// Adds measurements made at another time.
    pub fn join(&mut self, other: &OpTimes) {
        self.steps.extend(other.steps.clone());
        for (op, [measured, predicted]) in &other.sums {
            let sum = self.sums.entry(op.clone()).or_default();
            *sum = [sum[0] + measured, sum[1] + predicted];
        }
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Seconds of a step for which rates alone predict `predicted`.
    pub fn seconds(&self, op: &Op, tensors: &Tensors, predicted: f64) -> f64 {
        if self.is_empty() {
            return predicted;
        }
        if let Some(&seconds) = self.steps.get(&key(op, tensors)) {
            return seconds;
        }
        match self.sums.get(op.operation().name()) {
            Some([measured, total]) if *total > 0.0 => predicted * measured / total,
            _ => predicted,
        }
    }
}

/// Identifies everything that decides how long a step takes: its op, its attributes, and the types
/// and shapes of its operands. Scratch and names are not part of it.
pub fn key(op: &Op, tensors: &Tensors) -> String {
    let operation = op.operation();
    let mut text = operation.name().to_string();
    for attribute in operation.attributes() {
        // The time does not depend on where a window starts or what a norm adds to the variance.
        let is_epsilon = matches!(op, Op::LayerNorm(_)) && attribute.starts_with("eps=");
        if !attribute.starts_with("first=") && !is_epsilon {
            let _ = write!(text, " {attribute}");
        }
    }
    for operand in operation.operands() {
        let tensor = tensors.get(operand.tensor);
        if !tensor.role.is_scratch() {
            let _ = write!(text, " {}", tensor.dtype);
            for dim in tensor.shape.dims() {
                let _ = write!(text, "x{dim}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Gelu, GeluKind, LayerNorm};
    use crate::tensor::{Dtype, Role, Shape};
    use crate::{Phase, ScheduleBuilder};

    #[test]
    fn measured_steps_take_their_time_and_others_are_corrected() {
        let mut builder = ScheduleBuilder::new();
        let mut segment = builder.segment("s", Phase::Train);
        let mut tensor = |name: &str, size: u64| {
            let shape = Shape::new(&[size]).unwrap();
            segment.local(name, Dtype::F32, shape, Role::Activation).unwrap()
        };
        let kind = GeluKind::Erf;
        let gelu = Op::Gelu(Gelu { x: tensor("a", 8), out: tensor("b", 8), kind });
        let other = Op::Gelu(Gelu { x: tensor("c", 9), out: tensor("d", 9), kind });
        let schedule = builder.finish();
        let tensors = &schedule.tensors;
        assert_eq!(OpTimes::default().seconds(&gelu, tensors, 5.0), 5.0);
        let key = key(&gelu, tensors);
        assert!(key.starts_with("gelu ") && key.ends_with(" f32x8 f32x8"), "{key}");
        let sample =
            |measured: f64| Sample { key: key.clone(), op: "gelu", measured, predicted: 1.0 };
        let times = OpTimes::new(&[sample(3.0), sample(2.0)]);
        assert_eq!(times.seconds(&gelu, tensors, 5.0), 2.0);
        assert_eq!(times.seconds(&other, tensors, 4.0), 8.0);
        let small = Sample { key: "gelu small".into(), op: "gelu", measured: 1.0, predicted: 0.1 };
        let mut joined = OpTimes::new(&[sample(20.0)]);
        joined.sums.insert("gelu".into(), [20.0, 10.0]);
        joined.join(&OpTimes::new(&[small]));
        assert!((joined.seconds(&other, tensors, 1.0) - 21.0 / 10.1).abs() < 1e-12);
    }

    /// Times that were kept before norms had an epsilon among their attributes are found again.
    #[test]
    fn a_norm_of_any_epsilon_has_the_same_key() {
        let mut builder = ScheduleBuilder::new();
        let mut segment = builder.segment("s", Phase::Train);
        let mut tensor = |dims: &[u64]| {
            let shape = Shape::new(dims).unwrap();
            segment.local("t", Dtype::F32, shape, Role::Activation).unwrap()
        };
        let [x, out] = [tensor(&[3, 4]), tensor(&[3, 4])];
        let [gain, mean, rstd] = [tensor(&[4]), tensor(&[3]), tensor(&[3])];
        let schedule = builder.finish();
        for epsilon in [1e-5, 1e-3] {
            let norm = LayerNorm { x, add: None, gain, bias: None, out, mean, rstd, epsilon };
            let key = key(&norm.into(), &schedule.tensors);
            assert_eq!(key, "layernorm f32x3x4 f32x4 f32x3x4 f32x3 f32x3");
        }
    }
}
