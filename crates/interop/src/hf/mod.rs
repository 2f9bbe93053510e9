//! Folders as Hugging Face's `transformers` saves and loads them: `config.json`, weights as
//! safetensors, and the files of a tokenizer.

mod config;
mod shards;
mod read;
mod tokenizer;
mod write;

pub use config::Config;
pub use read::{is_folder, open};
pub use write::{check_folder, write};

/// The file that says which model a folder holds.
pub const CONFIG: &str = "config.json";
