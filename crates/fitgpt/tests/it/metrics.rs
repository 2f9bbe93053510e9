//! Metrics for other programs: what is written where, a resumption, and places that cannot be
//! written.

use crate::fixture::TempDir;

const ALL: [&str; 3] = ["--tensorboard=True", "--csv=True", "--trackio=True"];

/// Lines of the CSV file by kind and iteration.
fn rows(dir: &TempDir) -> Vec<String> {
    let text = String::from_utf8(dir.read("out/metrics.csv")).unwrap();
    let row = |line: &str| line.splitn(3, ',').take(2).collect::<Vec<_>>().join(" ");
    text.lines().skip(1).map(row).collect()
}

#[test]
fn a_resumed_run_continues_the_files() {
    let dir = TempDir::new("metrics");
    let trackio = dir.path("trackio");
    let train = |more: &[&str]| {
        let arguments = [&["train"], crate::fixture::TINY, &["--log_interval=5"], more].concat();
        let mut command = dir.command(&arguments);
        let ended: crate::fixture::Ended =
            command.env("TRACKIO_DIR", &trackio).output().unwrap().into();
        ended.succeeded()
    };
    let named = ["--wandb_log=True", "--wandb_project=tiny"];
    let ended = train(&[&ALL[..], &named[..]].concat());
    for line in [
        "wandb_log=True sends nothing to wandb; the metrics are in out/log.jsonl (fitgpt compare ",
        "TensorBoard: tensorboard --logdir out\n",
        "CSV: out/metrics.csv\n",
        "trackio: trackio show --project tiny\n",
    ] {
        assert!(ended.out.contains(line), "{}", ended.out);
    }
    let first = rows(&dir);
    assert_eq!(first[..3], ["eval 0", "iter 0", "iter 5"]);
    assert_eq!(first.last().unwrap(), "iter 30");
    // The keys are the checkpoint's.
    train(&["--init_from=resume", "--max_iters=40"]);
    let all = rows(&dir);
    assert_eq!(all[..first.len()], first);
    assert_eq!(all[first.len()..], ["iter 35", "eval 40", "iter 40"]);
    // There is nothing left to do, and nothing more was written.
    let ended = train(&["--init_from=resume", "--max_iters=40"]);
    assert!(!ended.out.contains("CSV: ") && !ended.out.contains("trackio: "), "{}", ended.out);
    assert_eq!(rows(&dir), all);
    assert_eq!(std::fs::read_dir(dir.path("out/tensorboard")).unwrap().count(), 2);
    assert_eq!(std::fs::read_dir(trackio.join("inbox")).unwrap().count(), 2);
}

/// Resumed with twice the batch: tokens and seconds are sums in the table, in `compare` and in
/// `export`, from either checkpoint.
#[test]
fn tokens_and_seconds_are_counted_over_resumptions() {
    for (format, file) in [("native", "last.safetensors"), ("ckpt", "ckpt.pt")] {
        let dir = TempDir::new(&format!("metrics-{format}"));
        let format = format!("--checkpoint_format={format}");
        let keys = ["--csv=True", "--log_interval=1", "--eval_interval=100", &format];
        dir.train(&[&keys[..], &["--max_iters=9"]].concat()).succeeded();
        let more = ["--init_from=resume", "--max_iters=14", "--batch_size=8"];
        dir.train(&[&keys[..], &more].concat()).succeeded();
        let text = String::from_utf8(dir.read("out/metrics.csv")).unwrap();
        let rows = || text.lines().filter(|line| line.starts_with("iter,"));
        let column = |at: usize| -> Vec<f64> {
            rows().map(|row| row.split(',').nth(at).unwrap().parse().unwrap()).collect()
        };
        // Ten iterations of 128 tokens, five of 256.
        let (tokens, seconds) = (column(15), column(3));
        assert_eq!((tokens[9], tokens[10], tokens[14]), (1280.0, 1536.0, 2560.0), "{text}");
        assert!(seconds.is_sorted() && seconds[10] > seconds[9], "{seconds:?}");
        let found = dir.run(&["compare", "out", "--json"]).succeeded().out;
        let found: serde_json::Value = serde_json::from_str(&found).unwrap();
        assert_eq!(found["runs"][0]["tokens"], 2560.0);
        assert!(found["runs"][0]["seconds"].as_f64().unwrap() >= seconds[14], "{found}");
        let mfu = dir.run(&["compare", "out", "--metric", "mfu", "--json"]).succeeded().out;
        let mfu: serde_json::Value = serde_json::from_str(&mfu).unwrap();
        let values = mfu["runs"][0]["curves"]["mfu"]["value"].as_array().unwrap().clone();
        assert_eq!(values.len(), 15, "{mfu}");
        let from = format!("out/{file}");
        let said = dir.run(&["export", &from, "--to", "native", "--out", "x.safetensors"]);
        assert!(said.succeeded().out.contains("2560 tokens seen"));
    }
}

/// The run ends well, and each says once why it wrote nothing.
#[test]
fn what_cannot_be_written_does_not_end_the_run() {
    let dir = TempDir::new("metrics-refused");
    dir.write("out/metrics.csv/in-the-way", b"");
    dir.write("out/tensorboard", b"a file");
    dir.write("trackio", b"a file");
    let mut command = dir.command(&[&["train"], crate::fixture::TINY, &ALL[..]].concat());
    let output = command.env("TRACKIO_DIR", dir.path("trackio")).output().unwrap();
    let ended = crate::fixture::Ended::from(output).succeeded();
    for part in [
        "note: out/metrics.csv: cannot write the CSV file: it is not a regular file: move it ",
        "note: out/tensorboard: cannot write the events for TensorBoard: ",
        "trackio/inbox: cannot write the lines for trackio: ",
    ] {
        assert_eq!(ended.out.matches(part).count(), 1, "{part}: {}", ended.out);
    }
    for name in ["TensorBoard", "CSV", "trackio"] {
        let line = format!("\n{name}: not everything was written (a note says why)\n");
        assert!(ended.out.contains(&line), "{}", ended.out);
    }
    assert!(!ended.out.contains("free some space"), "{}", ended.out);
    let log = String::from_utf8(dir.read("out/log.jsonl")).unwrap();
    assert_eq!(log.matches("\"kind\":\"notice\"").count(), 3, "{log}");
}
