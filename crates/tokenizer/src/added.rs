//! Added tokens, found in a text before it is split into words, as Hugging Face's `tokenizers`
//! does: at each place the longest one wins, first among those that are matched in the raw text
//! (`normalized` false, all special ones in practice), then among the others.

/// A token that is found in the text as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedToken {
    /// Its id.
    pub id: u16,
    /// Its text.
    pub content: Box<str>,
    /// Whether it is a special token, such as the end of a text.
    pub special: bool,
    /// Whether it is looked for after all tokens that are not.
    pub normalized: bool,
    /// Whether it takes the white space before it.
    pub lstrip: bool,
    /// Whether it takes the white space after it.
    pub rstrip: bool,
}

impl AddedToken {
    /// Whether another one, alone in a vocabulary, is found in the same places.
    pub(crate) fn is_like(&self, other: &AddedToken) -> bool {
        AddedToken { normalized: other.normalized, ..self.clone() } == *other
    }
}

/// A piece of a text.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Text to be encoded.
    Text(&'a str),
    /// An added token.
    Token(u16),
}

/// What happens to special tokens that are spelled out in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// They are tokens.
    AsTokens,
    /// They are text like any other.
    AsText,
}

/// All added tokens of a vocabulary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddedTokens {
    /// By id.
    all: Vec<AddedToken>,
    raw: Matcher,
    normalized: Matcher,
}

impl AddedTokens {
    /// The given tokens; those without text are never found.
    pub fn new(mut all: Vec<AddedToken>) -> AddedTokens {
        all.sort_by_key(|token| token.id);
        let matcher = |normalized| {
            let of_kind = |token: &&AddedToken| token.normalized == normalized;
            Matcher::new(all.iter().filter(of_kind).cloned().collect())
        };
        AddedTokens { raw: matcher(false), normalized: matcher(true), all }
    }

    /// All of them, by id.
    pub fn all(&self) -> &[AddedToken] {
        &self.all
    }

    /// Gives the parts of `text` in order; empty texts are left out.
    pub fn split<'a>(&self, text: &'a str, specials: Specials, give: &mut dyn FnMut(Part<'a>)) {
        self.raw.split(text, specials, &mut |part| match part {
            Part::Text(text) => self.normalized.split(text, specials, give),
            token => give(token),
        });
    }
}

/// Finds the tokens of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Matcher {
    /// By content.
    tokens: Vec<AddedToken>,
    /// Whether a token begins with the byte; empty without tokens.
    firsts: Vec<bool>,
}

impl Matcher {
    fn new(mut tokens: Vec<AddedToken>) -> Matcher {
        tokens.retain(|token| !token.content.is_empty());
        tokens.sort_by(|one, other| one.content.cmp(&other.content));
        let mut firsts = Vec::new();
        for first in tokens.iter().filter_map(|token| token.content.as_bytes().first()) {
            firsts.resize(256, false);
            firsts[usize::from(*first)] = true;
        }
        Matcher { tokens, firsts }
    }

    fn split<'a>(&self, text: &'a str, specials: Specials, give: &mut dyn FnMut(Part<'a>)) {
        let (mut done, mut from) = (0, 0);
        while let Some((start, token)) = self.find(text, from) {
            let end = start + token.content.len();
            from = end;
            if token.special && specials == Specials::AsText {
                continue;
            }
            let before = &text[done..start];
            let before = if token.lstrip { before.trim_end() } else { before };
            if !before.is_empty() {
                give(Part::Text(before));
            }
            give(Part::Token(token.id));
            let behind = &text[end..];
            let taken = if token.rstrip { behind.len() - behind.trim_start().len() } else { 0 };
            done = end + taken;
            from = done;
        }
        if done < text.len() {
            give(Part::Text(&text[done..]));
        }
    }

    /// The first token at or after `from`, and where it begins.
    fn find(&self, text: &str, from: usize) -> Option<(usize, &AddedToken)> {
        if self.tokens.is_empty() {
            return None;
        }
        let bytes = text.as_bytes();
        let starts = (from..bytes.len()).filter(|&at| self.firsts[usize::from(bytes[at])]);
        starts.into_iter().find_map(|at| Some((at, self.longest(&bytes[at..])?)))
    }

    /// The longest token that `bytes` begins with. Tokens are sorted, so those that share the bytes
    /// up to here are neighbours, the shortest first.
    fn longest(&self, bytes: &[u8]) -> Option<&AddedToken> {
        let mut left = &self.tokens[..];
        let mut best = None;
        for (depth, byte) in bytes.iter().enumerate() {
            let place = |token: &AddedToken| token.content.as_bytes().get(depth).copied();
            let first = left.partition_point(|token| place(token) < Some(*byte));
            let end = left.partition_point(|token| place(token) <= Some(*byte));
            left = &left[first..end];
            let Some(token) = left.first() else { break };
            if token.content.len() == depth + 1 {
                best = Some(token);
            }
        }
        best
    }
}
