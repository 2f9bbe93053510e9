//! A tensor of a checkpoint: a part of a storage, with strides. And plain values that PyTorch or
//! numpy wrap: numbers.

use super::archive::{Archive, Entry};
use super::names::{Element, Name, meaning};
use crate::error::ForeignProblem;
use pickle::{Call, Value};

/// More dimensions than any tensor of a checkpoint has.
const MOST_DIMENSIONS: usize = 8;

/// A tensor in its storage.
#[derive(Clone, Debug)]
pub struct View {
    /// The storage's name in the archive.
    pub storage: String,
    pub entry: Entry,
    pub element: Element,
    /// First element.
    pub offset: u64,
    pub shape: Vec<u64>,
    pub strides: Vec<u64>,
}

impl View {
    /// How many elements it has.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Whether its elements are one after the other.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.shape.iter().zip(&self.strides).rev().all(|(&extent, &stride)| {
            let is_next = extent == 1 || stride == expected;
            expected *= extent;
            is_next
        })
    }

    /// Whether both are the same bytes.
    pub fn is_same(&self, other: &View) -> bool {
        self.entry.start == other.entry.start
            && (self.offset, &self.shape, &self.strides)
                == (other.offset, &other.shape, &other.strides)
    }

    /// The tensor that a value describes; none if the value is no tensor. `what` names it in
    /// messages.
    pub fn of(
        value: &Value,
        archive: &Archive,
        what: &str,
    ) -> Result<Option<View>, ForeignProblem> {
        let Value::Call(call) = value else {
            return Ok(None);
        };
        match (meaning(call.function), &call.arguments[..]) {
            (Some(Name::Parameter), [data, ..]) => View::of(data, archive, what),
            (Some(Name::Tensor), [_, _, _, _, ..]) => tensor(call, None, archive, what).map(Some),
            (Some(Name::TypedTensor), [_, _, _, _, _, _, Value::Global(element), ..]) => {
                match meaning(*element) {
                    Some(Name::Type(element)) => {
                        tensor(call, Some(element), archive, what).map(Some)
                    }
                    _ => Err(bad(what, "its element type is unknown")),
                }
            }
            _ => Ok(None),
        }
    }
}

fn bad(what: &str, why: &str) -> ForeignProblem {
    ForeignProblem::Damaged { what: format!("tensor {what}: {why}") }
}

/// The tensor that a call with at least four arguments describes.
fn tensor(
    call: &Call,
    element: Option<Element>,
    archive: &Archive,
    what: &str,
) -> Result<View, ForeignProblem> {
    let bad = |why: &str| bad(what, why);
    let (key, of_storage, count) =
        storage(&call.arguments[0]).ok_or_else(|| bad("it has no storage"))?;
    let element = element.or(of_storage).ok_or_else(|| bad("its element type is unknown"))?;
    let name = format!("data/{key}");
    let entry = archive.entry(&name).ok_or_else(|| bad("the file lacks its storage"))?;
    // An untyped storage counts bytes.
    let counted = of_storage.map_or(1, Element::bytes);
    if count.checked_mul(counted) != Some(entry.bytes) {
        return Err(bad("its storage has another size than it says"));
    }
    let offset = natural(&call.arguments[1]).ok_or_else(|| bad("its offset is no number"))?;
    let [shape, strides] = [2, 3].map(|at| naturals(&call.arguments[at]));
    let (Some(shape), Some(strides)) = (shape, strides) else {
        return Err(bad("its size is not a tuple of numbers"));
    };
    if shape.len() != strides.len() || shape.len() > MOST_DIMENSIONS {
        return Err(bad("its strides do not match its size"));
    }
    let view = View { storage: name, entry, element, offset, shape, strides };
    match view.is_inside() {
        true if view.is_repeated() => {
            let what = format!(
                "tensor {what} has more elements than its storage (an expanded tensor); save it \
                 after .contiguous()"
            );
            Err(ForeignProblem::Refused { what })
        }
        true => Ok(view),
        false => Err(bad("it is outside its storage")),
    }
}

impl View {
    /// How many elements the storage has.
    fn held(&self) -> u64 {
        self.entry.bytes / self.element.bytes()
    }

    /// Whether it has more elements than its storage. Such a tensor is not read: it would take more
    /// memory than the file has bytes.
    fn is_repeated(&self) -> bool {
        self.elements() > self.held()
    }

    /// Whether all elements are inside the storage.
    fn is_inside(&self) -> bool {
        let held = self.held();
        let count = |so_far: u64, extent: &u64| so_far.checked_mul(*extent);
        let Some(elements) = self.shape.iter().try_fold(1, count) else {
            return false;
        };
        let last = self.shape.iter().zip(&self.strides).try_fold(
            self.offset,
            |last, (&extent, &stride)| {
                last.checked_add(extent.saturating_sub(1).checked_mul(stride)?)
            },
        );
        elements == 0 || last.is_some_and(|last| last < held)
    }
}

/// The key, element type and count of a storage. An untyped one counts bytes.
fn storage(value: &Value) -> Option<(&str, Option<Element>, u64)> {
    let Value::Persistent(id) = value else {
        return None;
    };
    let Value::Tuple(parts) = &**id else {
        return None;
    };
    let [Value::Str(kind), Value::Global(class), Value::Str(key), _, count, ..] = &parts[..] else {
        return None;
    };
    let element = match meaning(*class)? {
        Name::Storage(element) => Some(element),
        Name::UntypedStorage => None,
        _ => return None,
    };
    (kind == "storage").then_some((key, element, natural(count)?))
}

/// A number that is not negative.
pub fn natural(value: &Value) -> Option<u64> {
    value.as_int().and_then(|number| u64::try_from(number).ok())
}

/// A tuple, a list or a `torch.Size` of such numbers.
fn naturals(value: &Value) -> Option<Vec<u64>> {
    match value {
        Value::Tuple(parts) | Value::List(parts) => parts.iter().map(natural).collect(),
        Value::Call(call) if meaning(call.function) == Some(Name::Size) => {
            naturals(call.arguments.first()?)
        }
        _ => None,
    }
}

/// A number: plain, numpy's, or a tensor with one element.
pub fn number(value: &Value, archive: &Archive, what: &str) -> Result<Option<f64>, ForeignProblem> {
    match value {
        Value::Int(number) => Ok(Some(*number as f64)),
        Value::Float(number) => Ok(Some(*number)),
        Value::Call(call) if meaning(call.function) == Some(Name::Scalar) => Ok(scalar(call)),
        _ => match View::of(value, archive, what)? {
            Some(view) if view.elements() == 1 => element(&view, archive).map(Some),
            _ => Ok(None),
        },
    }
}

/// The only element of a tensor.
fn element(view: &View, archive: &Archive) -> Result<f64, ForeignProblem> {
    archive.verify(view.entry, &view.storage)?;
    let bytes = view.element.bytes();
    let mut content = [0; 8];
    archive.read(view.entry, view.offset * bytes, &mut content[..bytes as usize])?;
    Ok(decode(view.element, &content))
}

/// The number in the first bytes.
pub fn decode(element: Element, bytes: &[u8; 8]) -> f64 {
    let [a, b, c, d, ..] = *bytes;
    match element {
        Element::F64 => f64::from_le_bytes(*bytes),
        Element::F32 => f32::from_le_bytes([a, b, c, d]).into(),
        Element::F16 => plan::half::from_f16(u16::from_le_bytes([a, b])).into(),
        Element::BF16 => plan::half::from_bf16(u16::from_le_bytes([a, b])).into(),
        Element::I64 => i64::from_le_bytes(*bytes) as f64,
        Element::I32 => i32::from_le_bytes([a, b, c, d]).into(),
        Element::I16 => i16::from_le_bytes([a, b]).into(),
        Element::I8 => i8::from_le_bytes([a]).into(),
        Element::U8 | Element::Bool => a.into(),
    }
}

/// A number of numpy, from the name of its type and its bytes.
fn scalar(call: &Call) -> Option<f64> {
    let [Value::Call(dtype), bytes] = &call.arguments[..] else {
        return None;
    };
    let (Some(Name::NumpyType), Some(Value::Str(name))) =
        (meaning(dtype.function), dtype.arguments.first())
    else {
        return None;
    };
    let is_big_endian =
        matches!(&dtype.state, Some(Value::Tuple(state)) if state.get(1)?.as_str() == Some(">"));
    let element = match name.as_str() {
        "f8" if !is_big_endian => Element::F64,
        "f4" if !is_big_endian => Element::F32,
        "i8" if !is_big_endian => Element::I64,
        "i4" if !is_big_endian => Element::I32,
        _ => return None,
    };
    let mut content = [0; 8];
    let bytes = byte_string(bytes)?;
    let count = element.bytes() as usize;
    content[..count].copy_from_slice(bytes.get(..count)?);
    Some(decode(element, &content))
}

/// Bytes, or text that stands for bytes: `_codecs.encode(text, 'latin1')`.
fn byte_string(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Bytes(bytes) => Some(bytes.clone()),
        Value::Call(call) if meaning(call.function) == Some(Name::Encode) => {
            let text = call.arguments.first()?.as_str()?;
            text.chars().map(|character| u8::try_from(u32::from(character)).ok()).collect()
        }
        _ => None,
    }
}
