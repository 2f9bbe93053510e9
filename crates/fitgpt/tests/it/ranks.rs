//! Runs on several ranks: the program under a real `mpiexec`. The same bits on 1, 2 and 3 ranks,
//! one save when one rank is asked to stop, resuming on another number of ranks, DiLoCo, a rank
//! that hangs, and ranks that do not belong together.

use crate::fixture::{Ended, TempDir, document, tensors};
use crate::soaking::library;
use requires::{Need, absent};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Twelve sequences in an iteration, in six groups: the same bits on 1, 2, 3 and 6 ranks.
const GROUPED: &[&str] = &[
    "train",
    "--dataset=tiny",
    "--n_layer=2",
    "--n_head=2",
    "--n_embd=32",
    "--block_size=16",
    "--batch_size=2",
    "--gradient_accumulation_steps=6",
    "--reduce_groups=6",
    "--max_iters=8",
    "--eval_interval=4",
    "--eval_iters=3",
    "--log_interval=1",
    "--learning_rate=3e-3",
    "--warmup_iters=2",
    "--lr_decay_iters=8",
    "--dropout=0.1",
    "--device=cpu",
];

/// Where there is no MPI, says so.
fn mpiexec() -> Option<PathBuf> {
    let found = mpi::mpiexec();
    if found.is_none() {
        absent(Need::Mpi, "there is no MPI with the standard ABI; `pip install mpich`");
    }
    found
}

/// So many ranks of one thread.
fn on_ranks(mpiexec: &Path, dir: &TempDir, count: usize, arguments: &[&str]) -> Command {
    let mut command = Command::new(mpiexec);
    command.args(["-n", &count.to_string(), env!("CARGO_BIN_EXE_fitgpt")]).args(arguments);
    dir.isolate(&mut command);
    command.env("OMP_NUM_THREADS", "1").stdin(Stdio::null());
    command
}

/// A rank for each list of arguments.
fn each_rank(mpiexec: &Path, dir: &TempDir, ranks: &[&[&str]]) -> Command {
    let mut command = Command::new(mpiexec);
    for (rank, arguments) in ranks.iter().enumerate() {
        if rank > 0 {
            command.arg(":");
        }
        command.args(["-n", "1", env!("CARGO_BIN_EXE_fitgpt")]).args(*arguments);
    }
    dir.isolate(&mut command);
    command.env("OMP_NUM_THREADS", "1").stdin(Stdio::null());
    command
}

fn ended(mut command: Command) -> Ended {
    Ended::from(command.output().unwrap())
}

/// What a run has computed: losses, norms and evaluations of its log, with all their digits, and
/// the tensors of its last checkpoint.
fn computed(dir: &TempDir, out: &str) -> (Vec<String>, Vec<(String, Vec<u8>)>) {
    let log = String::from_utf8(dir.read(&format!("{out}/log.jsonl"))).unwrap();
    let names = ["iter", "loss", "grad_norm", "train_loss", "val_loss", "val_standard_error"];
    let line = |event: Value| {
        let values = names.iter().map(|name| format!("{name} {}", event[*name]));
        values.collect::<Vec<String>>().join(", ")
    };
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let events = events.filter(|event| ["iter", "eval"].iter().any(|kind| event["kind"] == *kind));
    (events.map(line).collect(), tensors(&dir.path(&format!("{out}/last.safetensors"))))
}

#[track_caller]
fn same(dir: &TempDir, out: &str, want: &str) {
    let ((events, last), (want_events, want_last)) = (computed(dir, out), computed(dir, want));
    assert!(!want_events.is_empty());
    assert_eq!(events, want_events, "{out}");
    let named = |all: &[(String, Vec<u8>)]| all.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>();
    assert_eq!(named(&last), named(&want_last), "{out}");
    for ((name, content), (_, want)) in last.iter().zip(&want_last) {
        assert!(content == want, "{out}: {name} differs");
    }
}

#[test]
fn losses_weights_and_moments_are_those_of_one_rank() {
    let Some(mpiexec) = mpiexec() else { return };
    let dir = TempDir::new("ranks-bits");
    dir.run(&[GROUPED, &["--out_dir=alone"]].concat()).succeeded();
    for (count, zero) in [(1, 1), (2, 1), (2, 0), (3, 1), (3, 0)] {
        let out = format!("out-{count}-{zero}");
        let (key, keep) = (format!("--zero={zero}"), format!("--out_dir={out}"));
        let keys = [GROUPED, &[&key, &keep]].concat();
        let said = ended(on_ranks(&mpiexec, &dir, count, &keys)).succeeded();
        if count > 1 {
            let line = format!("ranks: {count}, started by mpiexec (MPICH)");
            assert_eq!(said.lines(&line).len(), 1, "one rank speaks: {}", said.out);
        }
        assert_eq!(said.lines("iter 8:").len(), 1, "{}", said.out);
        same(&dir, &out, "alone");
    }
}

/// Processes of a run, by rank.
fn processes(mark: &str) -> Vec<(usize, u32)> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let rank = |entry: std::fs::DirEntry| {
        let process = entry.file_name().to_str()?.parse().ok()?;
        let variables = std::fs::read(entry.path().join("environ")).ok()?;
        let variables = String::from_utf8_lossy(&variables).into_owned();
        let has = |name: &str| variables.split('\0').find_map(|one| one.strip_prefix(name));
        (has("FITGPT_TEST_MARK=")? == mark).then_some(())?;
        Some((has("PMI_RANK=")?.parse().ok()?, process))
    };
    all.filter_map(rank).collect()
}

/// Waits until a file is there.
fn wait_for(path: &Path) {
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "{} never came", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_signal_to_one_rank_saves_once_and_others_go_on() {
    let Some(mpiexec) = mpiexec() else { return };
    let dir = TempDir::new("ranks-term");
    let long = ["--max_iters=100000", "--eval_interval=100", "--lr_decay_iters=100000"];
    let mark = format!("term-{}", std::process::id());
    let mut command = on_ranks(&mpiexec, &dir, 3, &[GROUPED, &long].concat());
    command.env("FITGPT_TEST_MARK", &mark).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = command.spawn().unwrap();
    wait_for(&dir.path("out/last.safetensors"));
    let last = processes(&mark).into_iter().find(|(rank, _)| *rank == 2).expect("rank 2");
    assert!(Command::new("kill").args(["-TERM", &last.1.to_string()]).status().unwrap().success());
    let stopped = Ended::from(run.wait_with_output().unwrap());
    // The launcher adds up what its ranks return; all of them are 130.
    assert_eq!(stopped.code, Some(130), "{stopped:?}");
    assert!(stopped.out.contains("--init_from=resume"), "{}", stopped.out);
    let at = document(&dir.path("out/last.safetensors"))["iteration"].as_u64().unwrap();
    assert!(at > 100, "{at}");
    let log = String::from_utf8(dir.read("out/log.jsonl")).unwrap();
    let save = |line: &&str| {
        let event: Value = serde_json::from_str(line).unwrap();
        event["kind"] == "save" && event["iter"] == at && event["path"] == "out/last.safetensors"
    };
    assert_eq!(log.lines().filter(save).count(), 1, "{log}");
    // On two ranks, on one under mpiexec, and without any launcher.
    let end = format!("--max_iters={}", at + 5);
    let resume = ["train", "--init_from=resume", &end, "--device=cpu"];
    for (out, count) in [("two", Some(2)), ("one", Some(1)), ("none", None)] {
        copy(&dir, "out", out);
        let keep = format!("--out_dir={out}");
        let keys = [&resume[..], &[&keep]].concat();
        let said = match count {
            Some(count) => ended(on_ranks(&mpiexec, &dir, count, &keys)).succeeded(),
            None => dir.run(&keys).succeeded(),
        };
        assert!(!said.out.contains("not be bit for bit"), "{}", said.out);
    }
    let keys = [&resume[..], &["--out_dir=out"]].concat();
    ended(on_ranks(&mpiexec, &dir, 3, &keys)).succeeded();
    for out in ["two", "one", "none"] {
        let last = format!("{out}/last.safetensors");
        let (found, want) = (dir.path(&last), dir.path("out/last.safetensors"));
        assert_eq!(document(&found)["iteration"], at + 6);
        assert!(tensors(&found) == tensors(&want), "resumed as {out}");
    }
}

/// Copies the files of a run.
fn copy(dir: &TempDir, from: &str, to: &str) {
    for entry in std::fs::read_dir(dir.path(from)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        dir.write(&format!("{to}/{name}"), &dir.read(&format!("{from}/{name}")));
    }
}

const DILOCO: &[&str] = &["--sync=diloco", "--sync_every=2", "--reduce_groups=0"];

#[test]
fn diloco_alone_without_an_outer_step_is_plain_training() {
    let dir = TempDir::new("ranks-diloco-one");
    dir.run(&[GROUPED, &["--reduce_groups=0", "--out_dir=plain"]].concat()).succeeded();
    let keys = ["--outer_lr=1", "--outer_momentum=0", "--out_dir=diloco"];
    dir.run(&[GROUPED, DILOCO, &keys].concat()).succeeded();
    let ((plain, weights), (found, with)) = (computed(&dir, "plain"), computed(&dir, "diloco"));
    assert_eq!(found, plain);
    for (name, content) in &weights {
        let other = with.iter().find(|(other, _)| other == name);
        assert!(other.is_some_and(|(_, other)| other == content), "{name} differs");
    }
}

#[test]
fn diloco_trains_and_resumes_on_two_ranks() {
    let Some(mpiexec) = mpiexec() else { return };
    let dir = TempDir::new("ranks-diloco");
    let keys = [GROUPED, DILOCO, &["--max_iters=40", "--lr_decay_iters=40"]].concat();
    let whole = [&keys[..], &["--out_dir=whole"]].concat();
    ended(on_ranks(&mpiexec, &dir, 2, &whole)).succeeded();
    let half = [&keys[..], &["--max_iters=19"]].concat();
    ended(on_ranks(&mpiexec, &dir, 2, &half)).succeeded();
    copy(&dir, "out", "again");
    for out in ["--out_dir=out", "--out_dir=again"] {
        let resume = ["train", "--init_from=resume", "--max_iters=40", out];
        let said = ended(on_ranks(&mpiexec, &dir, 2, &resume)).succeeded();
        assert!(said.out.contains("all ranks go on with the moments of rank 0"), "{}", said.out);
    }
    let [out, again] = ["out", "again"].map(|out| dir.path(&format!("{out}/last.safetensors")));
    assert_eq!(document(&out)["iteration"], 41);
    assert!(tensors(&out) == tensors(&again), "the same from the same checkpoint");
    let losses = |out: &str| -> Vec<f64> {
        let (events, _) = computed(&dir, out);
        let evals = events.iter().filter(|event| !event.contains("val_loss null"));
        let value =
            |event: &String| event.split("val_loss ").nth(1)?.split(',').next()?.parse().ok();
        evals.filter_map(value).collect()
    };
    let (first, last) = (losses("whole")[0], *losses("whole").last().unwrap());
    assert!(last < first - 0.3, "it learns: {first} to {last}");
    let resumed = *losses("out").last().unwrap();
    assert!((resumed - last).abs() < 0.1, "{resumed} after resuming, {last} without");
}

/// The disk of rank 0 is dead in the middle of a run: its calls never return, while its process and
/// its heartbeats go on. Both ranks end with one line, and the checkpoint is as the last save left
/// it.
#[test]
fn a_rank_that_hangs_ends_the_run() {
    let Some(mpiexec) = mpiexec() else { return };
    let dir = TempDir::new("ranks-dead-disk");
    let Some(library) = library(&dir) else { return };
    let keys = [GROUPED, &["--max_iters=100000", "--eval_interval=2"]].concat();
    let root = dir.path("").canonicalize().unwrap().join("out");
    let fired = dir.path("fired");
    let mut command = Command::new(&mpiexec);
    command.args(["-n", "1", "-env", "LD_PRELOAD"]).arg(library);
    command.args(["-env", "FITGPT_FAULTS_ROOT"]).arg(root);
    command.args(["-env", "FITGPT_FAULTS_FIRED"]).arg(&fired);
    command.args(["-env", "FITGPT_FAULTS_DO", "hang", "-env", "FITGPT_FAULTS_AT", "300"]);
    command.arg(env!("CARGO_BIN_EXE_fitgpt")).args(&keys);
    command.args([":", "-n", "1", env!("CARGO_BIN_EXE_fitgpt")]).args(&keys);
    dir.isolate(&mut command);
    command.env("OMP_NUM_THREADS", "1").env("FITGPT_SILENCE", "2").stdin(Stdio::null());
    // If nobody ends it, the launcher does.
    command.env("MPIEXEC_TIMEOUT", "120").stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = command.spawn().unwrap();
    let start = Instant::now();
    while std::fs::read(&fired).unwrap_or_default().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(60), "its disk never died");
        std::thread::sleep(Duration::from_millis(20));
    }
    let start = Instant::now();
    let said = Ended::from(run.wait_with_output().unwrap());
    let took = start.elapsed();
    assert!((Duration::from_secs(20)..Duration::from_secs(60)).contains(&took), "{took:?}");
    assert_eq!(said.code, Some(5), "{said:?}");
    let line = format!("rank 0 on {} has not moved for ", ranks::facts::host_name());
    assert_eq!(said.error.matches(&line).count(), 2, "both ranks say it: {said:?}");
    assert!(said.error.contains(", and the others wait for it"), "{said:?}");
    let at = document(&dir.path("out/last.safetensors"))["iteration"].as_u64().unwrap();
    assert!(at > 0, "it had saved");
    let end = format!("--max_iters={}", at + 3);
    let resume = ["train", "--init_from=resume", &end, "--device=cpu"];
    ended(on_ranks(&mpiexec, &dir, 2, &resume)).succeeded();
    assert_eq!(document(&dir.path("out/last.safetensors"))["iteration"], at + 4);
}

/// The line is on every rank, and all end within seconds.
#[track_caller]
fn all_name(started: Instant, said: &Ended, count: usize, line: &str) {
    assert_ne!(said.code, Some(0), "{said:?}");
    assert_eq!(said.error.matches(line).count(), count, "{line}: {said:?}");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn a_rank_with_other_settings_or_data_is_named() {
    let Some(mpiexec) = mpiexec() else { return };
    let dir = TempDir::new("ranks-differ");
    let host = ranks::facts::host_name();
    let keys = [GROUPED, &["--reduce_groups=0"]].concat();
    let other = [&keys[..], &["--learning_rate=1e-3"]].concat();
    let start = Instant::now();
    let said = ended(each_rank(&mpiexec, &dir, &[&keys, &keys, &other]));
    let line = format!(
        "rank 2 on {host} differs from rank 0 on {host} in learning_rate: 0.001 instead of 0.003"
    );
    all_name(start, &said, 3, &line);
    // The same name and another content, as on a machine with an old copy.
    let copy = TempDir::new("ranks-differ-copy");
    let mut train = copy.read("data/tiny/train.bin");
    train[100] ^= 1;
    copy.write("data/tiny/train.bin", &train);
    let mut command = Command::new(&mpiexec);
    command.args(["-n", "1", env!("CARGO_BIN_EXE_fitgpt")]).args(&keys).args([":", "-wdir"]);
    command.arg(copy.path("")).args(["-n", "1", env!("CARGO_BIN_EXE_fitgpt")]).args(&keys);
    dir.isolate(&mut command);
    let (start, said) = (Instant::now(), ended(command));
    let line = format!("rank 1 on {host} differs from rank 0 on {host} in train.bin: 6000 bytes");
    all_name(start, &said, 2, &line);
    assert!(!dir.path("out").exists(), "nothing was written");
}

#[test]
fn what_cannot_run_on_ranks_is_refused() {
    let dir = TempDir::new("ranks-refused");
    let mut torchrun = dir.command(GROUPED);
    torchrun.envs([("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1")]);
    torchrun.envs([("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")]);
    let words = ["torchrun cannot start ranks", "mpiexec -n 2 fitgpt train"];
    ended(torchrun).failed(2, &words);
    let keys = ["train", "--dataset=tiny", "--gpus=64"];
    let words = ["--gpus=64, but ", "can be used here", "mpiexec -n 64 fitgpt train"];
    dir.run(&keys).failed(5, &words);
    let mut text = dir.command(&["train", "data/tiny"]);
    text.envs([("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "0")]);
    ended(text).failed(2, &["your own text", "fitgpt prepare"]);
    let mut silence = dir.command(GROUPED);
    silence.envs([("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "0")]);
    silence.env("FITGPT_SILENCE", "1");
    ended(silence).failed(2, &["FITGPT_SILENCE=1 is not seconds from 2 to 86400"]);
}

#[test]
fn nanogpts_sampler_and_its_file() {
    let Some(mpiexec) = mpiexec() else { return };
    let dir = TempDir::new("ranks-nanogpt");
    let keys = [GROUPED, &["--reduce_groups=0", "--sampler=nanogpt", "--dropout=0"]].concat();
    let said = ended(on_ranks(&mpiexec, &dir, 2, &keys)).succeeded();
    assert_eq!(said.lines("iter 8:").len(), 1, "{}", said.out);
    // Two ranks of seeds 1337 and 1338 are not one rank of 1337.
    let alone = [&keys[..], &["--out_dir=alone"]].concat();
    dir.run(&alone).succeeded();
    let weights = |out: &str| tensors(&dir.path(&format!("{out}/last.safetensors")));
    assert!(weights("out") != weights("alone"));
    let keys = [GROUPED, &["--checkpoint_format=ckpt", "--out_dir=file"]].concat();
    ended(on_ranks(&mpiexec, &dir, 2, &keys)).succeeded();
    let keys = [GROUPED, &["--checkpoint_format=ckpt", "--out_dir=one"]].concat();
    dir.run(&keys).succeeded();
    assert!(dir.path("file/ckpt.pt").exists());
    for out in ["file", "one"] {
        let hf = format!("{out}-hf");
        dir.run(&["export", out, "--to", "hf", "--out", &hf]).succeeded();
    }
    let [file, one] =
        ["file-hf", "one-hf"].map(|out| dir.read(&format!("{out}/model.safetensors")));
    assert!(file == one, "the same weights as from one rank");
}

#[test]
fn two_runs_at_once_do_not_meet() {
    let Some(mpiexec) = mpiexec() else { return };
    let dir = TempDir::new("ranks-twice");
    let start = |out: &str, seed: &str| {
        let keep = format!("--out_dir={out}");
        let keys = [GROUPED, &[&keep, seed]].concat();
        let mut command = on_ranks(&mpiexec, &dir, 2, &keys);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let both = [start("a", "--seed=1"), start("b", "--seed=2")];
    for run in both {
        Ended::from(run.wait_with_output().unwrap()).succeeded();
    }
    for (out, seed) in [("a", "--seed=1"), ("b", "--seed=2")] {
        let (alone, keep) = (format!("{out}-alone"), format!("--out_dir={out}-alone"));
        dir.run(&[GROUPED, &[&keep, seed]].concat()).succeeded();
        same(&dir, out, &alone);
    }
}

/// A rank that hangs before anybody watches: the others end within the bound.
#[test]
fn a_rank_that_hangs_in_the_beginning_ends_all() {
    let Some(mpiexec) = mpiexec() else { return };
    let dir = TempDir::new("ranks-hang");
    let mut command = Command::new(&mpiexec);
    command.args(["-n", "1", env!("CARGO_BIN_EXE_fitgpt")]).args(GROUPED);
    command.args([":", "-n", "1", "sleep", "100"]);
    dir.isolate(&mut command);
    command.env("FITGPT_SILENCE", "2");
    let (start, said) = (Instant::now(), ended(command));
    all_name(start, &said, 1, "rank 0 of 2 on ");
    assert!(said.error.contains("has waited 2 s for the others to start MPI"), "{said:?}");
}
