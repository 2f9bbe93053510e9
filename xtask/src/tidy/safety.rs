//! Only `cpu`, `cuda`, `library` and `mpi`, and for tests `counting` and `faults`, may use
//! `unsafe`. Every other crate root forbids it.

use super::Finding;
use super::tree::{Tree, crate_of};

/// Crates that need `unsafe`: for kernels, device calls and C libraries, and in tests for the
/// counting allocator and the library that wraps libc. Each block has its `// SAFETY:` line.
const HOMES: [&str; 6] = ["cpu", "cuda", "library", "mpi", "counting", "faults"];

const ATTRIBUTE: &str = "#![forbid(unsafe_code)]";

/// Every library and binary root outside the homes forbids unsafe code.
pub fn unsafe_is_forbidden(tree: &Tree) -> Vec<Finding> {
    let lacking = tree
        .ending_in("rs")
        .filter(|file| is_bound_root(&file.path))
        .filter(|file| !file.text.lines().any(|line| line == ATTRIBUTE));
    lacking
        .map(|file| Finding {
            path: file.path.clone(),
            line: 1,
            what: format!("the crate root lacks `{ATTRIBUTE}`"),
            fix: format!("add it below the `//!` lines; unsafe code lives in {}", HOMES.join(", ")),
        })
        .collect()
}

fn is_bound_root(path: &str) -> bool {
    match crate_of(path) {
        Some((name, "src/lib.rs" | "src/main.rs")) => !HOMES.contains(&name),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(path: &str, text: &str) -> bool {
        !unsafe_is_forbidden(&Tree::of(&[(path, text)])).is_empty()
    }

    #[test]
    fn roots_outside_the_homes_must_forbid() {
        for (path, text, want) in [
            ("crates/plan/src/lib.rs", "//! Doc.\n#![forbid(unsafe_code)]\n", false),
            ("crates/plan/src/lib.rs", "//! Doc.\n", true),
            ("crates/plan/src/lib.rs", "//! `#![forbid(unsafe_code)]`\n", true),
            ("crates/plan/src/lib.rs", "#![deny(unsafe_code)]\n", true),
            ("xtask/src/main.rs", "", true),
            ("crates/plan/src/arena.rs", "", false),
            ("crates/plan/tests/it/main.rs", "", false),
            ("crates/cpu/src/lib.rs", "", false),
            ("crates/cuda/src/lib.rs", "", false),
        ] {
            assert_eq!(fails(path, text), want, "{path}: {text}");
        }
    }
}
