//! `fitgpt devices` and `fitgpt bench`: their text, their JSON, the files they leave, and invalid
//! flags.

use crate::fixture::{TINY, TempDir};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Whether the driver sees a GPU here.
fn has_gpu() -> bool {
    cuda::Driver::load().is_ok()
}

fn document(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn devices_are_listed() {
    let dir = TempDir::empty("devices");
    let said = dir.run(&["devices"]).succeeded().out;
    assert!(said.starts_with("CPU "), "{said}");
    for part in ["2 threads, ", "memory ", " free", "trains in float32", "NVRTC ", "cuBLASLt "] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let absent = said.lines().any(|line| line.starts_with("driver  ") && line.contains("install"));
    assert_eq!(absent, !has_gpu(), "{said}");
    assert_eq!(said.contains("\nGPU 0"), has_gpu(), "{said}");
}

#[test]
fn devices_are_listed_as_json() {
    let dir = TempDir::empty("devices-json");
    let found = document(&dir.run(&["devices", "--json"]).succeeded().out);
    assert_eq!(found.as_object().unwrap().keys().next().unwrap(), "schema");
    assert_eq!(found["schema"], "fitgpt.devices/1");
    assert_eq!(found["cpu"]["threads"], 2);
    let bytes = |key: &str| found["cpu"][key].as_u64().unwrap();
    assert!(bytes("free_bytes") <= bytes("memory_bytes"));
    assert_eq!(found["gpus"].as_array().unwrap().is_empty(), !has_gpu());
    for library in ["driver", "nvrtc", "cublaslt", "nccl", "nvml"] {
        let facts = &found["libraries"][library];
        // Either it exists, or the problem says what to install.
        assert_ne!(facts["path"].is_null(), facts["problem"].is_null(), "{facts}");
    }
}

#[test]
fn the_live_view_ends_without_complaint() {
    let dir = TempDir::empty("devices-watch");
    let mut command = dir.command(&["devices", "--watch", "0.1", "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let found = document(&lines.next().unwrap().unwrap());
        assert_eq!(found["schema"], "fitgpt.devices/1");
    }
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn bench_tells_programs_everything() {
    let dir = TempDir::new("bench-json");
    let more = ["--iterations", "2", "--json", "--no-keep"];
    let ended = dir.run(&[&["bench"], TINY, &more].concat()).succeeded();
    let found = document(&ended.out);
    assert_eq!(found.as_object().unwrap().keys().next().unwrap(), "schema");
    assert_eq!(found["schema"], "fitgpt.bench/2");
    for key in [
        "device",
        "plan_hash",
        "ms_per_iteration",
        "tokens_per_second",
        "predicted_tokens_per_second",
        "eval_tokens_per_second",
        "arena_bytes",
        "slices",
    ] {
        assert!(!found[key].is_null(), "{key}: {found:#}");
    }
    // On the CPU, device and host are one.
    for key in ["context_bytes", "device_bytes_seen"] {
        assert!(found.get(key).is_some_and(Value::is_null), "{key}: {found:#}");
    }
    assert_eq!(found["iterations"], 2);
    assert_eq!(found["tokens_per_iteration"], 4 * 2 * 16);
    assert_eq!(found["config"]["n_embd"], 32);
    let ops = found["ops"].as_array().unwrap();
    let number = |op: &Value, key: &str| op[key].as_f64().unwrap();
    let shares: f64 = ops.iter().map(|op| number(op, "share")).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    let longest_first = ops.windows(2).all(|pair| number(&pair[0], "ms") >= number(&pair[1], "ms"));
    assert!(longest_first, "{found:#}");
    let bounds = ["matmuls", "attention", "memory", "link"];
    assert!(ops.iter().all(|op| bounds.contains(&op["bound_by"].as_str().unwrap())));
    assert!(ops.iter().any(|op| op["name"] == "adamw"), "the update is part of an iteration");
    assert!(!ops.iter().any(|op| op["name"] == "head_eval"), "an evaluation is not");
    let planned = dir.run(&[&["plan"], TINY, &["--json"]].concat()).succeeded();
    let planned = document(&planned.out);
    assert_eq!(found["plan_hash"], planned["hash"]);
    assert_eq!(found["arena_bytes"], planned["arena_bytes"]);
    assert!(!dir.path("no-cache").exists() && !dir.path("out").exists());
}

#[test]
fn bench_tells_people_and_keeps_times_for_plan() {
    let dir = TempDir::new("bench-text");
    let said = dir.run(&[&["bench", "--iterations=1"], TINY].concat()).succeeded().out;
    for part in ["% ceiling  bound by", "iteration: ", "training: ", "predicted: ", "kept in "] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let (_, table) = said.split_once("\nop ").unwrap();
    let rows: Vec<&str> = table.lines().take_while(|line| !line.is_empty()).collect();
    assert!(rows.iter().all(|row| row.chars().count() <= 60), "{said}");
    let planned = dir.run(&[&["plan"], TINY, &["--json"]].concat()).succeeded();
    assert_eq!(document(&planned.out)["predicted_by"], "measured step times");
}

#[test]
fn flags_that_make_no_sense() {
    let dir = TempDir::empty("bench-flags");
    for (arguments, words) in [
        (&["devices", "--watch"][..], "--watch needs a value: --watch SECONDS"),
        (&["devices", "--watch=0"], "--watch needs seconds between 0.1 and 3600, not '0'"),
        (&["devices", "--json=yes"], "--json takes no value, but got 'yes'"),
        (&["devices", "--seed=1"], "devices has no flag '--seed=1'"),
        (&["bench", "--iterations=0"], "--iterations needs a whole number from 1 to 1000000"),
        (&["bench", "--rank=0"], "--rank needs a whole number from 1 to 1000, not '0'"),
        (&["bench", "--rank=900"], "(`plan --best 900` lists them)"),
        (&["plan", "--best=2000"], "--best needs a whole number from 1 to 1000, not '2000'"),
        (&["bench", "--iterations"], "--iterations needs a value: --iterations N"),
        (&["bench", "--gpu=L4"], "gpu"),
        (&["bench", "--eval_only=True"], "bench times training"),
    ] {
        dir.run(arguments).failed(2, &[words]);
    }
    if !has_gpu() {
        let refused = dir.run(&["bench", "--device=cuda"]);
        refused.failed(5, &["the NVIDIA driver", "--device=cpu"]);
    }
}

/// `--json` prints a document even if nothing fits.
#[test]
fn a_refusal_is_json_too() {
    let dir = TempDir::new("bench-refusal");
    let ended = dir.run(&[&["bench"], TINY, &["--ram=64KiB", "--json"]].concat());
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let found = document(&ended.out);
    assert_eq!(found["schema"], "fitgpt.bench/2");
    assert!(found["error"].as_str().unwrap().contains("does not fit: needs at least"), "{found:#}");
}
