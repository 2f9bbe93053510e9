//! How long steps take. Each step is bound by its operations or by its bytes, whichever takes
//! longer, and launching it costs time as well. Matmuls hide most of their memory traffic behind
//! their operations, but not all. The heads alternate between matmuls and passes over memory, so
//! both count.

use crate::gpu_scratch::WarpgroupAttention;
use crate::hardware::Hardware;
use crate::ops::{HeadWork, Linear, LinearBackwardInput, Op};
use crate::tensor::{Dtype, TensorId, Tensors};
use crate::warpgroup_linear::WarpgroupLinear;

/// The part of a matmul's traffic that its operations do not hide. Fitted to 360 matmuls on an H200
/// (`docs/experiments.md`), with a root-mean-square error of 12 %.
const NOT_HIDDEN: f64 = 0.26;

/// Share of the usual rate that gradients of weights reach: their outputs are small, so that some
/// multiprocessors have nothing to do at the end.
const WEIGHT_GRADIENTS: f64 = 0.94;

/// The same in f32, whose layout TF32 matmuls do not take as it is. Measured on Hopper, with the
/// transposition.
const WEIGHT_GRADIENTS_OF_F32: f64 = 0.68;

/// Rows and columns of an output's tile.
const TILE: u64 = 128;

/// Tiles of which the library takes the best for a linear layer, and their share of the rate.
const TILES: [([u64; 2], f64); 3] = [([128, 256], 1.0), ([256, 128], 1.0), ([128, 128], 0.95)];

/// Share of the usual rate that linear layers reach where no multiprocessor waits.
const LINEAR: f64 = 1.04;

/// The part of the waiting for a last wave that shows: the library divides the work of some tiles.
const WAITING: f64 = 0.5;

/// Share of a linear layer's rate that the gradient of its input reaches: there, weights are read
/// down the columns.
const INPUT_GRADIENTS: f64 = 0.96;

/// Share of the usual rate that linear layers by warpgroups reach with long sums.
const LONG_SUMS: f64 = 0.953;

/// Start and end of a tile cost as much as this many more numbers in each sum.
const ENDS_OF_TILE: f64 = 65.0;

/// While the next tile is multiplied, a tile is finished. That takes as long as sums of this many
/// numbers: for GELU; for its slope; for the slope, and GELU again.
const GELU_OF_TILE: f64 = 710.0;
const SLOPE_OF_TILE: f64 = 925.0;
const SLOPE_AND_GELU_OF_TILE: f64 = 1075.0;

/// How much faster than others the matmuls of a head are: a vocabulary is wide.
const WIDE: f64 = 1.04;

/// How much faster attention by warpgroups is than the usual kernels: on very long sequences, with
/// heads of 64.
const WARPGROUPS: f64 = 1.86;

/// How its rate grows with the size of a head, up to 64 and above: softmax takes the same time for
/// a narrow head, and for a wide one fewer warps fit.
const NARROW_HEADS: f64 = 0.8;
const WIDE_HEADS: f64 = 0.2;

/// Start and end of a block cost as much as this many more positions, in attention by warpgroups.
const FORWARD_ENDS: f64 = 290.0;
const BACKWARD_ENDS: f64 = 540.0;

/// The gradients for heads of up to 64 have a kernel of their own: how much faster it is on very
/// long sequences, and its start and end.
const NARROW_BACKWARD: f64 = 1.19;
const NARROW_BACKWARD_ENDS: f64 = 675.0;

/// The part of its rate that dropout leaves to attention by warpgroups.
const FORWARD_WITH_DROPOUT: f64 = 0.66;
const BACKWARD_WITH_DROPOUT: f64 = 0.84;

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
    /// The connection to other ranks.
    Network,
}

impl Ceiling {
    /// One word for reports.
    pub fn name(self) -> &'static str {
        match self {
            Ceiling::Matmuls => "matmuls",
            Ceiling::Attention => "attention",
            Ceiling::Memory => "memory",
            Ceiling::Link => "link",
            Ceiling::Network => "network",
        }
    }
}

/// The limit that bounds a step, and its seconds at that limit if everything else were hidden and
/// launching were free.
pub fn ceiling(op: &Op, tensors: &Tensors, hardware: &Hardware) -> (Ceiling, f64) {
    let operation = op.operation();
    let bytes = operation.bytes(tensors) as f64;
    let (computing, rate) = match kind(op, tensors, hardware) {
        Kind::Copy => return (Ceiling::Link, bytes / hardware.link),
        Kind::Wire { rate } => {
            let sent = operation.wire_bytes(tensors) as f64;
            return (Ceiling::Network, sent / rate);
        }
        Kind::Attention(shape) => (Ceiling::Attention, shape.longest_rate(hardware)),
        Kind::Head(_) | Kind::Matmul { .. } | Kind::Pass { .. } => {
            (Ceiling::Matmuls, hardware.matmul)
        }
    };
    let (computed, moved) = (operation.flops(tensors) as f64 / rate, bytes / hardware.bandwidth);
    if computed >= moved { (computing, computed) } else { (Ceiling::Memory, moved) }
}

/// What determines the time of an op.
enum Kind {
    /// A copy between the memories of device and host.
    Copy,
    /// Bytes that travel between ranks.
    Wire {
        /// Bytes per second that a rank sends.
        rate: f64,
    },
    /// Bound by the rate of attention or by memory.
    Attention(AttentionShape),
    /// A matmul, which does not hide all of its traffic.
    Matmul {
        /// Share of the usual rate that it reaches.
        share: f64,
    },
    /// Alternates between matmuls and passes over memory.
    Head(HeadWork),
    /// One pass over the operands.
    Pass {
        /// Share of the usual bandwidth that it reaches.
        share: f64,
    },
}

/// What determines the rate of attention.
struct AttentionShape {
    positions: f64,
    /// Width of a head.
    size: f64,
    /// Whether there are kernels for warpgroups, where the hardware has these.
    has_warpgroups: bool,
    dropout: bool,
    backward: bool,
}

impl AttentionShape {
    fn new(
        tensors: &Tensors,
        out: TensorId,
        (heads, dropout): (u64, bool),
        backward: bool,
    ) -> Self {
        let tensor = tensors.get(out);
        let size = tensor.shape.width() / heads.max(1);
        AttentionShape {
            positions: tensor.shape.dims().get(1).map_or(1.0, |&positions| positions as f64),
            size: size as f64,
            has_warpgroups: WarpgroupAttention::new(size, tensor.dtype).is_some(),
            dropout,
            backward,
        }
    }

    /// The rate on very long sequences.
    fn longest_rate(&self, hardware: &Hardware) -> f64 {
        match hardware.warpgroups && self.has_warpgroups {
            true => {
                let power = if self.size <= 64.0 { NARROW_HEADS } else { WIDE_HEADS };
                hardware.attention * WARPGROUPS * (self.size / 64.0).powf(power)
            }
            false => hardware.attention,
        }
    }

    /// The rate on sequences of this length. A block has a beginning and an end, however many tiles
    /// lie between.
    fn rate(&self, hardware: &Hardware) -> f64 {
        let (faster, ends, with_dropout) = match (self.backward, self.size <= 64.0) {
            (true, true) => (NARROW_BACKWARD, NARROW_BACKWARD_ENDS, BACKWARD_WITH_DROPOUT),
            (true, false) => (1.0, BACKWARD_ENDS, BACKWARD_WITH_DROPOUT),
            (false, _) => (1.0, FORWARD_ENDS, FORWARD_WITH_DROPOUT),
        };
        let share = match hardware.warpgroups && self.has_warpgroups {
            true => faster * self.positions / (self.positions + ends),
            false => return self.longest_rate(hardware),
        };
        self.longest_rate(hardware) * share * if self.dropout { with_dropout } else { 1.0 }
    }
}

/// What determines the time of each op; a new op is added here. The shares were measured on a GPU
/// (`docs/experiments.md`); the rates of a CPU are measured with its own kernels.
fn kind(op: &Op, tensors: &Tensors, hardware: &Hardware) -> Kind {
    let is_gpu = hardware.multiprocessors > 0;
    let pass = |share: f64| Kind::Pass { share: if is_gpu { share } else { 1.0 } };
    let attention = |out, heads, dropout: bool, backward| {
        Kind::Attention(AttentionShape::new(tensors, out, (heads, dropout), backward))
    };
    match op {
        Op::Transfer(_) => Kind::Copy,
        Op::ReduceScatter(_) => Kind::Wire { rate: hardware.network.rate },
        Op::AllGather(_) => Kind::Wire { rate: hardware.network.gather },
        Op::Attention(op) => attention(op.out, op.heads, op.dropout.is_some(), false),
        Op::AttentionBackward(op) => attention(op.out, op.heads, op.dropout.is_some(), true),
        Op::Linear(Linear { out, gelu, .. }) => {
            let after = if gelu.is_some() { GELU_OF_TILE } else { 0.0 };
            by_warpgroups(op, tensors, after, hardware)
                .unwrap_or_else(|| linear(tensors, *out, LINEAR, hardware))
        }
        Op::LinearBackwardInput(LinearBackwardInput { d_x, gelu, .. }) => {
            let after = match gelu {
                Some(gelu) if gelu.again => SLOPE_AND_GELU_OF_TILE,
                Some(_) => SLOPE_OF_TILE,
                None => 0.0,
            };
            by_warpgroups(op, tensors, after, hardware)
                .unwrap_or_else(|| linear(tensors, *d_x, LINEAR * INPUT_GRADIENTS, hardware))
        }
        Op::LinearBackwardWeight(op) => {
            let d_w = tensors.get(op.d_w).shape;
            let share = match tensors.get(op.x).dtype {
                Dtype::F32 if hardware.warpgroups => WEIGHT_GRADIENTS_OF_F32,
                _ => WEIGHT_GRADIENTS,
            };
            let share = share * of_tiles(d_w.rows()) * of_tiles(d_w.width());
            Kind::Matmul { share: if is_gpu { share } else { 1.0 } }
        }
        Op::HeadTrain(head) => Kind::Head(head.work(tensors)),
        Op::HeadEval(head) => Kind::Head(head.work(tensors)),
        Op::LayerNorm(_) => pass(0.96),
        Op::LayerNormBackward(_) => pass(0.88),
        Op::Gelu(_) => pass(0.93),
        Op::AdamW(_) => pass(0.92),
        // Sorts the ids before it sums.
        Op::EmbedBackward(_) => pass(0.38),
        Op::Embed(_)
        | Op::GeluBackward(_)
        | Op::AttentionDecode(_)
        | Op::CacheStore(_)
        | Op::SelectPosition(_)
        | Op::GradNorm(_)
        | Op::Clear(_)
        | Op::SquareSums(_)
        | Op::NormOfSums(_)
        | Op::LossScaler(_) => pass(1.0),
    }
}

/// What an op costs however small it is, in launches: its kernels, and the end of each, when the
/// last blocks leave multiprocessors idle. A head counts its own. The fractions were fitted to
/// small slices on an H200.
fn launches(op: &Op) -> f64 {
    match op {
        Op::HeadTrain(_) | Op::HeadEval(_) => 0.0,
        Op::LinearBackwardWeight(_) => 2.0,
        Op::LayerNorm(_) => 1.5,
        Op::LayerNormBackward(_) => 3.7,
        Op::AttentionBackward(_) | Op::EmbedBackward(_) => 4.0,
        Op::Embed(_)
        | Op::Linear(_)
        | Op::LinearBackwardInput(_)
        | Op::Attention(_)
        | Op::AttentionDecode(_)
        | Op::Gelu(_)
        | Op::GeluBackward(_)
        | Op::CacheStore(_)
        | Op::SelectPosition(_)
        | Op::GradNorm(_)
        | Op::LossScaler(_)
        | Op::AdamW(_)
        | Op::Clear(_)
        | Op::SquareSums(_)
        | Op::NormOfSums(_)
        | Op::ReduceScatter(_)
        | Op::AllGather(_)
        | Op::Transfer(_) => 1.0,
    }
}

/// A linear layer, by the tiles of its output: they are computed in waves, one for each
/// multiprocessor, and the last wave is seldom full.
fn linear(tensors: &Tensors, out: TensorId, share: f64, hardware: &Hardware) -> Kind {
    let shape = tensors.get(out).shape;
    let (rows, columns) = (shape.rows(), shape.width());
    let work = rows as f64 * columns as f64;
    let filled = |([height, width], share): ([u64; 2], f64)| {
        let tiles = rows.div_ceil(height).saturating_mul(columns.div_ceil(width));
        let waves = tiles.div_ceil(hardware.multiprocessors.max(1));
        let slots = waves.saturating_mul(hardware.multiprocessors) as f64;
        share * work / (slots * (height * width) as f64)
    };
    let share = match hardware.multiprocessors {
        0 => 1.0,
        _ => {
            let filled = TILES.map(filled).into_iter().fold(f64::MIN_POSITIVE, f64::max);
            share / (1.0 - WAITING + WAITING / filled)
        }
    };
    Kind::Matmul { share }
}

/// A linear layer by warpgroups, or the gradient of its input, if such a kernel computes it.
/// `after` is what follows the matmul of a tile.
fn by_warpgroups(op: &Op, tensors: &Tensors, after: f64, hardware: &Hardware) -> Option<Kind> {
    let sizes = WarpgroupLinear::of(op, tensors).filter(|_| hardware.warpgroups)?;
    let turns = sizes.turns(hardware.multiprocessors);
    let [height, width] = WarpgroupLinear::TILE.map(|size| size as f64);
    let slots = turns * hardware.multiprocessors.max(1) as f64 * height * width;
    let filled = sizes.rows as f64 * sizes.columns as f64 / slots;
    let inner = sizes.inner as f64;
    let share = match op {
        Op::LinearBackwardInput(_) => LONG_SUMS * INPUT_GRADIENTS,
        _ => LONG_SUMS,
    };
    Some(Kind::Matmul { share: share * filled * inner / (inner + ENDS_OF_TILE).max(after) })
}

/// Bytes of what a linear layer adds to its result. It is read when the result is ready, and hides
/// behind nothing. With the part that `NOT_HIDDEN` counts these are 1.26 passes; 1.2 to 1.6 were
/// measured.
fn added_bytes(op: &Op, tensors: &Tensors) -> u64 {
    match op {
        Op::Linear(Linear { residual: Some(residual), .. }) => tensors.bytes(*residual).get(),
        _ => 0,
    }
}

/// The part of whole tiles that a matmul's output of this size uses.
fn of_tiles(size: u64) -> f64 {
    size as f64 / size.next_multiple_of(TILE) as f64
}

/// Predicted seconds of one step.
pub fn step_seconds(op: &Op, tensors: &Tensors, hardware: &Hardware) -> f64 {
    let operation = op.operation();
    let (flops, bytes) = (operation.flops(tensors) as f64, operation.bytes(tensors) as f64);
    let moving = bytes / hardware.bandwidth;
    let seconds = match kind(op, tensors, hardware) {
        Kind::Copy => bytes / hardware.link,
        // What arrives is written and read once more.
        Kind::Wire { rate } => {
            hardware.network.seconds(operation.wire_bytes(tensors), rate) + moving
        }
        Kind::Attention(shape) => (flops / shape.rate(hardware)).max(moving),
        Kind::Matmul { share } => {
            let computing = flops / (share * hardware.matmul);
            let adding = added_bytes(op, tensors) as f64 / hardware.bandwidth;
            (computing + NOT_HIDDEN * moving).max(moving) + adding
        }
        Kind::Head(work) => head_seconds(&work, hardware),
        Kind::Pass { share } => (flops / hardware.matmul).max(moving / share),
    };
    hardware.times.seconds(op, tensors, seconds + launches(op) * hardware.launch)
}

/// Predicted seconds of a head, without measured times. It grows with the number of chunks: each
/// launches its kernels and passes the weight and its gradient through memory.
pub fn head_seconds(work: &HeadWork, hardware: &Hardware) -> f64 {
    let chunks = work.chunks as f64;
    let matmuls = work.activations as f64 + chunks * work.weights as f64;
    let bytes = work.softmax as f64 + NOT_HIDDEN * matmuls;
    let launches = chunks * work.kernels as f64 * hardware.launch;
    work.flops as f64 / (WIDE * hardware.matmul) + bytes / hardware.bandwidth + launches
}
