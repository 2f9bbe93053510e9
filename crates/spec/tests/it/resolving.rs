//! The run that settings resolve to, and the notices about it.

use crate::typing::{read, run_of};
use fitgpt_spec::{
    Command, Environment, Gelu, Gpt2, GradCheckpoint, InitFrom, KEYS, Key, Memory, Offload,
    OptimizerState, Origin, Pretrained, PretrainedModel, RequestedDevice, RequestedDtype, Residual,
    RunSpec, Sampler, Value, resolve,
};
use model::Dims;
use plan::Rank;
use plan::ops::GeluKind;

fn run(arguments: &[&str]) -> RunSpec {
    run_of(Command::Train, arguments).unwrap_or_else(|error| panic!("{error}")).0
}

#[test]
fn defaults_are_nanogpts() {
    let run = run(&["--dataset=openwebtext"]);
    assert_eq!(run.tokens_per_iteration(), 491_520);
    assert_eq!(run.init_from, InitFrom::Scratch);
    assert_eq!((run.device, run.dtype), (RequestedDevice::Auto, RequestedDtype::Auto));
    assert_eq!((run.eval_batch_size, run.eval_block_size), (12, 1024));
    assert_eq!((run.vram, run.ram), (Memory::Auto, Memory::Auto));
    assert_eq!(run.grad_checkpoint, GradCheckpoint::Auto);
    assert_eq!(run.optimizer_state, OptimizerState::Float32);
    assert_eq!((run.offload, run.residual), (Offload::Never, Residual::Auto));
    assert_eq!((run.seed, run.sampler), (1337, Sampler::Fitgpt));
    assert_eq!((run.gelu, run.gelu_kind()), (Gelu::Auto, GeluKind::Erf));
    assert_eq!((run.learning_rate, run.min_lr, run.grad_clip), (6e-4, 6e-5, Some(1.0)));
    assert_eq!((run.max_iters, run.warmup_iters, run.lr_decay_iters), (600_000, 2000, 600_000));
    let dims = run.dims(50304).unwrap();
    assert_eq!((dims.n_layer, dims.n_head, dims.n_embd, dims.bias), (12, 12, 768, false));
}

#[test]
fn words_and_numbers_have_their_meaning() {
    for (argument, check) in [
        ("--device=cpu", (|r: &RunSpec| r.device == RequestedDevice::Cpu) as fn(&RunSpec) -> bool),
        ("--device=cuda", |r| r.device == RequestedDevice::Cuda(0)),
        ("--device=cuda:3", |r| r.device == RequestedDevice::Cuda(3)),
        ("--dtype=float16", |r| r.dtype == RequestedDtype::Float16),
        ("--init_from=resume", |r| r.init_from == InitFrom::Resume),
        ("--init_from=gpt2-large", |r| {
            r.init_from == InitFrom::Pretrained(Pretrained::of_openai(Gpt2::Large))
        }),
        ("--init_from=me/model", |r| {
            r.init_from.pretrained().is_some_and(|p| p.name == "me/model" && p.model.is_none())
        }),
        ("--init_from=tests", |r| r.init_from.pretrained().is_some_and(|p| p.name == "tests")),
        ("--sampler=nanogpt", |r| r.sampler == Sampler::Nanogpt),
        ("--grad_checkpoint=True", |r| r.grad_checkpoint == GradCheckpoint::Always),
        ("--grad_checkpoint=false", |r| r.grad_checkpoint == GradCheckpoint::Never),
        ("--offload=optimizer", |r| r.offload == Offload::Optimizer),
        ("--offload=activations", |r| r.offload == Offload::Activations),
        ("--offload=auto", |r| r.offload == Offload::Auto),
        ("--optimizer_state=bfloat16", |r| r.optimizer_state == OptimizerState::Bfloat16),
        ("--residual=float32", |r| r.residual == Residual::Float32),
        ("--gelu=tanh", |r| r.gelu_kind() == GeluKind::Tanh),
        ("--vram=80%", |r| r.vram == Memory::Percent(80.0)),
        ("--vram=8GB", |r| r.vram == Memory::Bytes(plan::Bytes::new(8_000_000_000).unwrap())),
        ("--grad_clip=0", |r| r.grad_clip.is_none()),
        ("--eval_batch_size=4", |r| r.eval_batch_size == 4),
        ("--eval_block_size=64", |r| r.eval_block_size == 64),
        ("--max_iters=0", |r| r.max_iters == 0),
    ] {
        assert!(check(&run(&[argument])), "{argument}");
    }
    let (sample, _) = run_of(Command::Sample, &["--top_k=0"]).unwrap();
    assert_eq!((sample.sampling.top_k, sample.init_from), (None, InitFrom::Resume));
}

#[test]
fn every_word_of_the_table_is_understood() {
    for key in KEYS {
        for word in key.values.words() {
            let mut settings = read(Command::Train, &[], &[]).unwrap();
            let origin = Origin::Argument { index: 1 };
            settings.set_text(key.name, word, origin).unwrap();
            let resolved = resolve(&settings, &Environment::default());
            assert!(resolved.is_ok(), "{}={word}: {:?}", key.name, resolved.err());
        }
    }
}

#[test]
fn openais_models_have_their_own_sizes() {
    for (name, want) in [
        ("gpt2", [12, 12, 768]),
        ("gpt2-medium", [24, 16, 1024]),
        ("gpt2-large", [36, 20, 1280]),
        ("gpt2-xl", [48, 25, 1600]),
    ] {
        let run = run(&[&format!("--init_from={name}"), "--block_size=256"]);
        let dims = run.dims(65).unwrap();
        assert_eq!([dims.n_layer, dims.n_head, dims.n_embd], want);
        assert_eq!((dims.vocab_size, dims.block_size, dims.bias), (50257, 256, true));
        assert_eq!(run.gelu_kind(), GeluKind::Tanh);
    }
}

/// What a model's own files say goes before the table, and before keys.
#[test]
fn a_trained_model_fixes_its_sizes() {
    let dims =
        Dims { n_layer: 2, n_head: 2, n_embd: 32, block_size: 64, vocab_size: 100, bias: true };
    let pretrained = Some(PretrainedModel { dims, gelu: GeluKind::Erf });
    let environment = Environment { pretrained, ..Environment::default() };
    for name in ["gpt2-xl", "me/model"] {
        let given = format!("--init_from={name}");
        let resolved = |block_size: &str| {
            let settings = read(Command::Train, &[&given, block_size, "--n_layer=7"], &[]).unwrap();
            resolve(&settings, &environment)
        };
        let (run, notices) = resolved("--block_size=16").unwrap();
        assert_eq!(run.dims(65).unwrap(), Dims { block_size: 16, ..dims });
        assert_eq!(run.gelu_kind(), GeluKind::Erf);
        assert_eq!(notices[0].text, format!("n_layer=7 is ignored: {name} fixes it"));
        let refused = resolved("--block_size=65").unwrap_err().to_string();
        assert!(refused.contains(&format!("{name} has 64 positions")), "{refused}");
    }
    let settings = read(Command::Train, &["--init_from=me/model"], &[]).unwrap();
    let (run, _) = resolve(&settings, &environment).unwrap();
    assert_eq!((run.block_size, run.eval_block_size), (64, 64), "not given: the model's");
    let (run, _) = resolve(&settings, &Environment::default()).unwrap();
    assert!(run.dims(65).is_err());
}

fn notices(arguments: &[&str], cuda_devices: u32) -> Vec<String> {
    let environment = Environment { cuda_devices, ..Environment::default() };
    let settings = read(Command::Train, arguments, &[]).unwrap();
    let (_, notices) = resolve(&settings, &environment).unwrap();
    notices.iter().map(ToString::to_string).collect()
}

#[test]
fn notices_say_what_works_differently() {
    for (arguments, want) in [
        (&[] as &[&str], &[] as &[&str]),
        (&["--compile=False", "--dtype=float32"], &[]),
        (&["--dtype=bfloat16"], &["dtype='bfloat16' is ignored: the CPU computes in float32"]),
        (
            &["--wandb_log=True"],
            &["wandb_log=True sends nothing to wandb; the metrics are in out-builtin/log.jsonl \
               (fitgpt compare out-builtin); \
               tensorboard=True, csv=True or trackio=True writes them for other tools"],
        ),
        (
            &["--wandb_log=True", "--trackio=True", "--wandb_project=x", "--csv=True"],
            &["wandb_log=True sends nothing to wandb; the metrics are in out-builtin/log.jsonl \
               (fitgpt compare out-builtin), \
               out-builtin/metrics.csv, trackio's inbox (trackio show --project x)"],
        ),
        (
            &["--backend=gloo"],
            &["backend='gloo' means 'auto': NCCL between GPUs, MPI between CPUs"],
        ),
        (&["--compile=True"], &["compile=True is ignored: it has no effect on the CPU"]),
        (&["--vram='8GB'"], &["vram='8GB' is ignored on the CPU; ram limits its memory"]),
        (
            &["--sampler=nanogpt", "--dropout=0.1"],
            &["sampler='nanogpt' reproduces nanoGPT only with dropout=0.0; here dropout=0.1"],
        ),
        (
            &["--learning_rate=1e-5"],
            &["min_lr=0.00004 is above learning_rate=0.00001: the rate \
            will rise"],
        ),
        (&["--learning_rate=1e-5", "--decay_lr=False"], &[]),
        (&["--init_from=gpt2", "--n_layer=6"], &["n_layer=6 is ignored: gpt2 fixes it"]),
    ] {
        assert_eq!(notices(arguments, 0), want, "{arguments:?}");
    }
    let no_effect = ["--offload=activations", "--grad_checkpoint=True"];
    let want =
        "offload='activations' is ignored: grad_checkpoint=True decides what every layer keeps";
    assert_eq!(notices(&no_effect, 1), [want]);
    assert_eq!(notices(&no_effect[..1], 1), Vec::<String>::new());
    let two =
        Environment { cuda_devices: 2, rank: Rank { rank: 0, ranks: 2 }, ..Environment::default() };
    let settings = read(Command::Train, &no_effect[..1], &[]).unwrap();
    let (_, found) = resolve(&settings, &two).unwrap();
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, ["offload='activations' is ignored in a run of several ranks"]);
    // Without a GPU there is one reason for all of `offload`.
    let on_cpu = notices(&[no_effect[0], no_effect[1], "--device=cpu"], 1);
    assert_eq!(on_cpu, ["offload='activations' is ignored on the CPU; ram limits its memory"]);
    assert_eq!(notices(&["--offload=auto", no_effect[1]], 1), Vec::<String>::new());
    assert_eq!(notices(&["--dtype=float16", "--compile=True"], 1), Vec::<String>::new());
    assert_eq!(notices(&["--dtype=float16", "--device=cpu"], 1).len(), 1);
}

#[test]
fn settings_can_be_changed_by_name() {
    let mut settings = read(Command::Train, &[], &[]).unwrap();
    let origin = Origin::Argument { index: 1 };
    assert!(settings.set("batch_size", Value::Int(3), origin.clone()).is_ok());
    assert!(settings.set("batch_size", Value::Bool(true), origin.clone()).is_err());
    assert!(settings.set("bach_size", Value::Int(3), origin).is_err());
    assert_eq!(settings.get("batch_size").unwrap().value, Value::Int(3));
    assert_eq!(Key::find("nothing"), None);
}
