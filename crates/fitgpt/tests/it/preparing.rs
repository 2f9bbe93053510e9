//! `prepare` and `data` as a person uses them: from text to a trained model, kills, Ctrl-C, a full
//! disk, and the memory that it takes.

use crate::fixture::{Ended, TempDir};
use requires::{Need, absent};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Kills of the usual test; `FITGPT_KILLS` asks for more.
const KILLS: u32 = 8;

/// A generator whose numbers anybody may have.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % most
    }
}

/// So many bytes of words, in lines of JSON or as one text.
fn write_text(dir: &TempDir, name: &str, bytes: usize) {
    let mut numbers = Numbers(bytes as u64);
    let words: Vec<String> = (0..4000)
        .map(|_| {
            let letters = 2 + numbers.below(9);
            (0..letters).map(|_| char::from(b'a' + numbers.below(26) as u8)).collect()
        })
        .collect();
    let mut file = BufWriter::new(File::create(dir.path(name)).unwrap());
    let lines = name.ends_with(".jsonl");
    let mut written = 0;
    while written < bytes {
        let mut text = String::new();
        for _ in 0..200 + numbers.below(2000) {
            text += &words[numbers.below(4000) as usize];
            text.push(' ');
        }
        written += text.len();
        match lines {
            true => writeln!(file, "{{\"text\": \"{text}\"}}").unwrap(),
            false => file.write_all(text.as_bytes()).unwrap(),
        }
    }
    file.into_inner().unwrap().sync_all().unwrap();
}

#[test]
fn from_a_text_to_a_model() {
    let dir = TempDir::empty("prepare-train");
    dir.write("book.txt", "To be, or not to be: that is the question.\n".repeat(60).as_bytes());
    let made = dir.run(&["prepare", "book.txt", "--out", "data/book", "--tokenizer=char"]);
    let out = made.succeeded().out;
    assert!(out.contains("train.bin       2,322 tokens"), "{out}");
    assert!(out.ends_with(" train data/book\n"), "{out}");
    let small = ["--n_layer=1", "--n_head=1", "--n_embd=8", "--block_size=8", "--batch_size=2"];
    let run = ["--max_iters=2", "--eval_iters=1", "--device=cpu", "--out_dir=out"];
    let tokens = "--gradient_accumulation_steps=1";
    let train = dir.run(&[&["train", "--dataset=book", tokens], &small[..], &run[..]].concat());
    assert!(train.succeeded().out.contains("found vocab_size = 18"));
    let stats = dir.run(&["data", "stats", "data/book"]).succeeded().out;
    assert!(stats.contains("18 characters") && stats.contains("2,322 tokens"), "{stats}");
    let head = dir.run(&["data", "head", "data/book"]).succeeded().out;
    assert!(head.contains("To be, or not to be: that"), "{head}");
    dir.run(&["data", "tail", "data/book"]).failed(2, &["data has no action 'tail'"]);
    let stats_of_a_split = dir.run(&["data", "stats", "data/book", "--split", "val"]);
    stats_of_a_split.failed(2, &["--split is a flag of `data head`"]);
    let dry = dir.run(&["prepare", "book.txt", "--out=data/dry", "--dry-run"]).succeeded().out;
    assert!(dry.contains("nothing was written") && !dir.path("data/dry").exists(), "{dry}");
}

#[test]
fn standard_input_and_documents() {
    let dir = TempDir::empty("prepare-stdin");
    let script = "gzip < lines \
                  | \"$0\" prepare - --format jsonl --field body --out data/d --val 0.5";
    let line = |number| format!("{{\"body\": \"text number {number}\"}}\n");
    dir.write("lines", (1..=4).map(line).collect::<String>().as_bytes());
    let ended = dir.shell(script, &[]).output().unwrap();
    let out = Ended::from(ended).succeeded().out;
    assert!(out.contains("documents       4 ("), "{out}");
    assert!(!dir.path("data/d/downloads").exists());
    let head = dir.run(&["data", "head", "data/d", "--split", "val"]).succeeded().out;
    assert!(head.contains("text number 1\n"), "{head}");
}

/// The last line, given to a shell in the same folder, names this program and the data set.
#[test]
fn the_closing_command_works_where_it_was_typed() {
    let dir = TempDir::empty("prepare-closing");
    dir.write("book.txt", "To be, or not to be.\n".repeat(60).as_bytes());
    let absolute = dir.path("abs").display().to_string();
    for out in ["data/book", "elsewhere/deep", "./data/b2/", "data/my 'books", &absolute, "-dash"] {
        let flag = format!("--out={out}");
        let said = dir.run(&["prepare", "book.txt", &flag]).succeeded().out;
        let command = said.trim_end().lines().last().unwrap();
        let script = format!(
            "set -- {command}; [ $# = 3 ] && \"$1\" --version && \
                              [ \"$2\" = train ] && [ -f \"$3/train.bin\" ] && echo works"
        );
        let ended = Ended::from(dir.shell(&script, &[]).output().unwrap()).succeeded();
        assert!(ended.out.ends_with("works\n"), "{command}: {ended:?}");
        assert!(!command.contains("--dataset"), "{command}");
    }
}

/// Too little text for validation gives a warning, with a share that is enough.
#[test]
fn a_short_validation_split_is_reported() {
    let dir = TempDir::empty("prepare-short-val");
    dir.write("book.txt", "To be, or not to be: that is it.\n".repeat(1200).as_bytes());
    let line = |number| format!("{{\"text\": \"text number {number} of a small collection\"}}\n");
    dir.write("many.jsonl", (0..3000).map(line).collect::<String>().as_bytes());
    dir.write("tiny.txt", "word ".repeat(50).as_bytes());
    dir.write("poem.txt", "To be, or not to be: that is it.\n".repeat(200).as_bytes());
    for (source, tokenizer) in [("poem.txt", "char"), ("book.txt", "gpt2"), ("many.jsonl", "gpt2")]
    {
        let out = format!("data/{source}-{tokenizer}");
        let first = ["prepare", source, "--out", &out, "--tokenizer", tokenizer];
        let said = dir.run(&first).succeeded().out;
        assert!(said.contains("val.bin has only "), "{said}");
        let share = said.split("--val ").nth(1).unwrap().split(' ').next().unwrap();
        let again = [&first[..], &["--val", share, "--overwrite"]].concat();
        let said = dir.run(&again).succeeded().out;
        assert!(!said.contains("val.bin has only "), "--val {share}: {said}");
    }
    // Of two documents the larger one comes first.
    let two = ["prepare", "book.txt", "tiny.txt", "--out=data/two", "--tokenizer=char"];
    let said = dir.run(&two).succeeded().out;
    assert!(said.contains("val.bin is larger than train.bin"), "{said}");
    let said = dir.run(&["prepare", "tiny.txt", "--out=data/tiny"]).succeeded().out;
    assert!(said.contains("val.bin has only ") && said.contains("give more text"), "{said}");
    assert!(!said.contains("--overwrite"), "{said}");
}

/// JSON on standard input is documents, by its content; an explicit format is obeyed.
#[test]
fn json_on_standard_input_is_recognised() {
    let dir = TempDir::empty("prepare-stdin-json");
    let line = |number| format!("{{\"text\": \"text number {number}\"}}\n");
    let lines: String = (1..=40).map(line).collect();
    dir.write("lines", lines.as_bytes());
    dir.write("list", format!("[{}]", lines.trim_end().replace('\n', ",\n")).as_bytes());
    dir.write("table", b"text,n\none,1\ntwo,2\nthree,3\n");
    for (input, flags, documents) in [
        ("cat lines", "", Some("40 (")),
        ("gzip < lines", "", Some("40 (")),
        ("cat list", "", Some("40 (")),
        ("cat table", "--format csv", Some("3 (")),
        ("cat lines", "--format text", None),
        ("echo {hello} world, this is no JSON", "", None),
    ] {
        let script = format!("{input} | \"$0\" prepare - --out d --overwrite --val 0.5 {flags}");
        let out = Ended::from(dir.shell(&script, &[]).output().unwrap()).succeeded().out;
        let row = out.lines().find_map(|line| line.strip_prefix("documents "));
        let found = row.map(|row| row.trim_start().starts_with(documents.unwrap_or("none")));
        assert_eq!(found, documents.map(|_| true), "{script}: {out}");
        let is_reported = out.contains("standard input is JSON");
        assert_eq!(is_reported, documents == Some("40 ("), "{script}: {out}");
    }
    let script = "cat lines | \"$0\" prepare - --out e --field body";
    let ended = Ended::from(dir.shell(script, &[]).output().unwrap());
    ended.failed(4, &["line 1 has no field 'body'", "--field", "--format text"]);
}

#[test]
fn being_offline_is_reported_within_seconds() {
    let dir = TempDir::empty("prepare-offline");
    let start = Instant::now();
    let mut command = dir.command(&["prepare", "tinystories", "--out", "d"]);
    command.env("HF_ENDPOINT", "http://127.0.0.1:1");
    for proxy in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(proxy);
    }
    let ended = Ended::from(command.output().unwrap());
    ended.failed(4, &["cannot be reached", "check the network", "HF_ENDPOINT"]);
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[test]
fn data_looks_in_the_folder_data() {
    let dir = TempDir::empty("prepare-names");
    dir.write("book/a.txt", "To be, or not to be.\n".repeat(60).as_bytes());
    let made = dir.run(&["prepare", "book", "--out=data/book", "--tokenizer=char"]);
    assert!(made.succeeded().out.contains("train data/book"));
    dir.write("other/book.txt", b"x");
    for (name, folder) in [("data/book", "data/book"), ("book", "data/book")] {
        let stats = dir.run(&["data", "stats", name]).succeeded().out;
        assert!(stats.starts_with(&format!("{folder}\n")), "{stats}");
        let head = dir.run(&["data", "head", name]).succeeded().out;
        assert!(head.starts_with(&format!("{folder}\n")), "{head}");
        assert!(head.contains("To be, or not"), "{head}");
    }
    let nowhere = dir.run(&["data", "stats", "bok"]);
    nowhere.failed(4, &["data/bok does not exist", "--out data/bok"]);
}

/// Whoever comes second to a folder touches nothing, whatever it wanted there.
#[test]
fn a_second_preparation_leaves_the_first_alone() {
    let dir = TempDir::empty("prepare-two");
    let text = "It was the best of times, it was the worst of times.\n".repeat(400);
    dir.write("whole.txt", text.as_bytes());
    dir.write("other.txt", "something else ".repeat(500).as_bytes());
    let (begin, end) = text.as_bytes().split_at(10_000);
    let mut command = dir.command(&["prepare", "-", "--out", "d", "--format", "text"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut first = command.spawn().unwrap();
    let mut input = first.stdin.take().unwrap();
    input.write_all(begin).unwrap();
    let kept = || std::fs::read(dir.path("d/downloads/stdin")).unwrap_or_default();
    while kept().len() < begin.len() {
        std::thread::sleep(Duration::from_millis(1));
    }
    dir.write("d/prepare.json", b"as it was");
    for script in [
        "\"$0\" prepare - --out d --format text < other.txt",
        "\"$0\" prepare other.txt --out d",
        "\"$0\" prepare other.txt --out d --overwrite",
    ] {
        let second = Ended::from(dir.shell(script, &[]).output().unwrap());
        second.failed(4, &["another process", "another --out"]);
        assert!(kept() == begin, "{script}");
        assert_eq!(dir.read("d/prepare.json"), b"as it was", "{script}");
    }
    input.write_all(end).unwrap();
    drop(input);
    Ended::from(first.wait_with_output().unwrap()).succeeded();
    // The same again: nothing is done, and no copy of the input stays.
    let mut again = dir.shell("\"$0\" prepare - --out d --format text < whole.txt", &[]);
    let again = Ended::from(again.output().unwrap()).succeeded().out;
    assert!(again.contains("already holds this data set"), "{again}");
    dir.run(&["prepare", "whole.txt", "--out", "whole"]).succeeded();
    assert!(halves(&dir, "d") == halves(&dir, "whole"));
    let left: Vec<_> = std::fs::read_dir(dir.path("d")).unwrap().flatten().collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn words_that_make_no_request() {
    let dir = TempDir::empty("prepare-words");
    dir.write("a.txt", b"text");
    for (arguments, words) in [
        (&["--out", "d"][..], &["needs a source", "openwebtext"][..]),
        (&["a.txt"], &["needs --out"]),
        (&["a.txt", "--out=d", "--val=2"], &["--val needs a fraction"]),
        (
            &["a.txt", "--out=d", "--wrokers=2"],
            &["has no flag '--wrokers=2'; did you mean --workers?"],
        ),
        (&["a.txt", "--out=d", "--max-tokens=x"], &["such as 500000, 50M or 1B"]),
        (
            &["a.txt", "--out=d", "--tokenizer=bert"],
            &["'gpt2', 'char' or the path of a tokenizer.json"],
        ),
        (&["b.txt", "--out=d"], &["'b.txt' is not a file"]),
        (&["a.txt", "--out="], &["--out needs a folder"]),
        (&["a.txt", "--out=d", "--format=xml"], &["--format needs 'text', 'jsonl', 'json', 'csv'"]),
    ] {
        dir.run(&[&["prepare"], arguments].concat()).failed(2, words);
    }
    assert!(!dir.path("d").exists(), "nothing was written");
}

fn arguments<'a>(source: &'a str, out: &'a str) -> [&'a str; 7] {
    ["prepare", source, "--out", out, "--val=0.05", "--workers", "1"]
}

/// Both files of a data set.
fn halves(dir: &TempDir, out: &str) -> [Vec<u8>; 2] {
    ["train", "val"].map(|half| dir.read(&format!("{out}/{half}.bin")))
}

#[test]
fn kills_change_no_byte() {
    let dir = TempDir::empty("prepare-kills");
    let kills: u32 = std::env::var("FITGPT_KILLS").map_or(KILLS, |n| n.parse().unwrap());
    let sources = ["a.jsonl", "a.txt"];
    let mut whole = Vec::new();
    let start = Instant::now();
    for source in sources {
        write_text(&dir, source, 40 << 20);
        dir.run(&arguments(source, &format!("whole-{source}"))).succeeded();
        whole.push(halves(&dir, &format!("whole-{source}")));
    }
    let once = start.elapsed() / 2;
    let mut numbers = Numbers(7);
    let (mut killed, mut round, mut resumed) = (0, 0, 0);
    while killed < kills || round < sources.len() {
        let source = sources[round % 2];
        let out = format!("out{round}");
        loop {
            let mut command = dir.command(&arguments(source, &out));
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let patience = once.mul_f64(numbers.below(1000) as f64 / 1500.0);
            std::thread::sleep(patience + Duration::from_millis(20));
            let ended = child.try_wait().unwrap();
            let _ = child.kill();
            let output = Ended::from(child.wait_with_output().unwrap());
            resumed += u32::from(output.out.contains("resuming where the last run stopped"));
            match ended {
                Some(status) => break assert!(status.success(), "{output:?}"),
                None => killed += 1,
            }
            // `train.bin` gets its name last: what has it is whole, killed or not.
            let is_named = dir.path(&format!("{out}/train.bin")).exists();
            assert!(!is_named || halves(&dir, &out) == whole[round % 2], "{output:?}");
        }
        assert!(halves(&dir, &out) == whole[round % 2], "round {round}");
        assert!(!dir.path(&format!("{out}/train.bin.part")).exists());
        std::fs::remove_dir_all(dir.path(&out)).unwrap();
        round += 1;
    }
    println!("{killed} kills, {resumed} resumed, {round} data sets");
    assert!(resumed > 0);
}

#[test]
fn ctrl_c_keeps_what_is_done() {
    let dir = TempDir::empty("prepare-ctrl-c");
    write_text(&dir, "a.jsonl", 60 << 20);
    let mut command = dir.command(&arguments("a.jsonl", "out"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let some = || {
        let journal = std::fs::read(dir.path("out/prepare.json")).unwrap_or_default();
        let journal: serde_json::Value = serde_json::from_slice(&journal).unwrap_or_default();
        journal["train_tokens"].as_u64() > Some(0)
    };
    while !some() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(ended.error.contains("run the same command to resume"), "{ended:?}");
    assert!(!dir.path("out/train.bin").exists());
    let out = dir.run(&arguments("a.jsonl", "out")).succeeded().out;
    assert!(out.contains("resuming where the last run stopped"), "{out}");
    dir.run(&arguments("a.jsonl", "whole")).succeeded();
    assert!(halves(&dir, "out") == halves(&dir, "whole"));
}

/// Runs in a mount namespace of its own, with a small file system that grows.
const SCRIPT: &str = "\
mount -t tmpfs -o size=4m tmpfs out || { echo cannot mount >&2; exit 77; }
\"$@\"; echo \"refused $?\"
\"$@\" --ignore-space; echo \"full $?\"
ls out
mount -o remount,size=64m out
\"$@\" && cp out/train.bin out/val.bin kept/
";

#[test]
fn a_full_disk_is_gone_on_from() {
    let dir = TempDir::empty("prepare-full");
    write_text(&dir, "a.jsonl", 12 << 20);
    std::fs::create_dir_all(dir.path("out")).unwrap();
    std::fs::create_dir_all(dir.path("kept")).unwrap();
    dir.run(&arguments("a.jsonl", "whole")).succeeded();
    let inner = dir.command(&arguments("a.jsonl", "out"));
    for namespaces in ["-rm", "-m"] {
        let mut command = Command::new("unshare");
        command.args([namespaces, "sh", "-c", SCRIPT, "sh"]);
        command.arg(inner.get_program()).args(inner.get_args()).current_dir(&dir.0);
        let Ok(output) = command.output() else {
            return absent(Need::Mount, "there is no unshare here");
        };
        let ended = Ended::from(output);
        if ended.code == Some(77) || ended.error.contains("unshare") {
            continue;
        }
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.out.contains("refused 4") && ended.out.contains("full 4"), "{ended:?}");
        assert!(ended.error.contains("is free"), "{ended:?}");
        assert!(ended.error.contains("the disk is full: make room"), "{ended:?}");
        assert!(ended.out.contains("train.bin.part\n") && !ended.out.contains("train.bin\n"));
        assert!(halves(&dir, "kept") == halves(&dir, "whole"));
        return;
    }
    absent(Need::Mount, "mounting is not allowed here");
}

/// The most memory that a preparation held at any time, in MiB.
fn peak(dir: &TempDir, arguments: &[&str]) -> u64 {
    let mut child = dir.command(arguments).stdout(Stdio::null()).spawn().unwrap();
    let path = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(&path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        peak = peak.max(kib.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(child.wait().unwrap().success());
    peak / 1024
}

/// Text of another size takes the same memory; a single line or field of 100 MB, too; as many
/// workers as there may be stay under the GiB that is promised.
#[test]
fn memory_does_not_grow_with_the_text() {
    let dir = TempDir::empty("prepare-memory");
    write_text(&dir, "a.txt", 40 << 20);
    write_text(&dir, "line.txt", 100 << 20);
    let text = dir.read("line.txt");
    let line = [b"{\"text\": \"a\"}\n{\"text\": \"", &text[..], b"\"}\n"].concat();
    dir.write("line.jsonl", &line);
    let field = [b"id,text\n1,a\n2,\"", &text[..], b"\"\n"].concat();
    dir.write("field.csv", &field);
    drop((text, line, field));
    for (source, workers, most) in [
        ("a.txt", "2", 160),
        ("line.txt", "2", 160),
        ("line.jsonl", "2", 160),
        ("field.csv", "2", 160),
        ("line.jsonl", "64", 1024),
    ] {
        let out = format!("{source}-{workers}");
        let found = peak(&dir, &["prepare", source, "--out", &out, "--workers", workers]);
        println!("{source}, {workers} workers: {found} MiB");
        assert!(found < most, "{source}, {workers} workers: {found} MiB");
    }
}
