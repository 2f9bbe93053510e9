//! Dropout as an attribute of the ops that apply it. Masks are never stored. Each is a function of
//! (seed, iteration, layer, site, global row, column), so the backward draws the same mask again,
//! and cutting a batch into slices does not change it.

/// Where nanoGPT applies dropout: the embedding, the attention matrix, and both branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropoutSite {
    /// After token plus position embedding.
    Embedding,
    /// On the attention probabilities.
    Attention,
    /// On the attention branch before it joins the residual stream.
    AttentionProjection,
    /// On the MLP branch before it joins the residual stream.
    MlpProjection,
}

impl DropoutSite {
    /// The name in listings.
    pub const fn name(self) -> &'static str {
        match self {
            DropoutSite::Embedding => "embedding",
            DropoutSite::Attention => "attention",
            DropoutSite::AttentionProjection => "attention_projection",
            DropoutSite::MlpProjection => "mlp_projection",
        }
    }
}

/// Dropout with a given probability at a given site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Probability of zeroing an element, in `[0, 1)`.
    pub probability: f32,
    /// The layer; 0 for the embedding.
    pub layer: u32,
    /// The place.
    pub site: DropoutSite,
}

impl Dropout {
    /// The factor on the elements that are kept.
    pub fn keep_scale(&self) -> f32 {
        1.0 / (1.0 - self.probability)
    }

    /// The attribute in listings, if there is dropout at all.
    pub(super) fn word(dropout: Option<&Dropout>) -> Option<String> {
        let Dropout { probability, layer, site } = dropout?;
        Some(format!("dropout={probability}@{layer}.{}", site.name()))
    }

    /// Whether the probability is below 1, so that something is kept.
    pub(super) fn is_valid(&self) -> bool {
        (0.0..1.0).contains(&self.probability)
    }
}
