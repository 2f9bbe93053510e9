//! Help, version, and words that are no command.

use crate::fixture::Place;

#[test]
fn help_is_there_for_everything() {
    let place = Place::empty("help");
    let overview = place.run(&["--help"]).succeeded().out;
    assert!(overview.contains("train") && overview.contains("Exit codes"), "{overview}");
    assert_eq!(place.run(&["help"]).succeeded().out, overview);
    assert_eq!(place.run(&["-h"]).succeeded().out, overview);
    for command in ["train", "plan", "doctor", "sample", "bench"] {
        let help = place.run(&[command, "--help"]).succeeded().out;
        assert!(help.contains("--out_dir='out'"), "{help}");
        assert_eq!(place.run(&["help", command]).succeeded().out, help);
        assert_eq!(place.run(&[command, "--seed=1", "-h"]).succeeded().out, help);
        let longest = help.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(100), "{longest:?}");
    }
    let without_keys = place.run(&["devices", "--help"]).succeeded().out;
    assert!(without_keys.contains("--watch") && !without_keys.contains("--out_dir"));
    for command in ["prepare", "data"] {
        let help = place.run(&[command, "--help"]).succeeded().out;
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
    assert!(place.run(&["--version"]).succeeded().out.starts_with("fitgpt "));
}

#[test]
fn words_that_are_no_command() {
    let place = Place::empty("no-command");
    place.run(&["trian"]).failed(2, &["unknown command 'trian'", "train, plan, doctor, sample"]);
    let nothing = place.run(&[]);
    assert_eq!(nothing.code, Some(2));
    assert!(nothing.out.contains("fitgpt <command>"), "{nothing:?}");
}
