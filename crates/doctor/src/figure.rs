//! Numbers in sentences. A sentence has `{0}`, `{1}` where they belong; each language writes them
//! in its own way.

/// A number.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// A size of memory.
    Bytes(u64),
    /// A share.
    Percent(u64),
    /// A count, with separators.
    Count(u64),
    /// As it is.
    Text(String),
}

/// How a language writes numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Before the decimals.
    pub decimal: char,
    /// Between thousands.
    pub group: char,
}

impl Numbers {
    /// A size in a readable unit.
    pub fn size(self, count: u64) -> String {
        let text = plan::Bytes::new(count).map_or_else(|| count.to_string(), |b| b.to_string());
        self.decimals(&text)
    }

    /// A text whose numbers have a decimal point.
    pub fn decimals(self, text: &str) -> String {
        match self.decimal {
            '.' => text.to_string(),
            other => text.replace('.', other.encode_utf8(&mut [0; 4])),
        }
    }

    /// A whole number with separators.
    pub fn count(self, count: u64) -> String {
        let digits = count.to_string();
        let mut text = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push(self.group);
            }
            text.push(digit);
        }
        text
    }

    /// Puts figures into a sentence.
    pub fn filled(self, text: &str, figures: &[Figure]) -> String {
        let mut filled = text.to_string();
        for (index, figure) in figures.iter().enumerate() {
            let written = match figure {
                Figure::Bytes(count) => self.size(*count),
                Figure::Percent(share) => format!("{share} %"),
                Figure::Count(count) => self.count(*count),
                Figure::Text(text) => text.clone(),
            };
            filled = filled.replace(&format!("{{{index}}}"), &written);
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_as_the_language_does() {
        let figures = [Figure::Bytes(6_593_445_888), Figure::Count(3_161_117_824)];
        let english = Numbers { decimal: '.', group: ',' };
        let german = Numbers { decimal: ',', group: '.' };
        assert_eq!(english.filled("{0} of {1}", &figures), "6.14 GiB of 3,161,117,824");
        assert_eq!(german.filled("{1}: {0}", &figures), "3.161.117.824: 6,14 GiB");
        assert_eq!(german.count(12), "12");
    }
}
