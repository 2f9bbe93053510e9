//! The part of Python's f-strings that names of runs and folders use: `{name}`, arithmetic in
//! braces, `{{`, and common number formats (`.2f`, `.0e`, `03d`, `,`, `.1%`). An unknown format is
//! an error, never a guess.

use crate::error::shown;
use crate::value::Value;

/// A piece of an f-string.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Literal text.
    Text(String),
    /// `{expression}` or `{expression:format}`.
    Field {
        /// Python source.
        expression: String,
        /// The text after the colon; empty without one.
        format: String,
    },
}

/// The widest field that is accepted; a name has far fewer characters.
const WIDEST: usize = 100;

/// Splits the text between the quotes into literals and fields.
pub fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut found = Vec::new();
    let mut plain = String::new();
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '{' | '}' if rest.peek() == Some(&letter) => {
                rest.next();
                plain.push(letter);
            }
            '{' => {
                found.push(Piece::Text(std::mem::take(&mut plain)));
                let mut field = String::new();
                let closed = rest.by_ref().any(|next| {
                    let ends = next == '}';
                    if !ends {
                        field.push(next);
                    }
                    ends
                });
                found.push(field_of(&field, closed)?);
            }
            '}' => return Err("an f-string with a single `}`".to_string()),
            _ => plain.push(letter),
        }
    }
    found.push(Piece::Text(plain));
    Ok(found)
}

fn field_of(field: &str, closed: bool) -> Result<Piece, String> {
    let (expression, format) = field.split_once(':').unwrap_or((field, ""));
    if !closed || expression.trim().is_empty() {
        return Err("an f-string with an empty or unclosed `{`".to_string());
    }
    if expression.contains(['!', '=', '{']) || format.contains('{') {
        return Err(format!("the f-string field `{{{}}}`", shown(field)));
    }
    Ok(Piece::Field { expression: expression.trim().to_string(), format: format.to_string() })
}

/// Formats a value like Python's `format(value, format)`; none if the format is unknown.
pub fn formatted(value: &Value, format: &str) -> Option<String> {
    if format.is_empty() {
        return Some(value.plain());
    }
    let zeros = format.starts_with('0');
    let digits =
        |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (width, rest) = format.split_at(digits(format));
    let width = if width.is_empty() { 0 } else { width.parse().ok()? };
    let (commas, rest) = match rest.strip_prefix(',') {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let (places, kind) = match rest.strip_prefix('.') {
        Some(rest) => {
            let (places, kind) = rest.split_at(digits(rest));
            (Some(places.parse::<usize>().ok()?), kind)
        }
        None => (None, rest),
    };
    let is_text = matches!(value, Value::Str(_));
    // Python has special rules for zeros with commas and for zeros before text.
    if width > WIDEST
        || places.is_some_and(|places| places > WIDEST)
        || zeros && (commas || is_text)
    {
        return None;
    }
    let text = number(value, kind, places)?;
    let text = if commas { with_commas(&text) } else { text };
    Some(padded(text, width, zeros, is_text))
}

fn number(value: &Value, kind: &str, places: Option<usize>) -> Option<String> {
    let float = match value {
        Value::Int(number) => Some(*number as f64),
        Value::Float(number) => Some(*number).filter(|number| number.is_finite()),
        Value::Bool(_) | Value::Str(_) => None,
    };
    match (kind, value, places) {
        ("" | "d", Value::Int(number), None) => Some(number.to_string()),
        ("" | "s", Value::Str(text), None) => Some(text.clone()),
        ("f", _, places) => float.map(|x| format!("{x:.*}", places.unwrap_or(6))),
        ("%", _, places) => float.map(|x| format!("{:.*}%", places.unwrap_or(6), 100.0 * x)),
        ("e", _, places) => float.map(|x| scientific(x, places.unwrap_or(6))),
        _ => None,
    }
}

/// Like Python, with a sign and at least two digits in the exponent.
fn scientific(number: f64, places: usize) -> String {
    let text = format!("{number:.places$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

fn with_commas(text: &str) -> String {
    let end = text.find('.').unwrap_or(text.len());
    let start = usize::from(text.starts_with('-'));
    let mut out = text[..start].to_string();
    for (index, digit) in text[start..end].chars().enumerate() {
        if index > 0 && (end - start - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + &text[end..]
}

/// Pads numbers on the left, text on the right.
fn padded(text: String, width: usize, zeros: bool, is_text: bool) -> String {
    let missing = width.saturating_sub(text.chars().count());
    match (zeros, is_text, text.strip_prefix('-')) {
        (_, true, _) => text + &" ".repeat(missing),
        (true, false, Some(digits)) => format!("-{}{digits}", "0".repeat(missing)),
        (true, false, None) => "0".repeat(missing) + &text,
        (false, false, _) => " ".repeat(missing) + &text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Python 3 prints.
    #[test]
    fn formats_match_python() {
        for (value, format, want) in [
            (Value::Int(12), "", "12"),
            (Value::Int(12), "d", "12"),
            (Value::Int(12), "05d", "00012"),
            (Value::Int(-12), "05d", "-0012"),
            (Value::Int(12), "5", "   12"),
            (Value::Int(1_234_567), ",", "1,234,567"),
            (Value::Int(12), ".1f", "12.0"),
            (Value::Float(6e-4), "", "0.0006"),
            (Value::Float(6e-4), ".0e", "6e-04"),
            (Value::Float(0.125), ".2f", "0.12"),
            (Value::Float(1234.5), ",.1f", "1,234.5"),
            (Value::Float(0.25), ".1%", "25.0%"),
            (Value::Str("ab".into()), "4s", "ab  "),
            (Value::Bool(true), "", "True"),
        ] {
            assert_eq!(formatted(&value, format).as_deref(), Some(want), "{value}:{format}");
        }
        for (value, format) in [
            (Value::Int(1), "x"),
            (Value::Int(1), ">4"),
            (Value::Float(1.0), ".3g"),
            (Value::Str("a".into()), ".1f"),
            (Value::Int(1), "999999999d"),
            (Value::Int(1), "."),
            (Value::Int(1234), "010,"),
            (Value::Str("a".into()), "05"),
        ] {
            assert_eq!(formatted(&value, format), None, "{value}:{format}");
        }
    }

    #[test]
    fn braces_are_read_as_python_reads_them() {
        let field = |expression: &str, format: &str| Piece::Field {
            expression: expression.to_string(),
            format: format.to_string(),
        };
        let text = |text: &str| Piece::Text(text.to_string());
        assert_eq!(
            pieces("a-{n_embd}x{ 2*3 :03d}{{z}}"),
            Ok(vec![text("a-"), field("n_embd", ""), text("x"), field("2*3", "03d"), text("{z}")])
        );
        assert_eq!(pieces("{{{x}").unwrap()[1], field("x", ""));
        for bad in ["{", "{}", "a}", "{x!r}", "{x=}", "{x:{y}}", "{a", "}}{x"] {
            assert!(pieces(bad).is_err(), "{bad}");
        }
    }
}
