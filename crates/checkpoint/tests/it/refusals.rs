//! What cannot be written or read is refused with a message that names it.

use crate::fixture::{Place, Saved, raw_file, sample, sample_bytes};
use fitgpt_checkpoint::{Dtype, Reader, TensorInfo, save};
use std::fs;
use std::path::Path;

/// The message for a file of these bytes.
fn refusal(place: &Place, bytes: &[u8]) -> String {
    let path = place.file("given");
    fs::write(&path, bytes).unwrap();
    let error = Saved::load(&path).unwrap_err().to_string();
    let message = error.strip_prefix(&format!("{}: ", path.display()));
    message.unwrap_or_else(|| panic!("the file is not named: {error}")).to_owned()
}

fn replaced(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
    let mut bytes = bytes.to_vec();
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    bytes
}

#[test]
fn newer_other_and_foreign_files_are_named() {
    let place = Place::new("foreign");
    let good = sample_bytes(&place);
    let schema = "\"fitgpt.checkpoint/1\"";
    assert_eq!(
        refusal(&place, &replaced(&good, schema, "\"fitgpt.checkpoint/2\"")),
        "this file has fitgpt.checkpoint/2, this program reads up to fitgpt.checkpoint/1; update \
         fitgpt"
    );
    let newer = raw_file(r#"{"__metadata__":{"schema":"fitgpt.checkpoint/1.1"},"new":7}"#, b"");
    assert!(refusal(&place, &newer).starts_with("this file has fitgpt.checkpoint/1.1, this"));
    let other = refusal(&place, &raw_file(r#"{"__metadata__":{"schema":"fitgpt.plan/1"}}"#, b""));
    assert_eq!(other, "this file has schema 'fitgpt.plan/1', a checkpoint has fitgpt.checkpoint/1");
    let tensor = r#""x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
    for metadata in ["", r#""__metadata__":{"format":"pt"},"#] {
        let foreign = raw_file(&format!("{{{metadata}{tensor}}}"), b"!");
        assert_eq!(
            refusal(&place, &foreign),
            "this safetensors file was not written by fitgpt: its metadata has no schema"
        );
    }
    for bytes in [&b"PK\x03\x04 a ckpt.pt is a zip file"[..], b"GGUF\x03\0\0\0............"] {
        let message = refusal(&place, bytes);
        let want = "this is not a fitgpt checkpoint, nor any safetensors file: its header ";
        assert!(message.starts_with(want), "{message}");
    }
}

#[test]
fn cut_and_extended_files_are_told_with_their_numbers() {
    let place = Place::new("cut");
    let mut good = sample_bytes(&place);
    let full = good.len();
    assert_eq!(
        refusal(&place, &good[..full - 1]),
        format!(
            "the file is cut short: at least {full} bytes expected, {} found; resume from another \
             checkpoint",
            full - 1
        )
    );
    assert!(refusal(&place, b"").contains("at least 10 bytes expected, 0 found"));
    assert!(refusal(&place, &good[..100]).contains("bytes expected, 100 found"));
    good.extend(b"abc");
    assert!(refusal(&place, &good).contains("3 bytes come after its last tensor"));
}

#[test]
fn damaged_tensors_are_named() {
    let place = Place::new("damaged");
    let mut bytes = sample_bytes(&place);
    // The last byte is that of the tensor with the narrowest elements that was given last.
    *bytes.last_mut().unwrap() ^= 1;
    let message = refusal(&place, &bytes);
    assert!(message.starts_with(r#"tensor '\"ü\\\n' is damaged: checksum "#), "{message}");
    let bytes = replaced(&sample_bytes(&place), r#"\"iteration\":7"#, r#"\"iteration\":8"#);
    assert!(refusal(&place, &bytes).contains("its header has checksum "));
}

#[test]
fn headers_that_contradict_themselves_are_refused() {
    let place = Place::new("contradict");
    let tensor = |name: &str, rest: &str| format!(r#""{name}":{{"dtype":"U8",{rest}}}"#);
    let at = |name: &str, start: u64, end: u64| {
        let bytes = end.wrapping_sub(start);
        tensor(name, &format!(r#""shape":[{bytes}],"data_offsets":[{start},{end}]"#))
    };
    let [a, b] = [at("a", 0, 4), at("b", 4, 8)];
    for (tensors, want) in [
        (format!("{a},{}", at("b", 3, 7)), "tensor 'b' starts at byte 3, the one before it ends"),
        (format!("{a},{}", at("b", 5, 8)), "tensor 'b' starts at byte 5"),
        (at("a", 1, 8), "tensor 'a' starts at byte 1, the one before it ends at 0"),
        (tensor("a", r#""shape":[4],"data_offsets":[4,0]"#), "'a' ends before it starts"),
        (tensor("a", r#""shape":[5],"data_offsets":[0,8]"#), "has 8 bytes, its shape needs 5"),
        (tensor("a", r#""shape":[4294967296,4294967296],"data_offsets":[0,8]"#), "in 64 bits"),
        (tensor("a", r#""shape":[-1],"data_offsets":[0,8]"#), "'a' has no shape"),
        (tensor("a", r#""shape":[8.0],"data_offsets":[0,8]"#), "'a' has no shape"),
        (tensor("a", r#""shape":[8],"data_offsets":[0,8,8]"#), "'a' has no offsets"),
        (tensor("a", r#""data_offsets":[0,8]"#), "'a' has no shape"),
        (r#""a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}"#.to_owned(), "dtype 'F64'"),
        (r#""a":{"shape":[1],"data_offsets":[0,8]}"#.to_owned(), "'a' has no dtype"),
        (r#""a":[]"#.to_owned(), "'a' has no dtype"),
        (format!("{a},{b}"), "its metadata has no checksum 'header.xxh64'"),
    ] {
        let zero = "0".repeat(16);
        let sums = format!(r#""xxh64/a":"{zero}","xxh64/b":"{zero}""#);
        let metadata = format!(r#"{{"schema":"fitgpt.checkpoint/1","run":"{{}}",{sums}}}"#);
        let json = format!(r#"{{"__metadata__":{metadata},{tensors}}}"#);
        let message = refusal(&place, &raw_file(&json, &[0; 8]));
        assert!(message.contains(want), "{json}: {message}");
    }
}

#[test]
fn directories_pipes_and_missing_files_are_refused() {
    let place = Place::new("no-file");
    let message = |name: &str| Reader::open(&place.file(name)).unwrap_err().to_string();
    assert!(message("").ends_with(": this is not a file"));
    assert!(message("missing").contains("cannot open it: No such file"));
    let pipe = std::process::Command::new("mkfifo").arg(place.file("pipe")).status();
    if pipe.is_ok_and(|status| status.success()) {
        assert!(message("pipe").ends_with(": this is not a file"));
    }
}

#[test]
fn wrong_buffers_and_indices_are_refused() {
    let place = Place::new("buffers");
    sample().save(&place.file("last")).unwrap();
    let reader = Reader::open(&place.file("last")).unwrap();
    let state = reader.find("state").unwrap();
    let message = reader.read(state, &mut [0; 63]).unwrap_err().to_string();
    assert!(message.ends_with("tensor 'state' has 64 bytes, the buffer 63"), "{message}");
    let message = reader.read(99, &mut []).unwrap_err().to_string();
    assert!(message.ends_with("tensor 99 was asked for, there are 11"), "{message}");
}

#[test]
fn what_cannot_be_saved_leaves_the_old_file() {
    let place = Place::new("unsaved");
    let path = place.file("last");
    sample().save(&path).unwrap();
    let tensor = |name: &str, extent: u64| TensorInfo::new(name, Dtype::U8, &[extent]);
    let huge = "9".repeat(17 << 20);
    for (document, tensors, want) in [
        ("{", vec![], "the run document is not JSON: "),
        ("{}", vec![tensor("a", 1), tensor("a", 2)], "tensor 'a' is there twice"),
        ("{}", vec![tensor("", 1)], "tensor '' has a name that the format does not allow"),
        ("{}", vec![tensor("__metadata__", 1)], "tensor '__metadata__' has a name"),
        ("{}", vec![tensor("a", 1 << 63)], "tensor 'a' ends beyond what a file can hold"),
        ("{}", vec![TensorInfo::new("a", Dtype::I64, &[1 << 63])], "has no size in 64 bits"),
        ("{}", vec![tensor("a", 9)], "the largest tensor has 9 bytes, the buffer 8"),
        ("{}", vec![tensor("a", 8)], "tensor 'a' cannot be had: no such luck"),
        (&format!("\"{huge}\""), vec![], "its header needs 178258"),
    ] {
        let fill = |_: usize, _: &mut [u8]| Err("no such luck");
        let error = save(&path, document, &tensors, &mut [0; 8], fill).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot save {}: ", path.display())), "{error}");
        assert!(error.contains(want), "{error}");
        assert_eq!(place.names(), ["last"]);
    }
    assert_eq!(Saved::load(&path).unwrap(), sample().by_name());
}

#[test]
fn places_that_cannot_be_written_are_refused() {
    let place = Place::new("unwritable");
    let message = |path: &Path| sample().save(path).unwrap_err().to_string();
    let missing = message(&place.file("missing/last"));
    assert!(missing.ends_with("(os error 2); does the directory exist?"), "{missing}");
    fs::write(place.file("file"), "").unwrap();
    let under_a_file = message(&place.file("file/last"));
    assert!(under_a_file.contains("Not a directory"), "{under_a_file}");
    let directory = place.file("directory");
    fs::create_dir(&directory).unwrap();
    let over_a_directory = message(&directory);
    assert!(over_a_directory.contains("rename"), "{over_a_directory}");
    assert_eq!(place.names(), ["directory", "file"]);
    assert!(message(&place.file("..")).contains("cannot write there"));
}
