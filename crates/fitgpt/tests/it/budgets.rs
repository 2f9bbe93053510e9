//! `--ram`: a budget that the whole process holds to, or a refusal that says what is missing. The
//! system's own limits (control groups, `ulimit -v`) are budgets too.

use crate::fixture::{Ended, TINY, TempDir, walk};
use requires::{Need, absent};
use std::process::Stdio;

/// Bytes of the arena, as the bill says.
pub fn arena(ended: &Ended) -> u64 {
    let line = ended.out.lines().find(|line| line.contains("one allocation of")).unwrap();
    let number = line.split("one allocation of ").nth(1).unwrap();
    number.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// What the bill of the tiny run with 6 layers lists outside its arena: fitgpt, batches, a buffer.
pub const BESIDE: u64 = (24 << 20) + (6 << 17) + (64 << 10);

#[test]
fn less_memory_gives_another_plan_and_nearly_the_same_losses() {
    let dir = TempDir::new("budget");
    // Long sequences and a wide batch, so that activations decide.
    let wide = ["--batch_size=16", "--n_layer=6", "--max_iters=2", "--dropout=0.0"];
    let run = |name: &str, more: &[&str]| {
        let out_dir = format!("--out_dir={name}");
        dir.train(&[&wide[..], &[&out_dir], more].concat()).succeeded()
    };
    let free = run("free", &["--grad_checkpoint=False"]);
    let bytes = arena(&free) * 9 / 10;
    let ram = format!("--ram={}", bytes + BESIDE);
    let tight = run("tight", &[&ram]);
    assert!(arena(&tight) <= bytes, "{} of {bytes}", arena(&tight));
    assert!(tight.out.contains("layers at"), "{}", tight.out);
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
    let dir = TempDir::new("budget-small");
    let refused = dir.train(&["--ram=300KiB"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.error.starts_with("error: "), "{refused:?}");
    for words in [
        "does not fit: needs at least",
        "the budget is 300.00 KiB",
        "largest tensors at the peak: ",
        "no similar setting",
    ] {
        assert!(refused.error.contains(words), "{words}: {}", refused.error);
    }
    dir.train(&["--ram=lots"]).failed(2, &["ram", "11.69GiB"]);
    assert!(!dir.path("out").exists());
}

/// A control group of this machine's, gone afterwards; none where they may not be made.
struct Group(std::path::PathBuf);

impl Group {
    fn new(limit: u64) -> Option<Group> {
        let name = format!("fitgpt-test-{}-{limit}", std::process::id());
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

    /// Runs the binary in the group; none where the group cannot be entered.
    fn run(&self, dir: &TempDir, arguments: &[&str]) -> Option<Ended> {
        let procs = self.0.join("cgroup.procs");
        let script = format!("echo $$ > {} || exit 77; exec \"$0\" \"$@\"", procs.display());
        let ended = Ended::from(dir.shell(&script, arguments).output().unwrap());
        (ended.code != Some(77)).then_some(ended)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Without `ram`, the budget is the limit of the process's control group.
#[test]
fn the_limit_of_a_control_group_is_the_budget() {
    let limit = 256u64 << 20;
    let Some(group) = Group::new(limit) else {
        return absent(Need::Cgroup, "this machine lets nobody make control groups");
    };
    let dir = TempDir::new("budget-group");
    let Some(ended) = group.run(&dir, &["plan", "--dataset=tiny", "--json"]) else {
        return absent(Need::Cgroup, "the group cannot be entered");
    };
    let document: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    let budget = document["budget_bytes"].as_u64().unwrap();
    assert!(budget <= limit && budget > limit / 2, "{budget} of {limit}");
}

/// A data set of GPT-2's vocabulary: the embedding is most of the model.
fn words(dir: &TempDir) -> [&'static str; 4] {
    let ids = walk(3, 3000, 5000);
    dir.data_set("words", &ids, &ids);
    ["--dataset=words", "--n_embd=64", "--max_iters=2", "--eval_iters=1"]
}

/// In a group of any size a run is refused or succeeds: the system never has to kill it.
#[test]
fn no_group_is_too_small_for_a_refusal() {
    let dir = TempDir::new("budget-groups");
    let words = words(&dir);
    let tiny = ["--max_iters=2", "--eval_iters=1"];
    let runs: [(&[&str], &[u64]); 3] = [
        (&tiny, &[8, 16, 23, 26, 30, 34, 40, 64]),
        (&words, &[64, 100, 110, 115, 118, 121, 124, 128, 140]),
        (&["--dataset=words", "--batch_size=1"], &[32, 48, 64, 128]), // 124M
    ];
    for (more, sizes) in runs {
        let mut codes = Vec::new();
        for &mib in sizes {
            let Some(group) = Group::new(mib << 20) else {
                return absent(Need::Cgroup, "this machine lets nobody make control groups");
            };
            let base = if more.contains(&"--batch_size=1") { &[][..] } else { TINY };
            let out_dir = format!("--out_dir=out-{}-{mib}", codes.len());
            let arguments = [&["train"], base, more, &[&out_dir]].concat();
            let Some(ended) = group.run(&dir, &arguments) else {
                return absent(Need::Cgroup, "the group cannot be entered");
            };
            let is_reported =
                ended.error.contains("does not fit") || ended.error.contains("is free");
            assert!(
                ended.code == Some(0) || (ended.code == Some(3) && is_reported),
                "{mib} MiB: {ended:?}"
            );
            codes.push(ended.code);
        }
        // Both are seen, or the sizes test nothing.
        let ends_well = codes.last() == Some(&Some(0));
        assert!(codes[0] == Some(3) && ends_well != more.contains(&"--batch_size=1"), "{codes:?}");
    }
}

/// Under `ulimit -v` a refusal is still printed: it measures nothing that needs memory.
#[test]
fn a_limit_on_the_address_space_is_a_budget() {
    let dir = TempDir::new("budget-address");
    let words = words(&dir);
    let train = [&["train"], TINY, &words[..], &["--ram=1MiB"]].concat();
    let plan = ["plan", "--dataset=words", "--ram=1MiB"];
    let roomy = [&["train"], TINY, &words[..]].concat();
    let mut codes = Vec::new();
    // Under 26 MB the system cannot load the program, which then says nothing.
    for kib in [28_000u64, 40_000, 60_000, 90_000, 120_000, 150_000, 200_000, 400_000, 800_000] {
        for arguments in [&train[..], &plan, &roomy] {
            let script = format!("ulimit -v {kib} || exit 77; exec \"$0\" \"$@\"");
            let mut shell = dir.shell(&script, arguments);
            let ended = Ended::from(shell.arg(format!("--out_dir=out-{kib}")).output().unwrap());
            let is_reported = ended.error.starts_with("error: ");
            let is_refused = ended.code == Some(3) && is_reported;
            let may_end_well = arguments == &roomy[..];
            assert!(is_refused || (may_end_well && ended.code == Some(0)), "{kib}: {ended:?}");
            codes.push(ended.code);
        }
    }
    assert_eq!(codes.last(), Some(&Some(0)), "the last one has room");
}

/// The largest resident size of a run, according to the system.
fn most_resident(dir: &TempDir, arguments: &[&str]) -> u64 {
    let mut run = dir.command(arguments);
    let mut run = run.stdout(Stdio::null()).spawn().unwrap();
    let mut most = 0;
    while run.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(format!("/proc/{}/status", run.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        most = most.max(kib.unwrap_or(0) * 1024);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(run.wait().unwrap().success(), "{arguments:?}");
    most
}

/// Arena, buffers and the program itself: `ram` limits them all, and the bill shows it.
#[test]
fn ram_bounds_the_whole_process() {
    if !cfg!(target_os = "linux") {
        return absent(Need::Linux, "it reads /proc");
    }
    let dir = TempDir::new("budget-process");
    let words = words(&dir);
    for (index, (mib, more)) in [
        (45u64, &["--dataset=builtin", "--max_iters=2"][..]),
        (118, &words),
        (160, &["--dataset=words", "--n_embd=64", "--n_layer=24", "--max_iters=2"]),
        (210, &["--dataset=words", "--n_embd=128", "--max_iters=2", "--batch_size=12"]),
        (120, &["--n_layer=300", "--n_embd=16", "--max_iters=1", "--batch_size=16"]),
    ]
    .into_iter()
    .enumerate()
    {
        let (ram, out_dir) = (format!("--ram={mib}MiB"), format!("--out_dir=out-{index}"));
        let arguments = [&["train"], TINY, more, &[&ram, &out_dir]].concat();
        let most = most_resident(&dir, &arguments);
        println!("{most} of {}", mib << 20);
        assert!(most <= mib << 20, "{arguments:?}: {most} of {}", mib << 20);
        let planned = [&["plan"], &arguments[1..], &["--json"]].concat();
        let planned = dir.run(&planned).succeeded();
        let planned: serde_json::Value = serde_json::from_str(&planned.out).unwrap();
        let bytes = |key: &str| planned[key].as_u64().unwrap();
        let parts = bytes("arena_bytes") + bytes("context_bytes") + bytes("host_bytes");
        assert_eq!(parts, bytes("device_bytes"));
        assert!(parts <= bytes("budget_bytes") && bytes("budget_bytes") == mib << 20);
    }
    // `ram` above the free memory: the plan uses what is free, and a notice says so.
    let much = dir.train(&["--ram=900TiB"]).succeeded();
    assert!(much.out.contains("ram=900.00 TiB: only "), "{}", much.out);
    assert!(much.out.contains("total ") && much.out.contains("of a budget of"), "{}", much.out);
}
