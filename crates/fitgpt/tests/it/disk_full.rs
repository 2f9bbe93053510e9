//! A disk that is too small, or full when the run saves. If it is too small, the run is refused
//! before anything is written. If it is full, the run ends with a clear error, the old checkpoint
//! stays, and the run resumes from it once there is space. Skipped where mounting is not allowed.

use crate::fixture::{Ended, TINY, TempDir, tensors};
use crate::hub_server::{Fault, HubServer};
use requires::{Need, absent};
use std::process::Command;

/// Runs a script in a mount namespace of its own, with a file system of so many bytes in `out`;
/// `"$@"` is `train` with the tiny model. None where that is not allowed.
fn on_small_disk(dir: &TempDir, bytes: u64, script: &str) -> Option<Ended> {
    on_small_disk_with(dir, bytes, &[&["train"], TINY].concat(), script)
}

/// The same with other arguments in `"$@"`.
fn on_small_disk_with(
    dir: &TempDir,
    bytes: u64,
    arguments: &[&str],
    script: &str,
) -> Option<Ended> {
    std::fs::create_dir_all(dir.path("out")).unwrap();
    std::fs::create_dir_all(dir.path("kept")).unwrap();
    let mount = "mount -t tmpfs -o size=$SIZE tmpfs out || { echo cannot mount >&2; exit 77; }";
    let script = format!("{mount}\n{script}");
    let inner = dir.command(arguments);
    for namespaces in ["-rm", "-m"] {
        let mut command = Command::new("unshare");
        command.args([namespaces, "sh", "-c", &script, "sh"]);
        command.arg(inner.get_program()).args(inner.get_args());
        command.current_dir(&dir.0).env("SIZE", bytes.to_string());
        let ended = Ended::from(command.output().ok()?);
        if ended.code != Some(77) && !ended.error.contains("unshare") {
            return Some(ended);
        }
    }
    None
}

/// Size of a checkpoint of the tiny model.
fn checkpoint_bytes(dir: &TempDir) -> u64 {
    dir.train(&["--out_dir=reference", "--max_iters=10"]).succeeded();
    std::fs::metadata(dir.path("reference/last.safetensors")).unwrap().len()
}

#[test]
fn the_old_checkpoint_survives_a_full_disk() {
    let dir = TempDir::new("disk-full");
    // There is space at the start; another program takes it during the run.
    let script = "\
\"$@\" --max_iters=10 || exit 1
( while ! test -e out/filled; do
    grep -q '\"kind\":\"iter\",\"iter\":12' out/log.jsonl && head -c 300000 /dev/zero > out/filler \
        ; test -s out/filler && : > out/filled; sleep 0.01; done ) &
\"$@\" --init_from=resume --max_iters=20000 --log_interval=1
code=$?
cp out/last.safetensors kept/
: > out/filled
wait
rm out/filler
\"$@\" --init_from=resume --max_iters=120 --log_interval=1000 > /dev/null \
    && cp out/last.safetensors kept/whole
exit $code
";
    let room = checkpoint_bytes(&dir) * 3 + 100_000;
    let Some(ended) = on_small_disk(&dir, room, script) else {
        return absent(Need::Mount, "mounting is not allowed here");
    };
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.error.contains("last.safetensors"), "{ended:?}");
    assert!(ended.error.contains("full"), "{ended:?}");
    let at = crate::fixture::document(&dir.path("kept/last.safetensors"))["iteration"].clone();
    let end = format!("--max_iters={}", at.as_u64().unwrap() - 1);
    dir.train(&["--out_dir=so-far", &end]).succeeded();
    let so_far = dir.path("so-far/last.safetensors");
    assert!(tensors(&dir.path("kept/last.safetensors")) == tensors(&so_far));
    // Far beyond the iteration at which the disk was full, however fast the run was.
    dir.train(&["--out_dir=undisturbed", "--max_iters=120"]).succeeded();
    let undisturbed = dir.path("undisturbed/last.safetensors");
    assert!(tensors(&dir.path("kept/whole")) == tensors(&undisturbed));
}

/// `last`, the file that will replace it, and `best`: three checkpoints.
#[test]
fn a_disk_too_small_is_reported_before_anything_is_written() {
    let dir = TempDir::new("disk-small");
    let bytes = checkpoint_bytes(&dir);
    let script = "\"$@\"; code=$?; ls -A out > kept/list; exit $code";
    let Some(ended) = on_small_disk(&dir, bytes * 5 / 2, script) else {
        return absent(Need::Mount, "mounting is not allowed here");
    };
    let ended = ended.failed(4, &["out", "free", "three checkpoints", "--out_dir"]);
    assert!(ended.lines("step ").is_empty() && ended.lines("iter ").is_empty(), "{}", ended.out);
    assert_eq!(dir.read("kept/list"), b"", "nothing was written");
    // A run that is there already needs room for one more file only.
    let script = "\
cp reference/last.safetensors reference/best.safetensors out/
\"$@\" --init_from=resume --max_iters=20 && ls -A out > kept/list";
    let ended = on_small_disk(&dir, bytes * 13 / 4 + 50_000, script).unwrap().succeeded();
    assert!(!ended.lines("iter ").is_empty(), "{}", ended.out);
    // An evaluation alone writes none.
    let script = "\
cp reference/last.safetensors out/
\"$@\" --init_from=resume --eval_only=True";
    on_small_disk(&dir, bytes * 3 / 2 + 50_000, script).unwrap().succeeded();
}

/// `ulimit -f`: the system ends a process that writes beyond it without a word.
#[test]
fn a_limit_on_file_sizes_is_reported_before_anything_is_written() {
    let dir = TempDir::new("disk-limit");
    let bytes = checkpoint_bytes(&dir);
    let limited = |bytes: u64, more: &[&str]| {
        let script = format!("ulimit -f {} || exit 77; exec \"$0\" \"$@\"", bytes / 512);
        let arguments = [&["train"], TINY, more].concat();
        Ended::from(dir.shell(&script, &arguments).output().unwrap())
    };
    let ended = limited(bytes / 2, &[]);
    if ended.code == Some(77) {
        return absent(Need::Bash, "there is no ulimit -f here");
    }
    ended.failed(4, &["ulimit -f", "last.safetensors"]);
    assert!(!dir.path("out").exists());
    limited(bytes + 4096, &[]).succeeded();
    // The log reaches the limit: the run continues without it, with one notice.
    let chatty = ["--out_dir=chatty", "--log_interval=1", "--max_iters=1500", "--eval_iters=1"];
    let ended = limited(bytes + 4096, &[&chatty[..], &["--eval_interval=500"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.out.matches("cannot write the log").count(), 1, "{ended:?}");
    let log = dir.read("chatty/log.jsonl");
    assert!(log.len() as u64 <= bytes + 4096 && log.ends_with(b"\n"), "{} bytes", log.len());
}

/// Beyond `ulimit -f` the system kills a process: `prepare` stops before that, and resumes once the
/// limit is raised.
#[test]
fn a_limit_on_file_sizes_is_reported_by_prepare() {
    let dir = TempDir::new("prepare-limit");
    dir.write("text.txt", &b"some words of a text\n".repeat(20_000));
    let script = "ulimit -f 100 || exit 77; exec \"$0\" prepare text.txt --out d --tokenizer char";
    let mut shell = std::process::Command::new("bash");
    shell.args(["-c", script]).arg(dir.command(&[]).get_program()).current_dir(&dir.0);
    let Ok(output) = shell.output() else {
        return absent(Need::Bash, "there is no bash here");
    };
    let ended = crate::fixture::Ended::from(output);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.error.contains("ulimit -f"), "{ended:?}");
    let again = ["prepare", "text.txt", "--out", "d", "--tokenizer", "char"];
    dir.run(&again).succeeded();
    assert!(dir.path("d/train.bin").exists());
}

/// The same for the copy of standard input, and for a `tokenizer.json` that goes along.
#[test]
fn a_limit_on_file_sizes_is_reported_by_prepare_for_every_file() {
    let dir = TempDir::new("prepare-limits");
    dir.write("text.txt", &b"some words of a text\n".repeat(20_000));
    dir.write("short.txt", &b"some words of a text\n".repeat(200));
    let mut others = 0x100_u32..;
    let letter = |byte: u8| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
        _ => char::from_u32(others.next().unwrap()).unwrap(),
    };
    let vocab: serde_json::Map<String, serde_json::Value> =
        (0..=255_u8).map(letter).zip(0..).map(|(c, id)| (c.to_string(), id.into())).collect();
    let json = serde_json::json!({
        "padding": "x".repeat(200_000),
        "pre_tokenizer": {"type": "ByteLevel"},
        "added_tokens": [{"id": 256, "content": "<|endoftext|>"}],
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    });
    dir.write("t.json", json.to_string().as_bytes());
    let limited = |limit: &str, rest: &str| {
        let script = format!("ulimit -f {limit} || exit 77; exec \"$0\" prepare {rest}");
        let mut shell = Command::new("bash");
        shell.args(["-c", &script]).arg(dir.command(&[]).get_program()).current_dir(&dir.0);
        shell.output().ok().map(Ended::from).filter(|ended| ended.code != Some(77))
    };
    for (rest, file) in [
        ("- --out stdin < text.txt", "stdin"),
        ("short.txt --out json --tokenizer t.json", "tokenizer.json"),
    ] {
        let Some(ended) = limited("100", rest) else {
            return absent(Need::Bash, "there is no bash here, or no ulimit -f");
        };
        ended.failed(4, &["ulimit -f", file, "run the same command again"]);
        limited("unlimited", rest).unwrap().succeeded();
    }
}

/// Runs the arguments, then lists what is on the small disk in `kept/list`.
const THEN_LIST: &str = "\"$@\"; code=$?; (cd out && find . -mindepth 1) > kept/list; exit $code";

/// A download from a plain address. If its size is announced, it is refused before the first byte;
/// otherwise it ends when the disk is nearly full. Neither leaves a part that is of no use.
#[test]
fn a_download_is_bounded_by_the_disk() {
    let dir = TempDir::new("prepare-space");
    let server = HubServer::new();
    server.file("some", "text.txt", b"some words of a text\n".repeat(200_000));
    let url = format!("{}/some/resolve/main/text.txt", server.address);
    let arguments = ["prepare", url.as_str(), "--out", "out/d", "--tokenizer", "char"];
    let Some(ended) = on_small_disk_with(&dir, 2 << 20, &arguments, THEN_LIST) else {
        return absent(Need::Mount, "mounting is not allowed here");
    };
    ended.failed(4, &["needs 4200000 bytes more, but the disk has", "bytes free; make room"]);
    let list = String::from_utf8(dir.read("kept/list")).unwrap();
    assert!(!list.contains("downloads/") && !list.contains(".bin\n"), "{list}");
    server.fault("GET /some/resolve/main/text.txt", &[Fault::Endless]);
    let ended = on_small_disk_with(&dir, 40 << 20, &arguments, THEN_LIST).unwrap();
    ended.failed(4, &["its server does not say how long, but the disk has", "bytes free"]);
    let list = String::from_utf8(dir.read("kept/list")).unwrap();
    let is_final = |name: &str| name.ends_with(".bin") || name.ends_with("text.txt");
    assert!(!list.lines().any(is_final), "{list}");
    // One that is full before anybody looked.
    server.fault("GET /some/resolve/main/text.txt", &[Fault::Endless]);
    let ended = on_small_disk_with(&dir, 8 << 20, &arguments, THEN_LIST).unwrap();
    ended.failed(4, &["text.txt.part", "the disk is full: make room"]);
    let list = String::from_utf8(dir.read("kept/list")).unwrap();
    assert!(!list.lines().any(is_final), "{list}");
    // Once there is room, the same command finishes.
    on_small_disk_with(&dir, 40 << 20, &arguments, THEN_LIST).unwrap().succeeded();
    let list = String::from_utf8(dir.read("kept/list")).unwrap();
    assert!(list.contains("./d/train.bin") && !list.contains("part"), "{list}");
}

/// A `ckpt.pt` that is being replaced while the disk fills.
#[test]
fn the_old_ckpt_survives_a_full_disk() {
    let dir = TempDir::new("ckpt-full");
    dir.train(&["--out_dir=reference", "--checkpoint_format=ckpt"]).succeeded();
    let bytes = std::fs::metadata(dir.path("reference/ckpt.pt")).unwrap().len();
    // There is space at the start; another program takes it during the run.
    let script = "\
\"$@\" --checkpoint_format=ckpt --max_iters=10 || exit 1
( while ! test -e out/filled; do
    grep -q '\"kind\":\"iter\",\"iter\":12' out/log.jsonl && head -c 500000 /dev/zero > out/filler \
        ; test -s out/filler && : > out/filled; sleep 0.01; done ) &
\"$@\" --checkpoint_format=ckpt --init_from=resume --max_iters=2000 --log_interval=1
code=$?
: > out/filled
wait
rm out/filler out/filled
cp out/ckpt.pt kept/after
ls -A out > kept/list
\"$@\" --checkpoint_format=ckpt --init_from=resume --max_iters=20 > /dev/null || exit 1
exit $code
";
    let Some(ended) = on_small_disk(&dir, bytes * 2 + 400_000, script) else {
        return absent(Need::Mount, "mounting is not allowed here");
    };
    ended.failed(4, &["cannot save out/ckpt.pt: the disk is full: the new file needs", "are free"]);
    let model = interop::torch::open(&dir.path("kept/after")).unwrap();
    for (index, tensor) in model.tensors.tensors().iter().enumerate() {
        model.tensors.read(index, &mut vec![0; tensor.bytes().unwrap() as usize]).unwrap();
    }
    assert_eq!(dir.read("kept/list"), b"ckpt.pt\nlog.jsonl\n");
}

/// Every format of `export`, onto a disk with an older file of the same name and too little room.
#[test]
fn an_export_leaves_the_old_file_on_a_full_disk() {
    let dir = TempDir::new("export-full");
    let bytes = checkpoint_bytes(&dir);
    for (to, name) in [("ckpt", "m.pt"), ("native", "m.safetensors"), ("gguf", "m.gguf")] {
        let out = format!("out/{name}");
        let arguments = ["export", "reference", "--to", to, "--out", &out, "--overwrite"];
        let script = format!("echo old > out/{name}\n{THEN_LIST}");
        let script = script.replace("exit $code", &format!("cp out/{name} kept/now; exit $code"));
        let Some(ended) = on_small_disk_with(&dir, bytes / 8, &arguments, &script) else {
            return absent(Need::Mount, "mounting is not allowed here");
        };
        ended.failed(4, &[name, "full", "needs", "are free"]);
        assert_eq!(dir.read("kept/now"), b"old\n", "{to}");
        assert_eq!(dir.read("kept/list"), format!("./{name}\n").as_bytes(), "{to}");
    }
    let arguments = ["export", "reference", "--to", "hf", "--out", "out/hf"];
    let ended = on_small_disk_with(&dir, bytes / 8, &arguments, THEN_LIST).unwrap();
    ended.failed(4, &["out/hf", "full", "needs", "are free"]);
    assert_eq!(dir.read("kept/list"), b"");
}
