//! A run that diverges: earlier checkpoints stay, and the printed command resumes from there.

use crate::fixture::{Ended, TempDir, document, tensors};

const RESUME: [&str; 2] = ["train", "--init_from=resume"];

/// The command that the run printed, as arguments.
#[track_caller]
fn command(ended: &Ended) -> Vec<String> {
    let mut lines = ended.out.lines().skip_while(|line| !line.contains("Resume with"));
    let line = lines.nth(1).unwrap_or_else(|| panic!("no command in {}", ended.out));
    line.split_whitespace().skip(1).map(str::to_string).collect()
}

/// One step at a huge learning rate breaks the weights, although its own loss is still fine.
/// Whatever comes next, an evaluation or the end, the earlier checkpoint stays.
#[test]
fn broken_weights_are_not_saved() {
    // 1e15: finite weights that give no finite loss; 1e19 to 1e30: layer norms make zeros of them,
    // only the gradients are not finite; 1e38: the weights are not finite.
    for (index, rate) in ["1e15", "1e19", "1e30", "1e38"].into_iter().enumerate() {
        for (what, keys) in [
            ("evaluation", ["--eval_interval=12", "--max_iters=40"]),
            ("end", ["--eval_interval=1000", "--max_iters=11"]),
        ] {
            let dir = TempDir::new(&format!("broken-{index}-{what}"));
            dir.train(&["--max_iters=10"]).succeeded();
            let last = dir.path("out/last.safetensors");
            let before = dir.read("out/last.safetensors");
            let rate = format!("--learning_rate={rate}");
            let wild = [rate.as_str(), "--decay_lr=False", "--warmup_iters=0"];
            let ended = dir.run(&[&RESUME[..], &wild, &keys].concat());
            let ended = ended.failed(1, &["lower learning_rate"]);
            assert_eq!(ended.lines("iter ").len(), 1, "{}", ended.out);
            assert!(dir.read("out/last.safetensors") == before, "{what} at {rate}");
            assert_eq!(document(&last)["iteration"], 11);

            let resume = command(&ended);
            assert!(resume.iter().any(|word| word.starts_with("--learning_rate=")), "{resume:?}");
            let words: Vec<&str> = resume.iter().map(String::as_str).collect();
            assert!(words.contains(&"--out_dir=out"), "{words:?}");
            // The rate of the test is wilder than a tenth can mend.
            let mended = [&words[..], &["--learning_rate=1e-3", "--max_iters=14"]].concat();
            dir.run(&mended).succeeded();
            assert_eq!(document(&last)["iteration"], 15);
        }
    }
}

/// The printed command works as it stands where a tenth of the rate is low enough.
#[test]
fn the_printed_command_goes_on() {
    let dir = TempDir::new("diverged-command");
    dir.train(&["--max_iters=10"]).succeeded();
    // 1 - rate * decay is far below -1, a tenth of it is not: weights grow without end.
    let wild = ["--learning_rate=1", "--decay_lr=False", "--weight_decay=15"];
    let keys = ["--eval_interval=1000", "--max_iters=200", "--grad_clip=0"];
    let ended = dir.run(&[&RESUME[..], &wild, &keys].concat());
    let ended = ended.failed(1, &["lower learning_rate"]);
    let resume = command(&ended);
    let words: Vec<&str> = resume.iter().map(String::as_str).collect();
    dir.run(&[&words[..], &["--max_iters=20"]].concat()).succeeded();
}

/// A broken `last`, as older versions left them: the best checkpoint is named instead.
#[test]
fn a_broken_checkpoint_is_not_recommended() {
    let dir = TempDir::new("diverged-last");
    dir.train(&["--max_iters=15"]).succeeded();
    let last = dir.path("out/last.safetensors");
    let content = tensors(&last);
    let text = document(&last).to_string();
    let reader = checkpoint::Reader::open(&last).unwrap();
    let infos = reader.tensors().to_vec();
    let mut buffer = vec![0; checkpoint::largest_bytes(&infos).unwrap() as usize];
    checkpoint::save(&last, &text, &infos, &mut buffer, |index, bytes| {
        bytes.copy_from_slice(&content[index].1);
        if infos[index].name.starts_with("weights/") {
            bytes.fill(0xff);
        }
        Ok::<(), String>(())
    })
    .unwrap();
    let ended = dir.run(&[&RESUME[..], &["--max_iters=30"]].concat());
    let ended = ended.failed(1, &["NaN or infinite"]);
    let resume = command(&ended);
    assert!(resume.contains(&"--out_dir=out/best.safetensors".to_string()), "{resume:?}");
    let words: Vec<&str> = resume.iter().map(String::as_str).collect();
    dir.run(&[&words[..], &["--max_iters=30"]].concat()).succeeded();
    assert_eq!(document(&last)["iteration"], 31);
}
