//! Generates one story: draws the choices, writes the text and multiplies the probabilities.

use super::grammar::{Grammar, Lexicon, Look, Part, Rule};
use rng::Stream;

impl Grammar {
    /// Appends a story to `text` and returns its -ln p.
    pub fn write_story(&self, draws: &mut Stream, text: &mut Vec<u8>) -> f64 {
        let registers = vec![0; self.registers.len()];
        let mut writer = Writer { grammar: self, draws, text, registers, nats: 0.0 };
        writer.expand(&self.rules[0]);
        writer.nats
    }
}

struct Writer<'a> {
    grammar: &'a Grammar,
    draws: &'a mut Stream,
    text: &'a mut Vec<u8>,
    /// The word that each register remembers.
    registers: Vec<usize>,
    nats: f64,
}

impl<'a> Writer<'a> {
    fn expand(&mut self, rule: &'a Rule) {
        let mut draw = self.draws.below(rule.total.into()) as u32;
        for alternative in &rule.alternatives {
            if draw < alternative.weight {
                self.nats += rule.nats(alternative.weight);
                return alternative.parts.iter().for_each(|part| self.part(part));
            }
            draw -= alternative.weight;
        }
    }

    fn part(&mut self, part: &'a Part) {
        let grammar = self.grammar;
        match part {
            Part::Text(text) => self.text.extend(text.as_bytes()),
            Part::Rule(rule) => self.expand(&grammar.rules[*rule]),
            Part::Pick { lexicon, look, register } => {
                let lexicon = &grammar.lexicons[*lexicon];
                let word = self.draws.below(lexicon.words.len() as u64) as usize;
                self.nats += lexicon.nats();
                if let Some(register) = register {
                    self.registers[*register] = word;
                }
                self.show(lexicon, word, *look);
            }
            Part::Recall { register, look } => {
                let lexicon = &grammar.lexicons[grammar.registers[*register]];
                self.show(lexicon, self.registers[*register], *look);
            }
        }
    }

    fn show(&mut self, lexicon: &Lexicon, word: usize, look: Look) {
        lexicon.shown(word, look).iter().for_each(|text| self.text.extend(text.as_bytes()));
    }
}

impl Rule {
    /// -ln p of an alternative of this weight.
    pub(super) fn nats(&self, weight: u32) -> f64 {
        (f64::from(self.total) / f64::from(weight)).ln()
    }
}

impl Lexicon {
    /// -ln p of each word.
    pub(super) fn nats(&self) -> f64 {
        (self.words.len() as f64).ln()
    }
}
