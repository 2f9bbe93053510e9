//! The table of all code that reads foreign bytes. Each call treats the input as the program treats
//! such a file. A message of more than one line is a finding.

use super::foreign::{ckpt, ckpt_pickle, hf_config, hf_index, hf_tokenizer, hf_weights};
use super::seeds;
use crate::scratch::put;
use cache::Ignored;
use checkpoint::{Dtype, Reader as Checkpoint, TensorInfo};
use data::{Meta, TokenFile};
use doctor::diagnosis::{Diagnosis, Given};
use doctor::log::Log;
use doctor::markdown::markdown;
use doctor::recovered::RecoveredRun;
use doctor::report::Report;
use doctor::words::Language;
use events::{LogReader, Sink as _};
use plots::compare::{By, Chart, LOSS, RunLog, VAL_LOSS, svg, terminal};
use plots::{CsvSink, TensorBoardSink, TrackioRun, TrackioSink};
use prepare::{Client, Format, Hub, Job, Journal, Packing, PrepareError, ReadSpec, Request, Sink};
use spec::{Command, Environment, Settings, World, documents, resolve};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokenizer::Tokenizer;
use train::hellaswag::Questions;
use train::save;
use train::setup::SampleSetup;

/// Longest message; quotes from an input must be shortened.
const MESSAGE: usize = 4000;

/// A reader.
pub struct Reader {
    /// Its name.
    pub name: &'static str,
    /// It has a turn in every n-th round; slow readers have fewer turns. A power of two up to 64.
    pub every: u64,
    /// Tokens that it looks for.
    pub words: &'static [&'static str],
    /// Makes valid inputs with our own code; it may use the folder.
    pub seeds: fn(&Path) -> Result<Vec<Vec<u8>>, String>,
    /// Reads an input; it may use the folder.
    pub call: fn(&[u8], &Path) -> Result<(), String>,
    /// Most memory, besides as many bytes as the input has.
    pub besides: u64,
}

/// Most memory of a reader besides its input's size, unless its row says otherwise.
const BESIDES: u64 = 16 << 20;

/// The same for readers of packed data, whose buffers the format sizes.
const UNPACKING: u64 = 64 << 20;

const fn reader(
    name: &'static str,
    words: &'static [&'static str],
    seeds: fn(&Path) -> Result<Vec<Vec<u8>>, String>,
    call: fn(&[u8], &Path) -> Result<(), String>,
) -> Reader {
    Reader { name, every: 1, words, seeds, call, besides: BESIDES }
}

const JSON: &[&str] = &["\"text\"", "null", "true", "[", "{", "\\u", "\\ud83d", ",", ":", "1e9"];
const PYTHON: &[&str] = &[
    "batch_size = ",
    "f'{",
    "**",
    "//",
    "import ",
    "'''",
    "\\\n",
    "str(",
    "int(",
    "0x",
    "1_0",
    "\\N{",
    "vram = ",
    "% ",
    "None",
    "\u{feff}",
];
const TABLE: &[&str] = &["\"", "\"\"", ",", ";", "\t", "\r\n", "text", "\0"];
const QUESTIONS: &[&str] = &["\"ctx\"", "\"endings\"", "\"label\"", "[\"\",", ",\"\"", "\\u"];
const PICKLE: &[&str] = &[
    "ctorch._utils\n_rebuild_tensor_v2\n",
    "ctorch\nFloatStorage\n",
    "cos\nsystem\n",
    "q\x01",
    "h\x01",
    "tR",
    "Q",
    "}(",
    "u.",
];
const LOG: &[&str] = &[
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate ",
    " GiB",
    "MiB",
    "GPU 0",
    "total capacity",
    "number of parameters: ",
    "Overriding config",
    "n_layer = ",
    "line ",
    "```",
    "> ",
    "### Option",
    "batch size of ",
    "バッチサイズ",
    "显存不足",
    "eval_batch_size = ",
    " × 50304 × 2",
    "(65536, 50304), bfloat16",
    "万参数",
    "│",
    "\\u001b[31m",
    "[rank3]: ",
    "RTX 4070",
    "MiB / ",
    "6,14 Gio libres",
];

/// All readers.
#[rustfmt::skip]
pub const READERS: [Reader; 37] = [
    reader("py",         PYTHON, seeds::py, py),
    reader("toml",       &["= ", "'''", "[[", "0x", "inf"], seeds::toml, toml),
    reader("arguments",  &["--", "=", "config/", "vram", "80%"], seeds::arguments, arguments),
    reader("pickle",     &["c__builtin__\n", "(dp0\n", "."], seeds::meta, pickled),
    reader("meta",       &["vocab_size", "itos", "stoi"], seeds::meta, meta),
    reader("bin",        &[], seeds::token_file, token_file),
    reader("shard",      &[], seeds::shard, token_file),
    reader("checkpoint", JSON, seeds::checkpoint, checkpoint),
    Reader { every: 4, ..reader("document", JSON, seeds::document, document) },
    Reader { every: 8, ..reader("tokenizer", JSON, seeds::tokenizer, tokenizer) },
    Reader { every: 8, ..reader("vocab", JSON, seeds::vocab_and_merges, vocab_and_merges) },
    reader("text",       &["\r", "\u{feff}", "\0"], seeds::text, text),
    reader("jsonl",      JSON, seeds::jsonl, jsonl),
    reader("json",       JSON, seeds::json, json),
    reader("csv",        TABLE, seeds::csv, csv),
    reader("tsv",        TABLE, seeds::tsv, tsv),
    Reader { every: 2, besides: UNPACKING,
             ..reader("parquet", &["PAR1"], seeds::parquet, parquet) },
    Reader { besides: UNPACKING, ..reader("gz", &[], seeds::gz, gz) },
    Reader { every: 2, besides: UNPACKING, ..reader("zst", &[], seeds::zst, zst) },
    Reader { every: 4, ..reader("sources", JSON, seeds::sources, sources) },
    Reader { every: 16, ..reader("log", LOG, seeds::log, log) },
    reader("post",       LOG, seeds::posts, post),
    reader("run_log",    JSON, seeds::run_log, run_log),
    Reader { every: 4, ..reader("compare", JSON, seeds::long_log, compared) },
    reader("metrics",    TABLE, seeds::metrics, metrics),
    reader("board",      TABLE, seeds::board, board),
    reader("inbox",      TABLE, seeds::inbox, inbox),
    reader("hellaswag",  QUESTIONS, seeds::hellaswag, hellaswag),
    reader("ckpt",       &["PK\x03\x04", "data.pkl"], seeds::ckpt, ckpt),
    reader("ckpt_pickle", PICKLE, seeds::ckpt_pickle, ckpt_pickle),
    reader("hf_config",  JSON, seeds::hf_config, hf_config),
    reader("hf_weights", JSON, seeds::hf_weights, hf_weights),
    reader("hf_index",   JSON, seeds::hf_index, hf_index),
    Reader { every: 8, ..reader("hf_tokenizer", JSON, seeds::tokenizer, hf_tokenizer) },
    reader("journal",    JSON, seeds::journal, journal),
    reader("listing",    JSON, seeds::listing, listing),
    reader("cubin",      &[], seeds::cubin, cubin),
];

/// Checks an error message: one line of bounded length.
pub fn refused(error: impl Display) -> Result<(), String> {
    let message = error.to_string();
    match message.contains('\n') || message.len() > MESSAGE || message.is_empty() {
        true => Err(format!("a message of {} bytes: {message}", message.len())),
        false => Ok(()),
    }
}

/// An error in writing a scratch file, which is not the reader's fault.
pub fn scratch_failed(error: impl Display) -> String {
    format!("scratch: {error}")
}

fn settings(path: &str, bytes: &[u8]) -> Result<(), String> {
    let read = |_: &str| Ok(bytes.to_vec());
    let world = World { read: &read, unix_time: 1.5 };
    match Settings::read(Command::Train, &[path.to_owned()], &world) {
        Ok(settings) => meant(&settings),
        Err(error) => refused(error),
    }
}

fn meant(settings: &Settings) -> Result<(), String> {
    documents::dump(settings);
    match resolve(settings, &Environment::default()) {
        Ok((run, _)) => run.dims(65).map_or_else(refused, |_| Ok(())),
        Err(error) => refused(error),
    }
}

fn py(bytes: &[u8], _: &Path) -> Result<(), String> {
    settings("f.py", bytes)
}

fn toml(bytes: &[u8], _: &Path) -> Result<(), String> {
    settings("f.toml", bytes)
}

/// Each line is an argument of a command.
fn arguments(bytes: &[u8], _: &Path) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    let words: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let nothing = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let world = World { read: &nothing, unix_time: 1.5 };
    for command in [Command::Train, Command::Sample] {
        match Settings::read(command, &words, &world) {
            Ok(settings) => meant(&settings)?,
            Err(error) => refused(error)?,
        }
    }
    Ok(())
}

fn pickled(bytes: &[u8], _: &Path) -> Result<(), String> {
    pickle::parse(bytes).map_or_else(refused, |_| Ok(()))
}

fn meta(bytes: &[u8], _: &Path) -> Result<(), String> {
    match Meta::parse(bytes, Path::new("meta.pkl")) {
        Ok(meta) => {
            let again = Meta::parse(&meta.to_pickle(), Path::new("meta.pkl"));
            let same = again.is_ok_and(|again| again.vocab_size == meta.vocab_size);
            same.then_some(()).ok_or_else(|| "what was read cannot be written again".to_owned())
        }
        Err(error) => refused(error),
    }
}

fn token_file(bytes: &[u8], folder: &Path) -> Result<(), String> {
    let path = folder.join("train.bin");
    put(&path, bytes).map_err(scratch_failed)?;
    let file = match TokenFile::open(&path) {
        Ok(file) => file,
        Err(error) => return refused(error),
    };
    let mut ids = [0; 64];
    for start in [0, file.len().saturating_sub(64), file.len(), u64::MAX] {
        if let Err(error) = file.read(start, &mut ids, 300) {
            refused(error)?;
        }
    }
    Ok(())
}

fn checkpoint(bytes: &[u8], folder: &Path) -> Result<(), String> {
    let path = folder.join("last.safetensors");
    put(&path, bytes).map_err(scratch_failed)?;
    let reader = match Checkpoint::open(&path) {
        Ok(reader) => reader,
        Err(error) => return refused(error),
    };
    match reader.verify() {
        // Every part has a checksum, so an accepted file must equal the saved one.
        Ok(()) if reader.document() == seeds::RUN => Ok(()),
        Ok(()) => Err("a damaged file was accepted".to_owned()),
        Err(error) => refused(error),
    }
}

/// A complete checkpoint whose document is the input.
fn document(bytes: &[u8], folder: &Path) -> Result<(), String> {
    let path = save::last_path(folder);
    let tensors = [TensorInfo::new("state", Dtype::U32, &[1])];
    let text = String::from_utf8_lossy(bytes);
    let fill = |_: usize, _: &mut [u8]| Ok::<(), String>(());
    if checkpoint::save(&path, &text, &tensors, &mut [0; 4], fill).is_err() {
        return Ok(()); // what is no JSON is not written in the first place
    }
    if let Err(error) = save::open(&path) {
        return refused(error);
    }
    let nothing = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let world = World { read: &nothing, unix_time: 0.0 };
    let words = [format!("--out_dir={}", folder.display())];
    let settings = Settings::read(Command::Sample, &words, &world).map_err(scratch_failed)?;
    match SampleSetup::new(settings, &Environment::default(), None) {
        Ok(_) => Ok(()),
        Err(error) => refused(error),
    }
}

fn tokenizer(bytes: &[u8], folder: &Path) -> Result<(), String> {
    let path = folder.join("tokenizer.json");
    put(&path, bytes).map_err(scratch_failed)?;
    let tokenizer = match prepare::open_json(&path) {
        Ok(tokenizer) => tokenizer,
        Err(error) => return refused(error),
    };
    used(&tokenizer)
}

/// `vocab.json` in the first line, `merges.txt` after it.
fn vocab_and_merges(bytes: &[u8], _: &Path) -> Result<(), String> {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let [vocab, merges] = [parts.next(), parts.next()].map(Option::unwrap_or_default);
    match Tokenizer::from_vocab_and_merges(vocab, &String::from_utf8_lossy(merges)) {
        Ok(tokenizer) => used(&tokenizer),
        Err(what) => refused(what),
    }
}

/// Encodes, decodes and writes.
fn used(tokenizer: &Tokenizer) -> Result<(), String> {
    let text = "naïve words, 1234\n\n  don't 日本語 <|endoftext|>";
    let mut ids = Vec::new();
    tokenizer.encoder().encode(text, &mut ids).map_err(|character| format!("{character:?}"))?;
    let ids = tokenizer.encode(text).map_err(|error| error.to_string())?;
    let _ = tokenizer.decode(&ids);
    let written = tokenizer.to_json().unwrap_or_default();
    match Tokenizer::from_json(written.as_bytes())? == *tokenizer {
        true => Ok(()),
        false => Err("a vocabulary was written as another one".to_owned()),
    }
}

/// A sink that discards documents.
struct Nowhere;

impl Sink for Nowhere {
    fn bytes(&mut self, _: &[u8]) -> Result<(), PrepareError> {
        Ok(())
    }
    fn end_document(&mut self) -> Result<(), PrepareError> {
        Ok(())
    }
    fn skip_document(&mut self) {}
    fn replaced(&mut self) {}
    fn position(&mut self, _: u64) {}
}

fn source(bytes: &[u8], folder: &Path, format: Format, packing: Packing) -> Result<(), String> {
    let path = &folder.join("source");
    put(path, bytes).map_err(scratch_failed)?;
    let (name, field, ends_documents) = ("it", "text", true);
    let spec = ReadSpec { path, name, format, packing, field, ends_documents };
    prepare::read(&spec, &mut Nowhere).map_or_else(refused, |()| Ok(()))
}

fn text(bytes: &[u8], folder: &Path) -> Result<(), String> {
    source(bytes, folder, Format::Text, Packing::None)
}

fn jsonl(bytes: &[u8], folder: &Path) -> Result<(), String> {
    source(bytes, folder, Format::Jsonl, Packing::None)
}

fn json(bytes: &[u8], folder: &Path) -> Result<(), String> {
    source(bytes, folder, Format::Json, Packing::None)
}

fn csv(bytes: &[u8], folder: &Path) -> Result<(), String> {
    source(bytes, folder, Format::Csv, Packing::None)
}

fn tsv(bytes: &[u8], folder: &Path) -> Result<(), String> {
    source(bytes, folder, Format::Tsv, Packing::None)
}

fn parquet(bytes: &[u8], folder: &Path) -> Result<(), String> {
    source(bytes, folder, Format::Parquet, Packing::None)
}

fn gz(bytes: &[u8], folder: &Path) -> Result<(), String> {
    source(bytes, folder, Format::Jsonl, Packing::Gzip)
}

fn zst(bytes: &[u8], folder: &Path) -> Result<(), String> {
    source(bytes, folder, Format::Jsonl, Packing::Zstd)
}

fn listing(bytes: &[u8], _: &Path) -> Result<(), String> {
    let hub = Hub { endpoint: "http://127.0.0.1:1".to_owned(), token: None };
    match prepare::files(&hub, "me/texts", "main", bytes) {
        Ok(_) => Ok(()),
        Err(what) => refused(what),
    }
}

/// Recognition of a file by its name and first bytes: `prepare` up to the first write.
fn sources(bytes: &[u8], folder: &Path) -> Result<(), String> {
    let hub = Hub { endpoint: "http://127.0.0.1:1".to_owned(), token: None };
    let client = Client::new(hub, Arc::new(AtomicBool::new(false)));
    for name in ["a.json", "a.csv", "a.txt.gz", "a.jsonl.zst"] {
        let path = folder.join(name);
        put(&path, bytes).map_err(scratch_failed)?;
        let request = Request {
            sources: vec![path.display().to_string()],
            out: folder.join("out"),
            tokenizer: None,
            val: None,
            field: "text".to_owned(),
            column: None,
            format: None,
            seed: prepare::SEED,
            workers: 1,
            max_tokens: None,
            keep_downloads: false,
            overwrite: false,
            ignore_space: true,
        };
        if let Err(error) = Job::new(request, &client) {
            refused(error)?;
        }
    }
    Ok(())
}

fn log(bytes: &[u8], _: &Path) -> Result<(), String> {
    let log = Log::read(bytes);
    let nothing = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let world = World { read: &nothing, unix_time: 0.0 };
    let case = match RecoveredRun::recover(Some(&log), &[], &world, None, data::known::characters) {
        Ok(case) => case,
        Err(error) => return refused(error),
    };
    let diagnosis = match Diagnosis::new(Some(log), case, Given::default()) {
        Ok(diagnosis) => diagnosis,
        Err(error) => return refused(error),
    };
    for language in [Language::English, Language::Japanese] {
        let report = Report { diagnosis: &diagnosis, language, program: "fitgpt" };
        report.summary();
        markdown(&report);
    }
    Ok(())
}

/// Posts and notes, which have more to read than logs and nothing to simulate.
fn post(bytes: &[u8], _: &Path) -> Result<(), String> {
    let log = Log::read(bytes);
    let claims = log.claims.iter().map(|(_, line)| line.len()).sum::<usize>();
    match claims > 64 << 10 {
        true => Err(format!("{claims} bytes of claims")),
        false => Ok(()),
    }
}

/// `log.jsonl`: a line that cannot be read is an error of its own.
fn run_log(bytes: &[u8], _: &Path) -> Result<(), String> {
    LogReader::new(bytes).filter_map(Result::err).try_for_each(refused)
}

/// Read and drawn as `fitgpt compare` does.
fn compared(bytes: &[u8], _: &Path) -> Result<(), String> {
    let log = RunLog::read(LogReader::new(bytes), &[VAL_LOSS, LOSS]);
    log.first_problem.iter().try_for_each(refused)?;
    let chart = Chart::new(&[("run".to_owned(), log)], bytes.len().is_multiple_of(2), false);
    let picture = svg(&chart, &By::ALL);
    if picture.contains("NaN") || picture.contains("inf") {
        return Err("a picture with numbers that are none".to_owned());
    }
    By::ALL.iter().for_each(|by| drop(terminal(&chart, *by, bytes.len() % 90, 12, false)));
    Ok(())
}

/// The questions of `eval --hellaswag`, for a model of GPT-2's positions.
fn hellaswag(bytes: &[u8], folder: &Path) -> Result<(), String> {
    let path = folder.join("hellaswag.jsonl");
    put(&path, bytes).map_err(scratch_failed)?;
    match Questions::read(&path, &Tokenizer::Gpt2, 1024) {
        Ok(questions) if (1..=1024).contains(&questions.longest()) => Ok(()),
        Ok(questions) => Err(format!("a row of {} inputs", questions.longest())),
        Err(error) => refused(error),
    }
}

/// A `metrics.csv` that a resumed run continues: it is refused and left alone, or what is kept ends
/// with a whole row.
fn metrics(bytes: &[u8], folder: &Path) -> Result<(), String> {
    let path = folder.join("metrics.csv");
    put(&path, bytes).map_err(scratch_failed)?;
    let mut sink = CsvSink::new(folder, u64::MAX);
    let taken = seeds::resumed_run().iter().try_for_each(|event| sink.take(event));
    let now = std::fs::read(&path).map_err(scratch_failed)?;
    match taken {
        Ok(()) if now.ends_with(b"\n") && now.starts_with(b"kind,iter,") => Ok(()),
        Ok(()) => Err("a file without header or end".to_owned()),
        Err(_) if now != bytes => Err("a foreign file was changed".to_owned()),
        Err(error) => refused(error),
    }
}

/// Event files of TensorBoard's that a resumed run continues: they are left alone.
fn board(bytes: &[u8], folder: &Path) -> Result<(), String> {
    let out_dir = folder.join("board");
    let old = out_dir.join("tensorboard").join("events.out.tfevents.0000000001.x.1.fitgpt");
    fresh(&out_dir.join("tensorboard")).map_err(scratch_failed)?;
    put(&old, bytes).map_err(scratch_failed)?;
    let mut sink = TensorBoardSink::new(&out_dir, u64::MAX);
    let taken = seeds::resumed_run().iter().try_for_each(|event| sink.take(event));
    if std::fs::read(&old).map_err(scratch_failed)? != bytes {
        return Err("an old file was changed".to_owned());
    }
    taken.map_err(|error| error.to_string())
}

/// Lines in trackio's inbox that a resumed run cuts: a file only gets shorter.
fn inbox(bytes: &[u8], folder: &Path) -> Result<(), String> {
    let (out_dir, id) = (folder.join("trackio"), "0123456789abcdef".repeat(2));
    let lines = out_dir.join("inbox").join(format!("fitgpt-{id}-0"));
    fresh(&lines).map_err(scratch_failed)?;
    put(&out_dir.join("trackio-run"), format!("{id}\n").as_bytes()).map_err(scratch_failed)?;
    put(&lines.join("0.jsonl"), bytes).map_err(scratch_failed)?;
    let run = TrackioRun { project: "p".to_owned(), name: None };
    let mut sink = TrackioSink::new(&out_dir.join("inbox"), &out_dir, run, u64::MAX);
    seeds::resumed_run()
        .iter()
        .try_for_each(|event| sink.take(event))
        .map_err(|e| e.to_string())?;
    match std::fs::read(lines.join("0.jsonl")) {
        Ok(now) if now.len() > bytes.len() => Err("a file has grown".to_owned()),
        _ => Ok(()),
    }
}

/// An empty folder.
fn fresh(folder: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => std::fs::create_dir_all(folder),
    }
}

fn journal(bytes: &[u8], folder: &Path) -> Result<(), String> {
    put(&folder.join("prepare.json"), bytes).map_err(scratch_failed)?;
    Journal::read(folder).map_or_else(refused, |_| Ok(()))
}

/// A cache of compiled kernels: a changed file must not be used.
fn cubin(bytes: &[u8], folder: &Path) -> Result<(), String> {
    // Make a folder and file that only this user can write to, whatever the umask, because others
    // are refused unread.
    let path = folder.join("kernels/it.cubin");
    if !path.exists() {
        cache::write(&path, &[]).map_err(scratch_failed)?;
    }
    put(&path, bytes).map_err(scratch_failed)?;
    match cuda::CubinCache::read(&path, seeds::CUBIN_KEY) {
        Ok(code) if code != seeds::CUBIN => Err("damaged machine code was accepted".to_owned()),
        Ok(_) => Ok(()),
        Err(why @ (Ignored::Content(_) | Ignored::TooLarge { .. })) => refused(why),
        Err(why) => Err(format!("a file of our own was not read: {why}")),
    }
}
