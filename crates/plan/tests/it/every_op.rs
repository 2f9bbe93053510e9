//! An example of every op, with operands that obey its rule, or with one that does not.

use crate::fixture::{EPSILON, shape};
use fitgpt_plan::ops::{
    AdamW, AllGather, Attention, AttentionBackward, AttentionDecode, Branch, BranchGradient,
    CacheStore, Clear, Dropout, DropoutSite, Embed, EmbedBackward, Gelu, GeluBackward, GeluKind,
    GradNorm, HeadEval, HeadTrain, LayerNorm, LayerNormBackward, Linear, LinearBackwardInput,
    LinearBackwardWeight, LossScaler, NormOfSums, NormalisedAgain, Op, PositionFrom, ReduceScatter,
    Scaling, SelectPosition, SquareSums, Transfer, Write,
};
use fitgpt_plan::{Dtype, Pieces, Rank, Role, SegmentBuilder, TensorId};

/// Makes an op's operands; one of them may be broken.
pub struct Operands<'a> {
    /// Where they are added.
    pub segment: SegmentBuilder<'a>,
    /// The broken operand, with its type and dimensions.
    pub broken: Option<(&'a str, Dtype, &'a [u64])>,
}

impl Operands<'_> {
    fn of(&mut self, name: &str, dtype: Dtype, dims: &[u64]) -> TensorId {
        self.of_role(name, dtype, dims, Role::Activation)
    }

    fn of_role(&mut self, name: &str, dtype: Dtype, dims: &[u64], role: Role) -> TensorId {
        let (dtype, dims) = match self.broken {
            Some((broken, dtype, dims)) if broken == name => (dtype, dims),
            _ => (dtype, dims),
        };
        let tensor = self.segment.local(name, dtype, shape(dims), role);
        tensor.expect("operands are small")
    }

    fn f(&mut self, name: &str, dims: &[u64]) -> TensorId {
        self.of(name, Dtype::F32, dims)
    }

    fn workspace(&mut self) -> TensorId {
        self.of_role("workspace", Dtype::F32, &[1], Role::Workspace)
    }

    fn state(&mut self) -> TensorId {
        self.of("state", Dtype::U32, &[16])
    }
}

/// Makes an op.
pub type Make = fn(&mut Operands<'_>) -> Op;

const HALF: Dropout = Dropout { probability: 0.5, layer: 0, site: DropoutSite::Attention };

/// Every op by its name, for two sequences of three tokens, width 4 in 2 heads, vocabulary 11 and
/// contexts up to 8.
pub const OPS: &[(&str, Make)] = &[
    ("embed", embed),
    ("embed_backward", embed_backward),
    ("layernorm", layernorm),
    ("layernorm_backward", layernorm_backward),
    ("linear", linear),
    ("linear_add", linear_add),
    ("linear_backward_input", linear_backward_input),
    ("linear_backward_weight", linear_backward_weight),
    ("attention", attention),
    ("attention_backward", attention_backward),
    ("gelu", gelu),
    ("gelu_backward", gelu_backward),
    ("head_train", head_train),
    ("head_eval", head_eval),
    ("cache_store", cache_store),
    ("attention_decode", attention_decode),
    ("select_position", select_position),
    ("grad_norm", grad_norm),
    ("loss_scaler", loss_scaler),
    ("adamw", adamw),
    ("transfer", transfer),
    ("clear", clear),
    ("square_sums", square_sums),
    ("norm_of_sums", norm_of_sums),
    ("reduce_scatter", reduce_scatter),
    ("all_gather", all_gather),
];

fn embed(o: &mut Operands<'_>) -> Op {
    Op::Embed(Embed {
        tokens: o.of("tokens", Dtype::I32, &[2, 3]),
        wte: o.f("wte", &[11, 4]),
        wpe: Some(o.f("wpe", &[8, 4])),
        out: o.f("out", &[2, 3, 4]),
        position: PositionFrom::Zero,
        dropout: Some(HALF),
    })
}

fn embed_backward(o: &mut Operands<'_>) -> Op {
    Op::EmbedBackward(EmbedBackward {
        tokens: o.of("tokens", Dtype::I32, &[2, 3]),
        d_out: o.f("d_out", &[2, 3, 4]),
        d_wte: o.f("d_wte", &[11, 4]),
        d_wpe: Some(o.f("d_wpe", &[8, 4])),
        dropout: Some(HALF),
        workspace: o.workspace(),
    })
}

fn layernorm(o: &mut Operands<'_>) -> Op {
    let (branch, sum) = (o.f("branch", &[2, 3, 4]), o.f("sum", &[2, 3, 4]));
    Op::LayerNorm(LayerNorm {
        x: o.f("x", &[2, 3, 4]),
        add: Some(Branch { branch, dropout: Some(HALF), sum }),
        gain: o.f("gain", &[4]),
        bias: Some(o.f("bias", &[4])),
        out: o.f("out", &[2, 3, 4]),
        mean: o.f("mean", &[6]),
        rstd: o.f("rstd", &[6]),
        epsilon: EPSILON,
    })
}

fn layernorm_backward(o: &mut Operands<'_>) -> Op {
    let d_branch = o.f("d_branch", &[2, 3, 4]);
    Op::LayerNormBackward(LayerNormBackward {
        d_out: o.f("d_out", &[2, 3, 4]),
        x: o.f("x", &[2, 3, 4]),
        mean: o.f("mean", &[6]),
        rstd: o.f("rstd", &[6]),
        gain: o.f("gain", &[4]),
        d_gain: o.f("d_gain", &[4]),
        d_bias: Some(o.f("d_bias", &[4])),
        d_x: o.f("d_x", &[2, 3, 4]),
        write: Write::Accumulate,
        branch: Some(BranchGradient { d_branch, dropout: Some(HALF) }),
        again: Some(NormalisedAgain { bias: Some(o.f("bias", &[4])) }),
        workspace: o.workspace(),
    })
}

fn linear(o: &mut Operands<'_>) -> Op {
    Op::Linear(layer(o, None))
}

fn linear_add(o: &mut Operands<'_>) -> Op {
    let residual = Some(o.f("residual", &[2, 3, 5]));
    Op::Linear(layer(o, residual))
}

fn layer(o: &mut Operands<'_>, residual: Option<TensorId>) -> Linear {
    Linear {
        x: o.f("x", &[2, 3, 4]),
        w: o.f("w", &[5, 4]),
        bias: Some(o.f("bias", &[5])),
        out: o.f("out", &[2, 3, 5]),
        gelu: None,
        residual,
        workspace: o.workspace(),
    }
}

fn linear_backward_input(o: &mut Operands<'_>) -> Op {
    Op::LinearBackwardInput(LinearBackwardInput {
        d_out: o.f("d_out", &[2, 3, 5]),
        w: o.f("w", &[5, 4]),
        d_x: o.f("d_x", &[2, 3, 4]),
        gelu: None,
        workspace: o.workspace(),
    })
}

fn linear_backward_weight(o: &mut Operands<'_>) -> Op {
    Op::LinearBackwardWeight(LinearBackwardWeight {
        d_out: o.f("d_out", &[2, 3, 5]),
        x: o.f("x", &[2, 3, 4]),
        d_w: o.f("d_w", &[5, 4]),
        d_bias: Some(o.f("d_bias", &[5])),
        workspace: o.workspace(),
    })
}

fn attention(o: &mut Operands<'_>) -> Op {
    Op::Attention(Attention {
        qkv: o.f("qkv", &[2, 3, 12]),
        out: o.f("out", &[2, 3, 4]),
        lse: o.f("lse", &[2, 2, 3]),
        heads: 2,
        dropout: Some(HALF),
        workspace: o.workspace(),
    })
}

fn attention_backward(o: &mut Operands<'_>) -> Op {
    Op::AttentionBackward(AttentionBackward {
        qkv: o.f("qkv", &[2, 3, 12]),
        out: o.f("out", &[2, 3, 4]),
        lse: o.f("lse", &[2, 2, 3]),
        d_out: o.f("d_out", &[2, 3, 4]),
        d_qkv: o.f("d_qkv", &[2, 3, 12]),
        delta: o.f("delta", &[2, 2, 3]),
        heads: 2,
        dropout: Some(HALF),
        workspace: o.workspace(),
    })
}

fn gelu(o: &mut Operands<'_>) -> Op {
    let (x, out) = (o.f("x", &[2, 3, 4]), o.f("out", &[2, 3, 4]));
    Op::Gelu(Gelu { x, out, kind: GeluKind::Erf })
}

fn gelu_backward(o: &mut Operands<'_>) -> Op {
    let (x, d) = (o.f("x", &[2, 3, 4]), o.f("d", &[2, 3, 4]));
    Op::GeluBackward(GeluBackward { x, d, kind: GeluKind::Tanh, again: true })
}

fn head_train(o: &mut Operands<'_>) -> Op {
    Op::HeadTrain(HeadTrain {
        x: o.f("x", &[2, 3, 4]),
        w: o.f("w", &[11, 4]),
        d_w: o.f("d_w", &[11, 4]),
        targets: o.of("targets", Dtype::I32, &[2, 3]),
        token_loss: o.f("token_loss", &[6]),
        row_loss: o.f("row_loss", &[2]),
        slab: o.f("slab", &[6, 11]),
        state: o.state(),
        padding: 0,
        workspace: o.workspace(),
    })
}

fn head_eval(o: &mut Operands<'_>) -> Op {
    Op::HeadEval(HeadEval {
        x: o.f("x", &[2, 3, 4]),
        w: o.f("w", &[11, 4]),
        targets: o.of("targets", Dtype::I32, &[2, 3]),
        token_loss: o.f("token_loss", &[6]),
        row_loss: o.f("row_loss", &[2]),
        slab: o.f("slab", &[6, 11]),
        padding: 0,
        workspace: o.workspace(),
    })
}

fn cache_store(o: &mut Operands<'_>) -> Op {
    let (qkv, cache) = (o.f("qkv", &[2, 3, 12]), o.f("cache", &[2, 2, 2, 8, 2]));
    Op::CacheStore(CacheStore { qkv, cache })
}

fn attention_decode(o: &mut Operands<'_>) -> Op {
    Op::AttentionDecode(AttentionDecode {
        qkv: o.f("qkv", &[2, 1, 12]),
        cache: o.f("cache", &[2, 2, 2, 8, 2]),
        out: o.f("out", &[2, 1, 4]),
        workspace: o.workspace(),
    })
}

fn select_position(o: &mut Operands<'_>) -> Op {
    let (x, out) = (o.f("x", &[2, 3, 4]), o.f("out", &[2, 1, 4]));
    Op::SelectPosition(SelectPosition { x, out })
}

fn grad_norm(o: &mut Operands<'_>) -> Op {
    let gradients = o.f("gradients", &[131_072]);
    let partials = o.of("partials", Dtype::U32, &[2, 2]);
    Op::GradNorm(GradNorm { gradients, partials, state: o.state() })
}

fn loss_scaler(o: &mut Operands<'_>) -> Op {
    Op::LossScaler(LossScaler { state: o.state(), scaling: Scaling::Off })
}

fn adamw(o: &mut Operands<'_>) -> Op {
    Op::AdamW(AdamW {
        copy: Some(o.f("copy", &[100])),
        split: false,
        weights: o.f("weights", &[100]),
        gradients: o.f("gradients", &[100]),
        m: o.f("m", &[100]),
        v: o.f("v", &[100]),
        state: o.state(),
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        first: 0,
    })
}

fn transfer(o: &mut Operands<'_>) -> Op {
    Op::Transfer(Transfer { from: o.f("from", &[100]), to: o.f("to", &[100]) })
}

const SECOND: Rank = Rank { rank: 1, ranks: 2 };

fn clear(o: &mut Operands<'_>) -> Op {
    Op::Clear(Clear { tensor: o.f("tensor", &[100]) })
}

fn square_sums(o: &mut Operands<'_>) -> Op {
    let gradients = o.f("gradients", &[65_536]);
    let partials = o.of("partials", Dtype::U32, &[3, 2]);
    Op::SquareSums(SquareSums { gradients, partials, first_block: 2 })
}

fn norm_of_sums(o: &mut Operands<'_>) -> Op {
    let partials = o.of("partials", Dtype::U32, &[2, 3, 2]);
    Op::NormOfSums(NormOfSums { partials, state: o.state() })
}

fn reduce_scatter(o: &mut Operands<'_>) -> Op {
    Op::ReduceScatter(ReduceScatter {
        gradients: o.f("gradients", &[100]),
        total: Some(o.f("total", &[52])),
        workspace: o.workspace(),
        pieces: Pieces::of_blocks(SECOND, 100, 16),
        wire: Dtype::F32,
    })
}

fn all_gather(o: &mut Operands<'_>) -> Op {
    let (piece, buffer) = (Some(o.f("piece", &[52])), o.f("buffer", &[100]));
    Op::AllGather(AllGather { piece, buffer, pieces: Pieces::of_blocks(SECOND, 100, 16) })
}

/// Weights in two halves: the lower ones are u16, and the upper ones are the copy, in bf16.
#[test]
fn split_weights_are_two_halves() {
    let said = |weights: Dtype, copy: Option<Dtype>| {
        let mut builder = fitgpt_plan::ScheduleBuilder::new();
        let segment = builder.segment("s", fitgpt_plan::Phase::Train);
        let mut operands = Operands { segment, broken: None };
        let Op::AdamW(op) = adamw(&mut operands) else { panic!("another op") };
        let weights = operands.of("lower", weights, &[100]);
        let copy = copy.map(|dtype| operands.of("upper", dtype, &[100]));
        let pushed = operands.segment.push(AdamW { weights, copy, split: true, ..op });
        pushed.map_or_else(|error| error.to_string(), |()| "accepted".to_string())
    };
    assert_eq!(said(Dtype::U16, Some(Dtype::Bf16)), "accepted");
    let upper = "adamw: split weights need a bf16 copy, their upper halves";
    assert_eq!(said(Dtype::U16, Some(Dtype::F16)), upper);
    assert_eq!(said(Dtype::U16, None), upper);
    let lower = "adamw: operand weights (lower) is f32 [100], the op needs u16";
    assert_eq!(said(Dtype::F32, Some(Dtype::Bf16)), lower);
}
