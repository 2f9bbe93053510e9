//! `--ram`: a budget that the run holds to, or a refusal that says what is missing.

use crate::fixture::{Ended, Place};

/// Bytes of the arena, as the bill says.
pub fn arena(ended: &Ended) -> u64 {
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
    for words in [
        "does not fit: needs at least",
        "the budget is 300.00 KiB",
        "largest tensors at the peak: ",
        "no setting",
    ] {
        assert!(refused.error.contains(words), "{words}: {}", refused.error);
    }
    place.train(&["--ram=lots"]).failed(2, &["ram", "11.69GiB"]);
    assert!(!place.path("out").exists());
}

/// A control group of this machine's, gone afterwards; none where they may not be made.
struct Group(std::path::PathBuf);

impl Group {
    fn new(limit: u64) -> Option<Group> {
        let name = format!("fitgpt-test-{}", std::process::id());
        let roots = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map(std::path::Path::new);
        let (root, file) = match roots[0].join("memory.limit_in_bytes").exists() {
            true => (roots[0], "memory.limit_in_bytes"),
            false => (roots[1], "memory.max"),
        };
        let group = Group(root.join(name));
        std::fs::create_dir(&group.0).ok()?;
        std::fs::write(group.0.join(file), limit.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Without a word on memory, the limit of the group that the process is in is the budget.
#[test]
fn the_limit_of_a_control_group_is_the_budget() {
    let limit = 256u64 << 20;
    let Some(group) = Group::new(limit) else {
        eprintln!("skipped: this machine lets nobody make control groups");
        return;
    };
    let place = Place::new("budget-group");
    let script = format!(
        "echo $$ > {}/cgroup.procs || exit 77; exec {} plan --dataset=tiny --json",
        group.0.display(),
        env!("CARGO_BIN_EXE_fitgpt")
    );
    let mut shell = std::process::Command::new("sh");
    let output = shell.args(["-c", &script]).current_dir(&place.0).output().unwrap();
    if output.status.code() == Some(77) {
        eprintln!("skipped: the group cannot be entered");
        return;
    }
    let text = String::from_utf8(output.stdout).unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let budget = document["budget_bytes"].as_u64().unwrap();
    assert!(budget <= limit && budget > limit / 2, "{budget} of {limit}");
}
