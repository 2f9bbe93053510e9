//! Which workspace crate may depend on which: the one table, and the rule that reads it.
//!
//! Why it exists: the plan must not know devices, and executors must not know models or settings.
//! A new arrow is a design decision; change the table in the same commit as `ARCHITECTURE.md`.

use super::Finding;
use super::manifest::{Dependency, Kind, Manifest};
use super::tree::{Tree, crate_of};
use std::collections::BTreeMap;

/// What one crate may depend on.
struct Row {
    /// Folder name, which is also the short name in manifests.
    name: &'static str,
    /// Workspace crates that its code may use.
    arrows: &'static [&'static str],
    /// Crates from elsewhere that its code may use.
    outside: Outside,
    /// Workspace crates that only its tests may use, beyond `arrows`.
    tests: Tests,
}

/// Whether a crate's code may use crates from outside the workspace.
#[derive(PartialEq)]
enum Outside {
    Allowed,
    Forbidden,
}

/// What a crate's tests may use.
#[derive(PartialEq)]
enum Tests {
    /// Any workspace crate.
    Any,
    /// Only what its code may use.
    AsCode,
}

const fn row(
    name: &'static str,
    arrows: &'static [&'static str],
    outside: Outside,
    tests: Tests,
) -> Row {
    Row { name, arrows, outside, tests }
}

use Outside::{Allowed, Forbidden};
use Tests::{Any, AsCode};

/// In reading order. `fitgpt` sees everything but the test suite; nothing sees `xtask`.
#[rustfmt::skip]
const ROWS: [Row; 21] = [
    row("plan",        &[], Forbidden, AsCode),
    row("rng",         &[], Forbidden, AsCode),
    row("model",       &["plan", "rng"], Allowed, Any),
    row("spec",        &["plan", "model"], Allowed, AsCode),
    row("search",      &["plan", "model", "spec"], Allowed, AsCode),
    row("cpu",         &["plan", "rng"], Allowed, Any),
    row("cache",       &[], Allowed, AsCode),
    row("cuda",        &["plan", "rng", "cache"], Allowed, Any),
    row("pickle",      &[], Forbidden, AsCode),
    row("data",        &["rng", "pickle"], Allowed, AsCode),
    row("checkpoint",  &["model", "pickle"], Allowed, AsCode),
    row("train",       &["spec", "search", "model", "plan", "data", "checkpoint", "rng"],
        Allowed, Any),
    row("prepare",     &["data"], Allowed, AsCode),
    row("doctor",      &["spec", "search", "model", "plan"], Allowed, AsCode),
    row("fitgpt",      &["plan", "rng", "model", "spec", "search", "cpu", "cuda", "cache", "pickle",
                         "data", "checkpoint", "train", "prepare", "doctor"], Allowed, Any),
    row("conformance", &["plan", "model", "rng"], Allowed, Any),
    row("counting",    &[], Forbidden, AsCode),
    row("faults",      &[], Forbidden, AsCode),
    row("soak",        &["plan", "rng", "model", "spec", "search", "cpu", "cuda", "cache", "pickle",
                         "data", "checkpoint", "train", "prepare", "doctor", "counting"],
        Allowed, AsCode),
    row("requires",    &[], Forbidden, AsCode),
    row("xtask",       &["requires"], Allowed, AsCode),
];

/// What the tests of every crate may use.
const FOR_ALL_TESTS: [&str; 1] = ["requires"];

/// Where the table is, for messages.
const TABLE: &str = "xtask/src/tidy/arrows.rs";

/// What a dependency leads to.
enum Target {
    /// A crate of this workspace, by folder name.
    Inside(String),
    /// Any other crate.
    Outside,
}

/// Every dependency between workspace crates is an arrow of the table.
pub fn between_crates(tree: &Tree) -> Vec<Finding> {
    let aliases = tree.file("Cargo.toml").map(|root| aliases(&root.text)).unwrap_or_default();
    let mut findings = Vec::new();
    for file in tree.ending_in("toml") {
        let Some((name, "Cargo.toml")) = crate_of(&file.path) else {
            continue;
        };
        let mut report = |line, what: String, fix: String| {
            findings.push(Finding { path: file.path.clone(), line, what, fix });
        };
        let Some(row) = ROWS.iter().find(|row| row.name == name) else {
            let fix = format!("add a row to {TABLE}");
            report(1, format!("crate '{name}' is not in the table of arrows"), fix);
            continue;
        };
        let manifest = Manifest::parse(&file.text);
        for &line in &manifest.unread_lines {
            let fix = "write them under a [dependencies] heading".to_owned();
            report(line, "tidy cannot read dependencies in one inline table".to_owned(), fix);
        }
        for dependency in &manifest.dependencies {
            if let Some((what, fix)) = broken_by(row, dependency, &target(dependency, &aliases)) {
                report(dependency.line, what, fix);
            }
        }
    }
    findings
}

/// What is wrong with a dependency and how to fix it.
fn broken_by(row: &Row, dependency: &Dependency, target: &Target) -> Option<(String, String)> {
    let for_tests = dependency.kind == Kind::Dev;
    match target {
        Target::Inside(name) if row.arrows.contains(&name.as_str()) => None,
        Target::Inside(_) if for_tests && row.tests == Any => None,
        Target::Inside(name) if for_tests && FOR_ALL_TESTS.contains(&name.as_str()) => None,
        Target::Inside(name) => {
            let tests_of = if for_tests { "the tests of " } else { "" };
            let allowed = match row.arrows {
                [] => "none".to_owned(),
                arrows => arrows.join(", "),
            };
            let what =
                format!("{tests_of}{} may not depend on {name} (allowed: {allowed})", row.name);
            Some((what, format!("remove it, or argue for a new arrow in {TABLE}")))
        }
        Target::Outside if for_tests || row.outside == Allowed => None,
        Target::Outside => Some((
            format!("{} has no dependency by design, but names {}", row.name, dependency.name),
            "write the few lines it is needed for, or move the code that needs it".to_owned(),
        )),
    }
}

/// Workspace-wide names that stand for a crate of the workspace.
fn aliases(root_manifest: &str) -> BTreeMap<String, Dependency> {
    let named = Manifest::parse(root_manifest).dependencies.into_iter();
    named.map(|dependency| (dependency.name.clone(), dependency)).collect()
}

fn target(dependency: &Dependency, aliases: &BTreeMap<String, Dependency>) -> Target {
    let written = match (&dependency.package, &dependency.path) {
        (None, None) => aliases.get(&dependency.name).unwrap_or(dependency),
        _ => dependency,
    };
    let package = written.package.as_deref().unwrap_or(&written.name);
    let short = match (&written.path, package.strip_prefix("fitgpt-")) {
        (_, Some(short)) => short,
        (Some(path), None) => path.trim_end_matches('/').rsplit('/').next().unwrap_or(path),
        (None, None) if ROWS.iter().any(|row| row.name == package) => package,
        (None, None) => return Target::Outside,
    };
    Target::Inside(short.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "[workspace.dependencies]
plan = { path = \"crates/plan\", package = \"fitgpt-plan\" }
drawing = { path = \"crates/rng\", package = \"fitgpt-rng\" }
sha2 = \"0.10\"
";

    fn check(name: &str, manifest: &str) -> Vec<String> {
        let path = match name {
            "xtask" => "xtask/Cargo.toml".to_owned(),
            _ => format!("crates/{name}/Cargo.toml"),
        };
        let tree = Tree::of(&[("Cargo.toml", ROOT), (&path, manifest)]);
        between_crates(&tree).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn arrows_of_the_table_pass() {
        for (name, manifest) in [
            ("model", "[dependencies]\nplan.workspace = true\n"),
            ("model", "[dependencies]\ndrawing.workspace = true\n"),
            ("cpu", "[dev-dependencies]\nconformance.workspace = true\n"),
            ("plan", "[dev-dependencies]\nproptest.workspace = true\n"),
            ("data", "[dependencies]\nsha2.workspace = true\n"),
            ("spec", "[dev-dependencies]\nplan.workspace = true\n"),
            ("plan", "[dev-dependencies]\nrequires.workspace = true\n"),
            ("xtask", "[dependencies]\nserde_json.workspace = true\n"),
        ] {
            assert_eq!(check(name, manifest), Vec::<String>::new(), "{name}: {manifest}");
        }
    }

    #[test]
    fn other_arrows_fail() {
        for (name, manifest, want) in [
            ("plan", "rng.workspace = true", "plan may not depend on rng (allowed: none)"),
            ("cpu", "model.workspace = true", "cpu may not depend on model (allowed: plan, rng);"),
            ("cpu", "m = { package = \"fitgpt-model\" }", "cpu may not depend on model"),
            ("cpu", "m = { path = \"../model\" }", "cpu may not depend on model"),
            ("spec", "drawing.workspace = true", "spec may not depend on rng"),
            ("train", "cpu.workspace = true", "train may not depend on cpu"),
            ("fitgpt", "conformance.workspace = true", "fitgpt may not depend on conformance"),
            ("fitgpt", "xtask = { path = \"../../xtask\" }", "fitgpt may not depend on xtask"),
            ("plan", "sha2.workspace = true", "plan has no dependency by design, but names sha2"),
            ("pickle", "serde = \"1\"", "pickle has no dependency by design, but names serde"),
            ("plan", "requires.workspace = true", "plan may not depend on requires"),
        ] {
            let found = check(name, &format!("[dependencies]\n{manifest}\n"));
            assert_eq!(found.len(), 1, "{name}: {manifest}: {found:?}");
            assert!(found[0].contains(&format!("Cargo.toml:2: {want}")), "{}", found[0]);
        }
    }

    #[test]
    fn tests_and_build_scripts_have_arrows_too() {
        for (name, table, want) in [
            ("plan", "dev-dependencies", "the tests of plan may not depend on model"),
            ("rng", "dev-dependencies", "the tests of rng may not depend on model"),
            ("data", "dev-dependencies", "the tests of data may not depend on model"),
            ("cuda", "build-dependencies", "cuda may not depend on model"),
            ("cuda", "target.'cfg(unix)'.dependencies", "cuda may not depend on model"),
        ] {
            let found = check(name, &format!("[{table}]\nmodel.workspace = true\n"));
            assert_eq!(found.len(), 1, "{name}: {table}: {found:?}");
            assert!(found[0].contains(want), "{}", found[0]);
        }
    }

    #[test]
    fn a_new_crate_needs_a_row() {
        let found = check("dashboard", "");
        assert_eq!(found.len(), 1);
        assert!(found[0].ends_with("add a row to xtask/src/tidy/arrows.rs"), "{}", found[0]);
    }

    #[test]
    fn every_arrow_leads_to_a_row_and_none_back() {
        let above = |name: &str| ROWS.iter().position(|row| row.name == name);
        for (index, row) in ROWS.iter().enumerate() {
            for arrow in row.arrows {
                let target = above(arrow);
                assert!(target.is_some_and(|at| at < index), "{} -> {arrow}", row.name);
            }
        }
    }
}
