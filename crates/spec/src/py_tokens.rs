//! A tokenizer for Python config files: names, numbers, strings, operators and line ends, each with
//! its line. Brackets and backslashes join lines as in Python.

use crate::error::shown;
use std::str::FromStr;

/// A token of Python source.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// An identifier or keyword.
    Name(String),
    /// A whole number.
    Int(i64),
    /// A number with a fraction or an exponent.
    Float(f64),
    /// A string, escapes resolved.
    Str(String),
    /// The text between the quotes of an f-string, escapes resolved.
    Format(String),
    /// An operator or bracket.
    Operator(&'static str),
    /// End of a logical line.
    Newline,
}

/// A token and the line it starts on.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedToken {
    /// The token.
    pub token: Token,
    /// Counted from 1.
    pub line: u32,
}

/// A problem and its line.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Counted from 1.
    pub line: u32,
    /// The problem.
    pub what: String,
}

/// Longest first: a prefix must not hide a longer operator.
const OPERATORS: [&str; 47] = [
    "**=", "//=", ">>=", "<<=", "...", "**", "//", "==", "!=", "<=", ">=", ":=", "->", "+=", "-=",
    "*=", "/=", "%=", "&=", "|=", "^=", "@=", "<<", ">>", "+", "-", "*", "/", "%", "=", "(", ")",
    "[", "]", "{", "}", ",", ":", ";", ".", "<", ">", "@", "~", "&", "|", "^",
];

/// The most bytes of a name; the longest key has 27.
const LONGEST_NAME: usize = 100;

/// The tokens of a source text: whole logical lines, up to the first one with a fault.
pub struct TokenList {
    /// The tokens; the last one is a line end.
    pub found: Vec<PlacedToken>,
    /// Why the tokens end before the text does.
    pub fault: Option<Fault>,
}

/// Splits a source text into tokens.
pub fn tokens(text: &str) -> TokenList {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lexer = Lexer { rest: text, line: 1, depth: 0, found: Vec::new() };
    let fault = lexer.all().err();
    if fault.is_some() {
        let whole = lexer.found.iter().rposition(|placed| placed.token == Token::Newline);
        lexer.found.truncate(whole.map_or(0, |last| last + 1));
    }
    TokenList { found: lexer.found, fault }
}

struct Lexer<'a> {
    rest: &'a str,
    line: u32,
    /// Open brackets.
    depth: u32,
    found: Vec<PlacedToken>,
}

impl Lexer<'_> {
    fn all(&mut self) -> Result<(), Fault> {
        self.indentation()?;
        while !self.rest.is_empty() {
            self.next()?;
        }
        if self.depth > 0 {
            return Err(self.fault("a bracket is never closed"));
        }
        self.push(Token::Newline);
        Ok(())
    }

    fn fault(&self, what: impl Into<String>) -> Fault {
        Fault { line: self.line, what: what.into() }
    }

    fn push(&mut self, token: Token) {
        self.found.push(PlacedToken { token, line: self.line });
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    /// Skips one line end: LF, CR or CRLF.
    fn newline(&mut self) -> bool {
        let Some(length) = ["\r\n", "\n", "\r"].iter().find(|end| self.rest.starts_with(**end))
        else {
            return false;
        };
        self.skip(length.len());
        self.line = self.line.saturating_add(1);
        true
    }

    fn next(&mut self) -> Result<(), Fault> {
        let Some(first) = self.rest.chars().next() else { return Ok(()) };
        match first {
            ' ' | '\t' | '\x0c' => self.skip(1),
            '#' => self.comment(),
            '\n' | '\r' => return self.line_end(),
            '\\' => {
                self.skip(1);
                if !self.newline() {
                    return Err(self.fault("a backslash that does not end its line"));
                }
            }
            '"' | '\'' => return self.string(false, Token::Str),
            '0'..='9' => return self.number(),
            '.' if self.rest[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                return self.number();
            }
            _ if first == '_' || first.is_alphabetic() => return self.name(),
            _ => return self.operator(first),
        }
        Ok(())
    }

    fn comment(&mut self) {
        let end = self.rest.find(['\n', '\r']).unwrap_or(self.rest.len());
        self.skip(end);
    }

    fn line_end(&mut self) -> Result<(), Fault> {
        if self.depth == 0 {
            self.push(Token::Newline);
        }
        self.newline();
        self.indentation()
    }

    /// Statements start in the first column: a config file has no nested statements.
    fn indentation(&mut self) -> Result<(), Fault> {
        if self.depth > 0 {
            return Ok(());
        }
        let inner = self.rest.trim_start_matches([' ', '\t', '\x0c']);
        let spaces = self.rest.len() - inner.len();
        let blank = inner.is_empty() || inner.starts_with(['#', '\n', '\r']);
        let indented = self.rest[..spaces].contains([' ', '\t']);
        if indented && !blank {
            return Err(self.fault("an indented line"));
        }
        self.skip(spaces);
        Ok(())
    }

    fn operator(&mut self, first: char) -> Result<(), Fault> {
        let Some(operator) = OPERATORS.iter().find(|operator| self.rest.starts_with(**operator))
        else {
            return Err(self.fault(format!("the character {first:?} outside a string")));
        };
        match *operator {
            "(" | "[" | "{" => self.depth = self.depth.saturating_add(1),
            ")" | "]" | "}" if self.depth == 0 => {
                return Err(self.fault(format!("`{operator}` closes nothing")));
            }
            ")" | "]" | "}" => self.depth -= 1,
            _ => {}
        }
        self.push(Token::Operator(operator));
        self.skip(operator.len());
        Ok(())
    }

    fn name(&mut self) -> Result<(), Fault> {
        let end = self.rest.find(|c: char| c != '_' && !c.is_alphanumeric());
        let name = self.rest[..end.unwrap_or(self.rest.len())].to_string();
        if name.len() > LONGEST_NAME {
            return Err(self.fault(format!("a name of {} bytes", name.len())));
        }
        let quote_follows = self.rest[name.len()..].starts_with(['"', '\'']);
        if quote_follows {
            self.skip(name.len());
            return match name.to_ascii_lowercase().as_str() {
                "r" => self.string(true, Token::Str),
                "u" => self.string(false, Token::Str),
                "f" => self.string(false, Token::Format),
                "fr" | "rf" => self.string(true, Token::Format),
                "b" | "br" | "rb" => Err(self.fault("a bytes string")),
                _ => Err(self.fault(format!("the string prefix `{name}`"))),
            };
        }
        self.skip(name.len());
        self.push(Token::Name(name));
        Ok(())
    }

    fn number(&mut self) -> Result<(), Fault> {
        let bytes = self.rest.as_bytes();
        let radix = match self.rest.get(..2).map(str::to_ascii_lowercase).as_deref() {
            Some("0x") => 16,
            Some("0o") => 8,
            Some("0b") => 2,
            _ => 10,
        };
        let mut end = 0;
        while let Some(&byte) = bytes.get(end) {
            // After the `e` of a decimal number, a sign is part of the number.
            let exponent = radix == 10 && end > 0 && matches!(bytes[end - 1], b'e' | b'E');
            let sign = exponent && matches!(byte, b'+' | b'-');
            let point = radix == 10 && byte == b'.';
            if !(byte.is_ascii_alphanumeric() || byte == b'_' || sign || point) {
                break;
            }
            end += 1;
        }
        let word = &self.rest[..end];
        let token = if radix == 10 { decimal(word) } else { whole(&word[2..], radix, true) };
        let token =
            token.map_err(|what| self.fault(format!("the number `{}` ({what})", shown(word))))?;
        self.push(token);
        self.skip(end);
        Ok(())
    }

    /// Reads a string that starts at the quote.
    fn string(&mut self, raw: bool, kind: fn(String) -> Token) -> Result<(), Fault> {
        let start = self.line;
        let triple = ["\"\"\"", "'''"].into_iter().find(|quote| self.rest.starts_with(quote));
        let quote = triple.unwrap_or(&self.rest[..1]).to_string();
        self.skip(quote.len());
        let mut text = String::new();
        loop {
            if self.rest.starts_with(&quote) {
                self.skip(quote.len());
                self.found.push(PlacedToken { token: kind(text), line: start });
                return Ok(());
            }
            let open = || Fault { line: start, what: "an unterminated string".into() };
            let letter = self.rest.chars().next().ok_or_else(open)?;
            match letter {
                '\n' | '\r' if triple.is_none() => return Err(open()),
                '\n' | '\r' => {
                    self.newline();
                    text.push('\n');
                }
                '\\' if raw => self.raw_pair(&mut text),
                '\\' => self.escape(&mut text)?,
                _ => {
                    self.skip(letter.len_utf8());
                    text.push(letter);
                }
            }
        }
    }

    /// In a raw string a backslash stays, and so does the quote after it.
    fn raw_pair(&mut self, text: &mut String) {
        self.skip(1);
        text.push('\\');
        if self.newline() {
            text.push('\n');
        } else if let Some(letter) = self.rest.chars().next() {
            self.skip(letter.len_utf8());
            text.push(letter);
        }
    }

    fn escape(&mut self, text: &mut String) -> Result<(), Fault> {
        self.skip(1);
        if self.newline() {
            return Ok(());
        }
        let Some(letter) = self.rest.chars().next() else { return Ok(()) };
        let plain = match letter {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'v' => '\x0b',
            '\\' | '\'' | '"' => letter,
            'x' => return self.code(text, 1, 2, 16),
            'u' => return self.code(text, 1, 4, 16),
            'U' => return self.code(text, 1, 8, 16),
            'N' => return Err(self.fault("a character by name (\\N) in a string")),
            '0'..='7' => {
                let octal = self.rest.bytes().take(3).take_while(|b| (b'0'..b'8').contains(b));
                let digits = octal.count();
                return self.code(text, 0, digits, 8);
            }
            // Python keeps the backslash of an unknown escape.
            _ => {
                text.push('\\');
                letter
            }
        };
        self.skip(letter.len_utf8());
        text.push(plain);
        Ok(())
    }

    /// Reads a character code: `digits` digits after skipping `from` letters.
    fn code(
        &mut self,
        text: &mut String,
        from: usize,
        digits: usize,
        radix: u32,
    ) -> Result<(), Fault> {
        let word = self.rest.get(from..from + digits).unwrap_or_default();
        let all_digits = word.chars().all(|c| c.is_digit(radix)) && !word.is_empty();
        let number = u32::from_str_radix(word, radix).ok().filter(|_| all_digits);
        let letter = number.and_then(char::from_u32);
        text.push(letter.ok_or_else(|| self.fault("an invalid escape in a string"))?);
        self.skip(from + digits);
        Ok(())
    }
}

/// A decimal number: `12`, `1_000`, `.5`, `6e-4`, `1.`.
fn decimal(word: &str) -> Result<Token, String> {
    if word.contains(['j', 'J']) {
        return Err("complex numbers are not accepted".into());
    }
    if word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') {
        let zeros = word.bytes().all(|byte| byte == b'0' || byte == b'_');
        if word.starts_with('0') && !zeros {
            return Err("Python allows no leading zeros".into());
        }
        return whole(word, 10, false);
    }
    let digits = without_underscores(word, 10, false)?;
    f64::from_str(&digits).map(Token::Float).map_err(|_| "it is not a valid number".into())
}

fn whole(word: &str, radix: u32, after_prefix: bool) -> Result<Token, String> {
    let digits = without_underscores(word, radix, after_prefix)?;
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Err("it is not a valid number".into());
    }
    let number = i64::from_str_radix(&digits, radix);
    number.map(Token::Int).map_err(|_| "it does not fit in 63 bits".into())
}

/// Removes underscores, which must be between two digits (or right after `0x`).
fn without_underscores(word: &str, radix: u32, after_prefix: bool) -> Result<String, String> {
    let bytes = word.as_bytes();
    let digit = |at: Option<usize>| {
        at.and_then(|at| bytes.get(at)).is_some_and(|&byte| char::from(byte).is_digit(radix))
    };
    for (at, _) in word.match_indices('_') {
        let before = digit(at.checked_sub(1)) || (after_prefix && at == 0);
        if !before || !digit(Some(at + 1)) {
            return Err("an underscore must be between digits".into());
        }
    }
    Ok(word.replace('_', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(text: &str) -> Result<Token, String> {
        let TokenList { found, fault } = tokens(text);
        fault.map_or_else(|| Ok(found[0].token.clone()), |fault| Err(fault.what))
    }

    #[test]
    fn numbers_are_read_as_python_reads_them() {
        for (text, want) in [
            ("12", Token::Int(12)),
            ("600_000", Token::Int(600_000)),
            ("0", Token::Int(0)),
            ("00", Token::Int(0)),
            ("0xFF", Token::Int(255)),
            ("0x_ff", Token::Int(255)),
            ("0o17", Token::Int(15)),
            ("0b101", Token::Int(5)),
            ("9223372036854775807", Token::Int(i64::MAX)),
            ("6e-4", Token::Float(6e-4)),
            ("1E5", Token::Float(1e5)),
            (".5", Token::Float(0.5)),
            ("1.", Token::Float(1.0)),
            ("1.e+2", Token::Float(100.0)),
            ("1_0.2_5e1_0", Token::Float(10.25e10)),
            ("1e999", Token::Float(f64::INFINITY)),
        ] {
            assert_eq!(first(text), Ok(want), "{text}");
        }
        for bad in ["012", "1__0", "1_", "0x", "0b2", "1j", "1e", "1.2.3", "12abc", "1e_5"] {
            assert!(first(bad).is_err(), "{bad}");
        }
        assert!(first("9223372036854775808").unwrap_err().contains("63 bits"));
    }

    #[test]
    fn strings_are_read_as_python_reads_them() {
        for (text, want) in [
            (r#""a'b""#, "a'b"),
            (r"'a\'b\n\t\\'", "a'b\n\t\\"),
            (r"'\x41\u00e9\U0001F600\101\0'", "Aé😀A\0"),
            (r"'\d'", r"\d"),
            (r"r'\d\''", r"\d\'"),
            ("u'x'", "x"),
            ("'''two\r\nlines'''", "two\nlines"),
            ("\"\"\"a \"quoted\" word\"\"\"", "a \"quoted\" word"),
            ("'joined \\\nline'", "joined line"),
            ("'# no comment'", "# no comment"),
            ("''", ""),
        ] {
            assert_eq!(first(text), Ok(Token::Str(want.into())), "{text}");
        }
        for (text, want) in [
            ("'open", "an unterminated string"),
            ("'open\n'", "an unterminated string"),
            ("'\\", "an unterminated string"),
            (r"'\ud800'", "an invalid escape in a string"),
            (r"'\x4'", "an invalid escape in a string"),
            (r"'\x+4'", "an invalid escape in a string"),
            (r"'\N{DASH}'", "a character by name (\\N) in a string"),
            ("rb'x'", "a bytes string"),
            ("zz'x'", "the string prefix `zz`"),
        ] {
            assert_eq!(first(text), Err(want.into()), "{text}");
        }
    }

    #[test]
    fn lines_are_joined_and_counted() {
        let text =
            "\u{feff}a = (1 # one\n  + 2)\r\n\n# note\n   # more\nb = \\\n  '''x\ny'''\rc = 3";
        let found = tokens(text).found;
        let line = |name: &str| {
            found.iter().find(|p| p.token == Token::Name(name.into())).map(|placed| placed.line)
        };
        assert_eq!([line("a"), line("b"), line("c")], [Some(1), Some(6), Some(9)]);
        let ends = found.iter().filter(|placed| placed.token == Token::Newline).count();
        assert_eq!(ends, 6);
        for (text, line, want) in [
            ("a = 1\n  b = 2", 2, "an indented line"),
            ("a = (\n1\n", 3, "a bracket is never closed"),
            ("a = 1)", 1, "`)` closes nothing"),
            ("a = 1 \\ 2", 1, "a backslash that does not end its line"),
            ("a = 1 ? 2", 1, "the character '?' outside a string"),
            ("a = '\n'", 1, "an unterminated string"),
        ] {
            let fault = tokens(text).fault.unwrap();
            assert_eq!((fault.line, fault.what.as_str()), (line, want), "{text}");
        }
    }
}
