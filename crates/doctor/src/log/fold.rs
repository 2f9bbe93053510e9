//! Joins lines that a terminal wrapped at its width. Text that an author wrapped at spaces stays
//! as it is.

use super::prefix::draws;

/// This many lines of the full width mean that the terminal wrapped them.
const FOLDED: usize = 3;

/// Shorter lines are not wrapped.
const NARROWEST: usize = 20;

/// Joins wrapped lines. If several lines have exactly the length of the longest one, each of them
/// continues in the next line.
pub fn unfolded(lines: Vec<String>) -> Vec<String> {
    // Boxes and tables have lines of one width, too.
    let framed = |line: &str| line.ends_with(['|', '+']) || line.ends_with(draws);
    let width = |line: &String| if framed(line.trim_end()) { 0 } else { line.chars().count() };
    let widths: Vec<usize> = lines.iter().map(width).collect();
    let longest = widths.iter().copied().max().unwrap_or(0);
    let full = widths.iter().filter(|width| **width == longest).count();
    // An author who breaks lines at spaces leaves most of them a few letters short of the longest.
    let nearly = widths.iter().filter(|width| (longest.saturating_sub(8)..longest).contains(width));
    if full < FOLDED || longest < NARROWEST || nearly.count() >= full {
        return lines;
    }
    let mut joined: Vec<String> = Vec::new();
    let mut goes_on = false;
    for (line, width) in lines.into_iter().zip(widths) {
        match joined.last_mut() {
            Some(last) if goes_on => last.push_str(&line),
            _ => joined.push(line),
        }
        goes_on = width == longest;
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminal_cuts_words() {
        let cut =
            ["a line of twenty-two l", "etters. Another of twe", "nty-two letters, and a", " rest"];
        let lines = cut.iter().map(ToString::to_string).collect();
        assert_eq!(unfolded(lines), [cut.concat()]);
        let wrapped = [
            "twenty-two letters are",
            "the longest, one less",
            "is usual in a text by",
            "an author of the text",
            "whose longest is here:",
            "twenty-two letters, is",
        ];
        let lines: Vec<String> = wrapped.iter().map(ToString::to_string).collect();
        assert_eq!(unfolded(lines.clone()), lines);
    }
}
