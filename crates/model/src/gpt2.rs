//! GPT-2, to be read next to nanoGPT's `model.py`: the modules, attention, the MLP, a block, the
//! whole forward pass. Each line adds tensors and steps to a segment, and the backward is derived
//! from these. At the end: the numbers that nanoGPT reports, what each level of recompute drops,
//! and the names of the activations.

use crate::activation::Activation;
use crate::architecture::{Architecture, Network};
use crate::dims::{Dims, NORM_EPSILON};
use crate::forward::{AttendTo, Forward, Norm, Stream};
use crate::init;
use crate::levels::Level;
use crate::params::{Init, Module, ModuleKind, Modules, Param};
use plan::ops::{Attention, AttentionDecode, CacheStore, DropoutSite, Gelu, GeluKind};
use plan::{PlanError, TensorId};
use rng::torch::Generator;

/// The attributes that only GPT-2 has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpt2 {
    /// Exact for nanoGPT's models, tanh for OpenAI's.
    pub gelu: GeluKind,
}

// The names are Hugging Face's; nanoGPT puts `transformer.` before them. The head is tied to `wte`.
const WTE: Module = Module::token_embedding("wte");
const WPE: Module = Module::position_embedding("wpe");
const LN_1: Module = Module::layer_norm("ln_1");
const C_ATTN: Module = Module::linear("attn.c_attn", Init::Normal);
const ATTN_C_PROJ: Module = Module::linear("attn.c_proj", Init::Residual);
const LN_2: Module = Module::layer_norm("ln_2");
const C_FC: Module = Module::linear("mlp.c_fc", Init::Normal);
const MLP_C_PROJ: Module = Module::linear("mlp.c_proj", Init::Residual);
const LN_F: Module = Module::layer_norm("ln_f");

impl Gpt2 {
    /// `c_proj(attention(c_attn(x)))`.
    fn attention(
        &self,
        f: &mut Forward<'_>,
        x: TensorId,
        layer: u32,
        attend_to: AttendTo<'_>,
    ) -> Result<TensorId, PlanError> {
        let Dims { n_head: heads, n_embd, .. } = f.dims();
        let qkv = f.linear(x, C_ATTN, act::QKV)?;
        let out = f.activation(act::ATT, n_embd)?;
        match attend_to {
            AttendTo::Cached(caches) => {
                let cache = caches[layer as usize];
                let attend = |workspace| AttentionDecode { qkv, cache, out, workspace };
                f.segment.push_with_workspace(attend)?;
            }
            AttendTo::Whole | AttendTo::Fill(_) => {
                let lse = f.statistic(act::LSE, &[f.rows, heads, f.positions])?;
                let dropout = f.dropout(DropoutSite::Attention);
                let attend = |workspace| Attention { qkv, out, lse, heads, dropout, workspace };
                f.segment.push_with_workspace(attend)?;
            }
        }
        if let AttendTo::Fill(caches) = attend_to {
            f.segment.push(CacheStore { qkv, cache: caches[layer as usize] })?;
        }
        f.linear(out, ATTN_C_PROJ, act::ATT_PROJ)
    }

    /// `c_proj(gelu(c_fc(x)))`.
    fn mlp(&self, f: &mut Forward<'_>, x: TensorId) -> Result<TensorId, PlanError> {
        let fch = f.linear(x, C_FC, act::FCH)?;
        let gelu = f.activation(act::GELU, f.width(fch))?;
        f.segment.push(Gelu { x: fch, out: gelu, kind: self.gelu })?;
        f.linear(gelu, MLP_C_PROJ, act::MLP_PROJ)
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

    fn modules(&self, dims: &Dims) -> Modules {
        let Dims { n_embd: c, block_size: t, vocab_size: v, bias, .. } = *dims;
        Modules {
            before: vec![WTE.sized(&[v, c]), WPE.sized(&[t, c])],
            block: vec![
                LN_1.sized(&[c]).with_bias(bias),
                C_ATTN.sized(&[3 * c, c]).with_bias(bias),
                ATTN_C_PROJ.sized(&[c, c]).with_bias(bias),
                LN_2.sized(&[c]).with_bias(bias),
                C_FC.sized(&[4 * c, c]).with_bias(bias),
                MLP_C_PROJ.sized(&[c, 4 * c]).with_bias(bias),
            ],
            after: vec![LN_F.sized(&[c]).with_bias(bias)],
        }
    }

    fn initialise(
        &self,
        dims: &Dims,
        params: &[Param],
        generator: &mut Generator,
        put: &mut dyn FnMut(usize, u64, &[f32]),
    ) {
        init::nanogpt(dims, params, generator, put);
    }

    /// Embeddings, all blocks, and the last norm.
    fn forward(
        &self,
        f: &mut Forward<'_>,
        tokens: TensorId,
        attend_to: AttendTo<'_>,
    ) -> Result<TensorId, PlanError> {
        f.set_layer(Some(0));
        let x = f.residual(act::X, f.dims().n_embd)?;
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

    fn cache(&self, dims: &Dims, rows: u64) -> [u64; 5] {
        [2, rows, dims.n_head, dims.block_size, dims.head_size()]
    }

    /// nanoGPT leaves out the position embedding.
    fn is_reported(&self, module: Module) -> bool {
        module.kind != ModuleKind::PositionEmbedding
    }

    /// As nanoGPT counts them for its MFU: without the causal mask.
    fn attention_flops(&self, dims: &Dims, positions: u64) -> f64 {
        12.0 * dims.n_layer as f64 * dims.n_embd as f64 * positions as f64
    }

    /// A norm's mean and deviation take only 8 bytes per token. While they are kept, the norm's
    /// backward can also recompute the norm's output. They are dropped at the levels that run the
    /// norm again anyway.
    fn dropped(&self, level: Level) -> &'static [Activation] {
        use act::{
            ATT, FCH, GELU, LN_1, LN_1_MEAN, LN_1_RSTD, LN_2, LN_2_MEAN, LN_2_RSTD, LSE, QKV, X_MID,
        };
        match level {
            Level::R0 => &[],
            Level::R1 => &[GELU],
            Level::R2 | Level::R2h => &[GELU, LN_1, LN_2],
            Level::R3 => &[GELU, LN_1, LN_2, LN_2_MEAN, LN_2_RSTD, FCH],
            Level::R3q => &[GELU, LN_1, LN_2, LN_1_MEAN, LN_1_RSTD, QKV],
            Level::R4 => &[GELU, LN_1, LN_2, LN_1_MEAN, LN_1_RSTD, LN_2_MEAN, LN_2_RSTD, FCH, QKV],
            Level::R5 => {
                &[GELU, LN_1, LN_2, LN_1_MEAN, LN_1_RSTD, LN_2_MEAN, LN_2_RSTD, FCH, QKV, X_MID]
            }
            Level::R6 => &[
                GELU, LN_1, LN_2, LN_1_MEAN, LN_1_RSTD, LN_2_MEAN, LN_2_RSTD, FCH, QKV, X_MID, ATT,
                LSE,
            ],
        }
    }

    fn offloaded(&self, level: Level) -> &'static [Activation] {
        match level {
            Level::R2h => &[act::QKV, act::FCH],
            _ => &[],
        }
    }
}

const NORM_1: Norm = norm(LN_1, act::X, act::LN_1, [act::LN_1_MEAN, act::LN_1_RSTD]);
const NORM_2: Norm = norm(LN_2, act::X_MID, act::LN_2, [act::LN_2_MEAN, act::LN_2_RSTD]);
const NORM_F: Norm = norm(LN_F, act::X, act::LN_F, [act::LN_F_MEAN, act::LN_F_RSTD]);

/// All norms of the model have the same epsilon.
const fn norm(
    module: Module,
    sum: Activation,
    out: Activation,
    statistics: [Activation; 2],
) -> Norm {
    Norm { module, sum, out, statistics, epsilon: NORM_EPSILON }
}

/// GPT-2's activations.
mod act {
    use crate::activation::Activation;

    /// The residual stream that enters a block, or leaves the last one.
    pub const X: Activation = Activation::named("x");
    /// The first norm's output.
    pub const LN_1: Activation = Activation::named("ln_1");
    /// The first norm's mean of each token.
    pub const LN_1_MEAN: Activation = Activation::named("ln_1_mean");
    /// The first norm's reciprocal standard deviation of each token.
    pub const LN_1_RSTD: Activation = Activation::named("ln_1_rstd");
    /// Query, key and value, concatenated.
    pub const QKV: Activation = Activation::named("qkv");
    /// Attention's output.
    pub const ATT: Activation = Activation::named("att");
    /// Log-sum-exp of attention's scores.
    pub const LSE: Activation = Activation::named("lse");
    /// Attention's output after its projection.
    pub const ATT_PROJ: Activation = Activation::named("att_proj");
    /// The residual stream between attention and MLP.
    pub const X_MID: Activation = Activation::named("x_mid");
    /// The second norm's output.
    pub const LN_2: Activation = Activation::named("ln_2");
    /// The second norm's mean of each token.
    pub const LN_2_MEAN: Activation = Activation::named("ln_2_mean");
    /// The second norm's reciprocal standard deviation of each token.
    pub const LN_2_RSTD: Activation = Activation::named("ln_2_rstd");
    /// The MLP's hidden layer before the nonlinearity.
    pub const FCH: Activation = Activation::named("fch");
    /// The hidden layer after it.
    pub const GELU: Activation = Activation::named("gelu");
    /// The MLP's output.
    pub const MLP_PROJ: Activation = Activation::named("mlp_proj");
    /// The last norm's output.
    pub const LN_F: Activation = Activation::named("ln_f");
    /// The last norm's mean of each token.
    pub const LN_F_MEAN: Activation = Activation::named("ln_f_mean");
    /// The last norm's reciprocal standard deviation of each token.
    pub const LN_F_RSTD: Activation = Activation::named("ln_f_rstd");
}

impl From<Gpt2> for Architecture {
    fn from(gpt2: Gpt2) -> Architecture {
        Architecture::Gpt2(gpt2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(n_layer: u64, n_head: u64, n_embd: u64, bias: bool) -> Dims {
        Dims { n_layer, n_head, n_embd, block_size: 1024, vocab_size: 50304, bias }
    }

    const GPT2: Architecture = Architecture::Gpt2(Gpt2 { gelu: GeluKind::Erf });

    #[test]
    fn counts_are_those_nanogpt_prints() {
        // (dims, reported, decayed tensors and elements, other tensors and elements)
        let gpt2 = dims(12, 12, 768, false);
        assert_eq!(GPT2.reported_parameters(&gpt2).unwrap(), 123_587_328);
        let params = GPT2.parameters(&gpt2).unwrap();
        let count = |decays: bool| {
            let group: Vec<_> = params.iter().filter(|p| p.decays() == decays).collect();
            (group.len(), group.iter().map(|p| p.shape.elements()).sum::<u64>())
        };
        assert_eq!(count(true), (50, 124_354_560));
        assert_eq!(count(false), (25, 19_200));
        let rounded = |d: &Dims| (GPT2.reported_parameters(d).unwrap() as f64 / 1e5).round() / 10.0;
        assert_eq!(rounded(&dims(12, 12, 576, false)), 76.8);
        assert_eq!(GPT2.parameters(&dims(2, 2, 10, true)).unwrap().len(), 2 + 24 + 2);
    }
}
