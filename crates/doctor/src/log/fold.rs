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

/// Joins the line of a frame with its rest, if someone wrapped it at a space: `File "x.py", line
/// 3, in` and `forward`.
pub fn frames_joined(lines: Vec<(String, Option<u64>)>) -> Vec<(String, Option<u64>)> {
    let mut joined: Vec<(String, Option<u64>)> = Vec::with_capacity(lines.len());
    for (line, rank) in lines {
        match joined.last_mut().filter(|(last, of)| *of == rank && is_cut(last)) {
            Some((last, _)) => {
                // A path is cut at a hyphen, the rest at a space.
                last.push_str(if is_open(last) { "" } else { " " });
                last.push_str(line.trim_start());
            }
            None => joined.push((line, rank)),
        }
    }
    joined
}

/// Whether a frame's line ends inside its path.
fn is_open(line: &str) -> bool {
    let path = line.trim_start().strip_prefix("File \"");
    line.len() < 1000 && path.is_some_and(|path| !path.contains('"'))
}

/// Whether a frame's line ends before the name of its function.
fn is_cut(line: &str) -> bool {
    let path = line.trim_start().strip_prefix("File \"").filter(|path| path.len() < 1000);
    let behind = path.and_then(|path| path.split_once('"')).map(|(_, behind)| behind.trim_end());
    let cut = |behind: &str| behind.starts_with(',') && !behind.contains(", in ");
    is_open(line) || behind.is_some_and(|behind| cut(behind) && ends_open(behind))
}

/// Whether `, line 3, in` lacks something: older Pythons end a frame at the line's number.
fn ends_open(behind: &str) -> bool {
    behind.ends_with([',', 'n', 'e'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_was_wrapped_at_a_space_is_one_line() {
        let whole = "  File \"/a/b.py\", line 1024, in forward";
        for at in [10, 17, 22, 28] {
            let (first, rest) = whole.split_at(at);
            let cut = [first.trim_end(), rest.trim_start(), "    return x"];
            let lines = cut.iter().map(|line| (line.to_string(), Some(1))).collect();
            let found: Vec<String> = frames_joined(lines).into_iter().map(|one| one.0).collect();
            assert_eq!(found, [whole, "    return x"], "{cut:?}");
        }
    }

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
