//! Finds out which commit is built, and for which target, for `fitgpt --version`.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FITGPT_COMMIT");
    let named = std::env::var("FITGPT_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = named.or_else(of_package).or_else(of_tree).unwrap_or_default();
    println!("cargo::rustc-env=FITGPT_COMMIT={}", commit.get(..12).unwrap_or(&commit));
    println!("cargo::rustc-env=FITGPT_TARGET={}", std::env::var("TARGET").unwrap_or_default());
}

/// The commit that cargo wrote into the package of a registry.
fn of_package() -> Option<String> {
    let text = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = text.split_once("\"sha1\": \"")?;
    rest.split('"').next().map(str::to_string)
}

/// The commit of the project's own clone. Debug builds leave it out: they would be linked again
/// after every commit.
fn of_tree() -> Option<String> {
    let release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if !release || !Path::new("../../.git").exists() {
        return None;
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    git(&["rev-parse", "HEAD"])
}
