//! The GPU that a log or a text names, and its memory as people say it.

use super::size::Size;
use super::text::Line;

/// A GPU by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedCard {
    /// The name as in the text.
    pub name: Option<String>,
    /// Its memory as in the text (`12GB`).
    pub memory: Option<Size>,
    /// What `nvidia-smi` shows as used.
    pub used: Option<Size>,
}

/// Words that begin the name of a card.
const MAKERS: [&str; 6] = ["geforce", "rtx", "gtx", "tesla", "quadro", "nvidia"];

/// Names that need no maker.
const MODELS: [&str; 34] = [
    "a100", "h100", "h200", "h800", "a800", "v100", "p100", "p40", "t4", "l4", "l40", "l40s",
    "l20", "a10", "a10g", "a30", "a40", "a4000", "a5000", "a6000", "k40", "k80", "m40", "b200",
    "gb200", "gh200", "mi250", "mi300x", "3090ti", "4090d", "1080ti", "2080ti", "3080ti", "4070ti",
];

/// What may follow a model's number.
const SUFFIXES: [&str; 12] = [
    "ti", "super", "laptop", "gpu", "mobile", "ada", "pcie", "sxm2", "sxm4", "sxm5", "nvl", "hbm3",
];

/// Numbers of GeForce cards, which people write without more.
fn is_geforce(word: &str) -> bool {
    let Ok(number) = word.trim_end_matches('s').parse::<u64>() else {
        return false;
    };
    let series = [10, 16, 20, 30, 40, 50].contains(&(number / 100));
    word.len() <= 5 && series && number % 100 >= 30 && number.is_multiple_of(10)
}

impl NamedCard {
    /// The first card that a text names. Recommendations do not count.
    pub fn find(lines: &[Line]) -> NamedCard {
        let mut found = NamedCard::default();
        let mut told = false;
        for line in lines.iter().filter(|line| line.told && !line.advice) {
            if line.text.len() > 4000 {
                continue;
            }
            // A line that says that memory ran out names the card on which it did.
            let failed = line.text.contains("out of memory") || line.text.contains("OOM");
            if found.name.is_none() || (failed && !told) {
                let mut here = NamedCard::default();
                here.read(&line.text);
                told |= failed && here.name.is_some();
                if here.name.is_some() || found.name.is_none() {
                    found.name = here.name.or(found.name);
                    found.memory = here.memory.or(found.memory);
                }
            }
            if found.used.is_none()
                && let Some((used, total)) = smi(&line.text)
            {
                (found.used, found.memory) = (Some(used), Some(total));
            }
        }
        found
    }

    fn read(&mut self, line: &str) {
        let part = |c: char| !(c.is_ascii_alphanumeric() || c == '.');
        let words = line.split(part).map(|word| word.trim_matches('.'));
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).flat_map(apart).collect();
        let lower: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
        let about =
            ["gpu", "gb", "card", "vram", "memory", "nvidia", "karte", "carte", "显卡", "显存"];
        let text = line.to_lowercase();
        let about = about.iter().any(|word| text.contains(word));
        for at in 0..words.len() {
            let maker = MAKERS.contains(&lower[at].as_str());
            let model = |word: &String| MODELS.contains(&word.as_str()) || is_geforce(word);
            if !maker && !(model(&lower[at]) && (about || MODELS.contains(&lower[at].as_str()))) {
                continue;
            }
            let makers = lower[at..].iter().take_while(|word| MAKERS.contains(&word.as_str()));
            let first = at + makers.count();
            let Some(word) = lower.get(first).filter(|word| is_model(word)) else {
                continue;
            };
            let more = lower[first + 1..].iter().take_while(|w| SUFFIXES.contains(&w.as_str()));
            let end = first + 1 + more.count();
            self.memory = near(&words, at, end).or(self.memory.take());
            if guessed(&text, &lower[at]) {
                return;
            }
            let number = if is_geforce(word) { word.trim_end_matches('s') } else { words[first] };
            let name: Vec<&str> = words[at..first]
                .iter()
                .copied()
                .chain([number])
                .chain(words[first + 1..end].iter().copied())
                .collect();
            self.name = Some(name.join(" "));
            return;
        }
    }
}

/// `RTX3090` as two words.
fn apart(word: &str) -> Vec<&str> {
    let maker = word.get(..3).filter(|maker| matches!(*maker, "RTX" | "GTX" | "rtx" | "gtx"));
    match maker {
        Some(maker) if word.len() > 3 => vec![maker, &word[3..]],
        _ => vec![word],
    }
}

/// Whether the text before a name says that it is only an example: `probably an RTX 3060`.
fn guessed(text: &str, word: &str) -> bool {
    const GUESSES: [&str; 15] = [
        "probably",
        "likely",
        "maybe",
        "perhaps",
        "such as",
        "e.g.",
        "vermutlich",
        "wahrscheinlich",
        "wohl",
        "おそらく",
        "多分",
        "可能",
        "如",
        "例如",
        "sans doute",
    ];
    let before = text.split(word).next().unwrap_or("");
    let start = before.char_indices().rev().nth(20).map_or(0, |(at, _)| at);
    GUESSES.iter().any(|guess| before[start..].contains(guess))
}

/// Whether a word can be a model: it has a digit and is no size.
fn is_model(word: &str) -> bool {
    let digits = word.chars().any(|c| c.is_ascii_digit());
    digits && word.len() <= 8 && !word.contains('.') && !word.ends_with("gb")
}

/// A size beside the name: `12GB 4070`, `RTX 4070 (12 GB)`.
fn near(words: &[&str], start: usize, end: usize) -> Option<Size> {
    let size = |text: String| {
        let (size, _) = Size::read(&text)?;
        let gigabytes = size.bytes >> 30;
        (size.to_string().contains('G') && (1..=512).contains(&gigabytes)).then_some(size)
    };
    let pair = |at: usize| {
        let one = words.get(at)?;
        size(format!("{one} ")).or_else(|| size(format!("{one}{} ", words.get(at + 1)?)))
    };
    let before = start.checked_sub(1).and_then(pair);
    let before = before.or_else(|| start.checked_sub(2).and_then(pair));
    pair(end).or_else(|| pair(end + 1)).or(before)
}

/// `15514MiB / 16130MiB` of `nvidia-smi`.
fn smi(line: &str) -> Option<(Size, Size)> {
    let (used, total) = line.split_once("MiB /")?;
    let used = Size::read_before(&format!("{used}MiB"))?;
    let (total, _) = Size::read(&format!("{} ", total.trim_start()))?;
    (total.bytes >= 1 << 30 && used.bytes <= total.bytes).then_some((used, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_found_in_sentences_and_logs() {
        for (line, name, memory) in [
            ("Running on an NVIDIA GeForce RTX 4070 Ti, fine", "NVIDIA GeForce RTX 4070 Ti", None),
            ("on my RTX-3090 (24GB) it", "RTX 3090", Some("24 GB")),
            ("auf einer RTX 4070 (12 GB VRAM)", "RTX 4070", Some("12 GB")),
            ("RTX 4070(12GB VRAM)で", "RTX 4070", Some("12 GB")),
            ("people with 12 GB 4070s", "4070", Some("12 GB")),
            ("my GPU is 4060, which has", "4060", None),
            ("8x NVIDIA H100 80GB HBM3", "NVIDIA H100", Some("80 GB")),
            ("|   0  Tesla V100-SXM2...  On   |", "Tesla V100 SXM2", None),
            ("A100 80G 上", "A100", Some("80 GB")),
        ] {
            let found = NamedCard::find(&[Line::plain(line)]);
            assert_eq!(found.name.as_deref(), Some(name), "{line}");
            assert_eq!(found.memory.map(|size| size.to_string()).as_deref(), memory, "{line}");
        }
        for line in
            ["line 4090, in forward", "step 3060: loss", "port 4070", "NVIDIA driver 535.12"]
        {
            assert_eq!(NamedCard::find(&[Line::plain(line)]).name, None, "{line}");
        }
    }

    #[test]
    fn a_table_of_the_driver_says_what_is_used() {
        let line =
            "| N/A   54C    P0   246W / 300W |  14000MiB / 16130MiB |    100%      Default |";
        let found = NamedCard::find(&[Line::plain(line)]);
        assert_eq!(found.used.unwrap().bytes, 14000 << 20);
        assert_eq!(found.memory.unwrap().bytes, 16130 << 20);
    }
}
