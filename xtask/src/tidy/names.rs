//! Names and locations of files: no catch-all names, and one integration test binary per crate.

use super::Finding;
use super::tree::{SourceFile, Tree, crate_of};

/// Names that do not say what a file is for, and so attract everything.
const BANNED: [&str; 7] = ["utils", "util", "base", "common", "misc", "helpers", "helper"];

/// Extensions of files that contain code.
const CODE: [&str; 5] = ["rs", "py", "cu", "cuh", "sh"];

/// No code file has a banned name.
pub fn no_banned_stem(tree: &Tree) -> Vec<Finding> {
    let banned = tree
        .files
        .iter()
        .filter(|file| CODE.contains(&file.ending()) && BANNED.contains(&module_name(file)));
    banned
        .map(|file| Finding {
            path: file.path.clone(),
            line: 1,
            what: format!("'{}' does not say what the file is for", module_name(file)),
            fix: "name it after its one duty, or move its parts to the code they serve".to_owned(),
        })
        .collect()
}

/// The integration tests of a crate are `tests/it/main.rs` and its modules: one link, not many.
pub fn integration_tests_are_one_binary(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.ending_in("rs") {
        let Some((_, inside)) = crate_of(&file.path) else { continue };
        let Some(test) = inside.strip_prefix("tests/") else { continue };
        let folder = file.path.strip_suffix(test).unwrap_or_default();
        let (what, fix) = if !test.starts_with("it/") {
            ("every file under tests/ would be a binary of its own", "make it a module of ")
        } else if tree.file(&format!("{folder}it/main.rs")).is_none() {
            ("no main.rs declares this test module, so it never runs", "declare it in ")
        } else {
            continue;
        };
        findings.push(Finding {
            path: file.path.clone(),
            line: 1,
            what: what.to_owned(),
            fix: format!("{fix}{folder}it/main.rs"),
        });
    }
    findings
}

/// The stem of the file's name; for `mod.rs`, the name of its folder.
fn module_name(file: &SourceFile) -> &str {
    let mut parts = file.path.rsplit('/');
    let name = parts.next().unwrap_or_default();
    match name {
        "mod.rs" => parts.next().unwrap_or_default(),
        _ => name.split('.').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banned_names_fail() {
        for (path, want) in [
            ("crates/plan/src/utils.rs", true),
            ("crates/plan/src/helpers/mod.rs", true),
            ("crates/cuda/src/kernels/common.cu", true),
            ("tools/misc.py", true),
            ("crates/plan/src/base_case.rs", false),
            ("docs/common.md", false),
        ] {
            let found = no_banned_stem(&Tree::of(&[(path, "")]));
            assert_eq!(!found.is_empty(), want, "{path}");
        }
    }

    #[test]
    fn tests_live_in_one_binary() {
        let main = ("crates/cpu/tests/it/main.rs", "");
        for (files, want) in [
            (vec![main, ("crates/cpu/tests/it/resume.rs", "")], None),
            (vec![main, ("crates/cpu/tests/data/x.bin", "")], None),
            (vec![main, ("crates/cpu/tests/resume.rs", "")], Some("tests/resume.rs:1: every file")),
            (vec![("crates/cpu/tests/other/main.rs", "")], Some("tests/other/main.rs:1: every")),
            (vec![("xtask/tests/it/a.rs", "")], Some("xtask/tests/it/a.rs:1: no main.rs")),
            (vec![("crates/cpu/src/tests/a.rs", "")], None),
        ] {
            let found = integration_tests_are_one_binary(&Tree::of(&files));
            let shown = found.first().map(Finding::to_string).unwrap_or_default();
            assert_eq!(found.len(), usize::from(want.is_some()), "{files:?}");
            assert!(shown.contains(want.unwrap_or_default()), "{shown}");
        }
    }
}
