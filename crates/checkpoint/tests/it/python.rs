//! Python's safetensors can read our files, and its copy of one is still a checkpoint. Skipped
//! where safetensors is not installed; `FITGPT_PYTHON` names an interpreter that has it.

use crate::fixture::{Saved, TempDir, sample};
use fitgpt_checkpoint::Dtype;
use requires::{Need, absent};
use std::fs;
use std::process::Command;

/// Prints each tensor as the library sees it, and writes a copy of the file.
const SCRIPT: &str = r#"
import sys
from safetensors import deserialize, safe_open
from safetensors.numpy import load_file, save_file
given, narrow, copy = sys.argv[1:]
for name, t in sorted(deserialize(open(given, "rb").read())):
    print(ascii(name), t["dtype"], list(t["shape"]), bytes(t["data"]).hex(), sep="\t")
with safe_open(given, framework="np") as f:
    print(ascii(f.metadata()["run"]))
with safe_open(narrow, framework="np") as f:
    save_file(load_file(narrow), copy, f.metadata())
"#;

#[test]
fn python_reads_and_copies_our_files() {
    let python = std::env::var_os("FITGPT_PYTHON").unwrap_or_else(|| "python3".into());
    let mut probe = Command::new(&python);
    probe.args(["-c", "import safetensors.numpy"]);
    if !probe.output().is_ok_and(|output| output.status.success()) {
        return absent(Need::Python, "no Python with safetensors and numpy here");
    }
    let dir = TempDir::new("python");
    sample().save(&dir.file("given")).unwrap();
    let mut narrow = sample();
    // numpy has no bfloat16.
    narrow.tensors.retain(|(info, _)| info.dtype != Dtype::BF16);
    narrow.save(&dir.file("narrow")).unwrap();
    let output = Command::new(&python)
        .args(["-c", SCRIPT])
        .args(["given", "narrow", "copy"].map(|name| dir.file(name)))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let mut want = String::new();
    for (info, content) in sample().by_name().tensors {
        let name = match info.name.as_str() {
            "\"ü\\\n" => r#""\xfc\\\n"#,
            name => name,
        };
        let hex: String = content.iter().map(|byte| format!("{byte:02x}")).collect();
        let dtype = info.dtype.name();
        want += &format!("'{name}'\t{dtype}\t{:?}\t{hex}\n", info.shape);
    }
    want += &format!("'{}'\n", sample().document.replace('\\', r"\\"));
    assert_eq!(text, want);
    assert!(fs::read(dir.file("copy")).unwrap() != fs::read(dir.file("narrow")).unwrap());
    assert_eq!(Saved::load(&dir.file("copy")).unwrap(), narrow.by_name());
}
