//! The files of `config/`: they parse, say what DESIGN and nanoGPT say, give the models they name.

use crate::typing::changed;
use fitgpt_spec::{Command, Environment, RunSpec, Settings, World, resolve};
use std::path::Path;

fn load(name: &str) -> Settings {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read(root.join(path));
    let arguments = [format!("config/{name}.py")];
    let world = World { read: &read, unix_time: 0.0 };
    Settings::read(Command::Train, &arguments, &world).unwrap_or_else(|error| panic!("{error}"))
}

fn run(name: &str) -> RunSpec {
    resolve(&load(name), &Environment::default()).unwrap().0
}

#[test]
fn values_are_those_of_design_and_nanogpt() {
    for (name, want) in [
        (
            "train_shakespeare_char",
            "out_dir='out-shakespeare-char' eval_interval=250 log_interval=10 \
             always_save_checkpoint=False dataset='shakespeare_char' \
             gradient_accumulation_steps=1 batch_size=64 block_size=256 n_layer=6 n_head=6 \
             n_embd=384 dropout=0.2 learning_rate=0.001 max_iters=5000 beta2=0.99 \
             warmup_iters=100 lr_decay_iters=5000 min_lr=0.0001",
        ),
        (
            "train_gpt2",
            "eval_interval=1000 log_interval=10 wandb_log=True wandb_run_name='gpt2-124M'",
        ),
        ("train_openwebtext", "out_dir='out-openwebtext'"),
        (
            "case_a_124m_b64",
            "log_interval=100 dataset='openwebtext_local' gradient_accumulation_steps=1 \
             batch_size=64 max_iters=20000 dtype='bfloat16'",
        ),
        (
            "case_b_77m_fp16",
            "dataset='fineweb' gradient_accumulation_steps=32 batch_size=16 n_embd=576 \
             dtype='float16'",
        ),
        (
            "train_fineweb",
            "eval_interval=500 eval_iters=100 dataset='fineweb' gradient_accumulation_steps=32 \
             batch_size=16 n_head=8 n_embd=512 dtype='float16' eval_batch_size=4 \
             grad_checkpoint=True",
        ),
    ] {
        assert_eq!(changed(&load(name)).join(" "), want, "{name}");
    }
}

#[test]
fn every_file_of_the_folder_is_tested_and_explains_every_value() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let want = "case_a_124m_b64.py case_b_77m_fp16.py train_fineweb.py train_gpt2.py \
                train_openwebtext.py train_shakespeare_char.py";
    assert_eq!(names.join(" "), want);
    for name in names {
        let text = std::fs::read_to_string(folder.join(&name)).unwrap();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| line.contains(" = ")) {
            assert!(line.contains(" # ") || line.starts_with('#'), "{name}:{}: {line}", index + 1);
        }
    }
}

#[test]
fn models_have_the_stated_sizes() {
    for (name, vocab_size, millions, tokens) in [
        ("train_shakespeare_char", 65, "10.65", 16_384),
        ("train_gpt2", 50304, "123.59", 491_520),
        ("train_openwebtext", 50304, "123.59", 491_520),
        ("case_a_124m_b64", 50304, "123.59", 65_536),
        ("case_b_77m_fp16", 50304, "76.77", 524_288),
        ("train_fineweb", 50304, "63.52", 524_288),
    ] {
        let run = run(name);
        let dims = run.dims(vocab_size).unwrap();
        let parameters = run.architecture().reported_parameters(&dims).unwrap();
        assert_eq!(format!("{:.2}", parameters as f64 / 1e6), millions, "{name}");
        assert_eq!(run.tokens_per_iteration(), tokens, "{name}");
    }
    assert_eq!(run("case_b_77m_fp16").dims(50304).unwrap().head_size(), 48);
}
