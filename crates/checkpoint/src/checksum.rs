//! XXH64 with seed 0, so that any tool can check a file. It finds damage, not forgery.

use std::hash::Hasher;
use twox_hash::XxHash64;

/// A checksum of bytes that come in pieces; how they are cut does not matter.
#[derive(Clone, Debug, Default)]
pub struct Checksum(XxHash64);

impl Checksum {
    /// Of no bytes yet.
    #[must_use]
    pub fn new() -> Checksum {
        Checksum::default()
    }

    /// Of `bytes` alone.
    #[must_use]
    pub fn of(bytes: &[u8]) -> u64 {
        XxHash64::oneshot(0, bytes)
    }

    /// Takes more bytes in.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The checksum of all bytes so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_reference() {
        // From Python's xxhash 4.1.0: xxhash.xxh64(bytes).intdigest().
        let counting: Vec<u8> = (0..=255).collect();
        for (bytes, want) in [
            (&b""[..], 0xEF46_DB37_51D8_E999),
            (b"a", 0xD24E_C4F1_A98C_6E5B),
            (b"abc", 0x44BC_2CF5_AD77_0999),
            (b"Nobody inspects the spammish repetition", 0xFBCE_A83C_8A37_8BF1),
            (&counting, 0x1FAC_BE84_06CD_904B),
            (&counting[..101], 0xE990_3849_5F85_381E),
        ] {
            assert_eq!(Checksum::of(bytes), want, "{bytes:?}");
        }
    }

    #[test]
    fn cuts_do_not_matter() {
        let bytes: Vec<u8> = (0..200).map(|i: u32| (i * i + 3 * i) as u8).collect();
        for first in 0..bytes.len() {
            for second in [first, first + 1, first + 31, first + 64] {
                let second = second.min(bytes.len());
                let mut checksum = Checksum::new();
                for piece in [&bytes[..first], &bytes[first..second], &bytes[second..]] {
                    checksum.update(piece);
                }
                assert_eq!(checksum.value(), Checksum::of(&bytes), "{first} {second}");
            }
        }
    }
}
