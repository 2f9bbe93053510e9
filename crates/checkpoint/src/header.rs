//! The header of a file: encoding it from a list of tensors, and decoding it with every check that
//! needs only the header. These are pure functions on bytes; [`SCHEMA`] documents the format.

use crate::bounded_json;
use crate::checksum::Checksum;
use crate::error::{ReadProblem, SaveProblem, shown};
use crate::safetensors::{self, METADATA, Parts, damaged};
use crate::tensor::TensorInfo;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The format's name and version.
///
/// A file is a [safetensors](https://github.com/huggingface/safetensors) file. Tensors with wider
/// elements come first, so that each starts at a multiple of its element size. The header's
/// `__metadata__` maps strings to strings:
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
        let mut metadata = format!(
            r#"{{"schema":"{SCHEMA}","{HEADER_CHECKSUM}":"{:016x}","{RUN}":{}"#,
            self.checksum(),
            quoted(&self.document)
        );
        let tensors = || self.tensors.iter().zip(&self.spans);
        for (tensor, span) in tensors() {
            let key = quoted(&format!("{TENSOR_CHECKSUM}{}", tensor.name));
            // Writing to a string cannot fail.
            let _ = write!(metadata, r#",{key}:"{:016x}""#, span.checksum);
        }
        metadata.push('}');
        let placed = tensors().map(|(tensor, span)| (tensor, span.start, span.start + span.bytes));
        safetensors::encode(&metadata, placed)
    }

    /// Reads and checks the header of a file of `file_bytes` bytes.
    pub fn decode(json: &[u8], file_bytes: u64) -> Result<Header, ReadProblem> {
        let Parts { metadata, entries } = safetensors::parse(json, file_bytes)?;
        let mut metadata = match metadata {
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
        safetensors::check_length(json.len() as u64, header.data_bytes(), file_bytes)?;
        Ok(header)
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

/// Decodes all entries except the metadata, sorted by offset.
fn decode_tensors(
    entries: Map<String, Value>,
    metadata: &Map<String, Value>,
) -> Result<(Vec<TensorInfo>, Vec<Span>), ReadProblem> {
    let mut tensors = Vec::with_capacity(entries.len());
    for (name, value) in entries {
        let entry = safetensors::entry(name, &value).map_err(damaged)?;
        let tensor = entry.info().map_err(damaged)?;
        let checksum = checksum_under(metadata, &format!("{TENSOR_CHECKSUM}{}", tensor.name))?;
        let bytes = entry.end - entry.start;
        tensors.push((tensor, Span { start: entry.start, bytes, checksum }));
    }
    safetensors::in_order(&mut tensors, |(tensor, span)| {
        (&tensor.name, span.start, span.start + span.bytes)
    })?;
    Ok(tensors.into_iter().unzip())
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
    use crate::safetensors::LENGTH_BYTES;
    use crate::tensor::Dtype;

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
