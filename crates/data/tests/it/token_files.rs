//! Files of both formats, streams of many files, and files that are foreign or broken.

use crate::scratch::{Scratch, raw, shard, shard_with};
use fitgpt_data::{DataError, TokenFile, TokenStream};
use proptest::prelude::*;

fn ramp(count: u16) -> Vec<u16> {
    (0..count).collect()
}

/// The message of opening a file with these bytes.
fn refusal(bytes: &[u8]) -> String {
    let scratch = Scratch::new();
    let path = scratch.write("train.bin", bytes);
    let error = TokenFile::open(&path).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("train.bin"), "{message}");
    assert!(message.contains("; ") && !message.contains('\n'), "{message}");
    message
}

#[test]
fn headerless_files_and_shards() {
    let scratch = Scratch::new();
    // More than the 4096 tokens that are converted at a time.
    let tokens = ramp(10_000);
    for (name, bytes) in [("raw.bin", raw(&tokens)), ("shard.bin", shard(&tokens))] {
        let file = TokenFile::open(&scratch.write(name, &bytes)).unwrap();
        assert_eq!(file.len(), 10_000, "{name}");
        for (start, count) in [(0, 10_000), (1, 1), (9_999, 1), (4_095, 2), (10_000, 0)] {
            let mut out = vec![-1; count];
            file.read(start, &mut out, 10_000).unwrap();
            assert!(out.iter().zip(start as i32..).all(|(&got, want)| got == want), "{name}");
        }
    }
}

#[test]
fn a_set_of_shards_is_one_stream() {
    let scratch = Scratch::new();
    let tokens = ramp(1000);
    let parts = [&tokens[..1], &tokens[1..500], &tokens[500..503], &tokens[503..]];
    let paths: Vec<_> = parts
        .iter()
        .enumerate()
        .map(|(i, part)| {
            let bytes = if i % 2 == 0 { shard(part) } else { raw(part) };
            scratch.write(&format!("{i}.bin"), &bytes)
        })
        .collect();
    let stream = TokenStream::open(&paths).unwrap();
    assert_eq!((stream.len(), stream.files()), (1000, 4));
    for start in 0..1000_u64 {
        for count in [0, 1, 2, 7, 300] {
            let mut out = vec![-1; count];
            let read = stream.read(start, &mut out);
            if start + count as u64 > 1000 {
                assert!(matches!(read, Err(DataError::OutOfRange { tokens: 1000, .. })));
                continue;
            }
            read.unwrap();
            assert!(out.iter().zip(start as i32..).all(|(&got, want)| got == want));
        }
    }
    assert!(stream.read(u64::MAX, &mut [0]).is_err());
}

#[test]
fn ids_beyond_the_vocabulary_are_named() {
    let scratch = Scratch::new();
    let mut tokens = ramp(6000);
    tokens[5000] = 60_000;
    let path = scratch.write("train.bin", &shard(&tokens));
    let mut from_file = TokenStream::open(&[path]).unwrap();
    let mut from_memory = TokenStream::from_memory("some train.bin", tokens);
    for stream in [&mut from_file, &mut from_memory] {
        let mut out = vec![0; 3000];
        stream.read(3000, &mut out).unwrap();
        stream.set_vocab_size(50_304);
        let message = stream.read(3000, &mut out).unwrap_err().to_string();
        assert!(message.contains("train.bin: token 5000 is 60000"), "{message}");
        assert!(message.contains("vocab_size is 50304 (ids 0 to 50303)"), "{message}");
        stream.read(2000, &mut out).unwrap();
    }
}

#[test]
fn broken_and_foreign_files_are_refused() {
    let tokens = ramp(100);
    let cut = &shard(&tokens)[..1100];
    let text = b"First Citizen:\nBefore we proceed any further, hear me speak.\n";
    let frame = b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}";
    let wide: Vec<u8> = (0..100_u32).flat_map(u32::to_le_bytes).collect();
    let cases: [(&[u8], &str); 15] = [
        (&wide, "32-bit tokens; write 16-bit ones"),
        (b"", "is empty (0 bytes)"),
        (b"abc", "has 3 bytes, but tokens are 2 bytes each"),
        (cut, "has 1100 bytes, but its header promises 100 tokens, which take 1224"),
        (&shard_with(20240520, 1, 99, &tokens), "promises 99 tokens, which take 1222"),
        (&shard_with(20240520, 1, -1, &tokens), "promises -1 tokens"),
        (&shard_with(20240520, 1, 0, &[]), "promises 0 tokens"),
        (&20240520_i32.to_le_bytes(), "has 4 bytes"),
        (&shard_with(20240520, 2, 100, &tokens), "shard of version 2, but only version 1"),
        (&shard_with(20240801, 7, 100, &tokens), "llama-3 shard"),
        (b"PK\x03\x04\x00\x00\x08\x08archive/data.pkl", "a zip or PyTorch file"),
        (text, "plain text; `fitgpt prepare` makes token files"),
        (b"BIN.TOK\n\x02\0\0\0\x04\0\0\0", "an llmq token file"),
        (frame, "a Python pickle"),
        (b"\x93NUMPY\x01\x00v\x00", "a numpy .npy file"),
    ];
    for (bytes, want) in cases {
        let message = refusal(bytes);
        assert!(message.contains(want), "{want:?} in {message:?}");
    }
}

/// Token files that slightly resemble another kind: token 35615 first, or one repeated id.
#[test]
fn real_tokens_are_not_refused() {
    let scratch = Scratch::new();
    for tokens in [vec![35_615, 3, 5, 7], vec![0; 200], [5, 0].repeat(100)] {
        let path = scratch.write("t.bin", &raw(&tokens));
        assert_eq!(TokenFile::open(&path).unwrap().len(), tokens.len() as u64);
    }
}

/// More shards than a process may hold open.
#[test]
fn two_thousand_shards_are_one_stream() {
    let scratch = Scratch::new();
    let paths: Vec<_> = (0..2000_u16)
        .map(|i| scratch.write(&format!("s_{i:06}.bin"), &shard(&[i, i + 1])))
        .collect();
    let stream = TokenStream::open(&paths).unwrap();
    let mut out = [0; 4];
    stream.read(2 * 1998, &mut out).unwrap();
    assert_eq!((stream.len(), out), (4000, [1998, 1999, 1999, 2000]));
}

#[test]
fn what_cannot_be_opened_is_named() {
    let scratch = Scratch::new();
    let message = TokenFile::open(&scratch.path().join("no.bin")).unwrap_err().to_string();
    assert!(message.contains("no.bin: cannot open it: No such file"), "{message}");
    let message = TokenFile::open(scratch.path()).unwrap_err().to_string();
    assert!(message.contains("a folder"), "{message}");
}

/// As happens when a disk is full or another program rewrites the file.
#[test]
fn a_file_that_shrinks_while_open_is_an_error() {
    let scratch = Scratch::new();
    let path = scratch.write("train.bin", &raw(&ramp(9000)));
    let file = TokenFile::open(&path).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1000).unwrap();
    let error = file.read(0, &mut [0; 8000], 1 << 16).unwrap_err();
    assert!(matches!(error, DataError::Shrunk { token: 0, .. }), "{error}");
    let error = file.read(400, &mut [0; 101], 1 << 16).unwrap_err();
    assert!(error.to_string().contains("token 400 is gone"), "{error}");
    file.read(400, &mut [0; 100], 1 << 16).unwrap();
}

proptest! {
    /// Any bytes are either refused or read as the right number of tokens.
    #[test]
    fn random_files_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        let scratch = Scratch::new();
        let path = scratch.write("x.bin", &bytes);
        if let Ok(file) = TokenFile::open(&path) {
            prop_assert_eq!(file.len(), bytes.len() as u64 / 2);
            let mut out = vec![0; file.len() as usize];
            file.read(0, &mut out, 1 << 16).unwrap();
        }
    }

    /// Damaged headers and truncated shards.
    #[test]
    fn damaged_shards_never_panic(
        at in 0..12_usize,
        byte in any::<u8>(),
        length in 0..1300_usize,
    ) {
        let scratch = Scratch::new();
        let mut bytes = shard(&ramp(100));
        bytes[at] = byte;
        bytes.truncate(length);
        if let Ok(file) = TokenFile::open(&scratch.write("x.bin", &bytes)) {
            let mut out = vec![0; file.len() as usize];
            file.read(0, &mut out, 1 << 16).unwrap();
        }
    }
}
