//! `--ram`: a budget that the run holds to, or a refusal that says what is missing.

use crate::fixture::{Ended, Place};

/// Bytes of the arena, as the bill says.
fn arena(ended: &Ended) -> u64 {
    let line = ended.out.lines().find(|line| line.contains("one allocation of")).unwrap();
    let number = line.split("one allocation of ").nth(1).unwrap();
    number.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

#[test]
fn less_memory_gives_another_plan_and_nearly_the_same_losses() {
    let place = Place::new("budget");
    // Long sequences and a wide batch, so that activations decide.
    let wide = ["--batch_size=16", "--n_layer=6", "--max_iters=2", "--dropout=0.0"];
    let run = |name: &str, more: &[&str]| {
        let out_dir = format!("--out_dir={name}");
        place.train(&[&wide[..], &[&out_dir], more].concat()).succeeded()
    };
    let free = run("free", &["--grad_checkpoint=False"]);
    let bytes = arena(&free) * 9 / 10;
    let ram = format!("--ram={bytes}");
    let tight = run("tight", &[&ram]);
    assert!(arena(&tight) <= bytes, "{} of {bytes}", arena(&tight));
    let recomputed = run("recomputed", &["--grad_checkpoint=True"]);
    assert!(recomputed.out.contains("layers at 6 x R6"), "{}", recomputed.out);
    let losses = |ended: &Ended| -> Vec<f64> {
        let number = |line: &&str| line.split(&[' ', ','][..]).nth(3).unwrap().parse().unwrap();
        ended.lines("iter ").iter().map(number).collect()
    };
    for other in [&tight, &recomputed] {
        let pairs = losses(&free).into_iter().zip(losses(other));
        assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() <= 2e-4), "{}", other.out);
    }
}

#[test]
fn a_budget_below_the_weights_is_refused() {
    let place = Place::new("budget-small");
    let refused = place.train(&["--ram=300KiB"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.error.starts_with("error: "), "{refused:?}");
    for words in ["missing", "smallest plan needs", "largest at its fullest moment: ", "no setting"] {
        assert!(refused.error.contains(words), "{words}: {}", refused.error);
    }
    place.train(&["--ram=lots"]).failed(2, &["ram", "11.69GiB"]);
    assert!(!place.path("out").exists());
}
