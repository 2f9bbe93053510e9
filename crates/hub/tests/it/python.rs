//! Hugging Face's own library and we find each other's downloads.

use crate::models::{TempDir, Told, WEIGHTS, client, gpt2, weights, with_gpt2};
use requires::{Need, absent};
use std::process::Command;

const SCRIPT: &str = "
import sys
from huggingface_hub import hf_hub_download
for file in ['config.json', 'tokenizer.json', 'model.safetensors']:
    print(hf_hub_download('gpt2', file))
";

/// The paths that the library finds or downloads; `None` without it.
fn python(dir: &TempDir, endpoint: &str, offline: &str) -> Option<Vec<String>> {
    let python = std::env::var("FITGPT_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let there = Command::new(&python).args(["-c", "import huggingface_hub"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let mut command = Command::new(python);
    command.args(["-c", SCRIPT]).env("HF_HOME", &dir.0).env("HF_ENDPOINT", endpoint);
    command.env("HF_HUB_OFFLINE", offline).env("HF_HUB_DISABLE_TELEMETRY", "1");
    command.env_remove("HF_HUB_CACHE").env_remove("HF_TOKEN");
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(text(&output.stdout).lines().map(str::to_owned).collect())
}

#[test]
fn python_finds_what_we_downloaded() {
    let (dir, server) = (TempDir::new("ours"), with_gpt2());
    let client = client(&server.address, None);
    let model = client.model(&dir.cache(), &gpt2(), &mut Told::default()).unwrap();
    let Some(found) = python(&dir, "http://127.0.0.1:1", "1") else {
        return absent(Need::Python, "no huggingface_hub");
    };
    assert_eq!(found.len(), 3);
    assert_eq!(found[2], model.path.join(WEIGHTS).to_str().unwrap());
    // With a network it asks for the ETag, and downloads nothing.
    server.asked("");
    python(&dir, &server.address, "0").unwrap();
    assert!(server.asked("GET").iter().all(|asked| !asked.line.contains("gpt2/resolve")));
}

#[test]
fn we_find_what_python_downloaded() {
    let (dir, server) = (TempDir::new("theirs"), with_gpt2());
    // It takes another port of the same host for the hub itself.
    let storage = server.address.replace("127.0.0.1", "localhost");
    server.state.lock().unwrap().storage = Some(storage);
    let Some(found) = python(&dir, &server.address, "0") else {
        return absent(Need::Python, "no huggingface_hub");
    };
    let mut offline = client("http://127.0.0.1:1", None);
    offline.is_offline = true;
    let model = offline.model(&dir.cache(), &gpt2(), &mut Told::default()).unwrap();
    assert_eq!(model.path.join(WEIGHTS).to_str().unwrap(), found[2]);
    assert_eq!(std::fs::read(model.path.join(WEIGHTS)).unwrap(), weights());
}
