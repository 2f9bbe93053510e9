//! The language of the sentences in a text. Code, messages and paths are English everywhere and do
//! not count.

use super::text::Line;
use crate::words::Language;

/// Frequent short words that the other languages do not have.
const WORDS: [(Language, &[&str]); 3] = [
    (
        Language::German,
        &[
            "der", "die", "das", "und", "nicht", "ist", "mit", "ein", "eine", "auf", "ich", "für",
            "beim",
        ],
    ),
    (
        Language::French,
        &["le", "la", "les", "des", "une", "est", "pour", "avec", "dans", "sur", "je", "du", "mon"],
    ),
    (
        Language::English,
        &[
            "the", "is", "and", "with", "this", "that", "my", "it", "on", "for", "when", "but",
            "are",
        ],
    ),
];

/// The language of a text; `None` if it has no sentences.
pub fn of(lines: &[Line]) -> Option<Language> {
    if let Some(said) = front_matter(lines) {
        return Some(said);
    }
    let prose = lines.iter().filter(|line| line.told && !line.fenced && is_sentence(&line.text));
    let (mut kana, mut han, mut latin) = (0, 0, 0);
    let mut counts = [0usize; WORDS.len()];
    for line in prose.filter(|line| !is_bilingual(&line.text)) {
        if !line.text.chars().any(is_asian) {
            latin += line.text.chars().filter(char::is_ascii_alphabetic).count();
        }
        for c in line.text.chars() {
            kana += usize::from(matches!(c, '\u{3041}'..='\u{30ff}'));
            han += usize::from(matches!(c, '\u{4e00}'..='\u{9fff}'));
        }
        let lower = line.text.to_lowercase();
        let split = lower.split(|c: char| !c.is_alphabetic());
        for word in split.filter(|word| !word.is_empty() && word.len() < 8) {
            for ((_, words), count) in WORDS.iter().zip(&mut counts) {
                *count += usize::from(words.contains(&word));
            }
        }
    }
    match () {
        // In a thread, the language of most sentences counts. A character says about as much as
        // three letters.
        () if kana + han >= 6 && 3 * (kana + han) > latin => {
            Some(if kana >= 6 { Language::Japanese } else { Language::Chinese })
        }
        () => {
            let best = WORDS.iter().zip(counts).max_by_key(|(_, count)| *count);
            best.filter(|(_, count)| *count >= 4).map(|((language, _), _)| *language)
        }
    }
}

/// `lang: ja` between the dashes at the top of a post.
fn front_matter(lines: &[Line]) -> Option<Language> {
    let first = lines.iter().position(|line| !line.text.trim().is_empty())?;
    if lines[first].text.trim() != "---" {
        return None;
    }
    let inside = lines[first + 1..].iter().take(30).take_while(|line| line.text.trim() != "---");
    let said = inside.into_iter().find_map(|line| line.text.trim().strip_prefix("lang:"))?;
    let code = said.trim().trim_matches(['"', '\'']).to_ascii_lowercase();
    Language::ALL.into_iter().find(|language| code.starts_with(language.code()))
}

fn is_asian(c: char) -> bool {
    matches!(c, '\u{3041}'..='\u{9fff}')
}

/// `steps for 10 epochs is / 指定エポックまでのステップ数`: a program that prints both.
fn is_bilingual(line: &str) -> bool {
    line.split_once(" / ").is_some_and(|(before, behind)| {
        let words = before.split_whitespace().count();
        words >= 3 && before.is_ascii() && behind.chars().any(is_asian)
    })
}

/// Lines that programs wrote are not sentences, although messages contain some.
fn is_sentence(line: &str) -> bool {
    const PROGRAMS: [&str; 16] = [
        "allocate",
        "PYTORCH_",
        "File \"",
        "Traceback",
        "Warning",
        "warnings.warn",
        "CUDA kernel",
        "For debugging",
        "TORCH_USE",
        "Error:",
        "loading ",
        "number of parameters",
        "AdamW",
        "vocab_size of GPT-2",
        "the model...",
        "Memory Management",
    ];
    let asian = line.chars().any(is_asian);
    let program = PROGRAMS.iter().any(|words| line.contains(words));
    asian || (!program && line.split_whitespace().count() >= 5 && !line.starts_with("    "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::text::lines;

    #[test]
    fn the_language_is_that_of_the_sentences() {
        for (text, want) in [
            (
                "Der Lauf ist mit einer Meldung beendet, die ich nicht verstehe.",
                Some(Language::German),
            ),
            (
                "Le modèle est dans la mémoire, avec une taille de lot pour les essais.",
                Some(Language::French),
            ),
            (
                "My run is on a card with this error, and it dies when I start it.",
                Some(Language::English),
            ),
            ("显存不足,我的显卡只有十二个字节", Some(Language::Chinese)),
            ("メモリが足りません", Some(Language::Japanese)),
            ("---\nlang: fr\n---\nsome words", Some(Language::French)),
            ("Overriding: batch_size = 64\nnumber of parameters: 1.0M", None),
            (
                "CUDA out of memory. Tried to allocate 2.00 GiB. If the memory is large it is on",
                None,
            ),
        ] {
            assert_eq!(of(&lines(text.as_bytes())), want, "{text}");
        }
    }
}
