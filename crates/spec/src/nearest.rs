//! The nearest name to a misspelled one.

/// Longer names are nobody's typing mistake, and the distance is quadratic.
const LONGEST: usize = 64;

/// The candidate with the fewest edits, if they are few for the length; the first of equals.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name: Vec<char> = name.chars().take(LONGEST + 1).map(folded).collect();
    if name.len() > LONGEST {
        return None;
    }
    let allowed = (name.len() / 3).max(1);
    candidates
        .map(|candidate| (edits(&name, &candidate.chars().collect::<Vec<_>>()), candidate))
        .filter(|&(edits, _)| edits <= allowed)
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, candidate)| candidate)
}

/// Case and the dash of other programs cost nothing.
fn folded(letter: char) -> char {
    if letter == '-' { '_' } else { letter.to_ascii_lowercase() }
}

/// Insertions, deletions, replacements and swaps of neighbours from one name to the other.
fn edits(from: &[char], to: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=to.len()).collect();
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let replaced = above[j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut least = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            let swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
            if swapped {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_single_edits() {
        for (from, to, want) in [
            ("", "", 0),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("ab", "ba", 1),
            ("abcd", "acbd", 1),
            ("n_layers", "n_layer", 1),
        ] {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            assert_eq!(edits(&letters(from), &letters(to)), want, "{from} {to}");
            assert_eq!(edits(&letters(to), &letters(from)), want, "{to} {from}");
        }
    }

    #[test]
    fn far_and_endless_names_have_no_nearest() {
        let names = ["batch_size", "block_size"];
        for (name, want) in [
            ("Batch-Size", Some("batch_size")),
            ("bacth_size", Some("batch_size")),
            ("zzz", None),
            ("--help", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, names.into_iter()), want, "{name}");
        }
        assert_eq!(nearest(&"batch_size".repeat(7), names.into_iter()), None);
    }
}
