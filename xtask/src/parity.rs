//! `cargo xtask peers nanogpt`: the real nanoGPT and fitgpt train side by side on the same text,
//! and every loss that both print is compared. The settings are those of the CPU example in
//! nanoGPT's README, with `--dropout=0.0`.

use crate::flags;
use crate::process::{self, Failure};
use crate::scratch::ScratchFolder;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The flags, for the usage text.
pub const FLAGS: &str = "--nanogpt DIR --text FILE [--iters N] [--python PY]";

const KNOWN: [&str; 4] = ["--nanogpt", "--text", "--iters", "--python"];

/// How much the losses of two correct programs may differ over 300 iterations.
const TOLERANCE: f64 = 0.0005;

const DATASET: &str = "data/parity";

/// nanoGPT's files that a run needs in its folder.
const FILES: [&str; 3] = ["train.py", "model.py", "configurator.py"];

/// The settings, as keys that both programs know.
const SETTINGS: &str = "--dataset=parity --out_dir=out --device=cpu --compile=False \
    --eval_interval=250 --eval_iters=20 --log_interval=1 --always_save_checkpoint=False \
    --gradient_accumulation_steps=1 --batch_size=12 --block_size=64 --n_layer=4 --n_head=4 \
    --n_embd=128 --dropout=0.0 --learning_rate=1e-3 --min_lr=1e-4 --beta2=0.99 \
    --warmup_iters=100 --lr_decay_iters=2000";

struct Options {
    nanogpt: PathBuf,
    text: PathBuf,
    iters: u32,
    python: String,
}

/// Runs both and compares.
pub fn run(args: &[String]) -> Result<(), Failure> {
    let options = parse(args).map_err(Failure::Usage)?;
    process::run(process::cargo().args(["build", "--release", "--quiet"]))?;
    let scratch = ScratchFolder::new("parity").map_err(io("scratch folder"))?;
    prepare(&options, &scratch.path)?;
    let iters = format!("--max_iters={}", options.iters);
    let mut theirs = Command::new(&options.python);
    theirs.arg("train.py").args(SETTINGS.split_whitespace()).arg(&iters);
    let mut ours = Command::new(process::target_folder().join("release/fitgpt"));
    ours.arg("train").args(SETTINGS.split_whitespace()).args([&iters, "--sampler=nanogpt"]);
    let (theirs, their_seconds) = timed(theirs.current_dir(scratch.path.join("nanogpt")))?;
    let (ours, our_seconds) = timed(ours.current_dir(&scratch.path))?;
    let report = compare(&losses(&ours), &losses(&theirs))?;
    println!("{report}");
    println!("seconds: nanoGPT {their_seconds:.1}, fitgpt {our_seconds:.1}, set-up included");
    Ok(())
}

fn parse(args: &[String]) -> Result<Options, String> {
    let mut found = flags::read("nanogpt", &KNOWN, FLAGS, args)?;
    let mut needed = |flag: &str| found.remove(flag).ok_or(format!("nanogpt needs {flag}"));
    Ok(Options {
        nanogpt: needed("--nanogpt")?.into(),
        text: needed("--text")?.into(),
        iters: match needed("--iters").unwrap_or("300".to_owned()).parse() {
            Ok(iters) => iters,
            Err(_) => return Err("--iters needs a whole number".to_owned()),
        },
        python: needed("--python").unwrap_or_else(|_| process::default_python()),
    })
}

/// Prepares the text like nanoGPT's shakespeare_char, and copies nanoGPT's files next to it.
fn prepare(options: &Options, folder: &Path) -> Result<(), Failure> {
    let text = std::fs::read_to_string(&options.text).map_err(io("the text"))?;
    let mut characters: Vec<char> = text.chars().collect();
    let train = characters.len() * 9 / 10;
    let ids: Vec<u8> = {
        let mut table = characters.clone();
        table.sort_unstable();
        table.dedup();
        let id = |c: char| table.binary_search(&c).unwrap_or(0) as u16;
        let meta = format!("(dVvocab_size\nI{}\ns.", table.len());
        write(&folder.join(DATASET).join("meta.pkl"), meta.as_bytes())?;
        characters.drain(..).flat_map(|c| id(c).to_le_bytes()).collect()
    };
    write(&folder.join(DATASET).join("train.bin"), &ids[..2 * train])?;
    write(&folder.join(DATASET).join("val.bin"), &ids[2 * train..])?;
    let theirs = folder.join("nanogpt");
    for file in ["train.bin", "val.bin", "meta.pkl"] {
        let content = std::fs::read(folder.join(DATASET).join(file)).map_err(io("data"))?;
        write(&theirs.join(DATASET).join(file), &content)?;
    }
    for file in FILES {
        let content = std::fs::read(options.nanogpt.join(file)).map_err(io("nanoGPT's files"))?;
        write(&theirs.join(file), &content)?;
    }
    Ok(())
}

fn write(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    made.and_then(|()| std::fs::write(path, content)).map_err(io("scratch folder"))
}

fn io(what: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::Task(format!("nanogpt: {what}: {error}"))
}

fn timed(command: &mut Command) -> Result<(String, f64), Failure> {
    let start = Instant::now();
    let output = process::capture(command)?;
    Ok((output, start.elapsed().as_secs_f64()))
}

/// Every printed loss, keyed by the words before it: `iter 3: loss`, `step 0: val loss`.
pub fn losses(output: &str) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    let printed = |line: &&str| line.starts_with("iter ") || line.starts_with("step ");
    for line in output.lines().filter(printed) {
        let Some((name, rest)) = line.split_once(": ") else {
            continue;
        };
        for part in rest.split(", ") {
            let words: Vec<&str> = part.split(' ').collect();
            let at = words.iter().position(|word| *word == "loss");
            let value = at.and_then(|at| words.get(at + 1)).and_then(|word| word.parse().ok());
            if let (Some(at), Some(value)) = (at, value) {
                found.insert(format!("{name}: {}", words[..=at].join(" ")), value);
            }
        }
    }
    found
}

fn compare(
    ours: &BTreeMap<String, f64>,
    theirs: &BTreeMap<String, f64>,
) -> Result<String, Failure> {
    if !ours.keys().eq(theirs.keys()) || ours.is_empty() {
        let (ours, theirs) = (ours.len(), theirs.len());
        return Err(Failure::Task(format!(
            "nanogpt: {ours} losses of fitgpt, {theirs} of nanoGPT"
        )));
    }
    let difference = |name: &String| (ours[name] - theirs[name]).abs();
    let worst = ours.keys().max_by(|a, b| difference(a).total_cmp(&difference(b)));
    let worst = worst.cloned().unwrap_or_default();
    let report = format!(
        "{} losses compared; largest difference {:.4}: {worst} {:.4}, nanoGPT {:.4}",
        ours.len(),
        difference(&worst),
        ours[&worst],
        theirs[&worst]
    );
    // The losses are printed with four digits: allow for the rounding on both sides.
    if difference(&worst) > TOLERANCE + 1e-9 {
        return Err(Failure::Task(format!("nanogpt: {report}; the limit is {TOLERANCE}")));
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_found_in_both_programs_lines() {
        let ours = "step 0: train loss 4.1676, val loss 4.1649 (± 0.0010), best so far\n\
                    iter 0: loss 4.1828, time 1.00ms, mfu 2.00%, 12 tok/s, 3s left\nother loss 1";
        let theirs = "step 0: train loss 4.1676, val loss 4.1650\n\
                      iter 0: loss 4.1828, time 1.00ms, mfu -100.00%";
        let [ours, theirs] = [ours, theirs].map(losses);
        assert_eq!(ours.len(), 3);
        assert!(compare(&ours, &theirs).unwrap().contains("step 0: val loss 4.1649"));
        let far = losses("step 0: train loss 4.1676, val loss 4.1655\niter 0: loss 4.1828");
        assert!(compare(&ours, &far).is_err());
        assert!(compare(&ours, &losses("iter 0: loss 4.1828")).is_err());
        assert!(compare(&losses(""), &losses("")).is_err());
    }

    #[test]
    fn flags_are_read_and_named() {
        let parse = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            super::parse(&args)
        };
        let options = parse("--nanogpt /n --text=/t --iters 20").unwrap();
        assert_eq!((options.iters, options.text), (20, "/t".into()));
        for (line, want) in [
            ("--nanogpt /n", "nanogpt needs --text"),
            ("--text", "--text needs a value"),
            ("--fast=1", "nanogpt has no flag '--fast'"),
        ] {
            assert!(parse(line).err().is_some_and(|problem| problem.starts_with(want)), "{line}");
        }
    }
}
