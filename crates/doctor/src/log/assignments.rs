//! Settings inside a line of any kind: `key = value`, `--key value`, `"key": value`, `key(4)`, and
//! keys whose value a sentence gives (`n_embd reduced to 576`, `バッチサイズ: 64`).

use super::names::{KEYS_OF_OTHERS, NAMES, OURS};
use spec::Key;

/// A key with its value, and where it is in the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// The key, as nanoGPT spells it.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// Where the key begins.
    pub at: usize,
}

/// Longer lines are data, not sentences.
const LONGEST: usize = 8000;

/// The settings in a line, in order.
pub fn in_line(line: &str) -> Vec<Assigned> {
    if line.len() > LONGEST || !line.contains(|c: char| c.is_ascii_digit() || c == '=') {
        return Vec::new();
    }
    let mut found = identifiers(line);
    found.extend(named(line));
    found.sort_by_key(|one| one.at);
    found.dedup_by(|b, a| a.key == b.key && a.value == b.value);
    found
}

/// nanoGPT's key that an identifier means.
fn canonical(name: &str) -> Option<&'static str> {
    let ours = OURS.iter().find(|key| **key == name);
    let other = || KEYS_OF_OTHERS.iter().find(|(other, _)| *other == name).map(|(_, key)| key);
    ours.or_else(other).copied()
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Identifiers that are keys, with the value behind them.
fn identifiers(line: &str) -> Vec<Assigned> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(start) = line[from..].find(|c: char| c.is_ascii_alphabetic()) {
        let start = from + start;
        let flag = line[..start].ends_with("--");
        let part = |c: char| is_name(c) || (flag && c == '-');
        let end = line[start..].find(|c| !part(c)).map_or(line.len(), |end| start + end);
        from = end;
        let name = line[start..end].replace('-', "_");
        if let Some(key) = canonical(&name)
            && let Some(value) = value_behind(&line[end..], flag)
            && let Some(value) = accepted(key, value)
        {
            found.push(Assigned { key, value, at: start });
        }
    }
    found
}

/// The value behind a key.
fn value_behind(rest: &str, flag: bool) -> Option<&str> {
    // `"batch_size": 16`, `"--batch_size", type=int, default=64`
    let plain = rest.trim_start_matches(['"', '\'']);
    if rest.len() > plain.len() && plain.starts_with(',') {
        return plain.split_once("default=").map(|(_, value)| token(value));
    }
    let spaced = plain.trim_start();
    if let Some(value) = spaced.strip_prefix(['=', ':']) {
        return Some(token(value.strip_prefix('=').map_or(value, |_| "")));
    }
    if let Some(inside) = plain.strip_prefix('(') {
        return inside.split_once(')').map(|(inside, _)| inside.trim());
    }
    match flag && spaced.len() < plain.len() && !spaced.starts_with('-') {
        true => Some(token(spaced)),
        false => said(plain),
    }
}

/// The word at the start of a text, without quotes and without what ends a sentence.
fn token(text: &str) -> &str {
    let text = text.trim_start();
    for quote in ['"', '\''] {
        if let Some(inside) = text.strip_prefix(quote) {
            return inside.split_once(quote).map_or("", |(inside, _)| inside);
        }
    }
    // Python's products of numbers are values, too.
    let number = |c: char| c.is_ascii_digit() || "*_ ".contains(c);
    let product = text.find(|c| !number(c)).map_or(text, |end| &text[..end]).trim_end();
    let factors = product.split('*').all(|factor| factor.trim().parse::<u64>().is_ok());
    if product.contains('*') && factors {
        return product;
    }
    let inside = |c: char| c.is_ascii_alphanumeric() || "_.+-/".contains(c);
    let end = text.find(|c| !inside(c)).unwrap_or(text.len());
    let grouped = thousands(text);
    if grouped > end { &text[..grouped] } else { text[..end].trim_end_matches(['.', '-', '/']) }
}

/// Length of `65,536` at the start of a text; 0 if there is no such number.
fn thousands(text: &str) -> usize {
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let mut end = digits(text);
    if end == 0 || end > 3 {
        return 0;
    }
    let mut grouped = 0;
    while let Some(group) = text[end..].strip_prefix(',')
        && digits(group) == 3
    {
        end += 4;
        grouped = end;
    }
    grouped
}

/// Words between a key and its value in a sentence, in five languages.
const FILLERS: [&str; 75] = [
    "of",
    "is",
    "was",
    "set",
    "to",
    "at",
    "from",
    "reduced",
    "lowered",
    "down",
    "auf",
    "von",
    "ist",
    "war",
    "beträgt",
    "reduziert",
    "gesetzt",
    "を",
    "は",
    "が",
    "に",
    "で",
    "の",
    "から",
    "约",
    "約",
    "为",
    "是",
    "设置为",
    "设为",
    "设置",
    "改为",
    "降到",
    "降低到",
    "降低至",
    "减少到",
    "减少至",
    "减到",
    "从",
    "de",
    "du",
    "à",
    "est",
    "était",
    "réduite",
    "réduit",
    "fixée",
    "fixé",
    "passée",
    "block_size",
    "already",
    "now",
    "only",
    "bereits",
    "nur",
    "schon",
    "既に",
    "すでに",
    "已经",
    "已",
    "了",
    "降到了",
    "降为",
    "减少到了",
    "改成",
    "缩小到",
    "减小到",
    "减小至",
    "调整为",
    "调到",
    "déjà",
    "ramenée",
    "ramené",
    "passe",
    "en",
];

/// `n_embd reduced to 576`: the number behind words that may stand between. Of `from 768 to 576`
/// it is the second one.
fn said(rest: &str) -> Option<&str> {
    let (number, moved, behind) = number_behind(rest)?;
    let second = moved.then(|| number_behind(behind)).flatten();
    let changed = second.filter(|(_, _, after)| behind.len() - after.len() < 24);
    Some(changed.map_or(number, |(second, _, _)| second))
}

/// The number behind filler words, whether these say `from`, and the rest.
fn number_behind(text: &str) -> Option<(&str, bool, &str)> {
    let mut rest = text;
    let mut moved = false;
    for _ in 0..8 {
        rest = rest.trim_start_matches([' ', '=', ':', '(', ')', '~', '≈', '"', '\'', '、']);
        if rest.starts_with(|c: char| c.is_ascii_digit()) {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let end = thousands(rest).max(digits);
            // `1.5` and `12GB` are other things.
            let next = rest[end..].chars().next();
            let whole = next.is_none_or(|c| !c.is_ascii_alphanumeric())
                && !(rest[end..].starts_with('.')
                    && rest[end + 1..].starts_with(|c: char| c.is_ascii_digit()));
            return whole.then(|| (&rest[..end], moved, &rest[end..]));
        }
        let filler = FILLERS.iter().filter(|word| rest.starts_with(**word));
        let filler = filler.max_by_key(|word| word.len())?;
        let behind = &rest[filler.len()..];
        if filler.is_ascii() && behind.starts_with(is_name) {
            return None;
        }
        moved |= matches!(*filler, "from" | "von" | "从" | "de");
        rest = behind;
    }
    None
}

/// Settings that have names in sentences: `batch size of 64`, `12 layers`.
fn named(line: &str) -> Vec<Assigned> {
    let lower = line.to_lowercase();
    // Positions are those of the lowered line; only their order matters.
    let mut found = Vec::new();
    for (name, key, before) in NAMES {
        for (at, _) in lower.match_indices(name).take(20) {
            let start = lower[..at].chars().next_back();
            let behind = &lower[at + name.len()..];
            let inside = name.is_ascii() && (start.is_some_and(is_name) || behind.starts_with('_'));
            if inside {
                continue;
            }
            // French separates thousands by spaces.
            let spaced = if key == "vocab_size" { without_spaces(behind) } else { None };
            let behind = spaced.as_deref().unwrap_or(behind);
            let value = if before { number_before(&lower[..at]) } else { said(behind) };
            if let Some(value) = value.and_then(|value| accepted(key, value)) {
                found.push(Assigned { key, value, at });
            }
        }
    }
    found
}

/// `50 304` as `50304`.
fn without_spaces(text: &str) -> Option<String> {
    let at = text.find(|c: char| c.is_ascii_digit())?;
    let (first, rest) = text[at..].split_once(' ')?;
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let grouped = digits(first) == first.len() && first.len() <= 3 && digits(rest) == 3;
    grouped.then(|| format!("{}{first}{rest}", &text[..at]))
}

/// `12` of `12 layers`, `12-layer`.
fn number_before(text: &str) -> Option<&str> {
    let text = text.strip_suffix(['-', ' ']).unwrap_or(text);
    let start = text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let mut before = text[..start].chars().rev();
    let alone = match before.next() {
        // `12 layers,768 wide` has a comma, `1,024 layers` separates thousands.
        Some(',') => before.next().is_none_or(|c| !c.is_ascii_digit()),
        Some(c) => !c.is_ascii_alphanumeric() && !".-_".contains(c),
        None => true,
    };
    Some(&text[start..]).filter(|digits| !digits.is_empty() && digits.len() < 5 && alone)
}

/// A value that the key can have, as it would be typed.
fn accepted(key: &str, value: &str) -> Option<String> {
    let value = if thousands(value) == value.len() { value.replace(',', "") } else { value.into() };
    let value = match (key, value.as_str()) {
        ("dtype", "fp16" | "half") => "float16".to_string(),
        ("dtype", "bf16") => "bfloat16".to_string(),
        ("dtype", "fp32") => "float32".to_string(),
        _ => value,
    };
    if value.is_empty() || value.len() > 60 {
        return None;
    }
    if key == "vocab_size" {
        return value.parse::<u64>().is_ok_and(|rows| rows >= 10).then_some(value);
    }
    let row = Key::find(key)?;
    // A count of 0 is a mistake or Python code.
    let sound = row.accept_text(&value).is_ok() && !(value == "0" && key != "dropout");
    sound.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> String {
        let all = in_line(line).into_iter().map(|one| format!("{}={}", one.key, one.value));
        all.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn settings_are_read_from_any_line() {
        for (line, want) in [
            ("batch_size = 24  # as before", "batch_size=24"),
            (
                "with batch_size=24, block_size=768 and compile=False.",
                "batch_size=24 block_size=768 compile=False",
            ),
            ("run.py --batch-size 24 --block_size=768", "batch_size=24 block_size=768"),
            ("{\"batch_size\": 24, 'n_layer': 6}", "batch_size=24 n_layer=6"),
            ("p.add_argument(\"--batch_size\", type=int, default=48, help=\"x\")", "batch_size=48"),
            ("`batch_size(24) x seq_len(768)`", "batch_size=24 block_size=768"),
            ("per_device_train_batch_size: 3", "batch_size=3"),
            ("a batch size of 24 and a context length of 768", "batch_size=24 block_size=768"),
            ("eine Batch-Größe von 24 und n_embd auf 480 reduziert", "batch_size=24 n_embd=480"),
            ("you reduced n_embd from 640 to 480", "n_embd=480"),
            ("バッチサイズ:24、シーケンス長(block_size):768", "batch_size=24 block_size=768"),
            ("n_embdを480に減らして", "n_embd=480"),
            ("批次大小为 24,n_embd 降到 480", "batch_size=24 n_embd=480"),
            ("une taille de lot de 24, n_embd réduit à 480", "batch_size=24 n_embd=480"),
            ("語彙サイズ:50,304", "vocab_size=50304"),
            ("a 6-layer model with 6 heads", "n_layer=6 n_head=6"),
            ("6層、8ヘッド", "n_layer=6 n_head=8"),
            ("gradient_accumulation_steps = 5 * 8", "gradient_accumulation_steps=5 * 8"),
            ("my_batch_size = 3, batch_size == 3, batch_size 12GB", ""),
            ("self.batch_size = batch_size // 2", ""),
            ("for the batch size, use 12.5 or less", ""),
        ] {
            assert_eq!(read(line), want, "{line}");
        }
    }
}
