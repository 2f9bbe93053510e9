//! What only some operating systems have is called in one file of each crate, so that another
//! system needs one new file there. Tests may call it anywhere: they run on Linux.

use super::Finding;
use super::tree::{Tree, crate_of};
use std::collections::BTreeMap;

/// What the calls begin with. `rustix` has most of its modules only where Unix is.
const CALLS: [&str; 4] = ["os::unix", "os::linux", "os::fd", "rustix::"];

/// Crates that only Linux needs: they test the others.
const LINUX: [&str; 2] = ["faults", "soak"];

/// Crates in which the calls are still in several files, with how many.
const SCATTERED: [(&str, usize); 1] = [("train", 4)];

/// At most one file of a crate calls what only some systems have.
pub fn are_in_one_file(tree: &Tree) -> Vec<Finding> {
    let mut callers: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for file in tree.ending_in("rs") {
        let Some((name, place)) = crate_of(&file.path) else { continue };
        let bound = file.path.starts_with("crates/") && place.starts_with("src/");
        if bound && !LINUX.contains(&name) {
            let found = first_call(&file.text).map(|line| (file.path.as_str(), line));
            callers.entry(name).or_default().extend(found);
        }
    }
    let mut findings = Vec::new();
    for (name, files) in callers {
        let most = SCATTERED.iter().find(|(known, _)| *known == name).map_or(1, |row| row.1);
        findings.extend(files.iter().skip(most).map(|(path, line)| Finding {
            path: path.to_string(),
            line: *line,
            what: format!("what only some systems have is also called in {}", files[0].0),
            fix: "call it in one file of the crate, such as platform.rs".to_string(),
        }));
    }
    findings
}

/// The line of the first call that is neither in a comment nor in the tests at the end.
fn first_call(text: &str) -> Option<usize> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let calls = |line: &str| {
        let comment = line.trim_start().starts_with("//");
        !comment && CALLS.iter().any(|call| line.contains(call))
    };
    code.lines().enumerate().find(|(_, line)| calls(line)).map(|(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = "//! Doc.\nuse std::os::unix::fs::FileExt;\n";

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let findings = are_in_one_file(&Tree::of(files));
        findings.iter().map(|one| format!("{}:{}", one.path, one.line)).collect()
    }

    #[test]
    fn a_second_file_of_a_crate_is_a_finding() {
        let one = ("crates/data/src/a.rs", CALL);
        assert_eq!(found(&[one]), Vec::<String>::new());
        assert_eq!(found(&[one, ("crates/plan/src/b.rs", CALL)]), Vec::<String>::new());
        assert_eq!(found(&[one, ("crates/data/src/b.rs", CALL)]), ["crates/data/src/b.rs:2"]);
        let path = ("crates/data/src/x/b.rs", "//! Doc.\n\nfn a() { rustix::fs::sync() }\n");
        assert_eq!(found(&[one, path]), ["crates/data/src/x/b.rs:3"]);
    }

    #[test]
    fn tests_comments_and_crates_for_linux_are_free() {
        let one = ("crates/data/src/a.rs", CALL);
        for (path, text) in [
            ("crates/data/tests/it/b.rs", CALL),
            ("crates/data/src/b.rs", "//! Not `std::os::unix`.\n"),
            ("crates/data/src/b.rs", "#[cfg(test)]\nmod tests {\n    use std::os::unix::fs;\n}\n"),
            ("crates/soak/src/b.rs", CALL),
            ("xtask/src/b.rs", CALL),
        ] {
            assert_eq!(found(&[one, (path, text)]), Vec::<String>::new(), "{path}: {text}");
        }
        let soak = [("crates/soak/src/a.rs", CALL), ("crates/soak/src/b.rs", CALL)];
        assert_eq!(found(&soak), Vec::<String>::new());
    }
}
