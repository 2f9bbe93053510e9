//! Quotes arguments of commands that we print for the user to copy.

/// A word quoted for a shell.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:+@%,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_survive_a_shell() {
        for (word, want) in [
            ("--out_dir=out/a-1", "--out_dir=out/a-1"),
            ("--out_dir=a b", "'--out_dir=a b'"),
            ("it's", "'it'\\''s'"),
            ("$x", "'$x'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), want);
        }
    }
}
