//! nanoGPT's `ckpt.pt`: written at evaluations, resumed, sampled, and next to our own checkpoints.
//! `crates/interop/tests/peers/ckpt.py` compares with nanoGPT itself.

use crate::fixture::{TINY, TempDir, walk};
use crate::interrupts;
use data::Meta;
use interop::torch;
use tokenizer::CharTokenizer;

fn run(dir: &TempDir, arguments: &[&str]) -> String {
    let done = dir.command(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{arguments:?}: {said}");
    said.into_owned()
}

fn train(dir: &TempDir, more: &[&str]) -> String {
    run(dir, &[&["train"][..], TINY, more].concat())
}

fn iteration(dir: &TempDir, file: &str) -> u64 {
    torch::open(&dir.path(file)).unwrap().iteration
}

#[test]
fn a_run_lives_in_ckpt_alone() {
    let dir = TempDir::new("ckpt");
    train(&dir, &["--checkpoint_format=ckpt"]);
    // As nanoGPT leaves it: before the update of the last iteration.
    assert_eq!(iteration(&dir, "out/ckpt.pt"), 30);
    let model = torch::open(&dir.path("out/ckpt.pt")).unwrap();
    assert!(model.has_moments && model.best_val_loss.is_some());
    assert_eq!(model.config["dataset"], "tiny");
    for other in ["last.safetensors", "best.safetensors"] {
        assert!(!dir.path("out").join(other).exists());
    }
    let resume = ["--checkpoint_format=ckpt", "--init_from=resume"];
    let said = train(&dir, &[&resume[..], &["--max_iters=45", "--n_layer=3"]].concat());
    assert!(said.contains("as in nanoGPT, the model, its optimizer"), "{said}");
    assert!(said.contains("n_layer=3 is ignored: the checkpoint's model has 2"), "{said}");
    assert!(said.contains("iter 30: loss") && said.contains("iter 45: loss"), "{said}");
    // The end was not evaluated, so it is saved.
    assert_eq!(iteration(&dir, "out/ckpt.pt"), 46);
    let said = run(&dir, &["sample", "--out_dir=out", "--num_samples=1", "--max_new_tokens=9"]);
    assert!(said.contains("out/ckpt.pt: 0.03M parameters, after 46 iterations"), "{said}");
    let refused = dir.command(&[&["train"][..], TINY].concat()).output().unwrap();
    assert_eq!(refused.status.code(), Some(4), "a new run would replace it");
}

#[test]
fn of_two_checkpoints_the_higher_iteration_wins() {
    let dir = TempDir::new("ckpt-two");
    train(&dir, &["--checkpoint_format=ckpt"]);
    let said = train(&dir, &["--init_from=resume", "--max_iters=35"]);
    assert!(said.contains("Resuming training from out at 30"), "{said}");
    let said = train(&dir, &["--init_from=resume", "--max_iters=40"]);
    assert!(said.contains("using out/last.safetensors: ckpt.pt is at iteration 30"), "{said}");
    assert!(said.contains("Resuming training from out at 36"), "{said}");
    // Back to nanoGPT's format: the older file is kept beside the new one.
    train(&dir, &["--init_from=resume", "--max_iters=50", "--checkpoint_format=ckpt"]);
    assert_eq!(iteration(&dir, "out/ckpt-30.pt"), 30);
    let said = train(&dir, &["--init_from=resume", "--max_iters=51"]);
    assert!(said.contains("using out/ckpt.pt: ckpt.pt is at iteration 50"), "{said}");
    assert!(dir.path("out/last-41.safetensors").exists());
}

#[test]
fn without_always_save_only_the_best_is_kept() {
    let dir = TempDir::new("ckpt-best");
    let keys = ["--checkpoint_format=ckpt", "--always_save_checkpoint=False", "--seed=5"];
    let said = train(&dir, &[&keys[..], &["--max_iters=25", "--learning_rate=1.0"]].concat());
    assert!(!said.contains("best so far") || dir.path("out/ckpt.pt").exists(), "{said}");
    let best = said.lines().rfind(|line| line.contains("best so far"));
    let best = best.and_then(|line| line.split([' ', ':']).nth(1)?.parse::<u64>().ok());
    match best.filter(|best| *best > 0) {
        Some(best) => assert_eq!(iteration(&dir, "out/ckpt.pt"), best, "{said}"),
        None => assert!(!dir.path("out/ckpt.pt").exists(), "{said}"),
    }
}

/// As in our own format, a stopped run can go on where it was, and its best state is kept.
#[test]
fn without_always_save_a_signal_saves_beside_the_best() {
    let dir = TempDir::new("ckpt-signal");
    let keys = ["--checkpoint_format=ckpt", "--always_save_checkpoint=False"];
    let long = ["--max_iters=100000", "--eval_interval=200", "--lr_decay_iters=100000"];
    let stopped = |more: &[&str], line: &str| {
        let arguments = [&["train"][..], TINY, &keys, &long, more].concat();
        let ended = interrupts::stopped(dir.command(&arguments), line);
        assert_eq!(ended.code, Some(130), "{ended:?}");
        ended.out
    };
    let said = stopped(&[], "step 200:");
    assert!(said.contains("saved: out/ckpt.pt, best: out/ckpt-best.pt\n"), "{said}");
    // The file supplies the model alone: what else was given is given again.
    let again = said.lines().find(|line| line.ends_with(" --init_from=resume --out_dir=out"));
    let again = again.unwrap_or_else(|| panic!("{said}"));
    assert!(again.contains("--checkpoint_format=ckpt") && again.contains("--dataset=tiny"));
    let (best, last) = (iteration(&dir, "out/ckpt-best.pt"), iteration(&dir, "out/ckpt.pt"));
    assert!(best >= 200 && best.is_multiple_of(200) && last > best, "{best} {last}");
    // The best is what is sampled, and where the run goes on is what is resumed.
    let said = run(&dir, &["sample", "out", "--num_samples=1", "--max_new_tokens=5"]);
    let line = format!("using out/ckpt-best.pt, the best state; ckpt.pt is at iteration {last}");
    assert!(said.contains(&line), "{said}");
    let said = run(&dir, &["sample", "out/ckpt.pt", "--num_samples=1", "--max_new_tokens=5"]);
    assert!(said.contains(&format!("after {last} iterations")), "{said}");
    // Stopped again before an evaluation: the best is still the best.
    let more = ["--init_from=resume", "--eval_interval=100000"];
    let said = stopped(&more, "iter");
    assert!(said.contains("best: out/ckpt-best.pt"), "{said}");
    assert_eq!(iteration(&dir, "out/ckpt-best.pt"), best);
    assert!(iteration(&dir, "out/ckpt.pt") > last);
    // A better state takes the one name again.
    let last = iteration(&dir, "out/ckpt.pt");
    let end = format!("--max_iters={}", last + 1000);
    let better = ["--init_from=resume", "--eval_interval=100", "--learning_rate=1e-3", &end];
    let said = run(&dir, &[&["train"][..], TINY, &keys, &better].concat());
    assert!(said.contains("best so far"), "{said}");
    assert!(!dir.path("out/ckpt-best.pt").exists());
}

#[test]
fn export_goes_both_ways() {
    let dir = TempDir::new("ckpt-export");
    train(&dir, &["--max_iters=12"]);
    let from = "out/last.safetensors";
    let said = run(&dir, &["export", from, "--to", "ckpt", "--out", "a.pt"]);
    assert!(said.contains("iteration 13") && said.contains("wrote a.pt"), "{said}");
    let model = torch::open(&dir.path("a.pt")).unwrap();
    assert!(model.has_moments && model.iteration == 13);
    assert_eq!(model.optimizer["beta2"], 0.95);
    run(&dir, &["export", "a.pt", "--to", "native", "--out", "b.safetensors"]);
    let text = |name: &str| {
        let name = format!("--out_dir={name}");
        let keys = ["--num_samples=1", "--max_new_tokens=20", "--device=cpu"];
        let done = dir.command(&[&["sample", &name][..], &keys].concat()).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    assert!(text(from).contains("-----"));
    assert_eq!(text("a.pt"), text(from));
    assert_eq!(text("b.safetensors"), text(from));
    // The way back has the moments, and starts the data again.
    let said = train(&dir, &["--init_from=resume", "--out_dir=b.safetensors", "--max_iters=13"]);
    assert!(said.contains("iter 13: loss"), "{said}");
}

#[test]
fn a_damaged_file_of_ours_does_not_hide_a_good_one() {
    let dir = TempDir::new("ckpt-damaged");
    train(&dir, &[]);
    let best = dir.path("out/best.safetensors").exists();
    train(&dir, &["--checkpoint_format=ckpt", "--out_dir=other"]);
    std::fs::copy(dir.path("other/ckpt.pt"), dir.path("out/ckpt.pt")).unwrap();
    let content = dir.read("out/last.safetensors");
    dir.write("out/last.safetensors", &content[..content.len() / 2]);
    if best {
        dir.write("out/best.safetensors", &content[..content.len() / 3]);
    }
    let said = run(&dir, &["sample", "out", "--num_samples=1", "--max_new_tokens=9"]);
    assert!(said.contains("using out/ckpt.pt: "), "{said}");
    // Nor does it keep a run from resuming, which replaces it.
    let said = train(&dir, &["--init_from=resume", "--max_iters=32"]);
    assert!(said.contains("Resuming training from out at 30"), "{said}");
    assert_eq!(dir.read("out/last-unreadable.safetensors"), &content[..content.len() / 2]);
}

#[test]
fn a_model_with_more_rows_than_its_data_set_has_ids_resumes() {
    let dir = TempDir::new("ckpt-rows");
    train(&dir, &[]);
    let table = CharTokenizer::new("abcde".chars().collect());
    dir.data_set("few", &walk(1, 4000, 5), &walk(2, 1000, 5));
    dir.write("data/few/meta.pkl", &Meta::new(5, table).to_pickle());
    // No block_size: it is the model's.
    let keys = ["--dataset=few", "--out_dir=few", "--eval_iters=2", "--batch_size=4"];
    let start = [&["train", "--init_from=out", "--max_iters=3"][..], &keys].concat();
    run(&dir, &[&start[..], &["--gradient_accumulation_steps=1"]].concat());
    let said = run(&dir, &["train", "--init_from=resume", "--out_dir=few", "--max_iters=5"]);
    assert!(said.contains("Resuming training from few at 4"), "{said}");
    // Another data set with fewer ids is refused as before.
    dir.data_set("fewer", &walk(1, 4000, 4), &walk(2, 1000, 4));
    dir.write("data/fewer/meta.pkl", &Meta::new(4, None).to_pickle());
    let other = ["train", "--init_from=resume", "--out_dir=few", "--dataset=fewer"];
    dir.run(&other).failed(4, &["vocabulary of 29", "'fewer'"]);
}

/// PyTorch can leave the checksums out. `torch.load` reads such a file, and so do we.
#[test]
fn a_file_without_checksums_is_read_and_a_plain_pickle_is_not() {
    let dir = TempDir::new("ckpt-unchecked");
    let fixture = |name: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../interop/tests/fixtures/ckpt");
        std::fs::read(std::path::Path::new(folder).join(name)).unwrap()
    };
    dir.write("a.pt", &fixture("unchecked.pt"));
    let said = run(&dir, &["export", "a.pt", "--to", "native", "--out", "b.safetensors"]);
    assert_eq!(said.matches("a.pt was saved without CRC-32 checksums").count(), 1, "{said}");
    dir.write("a.pt", &fixture("strided.pt"));
    let said = run(&dir, &["export", "a.pt", "--to", "native", "--out", "c.safetensors"]);
    assert!(!said.contains("CRC-32"), "{said}");
    // Whatever its name is.
    dir.write("model", &fixture("pickled.pt"));
    dir.run(&["sample", "model"]).failed(4, &["model: this is a plain pickle", "torch.save"]);
}
