//! Files made to fill memory: reading one takes at most four times its size plus 64 MiB.
//! Counted by the allocator, in a process of its own so that no other test is counted.

use crate::fixture::TempDir;
use checkpoint::{Dtype, Reader, TensorInfo};
use data::Meta;
use fitgpt_train::save;
use serde_json::json;
use std::alloc::{GlobalAlloc, Layout};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

/// Bytes that are held now, and the most since the last reset. A small piece takes 32 in truth.
static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Bytes that are held now, as they were asked for.
static EXACT: AtomicUsize = AtomicUsize::new(0);

pub fn held_exactly() -> usize {
    EXACT.load(Ordering::SeqCst)
}

fn taken(layout: Layout) -> usize {
    layout.size().next_multiple_of(16) + 16
}

fn take(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(held, Ordering::Relaxed);
}

// SAFETY: everything is passed on as it came, to the allocator that `allocations` counts with. The
// default `realloc` and `alloc_zeroed` go through these two: a list that grows is counted twice
// while it is copied.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(taken(layout));
        EXACT.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { counting::Counting.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        HELD.fetch_sub(taken(layout), Ordering::Relaxed);
        EXACT.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { counting::Counting.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CHILD: &str = "FITGPT_MEMORY_CHILD";

/// What a reader may take in addition to four times the file.
const BESIDE: usize = 64 << 20;

#[test]
fn no_file_takes_more_than_four_times_its_size_and_64_mib() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "memory::child", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{text}{}", String::from_utf8_lossy(&child.stderr));
    assert!(text.contains("read every file"), "the child did not run: {text}");
}

/// Reads a file and compares the most that was held meanwhile with the limit.
fn check<T, E>(name: &str, path: &Path, read: impl FnOnce(&Path) -> Result<T, E>) -> bool {
    let bytes = std::fs::metadata(path).unwrap().len() as usize;
    let before = HELD.load(Ordering::SeqCst);
    PEAK.store(before, Ordering::SeqCst);
    let found = read(path);
    let peak = PEAK.load(Ordering::SeqCst) - before;
    println!("{name}: {} KiB for a file of {} KiB", peak >> 10, bytes >> 10);
    assert!(peak <= 4 * bytes + BESIDE, "{name}: {peak} bytes for a file of {bytes}");
    found.is_ok()
}

/// JSON of about this many bytes that takes as much memory as possible, in one way or another.
fn wide_json(bytes: usize) -> Vec<(&'static str, String)> {
    let list = |element: &str| {
        let count = bytes / (element.len() + 1);
        format!("[{}0]", format!("{element},").repeat(count))
    };
    let mut keys = String::from("{");
    let mut key = 0;
    while keys.len() + 20 < bytes {
        keys += &format!("\"{key:x}\":0,");
        key += 1;
    }
    vec![
        ("zeros", list("0")),
        ("lists", list("[]")),
        ("lists of one", list("[0]")),
        ("objects", list("{}")),
        ("objects of one", list("{\"\":0}")),
        ("texts", list("\"\"")),
        ("escapes", format!("\"{}\"", "\\u0041".repeat(bytes / 6))),
        ("keys", keys + "\"\":0}"),
        ("nested", format!("{}{}", "[".repeat(bytes / 2), "]".repeat(bytes / 2))),
    ]
}

/// A file whose header is this JSON.
fn with_header(path: &Path, json: &str) {
    let length = (json.len() as u64).to_le_bytes();
    std::fs::write(path, [&length[..], json.as_bytes()].concat()).unwrap();
}

/// A complete checkpoint with this document.
fn with_document(path: &Path, document: &str) {
    let tensors = [TensorInfo::new("state", Dtype::U32, &[1])];
    let fill = |_: usize, _: &mut [u8]| Ok::<(), String>(());
    checkpoint::save(path, document, &tensors, &mut [0; 4], fill).unwrap();
}

fn headers(folder: &Path) {
    let path = folder.join("header");
    let metadata = "\"__metadata__\":{\"schema\":\"fitgpt.checkpoint/1\"}";
    for bytes in [1 << 20, 15 << 20] {
        for (name, json) in wide_json(bytes) {
            with_header(&path, &format!("{{{metadata},\"t\":{json}}}"));
            assert!(!check(&format!("header, {name}"), &path, Reader::open));
        }
        // Tensors that are tensors.
        let tensor = |at: usize| {
            format!("\"{at:x}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}")
        };
        let tensors: Vec<String> = (0..bytes / 60).map(tensor).collect();
        with_header(&path, &format!("{{{metadata},{}}}", tensors.join(",")));
        assert!(!check("header, tensors", &path, Reader::open));
    }
}

fn documents(folder: &Path) {
    let path = folder.join("document");
    for bytes in [SMALL, 1 << 17, 1 << 18, 1 << 19, 4 << 20] {
        for (name, json) in wide_json(bytes) {
            // The checkpoint's own JSON may not be nested so deep.
            if name == "nested" {
                continue;
            }
            for place in PLACES {
                with_document(&path, &document_with(place, &json));
                let is_read = check(&format!("document, {name} as {place}"), &path, save::open);
                // The parser's own limit comes after a few hundred kilobytes; whatever passes it
                // must reach the field, which takes any feed, any object as config, and any
                // choices.
                let fits = match place {
                    "feed" | "choices" | "data" => true,
                    "config" => name == "keys",
                    _ => false,
                };
                assert!(!is_read || fits, "{name} as {place}");
                assert!(is_read || !fits || bytes > SMALL, "{name} as {place}");
            }
        }
    }
    // A few bytes that stand for four million slices.
    with_document(&path, &document_with("slices", "[[1,1],[1,4194303]]"));
    assert!(check("document, slices", &path, save::open), "that is a document");
}

/// Bytes of JSON that are within the limit of a document's values whatever their shape.
const SMALL: usize = 1 << 16;

/// Where a document takes values of any size; `slices` are the plan's.
const PLACES: [&str; 7] = ["config", "feed", "choices", "data", "tokenizer", "plan", "slices"];

/// A document that is valid but for the value at one place.
fn document_with(place: &str, json: &str) -> String {
    let mut document = json!({
        "iteration": 5, "best_val_loss_bits": "0", "config": {}, "tokenizer": "gpt2",
        "model": { "n_layer": 1, "n_head": 1, "n_embd": 8, "block_size": 8, "vocab_size": 50304,
                   "bias": false },
        "plan": { "slices": [[1, 1]], "head_chunk_tokens": 256, "recompute": ["R0"],
                  "optimizer_state": "float32", "offload": false },
        "data": null, "feed": null, "choices": {}, "steps_hash": "0", "version": "0",
        "device": "cpu",
    });
    match place {
        "slices" => document["plan"]["slices"] = "HERE".into(),
        _ => document[place] = "HERE".into(),
    }
    document.to_string().replace("\"HERE\"", json)
}

fn pickles(folder: &Path) {
    let path = folder.join("meta.pkl");
    let programs: [(&str, &[u8], &[u8]); 8] = [
        ("Nones", b"(", b"N"),
        ("lists", b"(", b"]"),
        ("lists of one", b"(", b"]Na"),
        ("remembered lists", b"(", b"]\x94"),
        ("texts", b"(", b"\x8c\x01a"),
        ("remembered texts", b"(", b"\x8c\x01a\x94"),
        ("dicts of one", b"(", b"}NNs"),
        ("marks", b"", b"("),
    ];
    for count in [299_000, 374_000, 1_500_000] {
        for (name, start, one) in programs {
            let bytes = [b"\x80\x04", start, &one.repeat(count), b"l."].concat();
            std::fs::write(&path, bytes).unwrap();
            assert!(!check(&format!("pickle, {name}"), &path, Meta::read));
        }
    }
    let long = [&b"\x80\x04X\x00\x00\xf0\x00"[..], &vec![b'a'; 0xf0_0000], b"."].concat();
    std::fs::write(&path, long).unwrap();
    assert!(!check("pickle, one text", &path, Meta::read));
    // The largest that is one.
    let every = (0..=char::MAX as u32).filter_map(char::from_u32).take(1 << 16).collect();
    let meta = Meta::new(1 << 16, tokenizer::CharTokenizer::new(every));
    std::fs::write(&path, meta.to_pickle()).unwrap();
    assert!(check("pickle, 65,536 characters", &path, Meta::read), "that is a meta.pkl");
}

/// Does its work only in the process that the test above starts.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let folder = TempDir::new("memory");
    let path = folder.0.join("five");
    std::fs::write(&path, [0; 5]).unwrap();
    let counts =
        |path: &Path| std::fs::read(path).map(|_| drop(std::hint::black_box(vec![1u8; 1 << 20])));
    assert!(check("the counter", &path, counts));
    assert!(PEAK.load(Ordering::SeqCst) - HELD.load(Ordering::SeqCst) >= 1 << 19, "it counts");
    headers(&folder.0);
    documents(&folder.0);
    pickles(&folder.0);
    println!("read every file");
}
