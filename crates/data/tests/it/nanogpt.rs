//! nanoGPT's batches, compared with the starts that the real nanoGPT drew (PyTorch 2.11, seed
//! 1337).

use fitgpt_data::{DataError, NanogptSampler, NanogptSpec, NanogptState, Split};
use rng::torch::Generator;

/// Random words that initialising the model of nanoGPT's README takes: 4 layers, 4 heads, 128
/// channels, block_size 64, 65 characters, no bias.
const INIT_DRAWS: u64 = 1_950_208;

/// tinyshakespeare by characters.
const SPEC: NanogptSpec =
    NanogptSpec { batch_size: 12, block_size: 64, train_tokens: 1_003_854, val_tokens: 111_540 };

fn after_init() -> Generator {
    let mut generator = Generator::new(1337);
    generator.skip(INIT_DRAWS);
    generator
}

fn train(sampler: &mut NanogptSampler) -> [u64; 3] {
    let mut starts = [0; 12];
    sampler.train_batch(&mut starts).unwrap();
    [starts[0], starts[1], starts[2]]
}

fn eval(sampler: &mut NanogptSampler, split: Split) -> [u64; 3] {
    let mut starts = [0; 12];
    sampler.eval_batch(split, &mut starts).unwrap();
    [starts[0], starts[1], starts[2]]
}

#[test]
fn the_generator_stands_where_pytorchs_stands() {
    let mut generator = after_init();
    let next: [u64; 4] = std::array::from_fn(|_| generator.randint(1 << 27));
    assert_eq!(next, [88552510, 3608150, 123124039, 91432175]);
}

/// eval_iters=2, gradient_accumulation_steps=2, an evaluation at iteration 0.
#[test]
fn starts_of_the_real_nanogpt() {
    let mut sampler = NanogptSampler::new(SPEC, after_init()).unwrap();
    // Iteration 0: the evaluation, then two micro-steps, of which the first uses the batch that
    // was drawn before the evaluation.
    assert_eq!(eval(&mut sampler, Split::Train), [832423, 393994, 900649]);
    assert_eq!(eval(&mut sampler, Split::Train), [933742, 178944, 227151]);
    assert_eq!(eval(&mut sampler, Split::Val), [53857, 82696, 102695]);
    assert_eq!(eval(&mut sampler, Split::Val), [99442, 97020, 37980]);
    assert_eq!(train(&mut sampler), [485778, 573436, 991809]);
    assert_eq!(train(&mut sampler), [539994, 513055, 903472]);
    // Iteration 1.
    assert_eq!(train(&mut sampler), [980494, 195599, 591190]);
}

#[test]
fn evaluation_moves_training_here() {
    let mut sampler = NanogptSampler::new(SPEC, after_init()).unwrap();
    assert_eq!(train(&mut sampler), [485778, 573436, 991809]);
    assert_ne!(train(&mut sampler), [539994, 513055, 903472]);
}

/// From 2^28 possible starts on, a draw takes two words, as in PyTorch 2.7 and later.
#[test]
fn large_data_sets_take_two_words() {
    let spec = NanogptSpec {
        batch_size: 4,
        block_size: 1024,
        train_tokens: 9_035_582_198,
        val_tokens: 4_434_897,
    };
    let mut sampler = NanogptSampler::new(spec, Generator::new(1337)).unwrap();
    let mut starts = [0; 4];
    sampler.train_batch(&mut starts).unwrap();
    assert_eq!(starts, [3065872021, 2643422548, 7449559733, 2062126738]);
}

#[test]
fn a_state_continues_the_stream() {
    let mut sampler = NanogptSampler::new(SPEC, after_init()).unwrap();
    for _ in 0..700 {
        train(&mut sampler);
    }
    let mut resumed = NanogptSampler::from_state(SPEC, sampler.state()).unwrap();
    assert_eq!(resumed, sampler);
    for _ in 0..100 {
        assert_eq!(eval(&mut resumed, Split::Val), eval(&mut sampler, Split::Val));
        assert_eq!(train(&mut resumed), train(&mut sampler));
    }
}

#[test]
fn states_of_other_runs_are_refused() {
    let sampler = NanogptSampler::new(SPEC, after_init()).unwrap();
    let state = || sampler.state();
    let refusal = |spec, state| NanogptSampler::from_state(spec, state).unwrap_err().to_string();
    let message = refusal(NanogptSpec { batch_size: 8, ..SPEC }, state());
    assert!(message.contains("12 rows drawn ahead, but batch_size=8"), "{message}");
    let message = refusal(NanogptSpec { train_tokens: 500_000, ..SPEC }, state());
    assert!(message.contains("row start 573436 is not below 499936"), "{message}");
    let mut broken = state();
    broken.generator.index = 625;
    let message = refusal(SPEC, NanogptState { ..broken });
    assert!(message.contains("index is 625"), "{message}");
}

#[test]
fn sizes_without_a_counterpart_are_refused() {
    let mut sampler = NanogptSampler::new(SPEC, after_init()).unwrap();
    let before = sampler.clone();
    for error in [
        sampler.eval_batch(Split::Val, &mut [0; 6]).unwrap_err(),
        sampler.train_batch(&mut [0; 13]).unwrap_err(),
    ] {
        assert!(error.to_string().contains("but batch_size=12"), "{error}");
    }
    assert_eq!(sampler, before);
    for spec in [
        NanogptSpec { val_tokens: 64, ..SPEC },
        NanogptSpec { train_tokens: 10, ..SPEC },
        NanogptSpec { batch_size: 0, ..SPEC },
    ] {
        let made = NanogptSampler::new(spec, Generator::new(1));
        assert!(matches!(made, Err(DataError::Shape { .. })), "{spec:?}");
    }
}
