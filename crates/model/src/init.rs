//! nanoGPT's initial weights, bit for bit: PyTorch's generator replayed in the order in which
//! `GPT(config)` draws. Fills that are overwritten later are skipped, only their draws count.

use crate::dims::Dims;
use crate::params::{Init, Module, Param};
use rng::torch::Generator;

const STD: f64 = 0.02;

/// Calls `put` once for each parameter of `params` (the table of these dims) with its index and
/// values, in the order in which they are final. Afterwards `generator` stands where nanoGPT's
/// stands before it draws its first batch.
pub fn nanogpt(
    dims: &Dims,
    params: &[Param],
    generator: &mut Generator,
    mut put: impl FnMut(usize, &[f32]),
) {
    skip_constructors(params, generator);
    let mut values = Vec::new();
    let residual_std = STD / (2.0 * dims.n_layer as f64).sqrt();
    let mut tied_embedding = None;
    for (index, param) in params.iter().enumerate() {
        let elements = param.shape.elements();
        match param.row.init {
            Init::Zero | Init::One => {
                let value = if param.row.init == Init::One { 1.0 } else { 0.0 };
                values.clear();
                values.resize(elements as usize, value);
                put(index, &values);
            }
            // The head is initialised last and is the same tensor: this fill does not survive.
            Init::Normal if param.row.module == Module::TokenEmbedding => {
                generator.skip_normal(elements);
                tied_embedding = Some((index, elements));
            }
            Init::Normal => fill(generator, elements, STD, &mut values, |v| put(index, v)),
            // Filled again below with a smaller deviation.
            Init::Residual => generator.skip_normal(elements),
        }
    }
    if let Some((index, elements)) = tied_embedding {
        fill(generator, elements, STD, &mut values, |v| put(index, v));
    }
    for (index, param) in params.iter().enumerate() {
        if param.row.init == Init::Residual {
            let elements = param.shape.elements();
            fill(generator, elements, residual_std, &mut values, |v| put(index, v));
        }
    }
}

fn fill(
    generator: &mut Generator,
    elements: u64,
    std: f64,
    values: &mut Vec<f32>,
    put: impl FnOnce(&[f32]),
) {
    values.clear();
    values.resize(elements as usize, 0.0);
    generator.normal_fill(values, 0.0, std);
    put(values);
}

/// What the modules draw for themselves when they are made: a normal fill for an embedding, one
/// uniform for each weight and bias of a linear layer, nothing for a layer norm. The untied head
/// is made last.
fn skip_constructors(params: &[Param], generator: &mut Generator) {
    let mut head = 0;
    for param in params {
        let elements = param.shape.elements();
        match param.row.module {
            Module::TokenEmbedding => {
                generator.skip_normal(elements);
                head = elements;
            }
            Module::PositionEmbedding => generator.skip_normal(elements),
            Module::Linear => generator.skip(elements),
            Module::LayerNorm => {}
        }
    }
    generator.skip(head);
}
