//! Texts that are derived from the table of keys.

use crate::typing::{read, train};
use fitgpt_spec::{Command, documents};
use std::path::Path;

#[test]
fn the_page_of_keys_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/keys.md");
    let page = documents::page();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let first = kept.lines().zip(page.lines()).position(|(kept, page)| kept != page);
    assert!(
        kept == page,
        "docs/keys.md differs from the table of keys (first in line {:?}); \
         UPDATE_SNAPSHOTS=1 cargo test -p fitgpt-spec rewrites it",
        first.map(|line| line + 1)
    );
}

#[test]
fn a_dump_is_a_config_file_that_gives_the_same_settings() {
    let odd = ["--out_dir='a\\n\"b\" \\'c\\''", "--learning_rate=1e-5", "--vram='80%'"];
    for arguments in [&[] as &[&str], &["--n_layer=3", "--dropout=0"], &odd] {
        let settings = train(arguments, &[]);
        let text = documents::dump(&settings);
        let again = train(&["dump.py"], &[("dump.py", &text)]);
        for (one, two) in settings.iter().zip(again.iter()) {
            assert_eq!(one.value, two.value, "{}", one.key.name);
        }
    }
    let sample = documents::dump(&read(Command::Sample, &["--top_k=5"], &[]).unwrap());
    assert!(sample.contains("top_k = 5 # argument 1\n"), "{sample}");
    assert!(!sample.contains("n_layer"), "{sample}");
}

#[test]
fn a_dump_tells_origins() {
    let settings = train(&["a.py", "--seed=3"], &[("a.py", "\nbatch_size = 4")]);
    let text = documents::dump(&settings);
    assert!(text.contains("batch_size = 4 # a.py:2\n"), "{text}");
    assert!(text.contains("seed = 3 # argument 2\n"), "{text}");
    assert!(text.contains("\nn_layer = 12\n"), "{text}");
    let preset = documents::dump(&train(&[], &[]));
    assert!(preset.contains("dataset = 'builtin' # built-in preset\n"), "{preset}");
}
