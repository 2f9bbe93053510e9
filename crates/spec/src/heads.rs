//! Finds valid models near one whose width is not a multiple of its number of heads.

use crate::error::SpecError;
use model::{Architecture, Dims, DimsError};

/// A width with a number of heads that divides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Width.
    pub n_embd: u64,
    /// Heads.
    pub n_head: u64,
    /// Parameters of the model, as nanoGPT counts them.
    pub parameters: u64,
}

impl Pair {
    /// Parameters in millions, or thousands of a tiny model.
    pub fn size(&self) -> String {
        if self.parameters < 100_000 {
            return format!("{:.1}K", self.parameters as f64 / 1e3);
        }
        format!("{:.1}M", self.parameters as f64 / 1e6)
    }
}

/// Checks the sizes. If the heads do not divide the width, the error lists the nearest valid pairs.
pub fn checked(dims: Dims, architecture: &Architecture) -> Result<Dims, SpecError> {
    match dims.checked() {
        Err(DimsError::Heads { n_embd, n_head }) => {
            Err(SpecError::Heads { n_embd, n_head, nearest: nearest(&dims, architecture) })
        }
        other => other.map_err(SpecError::Dims),
    }
}

/// First the same width with another number of heads, then the same heads with a nearby width.
fn nearest(dims: &Dims, architecture: &Architecture) -> Vec<Pair> {
    let mut pairs = vec![(dims.n_embd, near_heads(dims.n_embd, dims.n_head))];
    pairs.extend(near_widths(dims.n_embd, dims.n_head).map(|width| (width, dims.n_head)));
    let count = |(n_embd, n_head)| {
        let dims = Dims { n_embd, n_head, ..*dims }.checked().ok()?;
        let parameters = architecture.reported_parameters(&dims).ok()?;
        Some(Pair { n_embd, n_head, parameters })
    };
    pairs.into_iter().filter_map(count).collect()
}

/// Width of a head in every GPT-2.
const GPT2_HEAD: u64 = 64;

/// Heads of GPT-2's size if their number changes by at most a factor of two, else the nearest
/// divisor of the width.
fn near_heads(n_embd: u64, n_head: u64) -> u64 {
    let usual = n_embd / GPT2_HEAD;
    if n_embd.is_multiple_of(GPT2_HEAD) && usual * 2 >= n_head && usual <= n_head * 2 {
        return usual;
    }
    let small = (1..).take_while(|divisor| divisor * divisor <= n_embd);
    let divisors = small.filter(|divisor| n_embd.is_multiple_of(*divisor));
    let both = divisors.flat_map(|divisor| [divisor, n_embd / divisor]);
    both.min_by_key(|&divisor| (divisor.abs_diff(n_head), divisor)).unwrap_or(1)
}

/// The widths next to `n_embd`, nearest first, whose head size is a multiple of 16 (the depth of a
/// tensor core's matmul), or of a smaller power of two in a narrow model.
fn near_widths(n_embd: u64, n_head: u64) -> impl Iterator<Item = u64> {
    let unit = [16, 8, 4, 2].into_iter().find(|unit| unit * n_head <= n_embd).unwrap_or(1);
    let step = unit * n_head;
    let below = n_embd / step * step;
    let mut widths = [below, below + step];
    widths.sort_by_key(|width| width.abs_diff(n_embd));
    widths.into_iter().filter(|&width| width > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Gpt2;
    use plan::ops::GeluKind;

    fn message(n_embd: u64, n_head: u64) -> String {
        let (block_size, vocab_size, bias) = (1024, 50304, false);
        let dims = Dims { n_layer: 12, n_head, n_embd, block_size, vocab_size, bias };
        checked(dims, &Gpt2 { gelu: GeluKind::Erf }.into()).unwrap_err().to_string()
    }

    #[test]
    fn the_nearest_pairs_are_real_and_counted() {
        for (n_embd, n_head, want) in [
            (
                512,
                12,
                "n_embd=512 cannot be divided by n_head=12; these work: n_head=8 (63.5M \
                 parameters), n_embd=576 (76.8M), n_embd=384 (40.6M)",
            ),
            (
                448,
                12,
                "n_embd=448 cannot be divided by n_head=12; these work: n_head=7 (51.4M \
                 parameters), n_embd=384 (40.6M), n_embd=576 (76.8M)",
            ),
            (
                128,
                6,
                "n_embd=128 cannot be divided by n_head=6; these work: n_head=4 (8.8M \
                 parameters), n_embd=96 (6.2M), n_embd=192 (15.0M)",
            ),
            (
                5,
                12,
                "n_embd=5 cannot be divided by n_head=12; these work: n_head=5 (0.3M \
                 parameters), n_embd=12 (0.6M)",
            ),
        ] {
            assert_eq!(message(n_embd, n_head), want);
        }
        assert!(message(2_147_483_647, 2).contains("n_head=1 "));
        assert!(message(2_147_483_646, 2_147_483_645).contains("n_head=2147483646 "));
    }
}
