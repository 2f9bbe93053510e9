//! Hard limits on the length of Rust files and lines; aim for half of them. Clippy limits functions
//! (`clippy.toml`); the test of that limit is here.

use super::Finding;
use super::tree::{SourceFile, Tree};

/// Most lines of a file; a test module at its end does not count.
const FILE_LINES: usize = 800;
/// Most characters of a line; rustfmt leaves long strings and comments as they are.
const LINE_CHARS: usize = 100;

/// Every Rust file keeps to the limits.
pub fn sizes(tree: &Tree) -> Vec<Finding> {
    tree.ending_in("rs").flat_map(oversized).collect()
}

fn oversized(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |line, what: String, fix: &str| {
        findings.push(Finding { path: file.path.clone(), line, what, fix: fix.to_owned() });
    };
    let lines: Vec<&str> = file.text.lines().collect();
    let count = lines.windows(2).rposition(opens_tests).unwrap_or(lines.len());
    if count > FILE_LINES {
        let what = format!("{count} lines without the tests, the limit is {FILE_LINES}");
        report(FILE_LINES + 1, what, "split it by duty");
    }
    for (index, line) in lines.iter().enumerate() {
        let chars = line.chars().count();
        if chars > LINE_CHARS {
            let what = format!("{chars} characters, the limit is {LINE_CHARS}");
            report(index + 1, what, "break the line (a string with a final `\\`)");
        }
    }
    findings
}

/// Whether two lines open a test module with a body, which is the last item of a file. A test
/// module in a file of its own (`mod page;`) is declared anywhere.
fn opens_tests(pair: &[&str]) -> bool {
    matches!(pair, ["#[cfg(test)]", module] if module.starts_with("mod ") && module.ends_with('{'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;
    use crate::scratch::ScratchFolder;

    fn found(text: &str) -> Vec<String> {
        let tree = Tree::of(&[("a.rs", text), ("a.md", text)]);
        sizes(&tree).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn long_files_fail_and_tests_at_the_end_do_not_count() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "use x;\n".repeat(100));
        let full = "use x;\n".repeat(800);
        assert_eq!(found(&full), Vec::<String>::new());
        assert_eq!(found(&(full.clone() + &tests)), Vec::<String>::new());
        let shown = found(&(full + "use y;\n" + &tests));
        assert_eq!(shown.len(), 1);
        assert!(shown[0].starts_with("a.rs:801: 801 lines without the tests"), "{}", shown[0]);
    }

    #[test]
    fn a_test_module_in_a_file_of_its_own_hides_nothing() {
        let text = format!("//! x\n\n#[cfg(test)]\nmod page;\n{}", "use x;\n".repeat(797));
        let shown = found(&text);
        assert_eq!(shown.len(), 1);
        assert!(shown[0].starts_with("a.rs:801: 801 lines without the tests"), "{}", shown[0]);
        assert_eq!(found(text.strip_suffix("use x;\n").unwrap()), Vec::<String>::new());
    }

    #[test]
    fn wide_lines_fail_by_characters_not_bytes() {
        assert_eq!(found(&"é".repeat(100)), Vec::<String>::new());
        let shown = found(&format!("//! x\n//{}\n", "é".repeat(99)));
        assert_eq!(shown.len(), 1);
        assert!(shown[0].starts_with("a.rs:2: 101 characters, the limit is 100"), "{}", shown[0]);
    }

    /// A crate of its own with our lints and our `clippy.toml`, and a function too long for them.
    #[test]
    fn clippy_refuses_long_functions() {
        let root = process::workspace_root();
        let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
        let lints = &manifest[manifest.find("[workspace.lints.rust]").unwrap()..];
        let lints = &lints[..lints.find("[profile").unwrap()];
        let head = "[package]\nname = \"planted\"\nedition = \"2024\"\n[lints]\nworkspace = true\n";
        let folder = ScratchFolder::new("clippy").unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path.join(name), text).unwrap();
        };
        std::fs::create_dir(folder.path.join("src")).unwrap();
        std::fs::copy(root.join("clippy.toml"), folder.path.join("clippy.toml")).unwrap();
        write("Cargo.toml", &format!("{head}[workspace]\n{lints}"));
        let mut clippy = process::cargo();
        clippy.args(["clippy", "--offline", "--quiet"]).current_dir(&folder.path);
        clippy.env("CARGO_TARGET_DIR", folder.path.join("target"));
        for (lines, passes) in [(60, true), (61, false)] {
            let body = "    step();\n".repeat(lines);
            write(
                "src/lib.rs",
                &format!("//! x\nfn step() {{}}\n/// x\npub fn a() {{\n{body}}}\n"),
            );
            let output = clippy.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), passes, "{said}");
            assert_eq!(said.contains("too many lines (61/60)"), !passes, "{said}");
        }
    }
}
