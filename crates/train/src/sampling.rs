//! From logits to a token: temperature, top-k, top-p, one random draw. A pure function of its
//! arguments.

use rng::Stream;

/// nanoGPT's two sampling parameters, and top-p.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DrawOptions {
    /// Divides the logits; 0 takes the most likely token, of equals the one with the lowest id.
    pub temperature: f64,
    /// Only this many of the most likely tokens can be drawn; 0 = all.
    pub top_k: usize,
    /// Then only the fewest of them whose probabilities have at least this sum; 1 = all.
    pub top_p: f64,
}

/// Draws a token. `scratch` is a buffer that callers reuse.
pub fn draw(
    logits: &[f32],
    options: DrawOptions,
    stream: &mut Stream,
    scratch: &mut Vec<f32>,
) -> usize {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if options.temperature == 0.0 {
        return logits.iter().position(|&logit| logit == max).unwrap_or(0);
    }
    scratch.clear();
    scratch.extend_from_slice(logits);
    let floor = threshold(scratch, options.top_k);
    let weight = |logit: f32| {
        let scaled = f64::from(logit - max) / options.temperature;
        if logit < floor { 0.0 } else { scaled.exp() }
    };
    let weights = logits.iter().map(|&logit| weight(logit)).enumerate();
    if options.top_p < 1.0 {
        return pick(&nucleus(weights.collect(), options.top_p), stream);
    }
    pick_from(weights.clone().map(|(_, weight)| weight).sum(), weights, stream)
}

/// The fewest tokens whose weights have at least this share of the sum, by id. Of equal weights the
/// lower id comes first.
fn nucleus(mut weights: Vec<(usize, f64)>, top_p: f64) -> Vec<(usize, f64)> {
    weights.retain(|(_, weight)| *weight > 0.0);
    let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
    weights.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let mut before = 0.0;
    weights.retain(|(_, weight)| {
        let kept = before < top_p * total;
        before += weight;
        kept
    });
    weights.sort_by_key(|(token, _)| *token);
    weights
}

fn pick(weights: &[(usize, f64)], stream: &mut Stream) -> usize {
    let total = weights.iter().map(|(_, weight)| weight).sum();
    pick_from(total, weights.iter().copied(), stream)
}

/// Draws a token in proportion to its weight.
fn pick_from(
    total: f64,
    weights: impl Iterator<Item = (usize, f64)>,
    stream: &mut Stream,
) -> usize {
    let mut rest = total * stream.uniform_f64();
    let mut last = 0;
    for (token, weight) in weights {
        if weight > 0.0 {
            last = token;
            if rest < weight {
                return token;
            }
            rest -= weight;
        }
    }
    last
}

/// The k-th largest value. As in nanoGPT, values equal to it stay. Reorders `values`.
fn threshold(values: &mut [f32], top_k: usize) -> f32 {
    if top_k == 0 || top_k >= values.len() {
        return f32::NEG_INFINITY;
    }
    let (_, kth, _) = values.select_nth_unstable_by(top_k - 1, |a, b| b.total_cmp(a));
    *kth
}

#[cfg(test)]
mod tests {
    use super::*;
    use rng::Purpose;

    fn count(logits: &[f32], options: DrawOptions, draws: u64) -> Vec<u64> {
        let mut counts = vec![0; logits.len()];
        let mut stream = Stream::new(1, Purpose::Sample, 0);
        let mut scratch = Vec::new();
        for _ in 0..draws {
            counts[draw(logits, options, &mut stream, &mut scratch)] += 1;
        }
        counts
    }

    #[test]
    fn frequencies_follow_the_softmax() {
        let logits = [0.0, 2f32.ln(), 5f32.ln(), f32::NEG_INFINITY];
        let counts = count(&logits, DrawOptions { temperature: 1.0, top_k: 0, top_p: 1.0 }, 80_000);
        for (count, want) in counts.iter().zip([10_000.0, 20_000.0, 50_000.0, 0.0]) {
            assert!((*count as f64 - want).abs() <= 600.0, "{counts:?}");
        }
    }

    #[test]
    fn top_k_and_temperature() {
        let logits = [1.0, 3.0, 2.0, 0.0];
        let two = count(&logits, DrawOptions { temperature: 1.0, top_k: 2, top_p: 1.0 }, 1000);
        assert!(two[0] == 0 && two[3] == 0 && two[1] > two[2] && two[2] > 0, "{two:?}");
        let cold = count(&logits, DrawOptions { temperature: 0.01, top_k: 0, top_p: 1.0 }, 1000);
        assert_eq!(cold, [0, 1000, 0, 0]);
        let all = count(&logits, DrawOptions { temperature: 1.0, top_k: 9, top_p: 1.0 }, 1000);
        assert!(all.iter().all(|&n| n > 0), "{all:?}");
    }

    /// The tokens that transformers' `TopPLogitsWarper` keeps.
    #[test]
    fn top_p_keeps_the_fewest_tokens_that_reach_it() {
        let logits = [0.1f32.ln(), 0.4f32.ln(), 0.2f32.ln(), 0.3f32.ln()];
        for (top_p, top_k, want) in [
            (0.05, 0, &[1][..]),
            (0.39, 0, &[1]),
            (0.41, 0, &[1, 3]),
            (0.85, 0, &[1, 2, 3]),
            (0.95, 0, &[0, 1, 2, 3]),
            // After top-k the shares are 4/9, 3/9 and 2/9.
            (0.7, 3, &[1, 3]),
            (0.8, 3, &[1, 2, 3]),
        ] {
            let counts = count(&logits, DrawOptions { temperature: 1.0, top_k, top_p }, 2000);
            let drawn: Vec<usize> = (0..4).filter(|&token| counts[token] > 0).collect();
            assert_eq!(drawn, want, "top_p {top_p}, top_k {top_k}: {counts:?}");
        }
        // A higher temperature flattens first.
        let warm = DrawOptions { temperature: 1e9, top_k: 0, top_p: 0.6 };
        assert_eq!(count(&logits, warm, 2000).iter().filter(|&&n| n > 0).count(), 3);
    }

    #[test]
    fn at_temperature_0_the_first_of_the_most_likely_is_taken() {
        let greedy = DrawOptions { temperature: 0.0, top_k: 1, top_p: 0.5 };
        assert_eq!(count(&[1.0, 3.0, 3.0, f32::NEG_INFINITY], greedy, 5), [0, 5, 0, 0]);
        assert_eq!(count(&[f32::NAN, -1.0], greedy, 1), [0, 1]);
        assert_eq!(count(&[f32::NAN, f32::NAN], greedy, 1), [1, 0]);
    }
}
