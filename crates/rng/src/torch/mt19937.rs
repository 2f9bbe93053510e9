//! The Mersenne Twister MT19937 (Matsumoto and Nishimura 1998), PyTorch's engine.
//!
//! It makes 624 words at a time, in branch-free loops that the compiler vectorizes, and copies them
//! out in runs. Skipping words costs no more than making them.

/// Words of state, and also words made at a time.
pub const WORDS: usize = 624;
/// How many words ahead the recurrence looks.
const REACH: usize = 397;
const TURN: usize = WORDS - REACH;

/// The engine. `index` counts the used words of the current block, so `index <= WORDS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mt19937 {
    pub(super) words: [u32; WORDS],
    pub(super) index: usize,
}

impl Mt19937 {
    /// The reference's `init_genrand`. As in PyTorch, only the low 32 bits of the seed count.
    pub(super) fn new(seed: u64) -> Self {
        let mut words = [0; WORDS];
        let mut word = seed as u32;
        for (place, slot) in words.iter_mut().enumerate() {
            if place > 0 {
                word = (word ^ word >> 30).wrapping_mul(1_812_433_253).wrapping_add(place as u32);
            }
            *slot = word;
        }
        Self { words, index: WORDS }
    }

    pub(super) fn next(&mut self) -> u32 {
        if self.index >= WORDS {
            self.next_block();
        }
        let word = temper(self.words[self.index]);
        self.index += 1;
        word
    }

    /// Writes the next `out.len()` words, each through `convert`.
    #[inline]
    pub(super) fn fill<T>(&mut self, mut out: &mut [T], convert: impl Fn(u32) -> T) {
        while !out.is_empty() {
            if self.index >= WORDS {
                self.next_block();
            }
            let ready = &self.words[self.index..];
            let run = ready.len().min(out.len());
            let (now, later) = out.split_at_mut(run);
            for (slot, &word) in now.iter_mut().zip(ready) {
                *slot = convert(temper(word));
            }
            self.index += run;
            out = later;
        }
    }

    /// Skips `count` words.
    pub(super) fn skip(&mut self, mut count: u64) {
        loop {
            let ready = (WORDS - self.index) as u64;
            if count <= ready {
                self.index += count as usize;
                return;
            }
            count -= ready;
            self.next_block();
        }
    }

    fn next_block(&mut self) {
        let words = &mut self.words;
        for i in 0..TURN {
            words[i] = words[i + REACH] ^ twist(words[i], words[i + 1]);
        }
        for i in TURN..WORDS - 1 {
            words[i] = words[i - TURN] ^ twist(words[i], words[i + 1]);
        }
        words[WORDS - 1] = words[REACH - 1] ^ twist(words[WORDS - 1], words[0]);
        self.index = 0;
    }
}

#[inline(always)]
fn twist(high: u32, low: u32) -> u32 {
    let mixed = high & 0x8000_0000 | low & 0x7fff_ffff;
    (mixed >> 1) ^ ((low & 1).wrapping_neg() & 0x9908_b0df)
}

#[inline(always)]
fn temper(word: u32) -> u32 {
    let word = word ^ word >> 11;
    let word = word ^ word << 7 & 0x9d2c_5680;
    let word = word ^ word << 15 & 0xefc6_0000;
    word ^ word >> 18
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_words() {
        let want = [
            1125387415, 2407456957, 681542492, 913057000, 1194544295, 2332513753, 1972751015,
            145906010,
        ];
        let mut engine = Mt19937::new(1337);
        for word in want {
            assert_eq!(engine.next(), word);
        }
    }

    /// The C++ standard's check of `std::mt19937`: word 10,000 of seed 5489.
    #[test]
    fn ten_thousandth_word() {
        let mut engine = Mt19937::new(5489);
        engine.skip(9999);
        assert_eq!(engine.next(), 4123659995);
    }

    #[test]
    fn fill_and_skip_equal_single_draws() {
        let mut single = Mt19937::new(3);
        let want: Vec<u32> = (0..5000).map(|_| single.next()).collect();
        for start in [0, 1, 5, 623, 624, 625, 1248, 2000] {
            for length in [0, 1, 16, 623, 624, 625, 1300] {
                let mut engine = Mt19937::new(3);
                engine.skip(start as u64);
                let mut got = vec![0; length];
                engine.fill(&mut got, |word| word);
                assert_eq!(got, want[start..start + length], "{start} {length}");
                assert_eq!(engine.next(), want[start + length]);
            }
        }
    }
}
