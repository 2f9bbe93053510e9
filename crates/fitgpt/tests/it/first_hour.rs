//! What a new user does in the first hour: keys that change the demo, missing GPUs, long runs,
//! resuming as in nanoGPT, mistyped values.

use crate::fixture::{Ended, TINY, TempDir, document, tensors};
use requires::{Need, absent};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Stdio};

/// A short run of the preset; more keys change it.
const SHORT: [&str; 5] =
    ["train", "--max_iters=3", "--eval_iters=1", "--eval_interval=1000", "--device=cpu"];

#[test]
fn keys_change_the_built_in_preset() {
    let dir = TempDir::empty("preset-keys");
    let more = ["--dropout=0.1", "--n_layer=4", "--n_embd=32", "--out_dir=out"];
    let ended = dir.run(&[&SHORT[..], &more].concat()).succeeded();
    assert!(ended.out.contains("the built-in demo"), "{}", ended.out);
    let hint = "nanoGPT's bare train.py is `train config/train_gpt2.py`";
    assert_eq!(ended.out.matches(hint).count(), 1, "{}", ended.out);
    let config = document(&dir.path("out/last.safetensors"))["config"].clone();
    assert_eq!((&config["n_layer"], &config["batch_size"]), (&4.into(), &2.into()));
    assert_eq!((&config["dropout"], &config["dataset"]), (&0.1.into(), &"builtin".into()));
    // `plan` speaks of the same run.
    let planned = dir.run(&["plan", "--dropout=0.1", "--n_layer=4", "--n_embd=32"]).succeeded();
    assert!(planned.out.contains("4 layers, 2 heads, width 32"), "{}", planned.out);
    let plain = dir.run(&[&SHORT[..4], &["--out_dir=plain"]].concat());
    assert!(plain.out.contains("the built-in demo"), "{}", plain.out);
}

/// Without a GPU (these tests hide it), settings that require one are refused, unless the user asks
/// for the CPU.
#[test]
fn a_gpu_that_was_asked_for_is_not_replaced() {
    let dir = TempDir::new("no-gpu");
    dir.write("half.py", b"dtype = 'float16'\n");
    let without_device: Vec<&str> =
        TINY.iter().copied().filter(|key| !key.starts_with("--device")).collect();
    let hidden = |more: &[&str]| {
        let mut command = dir.command(&[&["train"], &without_device[..], more].concat());
        Ended::from(command.env("CUDA_VISIBLE_DEVICES", "").output().unwrap())
    };
    for (more, word) in [
        (&["--vram=8GiB"][..], "vram='8GiB' needs a GPU, and none can be used"),
        (&["--dtype=bfloat16"], "dtype='bfloat16' needs a GPU, and none can be used"),
        (&["half.py"], "dtype='float16' needs a GPU, and none can be used"),
    ] {
        hidden(more).failed(5, &[word, "--device=cpu"]);
    }
    assert!(!dir.path("out").exists(), "nothing was written");
    let insisted = hidden(&["--vram=8GiB", "--device=cpu", "--max_iters=1"]).succeeded();
    assert!(insisted.out.contains("is ignored on the CPU"), "{}", insisted.out);
}

#[test]
fn old_cards_are_planned_without_a_speed_and_all_cards_are_listed() {
    let dir = TempDir::empty("cards");
    for card in ["RTX 2080", "T4"] {
        let ended = dir.run(&["plan", "config.toml", "--gpu", card, "--json"]);
        assert_eq!(ended.code, Some(2), "a config that is missing: {ended:?}");
        let arguments = ["plan", "--dataset=openwebtext", "--batch_size=1", "--gpu", card];
        let ended = dir.run(&arguments).succeeded();
        assert!(ended.out.contains(&format!("`train` refuses the {card}")), "{}", ended.out);
        assert!(!ended.out.contains("tok/s"), "{}", ended.out);
    }
    let list = dir.run(&["plan", "--gpu", "list"]).succeeded().out;
    assert!(list.lines().count() >= 67, "{list}");
    let row = |name: &str| list.lines().find(|line| line.starts_with(name)).unwrap().to_string();
    assert!(row("RTX 4070 ").contains("11.69 GiB") && !row("RTX 4070 ").contains("refuses"));
    assert!(row("T4 ").contains("refuses"));
    dir.run(&["plan", "--gpu", "RTX 9999"]).failed(2, &["--gpu list"]);
    assert!(dir.run(&["plan", "--gpu=list", "--json"]).succeeded().out.contains("\"gpus\""));
    for other in ["--vram=8GiB", "--svg=-", "--sweep=n_layer=1", "--measure", "--n_layer=2", "a.py"]
    {
        let name = other.split('=').next().unwrap();
        dir.run(&["plan", "--gpu=list", other]).failed(2, &["--gpu list", name]);
    }
}

#[test]
fn long_runs_are_announced_before_they_start() {
    let dir = TempDir::new("long");
    let years = ["--max_iters=4000000000", "--lr_decay_iters=4000000000"];
    let mut command = dir.command(&[&["train"], TINY, &years].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let first = first_lines(child, "step 0");
    let announced = "a long run: 512.00B tokens, 4,000,000,000 iterations of about ";
    assert!(first.contains(announced), "{first}");
    let planned = dir.run(&[&["plan"], TINY, &years].concat()).succeeded();
    assert!(planned.out.contains(announced), "{}", planned.out);
    let short = dir.run(&[&["plan"], TINY].concat()).succeeded();
    assert!(!short.out.contains("a long run"), "{}", short.out);
}

/// What a run prints up to a line; then it is killed.
fn first_lines(mut child: Child, last: &str) -> String {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut text = String::new();
    for line in lines.map_while(Result::ok) {
        text += &(line.clone() + "\n");
        if line.starts_with(last) {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    text
}

/// A run of more than a week asks once, at a terminal only.
#[test]
fn very_long_runs_ask_at_a_terminal() {
    let dir = TempDir::new("very-long");
    let years = ["--max_iters=4000000000", "--lr_decay_iters=4000000000"];
    let run = dir.command(&[&["train"], TINY, &years].concat());
    let words = std::iter::once(run.get_program()).chain(run.get_args());
    let words: Vec<String> = words.map(|word| format!("'{}'", word.to_string_lossy())).collect();
    // `exec` and `--foreground`: a program in the background of its terminal may not read from it.
    let line = format!("exec timeout --foreground 60 {}", words.join(" "));
    let Some(text) = typed(&dir, &line, "n\n") else {
        return absent(Need::Script, "script does not run here");
    };
    assert!(text.contains("[y/N]") && text.contains("not started"), "{text}");
    assert!(!dir.path("out").exists(), "nothing was written");
    // Ctrl-C (the terminal's character for it) at the question leaves at once.
    let text = typed(&dir, &line, "\x03").unwrap();
    assert!(!text.contains("not started") && !text.contains("iter 0:"), "{text}");
    assert!(!dir.path("out").exists(), "nothing was written");
    for (more, answer) in [("", "y\n"), (" '--yes'", "")] {
        let line = format!(
            "exec timeout --foreground 5 {}{more} '--out_dir=out{}'",
            words.join(" "),
            answer.len()
        );
        let text = typed(&dir, &line, answer).unwrap();
        assert!(text.contains("iter 0:"), "{more:?}: {text}");
        assert_eq!(text.contains("[y/N]"), more.is_empty(), "{text}");
    }
}

/// What a terminal shows of a command and the answer typed into it. The answer follows once the
/// program has had time to ask.
fn typed(dir: &TempDir, line: &str, answer: &str) -> Option<String> {
    let mut command = std::process::Command::new("script");
    command.args(["-qec", line, "/dev/null"]).current_dir(&dir.0);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    let (mut stdin, mut stdout) = (child.stdin.take()?, child.stdout.take()?);
    let mut seen = Vec::new();
    let mut piece = [0; 4096];
    let mut answer = (!answer.is_empty()).then_some(answer);
    while let Ok(count @ 1..) = stdout.read(&mut piece) {
        seen.extend_from_slice(&piece[..count]);
        if seen.windows(5).any(|window| window == b"[y/N]")
            && let Some(answer) = answer.take()
        {
            stdin.write_all(answer.as_bytes()).unwrap();
        }
    }
    child.wait().ok()?;
    let text = String::from_utf8_lossy(&seen).into_owned();
    text.contains("tokens per iteration").then_some(text)
}

#[test]
fn a_resumed_run_keeps_its_models_sizes_with_a_note() {
    let dir = TempDir::new("resume-sizes");
    dir.train(&["--max_iters=10"]).succeeded();
    dir.write("x.py", b"n_layer = 6\nn_embd = 64\nmax_iters = 12\n");
    let ended = dir.run(&["train", "x.py", "--init_from=resume"]).succeeded();
    for note in [
        "n_layer=6 is ignored: the checkpoint's model has 2",
        "n_embd=64 is ignored: the checkpoint's model has 32",
        "max_iters was 10 when the run was saved, now it is 12",
    ] {
        assert!(ended.out.contains(note), "{}", ended.out);
    }
    assert_eq!(document(&dir.path("out/last.safetensors"))["iteration"], 13);
    let planned = dir.run(&["plan", "x.py", "--init_from=resume"]).succeeded();
    assert!(planned.out.contains("n_layer=6 is ignored"), "{}", planned.out);
}

#[test]
fn a_checkpoint_file_can_be_named_wherever_one_is_read() {
    let dir = TempDir::new("named-checkpoint");
    dir.train(&["--max_iters=15"]).succeeded();
    let best = "--out_dir=out/best.safetensors";
    let at = document(&dir.path("out/best.safetensors"))["iteration"].as_u64().unwrap();
    let last = tensors(&dir.path("out/last.safetensors"));
    let sampled = dir.run(&["sample", best, "--num_samples=1", "--max_new_tokens=5"]);
    assert_eq!(sampled.code, Some(0), "{sampled:?}");
    let best_before = tensors(&dir.path("out/best.safetensors"));
    dir.run(&["plan", "--init_from=resume", best]).succeeded();
    let only = ["train", "--init_from=resume", best, "--eval_only=True"];
    dir.run(&only).succeeded();
    assert!(!dir.path("out/last-16.safetensors").exists());
    // Its loss is on record already: what it evaluates first does not make `last` the best.
    let none = ["--max_iters=20", "--eval_interval=1000"];
    let again = [&["train", "--init_from=resume", best], &none[..]].concat();
    let resumed = dir.run(&again).succeeded();
    assert!(tensors(&dir.path("out/best.safetensors")) == best_before);
    let line = format!("Resuming training from out at {at}");
    assert!(resumed.out.contains(&line), "{}", resumed.out);
    assert_eq!(document(&dir.path("out/last.safetensors"))["iteration"], 21);
    assert!(tensors(&dir.path("out/last-16.safetensors")) == last, "the newer one is kept");
    // And again: nothing that was saved is lost.
    let second = tensors(&dir.path("out/last.safetensors"));
    let from = "--out_dir=out/last-16.safetensors";
    dir.run(&["train", "--init_from=resume", from, "--max_iters=17"]).succeeded();
    assert!(tensors(&dir.path("out/last-21.safetensors")) == second);
    dir.run(&["train", "--init_from=resume", from, "--max_iters=20"]).succeeded();
    dir.run(&["train", "--init_from=resume", from, "--max_iters=17"]).succeeded();
    assert!(dir.path("out/last-21-2.safetensors").exists());
}

#[test]
fn a_finished_run_says_how_to_go_further() {
    let dir = TempDir::new("finished");
    dir.train(&["--max_iters=5"]).succeeded();
    let ended = dir.run(&["train", "--init_from=resume"]).succeeded();
    assert!(ended.out.contains("the run has reached max_iters=5"), "{}", ended.out);
    assert!(ended.out.contains("--init_from=resume --out_dir=out --max_iters=10"), "{}", ended.out);
}

#[test]
fn sample_takes_the_newest_run_of_the_folder() {
    let dir = TempDir::new("newest");
    dir.train(&["--max_iters=5", "--out_dir=first"]).succeeded();
    dir.train(&["--max_iters=5", "--out_dir=second"]).succeeded();
    let ended = dir.run(&["sample", "--num_samples=1", "--max_new_tokens=5"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.error.contains("using second, the newest run in this folder"), "{}", ended.error);
    // In the run's own folder, that one.
    let mut inside = dir.command(&["sample", "--num_samples=1", "--max_new_tokens=5"]);
    let inside = inside.current_dir(dir.path("first")).output().unwrap();
    assert!(String::from_utf8_lossy(&inside.stderr).contains("using ., the newest run"));
    let empty = TempDir::empty("no-run");
    empty.run(&["sample"]).failed(4, &["there is no run in this folder", "fitgpt train"]);
}

#[test]
fn a_picture_on_standard_output_and_a_grid_of_sweeps() {
    let dir = TempDir::empty("picture");
    let svg = dir.run(&["plan", "--svg", "-"]).succeeded().out;
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    dir.run(&["plan", "--svg", "-", "--json"]).failed(2, &["--svg - and --json"]);
    let grid = ["plan", "--sweep", "n_layer=2,4", "--sweep", "n_embd=64,66,128"];
    let table = dir.run(&grid).succeeded().out;
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with(['2', '4'])).collect();
    assert_eq!(rows.len(), 6, "{table}");
    assert!(table.contains("n_layer  n_embd"), "{table}");
    assert!(rows[5].starts_with("4        128"), "{table}");
    dir.run(&["plan", "--sweep", "n_layer=1", "--sweep", "n_layer=2"]).failed(2, &["twice"]);
}

/// Reads what a run prints up to its plan; gives the rest.
fn read_to_the_plan(child: &mut Child) -> BufReader<ChildStdout> {
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("plan: ") {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the run ended early");
    }
    output
}

/// An evaluation batch of 3.2 million tokens: a stop takes effect between slices.
#[test]
fn a_signal_inside_an_evaluation_batch_is_heard() {
    let dir = TempDir::new("signal-slice");
    let slow = ["--eval_batch_size=200000", "--eval_iters=50"];
    let arguments = [&["train"], TINY, &slow].concat();
    let mut command = dir.command(&arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = read_to_the_plan(&mut child);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let begin = std::time::Instant::now();
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(begin.elapsed().as_secs_f64() < 2.0, "{:?}", begin.elapsed());
    assert!(rest.contains("nothing was saved: no iteration is done yet"), "{rest}");
}

/// An iteration of many minutes is abandoned too; the run stays where it was.
#[test]
fn a_long_iteration_is_given_up_and_repeated_bit_for_bit() {
    let dir = TempDir::new("signal-iteration");
    dir.train(&["--max_iters=9", "--sampler=nanogpt", "--eval_interval=1000"]).succeeded();
    let before = tensors(&dir.path("out/last.safetensors"));
    let slow = ["--gradient_accumulation_steps=60000", "--max_iters=12"];
    let mut command = dir.command(&[&["train", "--init_from=resume"], &slow[..]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = read_to_the_plan(&mut child);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    assert!(rest.contains("interrupted before iteration 10"), "{rest}");
    assert!(tensors(&dir.path("out/last.safetensors")) == before);
    dir.run(&["train", "--init_from=resume", "--max_iters=12"]).succeeded();
    let whole = ["--max_iters=12", "--sampler=nanogpt", "--eval_interval=1000", "--out_dir=whole"];
    dir.train(&whole).succeeded();
    let [one, two] = ["out", "whole"].map(|run| dir.path(&format!("{run}/last.safetensors")));
    assert!(tensors(&one) == tensors(&two));
}

#[test]
fn f_strings_of_known_values_are_read() {
    let dir = TempDir::new("f-string");
    let config =
        "n_layer = 1\nlearning_rate = 6e-4\nout_dir = f'out-{n_layer}L-{learning_rate:.0e}'\n";
    dir.write("x.py", config.as_bytes());
    let keys: Vec<&str> = TINY.iter().copied().filter(|key| !key.contains("n_layer")).collect();
    let ended = dir.run(&[&["train"], &keys[..], &["x.py", "--max_iters=1"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(dir.path("out-1L-6e-04/last.safetensors").exists());
    dir.write("y.py", b"out_dir = f'out-{missing}'\n");
    dir.run(&["train", "y.py"]).failed(2, &["y.py:1", "`missing` is neither a key nor"]);
}

#[test]
fn sizes_and_devices_that_are_mistyped() {
    let dir = TempDir::new("mistyped");
    dir.train(&["--vram=8"]).failed(2, &["vram=8", "did you mean 8GiB?"]);
    dir.train(&["--vram=512"]).failed(2, &["did you mean 512MiB?"]);
    dir.train(&["--ram=0.5"]).failed(2, &["did you mean 0.5GiB?"]);
    dir.train(&["--device=mps"]).failed(2, &["there is no mps backend", "cpu", "cuda"]);
    let planned = ["plan", "--dataset=openwebtext", "--batch_size=1", "--vram"];
    let [with, without] = ["8G", "8GiB"].map(|size| dir.run(&[&planned[..], &[size]].concat()));
    assert_eq!((with.code, with.out), (Some(0), without.out));
    let ended = dir.run(&["plan", "--dataset=tiny", "--max_iters=4000000000"]).succeeded();
    assert!(ended.out.contains(" years"), "{}", ended.out);
    let help = dir.run(&["train", "--help"]).succeeded().out;
    assert!(help.contains("for ckpt.pt: save at every evaluation"), "{help}");
    assert!(help.contains("--time DURATION") && help.contains("--yes"), "{help}");
}
