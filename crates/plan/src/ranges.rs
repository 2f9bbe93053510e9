//! A value for every byte of an address range. Neighbouring bytes with the same value share one
//! entry.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint ranges with one value each. Bytes that were never changed have the default.
#[derive(Debug, Default)]
pub(crate) struct Ranges<T> {
    /// The only range, as long as every change was to this one: most tensors are touched whole, and
    /// a plan has thousands.
    only: Option<(Range<u64>, T)>,
    /// Otherwise start → (end, value).
    parts: BTreeMap<u64, (u64, T)>,
}

impl<T: Copy + Default> Ranges<T> {
    /// Changes the value of every byte in a range. `change` is called once for each part with one
    /// value.
    pub(crate) fn change(&mut self, range: Range<u64>, mut change: impl FnMut(&mut T)) {
        if range.is_empty() {
            return;
        }
        if self.parts.is_empty() {
            let (only, value) = self.only.get_or_insert_with(|| (range.clone(), T::default()));
            if *only == range {
                change(value);
                return;
            }
        }
        if let Some((only, value)) = self.only.take() {
            self.parts.insert(only.start, (only.end, value));
        }
        self.cut(range.start);
        self.cut(range.end);
        let (mut at, mut gaps) = (range.start, Vec::new());
        for (&start, (end, value)) in self.parts.range_mut(range.clone()) {
            if at < start {
                gaps.push(at..start);
            }
            change(value);
            at = *end;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        for gap in gaps {
            let mut value = T::default();
            change(&mut value);
            self.parts.insert(gap.start, (gap.end, value));
        }
    }

    /// Splits the part that contains this byte, so that one part ends here.
    fn cut(&mut self, at: u64) {
        let below = self.parts.range_mut(..at).next_back();
        if let Some((_, (end, value))) = below.filter(|(_, (end, _))| *end > at) {
            let behind = (*end, *value);
            *end = at;
            self.parts.insert(at, behind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_the_value_that_it_was_given() {
        for changes in [
            &[2..5, 4..9, 0..1, 3..4, 0..12, 5..5, 6..7][..],
            &[5..5, 2..5, 2..5, 4..4, 9..12, 2..5],
            &[0..12, 0..12, 0..6],
            &[2..5, 2..5],
        ] {
            let mut ranges = Ranges::<u32>::default();
            let mut bytes = [0u32; 12];
            for (step, range) in changes.iter().enumerate() {
                let bit = 1 << step;
                ranges.change(range.clone(), |value| *value |= bit);
                bytes[range.start as usize..range.end as usize].iter_mut().for_each(|b| *b |= bit);
            }
            for (at, byte) in bytes.iter().enumerate() {
                let mut found = Vec::new();
                ranges.change(at as u64..at as u64 + 1, |value| found.push(*value));
                assert_eq!(found, [*byte], "{at} of {changes:?}");
            }
        }
    }
}
