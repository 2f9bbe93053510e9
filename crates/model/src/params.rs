//! The one table of parameters. Order, shapes, initial values, weight decay, checkpoint names and
//! the flat arrays that the optimizer works on are all derived from it.

use crate::dims::Dims;
use plan::{ALIGNMENT, PlanError, Shape};

/// A dimension of a parameter, as a multiple of the model's sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// `vocab_size`.
    Vocab,
    /// `block_size`.
    Block,
    /// So many times `n_embd`.
    Width(u64),
}

/// Initial values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    /// Normal, deviation 0.02.
    Normal,
    /// Normal, deviation 0.02 / √(2 n_layer): projections into the residual stream.
    Residual,
    /// Zeros.
    Zero,
    /// Ones.
    One,
}

/// The PyTorch module that holds a parameter; it decides what making the module draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    /// `nn.Embedding` of tokens, tied to the head.
    TokenEmbedding,
    /// `nn.Embedding` of positions.
    PositionEmbedding,
    /// `nn.Linear`.
    Linear,
    /// nanoGPT's layer norm.
    LayerNorm,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamRow {
    /// Hugging Face's name; nanoGPT puts `transformer.` before it. `{}` is the layer.
    pub name: &'static str,
    /// Dimensions, `[out, in]` for linear layers.
    pub shape: &'static [Extent],
    /// What holds it.
    pub module: Module,
    /// Initial values.
    pub init: Init,
    /// Exists only with `bias=True`.
    pub only_with_bias: bool,
    /// Hugging Face keeps it as `[in, out]` (its Conv1D).
    pub hf_transposed: bool,
}

const fn row(name: &'static str, shape: &'static [Extent], module: Module, init: Init) -> ParamRow {
    ParamRow { name, shape, module, init, only_with_bias: false, hf_transposed: false }
}

const fn linear(name: &'static str, shape: &'static [Extent], init: Init) -> ParamRow {
    ParamRow { hf_transposed: true, ..row(name, shape, Module::Linear, init) }
}

const fn gain(name: &'static str) -> ParamRow {
    row(name, &[Width(1)], Module::LayerNorm, Init::One)
}

const fn bias(name: &'static str, shape: &'static [Extent], module: Module) -> ParamRow {
    ParamRow { only_with_bias: true, ..row(name, shape, module, Init::Zero) }
}

use Extent::{Block, Vocab, Width};

/// Before the blocks. The head is tied to `wte`, so it has no row.
const EMBEDDINGS: &[ParamRow] = &[
    row("wte.weight", &[Vocab, Width(1)], Module::TokenEmbedding, Init::Normal),
    row("wpe.weight", &[Block, Width(1)], Module::PositionEmbedding, Init::Normal),
];

/// In every block.
const BLOCK: &[ParamRow] = &[
    gain("h.{}.ln_1.weight"),
    bias("h.{}.ln_1.bias", &[Width(1)], Module::LayerNorm),
    linear("h.{}.attn.c_attn.weight", &[Width(3), Width(1)], Init::Normal),
    bias("h.{}.attn.c_attn.bias", &[Width(3)], Module::Linear),
    linear("h.{}.attn.c_proj.weight", &[Width(1), Width(1)], Init::Residual),
    bias("h.{}.attn.c_proj.bias", &[Width(1)], Module::Linear),
    gain("h.{}.ln_2.weight"),
    bias("h.{}.ln_2.bias", &[Width(1)], Module::LayerNorm),
    linear("h.{}.mlp.c_fc.weight", &[Width(4), Width(1)], Init::Normal),
    bias("h.{}.mlp.c_fc.bias", &[Width(4)], Module::Linear),
    linear("h.{}.mlp.c_proj.weight", &[Width(1), Width(4)], Init::Residual),
    bias("h.{}.mlp.c_proj.bias", &[Width(1)], Module::Linear),
];

/// After the blocks.
const FINAL: &[ParamRow] =
    &[gain("ln_f.weight"), bias("ln_f.bias", &[Width(1)], Module::LayerNorm)];

/// A parameter of a model of given sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its row, with the layer filled in.
    pub name: String,
    /// Its block.
    pub layer: Option<u32>,
    /// Its shape.
    pub shape: Shape,
    /// Its row.
    pub row: &'static ParamRow,
}

impl Param {
    /// nanoGPT decays tensors of two or more dimensions.
    pub fn decays(&self) -> bool {
        self.row.shape.len() >= 2
    }
}

/// All parameters, in the order of nanoGPT's `named_parameters()`.
pub fn parameters(dims: &Dims) -> Result<Vec<Param>, PlanError> {
    let layers =
        (0..dims.n_layer as u32).flat_map(|layer| BLOCK.iter().map(move |r| (Some(layer), r)));
    let rows = EMBEDDINGS
        .iter()
        .map(|row| (None, row))
        .chain(layers)
        .chain(FINAL.iter().map(|row| (None, row)));
    rows.filter(|(_, row)| dims.bias || !row.only_with_bias)
        .map(|(layer, row)| {
            let name = match layer {
                Some(layer) => row.name.replace("{}", &layer.to_string()),
                None => row.name.to_string(),
            };
            Ok(Param { name, layer, shape: shape_of(row, dims)?, row })
        })
        .collect()
}

fn shape_of(row: &ParamRow, dims: &Dims) -> Result<Shape, PlanError> {
    let extents: Vec<u64> = row
        .shape
        .iter()
        .map(|extent| match extent {
            Vocab => dims.vocab_size,
            Block => dims.block_size,
            Width(times) => times * dims.n_embd,
        })
        .collect();
    Shape::new(&extents)
}

/// Number of parameters as nanoGPT reports it: without the position embedding.
pub fn reported_parameters(dims: &Dims) -> Result<u64, PlanError> {
    let counted = |param: &&Param| param.row.module != Module::PositionEmbedding;
    let all = parameters(dims)?;
    Ok(all.iter().filter(counted).map(|p| p.shape.elements()).fold(0, u64::saturating_add))
}

/// Floating-point operations that training spends on a token in a context of `positions`, as
/// nanoGPT counts them for its MFU: six for each parameter, and attention as if it were not
/// causal.
pub fn training_flops_per_token(dims: &Dims, positions: u64) -> Result<f64, PlanError> {
    let attention = 12.0 * dims.n_layer as f64 * dims.n_embd as f64 * positions as f64;
    Ok(6.0 * reported_parameters(dims)? as f64 + attention)
}

/// Where each parameter stands in the flat arrays of weights, gradients and moments: first all
/// that decay, then the rest, each at an aligned element. One array for each role lets the
/// optimizer run over everything at once, and lets it be sharded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatLayout {
    /// First element of each parameter, in the order of [`parameters`].
    pub offsets: Vec<u64>,
    /// Elements of the part that decays.
    pub decayed: u64,
    /// Elements of all, padding included; the padding is zero and stays zero.
    pub total: u64,
}

/// Elements between addresses that are aligned in every format, 16 bits included.
const FLAT_ALIGNMENT: u64 = ALIGNMENT / 2;

impl FlatLayout {
    /// The layout for these parameters; saturates where the sizes are absurd, and the tensor made
    /// of it is then refused.
    pub fn new(params: &[Param]) -> FlatLayout {
        let mut offsets = vec![0; params.len()];
        let mut top = 0u64;
        let mut place = |decays: bool| {
            for (param, offset) in params.iter().zip(&mut offsets) {
                if param.decays() == decays {
                    *offset = top;
                    let size = param.shape.elements();
                    let padded = size.checked_next_multiple_of(FLAT_ALIGNMENT).unwrap_or(u64::MAX);
                    top = top.saturating_add(padded);
                }
            }
            top
        };
        let decayed = place(true);
        let total = place(false);
        FlatLayout { offsets, decayed, total }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(n_layer: u64, n_head: u64, n_embd: u64, bias: bool) -> Dims {
        Dims { n_layer, n_head, n_embd, block_size: 1024, vocab_size: 50304, bias }
    }

    #[test]
    fn counts_are_those_nanogpt_prints() {
        // (dims, reported, decayed tensors and elements, other tensors and elements)
        let gpt2 = dims(12, 12, 768, false);
        assert_eq!(reported_parameters(&gpt2).unwrap(), 123_587_328);
        let params = parameters(&gpt2).unwrap();
        let count = |decays: bool| {
            let group: Vec<_> = params.iter().filter(|p| p.decays() == decays).collect();
            (group.len(), group.iter().map(|p| p.shape.elements()).sum::<u64>())
        };
        assert_eq!(count(true), (50, 124_354_560));
        assert_eq!(count(false), (25, 19_200));
        let rounded = |d: &Dims| (reported_parameters(d).unwrap() as f64 / 1e5).round() / 10.0;
        assert_eq!(rounded(&dims(12, 12, 576, false)), 76.8);
        assert_eq!(parameters(&dims(2, 2, 10, true)).unwrap().len(), 2 + 24 + 2);
    }

    #[test]
    fn flat_layout_has_every_parameter_once_and_aligned() {
        let params = parameters(&dims(2, 2, 10, true)).unwrap();
        let flat = FlatLayout::new(&params);
        let mut ranges: Vec<(u64, u64, bool)> = params
            .iter()
            .zip(&flat.offsets)
            .map(|(p, &offset)| (offset, offset + p.shape.elements(), p.decays()))
            .collect();
        ranges.sort();
        for pair in ranges.windows(2) {
            assert!(pair[0].1 <= pair[1].0);
        }
        for (start, end, decays) in ranges {
            assert_eq!(start % 64, 0);
            assert!(if decays { end <= flat.decayed } else { start >= flat.decayed });
            assert!(end <= flat.total);
        }
    }
}
