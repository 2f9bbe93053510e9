//! Small valid inputs for every reader, made by the program's own writers if it has them.

use super::zip;
use checkpoint::{Dtype, TensorInfo};
use data::Meta;
use events::Sink as _;
use events::{
    End, Evaluated, Evaluating, Event, Iteration, Notice, Reason, SCHEMA, Start, Time, What,
};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use plots::{CsvSink, TensorBoardSink};
use prepare::Journal;
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use tokenizer::CharTokenizer;

type Seeds = Result<Vec<Vec<u8>>, String>;

/// The key of the kernel cache's seed.
pub const CUBIN_KEY: u64 = 7;
/// What that seed holds.
pub const CUBIN: &[u8] = b"machine code";

/// The document in the checkpoint's seed; no damage may change it unnoticed.
pub const RUN: &str = r#"{"schema":"fitgpt.run/1","iteration":7,"list":[1.5,null]}"#;

fn told(error: impl Display) -> String {
    error.to_string()
}

fn texts(all: &[&str]) -> Seeds {
    Ok(all.iter().map(|text| text.as_bytes().to_vec()).collect())
}

pub fn py(_: &Path) -> Seeds {
    texts(&[
        include_str!("../../../../config/train_gpt2.py"),
        include_str!("../../../../config/train_shakespeare_char.py"),
        "'''doc'''\nimport time\nout_dir = 'a' \"b\\x41\\n\" + str(time.time())\n\
         batch_size = (5 * 8 // 3) ** 2 % 7; n_layer = 0x1F\ndropout = -.5 + 1_0e-1 / 2 # note\n\
         bias = True\nvram = '11.69GiB'\nblock_size = \\\n  int(1e3)\n_own = batch_size\n\
         max_iters = _own\nout_dir = f'run-{_own:03d}-{n_layer}'\n",
    ])
}

pub fn toml(_: &Path) -> Seeds {
    texts(&[
        "out_dir = \"a\\n\"\nbatch_size = 1_000\ndropout = 0.5 # note\nbias = true\n\
         start = '''x\ny'''\nvram = '80%'\nseed = 0xff\n",
        "n_layer = 2\nn_head = 2\nn_embd = 32\n",
    ])
}

pub fn arguments(_: &Path) -> Seeds {
    texts(&[
        "--dataset=x\n--n_layer=2\n--n_head=2\n--n_embd=32\n--vram=8GiB\n--dropout=0.1",
        "--init_from=resume\n--out_dir=out\n--learning_rate=3e-4\n--grad_checkpoint=auto",
        "--start=FILE:x\n--num_samples=3\n--temperature=0.8\n--top_k=200",
    ])
}

pub fn meta(_: &Path) -> Seeds {
    let table = CharTokenizer::new("\n abcdefghijklmnopqrstuvwxyz.é日".chars().collect());
    let python2 = b"(dp0\nS'vocab_size'\np1\nI65\ns.".to_vec();
    Ok(vec![Meta::new(31, table).to_pickle(), Meta::new(50304, None).to_pickle(), python2])
}

fn tokens() -> Vec<u8> {
    (0..700_u16).flat_map(|at| (at.wrapping_mul(37) % 300).to_le_bytes()).collect()
}

pub fn token_file(_: &Path) -> Seeds {
    Ok(vec![tokens()])
}

/// llm.c's format: a magic number, a version, the number of tokens, and 253 more numbers.
pub fn shard(_: &Path) -> Seeds {
    let mut header = [20_240_520_i32, 1, 700].map(i32::to_le_bytes).concat();
    header.resize(1024, 0);
    Ok(vec![[header, tokens()].concat()])
}

fn checkpoint_bytes(path: &Path) -> Result<Vec<u8>, String> {
    let tensors = [
        TensorInfo::new("state", Dtype::U32, &[16]),
        TensorInfo::new("weights/a", Dtype::F32, &[3, 5]),
        TensorInfo::new("empty", Dtype::F32, &[4, 0]),
        TensorInfo::new("\"ü\\\n", Dtype::U8, &[1]),
    ];
    let fill = |index: usize, bytes: &mut [u8]| {
        bytes.fill(index as u8);
        Ok::<(), String>(())
    };
    checkpoint::save(path, RUN, &tensors, &mut [0; 64], fill).map_err(told)?;
    std::fs::read(path).map_err(told)
}

pub fn checkpoint(folder: &Path) -> Seeds {
    Ok(vec![checkpoint_bytes(&folder.join("seed.safetensors"))?])
}

pub fn document(_: &Path) -> Seeds {
    let characters = "\n abcdefghijklmnopqrstuvwxyz.";
    let document = |tokenizer: Value, plan: Value| {
        json!({
            "iteration": 5,
            "best_val_loss_bits": 1.5f64.to_bits().to_string(),
            "config": { "dataset": "builtin", "n_layer": 1, "n_head": 1, "n_embd": 8,
                        "bias": false, "block_size": 8, "dropout": 0.0 },
            "model": { "n_layer": 1, "n_head": 1, "n_embd": 8, "block_size": 8,
                       "vocab_size": 66, "bias": false },
            "tokenizer": tokenizer, "feed": null, "plan": plan, "steps_hash": "0",
            "version": "0", "device": "cpu",
        })
        .to_string()
        .into_bytes()
    };
    let plan = json!({ "slices": [[12, 1]], "head_chunk_tokens": 256, "recompute": ["R0"],
                       "optimizer_state": "float32", "offload": false });
    let table = json!({ "characters": characters });
    Ok(vec![document(table, plan.clone()), document(json!("gpt2"), plan)])
}

/// A token for each byte, and some pairs.
fn byte_vocabulary() -> serde_json::Map<String, Value> {
    let mut others = 0x100..;
    let letter = |byte: u8| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => Some(char::from(byte)),
        _ => others.next().and_then(char::from_u32),
    };
    let letters: Vec<char> = (0..=255).filter_map(letter).collect();
    let mut vocab = serde_json::Map::new();
    for (id, letter) in letters.iter().enumerate() {
        vocab.insert(letter.to_string(), json!(id));
    }
    for (at, pair) in ["th", "the", "in", "er", "Ġt", "on"].iter().enumerate() {
        vocab.insert((*pair).to_owned(), json!(256 + at));
    }
    vocab
}

/// A `vocab.json` in one line, and a `merges.txt` after it.
pub fn vocab_and_merges(_: &Path) -> Seeds {
    let mut vocab = byte_vocabulary();
    vocab.insert("<|endoftext|>".to_owned(), json!(262));
    let vocab = Value::Object(vocab);
    let merges = ["#version: 0.2\nt h\nth e\ni n\n", "t h\r\no n\r\n"];
    Ok(merges.map(|merges| format!("{vocab}\n{merges}").into_bytes()).to_vec())
}

/// Byte-level pairs: a token for each byte, some merges, an end.
pub fn tokenizer(_: &Path) -> Seeds {
    let vocab = byte_vocabulary();
    let end = json!([{ "id": 262, "content": "<|endoftext|>", "special": true }]);
    let merges = [json!(["t h", "th e", "i n", "e r"]), json!([["t", "h"], ["o", "n"]])];
    let file = |merges: &Value| {
        json!({
            "version": "1.0", "added_tokens": end, "normalizer": null,
            "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false },
            "model": { "type": "BPE", "vocab": vocab, "merges": merges },
        })
        .to_string()
        .into_bytes()
    };
    Ok(merges.iter().map(file).collect())
}

const DOCUMENTS: [&str; 5] = [
    "Once upon a time there was a naïve \"model\".",
    "",
    "日本語 😀 \n\t C:\\x, one; two",
    "a\u{7f}b  1234 e=mc² <|endoftext|>",
    "the end",
];

pub fn text(_: &Path) -> Seeds {
    Ok(vec![DOCUMENTS.join("\r\n").into_bytes()])
}

fn objects() -> Vec<Value> {
    let object = |(id, text): (usize, &&str)| {
        let inner = json!({ "text": "not this", "list": [1, -2.5e3, null, [{}], "]}\""] });
        json!({ "id": id, "meta": inner, "text": text, "ok": true })
    };
    DOCUMENTS.iter().enumerate().map(object).collect()
}

pub fn jsonl(_: &Path) -> Seeds {
    let lines: Vec<String> = objects().iter().map(Value::to_string).collect();
    Ok(vec![lines.join("\n").into_bytes()])
}

pub fn json(folder: &Path) -> Seeds {
    let list = serde_json::to_vec_pretty(&objects()).map_err(told)?;
    let plain = b"[\"one\", \"two\", \"three \\ud83d\\ude00\"]".to_vec();
    Ok([vec![list, plain], jsonl(folder)?].concat())
}

fn table(separator: char) -> Vec<u8> {
    let mut out = format!("id{separator}text{separator}\"what is \"\"left\"\"\"\r\n");
    for (id, text) in DOCUMENTS.iter().enumerate() {
        let text = text.replace('"', "\"\"");
        out += &format!("{id}{separator}\"{text}\"{separator}end\n");
    }
    out.into_bytes()
}

pub fn csv(_: &Path) -> Seeds {
    Ok(vec![table(','), table(';')])
}

pub fn tsv(_: &Path) -> Seeds {
    Ok(vec![table('\t')])
}

/// A table with an id and an optional text, in two row groups.
fn parquet_bytes(codec: Compression) -> Result<Vec<u8>, String> {
    let schema = "message m { required int64 id; optional binary text (UTF8); }";
    let schema = Arc::new(parquet::schema::parser::parse_message_type(schema).map_err(told)?);
    let properties = Arc::new(WriterProperties::builder().set_compression(codec).build());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties).map_err(told)?;
    for group in DOCUMENTS.chunks(3) {
        let mut rows = writer.next_row_group().map_err(told)?;
        let mut ids = rows.next_column().map_err(told)?.ok_or("a column is missing")?;
        let numbers: Vec<i64> = (0..group.len() as i64).collect();
        ids.typed::<Int64Type>().write_batch(&numbers, None, None).map_err(told)?;
        ids.close().map_err(told)?;
        let mut texts = rows.next_column().map_err(told)?.ok_or("a column is missing")?;
        let levels: Vec<i16> = group.iter().map(|text| i16::from(!text.is_empty())).collect();
        let there = group.iter().filter(|text| !text.is_empty());
        let values: Vec<ByteArray> = there.map(|text| ByteArray::from(*text)).collect();
        let column = texts.typed::<ByteArrayType>();
        column.write_batch(&values, Some(&levels), None).map_err(told)?;
        texts.close().map_err(told)?;
        rows.close().map_err(told)?;
    }
    writer.close().map_err(told)?;
    Ok(bytes)
}

pub fn parquet(_: &Path) -> Seeds {
    let zstd = Compression::ZSTD(ZstdLevel::default());
    let brotli = Compression::BROTLI(Default::default());
    let gzip = Compression::GZIP(Default::default());
    let (snappy, lz4, plain) =
        (Compression::SNAPPY, Compression::LZ4_RAW, Compression::UNCOMPRESSED);
    [plain, snappy, zstd, lz4, brotli, gzip].into_iter().map(parquet_bytes).collect()
}

fn packed_gz(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).map_err(told)?;
    encoder.finish().map_err(told)
}

pub fn gz(folder: &Path) -> Seeds {
    jsonl(folder)?.iter().map(|bytes| packed_gz(bytes)).collect()
}

pub fn zst(folder: &Path) -> Seeds {
    jsonl(folder)?.iter().map(|bytes| zstd::encode_all(bytes.as_slice(), 3).map_err(told)).collect()
}

pub fn sources(folder: &Path) -> Seeds {
    let all = [json(folder)?, csv(folder)?, text(folder)?, gz(folder)?, zst(folder)?];
    Ok(all.concat())
}

pub fn log(_: &Path) -> Seeds {
    texts(&[
        include_str!("../../../doctor/tests/logs/eager_124m_batch_64.log"),
        include_str!("../../../doctor/tests/logs/characters_batch_1024.log"),
        include_str!("../../../doctor/tests/logs/optimizer_350m_batch_1.log"),
        include_str!("../../../doctor/tests/logs/resumed_124m_batch_2.log"),
        include_str!("../../../doctor/tests/posts/chinese_note.md"),
        include_str!("../../../doctor/tests/posts/notebook.json"),
    ])
}

/// Posts of several kinds and languages.
pub fn posts(_: &Path) -> Seeds {
    texts(&[
        include_str!("../../../doctor/tests/posts/chinese_note.md"),
        include_str!("../../../doctor/tests/posts/french_note.md"),
        include_str!("../../../doctor/tests/posts/mixed_ranks.log"),
        include_str!("../../../doctor/tests/posts/notebook.json"),
        include_str!("../../../doctor/tests/posts/tensorflow.log"),
        include_str!("../../../doctor/tests/posts/windows_box.txt"),
    ])
}

pub fn listing(_: &Path) -> Seeds {
    texts(&[
        r#"[{"type":"directory","path":"data","size":0},{"type":"file","path":"data/a.parquet",
            "size":12,"oid":"0a","lfs":{"oid":"1f","size":12,"pointerSize":1}}]"#,
        r#"[{"type":"file","path":"b.jsonl.zst","size":9}]"#,
        "[]",
    ])
}

/// A log of each version.
pub fn run_log(_: &Path) -> Seeds {
    let time = Time { unix_time: 1.7e9, seconds: 0.5 };
    let text = "3 iterations are missing".to_owned();
    let reason = Reason::Error;
    let (message, checkpoint) = (Some("the disk is full".to_owned()), None);
    let whats = [
        What::Evaluating(Evaluating { iter: 5, share: 0.5 }),
        What::Notice(Arc::new(Notice { text, dropped: Some(3) })),
        What::End(Arc::new(End { iter: 7, reason, message, checkpoint })),
    ];
    let line = |what| serde_json::to_string(&Event { what, time }).map_err(told);
    let lines: Vec<String> = whats.into_iter().map(line).collect::<Result<_, _>>()?;
    let old = include_bytes!("../../../events/tests/data/log-1.jsonl");
    Ok(vec![lines.join("\n").into_bytes(), old.to_vec()])
}

pub fn journal(folder: &Path) -> Seeds {
    let journal = Journal { settings: "abc".to_owned(), batches: 3, ..Journal::default() };
    journal.write(folder).map_err(told)?;
    Ok(vec![std::fs::read(folder.join("prepare.json")).map_err(told)?])
}

/// The cache's own format: a name, the key, a checksum of the rest.
pub fn cubin(_: &Path) -> Seeds {
    let file = cuda::CubinCache::written(CUBIN_KEY, CUBIN);
    match cuda::CubinCache::whole(&file, CUBIN_KEY) {
        Some(_) => Ok(vec![file]),
        None => Err("the cache does not read what it writes".to_owned()),
    }
}

/// A checkpoint of nanoGPT with its moments.
pub const CKPT: &[u8] = include_bytes!("../../../interop/tests/fixtures/ckpt/plain.pt");

/// Written by PyTorch, in many forms.
pub fn ckpt(_: &Path) -> Seeds {
    let others: [&[u8]; 6] = [
        include_bytes!("../../../interop/tests/fixtures/ckpt/bf16.pt"),
        include_bytes!("../../../interop/tests/fixtures/ckpt/half.pt"),
        include_bytes!("../../../interop/tests/fixtures/ckpt/packed.pt"),
        include_bytes!("../../../interop/tests/fixtures/ckpt/strided.pt"),
        include_bytes!("../../../interop/tests/fixtures/ckpt/weights_only.pt"),
        include_bytes!("../../../interop/tests/fixtures/ckpt/custom.pt"),
    ];
    let whole = std::iter::once(CKPT).chain(others);
    Ok(whole.map(<[u8]>::to_vec).collect())
}

pub fn ckpt_pickle(folder: &Path) -> Seeds {
    let archives = ckpt(folder)?;
    let entries = archives.iter().filter_map(|archive| zip::entries(archive)).flatten();
    let pickles: Vec<Vec<u8>> =
        entries.filter(|(name, _)| name.ends_with("/data.pkl")).map(|(_, bytes)| bytes).collect();
    if pickles.len() > 2 { Ok(pickles) } else { Err("the archives have no pickles".to_owned()) }
}

/// Files of a Hugging Face folder.
pub const CONFIG: &str = "config.json";
pub const WEIGHTS: &str = "model.safetensors";
pub const INDEX: &str = "model.safetensors.index.json";
pub const SHARD: &str = "model-00001-of-00001.safetensors";

/// A tiny GPT-2.
pub const CONFIG_TEXT: &str = r#"{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
 "n_layer": 1, "n_head": 1, "n_embd": 4, "n_positions": 8, "n_ctx": 8, "vocab_size": 6,
 "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05, "tie_word_embeddings": true}"#;

/// Names and shapes of its tensors.
const TENSORS: [(&str, &[usize]); 16] = [
    ("wte.weight", &[6, 4]),
    ("wpe.weight", &[8, 4]),
    ("h.0.ln_1.weight", &[4]),
    ("h.0.ln_1.bias", &[4]),
    ("h.0.attn.c_attn.weight", &[4, 12]),
    ("h.0.attn.c_attn.bias", &[12]),
    ("h.0.attn.c_proj.weight", &[4, 4]),
    ("h.0.attn.c_proj.bias", &[4]),
    ("h.0.ln_2.weight", &[4]),
    ("h.0.ln_2.bias", &[4]),
    ("h.0.mlp.c_fc.weight", &[4, 16]),
    ("h.0.mlp.c_fc.bias", &[16]),
    ("h.0.mlp.c_proj.weight", &[16, 4]),
    ("h.0.mlp.c_proj.bias", &[4]),
    ("ln_f.weight", &[4]),
    ("ln_f.bias", &[4]),
];

pub fn weights() -> Vec<u8> {
    let (mut header, mut at) = (serde_json::Map::new(), 0);
    for (name, shape) in TENSORS {
        let end = at + 4 * shape.iter().product::<usize>();
        let fact = json!({"dtype": "F32", "shape": shape, "data_offsets": [at, end]});
        header.insert(format!("transformer.{name}"), fact);
        at = end;
    }
    let header = Value::Object(header).to_string();
    let length = (header.len() as u64).to_le_bytes();
    [&length[..], header.as_bytes(), &vec![0; at]].concat()
}

/// A folder that the reader accepts, or the seeds would test nothing but refusals.
fn whole_folder(above: &Path) -> Result<(), String> {
    let folder = above.join("hf-seed");
    std::fs::create_dir_all(&folder).map_err(told)?;
    std::fs::write(folder.join(CONFIG), CONFIG_TEXT).map_err(told)?;
    std::fs::write(folder.join(WEIGHTS), weights()).map_err(told)?;
    interop::hf::open(&folder).map(drop).map_err(told)
}

pub fn hf_config(folder: &Path) -> Seeds {
    whole_folder(folder)?;
    texts(&[CONFIG_TEXT])
}

pub fn hf_weights(folder: &Path) -> Seeds {
    whole_folder(folder)?;
    Ok(vec![weights()])
}

pub fn hf_index(_: &Path) -> Seeds {
    let names = TENSORS.map(|(name, _)| (format!("transformer.{name}"), Value::from(SHARD)));
    let map: serde_json::Map<String, Value> = names.into_iter().collect();
    let index = json!({"metadata": {"total_size": 1000}, "weight_map": map});
    Ok(vec![index.to_string().into_bytes()])
}

/// A run that starts at iteration 5, and its first iteration.
pub fn resumed_run() -> [Event; 2] {
    let time = Time { unix_time: 1.5, seconds: 0.5 };
    let start = Start {
        schema: SCHEMA.to_owned(),
        iter: 5,
        config: json!({"batch_size": 2, "learning_rate": 0.1}),
        vocab_size: 65,
        steps_hash: String::new(),
        version: String::new(),
        device: "cpu".to_owned(),
        plan: Value::Null,
        arena_bytes: Some(1),
        tokens_per_iteration: Some(64),
        tokens_before: Some(320),
        seconds_before: Some(2.5),
        flops_per_token: Some(1e6),
        peak_flops: Some(1e11),
    };
    let iteration = Iteration {
        iter: 5,
        loss: 2.5,
        lr: 0.1,
        grad_norm: 1.0,
        loss_scale: 1.0,
        tokens_per_second: 1e4,
        ms: 2.0,
        arena_bytes: 1,
        device_bytes_seen: None,
        resident_bytes: Some(9),
        is_logged: true,
    };
    [What::Start(Arc::new(start)), What::Iteration(iteration)].map(|what| Event { what, time })
}

/// A log with iterations, a resumption, and an older version.
pub fn long_log(folder: &Path) -> Seeds {
    let [start, iteration] = resumed_run().map(|event| serde_json::to_string(&event));
    let (start, iteration) = (start.map_err(told)?, iteration.map_err(told)?);
    let later = |iter: &str| iteration.replace("\"iter\":5", &format!("\"iter\":{iter}"));
    let all = [start.clone(), iteration.clone(), later("6"), later("700"), start, later("8")];
    let mut seeds = run_log(folder)?;
    seeds.push(all.join("\n").into_bytes());
    Ok(seeds)
}

pub fn metrics(folder: &Path) -> Seeds {
    let mut sink = CsvSink::new(folder, u64::MAX);
    for event in &resumed_run() {
        sink.take(event).map_err(told)?;
    }
    let text = std::fs::read_to_string(folder.join("metrics.csv")).map_err(told)?;
    let earlier = text.replace("iter,5,", "eval,3,");
    let row = text.lines().last().unwrap_or_default();
    Ok(vec![format!("{earlier}{row}\n").into_bytes(), text.into_bytes()])
}

/// Event files for TensorBoard: an evaluation at the step that a resumed run starts with.
pub fn board(folder: &Path) -> Seeds {
    let mut sink = TensorBoardSink::new(folder, u64::MAX);
    for event in resumed_run().iter().chain(&[evaluation()]) {
        sink.take(event).map_err(told)?;
    }
    let files = std::fs::read_dir(folder.join("tensorboard")).map_err(told)?;
    files.map(|file| std::fs::read(file.map_err(told)?.path()).map_err(told)).collect()
}

/// Lines as trackio's inbox has them.
pub fn inbox(_: &Path) -> Seeds {
    let line = |step: u64, name: &str| {
        let line = json!({"v": 1, "kind": "metric", "step": step, "metrics": {name: 2.5}});
        format!("{line}\n")
    };
    texts(&[&(line(4, "loss") + &line(5, "val/loss") + &line(5, "loss"))])
}

/// The evaluation before the first iteration of [`resumed_run`].
fn evaluation() -> Event {
    let evaluated = Evaluated {
        iter: 5,
        train_loss: 2.5,
        val_loss: 2.5,
        train_standard_error: 0.1,
        val_standard_error: 0.1,
        tokens: 64,
        best: Some(true),
        ms: Some(2.0),
        arena_bytes: 1,
        device_bytes_seen: None,
        note: None,
    };
    let time = Time { unix_time: 2.5, seconds: 1.5 };
    Event { what: What::Evaluated(Arc::new(evaluated)), time }
}

/// Questions as HellaSwag has them, and many endings after a long context.
pub fn hellaswag(_: &Path) -> Seeds {
    let usual = r#"{"ind": 4, "ctx": "A man sits on a roof. He", "label": 3,
        "endings": ["is using wrap.", "rips tiles off.", "holds a cube.", "starts to pull."]}"#;
    let usual = format!("{}\n", usual.replace('\n', " "));
    let context = "a b c ".repeat(20_000);
    let many = json!({"ctx": context, "endings": vec![""; 90], "label": "0"});
    texts(&[&usual.repeat(3), &many.to_string()])
}
