//! The table of limits: how large a file may be and how much memory its reader may take.
//!
//! The author of a file decides its size and what it claims about itself, but must not decide how
//! much memory a reader takes. Each limit is checked before the memory is allocated.
//! `docs/limits.md` has the same numbers, and a test compares them.

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Bytes of memory that a reader may take for each byte of its file…
pub const PER_BYTE: u64 = 4;
/// … and in addition to that.
pub const FIXED: u64 = 64 * MIB;
/// The part of `FIXED` that the buffers of readers and libraries always take.
const BUFFERS: u64 = 24 * MIB;

/// Most bytes of a tokenizer.json.
pub const TOKENIZER: u64 = tokenizer::MOST_BYTES;
/// Most bytes of a journal; ours have 400.
pub const JOURNAL: u64 = 64 * KIB;
/// Most bytes of one page of a hub's listing; a thousand files take half a MiB.
pub const LISTING: u64 = 8 * MIB;
/// Most pages of a listing: a thousand files each.
pub const LISTING_PAGES: usize = 100;
/// Most files of a listing.
pub const FILES: usize = 100_000;
/// Largest logarithm of a zstd window, that of `zstd --ultra -22` and `--long`.
const WINDOW_LOG: u32 = 27;

/// Most memory for the content of a file, without buffers.
#[must_use]
pub fn memory(file_bytes: u64) -> u64 {
    file_bytes.saturating_mul(PER_BYTE).saturating_add(FIXED - BUFFERS)
}

/// Logarithm of the largest window of a zstd file.
#[must_use]
pub fn window_log(file_bytes: u64) -> u32 {
    memory(file_bytes).ilog2().min(WINDOW_LOG)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page for users has the numbers of the table.
    #[test]
    fn the_page_says_the_same() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");
        let page = std::fs::read_to_string(page).unwrap();
        for want in [
            format!("{PER_BYTE} × its size + {} MiB", FIXED / MIB),
            format!("| `tokenizer.json` | {} MiB", TOKENIZER / MIB),
            format!("{} merges", tokenizer::MOST_MERGES),
            format!("| `prepare.json` | {} KiB", JOURNAL / KIB),
            format!("| one page of a hub's listing | {} MiB", LISTING / MIB),
            format!("{FILES} files, {LISTING_PAGES} pages"),
            format!("at most {} MiB", (1 << WINDOW_LOG) / MIB),
        ] {
            assert!(page.contains(&want), "docs/limits.md lacks {want:?}");
        }
    }

    #[test]
    fn windows_grow_with_the_file_up_to_what_tools_write() {
        for (bytes, want) in [(0, 25), (10 << 20, 26), (30 << 20, 27), (u64::MAX, 27)] {
            assert_eq!(window_log(bytes), want, "{bytes}");
        }
    }
}
