//! `cargo xtask peers page`: drives the page of `fitgpt ui` and `train --ui` in a real browser. The
//! script is `crates/page/tests/browser/page.mjs`; it prints a line for each comparison.

use crate::flags;
use crate::process::{self, Failure};
use crate::scratch::ScratchFolder;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What it needs, and its flags.
pub const NEEDS: &str = "chromium and Node 20.10 or newer; [--binary FILE] [--shots DIR]";

const KNOWN: [&str; 2] = ["--binary", "--shots"];

/// Names of the browser.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

const SCRIPT: &str = "crates/page/tests/browser/page.mjs";

/// The flag of Node 20 and 21 for what later ones have anyway.
const SOCKETS: &str = "--experimental-websocket";

/// What this machine lacks; none if it can run.
pub fn lacks() -> Option<String> {
    if browser().is_none() {
        return Some(format!("there is no browser: {}", BROWSERS.join(", ")));
    }
    match answers(Command::new("node").args([SOCKETS, "-e", "WebSocket"])) {
        true => None,
        false => Some("there is no Node with WebSockets: 20.10 or newer".to_owned()),
    }
}

fn answers(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

fn browser() -> Option<&'static str> {
    BROWSERS.into_iter().find(|name| answers(Command::new(name).arg("--version")))
}

/// Builds the program and runs the script in a folder of its own.
pub fn run(args: &[String]) -> Result<(), Failure> {
    let mut found = flags::read("page", &KNOWN, NEEDS, args).map_err(Failure::Usage)?;
    let Some(browser) = browser() else {
        return Err(Failure::Task(lacks().unwrap_or_default()));
    };
    let failed = |error| Failure::Task(format!("page: {error}"));
    let whole = |path: String| PathBuf::from(path).canonicalize().map_err(failed);
    let binary = match found.remove("--binary") {
        Some(binary) => whole(binary)?,
        None => {
            process::run(process::cargo().args(["build", "--release", "--quiet"]))?;
            process::target_folder().join("release/fitgpt")
        }
    };
    let scratch = ScratchFolder::new("page").map_err(failed)?;
    let mut node = Command::new("node");
    node.arg(SOCKETS).arg(process::workspace_root().join(SCRIPT));
    node.arg(binary).arg(browser).arg(&scratch.path);
    node.args(found.remove("--shots").map(whole).transpose()?);
    process::run(&mut node)
}
