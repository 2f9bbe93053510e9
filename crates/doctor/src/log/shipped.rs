//! What nanoGPT's own config files set. A log that shows only the command names the file but not
//! its content.

/// Settings of a file that affect memory.
type Settings = &'static [(&'static str, &'static str)];

/// Files by name, as they are in nanoGPT's `config` folder.
const FILES: [(&str, Settings); 7] = [
    ("train_gpt2.py", &[("batch_size", "12"), ("gradient_accumulation_steps", "40")]),
    (
        "train_shakespeare_char.py",
        &[
            ("dataset", "shakespeare_char"),
            ("gradient_accumulation_steps", "1"),
            ("batch_size", "64"),
            ("block_size", "256"),
            ("n_layer", "6"),
            ("n_head", "6"),
            ("n_embd", "384"),
            ("dropout", "0.2"),
        ],
    ),
    (
        "finetune_shakespeare.py",
        &[
            ("dataset", "shakespeare"),
            ("init_from", "gpt2-xl"),
            ("batch_size", "1"),
            ("gradient_accumulation_steps", "32"),
        ],
    ),
    ("eval_gpt2.py", &[("batch_size", "8"), ("init_from", "gpt2")]),
    ("eval_gpt2_medium.py", &[("batch_size", "8"), ("init_from", "gpt2-medium")]),
    ("eval_gpt2_large.py", &[("batch_size", "8"), ("init_from", "gpt2-large")]),
    ("eval_gpt2_xl.py", &[("batch_size", "8"), ("init_from", "gpt2-xl")]),
];

/// The settings of one of nanoGPT's own files, by its path (`config/train_gpt2.py`).
pub fn of_file(path: &str) -> Settings {
    let name = path.strip_prefix("config/").or_else(|| path.strip_prefix("./config/"));
    let found = FILES.iter().find(|(file, _)| name == Some(file));
    found.map_or(&[], |(_, settings)| settings)
}
