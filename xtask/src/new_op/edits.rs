//! Lines added to a file at places that cannot be mistaken: into a list of items, or before the end
//! of a block that opens with one known line. Where the place is not there exactly once, the file
//! is refused.

/// Adds an item (`mod x;`) to the one-line items that begin with `prefix`: before the first that
/// comes later in the alphabet, else behind the last.
pub fn add_item(text: &str, prefix: &str, item: &str) -> Result<String, String> {
    let is_item = |line: &str| line.starts_with(prefix) && line.ends_with(';');
    let lines: Vec<&str> = text.lines().collect();
    let items = || lines.iter().enumerate().filter(|(_, line)| is_item(line));
    let later = items().find(|(_, line)| **line > item).map(|(at, _)| at);
    let behind = items().next_back().map(|(at, _)| at + 1);
    let at = later.or(behind).ok_or_else(|| format!("no line begins with '{prefix}'"))?;
    Ok(with_lines(&lines, at, item))
}

/// Adds lines at the end of the block that opens with the line `opening`; its end is the first line
/// behind that begins with `closing`.
pub fn add_to_block(
    text: &str,
    opening: &str,
    closing: &str,
    added: &str,
) -> Result<String, String> {
    let lines: Vec<&str> = text.lines().collect();
    let start = only_line(&lines, opening)?;
    let end = lines.iter().skip(start).position(|line| line.starts_with(closing));
    let end = end.ok_or_else(|| format!("'{opening}' has no end '{closing}'"))?;
    Ok(with_lines(&lines, start + end, added))
}

/// Adds lines before the line `anchor`.
pub fn add_before(text: &str, anchor: &str, added: &str) -> Result<String, String> {
    let lines: Vec<&str> = text.lines().collect();
    Ok(with_lines(&lines, only_line(&lines, anchor)?, added))
}

fn only_line(lines: &[&str], wanted: &str) -> Result<usize, String> {
    let mut found = lines.iter().enumerate().filter(|(_, line)| **line == wanted);
    match (found.next(), found.next()) {
        (Some((at, _)), None) => Ok(at),
        (None, _) => Err(format!("there is no line '{wanted}'")),
        (Some(_), Some(_)) => Err(format!("the line '{wanted}' is there twice")),
    }
}

fn with_lines(lines: &[&str], at: usize, added: &str) -> String {
    let (before, behind) = lines.split_at(at);
    let all = before.iter().copied().chain(added.lines()).chain(behind.iter().copied());
    all.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_the_alphabet() {
        let text = "//! Doc.\n\nmod b;\nmod d;\n\npub use b::{\n    B,\n};\n";
        for (item, want) in [
            ("mod a;", "mod a;\nmod b;\nmod d;\n"),
            ("mod c;", "mod b;\nmod c;\nmod d;\n"),
            ("mod e;", "mod b;\nmod d;\nmod e;\n"),
        ] {
            let made = add_item(text, "mod ", item).unwrap();
            assert_eq!(made, text.replace("mod b;\nmod d;\n", want));
        }
        let refused = add_item(text, "pub use ", "pub use c::C;").unwrap_err();
        assert_eq!(refused, "no line begins with 'pub use '");
    }

    #[test]
    fn blocks_grow_at_their_end_and_must_be_there_once() {
        let text = "ops! {\n    A,\n}\n\nfn f() {\n}\n";
        let made = add_to_block(text, "ops! {", "}", "    B,").unwrap();
        assert_eq!(made, "ops! {\n    A,\n    B,\n}\n\nfn f() {\n}\n");
        let made = add_before(text, "fn f() {", "fn e() {}\n\n").unwrap();
        assert_eq!(made, "ops! {\n    A,\n}\n\nfn e() {}\n\nfn f() {\n}\n");
        for (text, want) in [
            ("", "there is no line 'ops! {'"),
            ("ops! {\n}\nops! {\n}\n", "the line 'ops! {' is there twice"),
            ("ops! {\n    A,\n", "'ops! {' has no end '}'"),
        ] {
            assert_eq!(add_to_block(text, "ops! {", "}", "").unwrap_err(), want);
        }
    }
}
