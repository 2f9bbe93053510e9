//! Turns a pasted log into plain lines: removes colours, carriage returns and the prefixes of
//! loggers and ranks. Adds nothing.

/// Of a longer log, only the beginning (with the settings) and the end (with the error) are kept.
const HEAD: usize = 1 << 20;
const TAIL: usize = 3 << 20;

/// The same limit in lines, because a line of one character takes fifty times its size in memory.
const HEAD_LINES: usize = 50_000;
const TAIL_LINES: usize = 150_000;

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
}

impl Line {
    /// A line with nothing around it.
    pub fn plain(text: impl Into<String>) -> Line {
        Line { text: text.into(), ..Line::default() }
    }
}

/// The plain lines of pasted text.
pub fn lines(pasted: &[u8]) -> Vec<Line> {
    let decoded = from_utf16(pasted);
    let pasted = decoded.as_deref().map_or(pasted, str::as_bytes);
    let from = pasted.len().saturating_sub(TAIL);
    let mut text = String::from_utf8_lossy(&pasted[..from.min(HEAD)]).into_owned();
    text.push_str(if from > HEAD { "\n" } else { "" });
    text.push_str(&String::from_utf8_lossy(&pasted[from..]));
    let plain = without_escapes(&text);
    let mut lines: Vec<&str> = plain.split(['\n', '\r']).collect();
    if lines.len() > HEAD_LINES + TAIL_LINES {
        lines.drain(HEAD_LINES..lines.len() - TAIL_LINES);
    }
    let lines = lines.into_iter().map(str::to_string).collect();
    unfolded(lines).iter().map(|line| Line::plain(without_prefix(line))).collect()
}

/// Decodes UTF-16 with a byte order mark, which PowerShell writes with `>`.
fn from_utf16(pasted: &[u8]) -> Option<String> {
    let (pairs, from): (_, fn([u8; 2]) -> u16) = match pasted {
        [0xff, 0xfe, rest @ ..] => (rest.as_chunks::<2>().0, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => (rest.as_chunks::<2>().0, u16::from_be_bytes),
        _ => return None,
    };
    let units: Vec<u16> = pairs.iter().map(|&pair| from(pair)).collect();
    Some(String::from_utf16_lossy(&units))
}

/// This many lines of the full width mean that the terminal wrapped them.
const FOLDED: usize = 3;

/// Joins lines that a terminal wrapped at its width. If several lines have exactly the length of
/// the longest one, each of them continues in the next line.
fn unfolded(lines: Vec<String>) -> Vec<String> {
    let width = |line: &String| line.chars().count();
    let longest = lines.iter().map(width).max().unwrap_or(0);
    let full = lines.iter().filter(|line| width(line) == longest).count();
    if full < FOLDED || longest < 20 {
        return lines;
    }
    let mut joined: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in lines {
        let full = width(&line) == longest;
        match joined.last_mut() {
            Some(last) if goes_on => last.push_str(&line),
            _ => joined.push(line),
        }
        goes_on = full;
    }
    joined
}

/// Removes terminal escape sequences: `ESC [ … letter`, `ESC ] … BEL`, and two-character ones.
fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '\u{1b}' {
            plain.push(c);
            continue;
        }
        match rest.next() {
            Some('[') => while rest.next().is_some_and(|c| !c.is_ascii_alphabetic() && c != '~') {},
            Some(']') => while rest.next().is_some_and(|c| c != '\u{7}' && c != '\u{1b}') {},
            _ => {}
        }
    }
    plain
}

/// Removes what loggers put before a line: ranks, times, levels.
fn without_prefix(line: &str) -> &str {
    let mut rest = line;
    loop {
        let shorter = without_one_prefix(rest);
        if shorter.len() == rest.len() {
            return rest;
        }
        rest = shorter;
    }
}

fn without_one_prefix(line: &str) -> &str {
    let trimmed = line.trim_start_matches('\u{feff}');
    // `[rank0]: `, `[default0]:`, `[2026-01-02 03:04:05] `, `[ERROR] `
    if let Some((inside, rest)) = trimmed.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let rank = inside.starts_with("rank") || inside.starts_with("default");
        let dated = inside.len() >= 8
            && inside.chars().all(|c| c.is_ascii_digit() || "-:., TZ/".contains(c));
        if rank || dated || is_level(inside) {
            let rest = rest.strip_prefix(':').unwrap_or(rest);
            return rest.strip_prefix(' ').unwrap_or(rest);
        }
    }
    // `0: ` of launchers, `2026-01-02 03:04:05,678 `, `03:04:05 `, `ERROR: `
    let (word, rest) = trimmed.split_once(' ').unwrap_or((trimmed, ""));
    let digits = word.chars().filter(char::is_ascii_digit).count();
    let dated = digits >= 6 && word.chars().all(|c| c.is_ascii_digit() || "-:.,TZ/+".contains(c));
    let rank = word.strip_suffix(':').is_some_and(|n| n.len() < 4 && n.parse::<u32>().is_ok());
    if dated || rank || word == "|" || is_level(word.trim_end_matches(':')) {
        return rest;
    }
    trimmed
}

fn is_level(word: &str) -> bool {
    matches!(
        word,
        "DEBUG" | "INFO" | "WARNING" | "WARN" | "ERROR" | "CRITICAL" | "stderr" | "stdout"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(pasted: &[u8]) -> Vec<String> {
        lines(pasted).into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn what_is_around_a_line_is_taken_off() {
        for (pasted, want) in [
            ("\u{1b}[31mtorch.OutOfMemoryError\u{1b}[0m: x", "torch.OutOfMemoryError: x"),
            ("[rank0]: Traceback (most", "Traceback (most"),
            ("[rank0]:   File \"a\"", "  File \"a\""),
            ("2026-11-15 10:11:12,345 ERROR Tried", "Tried"),
            ("[2026-11-15 10:11:12] [ERROR] Tried", "Tried"),
            ("step 0: train loss 1.0", "step 0: train loss 1.0"),
            ("  File \"train.py\", line 1", "  File \"train.py\", line 1"),
            ("[not a prefix] stays", "[not a prefix] stays"),
        ] {
            assert_eq!(texts(pasted.as_bytes()), [want]);
        }
        assert_eq!(texts(b"a\r\nb"), ["a", "", "b"]);
        assert_eq!(texts(b"\xff\xfea\0b\0"), ["ab"]);
        assert_eq!(texts(b"\xfe\xff\0a\0b"), ["ab"]);
        assert_eq!(texts(b"\xff").len(), 1);
    }
}
