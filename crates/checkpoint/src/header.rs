//! The header of a file: written from a list of tensors, and read with everything checked that the
//! header alone can prove. Pure functions on bytes; the format is told at [`SCHEMA`].

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
/// header (8 bytes, little-endian), the header (JSON, filled up with spaces to a multiple of 8
/// bytes), then the tensors without gaps, those of wide elements first so that each stands at a
/// multiple of its element. The header's `__metadata__` maps strings to strings:
///
/// | key | value |
/// |---|---|
/// | `schema` | `fitgpt.checkpoint/1` |
/// | `run` | the run's JSON document |
/// | `xxh64/<name>` | for each tensor: [`Checksum`] of its bytes, 16 hexadecimal digits |
/// | `header.xxh64` | the same of all the header says, see below |
///
/// Others may stand beside these and are ignored. `header.xxh64` covers `schema`, `run`, the number
/// of tensors, and for each tensor, in the order of their names: name, dtype, number of dimensions,
/// dimensions, checksum; each number as 8 little-endian bytes, each text as the number of its bytes
/// and then they. So it does not depend on how a program orders or spaces the JSON, and a copy that
/// Python's safetensors wrote with the same metadata is still a checkpoint.
pub const SCHEMA: &str = "fitgpt.checkpoint/1";

/// What comes before the version in [`SCHEMA`].
const SCHEMA_FAMILY: &str = "fitgpt.checkpoint/";

/// Most bytes of a header. That of GPT-2 XL with both moments has half a million.
pub const HEADER_LIMIT: u64 = 16 << 20;

/// What a header's values may take, beyond twice the size of the file: 512 layers with biases and
/// both moments need all of it. With the header's text, a reader takes at most four times the file
/// and 64 MiB, whatever the file says.
const VALUES_LIMIT: u64 = 60 << 20;

/// Bytes of the length before the header.
pub(crate) const LENGTH_BYTES: u64 = 8;

const METADATA: &str = "__metadata__";
const RUN: &str = "run";
const HEADER_CHECKSUM: &str = "header.xxh64";
const TENSOR_CHECKSUM: &str = "xxh64/";

/// Where a tensor's bytes are, and what they are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// First byte, counted from the first tensor's.
    pub start: u64,
    pub bytes: u64,
    pub checksum: u64,
}

/// All that the header of a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub document: String,
    /// In the order of their bytes.
    pub tensors: Vec<TensorInfo>,
    /// One for each of `tensors`.
    pub places: Vec<Place>,
}

impl Header {
    /// The header of a new file, its checksums still zero, and the caller's index of each tensor.
    pub fn lay_out(
        document: &str,
        tensors: &[TensorInfo],
    ) -> Result<(Header, Vec<usize>), SaveProblem> {
        bounded_json::check(document)
            .map_err(|error| SaveProblem::BadDocument { why: error.to_string() })?;
        let mut order: Vec<usize> = (0..tensors.len()).collect();
        // Wide elements first: without gaps, nothing else keeps each tensor aligned.
        order.sort_by_key(|&index| std::cmp::Reverse(tensors[index].dtype.bytes()));
        let mut names = BTreeSet::new();
        let mut places = Vec::with_capacity(tensors.len());
        let mut start = 0u64;
        for tensor in order.iter().map(|&index| &tensors[index]) {
            let bad = |why| SaveProblem::BadTensor { name: tensor.name.clone(), why };
            if tensor.name.is_empty() || tensor.name == METADATA {
                return Err(bad("has a name that the format does not allow"));
            }
            if !names.insert(&tensor.name) {
                return Err(bad("is there twice"));
            }
            let bytes = tensor.bytes().ok_or_else(|| bad("has no size in 64 bits"))?;
            places.push(Place { start, bytes, checksum: 0 });
            let end = start.checked_add(bytes).filter(|end| *end <= i64::MAX as u64);
            start = end.ok_or_else(|| bad("ends beyond what a file can hold"))?;
        }
        let tensors = order.iter().map(|&index| tensors[index].clone()).collect();
        let header = Header { document: document.to_owned(), tensors, places };
        Ok((header, order))
    }

    /// Bytes of all tensors.
    pub fn data_bytes(&self) -> u64 {
        self.places.last().map_or(0, |place| place.start + place.bytes)
    }

    /// The file's first bytes, its length before it. How many they are does not depend on the
    /// checksums.
    pub fn encode(&self) -> Result<Vec<u8>, SaveProblem> {
        let mut json = format!(
            r#"{{"{METADATA}":{{"schema":"{SCHEMA}","{HEADER_CHECKSUM}":"{:016x}","{RUN}":{}"#,
            self.checksum(),
            quoted(&self.document)
        );
        let tensors = || self.tensors.iter().zip(&self.places);
        for (tensor, place) in tensors() {
            let key = quoted(&format!("{TENSOR_CHECKSUM}{}", tensor.name));
            // Writing to a string cannot fail.
            let _ = write!(json, r#",{key}:"{:016x}""#, place.checksum);
        }
        json.push('}');
        for (tensor, place) in tensors() {
            let _ = write!(
                json,
                r#",{}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}}"#,
                quoted(&tensor.name),
                tensor.dtype.name(),
                Value::from(tensor.shape.as_slice()),
                place.start,
                place.start + place.bytes
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
            // A cut or flipped header of ours, or a file that never was safetensors: the first
            // byte tells.
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
        let (tensors, places) = decode_tensors(entries, &metadata)?;
        let expected = checksum_under(&metadata, HEADER_CHECKSUM)?;
        let Some(Value::String(document)) = metadata.remove(RUN) else {
            return Err(damaged("its metadata has no run document".to_owned()));
        };
        let header = Header { document, tensors, places };
        let found = header.checksum();
        if found != expected {
            return Err(damaged(format!(
                "its header has checksum {found:016x}, {expected:016x} expected"
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
        let expected = expected.ok_or_else(|| damaged("its tensors have no end".to_owned()))?;
        if file_bytes < expected {
            return Err(ReadProblem::Truncated { expected, found: file_bytes });
        }
        if file_bytes > expected {
            let beyond = file_bytes - expected;
            return Err(damaged(format!("{beyond} bytes come after its last tensor")));
        }
        Ok(())
    }

    /// What `header.xxh64` holds.
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
        let mut by_name: Vec<(&TensorInfo, &Place)> =
            self.tensors.iter().zip(&self.places).collect();
        by_name.sort_by_key(|&(tensor, _)| &tensor.name);
        for (tensor, place) in by_name {
            text(&mut checksum, &tensor.name);
            text(&mut checksum, tensor.dtype.name());
            number(&mut checksum, tensor.shape.len() as u64);
            for &extent in &tensor.shape {
                number(&mut checksum, extent);
            }
            number(&mut checksum, place.checksum);
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
        // There never was a version below 1, so any other is newer.
        Some(version) if starts_with_digit(version) => {
            Err(ReadProblem::NewerSchema { found: found.clone() })
        }
        Some(_) | None => Err(ReadProblem::OtherSchema { found: found.clone() }),
    }
}

/// All entries but the metadata, in the order of their bytes, which follow each other without gap
/// or overlap from 0 on.
fn decode_tensors(
    entries: Map<String, Value>,
    metadata: &Map<String, Value>,
) -> Result<(Vec<TensorInfo>, Vec<Place>), ReadProblem> {
    let mut tensors = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        let (tensor, start, end) = decode_tensor(name, &entry).map_err(damaged)?;
        let checksum = checksum_under(metadata, &format!("{TENSOR_CHECKSUM}{}", tensor.name))?;
        tensors.push((tensor, Place { start, bytes: end - start, checksum }));
    }
    // An empty tensor stands before the one that starts where it does.
    tensors.sort_by_key(|(_, place)| (place.start, place.bytes));
    let mut end = 0;
    for (tensor, place) in &tensors {
        if place.start != end {
            let name = shown(&tensor.name);
            return Err(damaged(format!(
                "tensor '{name}' starts at byte {}, the one before it ends at {end}",
                place.start
            )));
        }
        end = place.start + place.bytes;
    }
    Ok(tensors.into_iter().unzip())
}

/// The tensor, its first byte and the byte after its last.
fn decode_tensor(name: String, entry: &Value) -> Result<(TensorInfo, u64, u64), String> {
    let bad = |what: &str| format!("tensor '{}' {what}", shown(&name));
    let dtype = entry.get("dtype").and_then(Value::as_str);
    let dtype = dtype.ok_or_else(|| bad("has no dtype"))?;
    let dtype = Dtype::from_name(dtype)
        .ok_or_else(|| bad(&format!("has dtype '{}', which checkpoints have not", shown(dtype))))?;
    let shape = numbers(entry.get("shape")).ok_or_else(|| bad("has no shape"))?;
    let offsets = numbers(entry.get("data_offsets"));
    let Some(&[start, end]) = offsets.as_deref() else {
        return Err(bad("has no offsets"));
    };
    let tensor = TensorInfo { name: name.clone(), dtype, shape };
    let bytes = tensor.bytes().ok_or_else(|| bad("has no size in 64 bits"))?;
    match end.checked_sub(start) {
        Some(given) if given == bytes => Ok((tensor, start, end)),
        Some(given) => Err(bad(&format!("has {given} bytes, its shape needs {bytes}"))),
        None => Err(bad("ends before it starts")),
    }
}

/// A list of unsigned integers.
fn numbers(value: Option<&Value>) -> Option<Vec<u64>> {
    value?.as_array()?.iter().map(Value::as_u64).collect()
}

/// The checksum that the metadata holds under a key: 16 hexadecimal digits, in lower case.
fn checksum_under(metadata: &Map<String, Value>, key: &str) -> Result<u64, ReadProblem> {
    let text = metadata.get(key).and_then(Value::as_str).unwrap_or_default();
    let parsed = u64::from_str_radix(text, 16).ok();
    // One value has one spelling: no sign, no capitals.
    parsed
        .filter(|value| format!("{value:016x}") == text)
        .ok_or_else(|| damaged(format!("its metadata has no checksum '{}'", shown(key))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What can be written can be read: the deepest model that settings allow, with biases and both
    /// moments, as small as its file can be.
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
