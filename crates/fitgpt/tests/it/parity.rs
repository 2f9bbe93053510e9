//! `--sampler=nanogpt` prints nanoGPT's losses: against a short run of its loop in PyTorch
//! (`golden/nanogpt_run.py`, written from the loop's description; 300 iterations, 4 evaluations).

use crate::fixture::{TempDir, walk};

const GOLDEN: &str = include_str!("../golden/nanogpt_run.txt");

/// What two correct programs may differ by, and half of the last digit that is printed.
const TOLERANCE: f64 = 0.0005;

/// The numbers after "loss" in a line.
fn losses(line: &str) -> Vec<f64> {
    let numbers = line.split("loss ").skip(1);
    let number = |text: &str| text.split([',', ' ']).next().unwrap().parse().unwrap();
    numbers.map(number).collect()
}

#[test]
fn losses_of_300_iterations_are_nanogpts() {
    let dir = TempDir::empty("parity");
    dir.data_set("walk", &walk(1, 5000, 29), &walk(2, 700, 29));
    let pickle = data::Meta::new(29, None).to_pickle();
    dir.write("data/walk/meta.pkl", &pickle);
    let run = dir.run(&[
        "train",
        "--dataset=walk",
        "--sampler=nanogpt",
        "--device=cpu",
        "--compile=False",
        "--n_layer=2",
        "--n_head=2",
        "--n_embd=32",
        "--block_size=16",
        "--batch_size=4",
        "--gradient_accumulation_steps=2",
        "--max_iters=300",
        "--lr_decay_iters=300",
        "--warmup_iters=20",
        "--learning_rate=3e-3",
        "--min_lr=3e-4",
        "--beta2=0.99",
        "--eval_interval=100",
        "--eval_iters=3",
        "--dropout=0.0",
    ]);
    let run = run.succeeded();
    let printed = |line: &&str| line.starts_with("step ") || line.starts_with("iter ");
    let ours: Vec<&str> = run.out.lines().filter(printed).collect();
    let theirs: Vec<&str> = GOLDEN.lines().collect();
    assert_eq!((ours.len(), theirs.len()), (305, 305));
    for (our, their) in ours.into_iter().zip(theirs) {
        assert_eq!(our.split(':').next(), their.split(':').next());
        let pairs = losses(our).into_iter().zip(losses(their)).collect::<Vec<_>>();
        assert!(!pairs.is_empty());
        for (ours, theirs) in pairs {
            assert!((ours - theirs).abs() <= TOLERANCE, "{our} / {their}");
        }
    }
}
