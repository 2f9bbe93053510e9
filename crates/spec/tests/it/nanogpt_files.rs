//! The facts of nanoGPT's seven presets, in texts of our own with the same keys, values and
//! constructs: each must mean what it means there.

use crate::typing::{NOW, changed, train};

const TRAIN_GPT2: &str = "
# half a million tokens an iteration
wandb_log=True
wandb_project = 'owt'; wandb_run_name='gpt2-124M'
batch_size = 12 # sequences
block_size = 1024
gradient_accumulation_steps = 5 * 8
max_iters = 600000
lr_decay_iters = 600000
eval_interval = 1000
eval_iters = 200
log_interval = 10
weight_decay = 1e-1
";

const SHAKESPEARE_CHAR: &str = "
out_dir = 'out-shakespeare-char'
eval_interval = 250 # it overfits
eval_iters = 200
log_interval = 10

always_save_checkpoint = False
wandb_log = False
wandb_project = 'shakespeare-char'
wandb_run_name = 'mini-gpt'

dataset = 'shakespeare_char'
gradient_accumulation_steps = 1
batch_size = 64
block_size = 256
n_layer = 6
n_head = 6
n_embd = 384
dropout = 0.2
learning_rate = 1e-3
max_iters = 5000
lr_decay_iters = 5000
min_lr = 1e-4
beta2 = 0.99
warmup_iters = 100
# device = 'cpu'
# compile = False
";

const FINETUNE: &str = "import time

out_dir = 'out-shakespeare'
eval_interval = 5
eval_iters = 40
wandb_log = False
wandb_project = 'shakespeare'
wandb_run_name = 'ft-' + str(time.time())
dataset = 'shakespeare'
init_from = 'gpt2-xl'
always_save_checkpoint = False
batch_size = 1
gradient_accumulation_steps = 32
max_iters = 20
learning_rate = 3e-5
decay_lr = False
";

fn found(text: &str) -> String {
    changed(&train(&["preset.py"], &[("preset.py", text)])).join(" ")
}

#[test]
fn train_gpt2() {
    let want = "eval_interval=1000 log_interval=10 wandb_log=True wandb_run_name='gpt2-124M'";
    assert_eq!(found(TRAIN_GPT2), want);
}

#[test]
fn train_shakespeare_char() {
    let want = "out_dir='out-shakespeare-char' eval_interval=250 log_interval=10 \
                always_save_checkpoint=False wandb_project='shakespeare-char' \
                wandb_run_name='mini-gpt' dataset='shakespeare_char' \
                gradient_accumulation_steps=1 batch_size=64 block_size=256 n_layer=6 n_head=6 \
                n_embd=384 dropout=0.2 learning_rate=0.001 max_iters=5000 beta2=0.99 \
                warmup_iters=100 lr_decay_iters=5000 min_lr=0.0001";
    assert_eq!(found(SHAKESPEARE_CHAR), want);
}

#[test]
fn finetune_shakespeare() {
    let want = format!(
        "out_dir='out-shakespeare' eval_interval=5 eval_iters=40 always_save_checkpoint=False \
         init_from='gpt2-xl' wandb_project='shakespeare' wandb_run_name='ft-{NOW}' \
         dataset='shakespeare' gradient_accumulation_steps=32 batch_size=1 learning_rate=3e-05 \
         max_iters=20 decay_lr=False"
    );
    assert_eq!(found(FINETUNE), want);
}

#[test]
fn the_four_evaluations_of_gpt2() {
    for name in ["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"] {
        let text = format!(
            "# OpenAI's weights\nbatch_size = 8\neval_iters = 500 # a good estimate\n\
             eval_only = True\nwandb_log = False\ninit_from = '{name}'\n"
        );
        let want = format!("eval_iters=500 eval_only=True init_from='{name}' batch_size=8");
        assert_eq!(found(&text), want);
    }
}

#[test]
fn the_same_facts_in_toml() {
    let text = "wandb_log = true\nwandb_run_name = \"gpt2-124M\"\neval_interval = 1_000\n\
                log_interval = 10\nweight_decay = 1e-1\ndropout = 0\n";
    let settings = train(&["preset.toml"], &[("preset.toml", text)]);
    assert_eq!(changed(&settings).join(" "), found(TRAIN_GPT2));
}
