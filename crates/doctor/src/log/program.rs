//! Which program wrote the log. Only a line of nanoGPT's own permits its defaults: a message of
//! PyTorch alone says nothing about the program.

use super::text::Line;

/// The program that ran out of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// nanoGPT.
    NanoGpt,
    /// nanoGPT with keys or files that it does not have.
    NanoGptFork,
    /// nanochat.
    Nanochat,
    /// llm.c, in C or with its `train_gpt2.py`.
    LlmC,
    /// LitGPT, Lit-LLaMA.
    LitGpt,
    /// Hugging Face's transformers, and what is built on its Trainer.
    HfTransformers,
    /// TensorFlow, Keras.
    TensorFlow,
    /// This program.
    Fitgpt,
    /// Another program that uses PyTorch.
    OtherTorch,
    /// The log does not say.
    Unknown,
}

impl Program {
    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            Program::NanoGpt => "nanogpt",
            Program::NanoGptFork => "nanogpt_fork",
            Program::Nanochat => "nanochat",
            Program::LlmC => "llm.c",
            Program::LitGpt => "litgpt",
            Program::HfTransformers => "transformers",
            Program::TensorFlow => "tensorflow",
            Program::Fitgpt => "fitgpt",
            Program::OtherTorch => "pytorch",
            Program::Unknown => "unknown",
        }
    }

    /// Whether it has nanoGPT's keys, defaults and memory.
    pub const fn is_nanogpt(self) -> bool {
        matches!(self, Program::NanoGpt | Program::NanoGptFork)
    }
}

/// A program, and why we think so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The program.
    pub program: Program,
    /// The words of the log that say it.
    pub evidence: Option<String>,
}

/// Words that only one program writes. The first row that occurs anywhere wins.
const SIGNS: [(&str, Program); 16] = [
    ("of memory are missing: the smallest plan", Program::Fitgpt),
    ("ResourceExhaustedError", Program::TensorFlow),
    ("OOM when allocating tensor with shape", Program::TensorFlow),
    ("nanochat", Program::Nanochat),
    ("[CUDA ERROR] at file", Program::LlmC),
    ("llm.c/", Program::LlmC),
    ("lit-llama", Program::LitGpt),
    ("litgpt", Program::LitGpt),
    ("site-packages/transformers", Program::HfTransformers),
    ("run_language_modeling.py", Program::HfTransformers),
    ("tokens per iteration will be:", Program::NanoGpt),
    ("Overriding config with ", Program::NanoGpt),
    ("Overriding: ", Program::NanoGpt),
    ("estimate_loss", Program::NanoGpt),
    ("nanoGPT", Program::NanoGpt),
    ("torch", Program::OtherTorch),
];

impl Found {
    /// The program of a log.
    pub fn find(lines: &[Line]) -> Found {
        for (words, program) in SIGNS {
            if lines.iter().any(|line| line.text.contains(words)) {
                return Found { program, evidence: Some(words.to_string()) };
            }
        }
        Found { program: Program::Unknown, evidence: None }
    }
}
