//! Just enough of Rust's syntax to measure it: blanks out comments and literals, then finds
//! functions and the trailing test module by their braces. Not a parser; macros are plain text.

use std::ops::Range;

/// Rust source in which comments, strings and characters are blanks, line ends kept.
#[derive(Debug)]
pub struct Masked {
    chars: Vec<char>,
    /// Line of each character, counted from 1.
    lines: Vec<usize>,
}

/// Where a function with a body stands.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Line of its `fn`.
    pub first_line: usize,
    /// Line of its closing brace.
    pub last_line: usize,
}

impl Masked {
    /// Masks source text.
    pub fn new(text: &str) -> Masked {
        let mut chars: Vec<char> = text.chars().collect();
        let mut at = 0;
        while at < chars.len() {
            let Some(end) = literal_or_comment_end(&chars, at) else {
                at += 1;
                continue;
            };
            for c in &mut chars[at..end] {
                if *c != '\n' {
                    *c = ' ';
                }
            }
            at = end;
        }
        let mut line = 1;
        let lines = chars
            .iter()
            .map(|&c| {
                let own = line;
                line += usize::from(c == '\n');
                own
            })
            .collect();
        Masked { chars, lines }
    }

    /// Whether the code says this, blanks aside.
    pub fn says(&self, code: &str) -> bool {
        let bare: String = self.chars.iter().filter(|c| !c.is_whitespace()).collect();
        bare.contains(code)
    }

    /// Every function with a body, in order of its first line; nested ones too.
    pub fn functions(&self) -> Vec<Function> {
        let starts = (0..self.chars.len()).filter(|&at| self.is_word(at, "fn"));
        starts.filter_map(|at| self.function_at(at)).collect()
    }

    /// First line of the `#[cfg(test)] mod … { … }` that ends the file.
    pub fn trailing_tests_line(&self) -> Option<usize> {
        let marker: Vec<char> = "#[cfg(test)]".chars().collect();
        (0..self.chars.len())
            .filter(|&at| self.chars[at..].starts_with(&marker))
            .find(|&at| self.is_trailing_module(at + marker.len()))
            .map(|at| self.lines[at])
    }

    fn function_at(&self, at: usize) -> Option<Function> {
        let name_at = self.skip_blanks(at + 2);
        let name: String =
            self.chars[name_at..].iter().take_while(|&&c| is_word_char(c) || c == '$').collect();
        // A function pointer type has no name.
        if name.is_empty() {
            return None;
        }
        let body = self.body_after(name_at)?;
        Some(Function { name, first_line: self.lines[at], last_line: self.lines[body.end - 1] })
    }

    /// The braces of the body that follows a signature; none where it ends in a semicolon.
    fn body_after(&self, signature: usize) -> Option<Range<usize>> {
        let mut depth = 0_i32;
        let mut previous = ' ';
        let mut at = signature;
        while at < self.chars.len() {
            let c = self.chars[at];
            match c {
                '(' | '[' => depth += 1,
                ')' | ']' => depth -= 1,
                ';' | '}' if depth == 0 => return None,
                // A const argument, as in `Grid<{ N + 1 }>`, is not the body.
                '{' if depth == 0 && previous == '<' => at = self.closing_brace(at)?,
                '{' if depth == 0 => return Some(at..self.closing_brace(at)? + 1),
                _ => {}
            }
            if !c.is_whitespace() {
                previous = c;
            }
            at += 1;
        }
        None
    }

    fn is_trailing_module(&self, after_marker: usize) -> bool {
        let mut at = self.skip_blanks(after_marker);
        while self.chars.get(at) == Some(&'#') {
            let Some(close) = self.chars[at..].iter().position(|&c| c == ']') else {
                return false;
            };
            at = self.skip_blanks(at + close + 1);
        }
        if !self.is_word(at, "mod") {
            return false;
        }
        let Some(body) = self.body_after(at) else {
            return false;
        };
        self.skip_blanks(body.end) == self.chars.len()
    }

    fn closing_brace(&self, open: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for (at, c) in self.chars.iter().enumerate().skip(open) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Some(at);
            }
        }
        None
    }

    /// Whether this very word stands here; `r#fn` and `fnord` are other words.
    fn is_word(&self, at: usize, word: &str) -> bool {
        let length = word.len();
        let before = at.checked_sub(1).map(|i| self.chars[i]);
        let after = self.chars.get(at + length);
        self.chars[at..].iter().take(length).copied().eq(word.chars())
            && !before.is_some_and(|c| is_word_char(c) || c == '#')
            && !after.is_some_and(|&c| is_word_char(c))
    }

    fn skip_blanks(&self, from: usize) -> usize {
        let blanks = self.chars[from.min(self.chars.len())..].iter();
        from + blanks.take_while(|c| c.is_whitespace()).count()
    }
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// One past the end of the comment or literal that starts here, if one does.
fn literal_or_comment_end(chars: &[char], at: usize) -> Option<usize> {
    let next = chars.get(at + 1).copied();
    match chars[at] {
        '/' if next == Some('/') => Some(line_end(chars, at)),
        '/' if next == Some('*') => Some(block_comment_end(chars, at)),
        '"' => Some(quoted_end(chars, at, '"')),
        'r' => raw_string_end(chars, at),
        // Else a lifetime or a loop label.
        '\'' if next == Some('\\') || chars.get(at + 2) == Some(&'\'') => {
            Some(quoted_end(chars, at, '\''))
        }
        _ => None,
    }
}

fn line_end(chars: &[char], at: usize) -> usize {
    chars[at..].iter().position(|&c| c == '\n').map_or(chars.len(), |length| at + length)
}

/// Block comments nest.
fn block_comment_end(chars: &[char], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => {
                depth += 1;
                at += 2;
            }
            ('*', '/') => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    chars.len()
}

fn quoted_end(chars: &[char], start: usize, quote: char) -> usize {
    let mut at = start + 1;
    while at < chars.len() && chars[at] != quote {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

/// `r"…"`, `r#"…"#` and so on, also after `b` or `c`; not the raw identifier `r#type`.
fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let mut before = chars[..at].iter().rev().copied().peekable();
    before.next_if(|&c| c == 'b' || c == 'c');
    if before.next().is_some_and(is_word_char) {
        return None;
    }
    let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
    let open = at + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let closes =
        |&i: &usize| chars[i] == '"' && chars[i + 1..].iter().take(hashes).eq(vec![&'#'; hashes]);
    let close = (open + 1..chars.len()).find(closes);
    Some(close.map_or(chars.len(), |i| i + 1 + hashes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_become_blanks() {
        for (text, want) in [
            ("a // {\nb", "a b"),
            ("a /* { /* } */ { */ b", "a b"),
            (r#"f("\"{")"#, "f( )"),
            (r##"r#"{"}"# x"##, "x"),
            (r#"br"{" x"#, "b x"),
            ("'{' x", "x"),
            (r"'\'' '\u{7B}' x", "x"),
            ("&'a {'b'}", "&'a { }"),
            ("bar\"{\"", "bar"),
            ("r#type {", "r#type {"),
            ("\"open {", ""),
            ("é\"{\"é", "é é"),
        ] {
            let masked: String = Masked::new(text).chars.iter().collect();
            assert_eq!(masked.chars().count(), text.chars().count(), "{text}");
            let words: Vec<&str> = masked.split_whitespace().collect();
            assert_eq!(words.join(" "), want, "{text}");
        }
    }

    #[test]
    fn functions_are_measured() {
        let text = "\
fn one() {}
trait T {
    fn declared(&self) -> [u8; 4];
    fn given(&self, f: fn(usize) -> usize) -> [u8; 4]
    where
        Self: Sized,
    {
        fn inner() { \"}\"; }
        // }
    }
}
fn grid(g: Grid<{ 1 + 1 }>) -> Grid<{ 2 }> {
}
macro_rules! m { ($n:ident) => { fn $n() { { } } } }
";
        let spans: Vec<(String, usize, usize)> = Masked::new(text)
            .functions()
            .into_iter()
            .map(|f| (f.name, f.first_line, f.last_line))
            .collect();
        let want =
            [("one", 1, 1), ("given", 4, 10), ("inner", 8, 8), ("grid", 12, 13), ("$n", 14, 14)];
        let want: Vec<_> = want.into_iter().map(|(n, a, b)| (n.to_owned(), a, b)).collect();
        assert_eq!(spans, want);
    }

    #[test]
    fn the_trailing_test_module_is_found() {
        for (text, want) in [
            ("fn a() {}\n#[cfg(test)]\nmod tests {\n}\n", Some(2)),
            ("fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests { }\n// end\n", Some(2)),
            ("#[cfg(test)]\nfn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n", Some(4)),
            ("#[cfg(test)]\nmod tests {\n}\nfn after() {}\n", None),
            ("#[cfg(test)]\nmod tests;\n", None),
            ("// #[cfg(test)] mod tests {}\n", None),
            ("fn a() {}", None),
        ] {
            assert_eq!(Masked::new(text).trailing_tests_line(), want, "{text}");
        }
    }

    #[test]
    fn odd_text_does_not_panic() {
        for text in ["", "fn", "fn a", "fn a(", "}", "'", "r#", "/*", "\"\\", "#[cfg(test)]", "'\\"]
        {
            let masked = Masked::new(text);
            let found = (masked.functions().len(), masked.trailing_tests_line());
            assert_eq!(found, (0, None), "{text}");
        }
    }
}
