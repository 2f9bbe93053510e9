//! A value as the user types it, and its Python spelling, which messages, logs and documents use.

use std::fmt;

/// What a key can hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// True or False.
    Bool(bool),
    /// Text.
    Str(String),
}

impl Value {
    /// The name of its type, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Int(_) => "a whole number",
            Value::Float(_) => "a float",
            Value::Bool(_) => "a bool",
            Value::Str(_) => "a string",
        }
    }

    /// Python's `str(value)`: text without quotes.
    pub fn plain(&self) -> String {
        match self {
            Value::Str(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Str(text)
    }
}

impl fmt::Display for Value {
    /// Python's `repr(value)`: reading it back gives the same value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(number) => write!(f, "{number}"),
            Value::Float(number) => f.write_str(&float_text(*number)),
            Value::Bool(true) => f.write_str("True"),
            Value::Bool(false) => f.write_str("False"),
            Value::Str(text) => f.write_str(&quoted(text)),
        }
    }
}

/// The shortest digits that parse to the same number; scientific outside 1e-4 to 1e16.
fn float_text(number: f64) -> String {
    if !number.is_finite() {
        let text = if number.is_nan() { "nan" } else { "inf" };
        return if number < 0.0 { format!("-{text}") } else { text.to_string() };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => {
            let fixed = number.to_string();
            if fixed.contains('.') { fixed } else { fixed + ".0" }
        }
    }
}

fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for letter in text.chars() {
        match letter {
            '\n' => out += "\\n",
            '\r' => out += "\\r",
            '\t' => out += "\\t",
            '\\' => out += "\\\\",
            _ if letter == quote => out.extend(['\\', letter]),
            _ if letter.is_control() => out += &escaped(letter),
            _ => out.push(letter),
        }
    }
    out.push(quote);
    out
}

/// Control characters are all below U+0100.
fn escaped(letter: char) -> String {
    format!("\\x{:02x}", u32::from(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_spelled_as_python_spells_them() {
        for (value, want) in [
            (Value::Float(6e-4), "0.0006"),
            (Value::Float(6e-5), "6e-05"),
            (Value::Float(1e16), "1e+16"),
            (Value::Float(1.5e300), "1.5e+300"),
            (Value::Float(1e15), "1000000000000000.0"),
            (Value::Float(-0.0), "-0.0"),
            (Value::Float(0.1), "0.1"),
            (Value::Float(1731668389.123), "1731668389.123"),
            (Value::Float(f64::INFINITY), "inf"),
            (Value::Float(f64::NEG_INFINITY), "-inf"),
            (Value::Float(f64::NAN), "nan"),
            (Value::Int(-3), "-3"),
            (Value::Bool(true), "True"),
            (Value::Str("\n".into()), r"'\n'"),
            (Value::Str("it's".into()), "\"it's\""),
            (Value::Str("it's \"x\"".into()), r#"'it\'s "x"'"#),
            (Value::Str("\u{1b}é\\".into()), r"'\x1bé\\'"),
        ] {
            assert_eq!(value.to_string(), want);
        }
        assert_eq!(Value::Str("a'b".into()).plain(), "a'b");
    }
}
