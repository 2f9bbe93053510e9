//! Streaming JSON: keeps the values that a type asks for and skips everything else.
//!
//! A tree of all values takes ten to forty times the memory of its text, so a hostile file could
//! exhaust it. Here each type declares what it keeps. Nesting deeper than 128 is an error.

#![forbid(unsafe_code)]

mod weight_files;

pub use weight_files::{MOST_INDEX_BYTES, weight_files};

use serde_core::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Bytes of a string that a [`Scalar`] keeps; enough for known words and for messages.
const SHOWN: usize = 200;

/// A value without parts, borrowed while it is parsed.
pub enum ScalarRef<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A non-negative integer.
    Whole(u64),
    /// Any other number.
    Number(f64),
    /// A string.
    Text(&'a str),
}

/// A type that keeps parts of a JSON value of any kind.
pub trait Pick: Default {
    /// The value is an object or a list; its parts follow.
    fn container(&mut self) {}

    /// A field of an object: takes its value from `map`.
    ///
    /// # Errors
    ///
    /// The map's.
    fn field<'de, M: MapAccess<'de>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        let _ = name;
        map.next_value::<IgnoredAny>().map(drop)
    }

    /// Reads the next element of a list; `None` at its end.
    ///
    /// # Errors
    ///
    /// The list's.
    fn element<'de, S: SeqAccess<'de>>(&mut self, list: &mut S) -> Result<Option<()>, S::Error> {
        Ok(list.next_element::<IgnoredAny>()?.map(drop))
    }

    /// The value is a scalar.
    fn scalar(&mut self, found: ScalarRef<'_>) {
        let _ = found;
    }
}

/// Parses a whole text.
///
/// # Errors
///
/// When the text is not JSON.
pub fn read<T: Pick>(bytes: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice::<Picked<T>>(bytes).map(|picked| picked.0)
}

/// The next value of an object.
///
/// # Errors
///
/// The map's.
pub fn value<'de, T: Pick, M: MapAccess<'de>>(map: &mut M) -> Result<T, M::Error> {
    map.next_value::<Picked<T>>().map(|picked| picked.0)
}

/// The next element of a list.
///
/// # Errors
///
/// The list's.
pub fn element<'de, T: Pick, S: SeqAccess<'de>>(list: &mut S) -> Result<Option<T>, S::Error> {
    Ok(list.next_element::<Picked<T>>()?.map(|picked| picked.0))
}

struct Picked<T>(T);

impl<'de, T: Pick> Deserialize<'de> for Picked<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any(PhantomData)).map(Picked)
    }
}

struct Any<T>(PhantomData<T>);

impl<T: Pick> Any<T> {
    fn of(found: ScalarRef<'_>) -> T {
        let mut value = T::default();
        value.scalar(found);
        value
    }
}

impl<'de, T: Pick> Visitor<'de> for Any<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        Ok(Self::of(ScalarRef::Null))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<T, E> {
        Ok(Self::of(ScalarRef::Bool(value)))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        Ok(Self::of(ScalarRef::Whole(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        Ok(Self::of(ScalarRef::Number(value as f64)))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        Ok(Self::of(ScalarRef::Number(value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<T, E> {
        Ok(Self::of(ScalarRef::Text(value)))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<T, S::Error> {
        let mut value = T::default();
        value.container();
        while value.element(&mut list)?.is_some() {}
        Ok(value)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<T, M::Error> {
        let mut value = T::default();
        value.container();
        while let Some(name) = map.next_key::<String>()? {
            value.field(&name, &mut map)?;
        }
        Ok(value)
    }
}

/// A value of which only a string or a number is needed.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Scalar {
    /// Missing or `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A non-negative integer.
    Whole(u64),
    /// Any other number.
    Number(f64),
    /// A string, shortened if it is long.
    Text(String),
    /// An object or a list.
    Container,
}

impl Scalar {
    /// The string, if it is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, if it is a non-negative one.
    #[must_use]
    pub fn whole(&self) -> Option<u64> {
        match self {
            Scalar::Whole(number) => Some(*number),
            _ => None,
        }
    }
}

impl Pick for Scalar {
    fn container(&mut self) {
        *self = Scalar::Container;
    }

    fn scalar(&mut self, found: ScalarRef<'_>) {
        *self = match found {
            ScalarRef::Null => Scalar::Null,
            ScalarRef::Bool(value) => Scalar::Bool(value),
            ScalarRef::Whole(value) => Scalar::Whole(value),
            ScalarRef::Number(value) => Scalar::Number(value),
            ScalarRef::Text(text) => {
                Scalar::Text(text[..text.floor_char_boundary(SHOWN)].to_owned())
            }
        };
    }
}
