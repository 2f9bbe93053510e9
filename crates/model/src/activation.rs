//! The activations of a block, as a type. Levels of recompute choose among them; their names appear
//! in listings.

use plan::TensorId;
use std::collections::BTreeMap;

/// A tensor that the forward pass makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activation {
    /// The residual stream that enters a block, or leaves the last one.
    X,
    /// The first norm's output.
    Ln1,
    /// The first norm's mean of each token.
    Ln1Mean,
    /// The first norm's reciprocal standard deviation of each token.
    Ln1Rstd,
    /// Query, key and value, concatenated.
    Qkv,
    /// Attention's output.
    Att,
    /// Log-sum-exp of attention's scores.
    Lse,
    /// Attention's output after its projection.
    AttProj,
    /// The residual stream between attention and MLP.
    XMid,
    /// The second norm's output.
    Ln2,
    /// The second norm's mean of each token.
    Ln2Mean,
    /// The second norm's reciprocal standard deviation of each token.
    Ln2Rstd,
    /// The MLP's hidden layer before the nonlinearity.
    Fch,
    /// The hidden layer after it.
    Gelu,
    /// The MLP's output.
    MlpProj,
    /// The last norm's output.
    LnF,
    /// The last norm's mean of each token.
    LnFMean,
    /// The last norm's reciprocal standard deviation of each token.
    LnFRstd,
}

/// Which activation a tensor is.
pub(crate) type Activations = BTreeMap<TensorId, Activation>;

impl Activation {
    /// The name in listings, without the layer.
    pub const fn name(self) -> &'static str {
        match self {
            Activation::X => "x",
            Activation::Ln1 => "ln_1",
            Activation::Ln1Mean => "ln_1_mean",
            Activation::Ln1Rstd => "ln_1_rstd",
            Activation::Qkv => "qkv",
            Activation::Att => "att",
            Activation::Lse => "lse",
            Activation::AttProj => "att_proj",
            Activation::XMid => "x_mid",
            Activation::Ln2 => "ln_2",
            Activation::Ln2Mean => "ln_2_mean",
            Activation::Ln2Rstd => "ln_2_rstd",
            Activation::Fch => "fch",
            Activation::Gelu => "gelu",
            Activation::MlpProj => "mlp_proj",
            Activation::LnF => "ln_f",
            Activation::LnFMean => "ln_f_mean",
            Activation::LnFRstd => "ln_f_rstd",
        }
    }
}
