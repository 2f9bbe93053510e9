//! Which workspace crate may depend on which: the one table, and the rule that reads it.
//!
//! Why it exists: the plan must not know devices, and executors must not know models or settings.
//! A new arrow is a design decision; change the table in the same commit as `ARCHITECTURE.md`.

use super::Finding;
use super::tree::{Tree, crate_of};
use serde_json::Value;

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
const ROWS: &[Row] = &[
    row("plan",        &[], Forbidden, AsCode),
    row("rng",         &[], Forbidden, AsCode),
    row("model",       &["plan", "rng"], Allowed, Any),
    row("spec",        &["plan", "model"], Allowed, AsCode),
    row("search",      &["plan", "model", "spec"], Allowed, AsCode),
    row("cpu",         &["plan", "rng"], Allowed, Any),
    row("cache",       &[], Allowed, AsCode),
    row("library",     &[], Allowed, AsCode),
    row("cuda",        &["plan", "rng", "cache", "library"], Allowed, Any),
    row("mpi",         &["plan", "library"], Allowed, Any),
    row("ranks",       &[], Allowed, AsCode),
    row("pickle",      &[], Forbidden, AsCode),
    row("pick",        &[], Allowed, AsCode),
    row("tokenizer",   &["pick"], Allowed, AsCode),
    row("data",        &["rng", "pickle", "tokenizer"], Allowed, AsCode),
    row("checkpoint",  &["model", "pickle"], Allowed, AsCode),
    row("interop",     &["plan", "checkpoint", "model", "pickle", "pick", "data", "tokenizer"],
        Allowed, Any),
    row("events",      &[], Allowed, AsCode),
    row("plots",       &["events"], Allowed, Any),
    row("page",        &["events", "plots"], Allowed, Any),
    row("train",       &["spec", "search", "model", "plan", "data", "checkpoint",
                         "interop", "events", "rng", "tokenizer"], Allowed, Any),
    row("hub",         &["data", "pick"], Allowed, AsCode),
    row("prepare",     &["data", "pick", "hub", "tokenizer"], Allowed, AsCode),
    row("doctor",      &["spec", "search", "model", "plan"], Allowed, AsCode),
    row("fitgpt",      &["plan", "rng", "model", "spec", "search", "cpu", "cuda", "cache", "pickle",
                         "data", "checkpoint", "interop", "events", "plots", "train", "hub",
                         "prepare", "doctor", "tokenizer", "mpi", "ranks", "page"],
        Allowed, Any),
    row("conformance", &["plan", "model", "rng"], Allowed, Any),
    row("counting",    &[], Forbidden, AsCode),
    row("faults",      &[], Forbidden, AsCode),
    row("soak",        &["plan", "rng", "model", "spec", "search", "cpu", "cuda", "cache", "pickle",
                         "data", "checkpoint", "interop", "events", "plots", "train",
                         "prepare", "doctor", "counting", "tokenizer", "hub", "mpi"],
        Allowed, AsCode),
    row("requires",    &[], Forbidden, AsCode),
    row("xtask",       &["requires"], Allowed, AsCode),
];

/// What the tests of every crate may use.
const FOR_ALL_TESTS: [&str; 1] = ["requires"];

/// Where the table is, for messages.
const TABLE: &str = "xtask/src/tidy/arrows.rs";

/// Every dependency between workspace crates is an arrow of the table.
pub fn between_crates(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in tree.packages.as_array().into_iter().flatten() {
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        let Some(file) = tree.files.iter().find(|file| {
            matches!(crate_of(&file.path), Some((_, "Cargo.toml")))
                && manifest.ends_with(&file.path)
        }) else {
            continue;
        };
        let name = crate_of(&file.path).map_or("", |(name, _)| name);
        let mut report = |line, what: String, fix: String| {
            findings.push(Finding { path: file.path.clone(), line, what, fix });
        };
        let Some(row) = ROWS.iter().find(|row| row.name == name) else {
            let fix = format!("add a row to {TABLE}");
            report(1, format!("crate '{name}' is not in the table of arrows"), fix);
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            if let Some((what, fix)) = broken_by(row, dependency) {
                report(line_of(dependency, &file.text), what, fix);
            }
        }
    }
    findings
}

/// What is wrong with a dependency of `cargo metadata` and how to fix it.
fn broken_by(row: &Row, dependency: &Value) -> Option<(String, String)> {
    let for_tests = dependency["kind"] == "dev";
    let Some(path) = dependency["path"].as_str() else {
        let name = dependency["name"].as_str().unwrap_or_default();
        return (!for_tests && row.outside == Forbidden).then(|| {
            (
                format!("{} has no dependency by design, but names {name}", row.name),
                "write the few lines yourself, or move the code that needs it".to_owned(),
            )
        });
    };
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    let for_all = for_tests && (row.tests == Any || FOR_ALL_TESTS.contains(&name));
    if for_all || row.arrows.contains(&name) {
        return None;
    }
    let tests_of = if for_tests { "the tests of " } else { "" };
    let allowed = match row.arrows {
        [] => "none".to_owned(),
        arrows => arrows.join(", "),
    };
    let what = format!("{tests_of}{} may not depend on {name} (allowed: {allowed})", row.name);
    Some((what, format!("remove it, or argue for a new arrow in {TABLE}")))
}

/// The line that begins with the dependency's name; the first line if there is none.
fn line_of(dependency: &Value, manifest: &str) -> usize {
    let name = dependency["rename"].as_str().or(dependency["name"].as_str()).unwrap_or_default();
    manifest.lines().position(|line| line.starts_with(name)).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The findings for a crate with one dependency, given as `cargo metadata` describes it.
    fn check(name: &str, dependency: Value) -> Vec<String> {
        let path = match name {
            "xtask" => "xtask/Cargo.toml".to_owned(),
            _ => format!("crates/{name}/Cargo.toml"),
        };
        let mut tree = Tree::of(&[(&path, "[dependencies]\nrng.workspace = true\n")]);
        tree.packages =
            json!([{"manifest_path": format!("/tree/{path}"), "dependencies": [dependency]}]);
        between_crates(&tree).iter().map(Finding::to_string).collect()
    }

    fn inside(name: &str, kind: Option<&str>) -> Value {
        let path = match name {
            "xtask" => "/tree/xtask".to_owned(),
            _ => format!("/tree/crates/{name}"),
        };
        let package = format!("fitgpt-{name}");
        json!({"name": package, "rename": name, "kind": kind, "path": path})
    }

    fn outside(name: &str, kind: Option<&str>) -> Value {
        json!({"name": name, "rename": null, "kind": kind})
    }

    #[test]
    fn arrows_of_the_table_pass() {
        for (name, dependency) in [
            ("model", inside("plan", None)),
            ("cpu", inside("conformance", Some("dev"))),
            ("plan", outside("proptest", Some("dev"))),
            ("plan", inside("requires", Some("dev"))),
            ("data", outside("sha2", None)),
            ("spec", inside("plan", Some("dev"))),
            ("xtask", outside("serde_json", None)),
        ] {
            let shown = dependency.to_string();
            assert_eq!(check(name, dependency), Vec::<String>::new(), "{name}: {shown}");
        }
    }

    #[test]
    fn other_arrows_fail() {
        for (name, dependency, want) in [
            (
                "plan",
                inside("rng", None),
                "Cargo.toml:2: plan may not depend on rng (allowed: none)",
            ),
            ("cpu", inside("model", None), "cpu may not depend on model (allowed: plan, rng);"),
            ("cuda", inside("model", Some("build")), "cuda may not depend on model"),
            ("train", inside("cpu", None), "train may not depend on cpu"),
            ("plan", inside("requires", None), "plan may not depend on requires"),
            ("fitgpt", inside("conformance", None), "fitgpt may not depend on conformance"),
            ("fitgpt", inside("xtask", None), "fitgpt may not depend on xtask"),
            ("plan", inside("model", Some("dev")), "the tests of plan may not depend on model"),
            ("data", inside("model", Some("dev")), "the tests of data may not depend on model"),
            ("plan", outside("sha2", None), "plan has no dependency by design, but names sha2"),
            ("pickle", outside("cc", Some("build")), "pickle has no dependency by design"),
        ] {
            let found = check(name, dependency);
            assert_eq!(found.len(), 1, "{name}: {want}: {found:?}");
            assert!(found[0].contains(want), "{}", found[0]);
        }
    }

    /// Uses cargo's own output, so that a change of its format is noticed.
    #[test]
    fn cargo_metadata_lists_every_crate() {
        let tree = Tree::read(&crate::process::workspace_root()).unwrap();
        let packages = tree.packages.as_array().unwrap();
        assert_eq!(packages.len(), ROWS.len());
        let cpu = packages.iter().find(|package| package["name"] == "fitgpt-cpu").unwrap();
        let mut arrows = cpu["dependencies"].as_array().unwrap().iter();
        assert!(arrows.any(|arrow| arrow["path"].as_str().is_some_and(|p| p.ends_with("/plan"))));
    }

    #[test]
    fn a_new_crate_needs_a_row() {
        let found = check("dashboard", inside("plan", None));
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
