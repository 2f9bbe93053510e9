//! The nearest name to a misspelled one.

/// Longer names are nobody's typing mistake, and the distance is quadratic.
const LONGEST: usize = 64;

/// The candidate with the fewest edits, if they are few for the length; the first of equals.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().take(LONGEST + 1).count();
    if length > LONGEST {
        return None;
    }
    let name = folded(name);
    let allowed = (length / 3).max(1);
    candidates
        // A swap of neighbours is one edit.
        .map(|candidate| (strsim::osa_distance(&name, &folded(candidate)), candidate))
        .filter(|&(edits, _)| edits <= allowed)
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, candidate)| candidate)
}

/// Case and the dash of other programs cost nothing.
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
