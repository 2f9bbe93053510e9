//! nanoGPT's command line: every spelling its configurator knows, order, precedence, origins.

use crate::typing::{read, refused, train, value};
use fitgpt_spec::{Command, Environment, Key, Origin, resolve};

#[test]
fn every_spelling_of_the_configurator_works() {
    for (argument, key, want) in [
        ("--batch_size=32", "batch_size", "32"),
        ("--gradient_accumulation_steps=1_0", "gradient_accumulation_steps", "10"),
        ("--learning_rate=6e-4", "learning_rate", "0.0006"),
        ("--learning_rate=1E-3", "learning_rate", "0.001"),
        ("--compile=False", "compile", "False"),
        ("--eval_only=True", "eval_only", "True"),
        ("--out_dir=out-x", "out_dir", "'out-x'"),
        ("--out_dir='out x'", "out_dir", "'out x'"),
        ("--out_dir=\"out\\tx\"", "out_dir", "'out\\tx'"),
        ("--init_from=gpt2-xl", "init_from", "'gpt2-xl'"),
        ("--device=cuda:1", "device", "'cuda:1'"),
        // What nanoGPT refuses and we do not: other types that mean the same, and '=' in a value.
        ("--dropout=0", "dropout", "0.0"),
        ("--learning_rate=1", "learning_rate", "1.0"),
        ("--compile=false", "compile", "False"),
        ("--eval_only=true", "eval_only", "True"),
        ("--dataset=a=b=c", "dataset", "'a=b=c'"),
        ("--wandb_run_name=123", "wandb_run_name", "'123'"),
        ("--out_dir=", "out_dir", "''"),
    ] {
        assert_eq!(value(&train(&[argument], &[]), key), want, "{argument}");
    }
    let sample = read(Command::Sample, &["--start=123"], &[]).unwrap();
    assert_eq!(value(&sample, "start"), "'123'");
}

#[test]
fn later_wins_whether_file_or_argument() {
    let files = [
        ("a.py", "batch_size = 2\ndropout = 0.1"),
        ("b.toml", "batch_size = 3"),
        ("c.py", "batch_size = batch_size * 10"),
    ];
    for (arguments, want) in [
        (&["a.py"] as &[&str], "2"),
        (&["a.py", "b.toml"], "3"),
        (&["b.toml", "a.py"], "2"),
        (&["--batch_size=4", "a.py"], "2"),
        (&["a.py", "--batch_size=4"], "4"),
        (&["a.py", "--batch_size=4", "b.toml", "--batch_size=5"], "5"),
        // A file sees what was set before it, as in nanoGPT.
        (&["c.py"], "120"),
        (&["--batch_size=4", "c.py", "c.py"], "400"),
    ] {
        assert_eq!(value(&train(arguments, &files), "batch_size"), want, "{arguments:?}");
    }
}

#[test]
fn every_value_knows_where_it_comes_from() {
    let files = [("dir/a.py", "# note\n\nbatch_size = 2\nn_layer = 3\nbatch_size = 4\n")];
    let settings = train(&["--n_layer=5", "dir/a.py", "--n_head=6"], &files);
    let origin = |key: &str| settings.get(key).unwrap().origin.clone();
    assert_eq!(origin("batch_size"), Origin::File { path: "dir/a.py".into(), line: 5 });
    assert_eq!(origin("n_layer"), Origin::File { path: "dir/a.py".into(), line: 4 });
    assert_eq!(origin("n_head"), Origin::Argument { index: 3 });
    assert_eq!(origin("n_embd"), Origin::Default);
    assert_eq!(settings.files(), ["dir/a.py"]);
    let names: Vec<&str> = settings.iter().map(|setting| setting.key.name).collect();
    assert_eq!(names, fitgpt_spec::KEYS.iter().map(|key| key.name).collect::<Vec<_>>());
}

#[test]
fn arguments_that_are_neither_keys_nor_files_say_what_to_write() {
    for (argument, want) in [
        ("--compile", "argument 1 (--compile): write --compile=value, e.g. --compile=True"),
        ("--help", "keys are written --key=value; --help lists them"),
        ("--bach_size", "did you mean --batch_size=…?"),
        ("batch_size=3", "argument 1 (batch_size=3): write --batch_size=3"),
        ("-batch_size=3", "write --batch_size=3"),
        ("bach_size=3", "write --batch_size=3"),
        ("x/y=1.py", "a config file has no = in its path"),
        ("-h", "a config file ends in .py or .toml"),
        ("", "a config file ends in .py or .toml"),
        ("train_gpt2", "a config file ends in .py or .toml"),
        ("gone.py", "cannot read the config file 'gone.py': no such file; correct the path"),
        ("--=3", "argument 1: unknown key ''; --help lists the keys"),
    ] {
        let message = refused(&[argument], &[]);
        assert!(message.contains(want), "{argument}: {message}");
        assert!(!message.contains('\n'), "{message}");
    }
}

#[test]
fn unknown_keys_name_the_nearest() {
    let files =
        [("a.py", "\nn_layers = 3"), ("b.toml", "max_iter = 3"), ("c.py", "frobnicate = 3")];
    for (argument, want) in [
        ("--bach_size=3", "argument 1: unknown key 'bach_size'; did you mean --batch_size?"),
        ("--batchsize=3", "did you mean --batch_size?"),
        ("--batch-size=3", "did you mean --batch_size?"),
        ("--n_embed=3", "did you mean --n_embd?"),
        ("--n_heads=3", "did you mean --n_head?"),
        ("--learning_rat=3", "did you mean --learning_rate?"),
        ("--evalinterval=3", "did you mean --eval_interval?"),
        ("--grad_acc_steps=3", "unknown key 'grad_acc_steps'; --help lists the keys"),
        ("--gradient_accumulation=3", "did you mean --gradient_accumulation_steps?"),
        ("a.py", "a.py:2: unknown key 'n_layers'; did you mean n_layer?"),
        ("b.toml", "b.toml:1: unknown key 'max_iter'; did you mean max_iters?"),
        (
            "c.py",
            "c.py:1: unknown key 'frobnicate'; --help lists the keys; a name of your own must \
             begin with _",
        ),
    ] {
        let message = refused(&[argument], &files);
        assert!(message.contains(want), "{argument}: {message}");
    }
}

#[test]
fn wrong_types_show_what_was_given_and_what_is_needed() {
    let files = [("a.py", "\nmax_iters = 1e4"), ("b.toml", "bias = 1"), ("c.py", "out_dir = 5")];
    for (argument, want) in [
        (
            "--batch_size=many",
            "argument 1: batch_size='many' is a string; batch_size needs a whole number, e.g. \
             --batch_size=12",
        ),
        (
            "--max_iters=2e4",
            "max_iters=20000.0 is a float; max_iters needs a whole number, e.g. \
             --max_iters=20000",
        ),
        (
            "--compile=1",
            "compile=1 is a whole number; compile needs True or False, e.g. --compile=True",
        ),
        ("--dropout=off", "dropout='off' is a string; dropout needs a number, e.g. --dropout=0.0"),
        ("--vram=True", "vram needs a string or a whole number, e.g. --vram=11.69GiB"),
        (
            "a.py",
            "a.py:2: max_iters=10000.0 is a float; max_iters needs a whole number, e.g. \
             max_iters = 10000",
        ),
        (
            "b.toml",
            "b.toml:1: bias=1 is a whole number; bias needs True or False, e.g. bias = true",
        ),
        ("c.py", "c.py:1: out_dir=5 is a whole number; out_dir needs a string, e.g. out_dir = '5'"),
    ] {
        let message = refused(&[argument], &files);
        assert!(message.contains(want), "{argument}: {message}");
    }
}

#[test]
fn keys_of_another_command_are_refused_as_arguments_and_ignored_in_files() {
    for (command, argument, want) in [
        (Command::Train, "--top_k=5", "argument 1: top_k is a key of sample, and train"),
        (Command::Sample, "--n_layer=5", "argument 1: n_layer is a key of train, and sample"),
    ] {
        let error = read(command, &[argument], &[]).unwrap_err().to_string();
        assert!(error.starts_with(want), "{error}");
    }
    let files = [("a.py", "out_dir = 'mine'\nn_layer = 6\nbatch_size = 3")];
    let settings = read(Command::Sample, &["a.py", "--num_samples=1"], &files).unwrap();
    let (run, _) = resolve(&settings, &Environment::default()).unwrap();
    assert_eq!((run.out_dir.as_str(), run.sampling.num_samples), ("mine", 1));
}

/// The program takes names of runs and checkpoints out of the arguments before.
#[test]
fn a_bare_word_is_no_setting() {
    for command in [Command::Train, Command::Sample] {
        let error = read(command, &["one"], &[]).unwrap_err().to_string();
        assert!(error.contains("a config file ends in .py or .toml"), "{error}");
    }
}

#[test]
fn sample_has_the_defaults_of_sample_py() {
    let settings = read(Command::Sample, &[], &[]).unwrap();
    for (key, want) in [
        ("init_from", "'resume'"),
        ("out_dir", "'out'"),
        ("start", "'\\n'"),
        ("num_samples", "10"),
        ("max_new_tokens", "500"),
        ("temperature", "0.8"),
        ("top_k", "200"),
        ("top_p", "1.0"),
        ("seed", "1337"),
        ("compile", "False"),
    ] {
        assert_eq!(value(&settings, key), want, "{key}");
        assert!(Key::find(key).unwrap().used_by(Command::Sample), "{key}");
    }
}

#[test]
fn files_must_be_text_of_a_config_files_size() {
    let world = |bytes: &[u8]| {
        let bytes = bytes.to_vec();
        let read = move |_: &str| Ok(bytes.clone());
        let world = fitgpt_spec::World { read: &read, unix_time: 0.0 };
        let arguments = ["a.py".to_string()];
        fitgpt_spec::Settings::read(Command::Train, &arguments, &world).unwrap_err().to_string()
    };
    assert_eq!(world(b"bias = True\n\nx = '\xff'"), "a.py:3: not UTF-8 text; is it a config file?");
    let long = world(&vec![b' '; (1 << 20) + 1]);
    let want = "a.py: 1048577 bytes, but a config file has at most 1048576";
    assert!(long.starts_with(want), "{long}");
}
