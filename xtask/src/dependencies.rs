//! `cargo xtask dependencies`: whether every crate that we build on has a licence that permits it,
//! and whether any is there in two versions. Both tables are here; a new row is a decision. And
//! whether our own crates say what a registry asks for.

use crate::process::{self, Failure};
use serde_json::Value;
use std::collections::BTreeMap;

/// Licences that let anyone ship the program. All of them ask for no more than their text.
const LICENCES: [&str; 11] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "0BSD",
    "ISC",
    "Zlib",
    "Unlicense",
    "Unicode-3.0",
    // The list of certificate authorities in `webpki-roots`: data, not code.
    "CDLA-Permissive-2.0",
];

/// Crates with another licence, and why that is no harm.
const EXCEPTIONS: [(&str, &str); 1] =
    [("tiny-keccak", "CC0-1.0: in the public domain; a build dependency of parquet")];

/// Crates that are there in several versions, with how many, and who needs the older ones.
const SEVERAL: [(&str, usize, &str); 3] = [
    ("cpufeatures", 2, "sha1 and sha2 0.10"),
    ("getrandom", 3, "ring, ahash and proptest"),
    ("syn", 2, "the derive macros of serde and of thiserror"),
];

/// Runs the rule; prints every finding.
pub fn run(args: &[String]) -> Result<(), Failure> {
    process::expect_no_arguments("dependencies", args)?;
    let mut cargo = process::cargo();
    let target = "x86_64-unknown-linux-gnu";
    cargo.args(["metadata", "--format-version=1", "--locked", "--filter-platform", target]);
    let said = process::capture(&mut cargo)?;
    let metadata: Value =
        serde_json::from_str(&said).map_err(|error| Failure::Task(error.to_string()))?;
    let (count, mut findings) = findings(&metadata);
    findings.extend(unpublishable(&metadata));
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("dependencies: {count} crates, nothing to fix");
            Ok(())
        }
        many => Err(Failure::Task(format!("dependencies: {many} to fix"))),
    }
}

/// The number of crates, and what is wrong with them.
fn findings(metadata: &Value) -> (usize, Vec<String>) {
    let used: Vec<&str> =
        list(&metadata["resolve"]["nodes"]).filter_map(|node| node["id"].as_str()).collect();
    let is_used = |package: &&Value| package["id"].as_str().is_some_and(|id| used.contains(&id));
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut findings = Vec::new();
    for package in list(&metadata["packages"]).filter(is_used) {
        let name = package["name"].as_str().unwrap_or_default();
        versions.entry(name).or_default().push(package["version"].as_str().unwrap_or_default());
        let licence = package["license"].as_str().unwrap_or("none");
        if !permits(licence) && !EXCEPTIONS.iter().any(|(known, _)| *known == name) {
            findings.push(format!("{name}: its licence is {licence}; see LICENCES"));
        }
    }
    for (name, found) in &versions {
        let known = SEVERAL.iter().find(|(known, ..)| known == name).map_or(1, |row| row.1);
        if found.len() != known {
            let all = found.join(", ");
            findings.push(format!("{name}: versions {all}, expected {known}; see SEVERAL"));
        }
    }
    let gone = |name: &&str| !versions.contains_key(name);
    let rows = EXCEPTIONS.iter().map(|row| row.0).chain(SEVERAL.iter().map(|row| row.0));
    findings
        .extend(rows.filter(gone).map(|name| format!("{name}: is no longer used; drop its row")));
    (used.len(), findings)
}

/// What our own crates lack that a registry asks for: fields, and a version beside each path to a
/// crate of ours.
fn unpublishable(metadata: &Value) -> Vec<String> {
    const FIELDS: [&str; 5] = ["description", "license", "readme", "keywords", "categories"];
    let is_empty = |value: &Value| {
        value.is_null() || value.as_array().is_some_and(Vec::is_empty) || value == ""
    };
    let mut findings = Vec::new();
    // A registry's crates have a source; `publish = false` is an empty list of registries.
    let own = list(&metadata["packages"]).filter(|package| package["source"].is_null());
    for package in own.filter(|package| package["publish"] != Value::Array(Vec::new())) {
        let name = package["name"].as_str().unwrap_or_default();
        for field in FIELDS.into_iter().filter(|field| is_empty(&package[field])) {
            findings.push(format!("{name}: has no {field}; add `{field}` to its Cargo.toml"));
        }
        let paths = list(&package["dependencies"]).filter(|used| !used["path"].is_null());
        // Those of tests are left out of what is published, where they have no version.
        let built = paths.filter(|used| used["kind"] != "dev" && used["req"] == "*");
        for used in built.filter_map(|used| used["name"].as_str()) {
            findings.push(format!("{name}: {used} has no version in the workspace's Cargo.toml"));
        }
    }
    findings
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Whether an SPDX expression permits shipping: of alternatives one must, of parts each.
fn permits(expression: &str) -> bool {
    let part = |part: &str| {
        let part = part.trim().trim_start_matches('(').trim_end_matches(')');
        part.split(" OR ").flat_map(|one| one.split('/')).any(|one| LICENCES.contains(&one.trim()))
    };
    expression.split(" AND ").all(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(packages: &[(&str, &str, &str)]) -> Vec<String> {
        let mut all: Vec<(String, String, String)> = Vec::new();
        for (name, count, _) in SEVERAL {
            let version = |n: usize| (name.to_string(), format!("{n}.0.0"), "MIT".to_string());
            all.extend((0..count).map(version));
        }
        all.extend(EXCEPTIONS.map(|(name, _)| (name.into(), "1.0.0".into(), "CC0-1.0".into())));
        all.extend(packages.iter().map(|(a, b, c)| (a.to_string(), b.to_string(), c.to_string())));
        let id = |name: &str, version: &str| format!("{name}@{version}");
        let nodes = all.iter().map(|(name, version, _)| json!({ "id": id(name, version) }));
        let packages = all.iter().map(|(name, version, licence)| {
            json!({ "id": id(name, version), "name": name, "version": version, "license": licence })
        });
        let packages: Vec<Value> = packages.collect();
        let nodes: Vec<Value> = nodes.collect();
        findings(&json!({ "packages": packages, "resolve": { "nodes": nodes } })).1
    }

    #[test]
    fn of_alternatives_one_must_permit_and_of_parts_each() {
        assert!(permits("MIT/Apache-2.0") && permits("GPL-3.0 OR MIT"));
        assert!(permits("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(!permits("GPL-3.0") && !permits("MIT AND GPL-3.0") && !permits("none"));
    }

    #[test]
    fn a_crate_that_is_published_says_what_it_is() {
        let whole = json!({
            "name": "a", "source": null, "publish": null, "description": "x", "license": "MIT",
            "readme": "README.md", "keywords": ["x"], "categories": ["science"],
            "dependencies": [
                { "name": "b", "path": "/b", "kind": null, "req": "^0.1.0" },
                { "name": "c", "path": "/c", "kind": "dev", "req": "*" },
            ],
        });
        let found = |change: &dyn Fn(&mut Value)| {
            let mut package = whole.clone();
            change(&mut package);
            unpublishable(&json!({ "packages": [package] }))
        };
        assert_eq!(found(&|_| ()), Vec::<String>::new());
        let bare: &dyn Fn(&mut Value) = &|package| package["keywords"] = json!([]);
        assert_eq!(found(bare), ["a: has no keywords; add `keywords` to its Cargo.toml"]);
        assert_eq!(
            found(&|package| package["dependencies"][0]["req"] = json!("*")),
            ["a: b has no version in the workspace's Cargo.toml"]
        );
        for free in [("publish", json!([])), ("source", json!("registry"))] {
            let other = |package: &mut Value| {
                bare(package);
                package[free.0] = free.1.clone();
            };
            assert_eq!(found(&other), Vec::<String>::new(), "{}", free.0);
        }
    }

    #[test]
    fn a_licence_and_a_second_version_are_found() {
        assert!(with(&[("a", "1.0.0", "MIT")]).is_empty());
        assert!(with(&[("a", "1.0.0", "AGPL-3.0")])[0].contains("its licence is AGPL-3.0"));
        let twice = with(&[("a", "1.0.0", "MIT"), ("a", "2.0.0", "MIT")]);
        assert_eq!(twice, ["a: versions 1.0.0, 2.0.0, expected 1; see SEVERAL"]);
    }
}
