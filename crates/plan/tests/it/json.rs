//! A strict reader of the JSON that the bill is made of: objects, arrays, strings and whole
//! numbers, and nothing behind the document.

use std::iter::Peekable;
use std::str::Chars;

/// A value.
#[derive(Debug, PartialEq)]
pub enum Json {
    /// Fields in order.
    Object(Vec<(String, Json)>),
    /// Items in order.
    Array(Vec<Json>),
    /// Text without its escapes.
    Text(String),
    /// A whole number.
    Number(u64),
}

impl Json {
    /// The document, or where it is malformed.
    pub fn parse(text: &str) -> Result<Json, String> {
        let mut rest = text.chars().peekable();
        let value = value(&mut rest)?;
        match rest.next() {
            None => Ok(value),
            Some(c) => Err(format!("{c:?} behind the document")),
        }
    }

    /// A field of an object.
    pub fn at(&self, name: &str) -> &Json {
        let mut named = self.fields().iter().filter(|(field, _)| field == name);
        let (_, value) = named.next().expect(name);
        assert!(named.next().is_none(), "{name} twice");
        value
    }

    /// An object's fields.
    pub fn fields(&self) -> &[(String, Json)] {
        let Json::Object(fields) = self else { return &[] };
        fields
    }

    /// An array's items.
    pub fn items(&self) -> &[Json] {
        let Json::Array(items) = self else { return &[] };
        items
    }

    /// A string's text.
    pub fn text(&self) -> &str {
        let Json::Text(text) = self else { return "not a string" };
        text
    }

    /// A number's value.
    pub fn number(&self) -> u64 {
        let Json::Number(number) = self else { return u64::MAX };
        *number
    }
}

type Rest<'a> = Peekable<Chars<'a>>;

fn value(rest: &mut Rest<'_>) -> Result<Json, String> {
    match rest.peek() {
        Some('{') => Ok(Json::Object(list(rest, ['{', '}'], |rest| {
            let name = string(rest)?;
            expect(rest, ':')?;
            Ok((name, value(rest)?))
        })?)),
        Some('[') => Ok(Json::Array(list(rest, ['[', ']'], value)?)),
        Some('"') => Ok(Json::Text(string(rest)?)),
        Some('0'..='9') => number(rest),
        other => Err(format!("{other:?} starts no value")),
    }
}

fn expect(rest: &mut Rest<'_>, wanted: char) -> Result<(), String> {
    match rest.next() {
        Some(c) if c == wanted => Ok(()),
        other => Err(format!("{other:?} instead of {wanted:?}")),
    }
}

fn list<T>(
    rest: &mut Rest<'_>,
    [open, close]: [char; 2],
    item: fn(&mut Rest<'_>) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    expect(rest, open)?;
    let mut items = Vec::new();
    if rest.next_if_eq(&close).is_some() {
        return Ok(items);
    }
    loop {
        items.push(item(rest)?);
        if rest.next_if_eq(&',').is_none() {
            expect(rest, close)?;
            return Ok(items);
        }
    }
}

fn number(rest: &mut Rest<'_>) -> Result<Json, String> {
    let mut digits = String::new();
    while let Some(digit) = rest.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    if digits.len() > 1 && digits.starts_with('0') {
        return Err(format!("{digits} has a leading zero"));
    }
    digits.parse().map(Json::Number).map_err(|error| format!("{digits}: {error}"))
}

fn string(rest: &mut Rest<'_>) -> Result<String, String> {
    expect(rest, '"')?;
    let mut text = String::new();
    loop {
        match rest.next() {
            Some('"') => return Ok(text),
            Some('\\') => text.push(escape(rest)?),
            Some(c) if u32::from(c) >= 0x20 => text.push(c),
            other => return Err(format!("{other:?} inside a string")),
        }
    }
}

fn escape(rest: &mut Rest<'_>) -> Result<char, String> {
    match rest.next() {
        Some(c @ ('"' | '\\')) => Ok(c),
        Some('u') => {
            let digits: String = rest.by_ref().take(4).collect();
            let code = u32::from_str_radix(&digits, 16).map_err(|error| error.to_string())?;
            char::from_u32(code).ok_or_else(|| format!("{code:x} is no character"))
        }
        other => Err(format!("{other:?} is no escape")),
    }
}

#[test]
fn malformed_documents_are_refused() {
    for text in ["", "{", "[1,]", "{\"a\":1,}", "[1 2]", "\"a", "\"\n\"", "[1]x", "01", "{a:1}"] {
        assert!(Json::parse(text).is_err(), "{text}");
    }
    let json = Json::parse("{\"a\":[1,{},\"\\u000a\\\"\"]}").unwrap();
    assert_eq!(json.at("a").items()[2].text(), "\n\"");
}
