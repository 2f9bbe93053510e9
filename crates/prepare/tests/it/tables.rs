//! JSON under its plain ending, and tables: read as documents, never as text.

use crate::fixture::{
    Place, documents, expected, fails, gzip, json_list, jsonl, run, table, twentieth, zstd,
};
use fitgpt_prepare::{Format, Totals};

/// Tables have no other sign for "none" than an empty field, and zeros make a file binary.
fn texts() -> Vec<String> {
    let some = documents(300).into_iter().filter(|text| !text.is_empty());
    some.map(|text| text.replace('\0', "")).collect()
}

#[test]
fn json_and_tables_give_the_tokens_of_json_lines() {
    let place = Place::new("tables");
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
        let source = place.write(name, &content);
        let out = format!("out-{name}");
        run(twentieth(place.request(&source, &out))).unwrap_or_else(|e| panic!("{e}"));
        assert!(place.ids(&format!("{out}/train.bin")) == train, "{name}");
        assert!(place.ids(&format!("{out}/val.bin")) == val, "{name}");
    }
}

#[test]
fn a_column_has_two_flags_and_an_empty_field_is_no_document() {
    let place = Place::new("columns");
    let source = place.write("a.csv", b"n,body\n1,one\n2,\n3,\"th\"\"ree\"\n\n4,four\n");
    let mut request = twentieth(place.request(&source, "column"));
    request.column = Some("body".to_owned());
    let totals = run(request).unwrap();
    let Totals { train_documents, val_documents, skipped, .. } = totals;
    assert_eq!((train_documents + val_documents, skipped), (3, 1));
    let mut request = twentieth(place.request(&source, "field"));
    request.field = "body".to_owned();
    assert_eq!(run(request).unwrap(), totals);
    assert_eq!(place.ids("column/train.bin"), place.ids("field/train.bin"));
}

#[test]
fn what_is_wrong_with_a_table_is_told_with_the_line() {
    let place = Place::new("bad-tables");
    for (content, words) in [
        (&b"id,body\n1,a\n"[..], &["no column 'text'", "id, body", "--column"][..]),
        (b"id,text\n1,a\n2\n", &["line 3 has 1 columns", "has 2", "--format text"]),
        (b"id,text\n1,a,b\n", &["line 2 has more columns, but the first row has 2"]),
        (b"id,text\n1,a\n2,\"b\n3,c\n", &["line 3", "never closed", "--format text"]),
        (b"id,text\n1,a\0", &["holds zero bytes"]),
        (b"", &["nothing is left for train"]),
        (b"text\n", &["nothing is left for train"]),
    ] {
        let source = place.write("a.csv", content);
        let _ = std::fs::remove_dir_all(place.path("out"));
        fails(place.request(&source, "out"), words);
    }
}

#[test]
fn what_is_wrong_with_json_is_told_with_a_way_out() {
    let place = Place::new("bad-json");
    for (content, words) in [
        (&b"{\"n\": 1, \"data\": [{\"text\": \"a\"}]}"[..], {
            &["no field 'text' (it has: n, data)", "jq -c '.data[]'", "--format text"][..]
        }),
        (b"[1, 2]", &["has '1' in the list where an object belongs"]),
        (b"[{\"text\": \"a\"} {", &["has '{' behind a value"]),
        (b"[{\"text\": \"a\"},", &["cut off"]),
        (b"[{\"text\": \"a\"}] 5", &["has '5' after the list's end"]),
        (b"[", &["cut off"]),
        (b"[]", &["nothing is left for train"]),
        (b"[{\"body\": \"a\"}]", &["has no field 'text' (it has: body)", "--field"]),
    ] {
        let source = place.write("a.json", content);
        let _ = std::fs::remove_dir_all(place.path("out"));
        fails(place.request(&source, "out"), words);
    }
}

/// Settings among other files are text like them, records are not; whoever insists gets text.
#[test]
fn folders_and_an_explicit_format() {
    let place = Place::new("json-folder");
    place.write("c/package.json", b"{\n  \"name\": \"x\"\n}\n");
    place.write("c/records.json", b"{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
    place.write("c/table.csv", b"text\nthree\n");
    let folder = place.path("c").to_str().unwrap().to_owned();
    let totals = run(twentieth(place.request(&folder, "out"))).unwrap();
    assert_eq!(totals.train_documents + totals.val_documents, 4);
    let mut request = place.request(&folder, "text");
    request.format = Some(Format::Text);
    let totals = run(request).unwrap();
    assert_eq!(totals.train_documents + totals.val_documents, 3);
}
