//! Every source file opens with a comment that says what it is for.

use super::Finding;
use super::tree::{SourceFile, Tree, crate_of};

/// Most `//!` lines at the top of a file.
const MOST_LINES: usize = 10;
/// The same for a crate root, which holds the crate's documentation.
const MOST_LINES_ROOT: usize = 40;

/// Rust files open with 1 to 10 lines of `//!`, others with a comment or docstring.
pub fn files_say_their_duty(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().filter_map(broken_opening).collect()
}

fn broken_opening(file: &SourceFile) -> Option<Finding> {
    let first_line = 1 + usize::from(file.text.starts_with("#!") && file.ending() != "rs");
    let opening = file.text.lines().skip(first_line - 1).find(|line| !line.trim().is_empty());
    let opening = opening.unwrap_or_default();
    let any = |starts: &[&str]| starts.iter().any(|start| opening.starts_with(start));
    let (good, wanted) = match file.ending() {
        "rs" => return broken_rust_opening(file),
        "py" => (any(&["#", "\"\"\"", "'''", "r\"\"\""]), "a docstring or a `#` comment"),
        "sh" => (any(&["#"]), "a `#` comment"),
        "cu" | "cuh" => (any(&["//", "/*"]), "a `//` comment"),
        _ => return None,
    };
    (!good).then(|| Finding {
        path: file.path.clone(),
        line: first_line,
        what: "the file does not say what it is for".to_owned(),
        fix: format!("open it with {wanted} that does"),
    })
}

fn broken_rust_opening(file: &SourceFile) -> Option<Finding> {
    let finding = |line, what: String, fix: &str| {
        Some(Finding { path: file.path.clone(), line, what, fix: fix.to_owned() })
    };
    if !file.text.starts_with("//!") {
        let fix = "open it with a `//!` line that names its one duty";
        return finding(1, "the file does not say what it is for".to_owned(), fix);
    }
    let most = match crate_of(&file.path) {
        Some((_, "src/lib.rs" | "src/main.rs")) => MOST_LINES_ROOT,
        _ => MOST_LINES,
    };
    let doc_lines = opening_doc_lines(&file.text);
    if doc_lines.len() > most {
        let what = format!("{} lines of `//!`, the limit is {most}", doc_lines.len());
        let fix = "keep what and why here; the rest belongs beside the code or in docs/";
        return finding(doc_lines[most], what, fix);
    }
    None
}

/// Lines of the `//!` comments above the first item, whatever attributes stand between them.
fn opening_doc_lines(text: &str) -> Vec<usize> {
    let head = text.lines().enumerate().take_while(|(_, line)| {
        let line = line.trim();
        line.is_empty() || line.starts_with("//!") || line.starts_with("#![")
    });
    head.filter(|(_, line)| line.starts_with("//!")).map(|(index, _)| index + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> String {
        let findings = files_say_their_duty(&Tree::of(&[(path, text)]));
        findings.first().map(Finding::to_string).unwrap_or_default()
    }

    #[test]
    fn openings_that_say_something_pass() {
        for (path, text) in [
            ("a.rs", "//! Duty.\nfn a() {}\n"),
            ("a.py", "#!/usr/bin/env python3\n\"\"\"Duty.\"\"\"\n"),
            ("a.py", "# Duty.\nx = 1\n"),
            ("a.sh", "#!/bin/bash\n# Duty.\n"),
            ("a.cu", "// Duty.\n"),
            ("a.cuh", "/* Duty. */\n"),
            ("a.md", "Anything\n"),
        ] {
            assert_eq!(found(path, text), "", "{path}: {text}");
        }
    }

    #[test]
    fn openings_that_say_nothing_fail() {
        for (path, text, want) in [
            ("a.rs", "fn a() {}\n", "a.rs:1: the file does not say"),
            ("a.rs", "\n//! Late.\n", "a.rs:1: the file does not say"),
            ("a.rs", "/// Outer.\nfn a() {}\n", "a.rs:1: the file does not say"),
            ("a.rs", "", "a.rs:1: the file does not say"),
            ("a.py", "#!/usr/bin/env python3\nimport os\n", "a.py:2: the file does not say"),
            ("a.py", "import os\n", "a.py:1: the file does not say"),
            ("a.sh", "#!/bin/bash\nset -e\n", "a.sh:2: the file does not say"),
            ("a.cu", "__global__ void a() {}\n", "a.cu:1: the file does not say"),
        ] {
            assert!(found(path, text).starts_with(want), "{path}: {text}");
        }
    }

    #[test]
    fn long_openings_fail_later_in_crate_roots() {
        let lines = |count| "//! x\n".repeat(count) + "\nfn a() {\n    //! not counted\n}\n";
        for (path, count, want) in [
            ("crates/plan/src/arena.rs", 10, ""),
            ("crates/plan/src/arena.rs", 11, "crates/plan/src/arena.rs:11: 11 lines of `//!`"),
            ("crates/plan/src/lib.rs", 40, ""),
            ("crates/plan/src/lib.rs", 41, "crates/plan/src/lib.rs:41: 41 lines of `//!`"),
            ("crates/plan/tests/it/main.rs", 11, "crates/plan/tests/it/main.rs:11: 11 lines"),
        ] {
            let shown = found(path, &lines(count));
            assert!(shown.starts_with(want) && shown.is_empty() == want.is_empty(), "{shown}");
        }
    }
}
