//! The safetensors format itself: the parser of headers that checkpoints and other programs' files
//! share, the encoder, and [`SafetensorsFile`], a file that any program may have written.
//!
//! A file is the length of the header (8 bytes, little-endian), the header (JSON), then the tensors
//! without gaps. The header maps names to type, shape and offsets, and `__metadata__` to strings.

use crate::bounded_json;
use crate::disk::read_exact_at;
use crate::error::{ReadError, ReadProblem, SaveProblem, shown};
use crate::tensor::{Dtype, TensorInfo};
use serde_json::{Map, Value};
use std::fmt::Write;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Most bytes of a header. GPT-2 XL with both moments needs half a million.
pub const HEADER_LIMIT: u64 = 16 << 20;

/// Memory that a header's parsed values may take in addition to twice the size of the file. 512
/// layers with biases and both moments need all of it. Including the header's text, a reader takes
/// at most four times the file's size plus 64 MiB, whatever the file claims.
const VALUES_LIMIT: u64 = 60 << 20;

/// Bytes of the length field before the header.
pub(crate) const LENGTH_BYTES: u64 = 8;

/// The smallest file: a length and `{}`.
const LEAST_BYTES: u64 = LENGTH_BYTES + 2;

/// The entry of a header that is not a tensor.
pub(crate) const METADATA: &str = "__metadata__";

/// A tensor as a header lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its element type, which may be one that this program does not use.
    pub dtype: String,
    /// Its dimensions, the slowest-varying first.
    pub shape: Vec<u64>,
    /// Its first byte, counted from the first byte of the first tensor.
    pub start: u64,
    /// The byte after its last.
    pub end: u64,
}

impl Entry {
    /// The tensor, if its type is known and its size is what its shape needs.
    ///
    /// # Errors
    ///
    /// What is wrong, as the end of a sentence about the file.
    pub fn info(&self) -> Result<TensorInfo, String> {
        let bad = |what: &str| format!("tensor '{}' {what}", shown(&self.name));
        let dtype = Dtype::from_name(&self.dtype)
            .ok_or_else(|| bad(&format!("has unsupported dtype '{}'", shown(&self.dtype))))?;
        let tensor = TensorInfo { name: self.name.clone(), dtype, shape: self.shape.clone() };
        let bytes = tensor.bytes().ok_or_else(|| bad("exceeds 64 bits in size"))?;
        match self.end.checked_sub(self.start) {
            Some(given) if given == bytes => Ok(tensor),
            Some(given) => Err(bad(&format!("has {given} bytes, but its shape needs {bytes}"))),
            None => Err(bad("ends before it starts")),
        }
    }
}

/// The parts of a header: the metadata, if there is any, and the entries of the tensors.
pub(crate) struct Parts {
    pub metadata: Option<Value>,
    pub entries: Map<String, Value>,
}

/// Parses the header of a file of `file_bytes` bytes, within a limit of memory.
pub(crate) fn parse(json: &[u8], file_bytes: u64) -> Result<Parts, ReadProblem> {
    let memory = VALUES_LIMIT.saturating_add(file_bytes.saturating_mul(2));
    let memory = usize::try_from(memory).unwrap_or(usize::MAX);
    let mut entries = match bounded_json::parse(json, memory) {
        Ok(Value::Object(entries)) => entries,
        Err(error) if error.is_data() => {
            return Err(damaged(format!("its header cannot be read: {error}")));
        }
        // The first byte tells a damaged header from a file that never was safetensors.
        Err(error) if json.first() == Some(&b'{') => {
            return Err(damaged(format!("its header is not JSON: {error}")));
        }
        Ok(_) | Err(_) => {
            let why = "its header is not a JSON object".to_owned();
            return Err(ReadProblem::NotSafetensors { why });
        }
    };
    let metadata = entries.remove(METADATA);
    Ok(Parts { metadata, entries })
}

/// Reads an entry of a header.
pub(crate) fn entry(name: String, value: &Value) -> Result<Entry, String> {
    let bad = |what: &str| format!("tensor '{}' {what}", shown(&name));
    let dtype = value.get("dtype").and_then(Value::as_str);
    let dtype = dtype.ok_or_else(|| bad("has no dtype"))?.to_owned();
    let shape = numbers(value.get("shape")).ok_or_else(|| bad("has no shape"))?;
    let offsets = numbers(value.get("data_offsets"));
    let Some(&[start, end]) = offsets.as_deref() else {
        return Err(bad("has no offsets"));
    };
    Ok(Entry { name, dtype, shape, start, end })
}

/// A list of unsigned integers.
fn numbers(value: Option<&Value>) -> Option<Vec<u64>> {
    value?.as_array()?.iter().map(Value::as_u64).collect()
}

/// Sorts by offset; returns where the last tensor ends. Their bytes must start at 0 and have
/// neither gaps nor overlaps. `entry` gives a name, the first byte and the byte after the last.
pub(crate) fn in_order<T>(
    tensors: &mut [T],
    entry: impl Fn(&T) -> (&str, u64, u64),
) -> Result<u64, ReadProblem> {
    // An empty tensor sorts before the tensor that starts at the same offset.
    tensors.sort_by_key(|tensor| {
        let (_, start, end) = entry(tensor);
        (start, end)
    });
    let mut top = 0;
    for tensor in tensors.iter() {
        let (name, start, end) = entry(tensor);
        if start != top || end < start {
            let name = shown(name);
            return Err(damaged(format!(
                "tensor '{name}' starts at byte {start}, but the previous one ends at {top}"
            )));
        }
        top = end;
    }
    Ok(top)
}

/// Checks that a file of `file_bytes` bytes ends where its last tensor does.
pub(crate) fn check_length(
    header_bytes: u64,
    data_bytes: u64,
    file_bytes: u64,
) -> Result<(), ReadProblem> {
    let expected = (LENGTH_BYTES + header_bytes).checked_add(data_bytes);
    let expected = expected.ok_or_else(|| damaged("its tensors end beyond 64 bits".to_owned()))?;
    if file_bytes < expected {
        return Err(ReadProblem::Truncated { expected, found: file_bytes });
    }
    if file_bytes > expected {
        let beyond = file_bytes - expected;
        return Err(damaged(format!("{beyond} bytes follow its last tensor")));
    }
    Ok(())
}

/// The first bytes of a file: the length field and the header, padded with spaces to a multiple of
/// 8 bytes. `metadata` is a JSON object, `tensors` have their first byte and the byte after their
/// last.
pub(crate) fn encode<'a>(
    metadata: &str,
    tensors: impl Iterator<Item = (&'a TensorInfo, u64, u64)>,
) -> Result<Vec<u8>, SaveProblem> {
    let mut json = format!(r#"{{"{METADATA}":{metadata}"#);
    for (tensor, start, end) in tensors {
        // Writing to a string cannot fail.
        let _ = write!(
            json,
            r#",{}:{{"dtype":"{}","shape":{},"data_offsets":[{start},{end}]}}"#,
            Value::from(tensor.name.as_str()),
            tensor.dtype.name(),
            Value::from(tensor.shape.as_slice()),
        );
    }
    json.push('}');
    let padded = json.len().next_multiple_of(LENGTH_BYTES as usize);
    json.extend(std::iter::repeat_n(' ', padded - json.len()));
    let bytes = json.len() as u64;
    if bytes > HEADER_LIMIT {
        return Err(SaveProblem::HeaderTooLarge { bytes, limit: HEADER_LIMIT });
    }
    Ok([&bytes.to_le_bytes(), json.as_bytes()].concat())
}

/// The first bytes of a file for other programs, whose tensors follow in the given order.
///
/// # Errors
///
/// When the sizes exceed 64 bits or the header its limit.
pub fn file_start(
    metadata: &[(&str, &str)],
    tensors: &[TensorInfo],
) -> Result<Vec<u8>, SaveProblem> {
    let metadata: Map<String, Value> =
        metadata.iter().map(|&(key, value)| (key.to_owned(), value.into())).collect();
    let mut top = 0u64;
    let mut placed = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let end = tensor.bytes().and_then(|bytes| top.checked_add(bytes));
        let end = end.ok_or_else(|| SaveProblem::BadTensor {
            name: tensor.name.clone(),
            why: "exceeds 64 bits in size",
        })?;
        placed.push((tensor, top, end));
        top = end;
    }
    encode(&Value::Object(metadata).to_string(), placed.into_iter())
}

pub(crate) fn damaged(what: String) -> ReadProblem {
    ReadProblem::Damaged { what }
}

/// A file whose header is read but not parsed yet.
pub(crate) struct Opened {
    pub file: File,
    pub file_bytes: u64,
    pub header: Vec<u8>,
}

impl Opened {
    pub fn open(path: &Path) -> Result<Opened, ReadProblem> {
        let failed = |source| ReadProblem::Io { doing: "open it", source };
        // Checked before opening, because opening a pipe waits for a writer.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(ReadProblem::NotAFile);
        }
        let file = File::open(path).map_err(failed)?;
        let file_bytes = file.metadata().map_err(failed)?.len();
        let truncated = |expected| ReadProblem::Truncated { expected, found: file_bytes };
        if file_bytes < LEAST_BYTES {
            return Err(truncated(LEAST_BYTES));
        }
        let mut length = [0; LENGTH_BYTES as usize];
        read_all(&file, &mut length, 0)?;
        let header_bytes = u64::from_le_bytes(length);
        if header_bytes > HEADER_LIMIT {
            let why = match &length {
                b"GGUF\x01\0\0\0" | b"GGUF\x02\0\0\0" | b"GGUF\x03\0\0\0" => {
                    "it is a GGUF file, which fitgpt writes but does not read"
                }
                b"version " => {
                    "it is a Git LFS pointer, not the file itself: run `git lfs pull` in its folder"
                }
                text if text.iter().all(|byte| matches!(byte, b'\t'..=b'\r' | b' '..=b'~')) => {
                    "it begins like a text"
                }
                _ => "its first bytes are not the length of a header",
            };
            return Err(ReadProblem::NotSafetensors { why: why.to_owned() });
        }
        if LENGTH_BYTES + header_bytes > file_bytes {
            return Err(truncated(LENGTH_BYTES + header_bytes));
        }
        let mut header = vec![0; header_bytes as usize];
        read_all(&file, &mut header, LENGTH_BYTES)?;
        Ok(Opened { file, file_bytes, header })
    }

    /// File offset of the first tensor.
    pub fn data_start(&self) -> u64 {
        LENGTH_BYTES + self.header.len() as u64
    }
}

/// Fills the buffer from a file that was long enough when it was opened.
pub(crate) fn read_all(file: &File, buffer: &mut [u8], offset: u64) -> Result<(), ReadProblem> {
    read_exact_at(file, buffer, offset).map_err(|source| match source.kind() {
        io::ErrorKind::UnexpectedEof => ReadProblem::Truncated {
            expected: offset.saturating_add(buffer.len() as u64),
            found: file.metadata().map_or(0, |metadata| metadata.len()),
        },
        _ => ReadProblem::Io { doing: "read it", source },
    })
}

/// An open safetensors file of any program. It has no checksums; its header is checked when it is
/// opened.
#[derive(Debug)]
pub struct SafetensorsFile {
    path: PathBuf,
    file: File,
    entries: Vec<Entry>,
    data_start: u64,
}

impl SafetensorsFile {
    /// Opens a file and checks its header: tensors must have neither gaps nor overlaps, and end
    /// where the file ends.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, is not safetensors, is truncated or contradicts itself.
    pub fn open(path: &Path) -> Result<SafetensorsFile, ReadError> {
        let opened = Opened::open(path).and_then(|opened| {
            let parts = parse(&opened.header, opened.file_bytes)?;
            let entries = parts.entries.into_iter().map(|(name, value)| entry(name, &value));
            let mut entries: Vec<Entry> = entries.collect::<Result<_, _>>().map_err(damaged)?;
            let end = in_order(&mut entries, |entry| (&entry.name, entry.start, entry.end))?;
            check_length(opened.header.len() as u64, end, opened.file_bytes)?;
            let data_start = opened.data_start();
            Ok(SafetensorsFile { path: path.to_owned(), file: opened.file, entries, data_start })
        });
        opened.map_err(|problem| ReadError { path: path.to_owned(), problem })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its tensors in the order of their bytes.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Fills the buffer with a tensor's bytes from byte `from` on.
    ///
    /// # Errors
    ///
    /// When they cannot be read, or the tensor ends before the buffer is full.
    pub fn read(&self, index: usize, from: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.read_part(index, from, buffer)
            .map_err(|problem| ReadError { path: self.path.clone(), problem })
    }

    fn read_part(&self, index: usize, from: u64, buffer: &mut [u8]) -> Result<(), ReadProblem> {
        let count = self.entries.len();
        let entry = self.entries.get(index).ok_or(ReadProblem::NoSuchTensor { index, count })?;
        let bytes = entry.end - entry.start;
        let last = from.checked_add(buffer.len() as u64);
        if last.is_none_or(|last| last > bytes) {
            return Err(ReadProblem::BufferSize {
                tensor: entry.name.clone(),
                needed: bytes.saturating_sub(from),
                given: buffer.len() as u64,
            });
        }
        read_all(&self.file, buffer, self.data_start + entry.start + from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_for_other_programs_starts_with_these_bytes() {
        let tensors =
            [TensorInfo::new("a", Dtype::F32, &[2, 3]), TensorInfo::new("b", Dtype::F16, &[5])];
        let start = file_start(&[("format", "pt")], &tensors).unwrap();
        let json = [
            r#"{"__metadata__":{"format":"pt"},"#,
            r#""a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"#,
            r#""b":{"dtype":"F16","shape":[5],"data_offsets":[24,34]}}"#,
        ]
        .concat();
        let padded = format!("{json:<width$}", width = json.len().next_multiple_of(8));
        assert_eq!(start[..8], (padded.len() as u64).to_le_bytes());
        assert_eq!(std::str::from_utf8(&start[8..]).unwrap(), padded);
        let huge = [TensorInfo::new("a", Dtype::F32, &[1 << 62, 4])];
        assert!(matches!(file_start(&[], &huge), Err(SaveProblem::BadTensor { .. })));
    }

    #[test]
    fn entries_of_any_type_are_listed_and_only_known_ones_have_a_size() {
        let entry = |dtype: &str, end: u64| Entry {
            name: "h.0.attn.bias".to_owned(),
            dtype: dtype.to_owned(),
            shape: vec![2, 2],
            start: 0,
            end,
        };
        assert_eq!(entry("U8", 4).info().unwrap().bytes(), Some(4));
        let refused = |entry: Entry| entry.info().unwrap_err();
        assert_eq!(
            refused(entry("BOOL", 4)),
            "tensor 'h.0.attn.bias' has unsupported dtype 'BOOL'"
        );
        assert_eq!(
            refused(entry("F32", 4)),
            "tensor 'h.0.attn.bias' has 4 bytes, but its shape needs 16"
        );
    }
}
