//! What a file is when it is no token file: known by its first bytes, named with what to do.
//!
//! Any even number of bytes is a valid headerless token file, so a wrong file would train into
//! nonsense without a word. Each beginning here is impossible, or nearly so, for real tokens.

/// Bytes from the file's beginning that [`kind`] wants to see.
pub(crate) const SAMPLE_BYTES: usize = 1024;

/// Shortest sample that is believed to be text.
const TEXT_BYTES: usize = 16;

/// Fewest 32-bit numbers that are believed to be such.
const WIDE_NUMBERS: usize = 16;

/// A kind of file, and what to do with it instead.
pub(crate) type Kind = (&'static str, &'static str);

const PREPARE: &str = "`fitgpt prepare` makes token files of text";
const GPT2_ONLY: &str = "only GPT-2 shards (16-bit tokens, magic 20240520) can be read";

/// Beginnings of files that people have lying beside their data.
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

/// What the beginning of a file gives away, or none: it may hold tokens.
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

/// Every other 16-bit number is 0 and the rest are not all alike: 32-bit ids below 65,536.
fn is_wide(sample: &[u8]) -> bool {
    let (numbers, _) = sample.as_chunks::<4>();
    let low = |number: &[u8; 4]| [number[0], number[1]];
    numbers.len() >= WIDE_NUMBERS
        && numbers.iter().all(|number| number[2..] == [0, 0])
        && numbers.iter().any(|number| low(number) != low(&numbers[0]))
}

/// A protocol, then a frame of less than 4 GiB or a memoized container.
fn is_pickle(sample: &[u8]) -> bool {
    matches!(sample, [0x80, 4 | 5, 0x95, _, _, _, _, 0, 0, 0, 0, ..])
        || matches!(sample, [0x80, 2 | 3, b'}' | b']', b'q', 0, ..])
}

/// Printable throughout. Tokens of small vocabularies have zero bytes, and those of large ones
/// have all values of bytes.
fn is_text(sample: &[u8]) -> bool {
    let printable = |&b: &u8| matches!(b, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    sample.len() >= TEXT_BYTES && sample.iter().all(printable)
}
