//! Numbers of a message that someone retells in a sentence, in five languages: `only 2.68 GiB
//! free`, `空きは2.68GiBのみ`. A number means what the nearest word in its clause says.

use super::fields::Field;
use super::size::Size;
use super::text::Line;

/// What a sentence says a size is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// A number of the message.
    Field(Field),
    /// The card's memory, as a shop would say it.
    Card,
    /// What other programs hold.
    Others,
    /// Something else.
    Other,
}

/// Words in lower case, the most specific first.
const WORDS: [(&str, Said); 87] = [
    ("other process", Said::Others),
    ("other program", Said::Others),
    ("desktop", Said::Others),
    ("already in use", Said::Others),
    ("anderen prozess", Said::Others),
    ("andere prozess", Said::Others),
    ("他のプロセス", Said::Others),
    ("其他进程", Said::Others),
    ("其它进程", Said::Others),
    ("autres processus", Said::Others),
    ("non-pytorch", Said::Other),
    ("nicht-pytorch", Said::Other),
    ("非pytorch", Said::Other),
    ("tried to allocate", Said::Field(Field::Requested)),
    ("trying to allocate", Said::Field(Field::Requested)),
    ("tries to allocate", Said::Field(Field::Requested)),
    ("to allocate", Said::Field(Field::Requested)),
    ("allokieren", Said::Field(Field::Requested)),
    ("anzufordern", Said::Field(Field::Requested)),
    ("割り当てようと", Said::Field(Field::Requested)),
    ("確保しようと", Said::Field(Field::Requested)),
    ("尝试分配", Said::Field(Field::Requested)),
    ("试图分配", Said::Field(Field::Requested)),
    ("申请", Said::Field(Field::Requested)),
    ("d'allouer", Said::Field(Field::Requested)),
    ("allouer", Said::Field(Field::Requested)),
    ("reserved", Said::Field(Field::ReservedTotal)),
    ("reserviert", Said::Field(Field::ReservedTotal)),
    ("予約済み", Said::Field(Field::ReservedTotal)),
    ("预留", Said::Field(Field::ReservedTotal)),
    ("保留", Said::Field(Field::ReservedTotal)),
    ("réservé", Said::Field(Field::ReservedTotal)),
    ("free", Said::Field(Field::Free)),
    ("available", Said::Field(Field::Free)),
    ("remaining", Said::Field(Field::Free)),
    ("frei", Said::Field(Field::Free)),
    ("verfügbar", Said::Field(Field::Free)),
    ("空き", Said::Field(Field::Free)),
    ("残り", Said::Field(Field::Free)),
    ("利用可能", Said::Field(Field::Free)),
    ("剩余", Said::Field(Field::Free)),
    ("可用", Said::Field(Field::Free)),
    ("空闲", Said::Field(Field::Free)),
    ("libre", Said::Field(Field::Free)),
    ("disponible", Said::Field(Field::Free)),
    ("restant", Said::Field(Field::Free)),
    ("total capacity", Said::Field(Field::Capacity)),
    ("capacity", Said::Field(Field::Capacity)),
    ("total", Said::Field(Field::Capacity)),
    ("gesamt", Said::Field(Field::Capacity)),
    ("kapazität", Said::Field(Field::Capacity)),
    ("総容量", Said::Field(Field::Capacity)),
    ("容量", Said::Field(Field::Capacity)),
    ("总容量", Said::Field(Field::Capacity)),
    ("总显存", Said::Field(Field::Capacity)),
    ("capacité", Said::Field(Field::Capacity)),
    ("allocated", Said::Field(Field::Allocated)),
    ("pytorch", Said::Field(Field::Allocated)),
    ("alloziert", Said::Field(Field::Allocated)),
    ("zugewiesen", Said::Field(Field::Allocated)),
    ("割り当て済み", Said::Field(Field::Allocated)),
    ("已分配", Said::Field(Field::Allocated)),
    ("alloué", Said::Field(Field::Allocated)),
    ("this process", Said::Field(Field::Process)),
    ("the process", Said::Field(Field::Process)),
    ("process", Said::Field(Field::Process)),
    ("prozess", Said::Field(Field::Process)),
    ("プロセス", Said::Field(Field::Process)),
    ("进程", Said::Field(Field::Process)),
    ("processus", Said::Field(Field::Process)),
    ("vram", Said::Card),
    ("显存", Said::Card),
    ("gpu memory", Said::Card),
    ("grafikspeicher", Said::Card),
    ("ビデオメモリ", Said::Card),
    ("显卡", Said::Card),
    ("gpu", Said::Card),
    ("システムメモリ", Said::Other),
    ("system memory", Said::Other),
    ("ram", Said::Other),
    ("optimi", Said::Other),
    ("adam", Said::Other),
    ("gradient", Said::Other),
    ("logits", Said::Other),
    ("activation", Said::Other),
    ("cache", Said::Other),
    ("model", Said::Other),
];

/// Characters that end a clause.
fn ends(c: char) -> bool {
    matches!(c, '。' | '、' | ';' | '(' | ')' | '|' | '!' | '?' | '【' | '】')
}

/// A word farther away says nothing about a number.
const FAR: usize = 32;

/// The sizes of a line, each with what it is said to be.
pub fn sizes(line: &str) -> Vec<(Said, Size)> {
    let lower = with_clauses(&line.to_lowercase());
    let mut found = Vec::new();
    let (mut from, mut previous) = (0, 0);
    while let Some(at) = lower[from..].find(|c: char| c.is_ascii_digit()) {
        let start = from + at;
        let digits = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
        let number = lower[start..].find(|c| !digits(c)).map_or(lower.len(), |end| start + end);
        from = number;
        // Without its dot, `of 11.69.` is a number, too; but it has no unit.
        let Some((size, rest)) = Size::read(&lower[start..]).filter(|(size, _)| is_memory(size))
        else {
            continue;
        };
        let end = lower.len() - rest.len();
        from = end;
        // `1-2GB` is a guess, `576x2 bytes` a product.
        let guess = lower[..start].ends_with(['-', '–', '~', '±', '×', '*']);
        if !guess && is_unit(lower[number..end].trim(), rest) {
            found.push((meaning(&lower, previous, start, end), size));
        }
        previous = end;
    }
    found
}

/// Commas that are not inside a number end a clause.
fn with_clauses(text: &str) -> String {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let part = |(at, c): (usize, char)| {
        let inside = at > 0 && digit(at - 1) && digit(at + 1);
        if c == ',' && !inside { ';' } else { c }
    };
    text.char_indices().map(part).collect()
}

/// Whether a unit is one of memory in a sentence: `7B` and `77M` count parameters.
fn is_unit(unit: &str, rest: &str) -> bool {
    const MEMORY: [&str; 6] = ["vram", "显存", "内存", "的显存", "memory", "显卡"];
    let rest = rest.trim_start();
    unit.len() > 1 || (unit == "g" && MEMORY.iter().any(|word| rest.starts_with(word)))
}

/// Whether a size is that of a request or a card.
fn is_memory(size: &Size) -> bool {
    let printed = size.to_string();
    ["GiB", "MiB", "GB", "MB"].iter().any(|unit| printed.ends_with(unit)) && size.bytes >= 1 << 20
}

/// What the nearest word around a number says.
fn meaning(text: &str, previous: usize, start: usize, end: usize) -> Said {
    // The words before the previous number are about that one.
    let before = &text[previous..start];
    let before = before.rfind(ends).map_or(before, |at| {
        let width = before[at..].chars().next().map_or(1, char::len_utf8);
        &before[at + width..]
    });
    let behind = &text[end..];
    let stop = |c: char| ends(c) || c.is_ascii_digit();
    let behind = behind.find(stop).map_or(behind, |at| &behind[..at]);
    let near = WORDS.iter().enumerate().flat_map(|(order, (words, said))| {
        let left = before.rfind(words).map(|at| before.len() - at - words.len());
        let right = behind.find(words);
        [left, right].into_iter().flatten().map(move |far| (far, order, *said))
    });
    let best = near.filter(|(far, _, _)| *far <= FAR).min_by_key(|(far, order, _)| (*far, *order));
    best.map_or(Said::Other, |(_, _, said)| said)
}

/// The sizes that a text says, of lines that describe the failure.
pub fn of(lines: &[Line]) -> Vec<(Said, Size)> {
    let told = lines.iter().filter(|line| line.told && !line.advice && !line.fenced);
    told.flat_map(|line| sizes(&line.text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_says_what_a_number_is() {
        use Field::{Allocated, Capacity, Free, Process, Requested};
        for (line, want) in [
            ("it tried to allocate 5.5 GiB; only 2.25GiB free", vec![Requested, Free]),
            ("15.5 GiB in total, 1.25 GiB free", vec![Capacity, Free]),
            ("総容量は15.50GiBですが、空きは1.25GiBのみ。", vec![Capacity, Free]),
            ("プロセスは約9.5GiB(PyTorchが9.1GiB)を使用", vec![Process, Allocated]),
            ("总显存 15.5 GiB,剩余 1.25 GiB,进程占用 9.5 GiB", vec![Capacity, Free, Process]),
            ("Kapazität 15,5 GiB, davon 1,25 GiB frei", vec![Capacity, Free]),
            ("capacité totale de 15,5 Gio, dont 1,25 Gio libres", vec![Capacity, Free]),
        ] {
            let found: Vec<Said> = sizes(line).into_iter().map(|(said, _)| said).collect();
            let want: Vec<Said> = want.into_iter().map(Said::Field).collect();
            assert_eq!(found, want, "{line}");
        }
        for (line, want) in [
            ("a card with 10 GB of VRAM", Said::Card),
            ("10GB显存", Said::Card),
            ("1.5 GiB are held by other processes", Said::Others),
            ("AdamW takes 1.5 GB", Said::Other),
            ("16 GB of RAM", Said::Other),
        ] {
            assert_eq!(sizes(line).first().map(|(said, _)| *said), Some(want), "{line}");
        }
        assert!(sizes("a 7B model, 77M parameters, 1-2GB").is_empty());
    }
}
