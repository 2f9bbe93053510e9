//! `cargo xtask tidy`: the rules that no compiler checks.
//!
//! Each rule is a pure function from the collected tree to findings, with its tests below it.
//! `RULES` is the one list of them. A new rule is one file here and one row there.

mod arrows;
mod documents;
mod limits;
mod names;
mod openings;
mod platforms;
mod safety;
mod skeletons;
pub mod tree;

use crate::process::{self, Failure};
use std::fmt;
use tree::Tree;

/// One broken rule, shown as `path:line: what is wrong; how to fix it`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path from the workspace root, with `/`.
    pub path: String,
    /// Line counted from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// How to fix it.
    pub fix: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}; {}", self.path, self.line, self.what, self.fix)
    }
}

/// A rule over the whole tree.
type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: [Rule; 13] = [
    arrows::between_crates,
    safety::unsafe_is_forbidden,
    platforms::are_in_one_file,
    names::no_banned_stem,
    names::integration_tests_are_one_binary,
    openings::files_say_their_duty,
    limits::sizes,
    skeletons::are_written,
    documents::paths_exist,
    documents::changelog_is_open,
    documents::decisions_are_numbered,
    documents::no_conflict_markers,
    documents::crate_map_is_current,
];

/// Reads the tree, applies every rule, prints every finding.
pub fn run(args: &[String]) -> Result<(), Failure> {
    process::expect_no_arguments("tidy", args)?;
    let tree = Tree::read(&process::workspace_root()).map_err(Failure::Task)?;
    let findings = apply(&tree);
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("tidy: {} files, nothing to fix", tree.files.len());
            Ok(())
        }
        1 => Err(Failure::Task("tidy: 1 thing to fix".to_owned())),
        count => Err(Failure::Task(format!("tidy: {count} things to fix"))),
    }
}

fn apply(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(tree)).collect();
    findings.sort();
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_sorted_lines() {
        let tree = Tree::of(&[("CHANGELOG.md", "# Log\n"), ("a/util.rs", "//! Doc.\n")]);
        let shown: Vec<String> = apply(&tree).iter().map(Finding::to_string).collect();
        assert_eq!(shown.len(), 2);
        assert!(shown[0].starts_with("CHANGELOG.md:1: "), "{}", shown[0]);
        assert!(shown[1].starts_with("a/util.rs:1: "), "{}", shown[1]);
    }
}
