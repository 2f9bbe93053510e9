//! Resumed runs: the same bits as a run that never stopped, the keys of the checkpoint where
//! nothing else is given, and a word where the bits cannot be the same.

use crate::budgets::{BESIDE, arena};
use crate::fixture::{Ended, TempDir, document, tensors};

#[test]
fn a_run_in_two_parts_is_the_run_in_one() {
    for sampler in ["fitgpt", "nanogpt"] {
        let dir = TempDir::new(&format!("two-parts-{sampler}"));
        let sampler = format!("--sampler={sampler}");
        dir.train(&["--out_dir=whole", &sampler]).succeeded();
        dir.train(&["--out_dir=parts", &sampler, "--max_iters=17"]).succeeded();
        // Everything else comes from the checkpoint.
        let resume = ["train", "--init_from=resume", "--out_dir=parts", "--max_iters=30"];
        let ended = dir.run(&resume).succeeded();
        assert!(ended.out.contains("Resuming training from parts at 18"), "{}", ended.out);
        assert!(!ended.out.contains("may not be bit-identical"), "{}", ended.out);
        let [whole, parts] = ["whole", "parts"].map(|run| dir.path(run).join("last.safetensors"));
        assert!(tensors(&whole) == tensors(&parts), "{sampler}");
        assert_eq!(document(&whole)["feed"], document(&parts)["feed"]);
    }
}

#[test]
fn a_finished_run_says_so() {
    let dir = TempDir::new("finished");
    dir.train(&[]).succeeded();
    let before = dir.read("out/last.safetensors");
    let ended = dir.run(&["train", "--init_from=resume"]).succeeded();
    assert!(ended.out.contains("nothing left to do"), "{}", ended.out);
    assert_eq!(dir.read("out/last.safetensors"), before);
}

#[test]
fn another_plan_is_reported() {
    let dir = TempDir::new("other-plan");
    dir.train(&["--max_iters=10"]).succeeded();
    let ended = dir.run(&["train", "--init_from=resume", "--batch_size=8", "--max_iters=12"]);
    let out = ended.succeeded().out;
    assert!(out.contains("the plan is ") && out.contains("may not be bit-identical"), "{out}");
    assert!(out.contains("batch_size was 4 when the run was saved, now it is 8"), "{out}");
}

/// Threads and evaluation do not change training, so nothing is said of them.
#[test]
fn other_threads_and_evaluations_are_the_same_run() {
    let dir = TempDir::new("other-threads");
    dir.train(&["--out_dir=whole", "--max_iters=20"]).succeeded();
    dir.train(&["--max_iters=10"]).succeeded();
    let more = ["train", "--init_from=resume", "--max_iters=20", "--eval_batch_size=3"];
    let output = dir.command(&more).env("OMP_NUM_THREADS", "1").output().unwrap();
    let ended = Ended::from(output).succeeded();
    assert!(!ended.out.contains("may not be bit-identical"), "{}", ended.out);
    let [whole, parts] = ["whole", "out"].map(|run| dir.path(run).join("last.safetensors"));
    assert!(tensors(&whole) == tensors(&parts));
}

/// A shorter context crops a model, also twice.
#[test]
fn a_run_may_go_on_with_shorter_sequences() {
    let dir = TempDir::new("crop");
    dir.train(&["--max_iters=10"]).succeeded();
    for (block_size, max_iters) in [("8", "12"), ("16", "14")] {
        let block_size = format!("--block_size={block_size}");
        let max_iters = format!("--max_iters={max_iters}");
        dir.run(&["train", "--init_from=resume", &block_size, &max_iters]).succeeded();
    }
    let more = ["train", "--init_from=resume", "--block_size=32", "--max_iters=20"];
    dir.run(&more).failed(2, &["block_size=32", "16 positions"]);
}

/// The stream of nanoGPT is a state: it has none for other batches, and none to begin with later.
#[test]
fn the_sampler_of_a_run() {
    let dir = TempDir::new("sampler");
    dir.train(&["--max_iters=10", "--sampler=nanogpt"]).succeeded();
    let resume = |more: &[&str]| dir.run(&[&["train", "--init_from=resume"], more].concat());
    resume(&["--max_iters=12", "--batch_size=3"]).failed(4, &["batch_size=3", "--sampler=fitgpt"]);
    resume(&["--max_iters=12", "--sampler=fitgpt"]).succeeded();
    resume(&["--max_iters=14", "--sampler=nanogpt"]).failed(4, &["--sampler=fitgpt"]);
}

/// Moments in 16 bits are part of the run: it resumes bit for bit.
#[test]
fn a_run_with_16_bit_moments_in_two_parts_is_the_run_in_one() {
    let dir = TempDir::new("halves");
    let halves = "--optimizer_state=bfloat16";
    dir.train(&["--out_dir=whole", halves]).succeeded();
    dir.train(&["--out_dir=parts", halves, "--max_iters=17"]).succeeded();
    let resume = ["train", "--init_from=resume", "--out_dir=parts", "--max_iters=30"];
    let ended = dir.run(&resume).succeeded();
    assert!(ended.out.contains("AdamW's moments in bfloat16"), "{}", ended.out);
    let [whole, parts] = ["whole", "parts"].map(|run| dir.path(run).join("last.safetensors"));
    assert!(tensors(&whole) == tensors(&parts));
    assert_eq!(document(&whole)["plan"]["optimizer_state"], "bfloat16");
}

/// A run may change the format of its moments on purpose, both ways, and says so.
#[test]
fn the_format_of_moments_may_be_changed() {
    let dir = TempDir::new("formats");
    dir.train(&["--max_iters=10"]).succeeded();
    for (format, last) in [("bfloat16", "--max_iters=20"), ("float32", "--max_iters=30")] {
        let format = format!("--optimizer_state={format}");
        let ended = dir.run(&["train", "--init_from=resume", &format, last]).succeeded();
        assert!(ended.out.contains("optimizer_state was "), "{}", ended.out);
        assert!(
            ended.out.contains("cannot be reused: it stores the optimizer state differently"),
            "{}",
            ended.out
        );
        assert!(!ended.lines("iter ").is_empty(), "{}", ended.out);
    }
}

/// A run is cut as it was when it was saved, though more memory is free now; and says so when that
/// is not possible any more.
#[test]
fn the_plan_of_a_run_stays_with_it() {
    let dir = TempDir::new("same-plan");
    let wide = ["--batch_size=16", "--n_layer=6", "--dropout=0.0"];
    // Without the memory behind it, which is another budget's share.
    let sentence =
        |ended: &Ended| ended.lines("plan: ")[0].rsplit_once(": ").unwrap().0.to_string();
    let free = dir.train(&[&wide[..], &["--max_iters=3", "--out_dir=free"]].concat()).succeeded();
    let less = format!("--ram={}", arena(&free) * 9 / 10 + BESIDE);
    let first = dir.train(&[&wide[..], &[&less, "--max_iters=3"]].concat()).succeeded();
    assert_ne!(sentence(&first), sentence(&free), "less memory, another plan");
    let resume = ["train", "--init_from=resume", "--max_iters=6"];
    let again = dir.run(&[&resume[..], &["--ram=1GiB"]].concat()).succeeded();
    assert_eq!(sentence(&again), sentence(&first));
    assert!(!again.out.contains("may not be bit-identical"), "{}", again.out);
    let resume = ["train", "--init_from=resume", "--max_iters=9", "--out_dir=free"];
    let smaller = dir.run(&[&resume[..], &[&less]].concat()).succeeded();
    for words in ["cannot be reused: it needs ", "may not be bit-identical"] {
        assert!(smaller.out.contains(words), "{words}: {}", smaller.out);
    }
}

/// The evaluation after the last iteration also draws from nanoGPT's stream, but a resumed run must
/// not see that: an uninterrupted run has no such evaluation.
#[test]
fn an_evaluation_at_the_end_does_not_move_the_stream() {
    for sampler in ["--sampler=nanogpt", "--sampler=fitgpt"] {
        let dir = TempDir::empty("end-stream");
        let tiny = ["train", "--n_layer=1", "--n_embd=16", "--n_head=2", "--block_size=16"];
        let keys = ["--eval_interval=7", "--eval_iters=2", "--batch_size=2", sampler];
        let run = |more: &[&str]| dir.run(&[&tiny[..], &keys, more].concat()).succeeded();
        let first = run(&["--max_iters=10", "--lr_decay_iters=20", "--out_dir=parts"]);
        assert_eq!(first.lines("step ").len(), 3, "0, 7 and the end: {}", first.out);
        let more = ["train", "--init_from=resume", "--out_dir=parts", "--max_iters=20"];
        dir.run(&more).succeeded();
        run(&["--max_iters=20", "--lr_decay_iters=20", "--out_dir=whole"]);
        let [whole, parts] = ["whole", "parts"].map(|run| dir.path(run).join("last.safetensors"));
        assert!(tensors(&whole) == tensors(&parts), "{sampler}");
        assert_eq!(document(&whole)["feed"], document(&parts)["feed"], "{sampler}");
    }
}

/// More threads need more scratch. Where the plan does not fit for that reason, the run says which
/// number of threads gives its bits.
#[test]
fn other_threads_that_change_the_plan_are_reported() {
    let dir = TempDir::new("tight-threads");
    let wide = ["--batch_size=16", "--n_layer=6", "--dropout=0.0", "--max_iters=3"];
    let with = |threads: &str, arguments: &[&str]| {
        let output = dir.command(arguments).env("OMP_NUM_THREADS", threads).output().unwrap();
        Ended::from(output).succeeded()
    };
    let start = [&["train"], crate::fixture::TINY, &wide].concat();
    let free = with("1", &[&start[..], &["--out_dir=free"]].concat());
    // What one thread needs, and not a page more.
    let ram = format!("--ram={}", arena(&free) + BESIDE);
    let first = with("1", &[&start[..], &[&ram, "--out_dir=parts"]].concat());
    assert_eq!(arena(&first), arena(&free), "a test of nothing");
    let resume = ["train", "--init_from=resume", "--max_iters=6", "--out_dir=parts"];
    std::fs::create_dir(dir.path("again")).unwrap();
    for name in ["last", "best"] {
        let [from, to] = ["parts", "again"].map(|run| dir.path(run).join(name));
        let _ = std::fs::copy(from.with_extension("safetensors"), to.with_extension("safetensors"));
    }
    let more = with("2", &resume);
    assert!(more.out.contains("cannot be reused"), "{}", more.out);
    assert!(more.out.contains("OMP_NUM_THREADS=1"), "{}", more.out);
    let resume = ["train", "--init_from=resume", "--max_iters=6", "--out_dir=again"];
    let same = with("1", &resume);
    assert!(!same.out.contains("OMP_NUM_THREADS"), "{}", same.out);
    assert!(!same.out.contains("may not be bit-identical"), "{}", same.out);
}

/// A checkpoint in the tree, written in November 2026: later versions resume it and sample from it.
#[test]
fn an_old_checkpoint_is_resumed() {
    let dir = TempDir::new("resume-old");
    let old =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../train/tests/checkpoints/2026-11.safetensors");
    std::fs::create_dir(dir.path("out")).unwrap();
    std::fs::copy(old, dir.path("out/last.safetensors")).unwrap();
    let resume = ["train", "--init_from=resume", "--max_iters=6", "--out_dir=out"];
    let ended = dir.run(&resume).succeeded();
    assert!(ended.lines("step 6: ").len() == 1, "{}", ended.out);
    assert_eq!(document(&dir.path("out/last.safetensors"))["iteration"], 7);
    let sample = dir.run(&["sample", "--out_dir=out", "--num_samples=1", "--max_new_tokens=5"]);
    assert_eq!(sample.code, Some(0), "{sample:?}");
    assert!(sample.error.contains("after 7 iterations"), "{sample:?}");
}
