//! Finds the name that a misspelled one was meant to be.

/// A longer name is not a typing mistake, and the edit distance takes quadratic time.
const LONGEST: usize = 64;

/// The candidate with the smallest edit distance, if that is small for the name's length. The first
/// one wins a tie.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().take(LONGEST + 1).count();
    if length > LONGEST {
        return None;
    }
    let name = folded(name);
    let allowed = (length / 3).max(1);
    candidates
        // In this distance, swapping two neighbouring letters is one edit.
        .map(|candidate| (strsim::osa_distance(&name, &folded(candidate)), candidate))
        .filter(|&(edits, _)| edits <= allowed)
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, candidate)| candidate)
}

/// Case does not count, nor `-` instead of `_`.
fn folded(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_and_endless_names_have_no_nearest() {
        let names = ["batch_size", "block_size", "max-tokens"];
        for (name, want) in [
            ("Batch-Size", Some("batch_size")),
            ("max_token", Some("max-tokens")),
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
