//! Reads JSON: streams the field of each object that holds the text. The objects are on separate
//! lines or in one list, which may also hold plain strings.
//!
//! A line is never held in memory: a string is passed on while it is read, whatever its length, and
//! other values are skipped. So the first of two fields with the same name counts.

use super::ReadSpec;
use super::packing::{Unpacked, broken};
use crate::error::{PrepareError, Result};
use crate::segment::Sink;
use crate::sources::Format;
use std::io::{BufRead, BufReader};

/// Bytes kept of a field's name; longer names are shortened.
const NAME: usize = 256;
/// Deepest allowed nesting in a skipped field.
const DEPTH: u32 = 512;

/// Pushes the documents.
pub fn read(spec: &ReadSpec<'_>, sink: &mut dyn Sink) -> Result<()> {
    let file = Unpacked::open(spec.path, spec.packing)?;
    let reader = BufReader::with_capacity(256 << 10, file);
    let mut lines = Lines { spec, reader, line: 1 };
    let mut next = lines.next_solid()?;
    if next == Some(b'[') {
        lines.list(sink)?;
        next = None;
    }
    while let Some(first) = next {
        if first != b'{' {
            return Err(lines.wrong(&format!("begins with {}", shown(first))));
        }
        lines.object(sink)?;
        sink.position(lines.reader.get_ref().position());
        next = lines.next_solid()?;
    }
    sink.position(lines.reader.get_ref().position());
    Ok(())
}

struct Lines<'a> {
    spec: &'a ReadSpec<'a>,
    reader: BufReader<Unpacked>,
    line: u64,
}

/// Where the bytes of a string go.
enum Destination<'s> {
    Nowhere,
    Name(Vec<u8>),
    Text(&'s mut dyn Sink),
}

impl Destination<'_> {
    fn push(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Destination::Nowhere => {}
            Destination::Name(name) => {
                let room = NAME.saturating_sub(name.len());
                name.extend(&bytes[..bytes.len().min(room)]);
            }
            Destination::Text(sink) => sink.bytes(bytes)?,
        }
        Ok(())
    }

    fn push_char(&mut self, character: char) -> Result<()> {
        self.push(character.encode_utf8(&mut [0; 4]).as_bytes())
    }

    fn push_replacement(&mut self) -> Result<()> {
        if let Destination::Text(sink) = self {
            sink.replaced();
        }
        self.push_char(char::REPLACEMENT_CHARACTER)
    }
}

impl Lines<'_> {
    /// A list of documents, whose opening bracket was read.
    fn list(&mut self, sink: &mut dyn Sink) -> Result<()> {
        let mut first = self.solid()?;
        while first != b']' {
            match first {
                b'{' => self.object(sink)?,
                b'"' => {
                    self.string(&mut Destination::Text(sink))?;
                    sink.end_document()?;
                }
                _ => {
                    let what = format!("has {} in the list instead of an object", shown(first));
                    return Err(self.wrong(&what));
                }
            }
            sink.position(self.reader.get_ref().position());
            first = match self.solid()? {
                b',' => self.solid()?,
                b']' => b']',
                byte => return Err(self.wrong(&format!("has {} after a value", shown(byte)))),
            };
        }
        match self.next_solid()? {
            None => Ok(()),
            Some(byte) => Err(self.wrong(&format!("has {} after the list's end", shown(byte)))),
        }
    }

    /// One object, whose opening brace was read.
    fn object(&mut self, sink: &mut dyn Sink) -> Result<()> {
        let mut names: Vec<String> = Vec::new();
        let mut list = None;
        let mut found = false;
        let mut next = self.solid()?;
        while next != b'}' {
            if next != b'"' {
                return Err(self.wrong(&format!("has {} instead of a name", shown(next))));
            }
            let mut name = Destination::Name(Vec::new());
            self.string(&mut name)?;
            let Destination::Name(name) = name else { return Ok(()) };
            self.expect(b':')?;
            let first = self.solid()?;
            if !found && name == self.spec.field.as_bytes() {
                found = true;
                self.text(first, sink)?;
            } else {
                self.step_over(first)?;
                let name = String::from_utf8_lossy(&name).into_owned();
                if first == b'[' && list.is_none() {
                    list = Some(name.clone());
                }
                if names.len() < 8 {
                    names.push(name);
                }
            }
            next = match self.solid()? {
                b',' => self.solid()?,
                b'}' => b'}',
                byte => return Err(self.wrong(&format!("has {} after a value", shown(byte)))),
            };
        }
        if found { Ok(()) } else { Err(self.no_field(&names, list.as_deref())) }
    }

    /// The error if the wanted field is missing; `list` is the first field that holds a list.
    fn no_field(&self, names: &[String], list: Option<&str>) -> PrepareError {
        let (field, names) = (self.spec.field, names.join(", "));
        let mut what = format!(
            "has no field '{field}' (it has: {names}); name the field with the text: --field NAME"
        );
        if self.spec.format == Format::Json {
            let is_word = |name: &&str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if let Some(list) = list.filter(is_word) {
                what += &format!(", extract the list first (jq -c '.{list}[]' IN > OUT.jsonl)");
            }
            what += ", or read it as plain text with --format text";
        }
        self.wrong(&what)
    }

    /// The wanted field: a string is a document, null is skipped.
    fn text(&mut self, first: u8, sink: &mut dyn Sink) -> Result<()> {
        match first {
            b'"' => {
                self.string(&mut Destination::Text(sink))?;
                sink.end_document()
            }
            b'n' => {
                self.step_over(first)?;
                sink.skip_document();
                Ok(())
            }
            byte => {
                let field = self.spec.field;
                let what =
                    format!("has no text in field '{field}': it begins with {}", shown(byte));
                Err(self.wrong(&what))
            }
        }
    }

    /// Skips a value whose first byte was read.
    fn step_over(&mut self, first: u8) -> Result<()> {
        let mut depth = 0;
        let mut byte = first;
        loop {
            match byte {
                b'"' => self.string(&mut Destination::Nowhere)?,
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth > 0 => depth -= 1,
                b',' | b':' if depth > 0 => {}
                b'-' | b'0'..=b'9' | b'a'..=b'z' | b'I' | b'N' => self.bare()?,
                _ => return Err(self.wrong(&format!("has {} in a value", shown(byte)))),
            }
            if depth == 0 {
                return Ok(());
            }
            if depth > DEPTH {
                return Err(self.wrong(&format!("nests deeper than {DEPTH}")));
            }
            byte = self.solid()?;
        }
    }

    /// The rest of a number or a word.
    fn bare(&mut self) -> Result<()> {
        while let Some(byte) = self.peek()? {
            if !(byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')) {
                break;
            }
            self.reader.consume(1);
        }
        Ok(())
    }

    /// The rest of a string, whose opening quote was read.
    fn string(&mut self, into: &mut Destination<'_>) -> Result<()> {
        loop {
            let position = self.reader.get_ref().position();
            let buffer = self.reader.fill_buf().map_err(broken(self.spec, position))?;
            if buffer.is_empty() {
                return Err(self.cut_off());
            }
            let Some(at) = memchr::memchr3(b'"', b'\\', b'\n', buffer) else {
                let count = buffer.len();
                into.push(buffer)?;
                self.reader.consume(count);
                if let Destination::Text(sink) = into {
                    sink.position(position);
                }
                continue;
            };
            let end = buffer[at];
            into.push(&buffer[..at])?;
            self.reader.consume(at + 1);
            match end {
                b'"' => return Ok(()),
                b'\\' => self.escape(into)?,
                _ => return Err(self.wrong("ends inside a string")),
            }
        }
    }

    fn escape(&mut self, into: &mut Destination<'_>) -> Result<()> {
        let byte = self.byte()?;
        let character = match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(into),
            _ => return Err(self.wrong(&format!("has \\ before {}", shown(byte)))),
        };
        into.push_char(character)
    }

    /// Reads the digits after `\u`: a character or a surrogate pair; a lone surrogate is replaced.
    fn unicode(&mut self, into: &mut Destination<'_>) -> Result<()> {
        let mut unit = self.hex()?;
        while (0xd800..0xdc00).contains(&unit) {
            if self.peek()? != Some(b'\\') {
                return into.push_replacement();
            }
            self.reader.consume(1);
            if self.peek()? != Some(b'u') {
                into.push_replacement()?;
                return self.escape(into);
            }
            self.reader.consume(1);
            let second = self.hex()?;
            if (0xdc00..0xe000).contains(&second) {
                unit = 0x10000 + ((unit - 0xd800) << 10) + (second - 0xdc00);
                break;
            }
            into.push_replacement()?;
            unit = second;
        }
        match char::from_u32(unit) {
            Some(character) => into.push_char(character),
            None => into.push_replacement(),
        }
    }

    fn hex(&mut self) -> Result<u32> {
        let mut unit = 0;
        for _ in 0..4 {
            let byte = self.byte()?;
            let digit = char::from(byte).to_digit(16);
            unit = unit * 16 + digit.ok_or_else(|| self.wrong("has a bad \\u escape"))?;
        }
        Ok(unit)
    }

    fn expect(&mut self, wanted: u8) -> Result<()> {
        match self.solid()? {
            byte if byte == wanted => Ok(()),
            byte => Err(self.wrong(&format!("has {} instead of {}", shown(byte), shown(wanted)))),
        }
    }

    /// The next byte that is not white space.
    fn solid(&mut self) -> Result<u8> {
        self.next_solid()?.ok_or_else(|| self.cut_off())
    }

    fn next_solid(&mut self) -> Result<Option<u8>> {
        while let Some(byte) = self.peek()? {
            self.reader.consume(1);
            match byte {
                b'\n' => self.line += 1,
                b' ' | b'\t' | b'\r' => {}
                // A byte order mark, which some editors write.
                0xef | 0xbb | 0xbf if self.line == 1 => {}
                _ => return Ok(Some(byte)),
            }
        }
        Ok(None)
    }

    fn byte(&mut self) -> Result<u8> {
        let byte = self.peek()?.ok_or_else(|| self.cut_off())?;
        self.reader.consume(1);
        Ok(byte)
    }

    #[inline]
    fn peek(&mut self) -> Result<Option<u8>> {
        let position = self.reader.get_ref().position();
        let buffer = self.reader.fill_buf().map_err(broken(self.spec, position))?;
        Ok(buffer.first().copied())
    }

    fn wrong(&self, what: &str) -> PrepareError {
        PrepareError::source(self.spec.name, format!("line {} {what}", self.line))
    }

    fn cut_off(&self) -> PrepareError {
        self.wrong("ends inside an object: the file is truncated; get it again")
    }
}

fn shown(byte: u8) -> String {
    format!("'{}'", byte.escape_ascii())
}
