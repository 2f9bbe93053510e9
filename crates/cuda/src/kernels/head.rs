//! The head, chunk by chunk: logits into the slab, losses and gradients in place, then both
//! matmuls. The weight's gradient is computed before the input's, which overwrites `x`.

use super::{count, sums, transpose};
use crate::constants::constants;
use crate::cublaslt::Orientation;
use crate::kernel_source::{ModuleSpec, Source};
use crate::lowering::{Extent, Location, Lowering, Matmul, MatmulSpec, pack_of};
use crate::signature::{In, MatmulInput, Out, T, WorkCount, signatures};
use crate::step::Step;
use plan::gpu_scratch::Transposed;
use plan::ops::{HeadEval, HeadTrain};
use plan::{BackendError, Dtype, StepState, TensorId};

signatures! {
    /// alpha and beta of the head's matmuls, from the loss scale.
    HeadScalars = head_scalars(
        blocks: WorkCount<u32>,
        step: In<Step>,
        state: In<StepState>,
        scalars: Out<f32>,
    );
    /// Losses, and in training the gradients of logits in place of the logits.
    CrossEntropy = cross_entropy(
        rows: WorkCount<u32>,
        slab_mv: Out<T>,
        targets_m: In<i32>,
        token_loss_m: Out<f32>,
        step: In<Step>,
        state: In<StepState>,
    );
}

constants! {
    Constants {
        T: Dtype,
        VOCABULARY: u64,
        COLUMNS: u64,
        VEC: u64,
        THREADS: u64,
        HELD: bool,
        TRAIN: bool,
        EXTRA_SCALE: bool,
    }
    fixed { WEIGHT_SCALARS, INPUT_SCALARS, THREADS_OF_ONE_BLOCK }
}

pub(super) static HEAD: Source = Source {
    file: "head.cu",
    signatures: SIGNATURES,
    constants: Constants::NAMES,
    parts: &[include_str!("head.cu")],
    warpgroups: false,
};

/// Packs of a row that a thread keeps in registers, and how many threads do: two blocks of the
/// smaller number share a multiprocessor, so that one computes while the other reads or writes.
/// Still longer rows are read three times, by more threads.
const PACKS_OF_A_THREAD: u64 = 25;
const THREADS_OF_TWO_BLOCKS: u64 = 256;
const THREADS_OF_ONE_BLOCK: u64 = 512;
const THREADS_OF_LONG_ROWS: u64 = 1024;
/// Index of alpha and beta of each gradient's matmul in the array of scalars.
const WEIGHT_SCALARS: u64 = 0;
const INPUT_SCALARS: u64 = 2;

/// What both heads share.
struct Head {
    tokens: u64,
    chunk: u64,
    width: u64,
    /// Columns of logits: the vocabulary and the padding behind it.
    columns: u64,
    padding: u64,
    dtype: Dtype,
    train: bool,
}

impl Head {
    fn new(cx: &Lowering<'_>, x: TensorId, (slab, padding): (TensorId, u64), train: bool) -> Head {
        let (x_shape, slab) = (cx.shape(x), cx.shape(slab));
        Head {
            tokens: x_shape.rows(),
            chunk: slab.rows(),
            width: x_shape.width(),
            columns: slab.width(),
            padding,
            dtype: cx.dtype(x),
            train,
        }
    }

    /// First token and number of tokens of each chunk.
    fn chunks(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (tokens, chunk) = (self.tokens, self.chunk);
        (0..tokens.div_ceil(chunk)).map(move |index| {
            let first = index * chunk;
            (first, chunk.min(tokens - first))
        })
    }

    /// Whether gradients of logits carry an extra power of two, which the matmuls remove again.
    fn has_extra_scale(&self) -> bool {
        self.train && self.dtype == Dtype::F16
    }

    /// Whether a row fits the registers of its block.
    fn is_held(&self) -> bool {
        self.packs() <= PACKS_OF_A_THREAD * THREADS_OF_ONE_BLOCK
    }

    fn packs(&self) -> u64 {
        self.columns / pack_of(self.columns, &[self.dtype])
    }

    fn threads(&self) -> u64 {
        match self.packs() {
            packs if packs <= PACKS_OF_A_THREAD * THREADS_OF_TWO_BLOCKS => {
                packs.div_ceil(2).next_power_of_two().clamp(32, THREADS_OF_TWO_BLOCKS)
            }
            _ if self.is_held() => THREADS_OF_ONE_BLOCK,
            _ => THREADS_OF_LONG_ROWS,
        }
    }

    fn module(&self) -> ModuleSpec {
        let constants = Constants {
            T: self.dtype,
            VOCABULARY: self.columns - self.padding,
            COLUMNS: self.columns,
            VEC: pack_of(self.columns, &[self.dtype]),
            THREADS: self.threads(),
            HELD: self.is_held(),
            TRAIN: self.train,
            EXTRA_SCALE: self.has_extra_scale(),
        };
        constants.module(&HEAD)
    }

    fn logits(
        &self,
        cx: &mut Lowering<'_>,
        tokens: u64,
        operands: Matmul,
    ) -> Result<(), BackendError> {
        let sizes = [tokens, self.columns, self.width];
        cx.matmul(plain(Orientation::TimesTransposed, sizes), operands)
    }

    /// The input of one chunk, which begins at byte `start`, as the matmul of the weight's
    /// gradient reads it.
    fn weight_operand(
        &self,
        cx: &mut Lowering<'_>,
        op: &HeadTrain,
        (start, tokens): (u64, u64),
    ) -> Result<(Orientation, In<MatmulInput>), BackendError> {
        let matrix = |tokens| Transposed::for_weight(self.dtype, tokens, self.width, self.columns);
        // The workspace is that of a whole chunk.
        let matrix = matrix(self.chunk).and_then(|_| matrix(tokens));
        match transpose::wanted(cx, matrix).filter(|matrix| matrix.columns == self.width) {
            Some(matrix) => {
                let x = cx.read(op.x)?.plus(start);
                let turned = transpose::launch(cx, matrix, x, op.workspace)?;
                Ok((Orientation::BothTransposed, turned))
            }
            None => Ok((Orientation::TransposedTimes, cx.read(op.x)?.plus(start))),
        }
    }

    /// The kernel for one chunk. The operands are those of the first chunk.
    fn cross_entropy(
        &self,
        cx: &mut Lowering<'_>,
        (first, tokens): (u64, u64),
        losses: CrossEntropy,
    ) -> Result<(), BackendError> {
        let kernel = CrossEntropy {
            rows: WorkCount(count(tokens, "tokens")?),
            targets_m: losses.targets_m.plus(first * 4),
            token_loss_m: losses.token_loss_m.plus(first * 4),
            ..losses
        };
        cx.launch(self.module(), Extent::new(tokens, self.threads() as u32), kernel)
    }
}

/// A matmul `m x n x k` that overwrites its output.
fn plain(orientation: Orientation, [m, n, k]: [u64; 3]) -> MatmulSpec {
    MatmulSpec { orientation, m, n, k, accumulate: false, scalars: None }
}

pub(super) fn train(cx: &mut Lowering<'_>, op: &HeadTrain) -> Result<(), BackendError> {
    let head = Head::new(cx, op.x, (op.slab, op.padding), true);
    let (x, w, slab) = (cx.read(op.x)?, cx.read(op.w)?, cx.read(op.slab)?);
    let (d_x, logits, d_w) = (cx.write(op.x)?, cx.write(op.slab)?, cx.write(op.d_w)?);
    let scratch = cx.scratch(op.workspace)?;
    let (step, state) = (cx.step(), cx.read(op.state)?);
    let losses = CrossEntropy {
        rows: WorkCount(0),
        slab_mv: cx.write(op.slab)?,
        targets_m: cx.read(op.targets)?,
        token_loss_m: cx.write(op.token_loss)?,
        step,
        state,
    };
    let scalars_at = |index: u64| head.has_extra_scale().then_some(4 * index);
    if head.has_extra_scale() {
        let scalars = Out::at(Location::Scalars);
        let kernel = HeadScalars { blocks: WorkCount(1), step, state, scalars };
        cx.launch(head.module(), Extent::new(1, 32), kernel)?;
    }
    for (first, tokens) in head.chunks() {
        let start = first * head.width * head.dtype.size();
        let (x, d_x) = (x.plus(start), d_x.plus(start));
        head.logits(
            cx,
            tokens,
            Matmul { a: x, b: w, out: logits, bias: None, residual: None, scratch },
        )?;
        head.cross_entropy(cx, (first, tokens), losses)?;
        let (orientation, b) = head.weight_operand(cx, op, (start, tokens))?;
        let weight = MatmulSpec {
            accumulate: true,
            scalars: scalars_at(WEIGHT_SCALARS),
            ..plain(orientation, [head.columns, head.width, tokens])
        };
        cx.matmul(weight, Matmul { a: slab, b, out: d_w, bias: None, residual: None, scratch })?;
        let input = MatmulSpec {
            scalars: scalars_at(INPUT_SCALARS),
            ..plain(Orientation::Plain, [tokens, head.width, head.columns])
        };
        cx.matmul(input, Matmul { a: slab, b: w, out: d_x, bias: None, residual: None, scratch })?;
    }
    let targets = cx.shape(op.targets);
    sums::row_losses(cx, op.token_loss, op.row_loss, (targets.rows(), targets.width()))
}

pub(super) fn eval(cx: &mut Lowering<'_>, op: &HeadEval) -> Result<(), BackendError> {
    let head = Head::new(cx, op.x, (op.slab, op.padding), false);
    let (x, w) = (cx.read(op.x)?, cx.read(op.w)?);
    let (slab, scratch) = (cx.write(op.slab)?, cx.scratch(op.workspace)?);
    let losses = CrossEntropy {
        rows: WorkCount(0),
        slab_mv: cx.write(op.slab)?,
        targets_m: cx.read(op.targets)?,
        token_loss_m: cx.write(op.token_loss)?,
        step: cx.step(),
        state: In::nowhere(),
    };
    for (first, tokens) in head.chunks() {
        let x = x.plus(first * head.width * head.dtype.size());
        head.logits(
            cx,
            tokens,
            Matmul { a: x, b: w, out: slab, bias: None, residual: None, scratch },
        )?;
        head.cross_entropy(cx, (first, tokens), losses)?;
    }
    let targets = cx.shape(op.targets);
    sums::row_losses(cx, op.token_loss, op.row_loss, (targets.rows(), targets.width()))
}
