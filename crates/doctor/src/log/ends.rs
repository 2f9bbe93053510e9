//! Reads the two ends of a log of any length, from a file or a pipe. The beginning has the
//! settings, the end has the error; what is between takes no memory.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// Bytes that are kept of the beginning, and at least of the end. More than the reader of a log
/// uses, also in UTF-16, and even, so that no UTF-16 letter is cut.
const HEAD: usize = 4 << 20;
const TAIL: usize = 8 << 20;

/// The beginning and the end of a file. What is between is not even read.
pub fn of_file(mut file: File) -> io::Result<Vec<u8>> {
    let about = file.metadata()?;
    if !about.is_file() || about.len() <= (HEAD + TAIL) as u64 {
        return of_pipe(file);
    }
    let mut all = Vec::new();
    file.by_ref().take(HEAD as u64).read_to_end(&mut all)?;
    let from = about.len() - TAIL as u64;
    file.seek(SeekFrom::Start(from - from % 2))?;
    // A run may still write into it.
    file.take(2 * TAIL as u64).read_to_end(&mut all)?;
    Ok(all)
}

/// The beginning and the end of what a reader gives.
pub fn of_pipe(mut from: impl Read) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    from.by_ref().take((HEAD + TAIL) as u64).read_to_end(&mut all)?;
    if all.len() < HEAD + TAIL {
        return Ok(all);
    }
    let mut last = all.split_off(HEAD);
    loop {
        let mut next = Vec::with_capacity(TAIL);
        from.by_ref().take(TAIL as u64).read_to_end(&mut next)?;
        if next.len() < TAIL {
            all.extend_from_slice(&last[next.len()..]);
            all.extend_from_slice(&next);
            return Ok(all);
        }
        last = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_any_length_both_ends_are_kept() {
        for length in [0, 1, HEAD, HEAD + TAIL - 1, HEAD + TAIL, HEAD + TAIL + 1, 5 * TAIL + 3] {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let kept = of_pipe(bytes.as_slice()).unwrap();
            let head = length.min(HEAD);
            let tail = (length - head).min(TAIL);
            assert_eq!(kept.len(), length.min(HEAD + TAIL));
            assert_eq!(kept[..head], bytes[..head], "{length}");
            assert_eq!(kept[kept.len() - tail..], bytes[length - tail..], "{length}");
        }
    }
}
