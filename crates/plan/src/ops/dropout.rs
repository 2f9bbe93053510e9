//! Dropout as an attribute of the ops that apply it. Masks are never stored: each is a function of
//! (seed, iteration, layer, site, global row, column), so backward draws the same mask again and
//! no slicing can change it.

/// nanoGPT's places of dropout; embedding, attention matrix, and the two branches.
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

/// A dropout of a given strength at a given place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Probability of zeroing an element, in `[0, 1)`.
    pub probability: f32,
    /// The layer, 0 for the embedding.
    pub layer: u32,
    /// The place.
    pub site: DropoutSite,
}

impl Dropout {
    /// What kept elements are multiplied by.
    pub fn keep_scale(&self) -> f32 {
        1.0 / (1.0 - self.probability)
    }

    /// The word for listings, if there is a dropout at all.
    pub(super) fn word(dropout: Option<&Dropout>) -> Option<String> {
        let Dropout { probability, layer, site } = dropout?;
        Some(format!("dropout={probability}@{layer}.{}", site.name()))
    }

    /// Whether the probability is one that keeps something.
    pub(super) fn is_valid(&self) -> bool {
        (0.0..1.0).contains(&self.probability)
    }
}
