//! The 5-gram: right on sources whose entropy is known, sane at the edges.

use fitgpt_data::Ngram;
use rng::{Purpose, Stream};

fn draws(count: usize, index: u64) -> Vec<u16> {
    let mut stream = Stream::new(5, Purpose::Sample, index);
    (0..count).map(|_| stream.below(8) as u16).collect()
}

/// Eight symbols, equally likely: ln 8, and a little for what 5-grams believe to have seen.
#[test]
fn noise_costs_its_entropy() {
    let loss = Ngram::train(&draws(1_000_000, 0), 8).loss(&draws(100_000, 1));
    assert!((8_f64.ln()..8_f64.ln() * 1.01).contains(&loss), "{loss}");
}

/// Each symbol is the sum of the two before it: nothing is left to chance.
#[test]
fn a_rule_inside_the_window_is_free() {
    let rule = |seed: u16| {
        let mut tokens = vec![seed, 1];
        for i in 2..20_000 {
            tokens.push((tokens[i - 1] + tokens[i - 2] + u16::from(i % 977 == 0)) % 7);
        }
        tokens
    };
    let loss = Ngram::train(&rule(3), 7).loss(&rule(5));
    assert!(loss < 0.02, "{loss}");
}

/// p sums to 1 after any context, seen or not: the mean of exp(-loss) over all continuations.
#[test]
fn probabilities_sum_to_one() {
    let mut text = draws(300, 2);
    text.iter_mut().step_by(3).for_each(|t| *t %= 3);
    let ngram = Ngram::train(&text, 9);
    for context in [[0, 1, 2, 3], [8, 8, 8, 8], [text[7], text[8], text[9], text[10]]] {
        let before = ngram.loss(&context) * 4.0;
        let sum: f64 = (0..9)
            .map(|next| {
                let mut all = context.to_vec();
                all.push(next);
                (before - ngram.loss(&all) * 5.0).exp()
            })
            .sum();
        assert!((sum - 1.0).abs() < 1e-9, "{context:?}: {sum}");
    }
}

#[test]
fn edges() {
    let untrained = Ngram::train(&[], 4);
    assert!((untrained.loss(&[0, 1, 2, 3, 0, 1]) - 4_f64.ln()).abs() < 1e-12);
    assert_eq!(untrained.loss(&[]), 0.0);
    for tokens in [vec![0], vec![1, 2, 3], vec![9, 60_000, 3, 3, 3, 3, 3]] {
        assert!(Ngram::train(&tokens, 4).loss(&[0, 1, 60_000, 3, 3]).is_finite());
    }
}
