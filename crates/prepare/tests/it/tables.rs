//! `.json` files and tables are read as documents, never as plain text.

use crate::fixture::{
    TempDir, documents, expected, fails, gzip, json_list, jsonl, run, table, twentieth, zstd,
};
use fitgpt_prepare::{Format, Totals};

/// An empty field means "no document" in tables, and zero bytes make a file binary, so drop both.
fn texts() -> Vec<String> {
    let some = documents(300).into_iter().filter(|text| !text.is_empty());
    some.map(|text| text.replace('\0', "")).collect()
}

#[test]
fn json_and_tables_give_the_tokens_of_json_lines() {
    let dir = TempDir::new("tables");
    let documents = texts();
    let (train, val) = expected(&documents);
    let lines = jsonl(&documents);
    let commas = table(&documents, ',', "\n");
    let utf8_mark = [b"\xef\xbb\xbf", &table(&documents, ';', "\r\n")[..]].concat();
    let strings = serde_json::to_vec(&documents).unwrap();
    for (name, content) in [
        ("lines.json", lines.clone()),
        ("lines.json.gz", gzip(&lines)),
        ("list.json", json_list(&documents)),
        ("list.json.zst", zstd(&json_list(&documents))),
        ("strings.json", strings),
        ("commas.csv", commas.clone()),
        ("commas.csv.gz", gzip(&commas)),
        ("open-end.csv", commas.trim_ascii_end().to_vec()),
        ("semicolons.csv", utf8_mark),
        ("tabs.tsv", table(&documents, '\t', "\r\n")),
        ("tabs.tsv.zst", zstd(&table(&documents, '\t', "\n"))),
    ] {
        let source = dir.write(name, &content);
        let out = format!("out-{name}");
        run(twentieth(dir.request(&source, &out))).unwrap_or_else(|e| panic!("{e}"));
        assert!(dir.ids(&format!("{out}/train.bin")) == train, "{name}");
        assert!(dir.ids(&format!("{out}/val.bin")) == val, "{name}");
    }
}

#[test]
fn a_column_has_two_flags_and_an_empty_field_is_not_a_document() {
    let dir = TempDir::new("columns");
    let source = dir.write("a.csv", b"n,body\n1,one\n2,\n3,\"th\"\"ree\"\n\n4,four\n");
    let mut request = twentieth(dir.request(&source, "column"));
    request.column = Some("body".to_owned());
    let totals = run(request).unwrap();
    let Totals { train_documents, val_documents, skipped, .. } = totals;
    assert_eq!((train_documents + val_documents, skipped), (3, 1));
    let mut request = twentieth(dir.request(&source, "field"));
    request.field = "body".to_owned();
    assert_eq!(run(request).unwrap(), totals);
    assert_eq!(dir.ids("column/train.bin"), dir.ids("field/train.bin"));
}

#[test]
fn errors_in_tables_name_the_line() {
    let dir = TempDir::new("bad-tables");
    for (content, words) in [
        (&b"id,body\n1,a\n"[..], &["no column 'text'", "id, body", "--column"][..]),
        (b"id,text\n1,a\n2\n", &["line 3 has 1 columns", "has 2", "--format text"]),
        (b"id,text\n1,a,b\n", &["line 2 has more columns, but the first row has 2"]),
        (b"id,text\n1,a\n2,\"b\n3,c\n", &["line 3", "never closed", "--format text"]),
        (b"id,text\n1,a\0", &["contains zero bytes"]),
        (b"", &["no text for train"]),
        (b"text\n", &["no text for train"]),
    ] {
        let source = dir.write("a.csv", content);
        let _ = std::fs::remove_dir_all(dir.path("out"));
        fails(dir.request(&source, "out"), words);
    }
}

#[test]
fn errors_in_json_suggest_a_fix() {
    let dir = TempDir::new("bad-json");
    for (content, words) in [
        (&b"{\"n\": 1, \"data\": [{\"text\": \"a\"}]}"[..], {
            &["no field 'text' (it has: n, data)", "jq -c '.data[]'", "--format text"][..]
        }),
        (b"[1, 2]", &["has '1' in the list instead of an object"]),
        (b"[{\"text\": \"a\"} {", &["has '{' after a value"]),
        (b"[{\"text\": \"a\"},", &["truncated"]),
        (b"[{\"text\": \"a\"}] 5", &["has '5' after the list's end"]),
        (b"[", &["truncated"]),
        (b"[]", &["no text for train"]),
        (b"[{\"body\": \"a\"}]", &["has no field 'text' (it has: body)", "--field"]),
    ] {
        let source = dir.write("a.json", content);
        let _ = std::fs::remove_dir_all(dir.path("out"));
        fails(dir.request(&source, "out"), words);
    }
}

/// A JSON file of settings among other files counts as text, records do not; `--format text`
/// overrides this.
#[test]
fn folders_and_an_explicit_format() {
    let dir = TempDir::new("json-folder");
    dir.write("c/package.json", b"{\n  \"name\": \"x\"\n}\n");
    dir.write("c/records.json", b"{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
    dir.write("c/table.csv", b"text\nthree\n");
    let folder = dir.path("c").to_str().unwrap().to_owned();
    let totals = run(twentieth(dir.request(&folder, "out"))).unwrap();
    assert_eq!(totals.train_documents + totals.val_documents, 4);
    let mut request = dir.request(&folder, "text");
    request.format = Some(Format::Text);
    let totals = run(request).unwrap();
    assert_eq!(totals.train_documents + totals.val_documents, 3);
}
