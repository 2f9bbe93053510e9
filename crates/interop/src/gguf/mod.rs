//! GGUF, the file of llama.cpp and Ollama: one file with the model's sizes, the tokenizer and the
//! weights.

mod encode;
mod vocabulary;
mod write;

pub use write::write;
