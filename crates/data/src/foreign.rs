//! Recognises files that are not token files by their first bytes, and says what to do with them.
//!
//! Any even number of bytes is a valid headerless token file, so training on a wrong file would
//! produce nonsense without any error. Each signature here is (nearly) impossible for real tokens.

/// How many of the file's first bytes [`kind`] looks at.
pub(crate) const SAMPLE_BYTES: usize = 1024;

/// Shortest sample that can count as text.
const TEXT_BYTES: usize = 16;

/// Fewest numbers that can count as 32-bit tokens.
const WIDE_NUMBERS: usize = 16;

/// A kind of file, and what to do with it instead.
pub(crate) type Kind = (&'static str, &'static str);

const PREPARE: &str = "`fitgpt prepare` makes token files from text";
const GPT2_ONLY: &str = "only GPT-2 shards (16-bit tokens, magic 20240520) can be read";

/// First bytes of files that people often keep next to their data.
const KINDS: [(&[u8], Kind); 13] = [
    (b"PK\x03\x04", ("a zip or PyTorch file", "token files are train.bin and val.bin")),
    (b"BIN.TOK\n", ("an llmq token file (32-bit tokens)", GPT2_ONLY)),
    (b"\x93NUMPY", ("a numpy .npy file", "write raw tokens: array.astype('<u2').tofile(path)")),
    (b"PAR1", ("a parquet file", PREPARE)),
    (b"GGUF", ("a GGUF model", "token files are train.bin and val.bin")),
    (b"\x1f\x8b\x08", ("a gzip file", "unpack it first: gunzip FILE")),
    (b"\x28\xb5\x2f\xfd", ("a zstd file", "unpack it first: unzstd FILE")),
    (b"BZh", ("a bzip2 file", "unpack it first: bunzip2 FILE")),
    (&20240801_i32.to_le_bytes(), ("an llm.c llama-3 shard (32-bit tokens)", GPT2_ONLY)),
    (&20240522_i32.to_le_bytes(), ("an llm.c evaluation file", GPT2_ONLY)),
    (&20240326_i32.to_le_bytes(), ("an llm.c model", GPT2_ONLY)),
    (&20240328_i32.to_le_bytes(), ("an llm.c tokenizer", GPT2_ONLY)),
    (&20240527_i32.to_le_bytes(), ("an llm.c training state", GPT2_ONLY)),
];

/// The kind that the first bytes reveal; `None` if the file may hold tokens.
pub(crate) fn kind(sample: &[u8]) -> Option<Kind> {
    if let Some((_, kind)) = KINDS.iter().find(|(start, _)| sample.starts_with(start)) {
        return Some(*kind);
    }
    if is_wide(sample) {
        return Some(("32-bit tokens", "write 16-bit ones: array.astype('<u2').tofile(path)"));
    }
    if is_pickle(sample) {
        return Some(("a Python pickle", "token files are raw 16-bit numbers"));
    }
    is_text(sample).then_some(("plain text", PREPARE))
}

/// Every second 16-bit number is 0 and the others are not all equal: 32-bit ids below 65,536.
fn is_wide(sample: &[u8]) -> bool {
    let (numbers, _) = sample.as_chunks::<4>();
    let low = |number: &[u8; 4]| [number[0], number[1]];
    numbers.len() >= WIDE_NUMBERS
        && numbers.iter().all(|number| number[2..] == [0, 0])
        && numbers.iter().any(|number| low(number) != low(&numbers[0]))
}

/// A protocol opcode, then a frame of less than 4 GiB or a memoized container.
fn is_pickle(sample: &[u8]) -> bool {
    matches!(sample, [0x80, 4 | 5, 0x95, _, _, _, _, 0, 0, 0, 0, ..])
        || matches!(sample, [0x80, 2 | 3, b'}' | b']', b'q', 0, ..])
}

/// Only printable bytes. Tokens of a small vocabulary contain zero bytes, and tokens of a large one
/// contain bytes of all values.
fn is_text(sample: &[u8]) -> bool {
    let printable = |&b: &u8| matches!(b, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    sample.len() >= TEXT_BYTES && sample.iter().all(printable)
}
