//! Data files that changed since the run was saved: refused with both lengths, or noted if that is
//! harmless or intended.

use crate::fixture::{Ended, TempDir, document, walk};

const RESUME: [&str; 3] = ["train", "--init_from=resume", "--max_iters=12"];
const INSIST: &str = "--accept_changed_data=True";

fn begun(name: &str) -> TempDir {
    let dir = TempDir::new(name);
    dir.train(&["--max_iters=10"]).succeeded();
    dir
}

fn resume(dir: &TempDir, more: &[&str]) -> Ended {
    dir.run(&[&RESUME[..], more].concat())
}

/// Bytes of 16-bit tokens in the reverse order.
fn reversed(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(2).rev().flatten().copied().collect()
}

#[test]
fn other_content_is_refused() {
    let dir = begun("data-reversed");
    let last = dir.read("out/last.safetensors");
    for file in ["train.bin", "val.bin"] {
        let path = format!("data/tiny/{file}");
        let good = dir.read(&path);
        dir.write(&path, &reversed(&good));
        resume(&dir, &[]).failed(4, &[file, "6000 bytes", "different content", INSIST]);
        // Repeating the whole command with its data set is not a permission.
        resume(&dir, &["--dataset=tiny"]).failed(4, &[file]);
        assert!(dir.read("out/last.safetensors") == last);
        // An evaluation alone does no harm.
        let only = resume(&dir, &["--eval_only=True"]).succeeded();
        assert!(only.out.contains(&format!("{file} has changed")), "{}", only.out);
        dir.write(&path, &good);
    }
    resume(&dir, &[]).succeeded();
}

#[test]
fn a_shorter_file_is_refused_unless_one_insists() {
    let dir = begun("data-cut");
    let good = dir.read("data/tiny/train.bin");
    dir.write("data/tiny/train.bin", &good[..300]);
    resume(&dir, &[]).failed(4, &["train.bin", "6000", "300 bytes", INSIST]);
    let ended = resume(&dir, &[INSIST]).succeeded();
    assert!(ended.out.contains("train.bin has changed"), "{}", ended.out);
    // From now on that is the run's data, and the permission is not kept.
    dir.run(&["train", "--init_from=resume", "--max_iters=14"]).succeeded();
    dir.write("data/tiny/train.bin", &good[..200]);
    let once = ["train", "--init_from=resume", "--max_iters=16"];
    dir.run(&once).failed(4, &["300", "200"]);
}

#[test]
fn appended_tokens_are_noted() {
    let dir = begun("data-appended");
    let mut longer = dir.read("data/tiny/train.bin");
    longer.extend(longer.clone());
    dir.write("data/tiny/train.bin", &longer);
    let ended = resume(&dir, &[]).succeeded();
    assert!(ended.out.contains("train.bin has grown"), "{}", ended.out);
    assert!(ended.out.contains("6000") && ended.out.contains("12000"), "{}", ended.out);
}

/// Files too large to be read whole are looked at in places.
#[test]
fn large_files_are_sampled() {
    let dir = TempDir::new("data-large");
    let ids = walk(5, 400_000, 29);
    dir.data_set("large", &ids, &ids[..3000]);
    let meta = dir.read("data/tiny/meta.pkl");
    dir.write("data/large/meta.pkl", &meta);
    dir.train(&["--dataset=large", "--max_iters=10"]).succeeded();
    let good = dir.read("data/large/train.bin");
    for change in [0..2, 799_998..800_000, 300_000..330_000] {
        let mut other = good.clone();
        other[change.clone()].iter_mut().for_each(|byte| *byte = 0);
        assert!(other != good, "{change:?}");
        dir.write("data/large/train.bin", &other);
        resume(&dir, &[]).failed(4, &["train.bin", "800000", "different content"]);
    }
    let longer = [&good[..], &good[..1000]].concat();
    dir.write("data/large/train.bin", &longer);
    assert!(resume(&dir, &[]).succeeded().out.contains("has grown"));
}

/// Another data set's name is intended; a checkpoint without a fingerprint is accepted.
#[test]
fn what_is_not_compared() {
    let dir = begun("data-other");
    dir.data_set("other", &walk(9, 2000, 29), &walk(8, 2000, 29));
    let meta = dir.read("data/tiny/meta.pkl");
    dir.write("data/other/meta.pkl", &meta);
    let ended = resume(&dir, &["--dataset=other"]).succeeded();
    assert!(ended.out.contains("dataset was \"tiny\""), "{}", ended.out);
    let last = document(&dir.path("out/last.safetensors"));
    assert_eq!(last["data"]["train.bin"]["bytes"], 4000, "{}", last["data"]);
    let builtin = TempDir::empty("data-builtin");
    let short = ["train", "--max_iters=2", "--eval_iters=1", "--out_dir=out"];
    builtin.run(&short).succeeded();
    assert!(document(&builtin.path("out/last.safetensors"))["data"].is_null());
}

/// Shards are files of a data set too: one more is noted, one that is gone or another is refused.
#[test]
fn shards_are_compared_one_by_one() {
    let dir = TempDir::new("data-shards");
    let bytes =
        |seed| walk(seed, 500, 29).iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>();
    let shard = |number: u64| format!("data/shards/a_train_{number:03}.bin");
    (1..=3).for_each(|number| dir.write(&shard(number), &bytes(number)));
    dir.write("data/shards/a_val_000.bin", &bytes(9));
    let meta = dir.read("data/tiny/meta.pkl");
    dir.write("data/shards/meta.pkl", &meta);
    dir.train(&["--dataset=shards", "--max_iters=10"]).succeeded();
    dir.write(&shard(4), &bytes(4));
    let ended = dir.run(&["train", "--init_from=resume", "--max_iters=11"]).succeeded();
    assert!(ended.out.contains("a_train_004.bin did not exist"), "{}", ended.out);
    dir.write(&shard(2), &bytes(7));
    resume(&dir, &[]).failed(4, &["a_train_002.bin", "1000 bytes", "different content"]);
    std::fs::remove_file(dir.path(&shard(2))).unwrap();
    resume(&dir, &[]).failed(4, &["a_train_002.bin", "is missing: it had 1000 bytes"]);
    dir.write(&shard(2), &bytes(2));
    resume(&dir, &[]).succeeded();
}
