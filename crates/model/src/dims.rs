//! The sizes of a GPT-2. They are checked once, so that every other module may rely on them.

use plan::ops::LayerNorm;
use plan::report::Implied;

/// The model arguments of nanoGPT's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dims {
    /// Transformer blocks.
    pub n_layer: u64,
    /// Attention heads; divides `n_embd`.
    pub n_head: u64,
    /// Width of the residual stream.
    pub n_embd: u64,
    /// Longest context.
    pub block_size: u64,
    /// Rows of the token embedding.
    pub vocab_size: u64,
    /// Whether linear layers and layer norms have a bias.
    pub bias: bool,
}

/// Why sizes do not describe a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DimsError {
    /// A size is zero.
    #[error("{key}=0: it must be at least 1")]
    Zero {
        /// Its key.
        key: &'static str,
    },
    /// A size is larger than ids and positions can be.
    #[error("{key}={given}: the largest possible is {limit}")]
    TooLarge {
        /// Its key.
        key: &'static str,
        /// What was given.
        given: u64,
        /// The largest accepted.
        limit: u64,
    },
    /// The width cannot be split into the heads.
    #[error("n_embd={n_embd} cannot be divided by n_head={n_head}")]
    Heads {
        /// Width.
        n_embd: u64,
        /// Heads.
        n_head: u64,
    },
}

/// Limit of every size, far above any model. The product of two sizes fits in 64 bits. Tensors
/// check larger products.
const LIMIT: u64 = 1 << 31;
const MAX_LAYERS: u64 = 10_000;

/// The most layers of a run: no GPT is deeper, and planning thousands of them would take minutes.
pub const MOST_LAYERS: u64 = 512;

impl Dims {
    /// The same sizes, or an error if they do not describe a model.
    pub fn checked(self) -> Result<Dims, DimsError> {
        let sizes = [
            ("n_layer", self.n_layer, MAX_LAYERS),
            ("n_head", self.n_head, LIMIT),
            ("n_embd", self.n_embd, LIMIT),
            ("block_size", self.block_size, LIMIT),
            ("vocab_size", self.vocab_size, LIMIT),
        ];
        for (key, given, limit) in sizes {
            if given == 0 {
                return Err(DimsError::Zero { key });
            }
            if given > limit {
                return Err(DimsError::TooLarge { key, given, limit });
            }
        }
        if !self.n_embd.is_multiple_of(self.n_head) {
            return Err(DimsError::Heads { n_embd: self.n_embd, n_head: self.n_head });
        }
        Ok(self)
    }

    /// Width of one attention head.
    pub fn head_size(&self) -> u64 {
        self.n_embd / self.n_head
    }
}

/// Rows of nanoGPT's token embedding when the data set does not name a vocabulary size: GPT-2's
/// 50,257 ids, rounded up to a multiple of 64.
pub const GPT2_ROWS: u64 = 50_304;

/// What every norm adds to the variance, as in PyTorch and nanoGPT.
pub const NORM_EPSILON: f64 = 1e-5;

/// Attributes that ops did not have yet when the first checkpoints were written, with the values
/// that they implied.
pub fn implied_attributes() -> Vec<Implied> {
    vec![LayerNorm::implied_epsilon(NORM_EPSILON)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPT2: Dims = Dims {
        n_layer: 12,
        n_head: 12,
        n_embd: 768,
        block_size: 1024,
        vocab_size: GPT2_ROWS,
        bias: false,
    };

    #[test]
    fn impossible_sizes_are_refused_with_their_numbers() {
        assert_eq!(GPT2.checked(), Ok(GPT2));
        for (dims, want) in [
            (Dims { n_embd: 512, ..GPT2 }, "n_embd=512 cannot be divided by n_head=12"),
            (Dims { n_head: 0, ..GPT2 }, "n_head=0: it must be at least 1"),
            (Dims { n_layer: 10_001, ..GPT2 }, "n_layer=10001: the largest possible is 10000"),
        ] {
            assert_eq!(dims.checked().unwrap_err().to_string(), want);
        }
    }
}
