//! Initial weights against nanoGPT itself: the hashes came out of PyTorch 2.11.0 (x86-64, AVX2),
//! over all of `named_parameters()` in order, f32 little-endian, seed 1337.

use crate::specs::{GPT2, NANOGPT, dims};
use fitgpt_model::{Dims, Init, Param};
use plan::PlanError;
use rng::torch::Generator;
use sha2::{Digest, Sha256};

const README: Dims = dims([4, 4, 128], 64, 65, false);

/// The table, each parameter's values, and the generator after them.
struct Initialised {
    params: Vec<Param>,
    values: Vec<Vec<f32>>,
    generator: Generator,
}

fn initialise(dims: &Dims) -> Result<Initialised, PlanError> {
    let params = NANOGPT.parameters(dims)?;
    let mut values: Vec<Vec<f32>> = vec![Vec::new(); params.len()];
    let mut generator = Generator::new(1337);
    NANOGPT.initialise(dims, &params, &mut generator, |index, first, filled| {
        let so_far = values[index].len() as u64;
        assert_eq!(so_far, first, "{} is filled once, in order", params[index].name);
        values[index].extend_from_slice(filled);
    });
    Ok(Initialised { params, values, generator })
}

fn hash(values: &[Vec<f32>]) -> String {
    let mut hash = Sha256::new();
    let mut bytes = Vec::new();
    for part in values.iter().flat_map(|values| values.chunks(1 << 16)) {
        bytes.clear();
        bytes.extend(part.iter().flat_map(|value| value.to_le_bytes()));
        hash.update(&bytes);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The hash of the weights, and the next four of `randint(2**27)`.
fn check(dims: &Dims, want: &str, next: [u64; 4]) {
    let mut found = initialise(dims).expect("the model is small");
    for (param, values) in found.params.iter().zip(&found.values) {
        assert_eq!(values.len() as u64, param.shape.elements(), "{}", param.name);
    }
    assert_eq!(hash(&found.values), want, "{dims:?}");
    assert_eq!([(); 4].map(|()| found.generator.randint(1 << 27)), next, "{dims:?}");
}

#[test]
fn small_models_start_as_nanogpt_starts_them() {
    let cases = [
        (
            README,
            "6e2953416628e72eb2017e6bcf75fb662e84e846c5697d2abdf8dea8ead8a547",
            [88552510, 3608150, 123124039, 91432175],
        ),
        (
            Dims { bias: true, ..README },
            "23c4991e14a9094368d3fc36758b936787631bc8b0fe24fbe99230826d5d4771",
            [81358845, 84581540, 2533722, 75397591],
        ),
        // Sizes that are no multiple of 16, so that every fill has a tail.
        (
            dims([2, 2, 10], 7, 65, true),
            "4d5290498d9e1ba698250315350f3efcfa1636f7d3096d15354b335a66f3948f",
            [92687416, 10957300, 1030619, 34006877],
        ),
    ];
    for (dims, want, next) in cases {
        check(&dims, want, next);
    }
}

#[test]
fn gpt2_124m_starts_as_nanogpt_starts_it() {
    let want = "ebf34d10bb2c850bee1d0c386eab1c73ea69e3b8e7f5227ced936acfbee916ca";
    check(&GPT2, want, [74257062, 59447637, 12481878, 119341067]);
}

#[test]
fn first_values() {
    let found = initialise(&README).unwrap();
    for (name, want) in [
        ("wte.weight", [0x398623cd, 0x3c328454, 0xbd090ab8u32]),
        ("wpe.weight", [0x3c51d1e5, 0xbc8b849f, 0xbc74a1a6]),
        ("h.0.attn.c_attn.weight", [0x3a486350, 0xbcefdabd, 0x3b814b6d]),
        ("h.0.attn.c_proj.weight", [0xbc01cdac, 0x3a6a5a26, 0xbb2309dd]),
    ] {
        let index = found.params.iter().position(|param| param.name == name).unwrap();
        let bits: Vec<u32> = found.values[index][..3].iter().map(|v| v.to_bits()).collect();
        assert_eq!(bits, want, "{name}");
    }
}

#[test]
fn gains_are_one_and_biases_zero() {
    let found = initialise(&Dims { bias: true, ..README }).unwrap();
    for (param, values) in found.params.iter().zip(&found.values) {
        let constant = match param.init {
            Init::Zero => Some(0.0),
            Init::One => Some(1.0),
            Init::Normal | Init::Residual => None,
        };
        assert_eq!(constant.is_some(), param.shape.dims().len() == 1, "{}", param.name);
        if let Some(constant) = constant {
            assert!(values.iter().all(|&value| value == constant), "{}", param.name);
        }
    }
}
