//! Checks the decompressed pages of a parquet column once more. Delta-encoded lengths state their
//! own count, and the library would allocate memory for any count.

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};

/// Passes on only pages that have at most as many lengths as values.
pub struct Checked {
    /// Where they come from.
    pub pages: Box<dyn PageReader>,
    /// Whether values may be missing, so that levels precede them.
    pub is_optional: bool,
}

impl Iterator for Checked {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Checked {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        if let Some(page) = &page {
            self.check(page)?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }
}

impl Checked {
    fn check(&self, page: &Page) -> Result<()> {
        let buffer = page.buffer().as_ref();
        let lists = match page.encoding() {
            Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
            Encoding::DELTA_BYTE_ARRAY => 2,
            _ => return Ok(()),
        };
        let levels = match page {
            Page::DataPage { .. } if self.is_optional => {
                let bytes = buffer.first_chunk().copied().map(u32::from_le_bytes);
                bytes.and_then(|bytes| (bytes as usize).checked_add(4))
            }
            Page::DataPage { .. } | Page::DictionaryPage { .. } => Some(0),
            Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
                (*def_levels_byte_len as usize).checked_add(*rep_levels_byte_len as usize)
            }
        };
        let mut values = levels.and_then(|levels| buffer.get(levels..));
        for _ in 0..lists {
            values = values.and_then(|values| behind_list(values, u64::from(page.num_values())));
        }
        values.map(drop).ok_or_else(|| {
            let (bytes, values) = (buffer.len(), page.num_values());
            let what = format!("the lengths in a page of {bytes} bytes do not fit its {values}");
            ParquetError::General(what)
        })
    }
}

/// The bytes after a delta-encoded list of at most `most` values; `None` if it is not such a list.
fn behind_list(bytes: &[u8], most: u64) -> Option<&[u8]> {
    let mut rest = bytes;
    let (block, minis, count) = (varint(&mut rest)?, varint(&mut rest)?, varint(&mut rest)?);
    let _first = varint(&mut rest)?;
    if count > most || minis == 0 || block == 0 || !block.is_multiple_of(minis) {
        return None;
    }
    let (per_mini, minis) = (block / minis, usize::try_from(minis).ok()?);
    let mut left = count.saturating_sub(1);
    while left > 0 {
        let _smallest = varint(&mut rest)?;
        let (widths, packed) = rest.split_at_checked(minis)?;
        rest = packed;
        for width in widths {
            if left == 0 {
                break; // widths are there for all, values only for those that are needed
            }
            let bytes = per_mini.checked_mul(u64::from(*width))?.div_ceil(8);
            // The last miniblock may be truncated after its last value.
            let bytes = usize::try_from(bytes).ok()?.min(rest.len());
            rest = &rest[bytes..];
            left = left.saturating_sub(per_mini);
        }
    }
    Some(rest)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_as_long_as_its_page_at_most() {
        // Blocks of 128 in 4 parts; 33 values: one block with 8 bits in its first part and 1 in
        // its second.
        let list =
            [&[0x80, 1, 4, 33, 0][..], &[0, 8, 1, 0, 0], &[7; 32], &[1; 4], b"rest"].concat();
        assert_eq!(behind_list(&list, 33).map(<[u8]>::len), Some(8), "one part holds 32 of them");
        assert_eq!(behind_list(&list, 32), None);
        let endless = [0x80, 1, 4, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0];
        assert_eq!(behind_list(&endless, u64::from(u32::MAX)), None);
        assert_eq!(behind_list(&[0x80, 1, 0, 1, 0], 9), None);
        assert_eq!(behind_list(&[0x80, 1, 4, 1, 0, 9], 9), Some(&[9][..]));
    }
}
