//! When the built-in preset applies, and what it leaves alone.

use crate::typing::{read, train, value};
use fitgpt_spec::{Command, Origin};

#[test]
fn it_applies_only_without_file_and_source() {
    let files = [("a.py", "# nothing"), ("b.toml", "")];
    for (arguments, want) in [
        (&[] as &[&str], true),
        (&["--max_iters=10"], true),
        (&["--device=cpu", "--seed=3", "--out_dir=x", "--batch_size=4"], true),
        (&["a.py"], false),
        (&["b.toml"], false),
        (&["--dataset=builtin"], false),
        (&["--init_from=resume"], false),
        (&["--init_from=scratch"], false),
        (&["--n_layer=4"], true),
        (&["--n_head=4", "--n_embd=128"], true),
        (&["--block_size=1024"], true),
        (&["--bias=True", "--dropout=0.1", "--gelu=erf"], true),
        (&["--n_layer=4", "--dataset=mine"], false),
    ] {
        let settings = train(arguments, &files);
        assert_eq!(settings.uses_preset(), want, "{arguments:?}");
        let (dataset, layers) = if want { ("'builtin'", "2") } else { ("'openwebtext'", "12") };
        if !arguments.iter().any(|a| a.contains("dataset") || a.contains("n_layer")) {
            assert_eq!(value(&settings, "dataset"), dataset, "{arguments:?}");
            assert_eq!(value(&settings, "n_layer"), layers, "{arguments:?}");
        }
    }
    assert!(!read(Command::Sample, &[], &[]).unwrap().uses_preset());
}

#[test]
fn what_is_given_stays_and_the_decay_follows_the_iterations() {
    let settings = train(&["--max_iters=77", "--out_dir=mine"], &[]);
    let origin = |key: &str| settings.get(key).unwrap().origin.clone();
    for (key, want, from) in [
        ("max_iters", "77", Origin::Argument { index: 1 }),
        ("lr_decay_iters", "77", Origin::Preset),
        ("out_dir", "'mine'", Origin::Argument { index: 2 }),
        ("dataset", "'builtin'", Origin::Preset),
        ("weight_decay", "0.1", Origin::Default),
    ] {
        assert_eq!((value(&settings, key).as_str(), origin(key)), (want, from), "{key}");
    }
    let settings = train(&["--n_layer=4", "--dropout=0.1"], &[]);
    for (key, want) in [("n_layer", "4"), ("dropout", "0.1"), ("n_embd", "64"), ("batch_size", "2")]
    {
        assert_eq!(value(&settings, key), want, "{key}");
    }
    let settings = train(&["--lr_decay_iters=5"], &[]);
    assert_eq!(value(&settings, "lr_decay_iters"), "5");
}
