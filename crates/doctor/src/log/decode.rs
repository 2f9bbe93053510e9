//! Bytes to plain characters: encodings, terminal escapes, JSON and HTML escapes, full-width forms.
//! What is left says the same as what was pasted.

/// Of a longer log, only the beginning (with the settings) and the end (with the error) are kept.
const HEAD: usize = 1 << 20;
const TAIL: usize = 3 << 20;

/// Decodes pasted bytes of any kind.
pub fn decoded(pasted: &[u8]) -> String {
    // UTF-16 takes two bytes for a letter; the same letters are kept of it.
    let (head, tail, unit) = match utf16(pasted) {
        Some(_) => (2 * HEAD, 2 * TAIL, 2),
        None => (HEAD, TAIL, 1),
    };
    let from = pasted.len().saturating_sub(tail) / unit * unit;
    let first = from.min(head);
    let mut text = part(&pasted[..first], utf16(pasted));
    text.push_str(if from > first { "\n" } else { "" });
    text.push_str(&part(&pasted[from..], utf16(pasted)));
    // Most logs have no JSON strings; the others pay for a second pass.
    let unescaped = if text.contains("\\n") { json_strings(&text) } else { text };
    folded_forms(&without_escapes(&unescaped))
}

type Unit = fn([u8; 2]) -> u16;

/// How to read UTF-16, which PowerShell writes with `>`: with a byte order mark, or recognised by
/// the zeros of its ASCII letters.
fn utf16(pasted: &[u8]) -> Option<Unit> {
    match pasted {
        [0xff, 0xfe, ..] => return Some(u16::from_le_bytes),
        [0xfe, 0xff, ..] => return Some(u16::from_be_bytes),
        _ => {}
    }
    let sample = pasted.get(..pasted.len().min(4096)).unwrap_or(&[]);
    let (pairs, _) = sample.as_chunks::<2>();
    let first = pairs.iter().filter(|pair| pair[0] == 0 && pair[1] != 0).count();
    let second = pairs.iter().filter(|pair| pair[1] == 0 && pair[0] != 0).count();
    let most = pairs.len() * 3 / 5;
    match () {
        () if pairs.len() < 8 => None,
        () if second > most => Some(u16::from_le_bytes),
        () if first > most => Some(u16::from_be_bytes),
        () => None,
    }
}

fn part(bytes: &[u8], utf16: Option<Unit>) -> String {
    let Some(unit) = utf16 else {
        return String::from_utf8_lossy(bytes).into_owned();
    };
    let units: Vec<u16> = bytes.as_chunks::<2>().0.iter().map(|&pair| unit(pair)).collect();
    String::from_utf16_lossy(&units)
}

/// Expands the strings of pasted JSON, such as a notebook's outputs, line by line: `\n` becomes a
/// line, `\"` a quote. A line is JSON if it starts with a quote; a path with `\n` in it is not.
fn json_strings(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let start = line.trim_start().trim_start_matches(['{', '[']);
        let (Some(string), true) = (start.strip_prefix('"'), line.contains("\\n")) else {
            all.push_str(line);
            continue;
        };
        // `"message": "CUDA error…"`: a value begins a line.
        let mut rest = string.chars();
        let (mut inside, mut last) = (true, ' ');
        while let Some(c) = rest.next() {
            match c {
                '\\' if inside => unescape(&mut rest, &mut all),
                '"' => {
                    inside = !inside;
                    all.push_str(if inside && last == ':' { "\n" } else { "" });
                }
                // Between the strings of a list.
                ',' if !inside => {}
                ' ' if !inside && last == ',' => {}
                c => all.push(c),
            }
            last = if c == ' ' { last } else { c };
        }
    }
    all
}

/// Adds what an escape in a JSON string means; `rest` is behind its backslash.
fn unescape(rest: &mut std::str::Chars<'_>, all: &mut String) {
    match rest.next() {
        Some('n') => all.push('\n'),
        Some('t') => all.push('\t'),
        Some('r') => all.push('\r'),
        Some('u') => {
            let digits = rest.as_str().get(..4);
            let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
            let Some(code) = code else {
                return all.push_str("\\u");
            };
            *rest = rest.as_str()[4..].chars();
            all.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        Some(c) => all.push(c),
        None => {}
    }
}

/// Removes terminal escape sequences: `ESC [ … letter`, `ESC ] … BEL`, and two-character ones. Also
/// those that lost their ESC on a web page (`[31m`) or are written out (`\x1b[31m`).
fn without_escapes(text: &str) -> String {
    const WRITTEN: [&str; 4] = ["\\u001b", "\\x1b", "\\033", "\\e"];
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['\u{1b}', '[', '\\', '\u{9b}']) {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let written = WRITTEN
            .iter()
            .find(|words| rest.starts_with(**words) && colour(&rest[words.len()..]).is_some());
        if let Some(words) = written {
            rest = &rest[words.len()..];
        }
        match () {
            () if rest.starts_with('\u{1b}') => rest = behind_escape(&rest[1..]),
            () if colour(rest).is_some() => rest = colour(rest).unwrap_or(rest),
            () => {
                let mut characters = rest.chars();
                plain.extend(characters.next().filter(|c| *c != '\u{9b}'));
                rest = characters.as_str();
            }
        }
    }
    plain.push_str(rest);
    plain
}

/// What follows the sequence after an ESC.
fn behind_escape(rest: &str) -> &str {
    let mut characters = rest.chars();
    match characters.next() {
        Some('[') => {
            while characters.next().is_some_and(|c| !c.is_ascii_alphabetic() && c != '~') {}
        }
        Some(']') => while characters.next().is_some_and(|c| c != '\u{7}' && c != '\u{1b}') {},
        _ => {}
    }
    characters.as_str()
}

/// What follows `[0;31m`.
fn colour(text: &str) -> Option<&str> {
    let rest = text.strip_prefix('[')?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    (end <= 12).then(|| rest[end..].strip_prefix('m')).flatten()
}

/// Entities of HTML that pages put into copied text.
const ENTITIES: [(&str, char); 6] = [
    ("&gt;", '>'),
    ("&lt;", '<'),
    ("&amp;", '&'),
    ("&quot;", '"'),
    ("&#39;", '\''),
    ("&nbsp;", ' '),
];

/// Full-width forms, odd spaces and quotes as ASCII; invisible characters removed.
fn folded_forms(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let entity = ENTITIES.iter().find(|(words, _)| c == '&' && rest.starts_with(words));
        if let Some((words, c)) = entity {
            all.push(*c);
            rest = &rest[words.len()..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match c {
            '\u{ff01}'..='\u{ff5e}' => {
                all.extend(char::from_u32(c as u32 - 0xfee0));
            }
            '\u{a0}' | '\u{2007}' | '\u{202f}' | '\u{3000}' => all.push(' '),
            '\u{200b}'..='\u{200f}' | '\u{feff}' | '\u{2060}' | '\0' => {}
            '\u{2018}' | '\u{2019}' => all.push('\''),
            '\u{201c}' | '\u{201d}' | '\u{201e}' => all.push('"'),
            '\u{2212}' => all.push('-'),
            '\u{2028}' | '\u{2029}' | '\u{85}' => all.push('\n'),
            c => all.push(c),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_encodings_are_undone() {
        let utf16 =
            |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        assert_eq!(decoded(&utf16("no mark, still sixteen bits")), "no mark, still sixteen bits");
        for (pasted, want) in [
            ("\u{1b}[1;31mError\u{1b}[0m", "Error"),
            ("[0;31mError[0m: [1] stays, [rank0]: too", "Error: [1] stays, [rank0]: too"),
            ("\\u001b[31mError\\x1b[0m", "Error"),
            ("C:\\new\\x1 stays", "C:\\new\\x1 stays"),
            ("\"text\": \"a\\nb \\\"c\\\" \\u001b[31md\"", "text: \na\nb \"c\" d"),
            ("&gt; 12&nbsp;GiB", "> 12 GiB"),
            ("１２．５ＧｉＢ（空き：３）", "12.5GiB(空き:3)"),
        ] {
            assert_eq!(decoded(pasted.as_bytes()), want, "{pasted}");
        }
    }

    #[test]
    fn of_long_text_both_ends_stay() {
        let long = format!("first{}last", " ".repeat(20 << 20));
        let text = decoded(long.as_bytes());
        assert!(text.len() <= HEAD + TAIL + 1);
        assert!(text.starts_with("first") && text.ends_with("last"));
    }
}
