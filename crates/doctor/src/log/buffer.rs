//! The tensor that an error or a sentence names with its shape.

use super::settings::Origin;
use super::text::Line;
use plan::Dtype;

/// A buffer that code compiled by Inductor, another program's error or a sentence names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Its shape.
    pub shape: Vec<u64>,
    /// Its element type.
    pub dtype: Dtype,
    /// Where it is from: the error (`Echoed`) or a sentence.
    pub origin: Origin,
}

/// Where errors have shapes: the words before, and the bracket that ends them.
const ERRORS: [(&str, char); 4] = [
    ("empty_strided_cuda((", ')'),
    ("allocating tensor with shape[", ']'),
    ("for an array with shape (", ')'),
    ("empty_strided_mps((", ')'),
];

impl Buffer {
    /// The last buffer that an error names, or else the first that a sentence does.
    pub fn find(lines: &[Line]) -> Option<Buffer> {
        let of_error = |line: &Line| {
            ERRORS.iter().find_map(|(words, end)| {
                let (_, rest) = line.text.split_once(words)?;
                let (shape, rest) = rest.split_once(*end)?;
                let shape = numbers(shape)?;
                // TensorFlow leaves the usual type out.
                let usual = words.starts_with("allocating").then_some(Dtype::F32);
                let dtype = dtype(rest).or(usual)?;
                Some(Buffer { shape, dtype, origin: Origin::Echoed })
            })
        };
        let told = lines.iter().filter(|line| line.told && !line.advice && line.text.len() < 4000);
        lines.iter().rev().find_map(of_error).or_else(|| told.into_iter().find_map(of_sentence))
    }

    /// A sentence often leaves out which of the types with two bytes it means.
    pub(super) fn agree_with(&mut self, dtype: Option<&str>) {
        self.dtype = match (self.origin, self.dtype, dtype) {
            (Origin::Prose, Dtype::Bf16, Some("float16")) => Dtype::F16,
            (_, dtype, _) => dtype,
        };
    }

    /// Its bytes.
    pub fn bytes(&self) -> Option<u64> {
        let elements = self.shape.iter().try_fold(1u64, |all, dim| all.checked_mul(*dim))?;
        elements.checked_mul(self.dtype.size())
    }
}

/// `65536, 50304`.
fn numbers(text: &str) -> Option<Vec<u64>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let shape: Vec<u64> = parts.map(|part| part.parse().ok()).collect::<Option<_>>()?;
    (!shape.is_empty() && shape.len() <= 8).then_some(shape)
}

/// The first element type that a text names.
fn dtype(text: &str) -> Option<Dtype> {
    const NAMES: [(&str, Dtype); 12] = [
        ("bfloat16", Dtype::Bf16),
        ("bf16", Dtype::Bf16),
        ("float16", Dtype::F16),
        ("fp16", Dtype::F16),
        ("half", Dtype::F16),
        ("float32", Dtype::F32),
        ("fp32", Dtype::F32),
        ("type float", Dtype::F32),
        ("int32", Dtype::I32),
        ("2 bytes", Dtype::Bf16),
        ("2バイト", Dtype::Bf16),
        ("4 bytes", Dtype::F32),
    ];
    let lower = text.to_lowercase();
    let found = NAMES.iter().filter_map(|(name, dtype)| Some((lower.find(name)?, *dtype)));
    found.min_by_key(|(at, _)| *at).map(|(_, dtype)| dtype)
}

/// Vocabularies are larger; products in a sentence without such a factor are not logits.
const SMALLEST_VOCABULARY: u64 = 16_000;

/// `shape (65536, 50304), bfloat16` and `logits (16×1024×50304 × 2 bytes)`: tensors of a sentence
/// that have a vocabulary as their last dimension.
fn of_sentence(line: &Line) -> Option<Buffer> {
    if line.fenced {
        return None;
    }
    let text = line.text.as_str();
    let listed = text.match_indices('(').find_map(|(at, _)| {
        let (inside, rest) = text[at + 1..].split_once(')')?;
        let shape = numbers(inside)?;
        // The type follows the shape closely.
        let near: String = rest.chars().take(40).collect();
        Some((shape, dtype(&near)?))
    });
    let (shape, dtype) = listed.or_else(|| product(&text.to_lowercase()))?;
    let logits = shape.len() >= 2 && *shape.last()? >= SMALLEST_VOCABULARY;
    logits.then_some(Buffer { shape, dtype, origin: Origin::Prose })
}

/// `16×1024×50304 × 2 bytes`: the factors, of which the last is the element's size.
fn product(text: &str) -> Option<(Vec<u64>, Dtype)> {
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = &rest[at..];
        let (factors, behind) = factors(rest);
        if let [shape @ .., size @ (2 | 4)] = factors.as_slice()
            && shape.len() >= 2
            && shape.last().is_some_and(|last| *last >= SMALLEST_VOCABULARY)
        {
            let dtype = match size {
                4 => Dtype::F32,
                _ if text.contains("bf16") || text.contains("bfloat16") => Dtype::Bf16,
                _ if text.contains("fp16") || text.contains("float16") => Dtype::F16,
                _ => Dtype::Bf16,
            };
            return Some((shape.to_vec(), dtype));
        }
        rest = behind;
    }
    None
}

/// Numbers joined by a sign of multiplication, and the rest.
fn factors(text: &str) -> (Vec<u64>, &str) {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(rest.len());
        let digits = rest[..end].replace(',', "");
        let Ok(number) = digits.parse::<u64>() else {
            // Not to stand still.
            let skip = rest.char_indices().nth(1).map_or(rest.len(), |(at, _)| at);
            return (found, rest.get(end.max(skip)..).unwrap_or(""));
        };
        found.push(number);
        rest = &rest[end..];
        let next = rest.trim_start();
        let Some(next) = next.strip_prefix(['×', '*', 'x', '·']) else {
            return (found, rest);
        };
        let next = next.trim_start();
        if found.len() >= 8 || !next.starts_with(|c: char| c.is_ascii_digit()) {
            return (found, next);
        }
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_from_errors_and_sentences() {
        for (text, shape, dtype) in [
            ("b = empty_strided_cuda((8, 16), (16, 1), torch.float32)", vec![8, 16], Dtype::F32),
            (
                "OOM when allocating tensor with shape[2,3,4] and type float on",
                vec![2, 3, 4],
                Dtype::F32,
            ),
            ("a buffer of shape (4096, 50304), bfloat16, about", vec![4096, 50304], Dtype::Bf16),
            ("logits in fp16 (4 × 512 × 32000 × 2 bytes)", vec![4, 512, 32000], Dtype::F16),
            ("logits: 4*512*32,000 * 4", vec![4, 512, 32000], Dtype::F32),
        ] {
            let found = Buffer::find(&[Line::plain(text)]).unwrap();
            assert_eq!((found.shape, found.dtype), (shape, dtype), "{text}");
        }
        for text in ["12 × 12 × 1024 × 576 × 2 bytes", "a tuple (3, 4), bfloat16", "9,,x9×"] {
            assert_eq!(Buffer::find(&[Line::plain(text)]), None, "{text}");
        }
    }
}
