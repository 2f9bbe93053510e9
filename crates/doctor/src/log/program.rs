//! Which program wrote the log. Only a line of nanoGPT's own permits its defaults: a message of
//! PyTorch alone says nothing about the program.

use super::message::{Dialect, Message};
use super::run::RunLines;
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
    /// JAX, and what is built on XLA's client.
    Jax,
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
            Program::Jax => "jax",
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
    /// Its name, if it is another program that we know by name.
    pub name: Option<&'static str>,
}

/// Words that only one program, or what is built on it, writes. The first row that occurs anywhere
/// wins. llama2.c, modded-nanogpt and build-nanogpt share lines with nanoGPT but not its model.
const SIGNS: [(&str, Program); 65] = [
    ("of memory are missing: the smallest plan", Program::Fitgpt),
    ("llama2.c", Program::OtherTorch),
    ("modded-nanogpt", Program::OtherTorch),
    ("build-nanogpt", Program::OtherTorch),
    ("minimind", Program::OtherTorch),
    ("kohya_ss", Program::OtherTorch),
    ("sd-scripts", Program::OtherTorch),
    ("ComfyUI", Program::OtherTorch),
    ("stable-diffusion-webui", Program::OtherTorch),
    ("tokens per iteration will be:", Program::NanoGpt),
    ("Overriding config with ", Program::NanoGpt),
    ("Overriding: ", Program::NanoGpt),
    ("defaulting to vocab_size of GPT-2 to", Program::NanoGpt),
    ("nanochat", Program::Nanochat),
    ("scripts.base_train", Program::Nanochat),
    ("base_train", Program::Nanochat),
    ("[CUDA ERROR] at file", Program::LlmC),
    ("train_gpt2.cu", Program::LlmC),
    ("train_gpt2cu", Program::LlmC),
    ("llm.c", Program::LlmC),
    ("train_gpt2.py", Program::LlmC),
    ("lit-llama", Program::LitGpt),
    ("lit_llama", Program::LitGpt),
    ("litgpt", Program::LitGpt),
    ("lit-gpt", Program::LitGpt),
    ("lit_gpt", Program::LitGpt),
    ("lit-parrot", Program::LitGpt),
    ("finetune/lora.py", Program::LitGpt),
    ("finetune/adapter", Program::LitGpt),
    ("finetune/full.py", Program::LitGpt),
    ("losses = estimate_loss()", Program::NanoGpt),
    ("logits, loss = model(X, Y)", Program::NanoGpt),
    ("train.py config/", Program::NanoGpt),
    ("site-packages/transformers", Program::HfTransformers),
    ("site-packages\\transformers", Program::HfTransformers),
    ("dist-packages/transformers", Program::HfTransformers),
    ("transformers/trainer.py", Program::HfTransformers),
    ("run_language_modeling.py", Program::HfTransformers),
    ("run_clm", Program::HfTransformers),
    ("run_lm_finetuning", Program::HfTransformers),
    ("pytorch_transformers", Program::HfTransformers),
    ("transformers/examples", Program::HfTransformers),
    ("from transformers import", Program::HfTransformers),
    ("TrainingArguments", Program::HfTransformers),
    ("SFTTrainer", Program::HfTransformers),
    ("trainer.train()", Program::HfTransformers),
    ("per_device_train_batch_size", Program::HfTransformers),
    ("per_gpu_train_batch_size", Program::HfTransformers),
    ("LLaMA-Factory", Program::HfTransformers),
    ("llamafactory", Program::HfTransformers),
    ("GPT2LMHeadModel", Program::HfTransformers),
    ("from_pretrained(", Program::HfTransformers),
    ("huggingface", Program::HfTransformers),
    ("unsloth", Program::HfTransformers),
    ("ms-swift", Program::HfTransformers),
    ("jaxlib", Program::Jax),
    ("XlaRuntimeError", Program::Jax),
    ("site-packages/jax/", Program::Jax),
    ("dist-packages/jax/", Program::Jax),
    ("BufferAssignment OOM", Program::Jax),
    ("tensorflow/core/", Program::TensorFlow),
    ("tensorflow/stream_executor/", Program::TensorFlow),
    ("site-packages/tensorflow", Program::TensorFlow),
    ("dist-packages/tensorflow", Program::TensorFlow),
    ("import tensorflow", Program::TensorFlow),
];

/// Keys that only nanoGPT and what derives from it have together.
const KEYS: [&str; 8] = [
    "n_layer",
    "n_head",
    "n_embd",
    "block_size",
    "batch_size",
    "eval_iters",
    "gradient_accumulation_steps",
    "eval_interval",
];

/// Keys that, on a command line with `=`, say that it is nanoGPT's.
const FLAGS: [&str; 8] = [
    "--compile=",
    "--block_size=",
    "--eval_iters=",
    "--n_layer=",
    "--n_embd=",
    "--init_from=",
    "--eval_interval=",
    "--gradient_accumulation_steps=",
];

impl Found {
    /// The program of a log.
    pub fn find(lines: &[Line], message: &Message, run: &RunLines) -> Found {
        // A PyTorch program may print TensorFlow's warnings, so its error decides.
        let torch = is_torch(lines, message);
        let signs = SIGNS.iter().filter(|(_, program)| !torch || *program != Program::TensorFlow);
        let of_signs = signs.filter_map(|(words, program)| {
            let line = lines.iter().find(|line| line.text.contains(words))?;
            let name = (*program == Program::OtherTorch).then_some(*words);
            Some(Found { name, ..Found::by(*program, &line.text) })
        });
        let found = match message.dialect {
            Dialect::TensorFlow => {
                let own = |line: &&Line| {
                    line.text.contains("ResourceExhausted") || line.text.contains("OOM when")
                };
                let line = lines.iter().find(own).map_or("", |line| line.text.as_str());
                Some(Found::by(Program::TensorFlow, line))
            }
            _ => of_signs.into_iter().next(),
        };
        let found = found
            .or_else(|| by_command(lines))
            .or_else(|| by_name(lines))
            .or_else(|| by_keys(run))
            .or_else(|| by_torch(lines, message));
        let mut found =
            found.unwrap_or(Found { program: Program::Unknown, evidence: None, name: None });
        if found.program == Program::NanoGpt && (!run.unknown_keys.is_empty() || is_fork(lines)) {
            found.program = Program::NanoGptFork;
        }
        found
    }

    fn by(program: Program, evidence: &str) -> Found {
        const LONGEST: usize = 200;
        let evidence: String = evidence.trim().chars().take(LONGEST).collect();
        Found { program, evidence: Some(evidence), name: None }
    }
}

/// Whether PyTorch wrote the error. One without numbers may be any program's.
fn is_torch(lines: &[Line], message: &Message) -> bool {
    match message.dialect {
        Dialect::TensorFlow | Dialect::None => false,
        Dialect::Bare | Dialect::Driver | Dialect::Library => {
            lines.iter().any(|line| line.text.contains("torch"))
        }
        _ => true,
    }
}

/// `python train.py --compile=False`.
fn by_command(lines: &[Line]) -> Option<Found> {
    let typed = |line: &&Line| {
        line.text.contains("train.py") && FLAGS.iter().any(|flag| line.text.contains(flag))
    };
    lines.iter().find(typed).map(|line| Found::by(Program::NanoGpt, &line.text))
}

/// A path or a sentence that names nanoGPT.
fn by_name(lines: &[Line]) -> Option<Found> {
    let mut told = lines.iter().filter(|line| line.told);
    let line = told.find(|line| words(&line.text).any(is_nanogpt))?;
    Some(Found::by(Program::NanoGpt, &line.text))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)))
}

fn is_nanogpt(word: &str) -> bool {
    word.len() < 60 && word.to_ascii_lowercase().contains("nanogpt")
}

/// Whether a path has nanoGPT's name with something added.
fn is_fork(lines: &[Line]) -> bool {
    lines.iter().filter(|line| line.text.contains("File ") && line.text.contains(".py")).any(
        |line| {
            let mut parts = line.text.split(['/', '\\', '"']);
            parts.any(|part| is_nanogpt(part) && !part.eq_ignore_ascii_case("nanogpt"))
        },
    )
}

/// A note that has nanoGPT's keys.
fn by_keys(run: &RunLines) -> Option<Found> {
    let has = |key: &&&str| run.settings.iter().any(|row| row.key == **key);
    let named: Vec<&str> = KEYS.iter().filter(has).copied().collect();
    let model =
        named.iter().any(|key| matches!(*key, "n_layer" | "n_head" | "n_embd" | "eval_iters"));
    (named.len() >= 4 && model).then(|| Found::by(Program::NanoGpt, &named.join(", ")))
}

/// PyTorch's message, or a frame of it.
fn by_torch(lines: &[Line], message: &Message) -> Option<Found> {
    let wrote = matches!(
        message.dialect,
        Dialect::Torch13 | Dialect::Torch20 | Dialect::Torch21 | Dialect::Torch23 | Dialect::Mps
    );
    let line = lines.iter().find(|line| {
        line.text.contains("torch")
            || line.text.contains("PyTorch")
            || line.text.contains("DefaultCPUAllocator")
            || line.text.contains("RuntimeError: CUDA error")
    });
    match line {
        Some(line) => Some(Found::by(Program::OtherTorch, &line.text)),
        None if wrote => {
            let line = lines.iter().find(|line| line.text.contains("llocate"));
            Some(Found::by(Program::OtherTorch, line.map_or("", |line| &line.text)))
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::log::{Log, Program};

    #[test]
    fn programs_are_recognised_by_their_lines() {
        let message = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 7.00 \
            GiB total capacity; 6.00 GiB already allocated; 0 bytes free; 6.10 GiB reserved in \
            total by PyTorch)";
        for (text, want) in [
            ("tokens per iteration will be: 1,024", Program::NanoGpt),
            ("Overriding: use_rope = True", Program::NanoGptFork),
            ("$ torchrun train.py --dtype=float16 --compile=False", Program::NanoGpt),
            ("  File \"/x/nanoGPT-moe/train.py\", line 3, in f", Program::NanoGptFork),
            ("I train nanoGPT on my own books.", Program::NanoGpt),
            ("batch_size=4, block_size=256, n_layer=6, n_head=6", Program::NanoGpt),
            ("  File \"/x/modded-nanogpt/train_gpt2.py\", line 3, in f", Program::OtherTorch),
            ("torchrun -m scripts.base_train -- --depth=20", Program::Nanochat),
            ("(x) me@host:~/llm.c$ python train_gpt2.py", Program::LlmC),
            ("  File \"finetune/lora.py\", line 3, in f # lit-gpt", Program::LitGpt),
            (
                "  File \"/x/site-packages/transformers/trainer.py\", line 3",
                Program::HfTransformers,
            ),
            ("-> 3 trainer.train()", Program::HfTransformers),
            ("tensorflow/core/platform: a warning", Program::OtherTorch),
            ("", Program::OtherTorch),
        ] {
            let found = Log::read(format!("{text}\n{message}").as_bytes()).program;
            assert_eq!(found.program, want, "{text}: {found:?}");
            assert!(found.evidence.is_some());
        }
        let text =
            "ResourceExhaustedError: OOM when allocating tensor with shape[8,512] and type float";
        assert_eq!(Log::read(text.as_bytes()).program.program, Program::TensorFlow);
        assert_eq!(Log::read(b"Killed").program.program, Program::Unknown);
    }
}
