//! Philox4x32, the counter-based generator under every keyed draw: with ten rounds, its authors'
//! recommendation, or with seven for dropout.
//!
//! It is a keyed bijection of 128-bit counters: under one key, two different counters never give
//! the same block. So a draw depends on its counter and not on the order of draws. This is the
//! published function (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), so any
//! backend can have its own copy and check it against the same vectors.

const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// Added to the key between rounds: the golden ratio and sqrt(3) - 1, as 32-bit fractions.
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// The four words at `counter` under `key`, by ten rounds.
#[inline(always)]
#[must_use]
pub const fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    philox4x32_rounds::<10>(counter, key)
}

/// The same by `ROUNDS` rounds. Seven are the fewest that pass BigCrush.
#[inline(always)]
pub(crate) const fn philox4x32_rounds<const ROUNDS: u32>(
    counter: [u32; 4],
    key: [u32; 2],
) -> [u32; 4] {
    let mut counter = counter;
    let mut key = key;
    let mut round = 0;
    while round < ROUNDS {
        counter = mix(counter, key);
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        round += 1;
    }
    counter
}

#[inline(always)]
const fn mix([c0, c1, c2, c3]: [u32; 4], [k0, k1]: [u32; 2]) -> [u32; 4] {
    let product_0 = MULTIPLIER[0] as u64 * c0 as u64;
    let product_1 = MULTIPLIER[1] as u64 * c2 as u64;
    [
        (product_1 >> 32) as u32 ^ c1 ^ k0,
        product_1 as u32,
        (product_0 >> 32) as u32 ^ c3 ^ k1,
        product_0 as u32,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of Random123 (`kat_vectors`, philox 4x32 10).
    #[test]
    fn known_answers() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, want) in cases {
            assert_eq!(philox4x32(counter, key), want, "counter {counter:x?}");
        }
    }

    /// Known answers of Random123 (`kat_vectors`, philox 4x32 7).
    #[test]
    fn known_answers_of_seven_rounds() {
        let cases = [
            ([0; 4], [0; 2], [0x5f6f_b709, 0x0d89_3f64, 0x4f12_1f81, 0x4f73_0a48]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x5207_ddc2, 0x4516_5e59, 0x4d8e_e751, 0x8c52_f662]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0x4dfc_caba, 0x190a_87f0, 0xc473_62ba, 0xb6b5_242a],
            ),
        ];
        for (counter, key, want) in cases {
            assert_eq!(philox4x32_rounds::<7>(counter, key), want, "counter {counter:x?}");
        }
    }
}
