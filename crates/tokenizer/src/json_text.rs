//! Writes a vocabulary as a tokenizer.json, as Hugging Face's `tokenizers` would save it.

use crate::byte_pairs::BytePairs;
use serde_json::{Map, Value, json};

/// Most bytes of such a text that a checkpoint keeps; 65,536 tokens usually need half.
pub const MOST_KEPT: usize = 4 << 20;

/// The text of the file.
pub fn write(pairs: &BytePairs) -> String {
    let ids = 0..pairs.vocab_size().min(1 << 16) as u16;
    let used = ids.filter(|id| pairs.is_used(*id));
    let vocab: Map<String, Value> = used.map(|id| (pairs.name(id), json!(id))).collect();
    let merge = |(left, right, _)| format!("{} {}", pairs.name(left), pairs.name(right)).into();
    let merges: Vec<Value> = pairs.merges().into_iter().map(merge).collect();
    let added = pairs.added_tokens().iter().map(|token| {
        json!({
            "id": token.id,
            "content": token.content,
            "single_word": false,
            "lstrip": token.lstrip,
            "rstrip": token.rstrip,
            "normalized": token.normalized,
            "special": token.special,
        })
    });
    let byte_level = |trim: bool| {
        json!({
            "type": "ByteLevel",
            "add_prefix_space": false,
            "trim_offsets": trim,
            "use_regex": true,
        })
    };
    let file = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": byte_level(true),
        "post_processor": byte_level(false),
        "decoder": byte_level(true),
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": false,
            "vocab": vocab,
            "merges": merges,
        },
    });
    file.to_string()
}
