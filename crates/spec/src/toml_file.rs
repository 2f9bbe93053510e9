//! Reads keys from a flat `.toml` file.

use crate::error::{SpecError, shown};
use crate::value::Value;
use toml::de::{DeInteger, DeTable, DeValue};

/// The largest file: ten bytes of it can take 2.5 kB of memory once parsed.
const MOST_BYTES: usize = 128 << 10;

/// One line of a file.
pub struct Assignment {
    /// The key, not yet looked up.
    pub name: String,
    /// Its value.
    pub value: Value,
    /// Counted from 1.
    pub line: u32,
}

/// All assignments of a file, in its order.
pub fn read(path: &str, text: &str) -> Result<Vec<Assignment>, SpecError> {
    let fault = |at: usize, what: String| SpecError::Toml {
        path: path.to_string(),
        line: line_of(text, at),
        what,
    };
    if text.len() > MOST_BYTES {
        let what = format!(
            "{} bytes, but a config file has at most {MOST_BYTES}; is it another file?",
            text.len()
        );
        return Err(SpecError::Toml { path: path.to_string(), line: 1, what });
    }
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let first = error.message().lines().next().unwrap_or_default().to_string();
        fault(at, format!("{first}; correct the line, e.g. batch_size = 12"))
    })?;
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    let mut found = Vec::new();
    for (name, value) in entries {
        let at = name.span().start;
        let value = plain(value.get_ref()).map_err(|what| {
            let name = shown(name.get_ref());
            fault(at, format!("{name} is {what}; write each key on its own line: key = value"))
        })?;
        let name = name.get_ref().to_string();
        found.push(Assignment { name, value, line: line_of(text, at) });
    }
    Ok(found)
}

fn plain(value: &DeValue<'_>) -> Result<Value, &'static str> {
    match value {
        DeValue::String(text) => Ok(Value::Str(text.to_string())),
        DeValue::Integer(number) => whole(number).ok_or("too large for 63 bits"),
        DeValue::Float(number) => {
            number.as_str().parse().map(Value::Float).map_err(|_| "not a float")
        }
        DeValue::Boolean(flag) => Ok(Value::Bool(*flag)),
        DeValue::Datetime(_) => Err("a date"),
        DeValue::Array(_) => Err("an array"),
        DeValue::Table(_) => Err("a table"),
    }
}

fn whole(number: &DeInteger<'_>) -> Option<Value> {
    i64::from_str_radix(number.as_str(), number.radix()).ok().map(Value::Int)
}

fn line_of(text: &str, at: usize) -> u32 {
    let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
    before.iter().filter(|&&byte| byte == b'\n').count() as u32 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> Result<String, String> {
        let found = read("f.toml", text).map_err(|error| error.to_string())?;
        let shown = |a: &Assignment| format!("{} {}={}", a.line, a.name, a.value);
        Ok(found.iter().map(shown).collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn flat_files_are_read_in_order() {
        let text = "# note\nn_head = 6\nbatch_size = 1_000\nlearning_rate = 6e-4\n\
                    compile = false\nout_dir = \"a\\n\"\nstart = '''x\ny'''\nseed = 0x10\n";
        let want = "2 n_head=6, 3 batch_size=1000, 4 learning_rate=0.0006, 5 compile=False, \
                    6 out_dir='a\\n', 7 start='x\\ny', 9 seed=16";
        assert_eq!(run(text).as_deref(), Ok(want));
    }

    #[test]
    fn the_rest_is_refused_with_its_line() {
        for (text, want) in [
            ("a = 1\n[model]\nn_head = 6\n", "f.toml:2: model is a table; write each key"),
            ("a.b = 1\n", "f.toml:1: a is a table"),
            ("\na = [1, 2]\n", "f.toml:2: a is an array"),
            ("a = {b = 1}\n", "f.toml:1: a is a table"),
            ("a = 2024-01-01\n", "f.toml:1: a is a date"),
            ("a = 99999999999999999999\n", "f.toml:1: a is too large for 63 bits"),
            ("a = 1\na = 2\n", "f.toml:2: duplicate key"),
            ("a = 1\nb = True\n", "f.toml:2: "),
            ("a = \n", "f.toml:1: "),
        ] {
            let error = run(text).unwrap_err();
            assert!(error.starts_with(want), "{text}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
