//! Plain Python values as Rust data, with the few accessors that readers of files need.

/// A Python value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An `int` that fits 64 bits.
    Int(i64),
    /// Any other `int`: little-endian two's complement, as short as possible.
    BigInt(Vec<u8>),
    /// A `float`.
    Float(f64),
    /// A `str`.
    Str(String),
    /// `bytes`, a `bytearray`, or a Python 2 string that is not UTF-8.
    Bytes(Vec<u8>),
    /// A `list`.
    List(Vec<Value>),
    /// A `tuple`.
    Tuple(Vec<Value>),
    /// A `dict` in insertion order. A key that was set twice occurs twice; the later entry is the
    /// one that Python would keep and that [`Value::get`] finds.
    Dict(Vec<(Value, Value)>),
    /// A `set`, in the order of the file.
    Set(Vec<Value>),
    /// A `frozenset`, in the order of the file.
    FrozenSet(Vec<Value>),
    /// A name of a module, as its index in the caller's list. Only from
    /// [`parse_calls`](crate::parse_calls), like the two that follow.
    Global(usize),
    /// A call that Python would make.
    Call(Box<Call>),
    /// What Python would give to `persistent_load`.
    Persistent(Box<Value>),
}

/// A call that Python would make to build an object. It is data here: nothing is called.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// What would be called, as its index in the caller's list.
    pub function: usize,
    /// The arguments.
    pub arguments: Vec<Value>,
    /// What the object's `__setstate__` would get.
    pub state: Option<Value>,
}

impl Value {
    /// The value of a dict's string key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        let is_key = |(k, _): &&(Value, Value)| k.as_str() == Some(key);
        self.as_dict()?.iter().rev().find(is_key).map(|(_, value)| value)
    }

    /// The number, if this is an integer that fits 64 bits. `True` does not count as one.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The text, if this is a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The entries, if this is a dict.
    #[must_use]
    pub fn as_dict(&self) -> Option<&[(Value, Value)]> {
        match self {
            Self::Dict(entries) => Some(entries),
            _ => None,
        }
    }

    /// Python's name of the type.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool(_) => "bool",
            Self::Int(_) | Self::BigInt(_) => "int",
            Self::Float(_) => "float",
            Self::Str(_) => "str",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Dict(_) => "dict",
            Self::Set(_) => "set",
            Self::FrozenSet(_) => "frozenset",
            Self::Global(_) => "type",
            Self::Call(_) => "object",
            Self::Persistent(_) => "persistent object",
        }
    }
}
