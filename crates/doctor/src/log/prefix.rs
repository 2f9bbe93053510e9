//! What loggers, launchers, boxes and quotes put around a line.

/// A line without its surroundings.
pub struct Bare<'a> {
    /// The rest.
    pub text: &'a str,
    /// The rank that a prefix names.
    pub rank: Option<u64>,
}

/// Removes everything around a line.
pub fn bare(line: &str) -> Bare<'_> {
    let mut all = Bare { text: unboxed(line), rank: None };
    // A line can have several prefixes, such as a quote, a rank and a time. The bound is for
    // hostile lines.
    for _ in 0..32 {
        let (shorter, rank) = without_one(all.text);
        all.rank = rank.or(all.rank);
        if shorter.len() == all.text.len() {
            break;
        }
        all.text = unboxed(shorter);
    }
    all
}

/// Whether a character draws boxes.
pub fn draws(c: char) -> bool {
    ('\u{2500}'..='\u{257f}').contains(&c)
}

/// Removes the box that rich draws around tracebacks.
fn unboxed(line: &str) -> &str {
    let trimmed = line.trim_start();
    if !trimmed.starts_with(draws) {
        return line;
    }
    let inside = trimmed.trim_start_matches(draws);
    inside.strip_prefix(' ').unwrap_or(inside).trim_end_matches(|c| draws(c) || c == ' ')
}

fn without_one(line: &str) -> (&str, Option<u64>) {
    if let Some(rest) = quote(line).or_else(|| worker(line)) {
        return (rest, None);
    }
    bracket(line).or_else(|| word(line)).unwrap_or((line, None))
}

/// `> ` of Markdown and mail. Python's prompt `>>> ` is not one.
fn quote(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('>').filter(|rest| !rest.starts_with(">>"))?;
    Some(rest.strip_prefix(' ').unwrap_or(rest))
}

/// `(EngineCore pid=104) ` of Ray and vLLM.
fn worker(line: &str) -> Option<&str> {
    let (inside, rest) = line.strip_prefix('(')?.split_once(") ")?;
    (inside.contains("pid=") && inside.len() < 80).then_some(rest)
}

/// `[rank0]: `, `[default0]:`, `[2026-01-02 03:04:05] `, `[ERROR] `, `[launch.py:319:handler] `.
fn bracket(line: &str) -> Option<(&str, Option<u64>)> {
    let (inside, rest) = line.strip_prefix('[')?.split_once(']')?;
    let rank = ["rank", "Rank", "default"].iter().find_map(|word| {
        let number = inside.strip_prefix(word)?.trim_start_matches([':', ' ', '-']);
        number.parse::<u64>().ok()
    });
    let dated =
        inside.len() >= 8 && inside.chars().all(|c| c.is_ascii_digit() || "-:., TZ/+".contains(c));
    let place = inside.contains(".py:") && inside.len() < 80;
    if rank.is_none() && !dated && !place && !is_level(inside) {
        return None;
    }
    let rest = rest.strip_prefix(':').unwrap_or(rest);
    Some((rest.strip_prefix(' ').unwrap_or(rest), rank))
}

/// `0: ` of launchers, `2026-01-02 03:04:05,678 `, `03:04:05 `, `ERROR: `, `engine.py:135] `.
fn word(line: &str) -> Option<(&str, Option<u64>)> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let digits = word.chars().filter(char::is_ascii_digit).count();
    let dated = digits >= 6 && word.chars().all(|c| c.is_ascii_digit() || "-:.,TZ/+".contains(c));
    // `04-09` between a level and a time
    let day = digits == 4 && word.len() == 5 && word.as_bytes()[2] == b'-';
    let rank = word.strip_suffix(':').filter(|n| n.len() < 4).and_then(|n| n.parse().ok());
    let place = word.ends_with(']') && word.contains(".py:") && !word.contains('[');
    let level = is_level(word.trim_end_matches(':'));
    (dated || day || rank.is_some() || place || level || word == "|").then_some((rest, rank))
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

    #[test]
    fn what_is_around_a_line_is_taken_off() {
        for (line, want, rank) in [
            ("[rank0]: Traceback (most", "Traceback (most", Some(0)),
            ("[rank12]:   File \"a\"", "  File \"a\"", Some(12)),
            ("2026-11-15 10:11:12,345 ERROR Tried", "Tried", None),
            ("[2026-11-15 10:11:12] [ERROR] Tried", "Tried", None),
            ("ERROR 04-09 05:39:54 [core.py:390]   File \"a\"", "  File \"a\"", None),
            ("ERROR 12-16 21:40:15 engine.py:135]   File \"a\"", "  File \"a\"", None),
            ("(EngineCore pid=104)   File \"a\"", "  File \"a\"", None),
            ("> > [rank3]: text", "text", Some(3)),
            (">text", "text", None),
            ("> │ boxed │", "boxed", None),
            (">>> import torch", ">>> import torch", None),
            ("│ C:\\x\\adamw.py:566 in step      │", "C:\\x\\adamw.py:566 in step", None),
            (
                "╭──── Traceback (most recent call last) ────╮",
                "Traceback (most recent call last)",
                None,
            ),
            ("3: batch", "batch", Some(3)),
            ("step 0: train loss 1.0", "step 0: train loss 1.0", None),
            ("  File \"train.py\", line 1", "  File \"train.py\", line 1", None),
            ("[not a prefix] stays", "[not a prefix] stays", None),
        ] {
            let found = bare(line);
            assert_eq!((found.text, found.rank), (want, rank), "{line}");
        }
    }
}
