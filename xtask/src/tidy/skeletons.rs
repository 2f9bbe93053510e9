//! What `cargo xtask new-op` left to write is written.

use super::Finding;
use super::tree::Tree;
use crate::new_op::MARK;

/// No file has a mark of a skeleton, but the skeletons themselves.
pub fn are_written(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for ending in ["rs", "cu", "py"] {
        for file in tree.ending_in(ending).filter(|file| !file.path.starts_with("xtask/")) {
            let lines = file.text.lines().enumerate();
            findings.extend(lines.filter(|(_, line)| line.contains(MARK)).map(|(at, _)| Finding {
                path: file.path.clone(),
                line: at + 1,
                what: "a part of a new op is not written".to_owned(),
                fix: format!("write what the {MARK} line says, and remove it"),
            }));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_in_every_language() {
        let text = "one\n// NEW-OP: the formula.\n";
        let tree = Tree::of(&[
            ("crates/plan/src/ops/a.rs", text),
            ("crates/cuda/src/kernels/a.cu", text),
            ("crates/conformance/golden/reference.py", text),
            ("xtask/src/new_op/mod.rs", text),
            ("docs/a.md", text),
        ]);
        let found: Vec<String> = are_written(&tree).iter().map(Finding::to_string).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("crates/plan/src/ops/a.rs:2: a part"), "{}", found[0]);
    }
}
