//! Small or finite files that would make a careless reader take unlimited memory.
//!
//! Each is read in its own process, whose peak memory is compared with the promised limit.

use crate::fixture::{TempDir, alone, fails, parquet, peak_memory, zstd};
use ::parquet::basic::{Compression, GzipLevel, ZstdLevel};
use fitgpt_prepare::{
    Format, Hub, Packing, ReadSpec, Result, Sink, TokenizerChoice, open_json, read,
};
use requires::{Need, absent};
use std::path::Path;
use std::time::Instant;

const MIB: u64 = 1 << 20;
/// Environment variable with the file that the process reads.
const FILE: &str = "FITGPT_TEST_FILE";

/// The promise of `docs/limits.md`: seconds for each MiB of a file, plus a fixed time.
const SECONDS: (f64, f64) = (1.0, 5.0);

/// Runs `test` in another process, where `work` reads `file`. Its time, and its peak memory beyond
/// that of an idle process, must be within the promise. Returns its output.
fn within_the_promise(
    test: &str,
    file: &Path,
    work: impl FnOnce(&Path) -> String,
) -> Option<String> {
    if let Some(file) = std::env::var_os(FILE) {
        let idle = peak_memory()?;
        let start = Instant::now();
        let said = work(Path::new(&file));
        let took = start.elapsed().as_secs_f64();
        println!("<{said}> <{}> <{took}>", peak_memory()? - idle);
        return None;
    }
    if peak_memory().is_none() {
        absent(Need::Linux, "no /proc/self/status");
        return None;
    }
    let text = alone(test, &[(FILE, file.to_str().unwrap())]);
    let mut found = text.split('<').skip(1).map(|part| part.split('>').next().unwrap());
    let said = found.next().unwrap().to_owned();
    let peak: u64 = found.next().unwrap().parse().unwrap();
    let took: f64 = found.next().unwrap().parse().unwrap();
    let size = file.metadata().unwrap().len();
    let most = 4 * size + 64 * MIB;
    let longest = SECONDS.0 * size as f64 / MIB as f64 + SECONDS.1;
    println!("{test}: {size} bytes took {peak} of {most}, {took:.2} s of {longest:.1}: {said}");
    assert!(peak <= most, "{size} bytes took {peak}, more than {most}");
    assert!(took <= longest, "{size} bytes took {took} s, more than {longest}");
    Some(said)
}

#[test]
fn the_page_promises_the_same_time() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");
    let page = std::fs::read_to_string(page).unwrap();
    let want = format!("at most {} s per MiB, decompressed, + {} s", SECONDS.0, SECONDS.1);
    assert!(page.contains(&want), "docs/limits.md lacks {want:?}");
}

struct Nowhere(u64);

impl Sink for Nowhere {
    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.0 += bytes.len() as u64;
        Ok(())
    }
    fn end_document(&mut self) -> Result<()> {
        Ok(())
    }
    fn skip_document(&mut self) {}
    fn replaced(&mut self) {}
    fn position(&mut self, _: u64) {}
}

/// What a source gives: its bytes of text, or the error.
fn text_of(path: &Path, format: Format, packing: Packing) -> String {
    let (name, field) = ("it", "text");
    let mut sink = Nowhere(0);
    let spec = ReadSpec { path, name, format, packing, field, ends_documents: true };
    match read(&spec, &mut sink) {
        Ok(()) => format!("{} bytes", sink.0),
        Err(error) => error.to_string(),
    }
}

fn tokenizer(path: &Path) -> String {
    match open_json(path) {
        Ok(_) => "a tokenizer".to_owned(),
        Err(error) => error.to_string().chars().take(300).collect(),
    }
}

const HEAD: &str = r#""pre_tokenizer":{"type":"ByteLevel"},"model":{"type":"BPE","#;

#[test]
fn a_wide_tokenizer_json() {
    let dir = TempDir::new("wide");
    let path = dir.path("tokenizer.json");
    if std::env::var_os(FILE).is_none() {
        let numbers = "[1,{\"a\":[]}],".repeat(800_000);
        let text = format!("{{\"x\":[{numbers}0],{HEAD}\"vocab\":{{}},\"merges\":[]}}}}");
        std::fs::write(&path, text).unwrap();
    }
    let said = within_the_promise("memory::a_wide_tokenizer_json", &path, tokenizer);
    assert!(said.is_none_or(|said| said.contains("has no token for byte")));
}

#[test]
fn many_tokens_and_merges() {
    let dir = TempDir::new("many");
    let path = dir.path("tokenizer.json");
    if std::env::var_os(FILE).is_none() {
        let vocab: String = (0..300_000).map(|id| format!("\"{id}\":{id},")).collect();
        let merges = "\"0 1\",".repeat(800_000);
        let text = format!("{{{HEAD}\"merges\":[{merges}\"0 1\"],\"vocab\":{{{vocab}\"x\":0}}}}}}");
        std::fs::write(&path, text).unwrap();
    }
    let said = within_the_promise("memory::many_tokens_and_merges", &path, tokenizer);
    assert!(said.is_none_or(|said| said.contains("more than 65536 tokens")));
}

#[test]
fn one_token_of_many_bytes() {
    let dir = TempDir::new("one-token");
    let path = dir.path("tokenizer.json");
    if std::env::var_os(FILE).is_none() {
        // All bytes have a token, so that the tables are built.
        let mut others = 0x100_u32..;
        let letters: String = (0..=255_u8)
            .map(|byte| match byte {
                b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
                _ => char::from_u32(others.next().unwrap()).unwrap(),
            })
            .zip(1..)
            .map(|(letter, id)| format!("{}:{id},", serde_json::json!(letter.to_string())))
            .collect();
        let long = "a".repeat(10 << 20);
        let text = format!(
            "{{{HEAD}\"vocab\":{{{letters}\"{long}\":300,\"aa\":301,\"<eos>\":0}},\
             \"merges\":[\"a a\"]}}}}"
        );
        std::fs::write(&path, text).unwrap();
    }
    let said = within_the_promise("memory::one_token_of_many_bytes", &path, tokenizer);
    assert!(said.is_none_or(|said| said == "a tokenizer"));
}

#[test]
fn a_listing_of_many_files() {
    let dir = TempDir::new("listing");
    let path = dir.path("listing.json");
    if std::env::var_os(FILE).is_none() {
        let entries = "{\"path\":\"a.parquet\",\"x\":[[],[]]},".repeat(250_000);
        std::fs::write(&path, format!("[{entries}{{}}]")).unwrap();
    }
    let work = |path: &Path| {
        let hub = Hub { endpoint: "https://hub.invalid".to_owned(), token: None };
        let files = fitgpt_prepare::files(&hub, "a/b", "main", &std::fs::read(path).unwrap());
        files.map_or_else(|what| what, |files| format!("{} files", files.len()))
    };
    let said = within_the_promise("memory::a_listing_of_many_files", &path, work);
    assert!(said.is_none_or(|said| said == "the listing has more than 100000 files"));
}

/// One document of zeros, which compresses to very little.
fn large_page(path: &Path, codec: Compression) {
    if std::env::var_os(FILE).is_none() {
        parquet(path, &[Some("0".repeat(128 << 20))], codec);
        assert!(path.metadata().unwrap().len() < MIB);
    }
}

#[test]
fn a_parquet_file_with_one_large_page() {
    let dir = TempDir::new("page");
    let path = dir.path("a.parquet");
    large_page(&path, Compression::ZSTD(ZstdLevel::default()));
    let work = |path: &Path| text_of(path, Format::Parquet, Packing::None);
    let said = within_the_promise("memory::a_parquet_file_with_one_large_page", &path, work);
    for word in ["has a page of 134217", "bytes of memory: more than", "smaller pages"] {
        assert!(said.as_ref().is_none_or(|said| said.contains(word)), "{said:?}");
    }
}

/// The library decompresses gzip completely, even if the header states a smaller size.
#[test]
fn a_parquet_page_that_says_less_than_it_has() {
    let dir = TempDir::new("liar");
    let path = dir.path("a.parquet");
    if std::env::var_os(FILE).is_none() {
        large_page(&path, Compression::GZIP(GzipLevel::default()));
        let mut bytes = std::fs::read(&path).unwrap();
        let zigzag = |size: u64| {
            let mut left = size << 1;
            let mut varint = Vec::new();
            while left >= 0x80 {
                varint.push(left as u8 | 0x80);
                left >>= 7;
            }
            [varint, vec![left as u8]].concat()
        };
        // Replaces the size in the page header by one of the same encoded length.
        let real = (128 << 20) + 4..(128 << 20) + 32;
        let size = real.map(zigzag).find_map(|real| {
            let at = bytes.windows(real.len()).position(|window| window == real)?;
            Some((at, real.len()))
        });
        let (at, length) = size.expect("the size stands in the header");
        let mut small = zigzag(1000);
        while small.len() < length {
            *small.last_mut().unwrap() |= 0x80;
            small.push(0);
        }
        bytes[at..at + length].copy_from_slice(&small);
        std::fs::write(&path, bytes).unwrap();
    }
    let work = |path: &Path| text_of(path, Format::Parquet, Packing::None);
    let said = within_the_promise("memory::a_parquet_page_that_says_less_than_it_has", &path, work);
    let word = "a page decompresses to more than the 1000 bytes";
    assert!(said.as_ref().is_none_or(|said| said.contains(word)), "{said:?}");
}

/// A file that is only a footer; `elements` gives the number of children of each schema element.
fn only_footer(path: &Path, elements: &[u32]) {
    let varint = |mut left: u32| {
        let mut bytes = Vec::new();
        while left >= 0x80 {
            bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        bytes.push(left as u8);
        bytes
    };
    let mut footer = vec![0x15, 2, 0x19, 0xfc]; // version 1, a list of structures
    footer.extend(varint(elements.len() as u32));
    for children in elements {
        match children {
            0 => footer.extend([0x15, 12, 0x25, 0, 0x18, 1, b'a', 0]), // a required text
            _ => {
                footer.extend([0x35, 0, 0x18, 1, b'a', 0x15]); // a required group
                footer.extend([varint(children << 1), vec![0]].concat());
            }
        }
    }
    footer.extend([0x16, 0, 0x19, 0x0c, 0]); // no rows, no row groups
    let length = (footer.len() as u32).to_le_bytes();
    std::fs::write(path, [b"PAR1", &footer[..], &length, b"PAR1"].concat()).unwrap();
}

/// Too many columns, and one level of nesting too many.
#[test]
fn a_parquet_file_that_is_all_footer() {
    let dir = TempDir::new("footer");
    let path = dir.path("a.parquet");
    if std::env::var_os(FILE).is_none() {
        let columns = 43_000;
        only_footer(&path, &[vec![columns], vec![0; columns as usize]].concat());
    }
    let work = |path: &Path| text_of(path, Format::Parquet, Packing::None);
    let test = "memory::a_parquet_file_that_is_all_footer";
    let Some(said) = within_the_promise(test, &path, work) else { return };
    assert!(said.contains("has no column 'text'"), "{said:.200}");
    only_footer(&path, &[vec![60_000], vec![0; 60_000]].concat());
    let said = work(&path);
    assert!(said.contains("with 60001 columns, which"), "{said:.200}");
    // Thousands of nested groups would kill the process, because a stack overflow cannot be caught.
    for depth in [65, 100_000] {
        only_footer(&path, &[vec![1; depth], vec![0]].concat());
        let said = work(&path);
        assert!(said.contains("nested deeper than 64"), "{said:.200}");
    }
}

#[test]
fn a_zstd_file_with_a_large_window() {
    let dir = TempDir::new("window");
    let path = dir.path("a.txt.zst");
    if std::env::var_os(FILE).is_none() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        let block = vec![b'0'; 1 << 20];
        (0..160).for_each(|_| std::io::Write::write_all(&mut encoder, &block).unwrap());
        std::fs::write(&path, encoder.finish().unwrap()).unwrap();
    }
    let work = |path: &Path| text_of(path, Format::Text, Packing::Zstd);
    let said = within_the_promise("memory::a_zstd_file_with_a_large_window", &path, work);
    assert!(said.is_none_or(|said| said.contains("for so small a file (limit 32 MiB)")));
}

#[test]
fn much_text_in_a_small_file_passes_through() {
    let dir = TempDir::new("bomb");
    let path = dir.path("a.jsonl.zst");
    if std::env::var_os(FILE).is_none() {
        let text = ["{\"text\": \"", &"0".repeat(128 << 20), "\"}"].concat();
        std::fs::write(&path, zstd(text.as_bytes())).unwrap();
    }
    let work = |path: &Path| text_of(path, Format::Jsonl, Packing::Zstd);
    let test = "memory::much_text_in_a_small_file_passes_through";
    let said = within_the_promise(test, &path, work);
    assert!(said.is_none_or(|said| said == format!("{} bytes", 128 << 20)));
}

/// Devices and files beyond the limit are refused before anything is read or written.
#[test]
fn devices_and_too_large_files_are_refused() {
    let dir = TempDir::new("device");
    let source = dir.write("a.txt", b"a few words");
    let json = dir.path("tokenizer.json");
    if std::os::unix::fs::symlink("/dev/zero", &json).is_err() || !Path::new("/dev/zero").exists() {
        return absent(Need::Linux, "no links or no /dev/zero");
    }
    let mut request = dir.request(&source, "out");
    request.tokenizer = Some(TokenizerChoice::Json(json.clone()));
    fails(request.clone(), &["tokenizer.json: is a pipe or a device", "a regular file is needed"]);
    std::fs::remove_file(&json).unwrap();
    let sparse = std::fs::File::create(&json).unwrap();
    sparse.set_len(200 * MIB).unwrap();
    fails(
        request,
        &["has 209715200 bytes, but a tokenizer.json has at most 134217728; check which file"],
    );
    std::fs::create_dir_all(dir.path("set")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", dir.path("set/prepare.json")).unwrap();
    fails(dir.request(&source, "set"), &["prepare.json: is a pipe or a device"]);
}
