//! Settings that are refused when they are resolved: each message has the value, where it was
//! given, and what to do.

use crate::typing::{read, run_of};
use fitgpt_spec::{Command, Environment, resolve};
use plan::Rank;

#[test]
fn values_outside_their_range() {
    for (argument, want) in [
        ("batch_size=0", "batch_size=0 (argument 1): it must be at least 1; the default is 12"),
        ("gradient_accumulation_steps=-1", "it must be at least 1; the default is 40"),
        ("block_size=0", "it must be at least 1; the default is 1024"),
        ("eval_iters=0", "it must be at least 1; the default is 200"),
        ("eval_interval=0", "it must be at least 1"),
        ("log_interval=0", "it must be at least 1"),
        ("n_layer=0", "it must be at least 1"),
        ("n_layer=513", "it must be at most 512"),
        ("n_head=-3", "it must be at least 1"),
        ("batch_size=99999999999", "batch_size=99999999999 (argument 1): it must be at most 21474"),
        ("max_iters=-1", "it must be at least 0"),
        ("warmup_iters=-1", "it must be at least 0"),
        ("eval_batch_size=-1", "it must be at least 0"),
        ("seed=-1", "it must be at least 0; the default is 1337"),
        ("dropout=1", "dropout=1.0 (argument 1): it must be at least 0 and below 1"),
        ("dropout=-0.1", "it must be at least 0 and below 1; the default is 0.0"),
        ("beta1=1.0", "it must be at least 0 and below 1; the default is 0.9"),
        ("beta2=1.5", "it must be at least 0 and below 1; the default is 0.95"),
        (
            "learning_rate=-1e-3",
            "learning_rate=-0.001 (argument 1): it must be finite and at least",
        ),
        ("learning_rate=1e999", "learning_rate=inf (argument 1): it must be finite"),
        ("min_lr=-1", "it must be finite and at least 0"),
        ("weight_decay=-1", "it must be finite and at least 0"),
        ("grad_clip=-1", "it must be finite and at least 0"),
        ("eval_block_size=2048", "it must be at most block_size=1024; 0 means block_size"),
        ("out_dir=", "out_dir='' (argument 1): it must not be empty; the default is 'out'"),
        ("dataset=", "it must not be empty"),
    ] {
        let arguments = [&format!("--{argument}"), "--init_from=scratch"];
        let message = run_of(Command::Train, &arguments).unwrap_err().to_string();
        assert!(message.contains(want), "{argument}: {message}");
        assert!(!message.contains('\n'), "{message}");
    }
    for (argument, want) in [
        ("temperature=-1", "(argument 1): it must be 0 or above; the default is 0.8"),
        ("top_p=0", "it must be above 0 and at most 1; the default is 1.0"),
        ("top_p=1.5", "it must be above 0 and at most 1"),
        ("top_k=-1", "it must be at least 0; the default is 200"),
        ("num_samples=0", "it must be at least 1; the default is 10"),
        ("max_new_tokens=0", "it must be at least 1"),
        ("init_from=scratch", "use 'resume', which reads out_dir's checkpoint"),
    ] {
        let argument = format!("--{argument}");
        let message = run_of(Command::Sample, &[&argument]).unwrap_err().to_string();
        assert!(message.contains(want), "{argument}: {message}");
    }
}

#[test]
fn unknown_words_list_the_known() {
    for (argument, want) in [
        (
            "dtype=fp16",
            "dtype='fp16' (argument 1): choose 'auto', 'float32', 'bfloat16' or 'float16'",
        ),
        ("sampler=torch", "choose 'fitgpt' or 'nanogpt'"),
        ("optimizer_state=int8", "choose 'float32', 'bfloat16' or 'auto'"),
        (
            "offload=True",
            "offload=True (argument 1): choose False, 'optimizer', 'activations' or 'auto'",
        ),
        ("grad_checkpoint=yes", "choose 'auto', True or False"),
        ("residual=bfloat16", "choose 'auto' or 'float32'"),
        ("gelu=relu", "choose 'auto', 'erf' or 'tanh'"),
        ("device=gpu", "choose 'auto', 'cpu', 'cuda' or a GPU by number, e.g. 'cuda:1'"),
        ("device=mps", "there is no mps backend; use cpu, or cuda on Linux"),
        ("device=cuda:", "choose 'auto', 'cpu', 'cuda'"),
        ("device=cuda:+1", "choose 'auto', 'cpu', 'cuda'"),
        ("vram=lots", "vram='lots' (argument 1): choose 'auto', a size such as '11.69GiB'"),
        ("ram=0", "ram=0 (argument 1): choose 'auto', a size"),
        ("vram=8", "vram=8 (argument 1): a bare number is bytes; did you mean 8GiB?"),
        ("vram=11.69", "did you mean 11.69GiB?"),
        ("vram='8'", "did you mean 8GiB?"),
    ] {
        let argument = format!("--{argument}");
        let message = run_of(Command::Train, &[&argument]).unwrap_err().to_string();
        assert!(message.contains(want), "{argument}: {message}");
    }
}

#[test]
fn settings_that_exclude_each_other() {
    for (arguments, want) in [
        (
            &["--sampler=nanogpt", "--eval_batch_size=4", "--batch_size=8"] as &[&str],
            "eval_batch_size=4 with sampler='nanogpt': nanoGPT evaluates batches of \
             batch_size=8; use eval_batch_size=0 or sampler='fitgpt'",
        ),
        (
            &["--init_from=gpt2", "--block_size=2048"],
            "block_size=2048 (argument 2): gpt2 has 1024 positions; use block_size=1024",
        ),
        (
            &[
                "--batch_size=2147483648",
                "--gradient_accumulation_steps=65536",
                "--block_size=2147483648",
            ],
            "batch_size x gradient_accumulation_steps x block_size = 2147483648 x 65536 x \
             2147483648: more than 2^63 tokens; make one smaller",
        ),
    ] {
        let message = run_of(Command::Train, arguments).unwrap_err().to_string();
        assert_eq!(message, want);
    }
    assert!(run_of(Command::Train, &["--sampler=nanogpt", "--eval_batch_size=2"]).is_ok());
}

#[test]
fn sequences_that_ranks_cannot_share() {
    let refused = |ranks: usize, arguments: &[&str]| {
        let settings = read(Command::Train, arguments, &[]).unwrap();
        let rank = Rank { rank: ranks - 1, ranks };
        let resolved = resolve(&settings, &Environment { rank, ..Environment::default() });
        resolved.map(|_| ()).unwrap_err().to_string()
    };
    let small = ["--batch_size=4", "--gradient_accumulation_steps=3"];
    let with = |more: &'static str| [small[0], small[1], more];
    for (ranks, arguments, want) in [
        (5, &small[..], "12 sequences cannot be divided among 5 ranks; 10 or 15 can"),
        (2, &with("--reduce_groups=8"), "cannot be divided among 8 groups (reduce_groups)"),
        (2, &with("--reduce_groups=3"), "it must be a multiple of the 2 ranks; 0 means 2"),
        (2, &with("--sampler=nanogpt"), "nanoGPT divides gradient_accumulation_steps=3"),
    ] {
        let message = refused(ranks, arguments);
        assert!(message.contains(want) && !message.contains('\n'), "{message}");
    }
}

#[test]
fn widths_that_heads_do_not_divide() {
    for (arguments, want) in [
        (
            ["--n_layer=12", "--n_embd=512", "--n_head=12"],
            "n_head=8 (63.5M parameters), n_embd=576 (76.8M)",
        ),
        (["--n_layer=12", "--n_embd=448", "--n_head=12"], "n_head=7 (51.4M parameters)"),
        (["--n_layer=12", "--n_embd=448", "--n_head=12"], "n_embd=576 (76.8M)"),
    ] {
        let (run, _) = run_of(Command::Train, &arguments).unwrap();
        let message = run.dims(50304).unwrap_err().to_string();
        assert!(message.contains(want), "{message}");
    }
}

/// A name may have any length, a message may not.
#[test]
fn the_name_of_a_model_is_shortened() {
    let model = format!("--init_from={}", "-".repeat(7000));
    let (run, notices) = run_of(Command::Train, &[&model, "--n_layer=2"]).unwrap();
    let message = run.dims(50304).unwrap_err().to_string();
    assert!(message.contains("--…': the sizes of this model are not known"), "{message}");
    let notice = notices.iter().map(ToString::to_string).find(|line| line.contains("fixes it"));
    assert!(message.len() < 200 && notice.is_some_and(|line| line.len() < 200), "{notices:?}");
}
