//! Data that is not what the run was trained on: refused with both lengths, or noted where that is
//! harmless or meant.

use crate::fixture::{Ended, Place, document, walk};

const RESUME: [&str; 3] = ["train", "--init_from=resume", "--max_iters=12"];
const INSIST: &str = "--accept_changed_data=True";

fn begun(name: &str) -> Place {
    let place = Place::new(name);
    place.train(&["--max_iters=10"]).succeeded();
    place
}

fn resume(place: &Place, more: &[&str]) -> Ended {
    place.run(&[&RESUME[..], more].concat())
}

/// Bytes of 16-bit tokens in the reverse order.
fn reversed(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(2).rev().flatten().copied().collect()
}

#[test]
fn other_content_is_refused() {
    let place = begun("data-reversed");
    let last = place.read("out/last.safetensors");
    for file in ["train.bin", "val.bin"] {
        let path = format!("data/tiny/{file}");
        let good = place.read(&path);
        place.write(&path, &reversed(&good));
        resume(&place, &[]).failed(4, &[file, "6000 bytes", "other content", INSIST]);
        // The whole command again, with its data set, is no permission.
        resume(&place, &["--dataset=tiny"]).failed(4, &[file]);
        assert!(place.read("out/last.safetensors") == last);
        // An evaluation alone spoils nothing.
        let only = resume(&place, &["--eval_only=True"]).succeeded();
        assert!(only.out.contains(&format!("{file} has changed")), "{}", only.out);
        place.write(&path, &good);
    }
    resume(&place, &[]).succeeded();
}

#[test]
fn a_shorter_file_is_refused_unless_one_insists() {
    let place = begun("data-cut");
    let good = place.read("data/tiny/train.bin");
    place.write("data/tiny/train.bin", &good[..300]);
    resume(&place, &[]).failed(4, &["train.bin", "6000", "300 bytes", INSIST]);
    let ended = resume(&place, &[INSIST]).succeeded();
    assert!(ended.out.contains("train.bin has changed"), "{}", ended.out);
    // From now on that is the run's data, and the permission is not kept.
    place.run(&["train", "--init_from=resume", "--max_iters=14"]).succeeded();
    place.write("data/tiny/train.bin", &good[..200]);
    let once = ["train", "--init_from=resume", "--max_iters=16"];
    place.run(&once).failed(4, &["300", "200"]);
}

#[test]
fn appended_tokens_are_noted() {
    let place = begun("data-appended");
    let mut longer = place.read("data/tiny/train.bin");
    longer.extend(longer.clone());
    place.write("data/tiny/train.bin", &longer);
    let ended = resume(&place, &[]).succeeded();
    assert!(ended.out.contains("train.bin has grown"), "{}", ended.out);
    assert!(ended.out.contains("6000") && ended.out.contains("12000"), "{}", ended.out);
}

/// Files too large to be read whole are looked at in places.
#[test]
fn large_files_are_sampled() {
    let place = Place::new("data-large");
    let ids = walk(5, 400_000, 29);
    place.data_set("large", &ids, &ids[..3000]);
    let meta = place.read("data/tiny/meta.pkl");
    place.write("data/large/meta.pkl", &meta);
    place.train(&["--dataset=large", "--max_iters=10"]).succeeded();
    let good = place.read("data/large/train.bin");
    for change in [0..2, 799_998..800_000, 300_000..330_000] {
        let mut other = good.clone();
        other[change.clone()].iter_mut().for_each(|byte| *byte = 0);
        assert!(other != good, "{change:?}");
        place.write("data/large/train.bin", &other);
        resume(&place, &[]).failed(4, &["train.bin", "800000", "other content"]);
    }
    let longer = [&good[..], &good[..1000]].concat();
    place.write("data/large/train.bin", &longer);
    assert!(resume(&place, &[]).succeeded().out.contains("has grown"));
}

/// Another data set by name is meant; and a checkpoint that says nothing is believed.
#[test]
fn what_is_not_compared() {
    let place = begun("data-other");
    place.data_set("other", &walk(9, 2000, 29), &walk(8, 2000, 29));
    let meta = place.read("data/tiny/meta.pkl");
    place.write("data/other/meta.pkl", &meta);
    let ended = resume(&place, &["--dataset=other"]).succeeded();
    assert!(ended.out.contains("dataset was \"tiny\""), "{}", ended.out);
    let last = document(&place.path("out/last.safetensors"));
    assert_eq!(last["data"]["train.bin"]["bytes"], 4000, "{}", last["data"]);
    let builtin = Place::empty("data-builtin");
    let short = ["train", "--max_iters=2", "--eval_iters=1", "--out_dir=out"];
    builtin.run(&short).succeeded();
    assert!(document(&builtin.path("out/last.safetensors"))["data"].is_null());
}

/// Shards are files of a data set too: one more is noted, one that is gone or another is refused.
#[test]
fn shards_are_compared_one_by_one() {
    let place = Place::new("data-shards");
    let bytes =
        |seed| walk(seed, 500, 29).iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>();
    let shard = |number: u64| format!("data/shards/a_train_{number:03}.bin");
    (1..=3).for_each(|number| place.write(&shard(number), &bytes(number)));
    place.write("data/shards/a_val_000.bin", &bytes(9));
    let meta = place.read("data/tiny/meta.pkl");
    place.write("data/shards/meta.pkl", &meta);
    place.train(&["--dataset=shards", "--max_iters=10"]).succeeded();
    place.write(&shard(4), &bytes(4));
    let ended = place.run(&["train", "--init_from=resume", "--max_iters=11"]).succeeded();
    assert!(ended.out.contains("a_train_004.bin was not there"), "{}", ended.out);
    place.write(&shard(2), &bytes(7));
    resume(&place, &[]).failed(4, &["a_train_002.bin", "1000 bytes", "other content"]);
    std::fs::remove_file(place.path(&shard(2))).unwrap();
    resume(&place, &[]).failed(4, &["a_train_002.bin", "1000 bytes then, gone now"]);
    place.write(&shard(2), &bytes(2));
    resume(&place, &[]).succeeded();
}
