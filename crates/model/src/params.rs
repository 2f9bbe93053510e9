//! Parameters as an architecture declares them, one row for each module. Everything else is derived
//! from these rows: order, shapes, initial values, weight decay, checkpoint names, and the flat
//! arrays that the optimizer updates.

use crate::architecture::Network;
use crate::dims::Dims;
use plan::{ALIGNMENT, PlanError, Shape};

/// How a parameter is initialised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Init {
    /// Normal, standard deviation 0.02.
    Normal,
    /// Normal, standard deviation 0.02 / √(2 n_layer): projections into the residual stream.
    Residual,
    /// Zeros.
    Zero,
    /// Ones.
    One,
}

/// The PyTorch module, which decides how many random numbers its construction draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModuleKind {
    /// `nn.Embedding` of tokens, tied to the head.
    TokenEmbedding,
    /// `nn.Embedding` of positions.
    PositionEmbedding,
    /// `nn.Linear`. Hugging Face stores its weight as `[in, out]` (Conv1D).
    Linear,
    /// nanoGPT's layer norm.
    LayerNorm,
}

/// A module that holds a weight. It also holds a bias if its row of the table says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Module {
    /// Hugging Face's name, relative to the block if it belongs to one.
    pub name: &'static str,
    /// The PyTorch module.
    pub kind: ModuleKind,
    /// How its weight is initialised.
    pub init: Init,
}

/// A row of an architecture's table: a module of a model with given sizes.
pub(crate) struct SizedModule {
    module: Module,
    /// Shape of its weight; `[out, in]` for linear layers.
    shape: Vec<u64>,
    has_bias: bool,
}

impl Module {
    pub(crate) const fn token_embedding(name: &'static str) -> Module {
        Module { name, kind: ModuleKind::TokenEmbedding, init: Init::Normal }
    }

    pub(crate) const fn position_embedding(name: &'static str) -> Module {
        Module { name, kind: ModuleKind::PositionEmbedding, init: Init::Normal }
    }

    pub(crate) const fn linear(name: &'static str, init: Init) -> Module {
        Module { name, kind: ModuleKind::Linear, init }
    }

    pub(crate) const fn layer_norm(name: &'static str) -> Module {
        Module { name, kind: ModuleKind::LayerNorm, init: Init::One }
    }

    /// A row for the module, with a weight of this shape and no bias.
    pub(crate) fn sized(self, shape: &[u64]) -> SizedModule {
        SizedModule { module: self, shape: shape.to_vec(), has_bias: false }
    }

    /// Hugging Face's full name of a parameter.
    pub(crate) fn parameter_name(self, layer: Option<u32>, kind: ParamKind) -> String {
        let kind = match kind {
            ParamKind::Weight => "weight",
            ParamKind::Bias => "bias",
        };
        match layer {
            Some(layer) => format!("h.{layer}.{}.{kind}", self.name),
            None => format!("{}.{kind}", self.name),
        }
    }
}

impl SizedModule {
    /// The same row with a bias of the weight's first dimension, or without one.
    pub fn with_bias(self, has_bias: bool) -> SizedModule {
        SizedModule { has_bias, ..self }
    }

    /// Elements of the weight if it is a matrix; 0 for the gain of a norm.
    pub(crate) fn matrix_elements(&self) -> u64 {
        match self.shape[..] {
            [] | [_] => 0,
            _ => self.shape.iter().copied().fold(1, u64::saturating_mul),
        }
    }

    fn parameters(&self) -> &'static [ParamKind] {
        match self.has_bias {
            true => &[ParamKind::Weight, ParamKind::Bias],
            false => &[ParamKind::Weight],
        }
    }
}

/// Which of a module's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ParamKind {
    /// The matrix, table or gain.
    Weight,
    /// The vector that is added.
    Bias,
}

/// All modules of an architecture, in the order in which PyTorch lists their parameters.
pub(crate) struct Modules {
    pub before: Vec<SizedModule>,
    /// Modules of every block.
    pub block: Vec<SizedModule>,
    pub after: Vec<SizedModule>,
}

/// A parameter of a model with given sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Hugging Face's name.
    pub name: String,
    /// The block that it belongs to, if any.
    pub layer: Option<u32>,
    /// Its shape.
    pub shape: Shape,
    /// Its initial values.
    pub init: Init,
    /// The module that holds it.
    pub module: Module,
    /// Whether it is the module's weight or bias.
    pub kind: ParamKind,
}

impl Param {
    fn new(layer: Option<u32>, row: &SizedModule, kind: ParamKind) -> Result<Param, PlanError> {
        let module = row.module;
        let (dims, init) = match kind {
            ParamKind::Weight => (&row.shape[..], module.init),
            ParamKind::Bias => (&row.shape[..1], Init::Zero),
        };
        let (name, shape) = (module.parameter_name(layer, kind), Shape::new(dims)?);
        Ok(Param { name, layer, shape, init, module, kind })
    }

    /// Whether weight decay applies: only to tensors of two or more dimensions.
    pub fn decays(&self) -> bool {
        self.shape.dims().len() >= 2
    }
}

/// All parameters of an architecture, in PyTorch's order.
pub(crate) fn parameters(network: &dyn Network, dims: &Dims) -> Result<Vec<Param>, PlanError> {
    let Modules { before, block, after } = network.modules(dims);
    let [before, after] = [&before, &after].map(|rows| rows.iter().map(|row| (None, row)));
    let blocks =
        (0..dims.n_layer as u32).flat_map(|layer| block.iter().map(move |row| (Some(layer), row)));
    let rows = before.chain(blocks).chain(after);
    rows.flat_map(|(layer, row)| row.parameters().iter().map(move |&kind| (layer, row, kind)))
        .map(|(layer, row, kind)| Param::new(layer, row, kind))
        .collect()
}

/// Where each parameter is in the flat arrays of weights, gradients and optimizer state: first all
/// parameters with weight decay, then the others, each at an aligned element. With one array per
/// role, the optimizer can update everything at once, and the array can be sharded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatLayout {
    /// First element of each parameter, in the order of `parameters`.
    pub offsets: Vec<u64>,
    /// Elements of the part with weight decay.
    pub decayed: u64,
    /// Elements of the whole array, padding included. The padding is zero and stays zero.
    pub total: u64,
}

/// Elements between addresses that are aligned in every format, including 16-bit ones.
const FLAT_ALIGNMENT: u64 = ALIGNMENT / 2;

impl FlatLayout {
    /// The layout for these parameters, where each may take more rows than it has (`rows_of`). It
    /// saturates when sizes overflow; the tensor made from it is then refused.
    pub fn new(params: &[Param], rows_of: impl Fn(&Param) -> u64) -> FlatLayout {
        let mut offsets = vec![0; params.len()];
        let mut top = 0u64;
        let mut place = |decays: bool| {
            for (param, offset) in params.iter().zip(&mut offsets) {
                if param.decays() == decays {
                    *offset = top;
                    let size = param.shape.width().saturating_mul(rows_of(param));
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
    use crate::gpt2::Gpt2;
    use plan::ops::GeluKind;

    #[test]
    fn flat_layout_has_every_parameter_once_and_aligned() {
        let dims = Dims {
            n_layer: 2,
            n_head: 2,
            n_embd: 10,
            block_size: 1024,
            vocab_size: 50304,
            bias: true,
        };
        let params = parameters(&Gpt2 { gelu: GeluKind::Erf }, &dims).unwrap();
        let flat = FlatLayout::new(&params, |param| param.shape.rows());
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
