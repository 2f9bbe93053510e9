//! FNV-1a with 64 bits, which identifies plans, random streams and cached files. The hashes are
//! stored, so this function must never change.

/// A hash of bytes that arrive in pieces. Where the pieces are cut does not matter.
#[derive(Clone, Copy, Debug)]
pub struct Fnv(u64);

impl Fnv {
    /// The hash of no bytes. Seeds other than 0 give other hashes.
    pub const fn seeded(seed: u64) -> Fnv {
        Fnv(seed ^ 0xcbf2_9ce4_8422_2325)
    }

    /// The hash of these bytes.
    pub fn of(bytes: impl AsRef<[u8]>) -> u64 {
        let mut hash = Fnv::seeded(0);
        hash.add(bytes);
        hash.get()
    }

    /// Hashes more bytes.
    pub fn add(&mut self, bytes: impl AsRef<[u8]>) {
        for &byte in bytes.as_ref() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// The hash so far.
    pub const fn get(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the test vectors of the FNV page (fnv64a).
    #[test]
    fn values_are_those_of_the_reference() {
        for (text, want) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(Fnv::of(text), want, "{text}");
        }
        let mut pieces = Fnv::seeded(0);
        ["foo", "", "bar"].iter().for_each(|piece| pieces.add(piece));
        assert_eq!(pieces.get(), Fnv::of("foobar"));
        assert_ne!(Fnv::seeded(1).get(), Fnv::seeded(0).get());
    }
}
