//! A grammar as data, and its text form (described at the top of `stories.txt`).

use std::collections::HashMap;

/// Rules that choose among alternatives, and lists of words to choose from.
#[derive(Clone, Debug)]
pub struct Grammar {
    /// The first is where a story begins.
    pub(super) rules: Vec<Rule>,
    pub(super) lexicons: Vec<Lexicon>,
    /// For each register, the list that its word comes from.
    pub(super) registers: Vec<usize>,
}

/// A choice among alternatives.
#[derive(Clone, Debug, Default)]
pub(super) struct Rule {
    pub(super) alternatives: Vec<Alternative>,
    /// The sum of their weights.
    pub(super) total: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Alternative {
    pub(super) weight: u32,
    pub(super) parts: Vec<Part>,
}

/// A list of words, all equally likely.
#[derive(Clone, Debug)]
pub(super) struct Lexicon {
    /// Names of the forms of a word; the first is "." and means the word itself.
    forms: Vec<String>,
    /// Indexed by word, then by form.
    pub(super) words: Vec<Vec<String>>,
}

/// One part of an alternative.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Text(String),
    /// The expansion of another rule.
    Rule(usize),
    /// A new word, and the register that remembers it.
    Pick {
        lexicon: usize,
        look: Look,
        register: Option<usize>,
    },
    /// The word that a register remembers.
    Recall {
        register: usize,
        look: Look,
    },
}

/// How a word is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    form: usize,
    article: Article,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Article {
    None,
    /// "a" or "an", depending on the word.
    Indefinite,
}

impl Lexicon {
    /// A word as it appears in the text: its article and its form.
    pub(super) fn shown(&self, word: usize, look: Look) -> [&str; 2] {
        let shown = self.words[word][look.form].as_str();
        let article = match look.article {
            Article::None => "",
            Article::Indefinite if shown.starts_with(['a', 'e', 'i', 'o', 'u']) => "an ",
            Article::Indefinite => "a ",
        };
        [article, shown]
    }
}

/// An error in a grammar's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("grammar, line {line}: {what}; see the top of stories.txt")]
pub struct GrammarError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

impl Grammar {
    /// Reads a grammar's text.
    ///
    /// # Errors
    ///
    /// When a line is invalid or uses an undefined name.
    pub fn parse(text: &str) -> Result<Self, GrammarError> {
        let lines =
            || (1..).zip(text.lines()).filter(|(_, l)| !l.is_empty() && !l.starts_with('#'));
        let mut reader = Reader::default();
        // First pass: collect the names, so that a rule can use what is defined further down.
        for (_, line) in lines() {
            if let Some(name) = line.strip_prefix('@') {
                let place = reader.rule_names.len();
                reader.rule_names.insert(name.to_owned(), place);
                reader.rules.push(Rule::default());
            }
        }
        for (number, line) in lines() {
            reader.line(line).map_err(|what| GrammarError { line: number, what })?;
        }
        reader.finish().map_err(|what| GrammarError { line: text.lines().count(), what })
    }
}

/// What has been read so far.
#[derive(Default)]
struct Reader {
    rules: Vec<Rule>,
    rule_names: HashMap<String, usize>,
    lexicons: Vec<Lexicon>,
    lexicon_names: HashMap<String, usize>,
    registers: Vec<usize>,
    register_names: HashMap<String, usize>,
    /// The list or rule that the next lines belong to.
    section: Option<Section>,
}

#[derive(Clone, Copy)]
enum Section {
    Lexicon(usize),
    Rule(usize),
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some(head) = line.strip_prefix('%') {
            let mut names = head.split_whitespace().map(str::to_owned);
            let name = names.next().ok_or("a list without a name")?;
            let forms = std::iter::once(".".to_owned()).chain(names).collect();
            self.section = Some(Section::Lexicon(self.lexicons.len()));
            self.lexicon_names.insert(name, self.lexicons.len());
            self.lexicons.push(Lexicon { forms, words: Vec::new() });
            return Ok(());
        }
        if let Some(name) = line.strip_prefix('@') {
            let place =
                self.rule_names.get(name).ok_or("a rule that the first pass did not see")?;
            self.section = Some(Section::Rule(*place));
            return Ok(());
        }
        match self.section {
            Some(Section::Lexicon(lexicon)) => self.words(lexicon, line),
            Some(Section::Rule(rule)) => self.alternative(rule, line),
            None => Err("words before the first % or @".to_owned()),
        }
    }

    /// Words of a list: `word/form/form …`, or several words, a colon and the forms that they
    /// share.
    fn words(&mut self, lexicon: usize, line: &str) -> Result<(), String> {
        let (words, shared) = line.split_once(" : ").unwrap_or((line, ""));
        let lexicon = &mut self.lexicons[lexicon];
        for word in words.split_whitespace() {
            let own = word.split('/');
            let forms: Vec<String> =
                own.chain(shared.split_whitespace()).map(|form| form.replace('_', " ")).collect();
            if forms.len() != lexicon.forms.len() {
                let (found, wanted) = (forms.len(), lexicon.forms.len());
                return Err(format!("{word} has {found} forms instead of {wanted}"));
            }
            lexicon.words.push(forms);
        }
        Ok(())
    }

    /// An alternative of a rule: `weight* ` if it is not 1, then text, `{words}` and `<rules>`.
    fn alternative(&mut self, rule: usize, line: &str) -> Result<(), String> {
        let weighted = line.split_once("* ").and_then(|(w, rest)| Some((w.parse().ok()?, rest)));
        let (weight, body) = weighted.unwrap_or((1_u32, line));
        if body.is_empty() {
            return Err("an empty alternative".to_owned());
        }
        let mut parts = Vec::new();
        let mut rest = body;
        while let Some(start) = rest.find(['{', '<']) {
            push_text(&mut parts, &rest[..start]);
            let close = if rest[start..].starts_with('{') { '}' } else { '>' };
            let end = rest[start..].find(close).ok_or("a bracket that is not closed")? + start;
            let inside = &rest[start + 1..end];
            parts.push(if close == '}' { self.slot(inside)? } else { self.rule(inside)? });
            rest = &rest[end + 1..];
        }
        push_text(&mut parts, rest);
        let rule = &mut self.rules[rule];
        rule.total = rule.total.checked_add(weight).filter(|_| weight > 0).ok_or("bad weight")?;
        rule.alternatives.push(Alternative { weight, parts });
        Ok(())
    }

    fn rule(&self, name: &str) -> Result<Part, String> {
        let place = self.rule_names.get(name).copied();
        place.map(Part::Rule).ok_or_else(|| format!("no rule is named {name}"))
    }

    /// `list`, `REGISTER=list` or `REGISTER`; `a ` before it, `.form` after it.
    fn slot(&mut self, inside: &str) -> Result<Part, String> {
        let (article, inside) = match inside.strip_prefix("a ") {
            Some(rest) => (Article::Indefinite, rest),
            None => (Article::None, inside),
        };
        let (name, form) = inside.split_once('.').unwrap_or((inside, "."));
        let (register, list) = match name.split_once('=') {
            Some((register, list)) => (Some(register), list),
            None => (None, name),
        };
        let Some(&lexicon) = self.lexicon_names.get(list) else {
            return self.recall(list, form, article);
        };
        let look = self.look(lexicon, form, article)?;
        let register = register.map(|name| self.register(name, lexicon)).transpose()?;
        Ok(Part::Pick { lexicon, look, register })
    }

    fn recall(&self, name: &str, form: &str, article: Article) -> Result<Part, String> {
        let register = self.register_names.get(name).copied();
        let register =
            register.ok_or_else(|| format!("{name} is neither a list nor a register"))?;
        let look = self.look(self.registers[register], form, article)?;
        Ok(Part::Recall { register, look })
    }

    fn look(&self, lexicon: usize, form: &str, article: Article) -> Result<Look, String> {
        let form_place = self.lexicons[lexicon].forms.iter().position(|name| name == form);
        let form = form_place.ok_or_else(|| format!("there is no form .{form}"))?;
        Ok(Look { form, article })
    }

    /// The register of that name; it can only remember words of one list.
    fn register(&mut self, name: &str, lexicon: usize) -> Result<usize, String> {
        let next = self.registers.len();
        let register = *self.register_names.entry(name.to_owned()).or_insert(next);
        if register == next {
            self.registers.push(lexicon);
        }
        if self.registers[register] == lexicon {
            Ok(register)
        } else {
            Err(format!("{name} remembers words of two lists"))
        }
    }

    fn finish(self) -> Result<Grammar, String> {
        let empty_rule = self.rules.iter().any(|rule| rule.alternatives.is_empty());
        let empty_list = self.lexicons.iter().any(|lexicon| lexicon.words.is_empty());
        if self.rules.is_empty() || empty_rule || empty_list {
            return Err("there is no rule, or an empty rule or list".to_owned());
        }
        Ok(Grammar { rules: self.rules, lexicons: self.lexicons, registers: self.registers })
    }
}

fn push_text(parts: &mut Vec<Part>, text: &str) {
    if !text.is_empty() {
        parts.push(Part::Text(text.replace("\\n", "\n")));
    }
}
