//! The language of the sentences in a text. Code, messages and paths are English everywhere and do
//! not count.

use super::text::Line;
use crate::words::Language;

/// The language of a text; `None` if it has no sentences.
pub fn of(lines: &[Line]) -> Option<Language> {
    let has = |low: char, high: char| {
        lines.iter().any(|line| line.text.chars().any(|c| (low..=high).contains(&c)))
    };
    match () {
        () if has('\u{3041}', '\u{30ff}') => Some(Language::Japanese),
        () if has('\u{4e00}', '\u{9fff}') => Some(Language::Chinese),
        () => None,
    }
}
