//! The output equals that of nanoGPT's scripts byte for byte; `tests/golden/reference.py` makes the
//! goldens. `cargo xtask peers tiktoken` compares any text.

use crate::fixture::{TempDir, by_characters, run};
use sha2::{Digest, Sha256};

fn check(text: &str, name: &str, wanted: [(u64, &str); 4]) {
    let dir = TempDir::new(name);
    run(dir.request(text, "bpe")).unwrap();
    run(by_characters(dir.request(text, "char"))).unwrap();
    let files = ["bpe/train.bin", "bpe/val.bin", "char/train.bin", "char/val.bin"];
    for (file, (tokens, sum)) in files.into_iter().zip(wanted) {
        let bytes = dir.read(file);
        let hash = Sha256::digest(&bytes);
        let found: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((bytes.len() as u64 / 2, found.as_str()), (tokens, sum), "{file}");
    }
    assert!(!dir.path("bpe/meta.pkl").exists());
    let meta = data::Meta::read(&dir.path("char/meta.pkl")).unwrap();
    let content = std::fs::read_to_string(text).unwrap();
    let mut characters: Vec<char> = content.chars().collect();
    characters.sort_unstable();
    characters.dedup();
    assert_eq!(meta.characters.unwrap().characters(), characters);
}

#[test]
fn a_small_text_of_all_kinds() {
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/small.txt");
    let bpe = [(1796, "fb19b6c05098b2e1"), (226, "bd1fb127df200c95")];
    let char = [(4292, "7af4ccec115ae94b"), (477, "eac0273ab609b25e")];
    check(text, "golden-small", [bpe[0], bpe[1], char[0], char[1]]);
}
