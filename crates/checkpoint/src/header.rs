//! The header of a file: encoding it from a list of tensors, and decoding it with every check that
//! needs only the header. These are pure functions on bytes; [`SCHEMA`] documents the format.

use crate::bounded_json;
use crate::checksum::Checksum;
use crate::error::{ReadProblem, SaveProblem, shown};
use crate::tensor::{Dtype, TensorInfo};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The format's name and version.
///
/// A file is a [safetensors](https://github.com/huggingface/safetensors) file: the length of the
/// header (8 bytes, little-endian), the header (JSON, padded with spaces to a multiple of 8 bytes),
/// then the tensors without gaps. Tensors with wider elements come first, so that each starts at a
/// multiple of its element size. The header's `__metadata__` maps strings to strings:
///
/// | key | value |
/// |---|---|
/// | `schema` | `fitgpt.checkpoint/1` |
/// | `run` | the run's JSON document |
/// | `xxh64/<name>` | for each tensor: [`Checksum`] of its bytes, 16 hexadecimal digits |
/// | `header.xxh64` | the same of all the header says, see below |
///
/// Other keys are allowed and ignored. `header.xxh64` covers `schema`, `run`, the number of
/// tensors, and for each tensor, sorted by name: name, dtype, number of dimensions, dimensions,
/// checksum. A number is hashed as 8 little-endian bytes, a string as its length followed by its
/// bytes. The checksum therefore does not depend on the order or spacing of the JSON, and a copy
/// that Python's safetensors writes with the same metadata is still a checkpoint.
pub const SCHEMA: &str = "fitgpt.checkpoint/1";

/// [`SCHEMA`] without its version.
const SCHEMA_FAMILY: &str = "fitgpt.checkpoint/";

/// Most bytes of a header. GPT-2 XL with both moments needs half a million.
pub const HEADER_LIMIT: u64 = 16 << 20;

/// Memory that a header's parsed values may take in addition to twice the size of the file. 512
/// layers with biases and both moments need all of it. Including the header's text, a reader takes
/// at most four times the file's size plus 64 MiB, whatever the file claims.
const VALUES_LIMIT: u64 = 60 << 20;

/// Bytes of the length field before the header.
pub(crate) const LENGTH_BYTES: u64 = 8;

const METADATA: &str = "__metadata__";
const RUN: &str = "run";
const HEADER_CHECKSUM: &str = "header.xxh64";
const TENSOR_CHECKSUM: &str = "xxh64/";

/// Where a tensor's bytes lie, and their checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Offset from the first byte of the first tensor.
    pub start: u64,
    pub bytes: u64,
    pub checksum: u64,
}

/// Everything that the header of a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub document: String,
    /// In the order of their bytes.
    pub tensors: Vec<TensorInfo>,
    /// One for each of `tensors`.
    pub spans: Vec<Span>,
}

impl Header {
    /// The header of a new file, with checksums of zero, and the caller's index of each tensor.
    pub fn lay_out(
        document: &str,
        tensors: &[TensorInfo],
    ) -> Result<(Header, Vec<usize>), SaveProblem> {
        bounded_json::check(document)
            .map_err(|error| SaveProblem::BadDocument { why: error.to_string() })?;
        let mut order: Vec<usize> = (0..tensors.len()).collect();
        // Wider elements first: this keeps every tensor aligned although there are no gaps.
        order.sort_by_key(|&index| std::cmp::Reverse(tensors[index].dtype.bytes()));
        let mut names = BTreeSet::new();
        let mut spans = Vec::with_capacity(tensors.len());
        let mut start = 0u64;
        for tensor in order.iter().map(|&index| &tensors[index]) {
            let bad = |why| SaveProblem::BadTensor { name: tensor.name.clone(), why };
            if tensor.name.is_empty() || tensor.name == METADATA {
                return Err(bad("has a name that the format does not allow"));
            }
            if !names.insert(&tensor.name) {
                return Err(bad("is listed twice"));
            }
            let bytes = tensor.bytes().ok_or_else(|| bad("exceeds 64 bits in size"))?;
            spans.push(Span { start, bytes, checksum: 0 });
            let end = start.checked_add(bytes).filter(|end| *end <= i64::MAX as u64);
            start = end.ok_or_else(|| bad("ends beyond the largest possible file"))?;
        }
        let tensors = order.iter().map(|&index| tensors[index].clone()).collect();
        let header = Header { document: document.to_owned(), tensors, spans };
        Ok((header, order))
    }

    /// Bytes of all tensors.
    pub fn data_bytes(&self) -> u64 {
        self.spans.last().map_or(0, |span| span.start + span.bytes)
    }

    /// The first bytes of the file: the length field and the header. Their number does not depend
    /// on the checksums.
    pub fn encode(&self) -> Result<Vec<u8>, SaveProblem> {
        let mut json = format!(
            r#"{{"{METADATA}":{{"schema":"{SCHEMA}","{HEADER_CHECKSUM}":"{:016x}","{RUN}":{}"#,
            self.checksum(),
            quoted(&self.document)
        );
        let tensors = || self.tensors.iter().zip(&self.spans);
        for (tensor, span) in tensors() {
            let key = quoted(&format!("{TENSOR_CHECKSUM}{}", tensor.name));
            // Writing to a string cannot fail.
            let _ = write!(json, r#",{key}:"{:016x}""#, span.checksum);
        }
        json.push('}');
        for (tensor, span) in tensors() {
            let _ = write!(
                json,
                r#",{}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}}"#,
                quoted(&tensor.name),
                tensor.dtype.name(),
                Value::from(tensor.shape.as_slice()),
                span.start,
                span.start + span.bytes
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

    /// Reads and checks the header of a file of `file_bytes` bytes.
    pub fn decode(json: &[u8], file_bytes: u64) -> Result<Header, ReadProblem> {
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
        let mut metadata = match entries.remove(METADATA) {
            Some(Value::Object(metadata)) => metadata,
            Some(_) => return Err(damaged("its metadata is not an object".to_owned())),
            None => return Err(ReadProblem::Foreign),
        };
        check_schema(metadata.get("schema"))?;
        let (tensors, spans) = decode_tensors(entries, &metadata)?;
        let expected = checksum_under(&metadata, HEADER_CHECKSUM)?;
        let Some(Value::String(document)) = metadata.remove(RUN) else {
            return Err(damaged("its metadata has no run document".to_owned()));
        };
        let header = Header { document, tensors, spans };
        let found = header.checksum();
        if found != expected {
            return Err(damaged(format!(
                "its header has checksum {found:016x}, but {expected:016x} is expected"
            )));
        }
        if let Err(error) = bounded_json::check(&header.document) {
            return Err(damaged(format!("its run document is not JSON: {error}")));
        }
        header.check_length(json.len() as u64, file_bytes)?;
        Ok(header)
    }

    fn check_length(&self, header_bytes: u64, file_bytes: u64) -> Result<(), ReadProblem> {
        let expected = (LENGTH_BYTES + header_bytes).checked_add(self.data_bytes());
        let expected =
            expected.ok_or_else(|| damaged("its tensors end beyond 64 bits".to_owned()))?;
        if file_bytes < expected {
            return Err(ReadProblem::Truncated { expected, found: file_bytes });
        }
        if file_bytes > expected {
            let beyond = file_bytes - expected;
            return Err(damaged(format!("{beyond} bytes follow its last tensor")));
        }
        Ok(())
    }

    /// The value of `header.xxh64`.
    fn checksum(&self) -> u64 {
        let mut checksum = Checksum::new();
        let number = |checksum: &mut Checksum, value: u64| checksum.update(&value.to_le_bytes());
        let text = |checksum: &mut Checksum, text: &str| {
            checksum.update(&(text.len() as u64).to_le_bytes());
            checksum.update(text.as_bytes());
        };
        text(&mut checksum, SCHEMA);
        text(&mut checksum, &self.document);
        number(&mut checksum, self.tensors.len() as u64);
        let mut by_name: Vec<(&TensorInfo, &Span)> = self.tensors.iter().zip(&self.spans).collect();
        by_name.sort_by_key(|&(tensor, _)| &tensor.name);
        for (tensor, span) in by_name {
            text(&mut checksum, &tensor.name);
            text(&mut checksum, tensor.dtype.name());
            number(&mut checksum, tensor.shape.len() as u64);
            for &extent in &tensor.shape {
                number(&mut checksum, extent);
            }
            number(&mut checksum, span.checksum);
        }
        checksum.value()
    }
}

fn damaged(what: String) -> ReadProblem {
    ReadProblem::Damaged { what }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Whether this program reads files of this schema.
fn check_schema(schema: Option<&Value>) -> Result<(), ReadProblem> {
    let found = match schema {
        Some(Value::String(schema)) => schema,
        Some(_) => return Err(damaged("its schema is not a string".to_owned())),
        None => return Err(ReadProblem::Foreign),
    };
    let starts_with_digit =
        |version: &str| version.starts_with(|first: char| first.is_ascii_digit());
    match found.strip_prefix(SCHEMA_FAMILY) {
        Some(_) if found == SCHEMA => Ok(()),
        // No version below 1 ever existed, so any other version is newer.
        Some(version) if starts_with_digit(version) => {
            Err(ReadProblem::NewerSchema { found: found.clone() })
        }
        Some(_) | None => Err(ReadProblem::OtherSchema { found: found.clone() }),
    }
}

/// Decodes all entries except the metadata, sorted by offset. Their bytes must start at 0 and have
/// neither gaps nor overlaps.
fn decode_tensors(
    entries: Map<String, Value>,
    metadata: &Map<String, Value>,
) -> Result<(Vec<TensorInfo>, Vec<Span>), ReadProblem> {
    let mut tensors = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        let (tensor, start, end) = decode_tensor(name, &entry).map_err(damaged)?;
        let checksum = checksum_under(metadata, &format!("{TENSOR_CHECKSUM}{}", tensor.name))?;
        tensors.push((tensor, Span { start, bytes: end - start, checksum }));
    }
    // An empty tensor sorts before the tensor that starts at the same offset.
    tensors.sort_by_key(|(_, span)| (span.start, span.bytes));
    let mut end = 0;
    for (tensor, span) in &tensors {
        if span.start != end {
            let name = shown(&tensor.name);
            return Err(damaged(format!(
                "tensor '{name}' starts at byte {}, but the previous one ends at {end}",
                span.start
            )));
        }
        end = span.start + span.bytes;
    }
    Ok(tensors.into_iter().unzip())
}

/// The tensor, its first byte and the byte after its last.
fn decode_tensor(name: String, entry: &Value) -> Result<(TensorInfo, u64, u64), String> {
    let bad = |what: &str| format!("tensor '{}' {what}", shown(&name));
    let dtype = entry.get("dtype").and_then(Value::as_str);
    let dtype = dtype.ok_or_else(|| bad("has no dtype"))?;
    let dtype = Dtype::from_name(dtype)
        .ok_or_else(|| bad(&format!("has unsupported dtype '{}'", shown(dtype))))?;
    let shape = numbers(entry.get("shape")).ok_or_else(|| bad("has no shape"))?;
    let offsets = numbers(entry.get("data_offsets"));
    let Some(&[start, end]) = offsets.as_deref() else {
        return Err(bad("has no offsets"));
    };
    let tensor = TensorInfo { name: name.clone(), dtype, shape };
    let bytes = tensor.bytes().ok_or_else(|| bad("exceeds 64 bits in size"))?;
    match end.checked_sub(start) {
        Some(given) if given == bytes => Ok((tensor, start, end)),
        Some(given) => Err(bad(&format!("has {given} bytes, but its shape needs {bytes}"))),
        None => Err(bad("ends before it starts")),
    }
}

/// A list of unsigned integers.
fn numbers(value: Option<&Value>) -> Option<Vec<u64>> {
    value?.as_array()?.iter().map(Value::as_u64).collect()
}

/// The checksum stored in the metadata under `key`: 16 lower-case hexadecimal digits.
fn checksum_under(metadata: &Map<String, Value>, key: &str) -> Result<u64, ReadProblem> {
    let text = metadata.get(key).and_then(Value::as_str).unwrap_or_default();
    let parsed = u64::from_str_radix(text, 16).ok();
    // `from_str_radix` also accepts a sign and capitals; those spellings are refused.
    parsed
        .filter(|value| format!("{value:016x}") == text)
        .ok_or_else(|| damaged(format!("its metadata has no checksum '{}'", shown(key))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever can be written can be read. This is the deepest model that the settings allow, with
    /// biases and both moments, in the smallest possible file.
    #[test]
    fn the_deepest_model_is_read_back() {
        let names = [
            "ln_1.weight",
            "ln_1.bias",
            "attn.c_attn.weight",
            "attn.c_attn.bias",
            "attn.c_proj.weight",
            "attn.c_proj.bias",
            "ln_2.weight",
            "ln_2.bias",
            "mlp.c_fc.weight",
            "mlp.c_fc.bias",
            "mlp.c_proj.weight",
            "mlp.c_proj.bias",
        ];
        let tensor = |role: &str, layer: usize, name: &str| {
            let name = format!("{role}/transformer.h.{layer}.{name}");
            TensorInfo::new(name, Dtype::F32, &[1, 1])
        };
        let all: Vec<TensorInfo> = ["weights", "m", "v"]
            .iter()
            .flat_map(|role| (0..512).map(move |layer| (role, layer)))
            .flat_map(|(role, layer)| names.map(|name| tensor(role, layer, name)))
            .collect();
        let (header, _) = Header::lay_out("{}", &all).unwrap();
        let encoded = header.encode().unwrap();
        let file_bytes = encoded.len() as u64 + header.data_bytes();
        let json = &encoded[LENGTH_BYTES as usize..];
        assert_eq!(Header::decode(json, file_bytes).unwrap().tensors.len(), all.len());
    }
}
