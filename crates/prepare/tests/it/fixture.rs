//! A folder with sources, requests for them, and writers of all formats.

use fitgpt_prepare::{
    Client, Hub, Job, Observer, Outcome, PrepareError, Progress, Request, TokenizerChoice, Totals,
};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A folder that is removed when the test ends.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new(name: &str) -> TempDir {
        let path = std::env::temp_dir().join(format!("fitgpt-prep-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file; returns its path.
    pub fn write(&self, name: &str, content: &[u8]) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn ids(&self, name: &str) -> Vec<u16> {
        self.read(name).chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect()
    }

    /// A request for `out` in this folder.
    pub fn request(&self, source: &str, out: &str) -> Request {
        Request {
            sources: vec![source.to_owned()],
            out: self.path(out),
            tokenizer: None,
            val: None,
            field: "text".to_owned(),
            column: None,
            format: None,
            seed: fitgpt_prepare::SEED,
            workers: 3,
            max_tokens: None,
            keep_downloads: false,
            overwrite: false,
            ignore_space: false,
        }
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Nobody;

impl Observer for Nobody {
    fn note(&mut self, _: &str) {}
    fn progress(&mut self, _: &Progress) {}
}

pub fn client(endpoint: &str) -> Client {
    let hub = Hub { endpoint: endpoint.to_owned(), token: Some("secret".to_owned()) };
    let mut client = Client::new(hub, Arc::new(AtomicBool::new(false)));
    client.first_pause = Duration::from_millis(1);
    client
}

pub fn run_with(request: Request, client: &Client) -> Result<Totals, PrepareError> {
    match fitgpt_prepare::run(Job::new(request, client)?, client, &mut Nobody)? {
        Outcome::Done(totals) | Outcome::Already(totals) => Ok(totals),
        Outcome::Interrupted(_) => panic!("nobody interrupted it"),
    }
}

pub fn run(request: Request) -> Result<Totals, PrepareError> {
    run_with(request, &client("http://127.0.0.1:1"))
}

/// Runs one test of this binary alone in a new process, in its main thread, with `set` in its
/// environment; returns its output. The variables tell the test to do its work.
pub fn alone(test: &str, set: &[(&str, &str)]) -> String {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    let output = command.envs(set.iter().copied()).output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let text = text.concat();
    assert!(output.status.success(), "{test} alone: {text}");
    text
}

/// Peak memory of this process; `None` if the system does not report it.
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[track_caller]
pub fn fails(request: Request, words: &[&str]) {
    let out = request.out.clone();
    let message = run(request).unwrap_err().to_string();
    for word in words {
        assert!(message.contains(word), "{word:?} in {message}");
    }
    assert!(!out.join("train.bin").exists(), "a failed preparation must not look complete");
}

/// Documents of many kinds, always the same.
pub fn documents(count: usize) -> Vec<String> {
    let mut state = 1_u64;
    let mut next = move |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % most
    };
    let words = [
        "the",
        "model's",
        "naïve",
        "日本語",
        "\"quoted\"",
        "\n",
        "\t",
        "1234",
        "don't",
        "C:\\x",
        "😀",
        "<|endoftext|>",
        "  ",
        "antidisestablishmentarianism",
        "e=mc²",
        "\u{7f}",
        "a\u{0}b",
    ];
    let mut document = || {
        let count = next(400);
        let word = |_| words[next(words.len() as u64) as usize];
        (0..count).map(word).collect::<Vec<_>>().join(" ")
    };
    (0..count).map(|_| document()).collect()
}

/// JSON lines, with fields around the text.
pub fn jsonl(documents: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, text) in documents.iter().enumerate() {
        let value = serde_json::json!({
            "id": index, "meta": {"text": "not this", "list": [1, -2.5e3, null, [{}], "]}\""]},
            "text": text, "ok": true,
        });
        writeln!(out, "{value}").unwrap();
    }
    out
}

/// The same objects in one list, over many lines.
pub fn json_list(documents: &[String]) -> Vec<u8> {
    let lines: Vec<serde_json::Value> = String::from_utf8(jsonl(documents))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    serde_json::to_vec_pretty(&lines).unwrap()
}

/// A table with a column before the text and one after it; every second row has unnecessary quotes.
pub fn table(documents: &[String], separator: char, line_end: &str) -> Vec<u8> {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let mut out = format!("id{separator}text{separator}\"what is \"\"left\"\"\"{line_end}");
    for (index, text) in documents.iter().enumerate() {
        let is_odd = index % 2 == 1 || text.contains(['"', '\n', '\r', ',', ';', '\t']);
        let text = if is_odd { quoted(text) } else { text.clone() };
        out += &format!("{index}{separator}{text}{separator}end{line_end}");
    }
    out.into_bytes()
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

/// A table with an id and an optional text, in row groups of some rows.
pub fn parquet(path: &Path, documents: &[Option<String>], codec: parquet::basic::Compression) {
    let properties = parquet::file::properties::WriterProperties::builder();
    parquet_with(path, documents, properties.set_compression(codec).build());
}

/// The same table with any parquet properties.
pub fn parquet_with(
    path: &Path,
    documents: &[Option<String>],
    properties: parquet::file::properties::WriterProperties,
) {
    use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    let schema = "message m { required int64 id; optional binary text (UTF8); }";
    let schema = Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
    let properties = Arc::new(properties);
    let file = std::fs::File::create(path).unwrap();
    let mut writer =
        parquet::file::writer::SerializedFileWriter::new(file, schema, properties).unwrap();
    for group in documents.chunks(70) {
        let mut row_group = writer.next_row_group().unwrap();
        let mut ids = row_group.next_column().unwrap().unwrap();
        let numbers: Vec<i64> = (0..group.len() as i64).collect();
        ids.typed::<Int64Type>().write_batch(&numbers, None, None).unwrap();
        ids.close().unwrap();
        let mut texts = row_group.next_column().unwrap().unwrap();
        let levels: Vec<i16> = group.iter().map(|text| i16::from(text.is_some())).collect();
        let values: Vec<ByteArray> =
            group.iter().flatten().map(|text| ByteArray::from(text.as_str())).collect();
        texts.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).unwrap();
        texts.close().unwrap();
        row_group.close().unwrap();
    }
    writer.close().unwrap();
}

/// Properties for delta-encoded lengths, in pages of version 1 or 2.
pub fn delta(encoding: parquet::basic::Encoding) -> parquet::file::properties::WriterProperties {
    use parquet::basic::Encoding;
    use parquet::file::properties::{WriterProperties, WriterVersion};
    let version = match encoding {
        Encoding::DELTA_BYTE_ARRAY => WriterVersion::PARQUET_2_0,
        _ => WriterVersion::PARQUET_1_0,
    };
    let builder = WriterProperties::builder().set_dictionary_enabled(false);
    builder.set_writer_version(version).set_column_encoding("text".into(), encoding).build()
}

pub fn some(documents: &[String]) -> Vec<Option<String>> {
    documents.iter().cloned().map(Some).collect()
}

/// The expected ids of documents from another implementation, with end tokens.
pub fn expected(documents: &[String]) -> (Vec<u16>, Vec<u16>) {
    let other = tiktoken::encoding::gpt2();
    let (mut train, mut val) = (Vec::new(), Vec::new());
    for (index, text) in documents.iter().enumerate() {
        let half = match is_val(index as u64) {
            true => &mut val,
            false => &mut train,
        };
        half.extend(other.encode(text).into_iter().map(|id| id as u16));
        half.push(50256);
    }
    (train, val)
}

/// Whether the default seed and a fraction of 0.05 choose a document, as the crate's own tests pin
/// it.
fn is_val(index: u64) -> bool {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |state: u64| {
        let z = state.wrapping_add(GOLDEN);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    index == 0 || (step(step(fitgpt_prepare::SEED) ^ index) as f64 / u64::MAX as f64) < 0.05
}

/// A request with 0.05 of the documents for validation.
pub fn twentieth(mut request: Request) -> Request {
    request.val = Some(0.05);
    request
}

pub fn by_characters(mut request: Request) -> Request {
    request.tokenizer = Some(TokenizerChoice::Char);
    request
}
