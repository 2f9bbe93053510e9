//! Parses untrusted JSON within a memory limit. The limit is needed because a zero in a list is two
//! bytes of text, but fifty times that as a value. The parser stops as soon as the values would
//! exceed the limit; it does not build them first.

use serde_core::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::Cell;
use std::fmt;

/// Bytes charged for one value in a list. While a list grows, the old buffer and a new one of twice
/// the size exist together.
const ELEMENT: usize = 3 * size_of::<Value>();

/// Bytes charged for one entry of an object, including its key, its hash and its slot in the index.
const ENTRY: usize = ELEMENT + 3 * (size_of::<String>() + 8 + 16);

/// Rough overhead of the allocator for each string, list or object.
const ALLOCATION: usize = 64;

/// Parses JSON whose values take at most `memory` bytes.
///
/// # Errors
///
/// When the text is not JSON, or its values need more memory. The second error has category `Data`.
pub fn parse(json: &[u8], memory: usize) -> serde_json::Result<Value> {
    let budget = Budget { left: Cell::new(memory), memory };
    let mut reader = serde_json::Deserializer::from_slice(json);
    let value = (&budget).deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Checks that a text is JSON without building its values.
///
/// # Errors
///
/// When it is not JSON.
pub fn check(json: &str) -> serde_json::Result<()> {
    serde_json::from_str::<serde_core::de::IgnoredAny>(json).map(drop)
}

/// The memory limit, and how much of it is left.
struct Budget {
    left: Cell<usize>,
    memory: usize,
}

impl Budget {
    fn take<E: Error>(&self, bytes: usize) -> Result<(), E> {
        let left = self.left.get().checked_sub(bytes).ok_or_else(|| {
            E::custom(format!("its values would take more than {} bytes of memory", self.memory))
        })?;
        self.left.set(left);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for &Budget {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &Budget {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.take(text.len().saturating_add(ALLOCATION))?;
        Ok(Value::from(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        self.take(ALLOCATION)?;
        while let Some(value) = list.next_element_seed(self)? {
            self.take(ELEMENT)?;
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut entries = Map::new();
        self.take(2 * ALLOCATION)?;
        while let Some(key) = object.next_key::<String>()? {
            self.take(ENTRY + ALLOCATION + key.len())?;
            let value = object.next_value_seed(self)?;
            entries.insert(key, value);
        }
        Ok(Value::Object(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_serde_json() {
        for text in [
            "null",
            " [1, -2, 3.5e300, true, false, \"\\u00e9\\n\"] ",
            "{\"b\": {\"a\": []}, \"a\": {}, \"b\": 18446744073709551615}",
            "[[[[[[[[]]]]]]]]",
            "0.1",
        ] {
            let want: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parse(text.as_bytes(), 1 << 20).unwrap(), want, "{text}");
        }
        for text in ["", "[1,", "{\"a\"}", "[1] 2", "{", "nul", "1e999"] {
            let want = serde_json::from_str::<Value>(text).unwrap_err();
            let found = parse(text.as_bytes(), 1 << 20).unwrap_err();
            assert_eq!(found.to_string(), want.to_string(), "{text}");
            assert_eq!(check(text).is_ok(), text == "1e999", "{text}");
        }
        assert!(parse("[".repeat(1000).as_bytes(), 1 << 20).is_err());
    }

    #[test]
    fn what_needs_more_is_refused() {
        let list = format!("[{}0]", "0,".repeat(999));
        assert!(parse(list.as_bytes(), 1000 * ELEMENT + ALLOCATION).is_ok());
        for (text, memory) in [
            (list.as_str(), 1000 * ELEMENT),
            ("{\"a\":{\"a\":{}}}", 2 * ENTRY),
            ("[[],[],[]]", 3 * ELEMENT),
            ("\"aaaa\"", 3),
        ] {
            let error = parse(text.as_bytes(), memory).unwrap_err();
            assert!(error.is_data(), "{error}");
            assert!(error.to_string().contains(&format!("more than {memory} bytes")), "{error}");
        }
    }
}
