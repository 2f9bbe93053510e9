//! File name patterns: `*` and `?` within a name, `**` across folders.
//!
//! The matcher tracks all possible positions in the pattern at once, so the time is at most the
//! product of the two lengths, however many stars there are.

/// One part of a pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Exactly this byte.
    Byte(u8),
    /// `?`: any byte except a slash.
    One,
    /// `*`: any bytes except slashes.
    Name,
    /// `**`: any bytes.
    Folders,
}

/// A parsed pattern.
pub struct Pattern {
    parts: Vec<Part>,
    /// Fewest bytes of a matching name.
    shortest: usize,
}

impl Pattern {
    /// Parses a pattern that the user typed.
    #[must_use]
    pub fn new(typed: &[u8]) -> Pattern {
        let mut parts: Vec<Part> = Vec::new();
        let mut rest = typed;
        while let Some((&first, behind)) = rest.split_first() {
            let part = match (first, behind) {
                (b'*', [b'*', after @ ..]) => {
                    // `**/` also matches no folder at all.
                    rest = after.strip_prefix(b"/").unwrap_or(after);
                    Part::Folders
                }
                (b'*', _) => {
                    rest = behind;
                    Part::Name
                }
                (b'?', _) => {
                    rest = behind;
                    Part::One
                }
                (byte, _) => {
                    rest = behind;
                    Part::Byte(byte)
                }
            };
            // A `*` after `**` adds nothing.
            match (parts.last(), part) {
                (Some(Part::Folders), Part::Name | Part::Folders) => {}
                _ => parts.push(part),
            }
        }
        let is_byte = |part: &&Part| matches!(part, Part::Byte(_) | Part::One);
        let shortest = parts.iter().filter(is_byte).count();
        Pattern { parts, shortest }
    }

    /// Whether the pattern matches a whole name.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        if name.len() < self.shortest {
            return false; // so a pattern that is longer than any name costs nothing
        }
        let mut here = vec![false; self.parts.len() + 1];
        let mut next = here.clone();
        here[0] = true;
        self.step_over_stars(&mut here);
        for &byte in name {
            next.fill(false);
            for (at, part) in self.parts.iter().enumerate().filter(|(at, _)| here[*at]) {
                match part {
                    Part::Byte(wanted) => next[at + 1] |= *wanted == byte,
                    Part::One => next[at + 1] |= byte != b'/',
                    Part::Name => next[at] |= byte != b'/',
                    Part::Folders => next[at] = true,
                }
            }
            self.step_over_stars(&mut next);
            std::mem::swap(&mut here, &mut next);
        }
        here[self.parts.len()]
    }

    /// Adds the positions after stars, because a star may match nothing.
    fn step_over_stars(&self, here: &mut [bool]) {
        for (at, part) in self.parts.iter().enumerate() {
            here[at + 1] |= here[at] && matches!(part, Part::Name | Part::Folders);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    fn matches(pattern: &str, name: &str) -> bool {
        Pattern::new(pattern.as_bytes()).matches(name.as_bytes())
    }

    #[test]
    fn patterns_keep_to_their_folder_unless_doubled() {
        for (pattern, name, want) in [
            ("a/*.txt", "a/b.txt", true),
            ("a/*.txt", "a/b/c.txt", false),
            ("a/**/*.txt", "a/b/c.txt", true),
            ("a/**/*.txt", "a/c.txt", true),
            ("?.md", "x.md", true),
            ("?.md", "xy.md", false),
            ("", "", true),
            ("*", "", true),
            ("***", "a/b", true),
        ] {
            assert_eq!(matches(pattern, name), want, "{pattern} {name}");
        }
    }

    /// A backtracking matcher would practically never finish.
    #[test]
    fn many_stars_take_no_time() {
        let start = Instant::now();
        let name = "a".repeat(200);
        for star in ["*a", "**a", "*?a"] {
            assert!(!matches(&(star.repeat(60) + "b"), &name));
            assert!(matches(&star.repeat(60), &name));
        }
        assert!(!matches(&"*a".repeat(60_000), &name));
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }

    /// The definition, which tries everything.
    fn slowly(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            ([b'*', b'*', rest @ ..], _) => {
                let rest_or_below = rest.strip_prefix(b"/").unwrap_or(rest);
                slowly(rest_or_below, name)
                    || name.split_first().is_some_and(|(_, behind)| slowly(pattern, behind))
            }
            ([b'*', rest @ ..], _) => {
                let here = name.split_first().filter(|(first, _)| **first != b'/');
                slowly(rest, name) || here.is_some_and(|(_, behind)| slowly(pattern, behind))
            }
            ([b'?', rest @ ..], [first, behind @ ..]) => *first != b'/' && slowly(rest, behind),
            ([wanted, rest @ ..], [first, behind @ ..]) => wanted == first && slowly(rest, behind),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn it_is_what_trying_everything_gives(pattern in "[ab*?/]{0,7}", name in "[ab/]{0,7}") {
            let want = slowly(pattern.as_bytes(), name.as_bytes());
            prop_assert_eq!(matches(&pattern, &name), want, "{} {}", pattern, name);
        }
    }
}
