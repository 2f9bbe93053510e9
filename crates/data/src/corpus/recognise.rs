//! Parses a story: which choices of the grammar produce a given text, and with what probability.
//!
//! The search follows every alternative that agrees with the text so far, so it finds all
//! derivations, not just one. The built-in grammar never has more than one; the tests count them.
//! It also judges the text of a trained model: is this a story, and how likely is it?

use super::grammar::{Grammar, Look, Part};

/// One way in which the grammar produces a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Derivation {
    /// The choices in order: the index of an alternative or of a word.
    pub choices: Vec<usize>,
    /// -ln p of all choices together.
    pub nats: f64,
}

impl Grammar {
    /// The derivations of one whole story, including its final empty line; at most `most` of them.
    #[must_use]
    pub fn derivations(&self, story: &[u8], most: usize) -> Vec<Derivation> {
        let mut search = Search { grammar: self, story, most, found: Vec::new() };
        let first = Path {
            at: 0,
            registers: vec![0; self.registers.len()],
            derivation: Derivation { choices: Vec::new(), nats: 0.0 },
        };
        search.rule(0, None, &first);
        search.found
    }
}

struct Search<'a> {
    grammar: &'a Grammar,
    story: &'a [u8],
    most: usize,
    found: Vec<Derivation>,
}

/// What is still to be matched: the rest of an alternative, then the rest of the enclosing one.
#[derive(Clone, Copy)]
struct Todo<'a> {
    parts: &'a [Part],
    after: Option<&'a Todo<'a>>,
}

/// The start of a derivation; it agrees with the text up to `at`.
#[derive(Clone)]
struct Path {
    at: usize,
    registers: Vec<usize>,
    derivation: Derivation,
}

impl Path {
    /// This path extended by one choice.
    fn chose(&self, choice: usize, nats: f64) -> Self {
        let mut path = self.clone();
        path.derivation.choices.push(choice);
        path.derivation.nats += nats;
        path
    }
}

impl Search<'_> {
    fn rule(&mut self, rule: usize, after: Option<&Todo<'_>>, path: &Path) {
        let rule = &self.grammar.rules[rule];
        for (choice, alternative) in rule.alternatives.iter().enumerate() {
            let todo = Todo { parts: &alternative.parts, after };
            self.follow(Some(&todo), path.chose(choice, rule.nats(alternative.weight)));
        }
    }

    fn follow(&mut self, todo: Option<&Todo<'_>>, mut path: Path) {
        if self.found.len() >= self.most {
            return;
        }
        let Some(&Todo { parts, after }) = todo else {
            if path.at == self.story.len() {
                self.found.push(path.derivation);
            }
            return;
        };
        let Some((part, rest)) = parts.split_first() else {
            return self.follow(after, path);
        };
        let todo = Todo { parts: rest, after };
        match part {
            Part::Text(text) => {
                if self.matches(&mut path, text) {
                    self.follow(Some(&todo), path);
                }
            }
            Part::Rule(rule) => self.rule(*rule, Some(&todo), &path),
            Part::Pick { lexicon, look, register } => {
                self.pick(*lexicon, *look, *register, &todo, &path);
            }
            Part::Recall { register, look } => {
                let (lexicon, word) =
                    (self.grammar.registers[*register], path.registers[*register]);
                if self.matches_word(&mut path, lexicon, word, *look) {
                    self.follow(Some(&todo), path);
                }
            }
        }
    }

    fn pick(
        &mut self,
        lexicon: usize,
        look: Look,
        register: Option<usize>,
        todo: &Todo<'_>,
        path: &Path,
    ) {
        let grammar = self.grammar;
        let mut probe = path.clone();
        for word in 0..grammar.lexicons[lexicon].words.len() {
            probe.at = path.at;
            if !self.matches_word(&mut probe, lexicon, word, look) {
                continue;
            }
            let mut chosen = probe.chose(word, grammar.lexicons[lexicon].nats());
            if let Some(register) = register {
                chosen.registers[register] = word;
            }
            self.follow(Some(todo), chosen);
        }
    }

    fn matches_word(&self, path: &mut Path, lexicon: usize, word: usize, look: Look) -> bool {
        let shown = self.grammar.lexicons[lexicon].shown(word, look);
        shown.iter().all(|text| self.matches(path, text))
    }

    /// If the rest of the text starts with `text`, moves past it and returns true.
    fn matches(&self, path: &mut Path, text: &str) -> bool {
        let agrees = self.story[path.at..].starts_with(text.as_bytes());
        path.at += if agrees { text.len() } else { 0 };
        agrees
    }
}
