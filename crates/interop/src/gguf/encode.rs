//! The bytes of a GGUF file before its weights, version 3: counts, typed key-value pairs, and a
//! list of tensors with dimensions from the innermost, type and offset. All is little-endian.

/// What every file starts with.
const MAGIC: &[u8; 4] = b"GGUF";

const VERSION: u32 = 3;

/// Offsets of tensors are multiples of this, which is the format's default.
pub(crate) const ALIGNMENT: u64 = 32;

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    Ints(Vec<i32>),
}

/// Element types of tensors, with the format's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32 = 0,
    F16 = 1,
    Bf16 = 30,
}

/// A tensor as the header lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub name: String,
    /// The slowest-varying dimension first.
    pub shape: Vec<u64>,
    pub kind: Kind,
    pub bytes: u64,
}

/// Everything before the first tensor, padded to the alignment.
pub(crate) fn header(pairs: &[(String, Value)], tensors: &[Listed]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend((pairs.len() as u64).to_le_bytes());
    for (key, value) in pairs {
        text(&mut bytes, key);
        put(&mut bytes, value);
    }
    let mut offset = 0u64;
    for tensor in tensors {
        text(&mut bytes, &tensor.name);
        bytes.extend((tensor.shape.len() as u32).to_le_bytes());
        for extent in tensor.shape.iter().rev() {
            bytes.extend(extent.to_le_bytes());
        }
        bytes.extend((tensor.kind as u32).to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        offset = offset.saturating_add(padded(tensor.bytes));
    }
    bytes.resize(padded(bytes.len() as u64) as usize, 0);
    bytes
}

/// Rounded up to the alignment.
pub(crate) fn padded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX)
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// The format's numbers of the types.
const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const BOOL: u32 = 7;
const TEXT: u32 = 8;
const LIST: u32 = 9;

fn put(bytes: &mut Vec<u8>, value: &Value) {
    let list = |bytes: &mut Vec<u8>, kind: u32, count: usize| {
        bytes.extend([LIST, kind].iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend((count as u64).to_le_bytes());
    };
    let start = |bytes: &mut Vec<u8>, kind: u32| bytes.extend(kind.to_le_bytes());
    match value {
        Value::U32(number) => {
            start(bytes, U32);
            bytes.extend(number.to_le_bytes());
        }
        Value::F32(number) => {
            start(bytes, F32);
            bytes.extend(number.to_le_bytes());
        }
        Value::Bool(flag) => {
            start(bytes, BOOL);
            bytes.push(u8::from(*flag));
        }
        Value::Text(word) => {
            start(bytes, TEXT);
            text(bytes, word);
        }
        Value::Texts(words) => {
            list(bytes, TEXT, words.len());
            words.iter().for_each(|word| text(bytes, word));
        }
        Value::Ints(numbers) => {
            list(bytes, I32, numbers.len());
            bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_these_bytes() {
        let pairs = [
            ("a".to_owned(), Value::U32(7)),
            ("b".to_owned(), Value::Texts(vec!["x".to_owned(), "yz".to_owned()])),
            ("c".to_owned(), Value::Bool(true)),
            ("d".to_owned(), Value::Ints(vec![-1])),
            ("e".to_owned(), Value::F32(1.0)),
            ("f".to_owned(), Value::Text("t".to_owned())),
        ];
        let tensor = |name: &str, shape: &[u64], kind, bytes| Listed {
            name: name.to_owned(),
            shape: shape.to_vec(),
            kind,
            bytes,
        };
        let tensors = [tensor("w", &[2, 3], Kind::Bf16, 12), tensor("n", &[5], Kind::F32, 20)];
        let mut want = b"GGUF".to_vec();
        let mut put = |bytes: &[u8]| want.extend_from_slice(bytes);
        put(&[3, 0, 0, 0]);
        put(&2u64.to_le_bytes());
        put(&6u64.to_le_bytes());
        let key = |name: u8| [1, 0, 0, 0, 0, 0, 0, 0, name];
        put(&key(b'a'));
        put(&[4, 0, 0, 0, 7, 0, 0, 0]);
        put(&key(b'b'));
        put(&[9, 0, 0, 0, 8, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        put(&key(b'x'));
        put(&[2, 0, 0, 0, 0, 0, 0, 0, b'y', b'z']);
        put(&key(b'c'));
        put(&[7, 0, 0, 0, 1]);
        put(&key(b'd'));
        put(&[9, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255]);
        put(&key(b'e'));
        put(&[6, 0, 0, 0, 0, 0, 128, 63]);
        put(&key(b'f'));
        put(&[8, 0, 0, 0]);
        put(&key(b't'));
        put(&key(b'w'));
        put(&[2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 30, 0, 0, 0]);
        put(&0u64.to_le_bytes());
        put(&key(b'n'));
        put(&[1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        put(&32u64.to_le_bytes());
        want.resize(want.len().next_multiple_of(32), 0);
        assert_eq!(header(&pairs, &tensors), want);
    }
}
