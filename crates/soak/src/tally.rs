//! Counters: sums and maxima by name. Workers send them as lines, and the supervisor adds them up.

use std::collections::BTreeMap;

/// Counts of a section.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Sums: cases, kills, inputs of a reader.
    pub sums: BTreeMap<String, u64>,
    /// Maxima: memory ratios, times.
    pub maxima: BTreeMap<String, f64>,
}

impl Tally {
    /// Adds one to a sum.
    pub fn count(&mut self, name: &str) {
        self.add(name, 1);
    }

    /// Adds to a sum.
    pub fn add(&mut self, name: &str, more: u64) {
        let sum = self.sums.entry(name.to_owned()).or_default();
        *sum = sum.saturating_add(more);
    }

    /// Raises a maximum to `value` if that is larger.
    pub fn most(&mut self, name: &str, value: f64) {
        let most = self.maxima.entry(name.to_owned()).or_insert(value);
        *most = most.max(value);
    }

    /// A sum; 0 if nothing was counted.
    pub fn sum(&self, name: &str) -> u64 {
        self.sums.get(name).copied().unwrap_or(0)
    }

    /// Drains all counters into lines of text.
    pub fn take_lines(&mut self) -> String {
        let Tally { sums, maxima } = std::mem::take(self);
        let sums = sums.iter().map(|(name, sum)| format!("sum\t{name}\t{sum}\n"));
        let maxima = maxima.iter().map(|(name, most)| format!("most\t{name}\t{most}\n"));
        sums.chain(maxima).collect()
    }

    /// Adds a line of [`Tally::take_lines`]; returns false if it is not one.
    pub fn take_in(&mut self, line: &str) -> bool {
        let mut parts = line.split('\t');
        let (kind, name, value) = (parts.next(), parts.next(), parts.next());
        match (kind, name, value) {
            (Some("sum"), Some(name), Some(value)) => {
                value.parse().map(|more| self.add(name, more)).is_ok()
            }
            (Some("most"), Some(name), Some(value)) => {
                value.parse().map(|value| self.most(name, value)).is_ok()
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_carry_everything_once() {
        let mut sent = Tally::default();
        sent.count("cases");
        sent.add("cases", 4);
        sent.most("ms", 2.5);
        sent.most("ms", 1.0);
        let want = sent.clone();
        let mut got = Tally::default();
        assert!(sent.take_lines().lines().all(|line| got.take_in(line)));
        assert_eq!(got, want);
        assert_eq!(sent, Tally::default());
        assert!(!got.take_in("sum\tcases\tx") && !got.take_in("other"));
    }
}
