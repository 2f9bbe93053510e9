//! GPT-2, to be read next to nanoGPT's `model.py`: the modules, attention, the MLP, a block, the
//! whole forward pass. Each line adds tensors and steps to a segment, and the backward is derived
//! from these. At the end: what each level of recompute drops, and the numbers that nanoGPT
//! reports.

use crate::activation::Activation;
use crate::architecture::{Architecture, Network};
use crate::dims::{Dims, NORM_EPSILON};
use crate::forward::{AttendTo, Forward, Norm, Stream};
use crate::levels::Level;
use crate::params::{self, Init, Module, ModuleKind, Modules, Param, Size};
use plan::ops::{Attention, AttentionDecode, CacheStore, DropoutSite, Gelu, GeluKind};
use plan::{PlanError, TensorId};

/// The attributes that only GPT-2 has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpt2 {
    /// Exact for nanoGPT's models, tanh for OpenAI's.
    pub gelu: GeluKind,
}

use Size::{Block, Embd, Hidden, Qkv, Vocab};

// The names are Hugging Face's; nanoGPT puts `transformer.` before them. The head is tied to `wte`.
const WTE: Module = Module::token_embedding("wte", &[Vocab, Embd]);
const WPE: Module = Module::position_embedding("wpe", &[Block, Embd]);
const LN_1: Module = Module::layer_norm("ln_1", &[Embd]);
const C_ATTN: Module = Module::linear("attn.c_attn", &[Qkv, Embd], Init::Normal);
const ATTN_C_PROJ: Module = Module::linear("attn.c_proj", &[Embd, Embd], Init::Residual);
const LN_2: Module = Module::layer_norm("ln_2", &[Embd]);
const C_FC: Module = Module::linear("mlp.c_fc", &[Hidden, Embd], Init::Normal);
const MLP_C_PROJ: Module = Module::linear("mlp.c_proj", &[Embd, Hidden], Init::Residual);
const LN_F: Module = Module::layer_norm("ln_f", &[Embd]);

impl Gpt2 {
    /// `c_proj(attention(c_attn(x)))`.
    fn attention(
        &self,
        f: &mut Forward<'_>,
        x: TensorId,
        layer: u32,
        attend_to: AttendTo<'_>,
    ) -> Result<TensorId, PlanError> {
        let heads = f.dims().n_head;
        let qkv = f.linear(x, C_ATTN, Activation::Qkv)?;
        let out = f.activation(Activation::Att, Embd)?;
        match attend_to {
            AttendTo::Cached(caches) => {
                let cache = caches[layer as usize];
                let attend = |workspace| AttentionDecode { qkv, cache, out, workspace };
                f.segment.push_with_workspace(attend)?;
            }
            AttendTo::Whole | AttendTo::Fill(_) => {
                let lse = f.statistic(Activation::Lse, &[f.rows, heads, f.positions])?;
                let dropout = f.dropout(DropoutSite::Attention);
                let attend = |workspace| Attention { qkv, out, lse, heads, dropout, workspace };
                f.segment.push_with_workspace(attend)?;
            }
        }
        if let AttendTo::Fill(caches) = attend_to {
            f.segment.push(CacheStore { qkv, cache: caches[layer as usize] })?;
        }
        f.linear(out, ATTN_C_PROJ, Activation::AttProj)
    }

    /// `c_proj(gelu(c_fc(x)))`.
    fn mlp(&self, f: &mut Forward<'_>, x: TensorId) -> Result<TensorId, PlanError> {
        let fch = f.linear(x, C_FC, Activation::Fch)?;
        let gelu = f.activation(Activation::Gelu, Hidden)?;
        f.segment.push(Gelu { x: fch, out: gelu, kind: self.gelu })?;
        f.linear(gelu, MLP_C_PROJ, Activation::MlpProj)
    }

    /// `x + attn(ln_1(x))`, then `x + mlp(ln_2(x))`. A residual addition and the norm after it are
    /// one op. So a block receives its input already normalised, and ends with the first norm of
    /// the next block.
    fn block(
        &self,
        f: &mut Forward<'_>,
        stream: Stream,
        layer: u32,
        attend_to: AttendTo<'_>,
    ) -> Result<Stream, PlanError> {
        let branch = self.attention(f, stream.normalised, layer, attend_to)?;
        let stream =
            f.join(stream, branch, DropoutSite::AttentionProjection, (NORM_2, Some(layer)))?;
        let branch = self.mlp(f, stream.normalised)?;
        let last = u64::from(layer) + 1 == f.dims().n_layer;
        let next = if last { (NORM_F, None) } else { (NORM_1, Some(layer + 1)) };
        f.join(stream, branch, DropoutSite::MlpProjection, next)
    }
}

impl Network for Gpt2 {
    fn name(&self) -> &'static str {
        "gpt2"
    }

    fn modules(&self) -> Modules {
        Modules {
            before: &[WTE, WPE],
            block: &[LN_1, C_ATTN, ATTN_C_PROJ, LN_2, C_FC, MLP_C_PROJ],
            after: &[LN_F],
        }
    }

    fn size(&self, size: Size, dims: &Dims) -> u64 {
        match size {
            Vocab => dims.vocab_size,
            Block => dims.block_size,
            Embd => dims.n_embd,
            Qkv => 3 * dims.n_embd,
            Hidden => 4 * dims.n_embd,
            Size::Head => dims.head_size(),
        }
    }

    /// Embeddings, all blocks, and the last norm.
    fn forward(
        &self,
        f: &mut Forward<'_>,
        tokens: TensorId,
        attend_to: AttendTo<'_>,
    ) -> Result<TensorId, PlanError> {
        f.set_layer(Some(0));
        let x = f.residual(Activation::X)?;
        f.set_layer(None);
        f.embed(tokens, (WTE, Some(WPE)), x, attend_to)?;
        f.set_layer(Some(0));
        let mut stream = Stream { x, normalised: f.norm(x, None, NORM_1)? };
        for layer in 0..f.dims().n_layer as u32 {
            stream = self.block(f, stream, layer, attend_to)?;
        }
        Ok(stream.normalised)
    }

    fn head(&self) -> Module {
        WTE
    }

    /// A norm's mean and deviation take only 8 bytes per token. While they are kept, the norm's
    /// gradient can make the norm's output again on the way. They are dropped at the levels that
    /// run the norm again anyway.
    fn dropped(&self, level: Level) -> &'static [Activation] {
        use Activation::{
            Att, Fch, Gelu, Ln1, Ln1Mean, Ln1Rstd, Ln2, Ln2Mean, Ln2Rstd, Lse, Qkv, XMid,
        };
        match level {
            Level::R0 => &[],
            Level::R1 => &[Gelu],
            Level::R2 => &[Gelu, Ln1, Ln2],
            Level::R3 => &[Gelu, Ln1, Ln2, Ln2Mean, Ln2Rstd, Fch],
            Level::R3q => &[Gelu, Ln1, Ln2, Ln1Mean, Ln1Rstd, Qkv],
            Level::R4 => &[Gelu, Ln1, Ln2, Ln1Mean, Ln1Rstd, Ln2Mean, Ln2Rstd, Fch, Qkv],
            Level::R5 => &[Gelu, Ln1, Ln2, Ln1Mean, Ln1Rstd, Ln2Mean, Ln2Rstd, Fch, Qkv, XMid],
            Level::R6 => {
                &[Gelu, Ln1, Ln2, Ln1Mean, Ln1Rstd, Ln2Mean, Ln2Rstd, Fch, Qkv, XMid, Att, Lse]
            }
        }
    }
}

const NORM_1: Norm = Norm {
    module: LN_1,
    sum: Activation::X,
    out: Activation::Ln1,
    statistics: [Activation::Ln1Mean, Activation::Ln1Rstd],
    epsilon: NORM_EPSILON,
};
const NORM_2: Norm = Norm {
    module: LN_2,
    sum: Activation::XMid,
    out: Activation::Ln2,
    statistics: [Activation::Ln2Mean, Activation::Ln2Rstd],
    epsilon: NORM_EPSILON,
};
const NORM_F: Norm = Norm {
    module: LN_F,
    sum: Activation::X,
    out: Activation::LnF,
    statistics: [Activation::LnFMean, Activation::LnFRstd],
    epsilon: NORM_EPSILON,
};

impl From<Gpt2> for Architecture {
    fn from(gpt2: Gpt2) -> Architecture {
        Architecture::Gpt2(gpt2)
    }
}

/// All parameters, in the order of nanoGPT's `named_parameters()`.
pub fn parameters(dims: &Dims) -> Result<Vec<Param>, PlanError> {
    params::parameters(&Gpt2 { gelu: GeluKind::Erf }, dims)
}

/// Number of parameters as nanoGPT reports it: without the position embedding.
pub fn reported_parameters(dims: &Dims) -> Result<u64, PlanError> {
    let counted = |param: &&Param| param.module.kind != ModuleKind::PositionEmbedding;
    let all = parameters(dims)?;
    Ok(all.iter().filter(counted).map(|p| p.shape.elements()).fold(0, u64::saturating_add))
}

/// Floating-point operations per token of training in a context of `positions`, as nanoGPT counts
/// them for its MFU: six for each parameter, and attention without the causal mask.
pub fn training_flops_per_token(dims: &Dims, positions: u64) -> Result<f64, PlanError> {
    let attention = 12.0 * dims.n_layer as f64 * dims.n_embd as f64 * positions as f64;
    Ok(6.0 * reported_parameters(dims)? as f64 + attention)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(n_layer: u64, n_head: u64, n_embd: u64, bias: bool) -> Dims {
        Dims { n_layer, n_head, n_embd, block_size: 1024, vocab_size: 50304, bias }
    }

    #[test]
    fn counts_are_those_nanogpt_prints() {
        // (dims, reported, decayed tensors and elements, other tensors and elements)
        let gpt2 = dims(12, 12, 768, false);
        assert_eq!(reported_parameters(&gpt2).unwrap(), 123_587_328);
        let params = parameters(&gpt2).unwrap();
        let count = |decays: bool| {
            let group: Vec<_> = params.iter().filter(|p| p.decays() == decays).collect();
            (group.len(), group.iter().map(|p| p.shape.elements()).sum::<u64>())
        };
        assert_eq!(count(true), (50, 124_354_560));
        assert_eq!(count(false), (25, 19_200));
        let rounded = |d: &Dims| (reported_parameters(d).unwrap() as f64 / 1e5).round() / 10.0;
        assert_eq!(rounded(&dims(12, 12, 576, false)), 76.8);
        assert_eq!(parameters(&dims(2, 2, 10, true)).unwrap().len(), 2 + 24 + 2);
    }
}
