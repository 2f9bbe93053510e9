//! Plans for given budgets: the two cases that started the project, with the memory their users
//! had.

use crate::machines::card;
use crate::typing::{config, run_of};
use fitgpt_search::{Machine, Planned, SearchError, best_plans, plan_for, suggestions};
use model::Level;
use plan::Dtype;
use plan::verify::defects;
use spec::RunSpec;

fn plan(run: &RunSpec, machine: &Machine) -> Result<Planned, SearchError> {
    let planned = plan_for(run, run.dims(50304).unwrap(), machine)?;
    assert_eq!(defects(&planned.plan, &*machine.scratch), []);
    assert!(planned.device_bytes(machine) <= machine.budget.get());
    let cut = planned.cut().unwrap();
    assert_eq!(cut.slices.iter().sum::<u64>(), run.sequences_per_iteration());
    println!(
        "{:.2} GiB: {:?} chunk {} {:?} {:.0} tok/s",
        planned.device_bytes(machine) as f64 / (1u64 << 30) as f64,
        cut.slices,
        cut.head_chunk,
        cut.levels,
        run.tokens_per_iteration() as f64 / planned.seconds
    );
    Ok(planned)
}

fn repeats_matmuls(planned: &Planned) -> bool {
    planned.cut().unwrap().levels.iter().any(|level| *level >= Level::R3)
}

#[test]
fn case_a_fits_without_repeating_a_product() {
    let run = config("case_a_124m_b64");
    for memory in [11.69, 9.7, 8.3, 5.2, 4.0] {
        let planned = plan(&run, &card("RTX 4070", memory, Dtype::Bf16)).unwrap();
        assert!(!repeats_matmuls(&planned), "{memory}");
    }
}

#[test]
fn case_b_fits_with_nothing_recomputed() {
    let run = config("case_b_77m_fp16");
    for memory in [11.69, 6.5] {
        let planned = plan(&run, &card("RTX 4070", memory, Dtype::F16)).unwrap();
        let levels = planned.cut().unwrap().levels;
        assert!(levels.iter().all(|level| *level == Level::R0), "{memory}: {levels:?}");
    }
}

/// More memory never gives a plan that takes longer by the cost model.
#[test]
fn more_memory_is_never_slower() {
    let medium = [
        "--dataset=x",
        "--n_layer=24",
        "--n_head=16",
        "--n_embd=1024",
        "--batch_size=12",
        "--gradient_accumulation_steps=8",
    ];
    for (run, compute) in [
        (config("case_a_124m_b64"), Dtype::Bf16),
        (config("case_b_77m_fp16"), Dtype::F16),
        (run_of(&medium).unwrap(), Dtype::Bf16),
    ] {
        let mut last = f64::INFINITY;
        for memory in [5.0, 6.0, 7.0, 8.3, 9.7, 11.69, 16.0, 24.0, 138.0] {
            let machine = card("H200", memory, compute);
            match plan(&run, &machine) {
                Ok(planned) => {
                    let seconds = planned.seconds;
                    assert!(seconds <= last * 1.003, "{memory} GiB: {seconds} after {last} s");
                    last = seconds;
                }
                Err(_) => assert!(last.is_infinite(), "{memory} GiB: less was enough"),
            }
        }
        assert!(last.is_finite());
    }
}

#[test]
fn the_best_plans_fit_and_differ() {
    let run = config("case_a_124m_b64");
    let machine = card("H200", 11.69, Dtype::Bf16);
    let dims = run.dims(50304).unwrap();
    let best = best_plans(&run, dims, &machine, 4).unwrap();
    let first = plan(&run, &machine).unwrap();
    assert_eq!((best.len(), best[0].hash()), (4, first.hash()));
    for (index, planned) in best.iter().enumerate() {
        assert_eq!(defects(&planned.plan, &*machine.scratch), []);
        assert!(planned.device_bytes(&machine) <= machine.budget.get());
        assert!(planned.seconds >= first.seconds * 0.99, "{index}");
        let cut = planned.cut().unwrap();
        let divided = |other: &Planned| {
            let other = other.cut().unwrap();
            other.slices == cut.slices
        };
        assert_eq!(best.iter().filter(|other| divided(other)).count(), 1, "{cut:?}");
    }
}

#[test]
fn smaller_cards_and_larger_models() {
    let run = |arguments: &[&str]| {
        let all = [&["--dataset=x", "--gradient_accumulation_steps=1"], arguments].concat();
        run_of(&all).unwrap()
    };
    plan(&run(&["--batch_size=12"]), &card("RTX 4070", 4.0, Dtype::Bf16)).unwrap();
    let medium = ["--n_layer=24", "--n_head=16", "--n_embd=1024", "--batch_size=1"];
    plan(&run(&medium), &card("RTX 4070", 8.0, Dtype::Bf16)).unwrap();
    let large = ["--n_layer=36", "--n_head=20", "--n_embd=1280", "--batch_size=1"];
    let refused = plan(&run(&large), &card("RTX 4070", 11.69, Dtype::Bf16)).unwrap_err();
    let message = refused.to_string();
    assert!(
        message.contains("needs at least 12.26 GiB") && message.contains("master"),
        "{message}"
    );
}

/// GPT-2 large and XL on a 12 GB card: refused as they are, with settings that fit; planned if the
/// user permits other ways to store optimizer state.
#[test]
fn levers_bring_large_models_onto_small_cards() {
    let large = ["--n_layer=36", "--n_head=20", "--n_embd=1280"];
    let xl = ["--n_layer=48", "--n_head=25", "--n_embd=1600"];
    for sizes in [large, xl] {
        let machine = card("RTX 4070", 11.69, Dtype::Bf16);
        let all = [&["--dataset=x"][..], &sizes].concat();
        let run = run_of(&all).unwrap();
        let start = std::time::Instant::now();
        let refused = plan(&run, &machine).unwrap_err();
        println!("{refused} in {:?}", start.elapsed());
        let start = std::time::Instant::now();
        let found = suggestions(&run, run.dims(50304).unwrap(), &machine, &machine.hardware);
        println!("suggested in {:?}", start.elapsed());
        for one in &found {
            let gib = one.device_bytes as f64 / (1u64 << 30) as f64;
            println!(
                "  {}: {gib:.2} GiB, {:.0} tok/s, {}",
                one.arguments(),
                one.tokens_per_second.unwrap(),
                one.note
            );
        }
        assert!((2..=3).contains(&found.len()), "{found:?}");
        for one in &found {
            assert!(
                one.device_bytes <= machine.budget.get() && one.tokens_per_second.unwrap() > 1e3
            );
            assert_eq!(one.tokens_per_iteration, run.tokens_per_iteration());
        }
        let permitted = [&all[..], &["--optimizer_state=auto", "--offload=auto"]].concat();
        let run = run_of(&permitted).unwrap();
        let start = std::time::Instant::now();
        let planned = plan(&run, &machine).unwrap();
        println!("{:?} in {:?}", planned.cut().unwrap().state_options, start.elapsed());
    }
}

#[test]
fn a_large_evaluation_batch_changes_nothing() {
    let base = config("case_a_124m_b64");
    let large = RunSpec { eval_batch_size: 512, ..base.clone() };
    let bytes = |run: &RunSpec| {
        plan(run, &card("RTX 4070", 11.69, Dtype::Bf16)).unwrap().plan.arena_bytes.get()
    };
    // Only the losses of 512 sequences are added.
    assert!(bytes(&large) - bytes(&base) <= 4096);
}

#[test]
fn grad_checkpoint_is_obeyed() {
    let base = config("case_b_77m_fp16");
    for (word, level) in [("True", Level::R6), ("False", Level::R0)] {
        let argument = format!("--grad_checkpoint={word}");
        let asked = run_of(&["--dataset=x", &argument]).unwrap().grad_checkpoint;
        let run = RunSpec { grad_checkpoint: asked, ..base.clone() };
        let planned = plan(&run, &card("RTX 4070", 11.69, Dtype::F16)).unwrap();
        assert!(planned.cut().unwrap().levels.iter().all(|found| *found == level));
    }
}

/// With permission to store the optimizer's state otherwise, and to keep activations in host
/// memory, a larger budget takes at most 1 % longer: an option must be worth as much to be taken.
#[test]
fn more_memory_is_never_slower_with_all_levers() {
    let levers = ["--offload=auto", "--optimizer_state=auto"];
    let xl = ["--dataset=x", "--n_layer=48", "--n_head=25", "--n_embd=1600", "--batch_size=4"];
    let run = run_of(&[&xl[..], &levers].concat()).unwrap();
    let mut last = f64::INFINITY;
    for memory in [10.0, 10.69, 11.69, 12.69, 16.0, 20.0, 24.0, 32.0, 40.0, 139.0] {
        let seconds = plan(&run, &card("H200", memory, Dtype::Bf16)).unwrap().seconds;
        assert!(seconds <= last * 1.01, "{memory} GiB: {seconds} after {last} s");
        last = last.min(seconds);
    }
}

/// XL on a large card. The search probes a model of three layers and builds the chosen one only
/// once or twice. On a small card with all levers it does that for each way to store the
/// optimizer's state.
#[test]
fn forty_eight_layers_are_planned_in_no_time() {
    let xl = ["--dataset=x", "--n_layer=48", "--n_head=25", "--n_embd=1600"];
    let levers = ["--offload=auto", "--optimizer_state=auto"];
    for (memory, levers, most) in [(139.0, &[][..], 50), (40.0, &[], 50), (11.69, &levers, 400)] {
        let run = run_of(&[&xl[..], levers].concat()).unwrap();
        let start = std::time::Instant::now();
        plan(&run, &card("H200", memory, Dtype::Bf16)).unwrap();
        let mut best = start.elapsed();
        for _ in 0..4 {
            let start = std::time::Instant::now();
            plan_for(&run, run.dims(50304).unwrap(), &card("H200", memory, Dtype::Bf16)).unwrap();
            best = best.min(start.elapsed());
        }
        println!("{memory} GiB in {best:?}");
        assert!(cfg!(debug_assertions) || best.as_millis() < most, "{best:?}");
    }
}
