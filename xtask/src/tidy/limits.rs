//! Hard limits on the size of Rust files, functions and lines. The aim is half of them.

use super::Finding;
use super::rust_source::Masked;
use super::tree::{SourceFile, Tree};

/// Most lines of a file; a test module at its end does not count.
const FILE_LINES: usize = 800;
/// Most lines of a function, from `fn` to its closing brace, tests included.
const FUNCTION_LINES: usize = 100;
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
    let masked = Masked::new(&file.text);

    let all_lines = file.text.lines().count();
    let lines = masked.trailing_tests_line().map_or(all_lines, |line| line - 1);
    if lines > FILE_LINES {
        let what = format!("{lines} lines without the tests, the limit is {FILE_LINES}");
        report(FILE_LINES + 1, what, "split it by duty");
    }
    for function in masked.functions() {
        let lines = function.last_line - function.first_line + 1;
        if lines > FUNCTION_LINES {
            let name = function.name;
            let what = format!("fn {name} has {lines} lines, the limit is {FUNCTION_LINES}");
            report(function.first_line, what, "split it into named steps");
        }
    }
    for (index, line) in file.text.lines().enumerate() {
        let chars = line.chars().count();
        if chars > LINE_CHARS {
            let what = format!("{chars} characters, the limit is {LINE_CHARS}");
            report(index + 1, what, "break the line (a string with a final `\\`)");
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let tree = Tree::of(&[("a.rs", text), ("a.md", text)]);
        sizes(&tree).iter().map(Finding::to_string).collect()
    }

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
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
    fn long_functions_fail_in_tests_too() {
        assert_eq!(found(&function(100)), Vec::<String>::new());
        for text in [function(101), format!("#[cfg(test)] mod tests {{ {} }}\n", function(101))] {
            let shown = found(&text);
            assert_eq!(shown.len(), 1, "{shown:?}");
            assert!(shown[0].starts_with("a.rs:1: fn long has 101 lines"), "{}", shown[0]);
        }
    }

    #[test]
    fn wide_lines_fail_by_characters_not_bytes() {
        assert_eq!(found(&"é".repeat(100)), Vec::<String>::new());
        let shown = found(&format!("//! x\n//{}\n", "é".repeat(99)));
        assert_eq!(shown.len(), 1);
        assert!(shown[0].starts_with("a.rs:2: 101 characters, the limit is 100"), "{}", shown[0]);
    }
}
