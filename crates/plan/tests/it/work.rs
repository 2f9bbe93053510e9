//! Work and traffic of the ops that dominate a step, compared with numbers computed by hand.

use crate::fixture::shape;
use fitgpt_plan::ops::{
    Attention, AttentionBackward, HeadEval, HeadTrain, Linear, LinearBackwardInput,
    LinearBackwardWeight, Op,
};
use fitgpt_plan::{Dtype, Phase, Role, ScheduleBuilder, SegmentBuilder, TensorId};

/// Rows, positions, width, outputs (or vocabulary), heads, chunk.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    rows: u64,
    positions: u64,
    width: u64,
    outputs: u64,
    heads: u64,
    chunk: u64,
}

const TINY: Sizes = Sizes { rows: 2, positions: 3, width: 4, outputs: 5, heads: 2, chunk: 6 };
/// c_attn of GPT-2 124M, 12 sequences.
const C_ATTN: Sizes =
    Sizes { rows: 12, positions: 1024, width: 768, outputs: 2304, heads: 12, chunk: 1 };
/// Attention and head of GPT-2 124M, one sequence, logits whole and in chunks.
const GPT2: Sizes =
    Sizes { rows: 1, positions: 1024, width: 768, outputs: 50304, heads: 12, chunk: 1024 };
const GPT2_CHUNKED: Sizes = Sizes { chunk: 256, ..GPT2 };

struct Maker<'a> {
    sizes: Sizes,
    segment: SegmentBuilder<'a>,
}

impl Maker<'_> {
    fn tensor(&mut self, dtype: Dtype, dims: &[u64]) -> TensorId {
        let tensor = self.segment.local("t", dtype, shape(dims), Role::Activation);
        tensor.expect("a test's tensors fit")
    }

    fn f(&mut self, dims: &[u64]) -> TensorId {
        self.tensor(Dtype::F32, dims)
    }

    fn x(&mut self) -> TensorId {
        self.f(&[self.sizes.rows, self.sizes.positions, self.sizes.width])
    }

    fn qkv(&mut self) -> TensorId {
        self.f(&[self.sizes.rows, self.sizes.positions, 3 * self.sizes.width])
    }

    fn lse(&mut self) -> TensorId {
        self.f(&[self.sizes.rows, self.sizes.heads, self.sizes.positions])
    }

    fn out(&mut self) -> TensorId {
        self.f(&[self.sizes.rows, self.sizes.positions, self.sizes.outputs])
    }

    fn w(&mut self) -> TensorId {
        self.f(&[self.sizes.outputs, self.sizes.width])
    }

    fn slab(&mut self) -> TensorId {
        self.f(&[self.sizes.chunk, self.sizes.outputs])
    }

    fn targets(&mut self) -> TensorId {
        self.tensor(Dtype::I32, &[self.sizes.rows, self.sizes.positions])
    }

    fn token_loss(&mut self) -> TensorId {
        self.f(&[self.sizes.rows * self.sizes.positions])
    }

    fn row_loss(&mut self) -> TensorId {
        self.f(&[self.sizes.rows])
    }

    fn workspace(&mut self) -> TensorId {
        let tensor = self.segment.local("t", Dtype::F32, shape(&[7]), Role::Workspace);
        tensor.expect("a test's tensors fit")
    }
}

fn linear(m: &mut Maker<'_>) -> Op {
    let bias = Some(m.f(&[m.sizes.outputs]));
    let (out, workspace) = (m.out(), m.workspace());
    Op::Linear(Linear { x: m.x(), w: m.w(), bias, out, gelu: None, residual: None, workspace })
}

fn linear_backward_input(m: &mut Maker<'_>) -> Op {
    let (d_out, w, d_x, workspace) = (m.out(), m.w(), m.x(), m.workspace());
    Op::LinearBackwardInput(LinearBackwardInput { d_out, w, d_x, gelu: None, workspace })
}

fn linear_backward_weight(m: &mut Maker<'_>) -> Op {
    let (d_out, x, d_w, workspace) = (m.out(), m.x(), m.w(), m.workspace());
    Op::LinearBackwardWeight(LinearBackwardWeight { d_out, x, d_w, d_bias: None, workspace })
}

fn attention(m: &mut Maker<'_>) -> Op {
    let (qkv, out, lse, workspace) = (m.qkv(), m.x(), m.lse(), m.workspace());
    Op::Attention(Attention { qkv, out, lse, heads: m.sizes.heads, dropout: None, workspace })
}

fn attention_backward(m: &mut Maker<'_>) -> Op {
    Op::AttentionBackward(AttentionBackward {
        qkv: m.qkv(),
        out: m.x(),
        lse: m.lse(),
        d_out: m.x(),
        d_qkv: m.qkv(),
        delta: m.lse(),
        heads: m.sizes.heads,
        dropout: None,
        workspace: m.workspace(),
    })
}

fn head_train(m: &mut Maker<'_>) -> Op {
    Op::HeadTrain(HeadTrain {
        x: m.x(),
        w: m.w(),
        d_w: m.w(),
        targets: m.targets(),
        token_loss: m.token_loss(),
        row_loss: m.row_loss(),
        slab: m.slab(),
        state: m.tensor(Dtype::U32, &[16]),
        padding: 0,
        workspace: m.workspace(),
    })
}

fn head_eval(m: &mut Maker<'_>) -> Op {
    Op::HeadEval(HeadEval {
        x: m.x(),
        w: m.w(),
        targets: m.targets(),
        token_loss: m.token_loss(),
        row_loss: m.row_loss(),
        slab: m.slab(),
        padding: 0,
        workspace: m.workspace(),
    })
}

type Make = fn(&mut Maker<'_>) -> Op;

#[test]
fn work_and_traffic_are_those_worked_out_by_hand() {
    // op, sizes, flops, bytes
    let cases: [(Make, Sizes, u64, u64); 13] = [
        // 2·6·5·4; x 24, w 20, bias 5, out 30 floats. The workspace does not count.
        (linear, TINY, 240, 4 * 79),
        // 2·12288·2304·768; x 37,748,736, w 7,077,888, bias 9216, out 113,246,208.
        (linear, C_ATTN, 43_486_543_872, 158_082_048),
        (linear_backward_input, TINY, 240, 4 * (30 + 20 + 24)),
        (linear_backward_input, C_ATTN, 43_486_543_872, 158_072_832),
        // The accumulator is read and written.
        (linear_backward_weight, TINY, 240, 4 * (30 + 24 + 2 * 20)),
        // Two matmuls of 2·2·3·3·4, the causal half of each; qkv 72, out 24, lse 12.
        (attention, TINY, 144, 4 * 108),
        // 2·1024²·768; qkv 9,437,184, out 3,145,728, lse 49,152.
        (attention, GPT2, 1_610_612_736, 12_632_064),
        (attention_backward, TINY, 5 * 72, 4 * (2 * (72 + 24 + 12))),
        // Three matmuls of 2·6·5·4; 30 logits five times, x three times, w and d_w twice.
        (head_train, TINY, 720, 4 * (5 * 30 + 3 * 24 + 2 * 20 + 2 * 20)),
        // 3·2·1024·50304·768; logits 206,045,184, x 3,145,728, w 154,533,888.
        (head_train, GPT2, 237_364_051_968, 1_657_798_656),
        // Logits pass through memory with any chunk; w and d_w pass again for each of 4 chunks.
        (head_train, GPT2_CHUNKED, 237_364_051_968, 1_657_798_656 + 12 * 154_533_888),
        (head_eval, TINY, 240, 4 * (2 * 30 + 24 + 20)),
        (head_eval, GPT2_CHUNKED, 79_121_350_656, 569_769_984),
    ];
    for (make, sizes, flops, bytes) in cases {
        let mut builder = ScheduleBuilder::new();
        let mut maker = Maker { sizes, segment: builder.segment("s", Phase::Train) };
        let op = make(&mut maker);
        let name = op.operation().name();
        maker.segment.push(op.clone()).unwrap();
        maker.segment.push(op.clone()).unwrap();
        let id = maker.segment.finish();
        let tensors = builder.tensors();
        assert_eq!(op.operation().flops(tensors), flops, "flops of {name} {sizes:?}");
        assert_eq!(op.operation().bytes(tensors), bytes, "bytes of {name} {sizes:?}");
        assert_eq!(builder.finish().flops(id), 2 * flops, "{name} twice");
    }
}

#[test]
fn absurd_work_saturates() {
    let sizes = Sizes { rows: 1, positions: 1 << 40, width: 4, outputs: 1, heads: 2, chunk: 1 };
    let mut builder = ScheduleBuilder::new();
    let mut maker = Maker { sizes, segment: builder.segment("s", Phase::Train) };
    let op = attention_backward(&mut maker);
    for _ in 0..3 {
        maker.segment.push(op.clone()).unwrap();
    }
    let id = maker.segment.finish();
    assert_eq!(builder.finish().flops(id), u64::MAX);
}
