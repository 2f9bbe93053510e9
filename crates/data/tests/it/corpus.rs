//! The built-in corpus: one derivation per story, an exact floor, not a toy, and never changing.

use fitgpt_data::Ngram;
use fitgpt_data::corpus::{Corpus, FIVE_GRAM_LOSS, Grammar, VOCABULARY, stories};
use sha2::{Digest, Sha256};
use std::collections::HashSet;

fn split(text: &[u8]) -> Vec<&str> {
    let text = std::str::from_utf8(text).unwrap();
    let stories: Vec<&str> = text.split_inclusive("\n\n").collect();
    assert!(stories.iter().all(|story| story.ends_with("\n\n") && story.len() > 40));
    stories
}

fn hash(text: &[u8]) -> String {
    Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Everybody's corpus. A change here changes the built-in run: say so in the changelog.
#[test]
fn the_text_is_pinned() {
    let corpus = Corpus::builtin();
    assert_eq!((corpus.train.len(), corpus.val.len()), (4_000_030, 300_079));
    assert_eq!([hash(&corpus.train), hash(&corpus.val)], ["99010e4f120189fc", "c2b5fbf3945c7576"]);
    assert_eq!(format!("{:.6}", corpus.floor), "0.423971");
    assert_eq!(corpus.vocabulary.len(), VOCABULARY as usize);
    assert_eq!(corpus, Corpus::builtin());
}

#[test]
fn every_story_has_exactly_one_derivation_and_their_sum_is_the_floor() {
    let corpus = Corpus::generate(7, 1000, 600_000);
    let mut nats = 0.0;
    let found = split(&corpus.val);
    assert!(found.len() > 5000);
    for story in found {
        let derivations = stories().derivations(story.as_bytes(), 10);
        assert_eq!(derivations.len(), 1, "{story}");
        nats += derivations[0].nats;
    }
    let floor = nats / corpus.val.len() as f64;
    assert!((floor - corpus.floor).abs() < 1e-12, "{floor} {}", corpus.floor);
}

/// The recogniser does not accept everything: a changed story is not a story.
#[test]
fn changed_stories_are_no_stories() {
    let corpus = Corpus::generate(8, 1000, 20_000);
    for story in split(&corpus.val) {
        for (from, to) in [(". The ", ". the "), (" the ", "  the "), ("\n\n", "\n"), (".", "!")] {
            let changed = story.replacen(from, to, 1);
            if changed != *story {
                let found = stories().derivations(changed.as_bytes(), 1);
                assert!(found.is_empty(), "{changed}");
            }
        }
        let twice = story.repeat(2);
        assert!(stories().derivations(twice.as_bytes(), 1).is_empty());
    }
    assert!(stories().derivations(b"", 1).is_empty());
}

/// Name, pronoun, animal and thing recur as they were introduced.
#[test]
fn a_wrong_name_pronoun_or_animal_is_noticed() {
    let right = "Meg had 47 ripe figs and a shy owl. She lost her gold map. The owl found the map \
                 under an old tree.\n\n";
    let nats = stories().derivations(right.as_bytes(), 2);
    assert_eq!(nats.len(), 1);
    for (from, to) in [
        (". She", ". He"),
        ("her gold", "his gold"),
        ("The owl", "The hen"),
        ("found the map", "found the cup"),
        ("an old tree", "a old tree"),
        ("47 ripe figs", "47 ripe fig"),
        ("47 ripe figs", "one ripe figs"),
    ] {
        let wrong = right.replacen(from, to, 1);
        assert_ne!(wrong, right);
        assert!(stories().derivations(wrong.as_bytes(), 1).is_empty(), "{wrong}");
    }
    let one = right.replacen("47 ripe figs", "one ripe fig", 1);
    assert_eq!(stories().derivations(one.as_bytes(), 2).len(), 1);
}

#[test]
fn ambiguous_texts_are_counted_twice() {
    let grammar = Grammar::parse("%w\nred blue\n@s\n{w} cup\nred cup").unwrap();
    let choices = |text: &str| -> Vec<Vec<usize>> {
        grammar.derivations(text.as_bytes(), 9).into_iter().map(|d| d.choices).collect()
    };
    assert_eq!(choices("red cup"), [vec![0, 0], vec![1]]);
    assert_eq!(choices("blue cup"), [vec![0, 1]]);
    assert_eq!(choices("green cup"), Vec::<Vec<usize>>::new());
}

#[test]
fn text_is_printable_and_two_streams_share_no_story() {
    let corpus = Corpus::builtin();
    let expected = |byte: &u8| *byte == b'\n' || (b' '..=b'~').contains(byte);
    assert!(corpus.vocabulary.iter().all(expected));
    assert!(corpus.vocabulary.is_sorted());
    let val = split(&corpus.val);
    let train: HashSet<&str> = split(&corpus.train).into_iter().collect();
    let repeated = val.iter().filter(|story| train.contains(*story)).count();
    assert_eq!(repeated, 0, "of {}", val.len());
    assert!(train.len() > 30_000);
    let ids = corpus.tokens(&corpus.val);
    let back = ids.iter().map(|&id| corpus.vocabulary[usize::from(id)]);
    assert!(back.eq(corpus.val.iter().copied()));
}

/// The corpus is not a toy: four characters of context are not nearly enough.
#[test]
fn a_5_gram_is_far_from_the_floor() {
    let corpus = Corpus::builtin();
    let ngram = Ngram::train(&corpus.tokens(&corpus.train), corpus.vocabulary.len() as u32);
    let loss = ngram.loss(&corpus.tokens(&corpus.val));
    assert!((loss - FIVE_GRAM_LOSS).abs() < 1e-6, "{loss}");
    assert!((1.6..1.65).contains(&(loss / corpus.floor)), "{loss} {}", corpus.floor);
    assert!((0.4..0.45).contains(&corpus.floor), "{}", corpus.floor);
}

#[test]
fn other_seeds_tell_other_stories() {
    let [one, other] = [1, 2].map(|seed| Corpus::generate(seed, 50_000, 50_000));
    assert_ne!(one.train[..200], other.train[..200]);
    assert!((one.floor - other.floor).abs() < 0.01);
    let empty = Corpus::generate(1, 0, 0);
    assert_eq!((empty.train.len(), empty.val.len(), empty.floor), (0, 0, 0.0));
}

#[test]
fn invalid_grammars_are_refused_with_their_line() {
    let cases = [
        ("", 0, "no rule"),
        ("@s", 1, "empty rule"),
        ("word", 1, "words before"),
        ("@s\n{x}", 2, "x is neither a list nor a register"),
        ("@s\n<x>", 2, "no rule is named x"),
        ("@s\n{x", 2, "not closed"),
        ("%w f\na/b c\n@s\n{w}", 2, "c has 1 forms instead of 2"),
        ("%w\na\n@s\n{w.f}", 4, "no form .f"),
        ("%w\na\n%v\nb\n@s\n{X=w}{X=v}", 6, "X remembers words of two lists"),
        ("@s\n0* a", 2, "bad weight"),
        ("@s\n<t>\n@t\na\n2* ", 5, "an empty alternative"),
    ];
    for (text, line, want) in cases {
        let error = Grammar::parse(text).unwrap_err();
        assert_eq!(error.line, line, "{text:?}");
        assert!(error.to_string().contains(want), "{want:?} in {error}");
    }
}
