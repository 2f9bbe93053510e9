//! The activations of a block, by type. Levels of recompute choose among them; their names are for
//! listings.

use plan::TensorId;
use std::collections::BTreeMap;

/// What a forward pass makes on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activation {
    /// The residual stream that enters a block, or leaves the last one.
    X,
    /// The first norm's output.
    Ln1,
    /// Its mean of each token.
    Ln1Mean,
    /// Its reciprocal deviation of each token.
    Ln1Rstd,
    /// Query, key and value side by side.
    Qkv,
    /// Attention's output.
    Att,
    /// Logarithm of the sum of attention's exponentials.
    Lse,
    /// Attention's output, projected.
    AttProj,
    /// The residual stream between attention and MLP.
    XMid,
    /// The second norm's output.
    Ln2,
    /// Its mean of each token.
    Ln2Mean,
    /// Its reciprocal deviation of each token.
    Ln2Rstd,
    /// The MLP's hidden layer before the nonlinearity.
    Fch,
    /// The hidden layer after it.
    Gelu,
    /// The MLP's output.
    MlpProj,
    /// The last norm's output.
    LnF,
    /// Its mean of each token.
    LnFMean,
    /// Its reciprocal deviation of each token.
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
