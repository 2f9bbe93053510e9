//! Turns pasted text into plain lines: one pass that undoes whatever a terminal, a logger, a
//! launcher, a notebook or a forum put around them. Adds nothing.

use super::decode::decoded;
use super::fold::{frames_joined, unfolded};
use super::prefix::bare;
use super::sections::Sections;
use super::shared::without_shared;

/// Of more lines, only the first and the last are kept: a line of one character takes a hundred
/// times its size in memory.
const HEAD_LINES: usize = 25_000;
const TAIL_LINES: usize = 75_000;

/// A line without what was around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Its text.
    pub text: String,
    /// Whether it was inside a Markdown fence.
    pub fenced: bool,
    /// The rank that wrote it.
    pub rank: Option<u64>,
    /// Whether it belongs to a part that recommends changes.
    pub advice: bool,
    /// Whether it is searched for sentences: in a log of megabytes, only lines near its ends are.
    pub told: bool,
}

impl Line {
    /// A line with nothing around it.
    pub fn plain(text: impl Into<String>) -> Line {
        Line { text: text.into(), told: true, ..Line::default() }
    }
}

/// The plain lines of pasted text.
pub fn lines(pasted: &[u8]) -> Vec<Line> {
    let plain = decoded(pasted);
    let mut lines: Vec<&str> = plain.lines().flat_map(|line| line.split('\r')).collect();
    if lines.len() > HEAD_LINES + TAIL_LINES {
        lines.drain(HEAD_LINES..lines.len() - TAIL_LINES);
    }
    let lines: Vec<String> = lines.into_iter().map(str::to_string).collect();
    let mut all = Vec::with_capacity(lines.len());
    let mut fenced = false;
    let mut sections = Sections::default();
    for (text, rank) in frames_joined(ranked(unfolded(lines))) {
        let text = text.as_str();
        if let Some(inside) = fence(text) {
            fenced = !fenced;
            if inside.is_empty() {
                continue;
            }
        }
        let advice = sections.is_advice(text, fenced);
        all.push(Line { text: unmarked(text), fenced, rank, advice, told: false });
    }
    tell(all.iter_mut());
    tell(all.iter_mut().rev());
    all
}

/// The lines without what is around them, each with its rank. What one tool put before all lines
/// can stand inside or outside of what another put before some.
fn ranked(lines: Vec<String>) -> Vec<(String, Option<u64>)> {
    let owned = |line: &String| {
        let found = bare(line);
        (found.text.to_string(), found.rank)
    };
    let (texts, outer): (Vec<String>, Vec<_>) = lines.iter().map(owned).unzip();
    let inner = without_shared(texts).into_iter().zip(outer);
    let both = inner.map(|(text, outer)| {
        let (text, rank) = owned(&text);
        (text, rank.or(outer))
    });
    both.collect()
}

/// Marks lines until they have this many bytes: more than any post has.
fn tell<'a>(lines: impl Iterator<Item = &'a mut Line>) {
    const MOST: usize = 192 << 10;
    let mut bytes = 0;
    for line in lines {
        bytes += line.text.len() + 1;
        if bytes > MOST {
            return;
        }
        line.told = true;
    }
}

/// What a line that opens or closes a fence has besides: nothing, if it names a language.
fn fence(line: &str) -> Option<&str> {
    let line = line.trim();
    let rest = line.strip_prefix("```").or_else(|| line.strip_prefix("~~~"))?;
    // Opened and closed in one line.
    let closed = rest.contains("```");
    let language = rest.chars().all(|c| c.is_ascii_alphanumeric() || "-_+{}.".contains(c));
    (!closed).then_some(if language { "" } else { rest })
}

/// Removes the marks of inline code and of bold text.
fn unmarked(text: &str) -> String {
    let text = text.trim_end().replace("**", "");
    if text.contains('`') { text.replace('`', "") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(pasted: &str) -> Vec<String> {
        lines(pasted.as_bytes()).into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn lines_are_plain() {
        assert_eq!(texts("a\r\nb\rc\n\nd"), ["a", "b", "c", "", "d"]);
        assert_eq!(texts("\u{1b}[31mtorch.Error\u{1b}[0m: `x` is **1**"), ["torch.Error: x is 1"]);
        assert_eq!(lines(b"\xff").len(), 1);
        let fenced = lines("a\n```python\nb\n```\nc ```d```\n```e f```".as_bytes());
        let found: Vec<(&str, bool)> =
            fenced.iter().map(|line| (line.text.as_str(), line.fenced)).collect();
        assert_eq!(found, [("a", false), ("b", true), ("c d", false), ("e f", false)]);
    }
}
