//! `fitgpt plan` for several GPUs and machines: the bill of one rank, what ZeRO-1 saves, and what
//! is predicted for each link.

use crate::fixture::{Ended, TempDir};
use serde_json::Value;
use std::path::Path;

/// 124M parameters without biases, 50304 rows of vocabulary.
const PARAMETERS: f64 = 124_373_760.0;

fn plan(name: &str, arguments: &[&str]) -> Ended {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/train_gpt2.py");
    let config = config.to_str().unwrap().to_string();
    let usual = ["plan", &config, "--gpu=RTX 4070"];
    TempDir::empty(&format!("fleet-{name}")).run(&[&usual[..], arguments].concat())
}

fn document(name: &str, arguments: &[&str]) -> Value {
    let ended = plan(name, &[arguments, &["--json"]].concat()).succeeded();
    serde_json::from_str(&ended.out).unwrap()
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key}: {value:#}"))
}

#[test]
fn eight_gpus_on_each_of_two_machines() {
    let arguments = ["--gpus=8", "--nodes=2", "--link=25GbE"];
    let found = document("two-by-eight", &arguments);
    let ranks = &found["ranks"];
    for (key, want) in [
        ("ranks", 16.0),
        ("machines", 2.0),
        ("gpus_per_machine", 8.0),
        ("groups", 16.0),
        ("sequences_per_rank", 30.0),
        ("gather_bytes_per_second", 2.5e9),
        ("bytes_per_second", 2.5e9 / 8.0 * 15.0 / 8.0),
    ] {
        assert!((number(ranks, key) - want).abs() < 1.0, "{key}: {ranks:#}");
    }
    assert_eq!((&ranks["network"], &ranks["link"]), (&"25GbE".into(), &"PCIe 4 x8".into()));
    // Fifteen sixteenths of the gradients in f32, and of the weights in 16 bits.
    let bytes = PARAMETERS * 6.0 * 15.0 / 16.0;
    assert!((number(ranks, "sent_bytes_per_iteration") / bytes - 1.0).abs() < 0.01, "{ranks:#}");
    // As much of the masters' lower halves and the moments is on other ranks, but sums of squares
    // are on all.
    let saved = PARAMETERS * 10.0 * 15.0 / 16.0;
    assert!((number(ranks, "zero_saves_bytes") / saved - 1.0).abs() < 0.02, "{ranks:#}");
    let [all, hidden, exposed, iteration] =
        ["communication_seconds", "hidden_seconds", "exposed_seconds", "iteration_seconds"]
            .map(|key| number(ranks, key));
    assert!((hidden + exposed - all).abs() < 1e-9 && hidden > 0.0 && exposed > 0.0, "{ranks:#}");
    let rate = number(&found, "predicted_tokens_per_second");
    assert!((rate * iteration / 491_520.0 - 1.0).abs() < 1e-3, "{rate} {iteration}");
    let text = plan("text", &arguments).succeeded().out;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "plan: 480 sequences on 16 ranks, 30 each as ",
        "tok/s on 16 x RTX 4070",
        "ranks: 2 machines with 8 GPUs each, by 25GbE and PCIe 4 x8",
        "ZeRO-1 saves 1.09 GiB on each GPU",
        "hidden behind computation",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn one_rank_is_as_it_was() {
    let alone = document("alone", &[]);
    assert!(alone["ranks"].is_null());
    assert_eq!(document("one", &["--gpus=1", "--nodes=1"]), alone);
    // A link changes what is predicted, never the plan.
    let [slow, fast] = ["1GbE", "400GbE"]
        .map(|link| document(&format!("link-{link}"), &["--nodes=2", &format!("--link={link}")]));
    assert_eq!(slow["hash"], fast["hash"]);
    let [slow, fast] = [slow, fast].map(|found| number(&found, "predicted_run_seconds"));
    assert!(fast < 0.7 * slow, "{fast} {slow}");
}

#[test]
fn links_are_compared_and_listed() {
    let found = document("all", &["--nodes=2", "--link=all", "--reduce_dtype=bfloat16"]);
    let rows = found["links"].as_array().unwrap();
    let rates: Vec<f64> =
        rows.iter().map(|row| number(row, "predicted_tokens_per_second")).collect();
    assert_eq!((rows.len(), &rows[0]["name"]), (9, &Value::from("1GbE")));
    assert!(rates.is_sorted() && rates[0] < 0.7 * rates[8], "{rates:?}");
    let inside = document("inside", &["--gpus=2", "--link=all"]);
    assert_eq!(inside["links"].as_array().unwrap().len(), 11);
    let ended = TempDir::empty("fleet-list").run(&["plan", "--link", "list"]).succeeded();
    assert!(ended.out.contains("\nNVLink 4 ") && ended.out.lines().count() == 21, "{}", ended.out);
}

#[test]
fn groups_and_diloco_are_said() {
    let text = |name: &str, arguments: &[&str]| {
        let out = plan(name, arguments).succeeded().out;
        out.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let groups = text("groups", &["--gpus=2", "--reduce_groups=4"]);
    assert!(groups.contains("480 sequences on 2 ranks in 4 groups, 120 each as "), "{groups}");
    let alone = text("groups-alone", &["--reduce_groups=4"]);
    assert!(alone.contains("plan: 480 sequences in 4 groups, 120 each as "), "{alone}");
    let diloco = text("diloco", &["--nodes=2", "--link=1GbE", "--sync=diloco"]);
    assert!(diloco.contains(", averaged every 50 iterations: "), "{diloco}");
    assert!(diloco.contains("each rank sends 237.22 MiB every 50 iterations"), "{diloco}");
}

#[test]
fn what_cannot_be_connected_is_refused() {
    for (index, (arguments, want)) in [
        (
            &["--nodes=2", "--link=24GbE"][..],
            "unknown --link '24GbE'; the nearest names are 25GbE,",
        ),
        (&["--nodes=2"], "--nodes=2: give the network between the machines"),
        (&["--gpus=2", "--link=1GbE"], "--link 1GbE connects machines: give --nodes=2 or more"),
        (&["--nodes=2", "--link=1GbE", "--link=2.5GbE"], "1GbE and 2.5GbE both connect machines"),
        (&["--nodes=0"], "--nodes needs a whole number from 1 to 64, not '0'"),
        (&["--link=all"], "give --gpus=2 or --nodes=2"),
        (&["--gpus=7"], "480 sequences cannot be divided among 7 ranks"),
        (&["--gpus=2", "--measure"], "--measure times one rank"),
        (&["--link=list", "--nodes=2"], "--link list lists all links: leave out '--gpu'"),
        (&["--gpus=2", "--link=all", "--svg=x.svg"], "--svg is for one plan"),
    ]
    .iter()
    .enumerate()
    {
        let ended = plan(&format!("refused-{index}"), arguments);
        assert!(
            ended.code != Some(0) && ended.error.contains(want),
            "{arguments:?}: {}",
            ended.error
        );
    }
}
