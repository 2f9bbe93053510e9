//! A run from the first line to the last file.

use crate::fixture::{Ended, TempDir, document, tensors};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn log(dir: &TempDir, out_dir: &str) -> Vec<Value> {
    let text = String::from_utf8(dir.read(&format!("{out_dir}/log.jsonl"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_run_prints_nanogpts_lines_and_leaves_its_files() {
    let dir = TempDir::new("lines");
    dir.write("mine.py", b"# a comment\nbatch_size = 2 * 2\nlearning_rate = 1e-3\n");
    let ended = dir.run(&[&["train", "mine.py"], crate::fixture::TINY].concat()).succeeded();
    let mut rest = ended.out.as_str();
    for expected in [
        "Overriding config with mine.py:\n",
        "Overriding: dataset = 'tiny'\n",
        "tokens per iteration will be: 128\n",
        "found vocab_size = 29 (inside data/tiny/meta.pkl)\n",
        "Initializing a new model from scratch\n",
        "number of parameters: 0.03M\n",
        "num decayed parameter tensors: 10, with 26,016 parameters\n",
        "num non-decayed parameter tensors: 5, with 160 parameters\n",
        "memory, planned to the byte before anything is allocated\n",
        "  arena  ",
        "step 0: train loss 3.",
        "iter 0: loss 3.",
        "saving checkpoint to out\n",
        "step 30: train loss ",
        "iter 30: loss ",
        "saving checkpoint to out\n",
        "31 iterations, 3,968 tokens in ",
        "Checkpoint: out/last.safetensors, best: out/best.safetensors\n",
        "Metrics: out/log.jsonl; plot: ",
        "Generate text with:\n",
        " sample out\n",
    ] {
        let at = rest.find(expected);
        let at = at.unwrap_or_else(|| panic!("{expected:?} is not in the rest of\n{}", ended.out));
        rest = &rest[at + expected.len()..];
    }
    assert!(!ended.out.contains('\x1b'), "no colours and no bar in a pipe");
    assert_eq!(ended.lines("iter ").len(), 31);
    assert_eq!(document(&dir.path("out/last.safetensors"))["iteration"], 31);
    let [last, best] = ["last", "best"].map(|name| dir.path(&format!("out/{name}.safetensors")));
    assert_eq!(tensors(&last).len(), 3 * 15 + 1, "weights, both moments, the state");
    assert_eq!(document(&best)["config"]["learning_rate"], 3e-3, "the argument came later");
}

/// The roles of the bill add up to the arena, which is what is allocated.
#[test]
fn the_bill_adds_up() {
    let dir = TempDir::new("bill");
    let ended = dir.train(&["--max_iters=0"]).succeeded();
    let bill = ended.out.split("memory, planned").nth(1).unwrap();
    let rows: Vec<&str> = bill.lines().skip(1).take_while(|line| line.starts_with("  ")).collect();
    let size = |row: &str| {
        let words: Vec<&str> = row.split_whitespace().collect();
        let unit = words.iter().position(|word| word.ends_with('B')).unwrap();
        let scale = match words[unit] {
            "B" => 1.0,
            "KiB" => 1024.0,
            "MiB" => 1024.0 * 1024.0,
            other => panic!("{other}"),
        };
        words[unit - 1].parse::<f64>().unwrap() * scale
    };
    let arena = rows.iter().position(|row| row.starts_with("  arena")).unwrap();
    let sum: f64 = rows[..arena].iter().map(|row| size(row)).sum();
    let exact = log(&dir, "out").iter().find(|line| line["kind"] == "iter").unwrap()["arena_bytes"]
        .as_f64()
        .unwrap();
    assert!((sum - exact).abs() / exact < 0.01, "{sum} of {exact}\n{bill}");
    let digits: String = rows[arena].chars().filter(char::is_ascii_digit).collect();
    assert!(digits.ends_with(&exact.to_string()), "{}", rows[arena]);
}

#[test]
fn the_log_has_every_figure() {
    let dir = TempDir::new("log");
    dir.train(&["--eval_block_size=8", "--log_interval=5"]).succeeded();
    let lines = log(&dir, "out");
    let first = String::from_utf8(dir.read("out/log.jsonl")).unwrap();
    assert!(first.starts_with("{\"kind\":\"start\",\"schema\":\"fitgpt.log/2\","), "{first}");
    assert_eq!((&lines[0]["kind"], &lines[0]["config"]["n_embd"]), (&"start".into(), &32.into()));
    let of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).collect::<Vec<_>>();
    assert_eq!(of("iter").len(), 7);
    for line in of("iter") {
        for figure in
            ["loss", "lr", "grad_norm", "loss_scale", "tokens_per_second", "ms", "arena_bytes"]
        {
            assert!(line[figure].as_f64().is_some_and(|value| value > 0.0), "{figure}: {line}");
        }
    }
    let end = &lines[lines.len() - 1];
    assert_eq!(
        (&end["kind"], &end["reason"], &end["iter"]),
        (&"end".into(), &"finished".into(), &31.into())
    );
    let times: Vec<f64> = lines.iter().map(|line| line["seconds"].as_f64().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(lines.iter().all(|line| line["unix_time"].as_f64().unwrap() > 1.7e9));
    let last = |line: &&&Value| line["path"] == "out/last.safetensors";
    assert_eq!(of("save").iter().filter(last).count(), 4);
    let was_best = |line: &&&Value| line["best"] == true && line["iter"] != 0;
    let best = of("eval").iter().filter(was_best).count();
    assert_eq!(of("save").len() - 4, best, "best.safetensors");
    assert_eq!(of("eval").len(), 4);
    for line in of("eval") {
        for figure in ["train_loss", "val_loss", "train_standard_error", "val_standard_error"] {
            assert!(line[figure].as_f64().is_some_and(|value| value > 0.0), "{figure}: {line}");
        }
        assert_eq!(line["tokens"], 2 * 4 * 8);
        assert!(line["note"].as_str().unwrap().contains("not comparable"), "{line}");
    }
}

/// Nobody reads the output for a while: the run trains, saves and logs all the same, and nothing of
/// the output is lost.
#[test]
fn output_that_nobody_reads_holds_nothing_up() {
    let dir = TempDir::new("unread");
    let more = ["--max_iters=1500", "--eval_interval=1500", "--eval_iters=1", "--log_interval=1"];
    let mut command = dir.command(&[&["train"], crate::fixture::TINY, &more].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    wait_until(|| {
        let text = std::fs::read_to_string(dir.path("out/log.jsonl")).unwrap_or_default();
        text.contains("\"kind\":\"save\",\"iter\":1501")
    });
    let ended = Ended::from(child.wait_with_output().unwrap()).succeeded();
    assert!(ended.out.len() > 100_000, "a pipe holds less");
    assert_eq!(ended.lines("iter ").len(), 1501);
    assert_eq!(log(&dir, "out").last().unwrap()["reason"], "finished");
}

/// Nobody ever reads the output: the log has its end all the same, and SIGTERM ends the process.
#[test]
fn output_that_nobody_ever_reads_ends_on_a_signal() {
    let dir = TempDir::new("never-read");
    let more = ["--max_iters=1500", "--eval_interval=1500", "--eval_iters=1", "--log_interval=1"];
    let mut command = dir.command(&[&["train"], crate::fixture::TINY, &more].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    wait_until(|| has_end(&dir, "out"));
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "a pipe holds less");
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    wait_until(|| child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// The end is in the log before the sample begins; a sample that is cut short is not logged.
#[test]
fn a_sample_that_is_cut_short_is_not_logged() {
    let dir = TempDir::empty("cut-sample");
    for cut in ["closed", "killed", "whole"] {
        let out_dir = format!("--out_dir={cut}");
        let short = ["train", "--max_iters=5", "--eval_iters=1", &out_dir];
        let mut child = dir.command(&short).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("a sample of what it generates") {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "the run ended early");
        }
        match cut {
            "closed" => drop(output),
            "killed" => child.kill().unwrap(),
            _ => drop(std::io::read_to_string(output).unwrap()),
        }
        child.wait().unwrap();
        let kinds: Vec<Value> =
            log(&dir, cut).into_iter().map(|line| line["kind"].clone()).collect();
        let end = kinds.iter().position(|kind| kind == "end").expect("it has an end");
        let sample: &[&str] = if cut == "whole" { &["sample"] } else { &[] };
        assert_eq!(kinds[end + 1..], sample[..], "{cut}: {kinds:?}");
    }
}

fn has_end(dir: &TempDir, out_dir: &str) -> bool {
    let path = dir.path(&format!("{out_dir}/log.jsonl"));
    std::fs::read_to_string(path).unwrap_or_default().contains("\"kind\":\"end\"")
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(300), "it never happened");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Two runs of the same settings are the same run, whatever the threads.
#[test]
fn the_same_settings_give_the_same_bits() {
    let dir = TempDir::new("bits");
    dir.train(&["--out_dir=one"]).succeeded();
    let arguments = [&["train", "--out_dir=two"], crate::fixture::TINY].concat();
    let output = dir.command(&arguments).env("OMP_NUM_THREADS", "1").output().unwrap();
    assert!(output.status.success());
    let [one, two] = ["one", "two"].map(|run| tensors(&dir.path(run).join("last.safetensors")));
    assert!(one == two);
}

#[test]
fn eval_only_evaluates_and_changes_nothing() {
    let dir = TempDir::new("eval-only");
    dir.train(&["--max_iters=10"]).succeeded();
    let before = dir.read("out/last.safetensors");
    let ended = dir.run(&["train", "--init_from=resume", "--eval_only=True"]).succeeded();
    assert_eq!(ended.lines("step ").len(), 1);
    assert!(ended.lines("iter ").is_empty());
    assert_eq!(dir.read("out/last.safetensors"), before);
}

/// Other weights are evaluated in a run's folder without a trace, also while the run goes on.
#[test]
fn eval_only_of_other_weights_leaves_a_run_alone() {
    let dir = TempDir::new("eval-guest");
    dir.train(&["--max_iters=5"]).succeeded();
    dir.run(&["export", "out", "--to=native", "--out=a.safetensors"]).succeeded();
    let content = || {
        ["last.safetensors", "best.safetensors", "log.jsonl"]
            .map(|file| std::fs::read(dir.path("out").join(file)).ok())
    };
    let before = content();
    for more in [&["--n_layer=1"][..], &["--init_from=a.safetensors"]] {
        let ended = dir.train(&[&["--eval_only=True"], more].concat()).succeeded();
        assert_eq!(ended.lines("step ").len(), 1, "{}", ended.out);
        assert!(!ended.out.contains("Checkpoint:"), "{}", ended.out);
    }
    assert!(content() == before);
    dir.train(&["--init_from=a.safetensors"]).failed(4, &["already holds a run"]);
}

/// nanoGPT's files without a meta.pkl are GPT-2's tokens.
#[test]
fn without_meta_the_vocabulary_is_gpt2s() {
    let dir = TempDir::new("gpt2");
    dir.data_set("words", &[50_256; 200], &[50_000; 200]);
    let more = ["--dataset=words", "--max_iters=1", "--n_embd=8", "--n_layer=1"];
    let ended = dir.train(&more).succeeded();
    let line = "defaulting to vocab_size of GPT-2 to 50304 (50257 rounded up for efficiency)";
    assert!(ended.out.contains(line), "{}", ended.out);
}

/// A run that explodes stops, and what was saved before stays.
#[test]
fn a_loss_that_is_no_number_ends_the_run() {
    let dir = TempDir::new("diverged");
    dir.train(&["--max_iters=10"]).succeeded();
    let before = dir.read("out/last.safetensors");
    let wild = ["--learning_rate=1e30", "--grad_clip=0", "--weight_decay=1e30", "--max_iters=40"];
    let ended = dir.run(&[&["train", "--init_from=resume"], &wild[..]].concat());
    ended.failed(1, &["NaN or infinite", "lower learning_rate"]);
    assert_eq!(dir.read("out/last.safetensors"), before);
}

/// The same if the norm explodes before the loss does: the weights are broken, nothing is saved.
#[test]
fn a_norm_that_is_no_number_ends_the_run_before_a_save() {
    let dir = TempDir::new("diverged-norm");
    let wild = [
        "--learning_rate=1e30",
        "--grad_clip=0",
        "--weight_decay=0",
        "--warmup_iters=0",
        "--eval_interval=1",
        "--eval_iters=1",
        "--decay_lr=False",
    ];
    dir.train(&wild).failed(1, &["lower learning_rate"]);
    let last = dir.path("out/last.safetensors");
    if last.exists() {
        let finite = |bytes: &[u8]| {
            bytes.chunks_exact(4).all(|w| f32::from_le_bytes(w.try_into().unwrap()).is_finite())
        };
        let weights = tensors(&last).into_iter().filter(|(name, _)| name.starts_with("weights/"));
        assert!(weights.into_iter().all(|(_, bytes)| finite(&bytes)));
    }
}

/// Evaluation reads sequences of its own length.
#[test]
fn a_short_validation_text_is_enough_for_short_evaluations() {
    let dir = TempDir::new("short-val");
    let ids = crate::fixture::walk(1, 300, 29);
    dir.data_set("short", &ids, &ids[..10]);
    let meta = dir.read("data/tiny/meta.pkl");
    dir.write("data/short/meta.pkl", &meta);
    dir.train(&["--dataset=short", "--eval_block_size=8", "--max_iters=1"]).succeeded();
}

/// The demo ends with an evaluation of the trained model, whatever eval_interval is.
#[test]
fn the_builtin_run_evaluates_at_its_end() {
    let dir = TempDir::empty("builtin");
    let short = ["train", "--max_iters=30", "--eval_iters=2"];
    let ended = dir.run(&short).succeeded();
    let first = "no config and no dataset: the built-in demo";
    assert!(ended.out.starts_with(first), "{}", ended.out);
    let steps = ended.lines("step ");
    assert_eq!(steps.len(), 2, "{steps:?}");
    let last = steps[1].split("val loss ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(ended.out.contains(&format!("validation loss {last} nats")), "{}", ended.out);
    assert!(ended.out.contains("the floor: this run is "), "{}", ended.out);
    assert!(ended.out.contains("a 5-gram model of the same text: "), "{}", ended.out);
    assert!(ended.out.contains("a sample of what it generates"), "{}", ended.out);
    let bits = document(&dir.path("out-builtin/last.safetensors"))["best_val_loss_bits"].clone();
    let best = f64::from_bits(bits.as_str().unwrap().parse().unwrap());
    assert_eq!(format!("{best:.4}"), last, "the final evaluation is part of the run");
    // Another context length has another floor.
    let ended = dir.run(&[&short[..], &["--eval_block_size=64", "--out_dir=o"]].concat());
    let ended = ended.succeeded();
    assert!(ended.out.contains("note: eval_block_size=64"), "{}", ended.out);
    assert!(!ended.out.contains("the floor"), "{}", ended.out);
}
