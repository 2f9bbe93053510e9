//! GPT-2's pre-tokenization: splits a text into words, within which byte pairs are then merged.
//!
//! The pattern is `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`. This
//! hand-written scanner is several times as fast as a regular expression. It needs to look only one
//! character ahead: a run of white space leaves its last character to the next word.

use regex_syntax::hir::{Class, HirKind};
use std::sync::OnceLock;

/// The character classes of the pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Other,
    Letter,
    Number,
    Space,
}

/// The kind of every character.
struct Kinds(Vec<Kind>);

impl Kinds {
    fn get() -> &'static Kinds {
        static KINDS: OnceLock<Kinds> = OnceLock::new();
        KINDS.get_or_init(Kinds::new)
    }

    fn new() -> Kinds {
        let mut kinds = vec![Kind::Other; char::MAX as usize + 1];
        for (class, kind) in [(r"\p{L}", Kind::Letter), (r"\p{N}", Kind::Number)] {
            for (first, last) in ranges(class) {
                kinds[first as usize..=last as usize].fill(kind);
            }
        }
        for character in (0..=char::MAX as u32).filter_map(char::from_u32) {
            if character.is_whitespace() {
                kinds[character as usize] = Kind::Space;
            }
        }
        Kinds(kinds)
    }

    /// The kind of the character at `at` and where the next one begins.
    #[inline]
    fn at(&self, text: &str, at: usize) -> Option<(Kind, usize)> {
        let &byte = text.as_bytes().get(at)?;
        if byte < 0x80 {
            return Some((self.0[usize::from(byte)], at + 1));
        }
        let character = text[at..].chars().next()?;
        Some((self.0[character as usize], at + character.len_utf8()))
    }

    /// Where the run of `kind` that continues at `at` ends.
    #[inline]
    fn run_end(&self, text: &str, mut at: usize, kind: Kind) -> usize {
        while let Some((next, end)) = self.at(text, at) {
            if next != kind {
                break;
            }
            at = end;
        }
        at
    }
}

/// The characters of a class of the pattern. A constant class always parses; if it did not, the
/// tests below would fail on the empty table.
fn ranges(class: &str) -> Vec<(char, char)> {
    let Ok(hir) = regex_syntax::parse(class) else {
        return Vec::new();
    };
    match hir.kind() {
        HirKind::Class(Class::Unicode(class)) => {
            class.ranges().iter().map(|range| (range.start(), range.end())).collect()
        }
        _ => Vec::new(),
    }
}

/// Iterates over the words of a text, without gaps.
pub struct WordSplitter<'a> {
    text: &'a str,
    at: usize,
    kinds: &'static Kinds,
}

impl<'a> WordSplitter<'a> {
    /// Starts at the beginning of `text`.
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0, kinds: Kinds::get() }
    }
}

impl Iterator for WordSplitter<'_> {
    /// The start and end offset of a word.
    type Item = (usize, usize);

    #[inline]
    fn next(&mut self) -> Option<(usize, usize)> {
        let start = self.at;
        let (kind, next) = self.kinds.at(self.text, start)?;
        let first = self.text.as_bytes()[start];
        self.at = match kind {
            Kind::Letter | Kind::Number => self.kinds.run_end(self.text, next, kind),
            Kind::Other if first == b'\'' => match contraction(&self.text.as_bytes()[next..]) {
                0 => self.kinds.run_end(self.text, next, kind),
                letters => next + letters,
            },
            Kind::Other => self.kinds.run_end(self.text, next, kind),
            Kind::Space => self.after_space(first, next),
        };
        Some((start, self.at))
    }
}

impl WordSplitter<'_> {
    /// The end of a word that starts with the white space before `next`.
    #[inline]
    fn after_space(&self, first: u8, next: usize) -> usize {
        match self.kinds.at(self.text, next) {
            None => next,
            Some((Kind::Space, _)) => {
                let end = self.kinds.run_end(self.text, next, Kind::Space);
                if end == self.text.len() {
                    return end;
                }
                let last = self.text[..end].chars().next_back().map_or(1, char::len_utf8);
                end - last
            }
            Some((kind, behind)) if first == b' ' => self.kinds.run_end(self.text, behind, kind),
            Some(_) => next,
        }
    }
}

/// Number of letters of 's, 'd, 'm, 't, 'll, 've or 're after the apostrophe; 0 if it is none of
/// them.
fn contraction(behind: &[u8]) -> usize {
    match behind {
        [b's' | b'd' | b'm' | b't', ..] => 1,
        [b'l', b'l', ..] | [b'v', b'e', ..] | [b'r', b'e', ..] => 2,
        _ => 0,
    }
}

/// The last position in `text` where it can be split without changing any word: between a character
/// that is not white space and one that is. A word never continues into white space, and how white
/// space is split depends only on what follows it.
pub fn last_safe_cut(text: &str) -> Option<usize> {
    let mut behind: Option<(usize, bool)> = None;
    for (at, character) in text.char_indices().rev() {
        let space = character.is_whitespace();
        if let Some((cut, true)) = behind
            && !space
        {
            return Some(cut);
        }
        behind = Some((at, space));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        WordSplitter::new(text).map(|(start, end)| &text[start..end]).collect()
    }

    #[test]
    fn the_pattern_is_followed() {
        for (text, want) in [
            ("", &[][..]),
            ("Hello world", &["Hello", " world"]),
            ("we're I'll 'tis 'S", &["we", "'re", " I", "'ll", " '", "tis", " '", "S"]),
            ("a  b \n\n c\n", &["a", " ", " b", " \n\n", " c", "\n"]),
            ("x\n\ny", &["x", "\n", "\n", "y"]),
            ("12 ab34!? ...", &["12", " ab", "34", "!?", " ..."]),
            ("né 中文\u{3000}\u{3000}x½", &["né", " 中文", "\u{3000}", "\u{3000}", "x", "½"]),
            ("tail  ", &["tail", "  "]),
        ] {
            assert_eq!(words(text), want, "{text:?}");
        }
    }

    #[test]
    fn cuts_are_before_white_space_behind_a_word() {
        for (text, want) in
            [("", None), ("abc", None), (" abc", None), ("ab cd", Some(2)), ("ab \n ", Some(2))]
        {
            assert_eq!(last_safe_cut(text), want, "{text:?}");
        }
    }
}
