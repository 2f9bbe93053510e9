//! Schedules of real models are placed, proved, and at most 1 % above the lower bound: a grid of
//! models and of ways to cut them, and random ones.

use crate::specs::{GPT2, dims, eval, generate, model, scratch, train};
use fitgpt_model::{Dims, Draft, ProgramSpec};
use plan::Plan;
use plan::verify::defects;
use proptest::prelude::*;

const MODELS: [(&str, Dims); 12] = [
    ("smallest", dims([1, 1, 1], 1, 1, false)),
    ("odd", dims([3, 5, 35], 7, 65, true)),
    ("readme", dims([4, 4, 128], 64, 65, false)),
    ("char", dims([6, 6, 384], 256, 65, false)),
    ("48 narrow layers", dims([48, 2, 16], 32, 65, false)),
    // Few layers and a wide vocabulary: the slab of logits is as large as what is saved.
    ("one wide layer", dims([1, 12, 768], 1024, 50304, false)),
    ("two wide layers", dims([2, 12, 768], 1024, 50257, true)),
    ("77M", dims([12, 12, 576], 1024, 50304, false)),
    ("124M", GPT2),
    ("350M", dims([24, 16, 1024], 1024, 50257, true)),
    ("774M", dims([36, 20, 1280], 1024, 50257, true)),
    ("1558M", dims([48, 25, 1600], 1024, 50304, false)),
];

/// A way to cut an iteration.
struct Cut {
    slices: &'static [u64],
    head_chunk: u64,
    dropout: f32,
    /// Positions that are left out at the end of a context.
    short: u64,
    /// Context lengths to prefill, in 16ths of the whole.
    prefill: &'static [u64],
}

const CUTS: [Cut; 8] = [
    Cut { slices: &[1], head_chunk: 1, dropout: 0.0, short: 0, prefill: &[] },
    Cut { slices: &[1], head_chunk: u64::MAX, dropout: 0.1, short: 27, prefill: &[16] },
    Cut { slices: &[3, 1], head_chunk: 1000, dropout: 0.1, short: 0, prefill: &[1, 4, 16] },
    Cut { slices: &[12], head_chunk: 4096, dropout: 0.0, short: 307, prefill: &[16, 5, 5] },
    Cut { slices: &[22, 21], head_chunk: 1024, dropout: 0.0, short: 0, prefill: &[3] },
    Cut { slices: &[22, 21], head_chunk: 1024, dropout: 0.1, short: 307, prefill: &[8, 16] },
    Cut { slices: &[64], head_chunk: 4096, dropout: 0.1, short: 0, prefill: &[16] },
    Cut { slices: &[64], head_chunk: 16384, dropout: 0.0, short: 1, prefill: &[7] },
];

fn spec(dims: Dims, cut: &Cut) -> ProgramSpec {
    let mut spec = model(dims, cut.dropout);
    let mut train = train(&dims, cut.slices, cut.head_chunk);
    train.positions = dims.block_size.saturating_sub(cut.short).max(1);
    spec.eval = Some(eval(&dims, &cut.slices[..1], cut.head_chunk));
    let lengths: Vec<u64> =
        cut.prefill.iter().map(|part| (dims.block_size * part).div_ceil(16)).collect();
    spec.generate = Some(generate(cut.slices[0], &lengths));
    spec.train = Some(train);
    spec
}

fn check(name: &str, spec: &ProgramSpec) {
    let draft = Draft::new(spec, scratch()).expect(name);
    let plan = Plan::new(draft.schedule).expect(name);
    assert_eq!(defects(&plan, &*scratch()), [], "{name}");
    let (arena, bound) = (plan.arena_bytes.get(), plan.lower_bound().get());
    assert!(arena >= bound, "{name}");
    assert!(100 * arena <= 101 * bound, "{name}: {arena} bytes, the bound is {bound}");
}

#[test]
fn models_fit_tightly_however_they_are_cut() {
    for (name, dims) in MODELS {
        for (index, cut) in CUTS.iter().enumerate() {
            for bias in [false, true] {
                let name = format!("{name}, cut {index}, bias {bias}");
                check(&name, &spec(Dims { bias, ..dims }, cut));
            }
        }
    }
}

#[test]
fn every_number_of_sequences_fits_tightly() {
    let dims = dims([2, 3, 48], 40, 301, true);
    for rows in 1..=64 {
        let mut spec = model(dims, 0.1);
        spec.train = Some(train(&dims, &[rows, rows.div_ceil(2)], 256 * rows));
        check(&format!("{rows} sequences"), &spec);
    }
}

#[test]
fn each_phase_alone() {
    let with = |edit: fn(&mut ProgramSpec)| {
        let mut spec = model(GPT2, 0.1);
        edit(&mut spec);
        spec
    };
    check("train", &with(|spec| spec.train = Some(train(&GPT2, &[4], 2048))));
    check("eval", &with(|spec| spec.eval = Some(eval(&GPT2, &[4], 2048))));
    check("generate", &with(|spec| spec.generate = Some(generate(1, &[64, 1024]))));
    check("decode alone", &with(|spec| spec.generate = Some(generate(5, &[]))));
}

fn random_spec() -> impl Strategy<Value = ProgramSpec> {
    let sizes = (1..5u64, 1..5u64, 1..40u64, 1..80u64, 1..400u64, any::<bool>());
    let slices = prop::collection::vec(1..9u64, 1..3);
    let cut = (slices, 1..2000u64, prop::bool::ANY, 1..80u64);
    (sizes, cut).prop_map(|(sizes, (slices, head_chunk, drops, short))| {
        let (n_layer, n_head, head_size, block_size, vocab_size, bias) = sizes;
        let dims = dims([n_layer, n_head, n_head * head_size], block_size, vocab_size, bias);
        let mut spec = model(dims, if drops { 0.2 } else { 0.0 });
        let mut train = train(&dims, &slices, head_chunk);
        train.positions = short.min(block_size);
        spec.train = Some(train);
        spec.eval = Some(eval(&dims, &slices, head_chunk));
        spec.generate = Some(generate(slices[0], &[short.min(block_size), block_size]));
        spec
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_models_fit_tightly(spec in random_spec()) {
        check("random", &spec);
    }
}
