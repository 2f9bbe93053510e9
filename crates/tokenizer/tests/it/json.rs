//! tokenizer.json: what is written is read back, and hostile files are refused.

use fitgpt_tokenizer::Tokenizer;
use serde_json::{Map, Value, json};

/// A file with the 256 bytes, printable ones first, and two merges: "he" and "the".
pub fn small() -> Value {
    let mut vocab = Map::new();
    let letters = ('!'..='~').chain('\u{a1}'..='\u{ac}').chain('\u{ae}'..='\u{ff}');
    for (letter, id) in letters.chain('\u{100}'..='\u{143}').zip(0..) {
        vocab.insert(letter.to_string(), json!(id));
    }
    for (name, id) in [("he", 256), ("the", 257), ("<eos>", 258)] {
        vocab.insert(name.to_owned(), json!(id));
    }
    json!({
        "model": {"type": "BPE", "vocab": vocab, "merges": ["h e", ["t", "he"]]},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
        "added_tokens": [{"id": 258, "content": "<eos>", "special": true}],
        "normalizer": null,
    })
}

fn read(file: &Value) -> Result<Tokenizer, String> {
    Tokenizer::from_json(file.to_string().as_bytes())
}

#[test]
fn a_small_file() {
    let tokenizer = read(&small()).unwrap();
    assert_eq!(tokenizer.encode("the").unwrap(), [257]);
    assert_eq!(tokenizer.encode("hehe<eos>").unwrap(), [256, 256, 258]);
    assert_eq!(tokenizer.decode(&[257, 258, 259]), "the<eos>\u{fffd}");
    assert_eq!((tokenizer.vocab_size(), tokenizer.end_of_text()), (259, Some(258)));
    assert!(!tokenizer.byte_pairs().unwrap().is_gpt2());
}

#[test]
fn what_is_written_is_read_back() {
    let mut file = small();
    // A merge that is listed twice, an id that is skipped, names that are not bytes.
    file["model"]["merges"] = json!(["h e", "t he", "h e", ["中", "中"]]);
    file["model"]["vocab"]["中"] = json!(300);
    file["model"]["vocab"]["中中"] = json!(301);
    file["added_tokens"][0]["lstrip"] = json!(true);
    let tokenizer = read(&file).unwrap();
    let text = tokenizer.to_json().unwrap();
    assert_eq!(Tokenizer::from_json(text.as_bytes()), Ok(tokenizer.clone()));
    assert_eq!(Tokenizer::from_json(text.as_bytes()).unwrap().to_json().unwrap(), text);
    assert_eq!(tokenizer.decode(&[301]), "中中");
    assert_ne!(Ok(tokenizer), read(&small()));
}

#[test]
fn gpt2_is_written_as_hugging_face_has_it_and_recognised() {
    let text = Tokenizer::Gpt2.to_json().unwrap();
    let file: Value = serde_json::from_str(text).unwrap();
    assert_eq!(file["model"]["vocab"]["Ġworld"], 995);
    assert_eq!(file["model"]["vocab"]["<|endoftext|>"], 50256);
    assert_eq!(file["model"]["merges"].as_array().unwrap().len(), 50_000);
    let read = Tokenizer::from_json(text.as_bytes()).unwrap();
    assert!(read.byte_pairs().unwrap().is_gpt2());
    let words = "It's 2026: naïve 中文,\n\n  don't!<|endoftext|>";
    assert_eq!(read.encode(words), Tokenizer::Gpt2.encode(words));
    assert!(text.len() < 2 << 20, "{}", text.len());
}

#[test]
fn contradictions_are_refused() {
    let change = |key: &str, value: Value| {
        let mut file = small();
        file["model"]["vocab"][key] = value;
        read(&file).unwrap_err()
    };
    assert!(change("x y", json!(5)).contains("gives id 5 to '&' and 'x y'"));
    assert!(change("far", json!(65_536)).contains("token 'far' has id 65536"));
    assert!(change("odd", json!("7")).contains("token 'odd' has id 18446744073709551615"));
    let text = small().to_string().replacen("\"he\":256", "\"he\":256,\"he\":300", 1);
    assert_eq!(Tokenizer::from_json(text.as_bytes()), Err("has token 'he' twice".to_owned()));
}

/// Every cut of the file and every changed byte ends in an error or a tokenizer, never in a panic.
#[test]
fn damaged_files() {
    let good = small().to_string().into_bytes();
    for end in (0..good.len()).step_by(7) {
        assert!(Tokenizer::from_json(&good[..end]).is_err(), "{end}");
    }
    for at in (0..good.len()).step_by(5) {
        for bit in [1, 32, 128] {
            let mut bytes = good.clone();
            bytes[at] ^= bit;
            if let Ok(tokenizer) = Tokenizer::from_json(&bytes) {
                let ids = tokenizer.encode("the he <eos> 中文").unwrap();
                assert!(!tokenizer.decode(&ids).is_empty());
            }
        }
    }
}
