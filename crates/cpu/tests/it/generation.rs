//! Prefill and decode: the cache must give the same logits as a pass over the whole context, and a
//! full context is prefilled again, as in nanoGPT.

use crate::fixture::{Run, Setup, ids_to_bytes, setup};
use fitgpt_cpu::CpuOptions;
use model::{GenerateSpec, LogitsSegment};
use plan::{Backend, StepInputs};

const ROWS: usize = 2;

fn generating(prefill: &[u64]) -> Setup {
    let generate = Some(GenerateSpec { rows: ROWS as u64, prefill: prefill.to_vec() });
    Setup { generate, dropout: 0.3, ..setup() }
}

/// Logits of `position` after `context` (one list for each row), padded at the end with token 0.
fn logits(run: &mut Run, segment: &LogitsSegment, context: [&[i32]; ROWS], at: u64) -> Vec<f32> {
    let mut ids = vec![0; ROWS * segment.positions as usize];
    for (row, tokens) in ids.chunks_exact_mut(segment.positions as usize).zip(context) {
        row[..tokens.len()].copy_from_slice(tokens);
    }
    run.backend.write(segment.tokens, &ids_to_bytes(&ids)).unwrap();
    let inputs = StepInputs { position: at, ..StepInputs::default() };
    run.backend.run(segment.segment, &inputs).unwrap();
    run.read(segment.logits)
}

fn assert_near(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len());
    for (index, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= 2e-5 * want.abs().max(1.0), "{what} {index}: {got} {want}");
    }
}

#[test]
fn decode_continues_what_prefill_began() {
    let setup = generating(&[16, 90]);
    let mut run = setup.run(CpuOptions::new(2));
    let segments = run.program.generate.clone().unwrap();
    let [short, long] = &segments.prefill[..] else { panic!("two lengths") };
    let ids = setup.ids();
    let (a, b) = (&ids[..90], &ids[100..190]);
    // Decode ten tokens after a prompt of nine; a pass over the whole context must agree each time.
    logits(&mut run, short, [&a[..9], &b[..9]], 8);
    let mut decoded = Vec::new();
    for position in 9..19 {
        let next = [&a[position..position + 1], &b[position..position + 1]];
        decoded.push(logits(&mut run, &segments.decode, next, position as u64));
    }
    for (position, got) in (9..19).zip(&decoded) {
        let context = [&a[..position + 1], &b[..position + 1]];
        let want = logits(&mut run, long, context, position as u64);
        assert_near(got, &want, &format!("position {position}, logit"));
    }
}

#[test]
fn padding_behind_a_context_changes_nothing() {
    let setup = generating(&[16, 90]);
    let mut run = setup.run(CpuOptions::new(2));
    let segments = run.program.generate.clone().unwrap();
    let ids = setup.ids();
    let context = [&ids[..9], &ids[50..59]];
    let short = logits(&mut run, &segments.prefill[0], context, 8);
    let long = logits(&mut run, &segments.prefill[1], context, 8);
    assert_eq!(short, long, "causal: what stands behind cannot be seen, to the bit");
}

#[test]
fn a_full_context_is_prefilled_again() {
    // Past block_size, the last block_size tokens are a new context with new positions.
    let setup = generating(&[90]);
    let mut run = setup.run(CpuOptions::new(2));
    let full = run.program.generate.clone().unwrap().prefill[0].clone();
    let ids = setup.ids();
    let shifted = |by: usize| [&ids[by..by + 90], &ids[200 + by..290 + by]];
    let first = logits(&mut run, &full, shifted(0), 89);
    let next = logits(&mut run, &full, shifted(1), 89);
    assert_ne!(first, next);
    assert_eq!(next, logits(&mut run, &full, shifted(1), 89));
}
