//! The 5-gram model: correct on sources of known entropy, and at the edge cases.

use fitgpt_data::Ngram;
use rng::{Purpose, Stream};
use std::collections::BTreeMap;

fn draws(count: usize, index: u64) -> Vec<u16> {
    let mut stream = Stream::new(5, Purpose::Sample, index);
    (0..count).map(|_| stream.below(8) as u16).collect()
}

/// Eight equally likely symbols cost ln 8, plus a little because 5-grams overfit the noise.
#[test]
fn noise_costs_its_entropy() {
    let loss = Ngram::train(&draws(1_000_000, 0), 8).loss(&draws(100_000, 1));
    assert!((8_f64.ln()..8_f64.ln() * 1.01).contains(&loss), "{loss}");
}

/// Each symbol is the sum of the two before it, so it is fully predictable.
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

/// The count of each n-gram: occurrences for the longest order; for the shorter ones, the number of
/// different symbols that precede it.
fn counts(text: &[u16], length: usize) -> BTreeMap<Vec<u16>, f64> {
    let mut found = BTreeMap::new();
    if length == 5 {
        text.windows(5).for_each(|gram| *found.entry(gram.to_vec()).or_insert(0.0) += 1.0);
    } else {
        for longer in counts(text, length + 1).keys() {
            *found.entry(longer[1..].to_vec()).or_insert(0.0) += 1.0;
        }
    }
    found
}

/// p(next | context), straight from Chen and Goodman's formula for modified Kneser-Ney.
fn by_the_book(text: &[u16], context: &[u16], next: u16, vocabulary: f64) -> f64 {
    let shorter = match context {
        [] => 1.0 / vocabulary,
        [_, rest @ ..] => by_the_book(text, rest, next, vocabulary),
    };
    let counts = counts(text, context.len() + 1);
    let of = |n: f64| counts.values().filter(|&&count| count == n).count() as f64;
    let y = of(1.0) / (of(1.0) + 2.0 * of(2.0));
    let discount = |count: f64| {
        let n = count.min(3.0);
        let estimate = n - (n + 1.0) * y * of(n + 1.0) / of(n);
        if estimate.is_finite() { estimate.clamp(0.01, n) } else { 0.5 } // the book has no answer
    };
    let after: Vec<(u16, f64)> = counts
        .iter()
        .filter(|(gram, _)| gram[..context.len()] == *context)
        .map(|(gram, &count)| (gram[context.len()], count))
        .collect();
    let total: f64 = after.iter().map(|(_, count)| count).sum();
    if total == 0.0 {
        return shorter;
    }
    let taken: f64 = after.iter().map(|&(_, count)| discount(count)).sum();
    let own = after.iter().find(|(symbol, _)| *symbol == next);
    let own = own.map_or(0.0, |&(_, count)| count - discount(count));
    own / total + taken / total * shorter
}

/// Compares with a second implementation that is slow and literal.
#[test]
fn probabilities_are_those_of_the_book() {
    let text: Vec<u16> = draws(4000, 9).iter().map(|t| t * t % 7).collect();
    let ngram = Ngram::train(&text, 7);
    for start in [0, 100, 2000, 3990] {
        let mut gram = text[start..start + 5].to_vec();
        for next in 0..7 {
            gram[4] = next;
            let fast = (ngram.loss(&gram[..4]) * 4.0 - ngram.loss(&gram) * 5.0).exp();
            let slow = by_the_book(&text, &gram[..4], next, 7.0);
            assert!((fast - slow).abs() < 1e-9, "{gram:?}: {fast} {slow}");
        }
    }
}
