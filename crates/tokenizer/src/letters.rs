//! The letter that represents each byte in vocabularies of byte pairs: a printable byte represents
//! itself, the others start at U+0100.

use std::collections::HashMap;
use std::sync::OnceLock;

struct Letters {
    of_bytes: [char; 256],
    bytes: HashMap<char, u8>,
}

fn letters() -> &'static Letters {
    static LETTERS: OnceLock<Letters> = OnceLock::new();
    LETTERS.get_or_init(|| {
        let mut others = ('\u{100}'..='\u{143}').cycle(); // 68 bytes are not printable
        let of_bytes = std::array::from_fn(|byte| match byte as u8 {
            byte @ (b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) => char::from(byte),
            _ => others.next().unwrap_or_default(),
        });
        Letters { of_bytes, bytes: of_bytes.into_iter().zip(0..=255).collect() }
    })
}

/// The name of a token with these bytes in vocabularies: a letter for each.
#[must_use]
pub fn byte_letters(piece: &[u8]) -> String {
    piece.iter().map(|&byte| letters().of_bytes[usize::from(byte)]).collect()
}

/// The bytes of a name; `None` if a character is not the letter of a byte.
pub fn bytes(name: &str) -> Option<Vec<u8>> {
    name.chars().map(|character| letters().bytes.get(&character).copied()).collect()
}

/// The bytes that a token of this name decodes to: those of its letters, or else the name itself,
/// as in Hugging Face's `ByteLevel` decoder.
pub fn decoded(name: &str) -> Vec<u8> {
    bytes(name).unwrap_or_else(|| name.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_have_a_letter() {
        assert_eq!(byte_letters(b" \n"), "ĠĊ");
        assert_eq!(byte_letters(&[0, 0xad, 0x7f, 0xa0, 0xe9]), "ĀŃġłé");
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(bytes(&byte_letters(&all)), Some(all));
        assert_eq!((bytes("中"), decoded("中")), (None, "中".as_bytes().to_vec()));
    }
}
