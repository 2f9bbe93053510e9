//! nanoGPT's initial weights, bit for bit. PyTorch's generator is replayed in the order in which
//! `GPT(config)` draws. Values that nanoGPT overwrites later are not computed; only their draws are
//! skipped.

use crate::dims::Dims;
use crate::params::{Init, ModuleKind, Param};
use rng::torch::Generator;

const STD: f64 = 0.02;

/// Values computed at a time, so that no parameter is ever held whole a second time. A multiple of
/// the 16 values that PyTorch's normal fill draws at once.
const PIECE: u64 = 1 << 16;
const BLOCK: u64 = 16;

/// Calls `put` for pieces of each parameter of `params` (the table for these dims) with its index,
/// the piece's first element and its values, in the order in which they become final. Afterwards
/// `generator` is in the state in which nanoGPT draws its first batch.
pub(crate) fn nanogpt(
    dims: &Dims,
    params: &[Param],
    generator: &mut Generator,
    put: &mut dyn FnMut(usize, u64, &[f32]),
) {
    skip_constructors(params, generator);
    let mut values = Vec::new();
    let residual_std = STD / (2.0 * dims.n_layer as f64).sqrt();
    let mut tied_embedding = None;
    for (index, param) in params.iter().enumerate() {
        let elements = param.shape.elements();
        match param.init {
            Init::Zero | Init::One => {
                let value = if param.init == Init::One { 1.0 } else { 0.0 };
                for (first, size) in pieces(elements) {
                    values.clear();
                    values.resize(size as usize, value);
                    put(index, first, &values);
                }
            }
            // The head is initialised last and is the same tensor, so this fill is overwritten.
            Init::Normal if param.module.kind == ModuleKind::TokenEmbedding => {
                generator.skip_normal(elements);
                tied_embedding = Some((index, elements));
            }
            Init::Normal => {
                fill(generator, elements, STD, &mut values, |first, v| put(index, first, v))
            }
            // Filled again below with a smaller deviation.
            Init::Residual => generator.skip_normal(elements),
        }
    }
    if let Some((index, elements)) = tied_embedding {
        fill(generator, elements, STD, &mut values, |first, v| put(index, first, v));
    }
    for (index, param) in params.iter().enumerate() {
        if param.init == Init::Residual {
            let elements = param.shape.elements();
            fill(generator, elements, residual_std, &mut values, |first, v| put(index, first, v));
        }
    }
}

/// Filling in pieces gives the same values as filling at once: every block of 16 depends only on
/// its own 16 draws, and the last piece contains at least one whole block before the remainder.
fn fill(
    generator: &mut Generator,
    elements: u64,
    std: f64,
    values: &mut Vec<f32>,
    mut put: impl FnMut(u64, &[f32]),
) {
    for (first, size) in pieces(elements) {
        values.clear();
        values.resize(size as usize, 0.0);
        generator.normal_fill(values, 0.0, std);
        put(first, values);
    }
}

/// First element and size of each piece. The last piece is never shorter than a block, unless it is
/// the only one.
fn pieces(elements: u64) -> impl Iterator<Item = (u64, u64)> {
    let left_over = elements % PIECE;
    let merged = elements > PIECE && left_over > 0 && left_over < BLOCK;
    let count = if merged { elements / PIECE } else { elements.div_ceil(PIECE) };
    (0..count).map(move |piece| {
        let first = piece * PIECE;
        let end = if piece + 1 == count { elements } else { first + PIECE };
        (first, end - first)
    })
}

/// Skips the draws that PyTorch modules make when they are constructed: a normal fill for an
/// embedding, one uniform value for each weight and bias of a linear layer, none for a layer norm.
/// The head, not yet tied, is constructed last.
fn skip_constructors(params: &[Param], generator: &mut Generator) {
    let mut head = 0;
    for param in params {
        let elements = param.shape.elements();
        match param.module.kind {
            ModuleKind::TokenEmbedding => {
                generator.skip_normal(elements);
                head = elements;
            }
            ModuleKind::PositionEmbedding => generator.skip_normal(elements),
            ModuleKind::Linear => generator.skip(elements),
            ModuleKind::LayerNorm => {}
        }
    }
    generator.skip(head);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_in_pieces_is_the_fill_at_once() {
        for elements in [1, 15, 16, 100, PIECE, PIECE + 1, PIECE + 15, PIECE + 16, 3 * PIECE + 7] {
            let mut want = vec![0.0; elements as usize];
            Generator::new(5).normal_fill(&mut want, 0.0, 0.02);
            let mut got = Vec::new();
            let mut generator = Generator::new(5);
            fill(&mut generator, elements, 0.02, &mut Vec::new(), |first, values| {
                assert_eq!(first, got.len() as u64);
                got.extend_from_slice(values);
            });
            assert!(got == want, "{elements}");
        }
    }
}
