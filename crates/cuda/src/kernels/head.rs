//! The head, chunk by chunk: logits into the slab, losses and gradients in place, then both
//! products. The weight's gradient comes before the input's, which overwrites `x`.

use super::{count, sums};
use crate::cublaslt::Orientation;
use crate::lowering::{
    Extent, Kernel, Lowering, Place, ProductSpec, Source, arguments, flag, format_name, pack_of,
};
use plan::ops::{HeadEval, HeadTrain};
use plan::{BackendError, Dtype, TensorId};

static HEAD: Source = Source { file: "head.cu", parts: &[include_str!("head.cu")] };

/// Packs of a row that a thread holds in registers; longer rows are read twice.
const PACKS_OF_A_THREAD: u64 = 13;
const MOST_THREADS: u64 = 512;

/// What both heads share.
struct Head {
    tokens: u64,
    chunk: u64,
    width: u64,
    vocabulary: u64,
    dtype: Dtype,
    train: bool,
}

impl Head {
    fn new(cx: &Lowering<'_>, x: TensorId, slab: TensorId, train: bool) -> Head {
        let (x_shape, slab) = (cx.shape(x), cx.shape(slab));
        Head {
            tokens: x_shape.rows(),
            chunk: slab.rows(),
            width: x_shape.width(),
            vocabulary: slab.width(),
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

    /// Whether gradients of logits carry an extra power of two, which the products take away.
    fn has_extra_scale(&self) -> bool {
        self.train && self.dtype == Dtype::F16
    }

    fn threads(&self) -> u64 {
        let packs = self.vocabulary / pack_of(self.vocabulary, &[self.dtype]);
        packs.div_ceil(2).next_power_of_two().clamp(32, MOST_THREADS)
    }

    fn kernel(&self, entry: &'static str) -> Kernel {
        let pack = pack_of(self.vocabulary, &[self.dtype]);
        let held = (self.vocabulary / pack).div_ceil(self.threads()) <= PACKS_OF_A_THREAD;
        let constants = vec![
            ("T", format_name(self.dtype).to_string()),
            ("VOCABULARY", self.vocabulary.to_string()),
            ("VEC", pack.to_string()),
            ("THREADS", self.threads().to_string()),
            ("HELD", flag(held)),
            ("TRAIN", flag(self.train)),
            ("EXTRA_SCALE", flag(self.has_extra_scale())),
        ];
        Kernel { source: &HEAD, constants, entry }
    }

    fn product(&self, orientation: Orientation, [m, n, k]: [u64; 3]) -> ProductSpec {
        let (inputs, output) = (self.dtype, self.dtype);
        ProductSpec { orientation, m, n, k, inputs, output, accumulate: false, scalars: None }
    }

    fn logits(&self, cx: &mut Lowering<'_>, tokens: u64, places: [Place; 4]) {
        let spec =
            self.product(Orientation::TimesTransposed, [tokens, self.vocabulary, self.width]);
        cx.product(spec, places, None);
    }

    fn cross_entropy(
        &self,
        cx: &mut Lowering<'_>,
        tokens: u64,
        [slab, targets, token_loss, state]: [Place; 4],
    ) -> Result<(), BackendError> {
        let rows = count(tokens, "tokens")?;
        let arguments = arguments![rows, slab, targets, token_loss, Place::Step, state];
        let extent = Extent::new(tokens, self.threads() as u32);
        cx.launch(self.kernel("cross_entropy"), extent, arguments)
    }
}

pub(super) fn train(cx: &mut Lowering<'_>, op: &HeadTrain) -> Result<(), BackendError> {
    let head = Head::new(cx, op.x, op.slab, true);
    let [x, w, d_w, targets] = [op.x, op.w, op.d_w, op.targets].map(|id| cx.place(id));
    let [x, w, d_w, targets] = [x?, w?, d_w?, targets?];
    let [token_loss, slab, state] = [op.token_loss, op.slab, op.state].map(|id| cx.place(id));
    let [token_loss, slab, state] = [token_loss?, slab?, state?];
    let workspace = cx.place(op.workspace)?;
    let scalars = head.has_extra_scale().then_some(0);
    if scalars.is_some() {
        let arguments = arguments![1u32, Place::Step, state, Place::Scalars];
        cx.launch(head.kernel("head_scalars"), Extent::new(1, 32), arguments)?;
    }
    for (first, tokens) in head.chunks() {
        let x = x.plus(first * head.width * head.dtype.size());
        head.logits(cx, tokens, [x, w, slab, workspace]);
        let (targets, token_loss) = (targets.plus(first * 4), token_loss.plus(first * 4));
        head.cross_entropy(cx, tokens, [slab, targets, token_loss, state])?;
        let weight = ProductSpec {
            output: cx.dtype(op.d_w),
            accumulate: true,
            scalars,
            ..head.product(Orientation::TransposedTimes, [head.vocabulary, head.width, tokens])
        };
        cx.product(weight, [slab, x, d_w, workspace], None);
        let input = ProductSpec {
            scalars: scalars.map(|at| at + 8),
            ..head.product(Orientation::Plain, [tokens, head.width, head.vocabulary])
        };
        cx.product(input, [slab, w, x, workspace], None);
    }
    let targets = cx.shape(op.targets);
    sums::row_losses(cx, op.token_loss, op.row_loss, (targets.rows(), targets.width()))
}

pub(super) fn eval(cx: &mut Lowering<'_>, op: &HeadEval) -> Result<(), BackendError> {
    let head = Head::new(cx, op.x, op.slab, false);
    let [x, w, targets] = [op.x, op.w, op.targets].map(|id| cx.place(id));
    let [x, w, targets] = [x?, w?, targets?];
    let [token_loss, slab, workspace] =
        [op.token_loss, op.slab, op.workspace].map(|id| cx.place(id));
    let [token_loss, slab, workspace] = [token_loss?, slab?, workspace?];
    for (first, tokens) in head.chunks() {
        let x = x.plus(first * head.width * head.dtype.size());
        head.logits(cx, tokens, [x, w, slab, workspace]);
        let (targets, token_loss) = (targets.plus(first * 4), token_loss.plus(first * 4));
        head.cross_entropy(cx, tokens, [slab, targets, token_loss, Place::Nowhere])?;
    }
    let targets = cx.shape(op.targets);
    sums::row_losses(cx, op.token_loss, op.row_loss, (targets.rows(), targets.width()))
}
