//! Documents stay true: paths they mention exist, and the changelog is open for the next change.

use super::Finding;
use super::tree::{SourceFile, Tree};
use crate::crate_map;
use std::collections::BTreeMap;

/// How a path into the tree begins.
const ROOTS: [&str; 6] = ["crates/", "docs/", "xtask/", "config/", ".ci/", "bench-history/"];

/// Text in a pattern or a placeholder, which does not name a single file.
const PLACEHOLDERS: [&str; 5] = ["<", "*", "{", "…", "..."];

const CHANGELOG: &str = "CHANGELOG.md";
const DECISIONS: &str = "docs/decisions/";

/// Every path in backticks in the documents is in the tree, and so is every Rust file that is named
/// without its folder.
pub fn paths_exist(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.ending_in("md").filter(|file| is_document(&file.path)) {
        for (line, path) in mentioned_paths(&file.text) {
            // A decision names files as they were called then.
            let is_old = file.path.starts_with("docs/decisions/");
            let is_there = match path.contains('/') {
                true => tree.holds(path),
                false if is_old => true,
                false => tree.files.iter().any(|file| file.path.rsplit('/').next() == Some(path)),
            };
            if !is_there {
                findings.push(Finding {
                    path: file.path.clone(),
                    line,
                    what: format!("`{path}` is not in the tree"),
                    fix: "correct the path, or add the file (git tracks no empty folders)"
                        .to_owned(),
                });
            }
        }
    }
    findings
}

/// `CHANGELOG.md` exists and its first second-level heading is the unreleased part.
pub fn changelog_is_open(tree: &Tree) -> Vec<Finding> {
    let broken = |line, what: &str, fix: &str| {
        let (path, what, fix) = (CHANGELOG.to_owned(), what.to_owned(), fix.to_owned());
        vec![Finding { path, line, what, fix }]
    };
    let Some(file) = tree.file(CHANGELOG) else {
        return broken(1, "there is no changelog", "add one that opens with `## Unreleased`");
    };
    let fix = "put `## Unreleased` above the released versions";
    match file.text.lines().enumerate().find(|(_, line)| line.starts_with("## ")) {
        Some((_, heading)) if heading.contains("Unreleased") => Vec::new(),
        Some((index, _)) => broken(index + 1, "the first heading is not Unreleased", fix),
        None => broken(1, "there is no second-level heading", fix),
    }
}

/// No two decisions have the same number, and each begins with its own.
pub fn decisions_are_numbered(tree: &Tree) -> Vec<Finding> {
    let (mut findings, mut seen) = (Vec::new(), BTreeMap::new());
    for file in tree.ending_in("md") {
        let Some(name) = file.path.strip_prefix(DECISIONS) else { continue };
        let number = name.split('-').next().unwrap_or_default();
        let mut add = |what: String, fix: &str| {
            let (path, fix) = (file.path.clone(), fix.to_owned());
            findings.push(Finding { path, line: 1, what, fix });
        };
        if let Some(other) = seen.insert(number, name) {
            add(format!("{other} has the same number"), "take the next free one");
        }
        let title = file.text.trim_start_matches("# ").trim_start_matches('0');
        let own = number.trim_start_matches('0');
        if title.split(['.', ':']).next() != Some(own) {
            add(format!("its title does not begin with {own}"), "write `# NUMBER. TITLE`");
        }
    }
    findings
}

/// A merge that was not finished leaves these at the beginning of a line.
pub fn no_conflict_markers(tree: &Tree) -> Vec<Finding> {
    let marks = ["<<<<<<< ", ">>>>>>> "];
    let is_mark = |line: &str| marks.iter().any(|mark| line.starts_with(mark));
    let in_file = |file: &SourceFile| {
        let (index, _) = file.text.lines().enumerate().find(|(_, line)| is_mark(line))?;
        let (path, what) = (file.path.clone(), "a conflict marker".to_owned());
        Some(Finding { path, line: index + 1, what, fix: "finish the merge".to_owned() })
    };
    tree.files.iter().filter_map(in_file).collect()
}

/// The picture of the crates shows the crates of today.
pub fn crate_map_is_current(tree: &Tree) -> Vec<Finding> {
    let drawn = tree.file(crate_map::PATH).map_or("", |file| file.text.as_str());
    if tree.packages.is_null() || drawn == crate_map::svg(&tree.packages) {
        return Vec::new();
    }
    let (path, what) = (crate_map::PATH.to_owned(), "the picture is out of date".to_owned());
    vec![Finding { path, line: 1, what, fix: "run `cargo xtask map`".to_owned() }]
}

fn is_document(path: &str) -> bool {
    matches!(path, "README.md" | "ARCHITECTURE.md") || path.starts_with("docs/")
}

/// (line, path) of each code span that begins like a path into the tree; fenced blocks are skipped.
fn mentioned_paths(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let spans = line.split('`').skip(1).step_by(2);
            found.extend(spans.filter_map(path_in).map(|path| (index + 1, path)));
        }
    }
    found
}

/// The path in a code span: its first word without a line number, an item or an anchor.
fn path_in(span: &str) -> Option<&str> {
    let is_rust_file = span.ends_with(".rs") && !span.contains(['/', ' ']);
    let is_path = is_rust_file || ROOTS.iter().any(|root| span.starts_with(root));
    if !is_path || PLACEHOLDERS.iter().any(|mark| span.contains(mark)) {
        return None;
    }
    let word = span.split_whitespace().next()?;
    word.split([':', '#']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let tree = Tree::of(&[(path, text), ("crates/plan/src/arena.rs", "")]);
        paths_exist(&tree).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn an_old_picture_of_the_crates_is_found() {
        let package = |about: &str| {
            let row = serde_json::json!({"name": "fitgpt", "description": about});
            serde_json::Value::Array(vec![row])
        };
        let drawn = crate_map::svg(&package("old"));
        let mut tree = Tree::of(&[(crate_map::PATH, &drawn)]);
        tree.packages = package("old");
        assert_eq!(crate_map_is_current(&tree), []);
        tree.packages = package("new");
        let shown: Vec<String> =
            crate_map_is_current(&tree).iter().map(Finding::to_string).collect();
        assert_eq!(shown, ["docs/crates.svg:1: the picture is out of date; run `cargo xtask map`"]);
    }

    #[test]
    fn paths_that_exist_or_are_none_pass() {
        for text in [
            "`crates/plan/src/arena.rs`, `crates/plan/`, `crates/plan/src`",
            "`crates/plan/src/arena.rs:12` `crates/plan/src/arena.rs::place`",
            "`crates/<name>/src` `crates/*/Cargo.toml` `docs/{a,b}.md` `crates/…` `docs/...`",
            "`arena.rs` `<op>.rs`",
            "`data/x/train.bin`, `cargo run crates/nowhere`, crates/nowhere",
            "```\n`crates/nowhere`\n```\n",
        ] {
            assert_eq!(found("README.md", text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(found("crates/plan/NOTES.md", "`crates/nowhere`"), Vec::<String>::new());
    }

    #[test]
    fn paths_that_do_not_exist_fail() {
        for document in ["README.md", "ARCHITECTURE.md", "docs/decisions/0001-a.md"] {
            let shown = found(document, "# T\n`x` and `crates/plan/src/aren` \n");
            assert_eq!(shown.len(), 1, "{document}");
            let want = format!("{document}:2: `crates/plan/src/aren` is not in the tree; ");
            assert!(shown[0].starts_with(&want), "{}", shown[0]);
        }
    }

    #[test]
    fn a_file_that_is_named_alone_must_exist_somewhere() {
        let shown = found("ARCHITECTURE.md", "`arena.rs`, `arenas.rs`\n");
        assert_eq!(shown.len(), 1, "{shown:?}");
        assert!(shown[0].starts_with("ARCHITECTURE.md:1: `arenas.rs` is not in the tree; "));
    }

    #[test]
    fn decisions_with_one_number_or_another_title_are_found() {
        let files = [
            ("docs/decisions/0001-a.md", "# 1. A"),
            ("docs/decisions/0002-b.md", "# 0002: B"),
            ("docs/decisions/0002-c.md", "# 3. C"),
        ];
        let findings = decisions_are_numbered(&Tree::of(&files));
        let shown: Vec<String> = findings.iter().map(|finding| finding.what.clone()).collect();
        assert_eq!(shown, ["0002-b.md has the same number", "its title does not begin with 2"]);
    }

    #[test]
    fn conflict_markers_are_found() {
        let text = "a\n<<<<<<< HEAD\nb\n=======\nc\n>>>>>>> d\n";
        let findings = no_conflict_markers(&Tree::of(&[("docs/a.md", text), ("b.rs", "x <<< 1")]));
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].path.as_str(), findings[0].line), ("docs/a.md", 2));
    }

    #[test]
    fn the_changelog_opens_with_unreleased() {
        for (text, want) in [
            (Some("# Changelog\n\n## [Unreleased]\n\n## 0.1.0\n"), ""),
            (Some("# Changelog\n\n## 0.1.0\n## Unreleased\n"), "CHANGELOG.md:3: the first"),
            (Some("# Unreleased\n"), "CHANGELOG.md:1: there is no second-level"),
            (None, "CHANGELOG.md:1: there is no changelog"),
        ] {
            let files: Vec<(&str, &str)> = text.map(|text| (CHANGELOG, text)).into_iter().collect();
            let findings = changelog_is_open(&Tree::of(&files));
            let shown = findings.first().map(Finding::to_string).unwrap_or_default();
            assert!(shown.starts_with(want) && shown.is_empty() == want.is_empty(), "{shown}");
        }
    }
}
