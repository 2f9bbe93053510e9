//! Help, version, and unknown commands and flags.

use crate::fixture::TempDir;

#[test]
fn help_is_there_for_everything() {
    let dir = TempDir::empty("help");
    let overview = dir.run(&["--help"]).succeeded().out;
    assert!(overview.contains("train") && overview.contains("Exit codes"), "{overview}");
    assert_eq!(dir.run(&["help"]).succeeded().out, overview);
    assert_eq!(dir.run(&["-h"]).succeeded().out, overview);
    for command in ["train", "plan", "doctor", "sample", "bench"] {
        let help = dir.run(&[command, "--help"]).succeeded().out;
        assert!(help.contains("--out_dir='out'"), "{help}");
        assert_eq!(dir.run(&["help", command]).succeeded().out, help);
        assert_eq!(dir.run(&[command, "--seed=1", "-h"]).succeeded().out, help);
        let longest = help.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(100), "{longest:?}");
    }
    let without_keys = dir.run(&["devices", "--help"]).succeeded().out;
    assert!(without_keys.contains("--watch") && !without_keys.contains("--out_dir"));
    for command in ["prepare", "data"] {
        let help = dir.run(&[command, "--help"]).succeeded().out;
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
    assert!(dir.run(&["--version"]).succeeded().out.starts_with("fitgpt "));
}

#[test]
fn words_that_are_no_command() {
    let dir = TempDir::empty("no-command");
    for typed in [&["trian"][..], &["help", "trian"]] {
        let said = ["unknown command 'trian'; did you mean train?", "train, plan, doctor, sample"];
        dir.run(typed).failed(2, &said);
    }
    let nothing = dir.run(&[]);
    assert_eq!(nothing.code, Some(2));
    assert!(nothing.out.contains("fitgpt <command>"), "{nothing:?}");
}

#[test]
fn flags_that_a_command_does_not_have() {
    let dir = TempDir::empty("no-flag");
    for (arguments, want) in [
        (&["train", "--tiem=5min"][..], "train has no flag '--tiem=5min'; did you mean --time?"),
        (&["plan", "--swep", "n_layer=1,2"], "plan has no flag '--swep'; did you mean --sweep?"),
        (&["prepare", "a.txt", "--max_token=5"], "did you mean --max-tokens?"),
        (&["data", "stats", "x", "--hepl"], "data has no flag '--hepl'; did you mean --help?"),
        (&["train", "--gpu", "L4"], "train has no flag '--gpu'; it is a flag of plan, doctor"),
        (&["sample", "--json"], "it is a flag of plan, doctor, "),
        (&["devices", "--frobnicate"], "has no flag '--frobnicate'; it has --watch, --json"),
        // The parser of settings reports what resembles a key.
        (&["train", "--batchsize=3"], "unknown key 'batchsize'; did you mean --batch_size?"),
        (&["train", "--frobnicate=3"], "unknown key 'frobnicate'; --help lists the keys"),
    ] {
        dir.run(arguments).failed(2, &[want]);
    }
}
