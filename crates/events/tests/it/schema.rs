//! `docs/log-json.md` and the code name the same kinds and fields.

use crate::fixture::one_of_each;
use fitgpt_events::{Event, KINDS, SCHEMA, Time};
use serde_json::Value;
use std::collections::BTreeMap;

/// The fields of each kind: of a table under a heading such as "## `iter`", the first column.
fn documented(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut kinds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut kind = None;
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            let name = heading.strip_prefix('`').and_then(|name| name.split_once('`'));
            kind = name.map(|(name, _)| kinds.entry(name.to_string()).or_default());
        }
        let field = line.strip_prefix("| `").and_then(|row| row.split_once('`'));
        if let (Some(fields), Some((field, _))) = (&mut kind, field) {
            fields.push(field.to_string());
        }
    }
    kinds
}

#[test]
fn the_document_has_every_kind_and_field() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/log-json.md");
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(&format!("`{SCHEMA}`")));
    let mut documented = documented(&text);
    let common = documented.remove("kind").unwrap();
    assert_eq!(common, ["kind", "unix_time", "seconds"]);
    let mut kinds = Vec::new();
    for what in one_of_each() {
        let time = Time { unix_time: 1.0, seconds: 0.5 };
        let json = serde_json::to_value(Event { what, time }).unwrap();
        let kind = json["kind"].as_str().unwrap().to_string();
        let fields = json.as_object().unwrap().iter();
        assert!(fields.clone().all(|(_, value)| *value != Value::Null), "every field is set");
        let own: Vec<&str> = fields
            .map(|(name, _)| name.as_str())
            .filter(|name| !common.iter().any(|c| c == name))
            .collect();
        let in_document = documented.remove(&kind).unwrap_or_default();
        assert_eq!(own, in_document, "fields of `{kind}`: code, document");
        kinds.push(kind);
    }
    assert_eq!(kinds, KINDS);
    assert!(documented.is_empty(), "no such kind in the code: {documented:?}");
}
