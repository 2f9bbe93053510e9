//! From logits to a token: temperature, top-k, one random draw. A pure function of its arguments.

use rng::Stream;

/// nanoGPT's two sampling parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DrawOptions {
    /// Divides the logits; above 0.
    pub temperature: f64,
    /// Only this many of the most likely tokens can be drawn; 0 = all.
    pub top_k: usize,
}

/// Draws a token. `scratch` is a buffer that callers reuse.
pub fn draw(
    logits: &[f32],
    options: DrawOptions,
    stream: &mut Stream,
    scratch: &mut Vec<f32>,
) -> usize {
    scratch.clear();
    scratch.extend_from_slice(logits);
    let floor = threshold(scratch, options.top_k);
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |logit: f32| {
        let scaled = f64::from(logit - max) / options.temperature;
        if logit < floor { 0.0 } else { scaled.exp() }
    };
    let total: f64 = logits.iter().map(|&logit| weight(logit)).sum();
    let mut rest = total * stream.uniform_f64();
    let mut last = 0;
    for (token, &logit) in logits.iter().enumerate() {
        let weight = weight(logit);
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
        let counts = count(&logits, DrawOptions { temperature: 1.0, top_k: 0 }, 80_000);
        for (count, want) in counts.iter().zip([10_000.0, 20_000.0, 50_000.0, 0.0]) {
            assert!((*count as f64 - want).abs() <= 600.0, "{counts:?}");
        }
    }

    #[test]
    fn top_k_and_temperature() {
        let logits = [1.0, 3.0, 2.0, 0.0];
        let two = count(&logits, DrawOptions { temperature: 1.0, top_k: 2 }, 1000);
        assert!(two[0] == 0 && two[3] == 0 && two[1] > two[2] && two[2] > 0, "{two:?}");
        let cold = count(&logits, DrawOptions { temperature: 0.01, top_k: 0 }, 1000);
        assert_eq!(cold, [0, 1000, 0, 0]);
        let all = count(&logits, DrawOptions { temperature: 1.0, top_k: 9 }, 1000);
        assert!(all.iter().all(|&n| n > 0), "{all:?}");
    }
}
