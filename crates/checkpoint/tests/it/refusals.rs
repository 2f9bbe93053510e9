//! Refused files and requests: each message names what is wrong.

use crate::fixture::{Saved, TempDir, raw_file, sample, sample_bytes};
use fitgpt_checkpoint::{Dtype, Reader, TensorInfo, save};
use requires::{Need, absent};
use std::fs;
use std::path::Path;

/// The message for a file of these bytes.
fn refusal(dir: &TempDir, bytes: &[u8]) -> String {
    let path = dir.file("given");
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
    let dir = TempDir::new("foreign");
    let good = sample_bytes(&dir);
    let schema = "\"fitgpt.checkpoint/1\"";
    assert_eq!(
        refusal(&dir, &replaced(&good, schema, "\"fitgpt.checkpoint/2\"")),
        "this file has schema fitgpt.checkpoint/2, but this program reads at most \
         fitgpt.checkpoint/1; update fitgpt"
    );
    let newer = raw_file(r#"{"__metadata__":{"schema":"fitgpt.checkpoint/1.1"},"new":7}"#, b"");
    assert!(refusal(&dir, &newer).starts_with("this file has schema fitgpt.checkpoint/1.1, but"));
    let other = refusal(&dir, &raw_file(r#"{"__metadata__":{"schema":"fitgpt.plan/1"}}"#, b""));
    assert_eq!(
        other,
        "this file has schema 'fitgpt.plan/1', but a checkpoint has fitgpt.checkpoint/1"
    );
    let tensor = r#""x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
    for metadata in ["", r#""__metadata__":{"format":"pt"},"#] {
        let foreign = raw_file(&format!("{{{metadata}{tensor}}}"), b"!");
        assert_eq!(
            refusal(&dir, &foreign),
            "this safetensors file was not written by fitgpt: its metadata has no schema"
        );
    }
    for (bytes, why) in [
        (
            &b"PK\x03\x04 a ckpt.pt is a zip file"[..],
            "its first bytes are not the length of a header",
        ),
        (b"GGUF\x03\0\0\0............", "it is a GGUF file, which fitgpt writes but does not read"),
        (
            b"version https://git-lfs.github.com/spec/v1",
            "it is a Git LFS pointer, not the file itself: run `git lfs pull` in its folder",
        ),
        (b"To be, or not to be", "it begins like a text"),
    ] {
        let message = refusal(&dir, bytes);
        let begins = "this is neither a fitgpt checkpoint nor any other safetensors file: ";
        assert_eq!(message, format!("{begins}{why}"));
    }
}

#[test]
fn truncated_and_extended_files_are_refused_with_their_sizes() {
    let dir = TempDir::new("cut");
    let mut good = sample_bytes(&dir);
    let full = good.len();
    assert_eq!(
        refusal(&dir, &good[..full - 1]),
        format!(
            "the file is truncated: it needs at least {full} bytes but has {}; resume from another \
             checkpoint",
            full - 1
        )
    );
    assert!(refusal(&dir, b"").contains("at least 10 bytes but has 0;"));
    assert!(refusal(&dir, &good[..100]).contains("bytes but has 100;"));
    good.extend(b"abc");
    assert!(refusal(&dir, &good).contains("3 bytes follow its last tensor"));
}

#[test]
fn damaged_tensors_are_named() {
    let dir = TempDir::new("damaged");
    let mut bytes = sample_bytes(&dir);
    // The last byte belongs to the last of the tensors with the narrowest elements.
    *bytes.last_mut().unwrap() ^= 1;
    let message = refusal(&dir, &bytes);
    let want = r#"tensor '\"ü\\\n' is damaged: expected checksum "#;
    assert!(message.starts_with(want), "{message}");
    let bytes = replaced(&sample_bytes(&dir), r#"\"iteration\":7"#, r#"\"iteration\":8"#);
    assert!(refusal(&dir, &bytes).contains("its header has checksum "));
}

#[test]
fn headers_that_contradict_themselves_are_refused() {
    let dir = TempDir::new("contradict");
    let tensor = |name: &str, rest: &str| format!(r#""{name}":{{"dtype":"U8",{rest}}}"#);
    let at = |name: &str, start: u64, end: u64| {
        let bytes = end.wrapping_sub(start);
        tensor(name, &format!(r#""shape":[{bytes}],"data_offsets":[{start},{end}]"#))
    };
    let [a, b] = [at("a", 0, 4), at("b", 4, 8)];
    for (tensors, want) in [
        (
            format!("{a},{}", at("b", 3, 7)),
            "tensor 'b' starts at byte 3, but the previous one ends",
        ),
        (format!("{a},{}", at("b", 5, 8)), "tensor 'b' starts at byte 5"),
        (at("a", 1, 8), "tensor 'a' starts at byte 1, but the previous one ends at 0"),
        (tensor("a", r#""shape":[4],"data_offsets":[4,0]"#), "'a' ends before it starts"),
        (tensor("a", r#""shape":[5],"data_offsets":[0,8]"#), "has 8 bytes, but its shape needs 5"),
        (tensor("a", r#""shape":[4294967296,4294967296],"data_offsets":[0,8]"#), "exceeds 64 bits"),
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
        let message = refusal(&dir, &raw_file(&json, &[0; 8]));
        assert!(message.contains(want), "{json}: {message}");
    }
}

#[test]
fn directories_pipes_and_missing_files_are_refused() {
    let dir = TempDir::new("no-file");
    let message = |name: &str| Reader::open(&dir.file(name)).unwrap_err().to_string();
    assert!(message("").ends_with(": this is not a regular file"));
    assert!(message("missing").contains("cannot open it: No such file"));
    let pipe = std::process::Command::new("mkfifo").arg(dir.file("pipe")).status();
    if !pipe.is_ok_and(|status| status.success()) {
        return absent(Need::Mkfifo, "no mkfifo");
    }
    assert!(message("pipe").ends_with(": this is not a regular file"));
}

#[test]
fn wrong_buffers_and_indices_are_refused() {
    let dir = TempDir::new("buffers");
    sample().save(&dir.file("last")).unwrap();
    let reader = Reader::open(&dir.file("last")).unwrap();
    let state = reader.find("state").unwrap();
    let message = reader.read(state, &mut [0; 63]).unwrap_err().to_string();
    assert!(message.ends_with("tensor 'state' has 64 bytes, but the buffer has 63"), "{message}");
    let message = reader.read(99, &mut []).unwrap_err().to_string();
    assert!(message.ends_with("there is no tensor 99: the file has 11"), "{message}");
}

#[test]
fn what_cannot_be_saved_leaves_the_old_file() {
    let dir = TempDir::new("unsaved");
    let path = dir.file("last");
    sample().save(&path).unwrap();
    let tensor = |name: &str, extent: u64| TensorInfo::new(name, Dtype::U8, &[extent]);
    let huge = "9".repeat(17 << 20);
    for (document, tensors, want) in [
        ("{", vec![], "the run document is not JSON: "),
        ("{}", vec![tensor("a", 1), tensor("a", 2)], "tensor 'a' is listed twice"),
        ("{}", vec![tensor("", 1)], "tensor '' has a name that the format does not allow"),
        ("{}", vec![tensor("__metadata__", 1)], "tensor '__metadata__' has a name"),
        ("{}", vec![tensor("a", 1 << 63)], "tensor 'a' ends beyond the largest possible file"),
        ("{}", vec![TensorInfo::new("a", Dtype::I64, &[1 << 63])], "exceeds 64 bits in size"),
        ("{}", vec![tensor("a", 9)], "the largest tensor has 9 bytes, but the buffer has 8"),
        ("{}", vec![tensor("a", 8)], "cannot get the content of tensor 'a': no such luck"),
        (&format!("\"{huge}\""), vec![], "the header needs 178258"),
    ] {
        let fill = |_: usize, _: &mut [u8]| Err("no such luck");
        let error = save(&path, document, &tensors, &mut [0; 8], fill).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot save {}: ", path.display())), "{error}");
        assert!(error.contains(want), "{error}");
        assert_eq!(dir.names(), ["last"]);
    }
    assert_eq!(Saved::load(&path).unwrap(), sample().by_name());
}

#[test]
fn places_that_cannot_be_written_are_refused() {
    let dir = TempDir::new("unwritable");
    let message = |path: &Path| sample().save(path).unwrap_err().to_string();
    let missing = message(&dir.file("missing/last"));
    assert!(missing.ends_with("(os error 2); does the directory exist?"), "{missing}");
    fs::write(dir.file("file"), "").unwrap();
    let under_a_file = message(&dir.file("file/last"));
    assert!(under_a_file.contains("Not a directory"), "{under_a_file}");
    let directory = dir.file("directory");
    fs::create_dir(&directory).unwrap();
    let over_a_directory = message(&directory);
    assert!(over_a_directory.contains("rename"), "{over_a_directory}");
    assert_eq!(dir.names(), ["directory", "file"]);
    assert!(message(&dir.file("..")).contains("cannot write there"));
}
