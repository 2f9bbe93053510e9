//! Archives as PyTorch writes them: files that are not compressed. Only for seeds, so only as much
//! of the format as they have.

use flate2::Crc;

/// Names and contents.
pub type Entries = Vec<(String, Vec<u8>)>;

fn number(bytes: &[u8], at: usize, length: usize) -> Option<usize> {
    let digits = bytes.get(at..at + length)?;
    Some(digits.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

/// The files of an archive, by its directory; none if it has another form.
pub fn entries(archive: &[u8]) -> Option<Entries> {
    let end = archive.windows(4).rposition(|part| part == b"PK\x05\x06")?;
    let (count, mut at) = (number(archive, end + 10, 2)?, number(archive, end + 16, 4)?);
    let mut found = Vec::new();
    for _ in 0..count {
        let [size, name, extra, comment] = [(24, 4), (28, 2), (30, 2), (32, 2)]
            .map(|(place, length)| number(archive, at + place, length));
        let header = number(archive, at + 42, 4)?;
        let text = archive.get(at + 46..at + 46 + name?)?;
        let start =
            header + 30 + number(archive, header + 26, 2)? + number(archive, header + 28, 2)?;
        let content = archive.get(start..start + size?)?;
        found.push((String::from_utf8_lossy(text).into_owned(), content.to_vec()));
        at += 46 + name? + extra? + comment?;
    }
    Some(found)
}

/// An archive with valid checksums.
pub fn packed(entries: &Entries) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in entries {
        let mut check = Crc::new();
        check.update(content);
        let (size, offset) =
            ((content.len() as u32).to_le_bytes(), (out.len() as u32).to_le_bytes());
        let name_length = (name.len() as u16).to_le_bytes();
        // Version, flags, method, time and date; then checksum, sizes, lengths of name and extra.
        let facts = [&[0; 10][..], &check.sum().to_le_bytes(), &size, &size, &name_length, &[0; 2]]
            .concat();
        directory
            .extend([b"PK\x01\x02\0\0", &facts[..], &[0; 10], &offset, name.as_bytes()].concat());
        out.extend([b"PK\x03\x04", &facts[..], name.as_bytes(), content].concat());
    }
    let (size, offset) = ((directory.len() as u32).to_le_bytes(), (out.len() as u32).to_le_bytes());
    let count = (entries.len() as u16).to_le_bytes();
    let end = [b"PK\x05\x06\0\0\0\0", &count[..], &count, &size, &offset, &[0; 2]].concat();
    [out, directory, end].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_found_again() {
        let all = vec![("a/data.pkl".to_owned(), b"one".to_vec()), ("a/data/0".to_owned(), vec![])];
        assert_eq!(entries(&packed(&all)), Some(all));
        assert_eq!(entries(b"PK\x05\x06"), None);
    }
}
