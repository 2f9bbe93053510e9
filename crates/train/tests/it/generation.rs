//! Text from a model: the same seed gives the same text, past the end of the context too.

use crate::fixture::{TempDir, VOCABULARY, engine, run_spec};
use fitgpt_train::generate::{SampleRequest, generate};
use fitgpt_train::sampling::DrawOptions;

fn sample(seed: u64, index: u64, prompt: &[i32]) -> Vec<i32> {
    let folder = TempDir::new(&format!("generate-{seed}-{index}-{}", prompt.len()));
    let mut engine = engine(&run_spec(&folder.0, &[]));
    let request = SampleRequest {
        prompt: prompt.to_vec(),
        max_new_tokens: 30,
        options: DrawOptions { temperature: 0.8, top_k: 20, top_p: 1.0 },
        seed,
        index,
    };
    let mut tokens = Vec::new();
    generate(&mut engine, &request, |token| {
        tokens.push(token);
        tokens.len() < 28
    })
    .unwrap();
    tokens
}

#[test]
fn the_same_seed_gives_the_same_text() {
    let first = sample(1, 0, &[3]);
    assert_eq!(first.len(), 28, "stopped early by the caller, past a context of 12");
    assert!(first.iter().all(|&token| (0..VOCABULARY as i32).contains(&token)));
    assert_eq!(sample(1, 0, &[3]), first);
    assert_ne!(sample(2, 0, &[3]), first);
    assert_ne!(sample(1, 1, &[3]), first);
    let long: Vec<i32> = (0..20).collect();
    assert_eq!(sample(1, 0, &long).len(), 28, "a prompt longer than the context");
}
