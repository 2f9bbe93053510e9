//! `fitgpt compare`: real runs, one of them resumed; pictures; a pipe, a narrow terminal, invalid
//! flags.

use crate::fixture::TempDir;
use serde_json::Value;

fn two_runs(dir: &TempDir) {
    dir.train(&["--out_dir=slow", "--log_interval=1", "--learning_rate=1e-3"]).succeeded();
    dir.train(&["--out_dir=fast", "--log_interval=1", "--max_iters=10"]).succeeded();
    dir.train(&["--out_dir=fast", "--log_interval=1", "--init_from=resume"]).succeeded();
}

#[test]
fn runs_are_compared_in_every_form() {
    let dir = TempDir::new("compare");
    two_runs(&dir);
    let text = dir.run(&["compare", "fast/", "slow/log.jsonl"]).succeeded().out;
    let rows: Vec<&str> = text.lines().collect();
    assert!(rows[0].starts_with("  run   iterations  tokens"), "{text}");
    assert!(rows[1].starts_with("a fast          31"), "{text}");
    assert!(rows[2].starts_with("b slow          31"), "{text}");
    let different = "\nsettings that differ   fast   slow\n  learning_rate       0.003  0.001\n\n";
    assert!(text.contains(different), "{text}");
    assert!(!text.contains("init_from") && !text.contains("resume"), "{text}");
    assert!(!text.contains("out_dir") && !text.contains('\u{1b}'), "{text}");
    assert!(rows.iter().all(|row| row.chars().count() <= 100), "{text}");
    // Without arguments: every run in the folder.
    assert_eq!(dir.run(&["compare"]).succeeded().out, text);
    let found = dir.run(&["compare", "fast", "slow", "--json"]).succeeded().out;
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found.as_object().unwrap().keys().next().unwrap(), "schema");
    let fast = &found["runs"][0];
    assert_eq!((&fast["iterations"], &fast["resumed"]), (&31.into(), &1.into()));
    let iterations: Vec<u64> =
        serde_json::from_value(fast["curves"]["loss"]["iter"].clone()).unwrap();
    assert_eq!(iterations, (0..31).collect::<Vec<u64>>());
    assert_eq!(found["differences"]["learning_rate"], serde_json::json!([0.003, 0.001]));
    let drawn = ["compare", "fast", "--svg", "a.svg", "--png", "a.png", "--by", "time"];
    assert!(dir.run(&drawn).succeeded().out.ends_with("chart: a.svg\nchart: a.png\n"));
    assert!(dir.read("a.svg").starts_with(b"<svg ") && dir.read("a.png").starts_with(b"\x89PNG"));
    let piped = dir.run(&["compare", "fast", "--svg", "-", "--by", "time"]).succeeded().out;
    assert_eq!(piped.as_bytes(), dir.read("a.svg"));
}

#[test]
fn logs_that_are_empty_or_foreign_do_not_stop_the_others() {
    let dir = TempDir::new("compare-empty");
    dir.write("empty/log.jsonl", b"");
    dir.write("foreign/log.jsonl", b"{}\nhello\n");
    let text = dir.run(&["compare", "empty"]).succeeded().out;
    assert!(text.contains("\nNo val/loss to plot by iteration yet.\n"), "{text}");
    let ended = dir.run(&["compare", "foreign", "empty"]);
    assert_eq!(ended.code, Some(0));
    let left_out = "note: left out: foreign/log.jsonl: none of its lines is about a run (line 1: ";
    assert!(ended.error.contains(left_out), "{}", ended.error);
    assert!(!ended.out.contains("foreign") && ended.out.contains("empty"), "{}", ended.out);
}

#[test]
fn a_file_that_is_no_run_is_refused() {
    let dir = TempDir::empty("compare-no-run");
    dir.write("ts.txt", b"First Citizen:\nBefore we proceed any further, hear me speak.\n");
    dir.write("package.json", b"{\"kind\": \"module\"}\n");
    for name in ["ts.txt", "package.json"] {
        let parts = [name, "none of its lines is about a run", "give the out_dir of a"];
        dir.run(&["compare", name]).failed(4, &parts);
    }
}

#[test]
fn invalid_requests_are_explained() {
    let dir = TempDir::empty("compare-refused");
    dir.run(&["compare"]).failed(2, &["there is no run in this folder"]);
    dir.run(&["compare", "nothing"]).failed(4, &["nothing: cannot read the log: "]);
    dir.write("out/log.jsonl", b"");
    dir.run(&["compare", "--by", "tim"]).failed(2, &["iteration, tokens, time"]);
    let guess = ["grad_norms", "did you mean grad_norm?"];
    dir.run(&["compare", "--metric", "grad_norms"]).failed(2, &guess);
    let both = ["compare", "--svg", "-", "--json"];
    dir.run(&both).failed(2, &["--json, --svg - all write to standard output"]);
    dir.run(&["compare", "out", "--svg", "no/such/folder/a.svg"]).failed(4, &["no/such/folder"]);
}
