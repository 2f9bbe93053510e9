//! Proves that no text has two derivations. The proof checks the grammar itself, not samples.
//!
//! Two facts suffice. (1) No word of a list is a prefix of another word of that list, so the text
//! determines which word was picked. (2) However two alternatives of a rule expand, they differ
//! before either of them ends, so the text determines which alternative was chosen. Then the text
//! determines the whole derivation, choice by choice. The proof treats a remembered word as any
//! word of its list, which can only make more texts agree.

use super::grammar::{Grammar, Look, Part};
use super::stories;

/// The rest of an expansion: known bytes first, then unexpanded parts.
#[derive(Clone)]
struct Rest<'a> {
    bytes: Vec<u8>,
    /// A stack: the last element is the next part.
    parts: Vec<&'a Part>,
}

impl<'a> Rest<'a> {
    fn of(parts: &'a [Part]) -> Self {
        Self { bytes: Vec::new(), parts: parts.iter().rev().collect() }
    }

    fn with(&self, bytes: Vec<u8>, parts: &'a [Part]) -> Self {
        let mut rest = Self { bytes, parts: self.parts.clone() };
        rest.parts.extend(parts.iter().rev());
        rest
    }
}

/// Expands `rest` until each continuation starts with known bytes; empty if the expansion has
/// ended.
fn opened<'a>(grammar: &'a Grammar, mut rest: Rest<'a>) -> Vec<Rest<'a>> {
    if !rest.bytes.is_empty() {
        return vec![rest];
    }
    let Some(part) = rest.parts.pop() else {
        return Vec::new();
    };
    match part {
        Part::Text(text) => vec![rest.with(text.clone().into_bytes(), &[])],
        Part::Rule(rule) => {
            let alternatives = &grammar.rules[*rule].alternatives;
            alternatives
                .iter()
                .flat_map(|a| opened(grammar, rest.with(Vec::new(), &a.parts)))
                .collect()
        }
        Part::Pick { lexicon, look, .. } => words(grammar, *lexicon, *look, &rest),
        Part::Recall { register, look } => {
            words(grammar, grammar.registers[*register], *look, &rest)
        }
    }
}

fn words<'a>(grammar: &Grammar, lexicon: usize, look: Look, rest: &Rest<'a>) -> Vec<Rest<'a>> {
    let lexicon = &grammar.lexicons[lexicon];
    let shown = |word| lexicon.shown(word, look).concat().into_bytes();
    (0..lexicon.words.len()).map(|word| rest.with(shown(word), &[])).collect()
}

/// Whether two expansions can agree until one of them ends.
fn can_agree<'a>(grammar: &'a Grammar, one: Rest<'a>, other: Rest<'a>) -> bool {
    let (ones, others) = (opened(grammar, one), opened(grammar, other));
    if ones.is_empty() || others.is_empty() {
        return true;
    }
    ones.iter().any(|one| {
        others.iter().any(|other| {
            let count = one.bytes.len().min(other.bytes.len());
            one.bytes[..count] == other.bytes[..count]
                && can_agree(
                    grammar,
                    one.with(one.bytes[count..].to_vec(), &[]),
                    other.with(other.bytes[count..].to_vec(), &[]),
                )
        })
    })
}

/// Picks and recalls of a grammar, as (list, look).
fn slots(grammar: &Grammar) -> Vec<(usize, Look)> {
    let parts = grammar.rules.iter().flat_map(|r| &r.alternatives).flat_map(|a| &a.parts);
    parts
        .filter_map(|part| match part {
            Part::Pick { lexicon, look, .. } => Some((*lexicon, *look)),
            _ => None,
        })
        .collect()
}

fn ambiguities(grammar: &Grammar) -> Vec<String> {
    let mut found = Vec::new();
    for (lexicon, look) in slots(grammar) {
        let words = &grammar.lexicons[lexicon].words;
        let shown: Vec<String> =
            (0..words.len()).map(|w| grammar.lexicons[lexicon].shown(w, look).concat()).collect();
        for (i, word) in shown.iter().enumerate() {
            let begins = |(j, other): &(usize, &String)| *j != i && other.starts_with(word);
            found.extend(shown.iter().enumerate().find(begins).map(|(_, o)| format!("{word} {o}")));
        }
    }
    for (number, rule) in grammar.rules.iter().enumerate() {
        for (i, one) in rule.alternatives.iter().enumerate() {
            for (j, other) in rule.alternatives.iter().enumerate().skip(i + 1) {
                if can_agree(grammar, Rest::of(&one.parts), Rest::of(&other.parts)) {
                    found.push(format!("rule {number}: alternatives {i} and {j}"));
                }
            }
        }
    }
    found
}

#[test]
fn the_stories_have_one_derivation_each() {
    assert_eq!(ambiguities(stories()), Vec::<String>::new());
}

#[test]
fn ambiguous_grammars_are_detected() {
    let cases = [
        "%w\ncup cupboard\n@s\n{w}.",
        "@s\nab\nab",
        "@s\nab<t>\nabc\n@t\nc\nd",
        "%w\nred blue\n@s\nthe {w} one\nthe red one",
        "%w\nred blue\n@s\n{W=w} and {W}\n{W=w} and {w}",
        "@s\na\nab",
    ];
    for text in cases {
        let grammar = Grammar::parse(text).unwrap();
        assert_eq!(ambiguities(&grammar).len(), 1, "{text}");
    }
    let grammar = Grammar::parse("%w\nred blue\n@s\nthe {w} one\nthe {w} two\na").unwrap();
    assert_eq!(ambiguities(&grammar), Vec::<String>::new());
}
