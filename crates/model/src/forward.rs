//! Writes a forward pass into a segment: the tensors and steps that architectures are made of.
//! Nothing here knows a particular architecture.

use crate::activation::{Activation, Activations};
use crate::dims::Dims;
use crate::params::{Module, ParamKind};
use crate::program::ModelSpec;
use crate::run_tensors::RunTensors;
use plan::ops::{Branch, Dropout, DropoutSite, Embed, LayerNorm, Linear, PositionFrom};
use plan::{Dtype, PlanError, Role, SegmentBuilder, Shape, TensorId};

/// Which keys and values attention reads.
#[derive(Clone, Copy)]
pub(crate) enum AttendTo<'a> {
    /// Those of the sequence itself.
    Whole,
    /// Those of the sequence itself, which are also stored in one cache for each layer.
    Fill(&'a [TensorId]),
    /// Those in the cache, for one new token.
    Cached(&'a [TensorId]),
}

impl AttendTo<'_> {
    /// The position of the first token of each sequence.
    pub fn position(self) -> PositionFrom {
        match self {
            AttendTo::Cached(_) => PositionFrom::Step,
            AttendTo::Whole | AttendTo::Fill(_) => PositionFrom::Zero,
        }
    }
}

/// The forward pass of one segment.
pub(crate) struct Forward<'a> {
    pub spec: &'a ModelSpec,
    pub tensors: &'a RunTensors,
    pub segment: SegmentBuilder<'a>,
    pub activations: &'a mut Activations,
    /// The current block; none outside the blocks.
    pub layer: Option<u32>,
    pub rows: u64,
    pub positions: u64,
    pub dropout: f32,
}

/// A layer norm and the activations that it makes.
#[derive(Clone, Copy)]
pub(crate) struct Norm {
    pub module: Module,
    /// The residual stream that it normalises.
    pub sum: Activation,
    pub out: Activation,
    /// Mean and reciprocal standard deviation.
    pub statistics: [Activation; 2],
    /// Added to the variance.
    pub epsilon: f64,
}

/// The residual stream, plain and normalised.
pub(crate) struct Stream {
    pub x: TensorId,
    /// The stream after the norm.
    pub normalised: TensorId,
}

impl Forward<'_> {
    pub fn dims(&self) -> Dims {
        self.spec.dims
    }

    /// Tensors, steps and parameters from now on belong to this block.
    pub fn set_layer(&mut self, layer: Option<u32>) {
        self.layer = layer;
        self.segment.set_layer(layer);
    }

    /// `out = dropout(wte[tokens] + wpe[position])`, without `wpe` if positions are not learned.
    pub fn embed(
        &mut self,
        tokens: TensorId,
        (wte, wpe): (Module, Option<Module>),
        out: TensorId,
        attend_to: AttendTo<'_>,
    ) -> Result<(), PlanError> {
        let wte = self.weight(wte)?;
        let wpe = wpe.map(|wpe| self.weight(wpe)).transpose()?;
        let dropout = self.dropout(DropoutSite::Embedding);
        let position = attend_to.position();
        self.segment.push(Embed { tokens, wte, wpe, out, position, dropout })
    }

    /// A linear layer. Its weight gives the output width.
    pub fn linear(
        &mut self,
        x: TensorId,
        module: Module,
        out: Activation,
    ) -> Result<TensorId, PlanError> {
        let (w, bias) = (self.weight(module)?, self.bias(module));
        let out = self.activation(out, self.segment.shape(w).rows())?;
        let gelu = None;
        let linear = |workspace| Linear { x, w, bias, out, gelu, residual: None, workspace };
        self.segment.push_with_workspace(linear)?;
        Ok(out)
    }

    /// `x + branch` and the norm after it, as one op. The op belongs to the norm's block, which
    /// becomes the current one; the branch's dropout belongs to the block before.
    pub fn join(
        &mut self,
        stream: Stream,
        branch: TensorId,
        site: DropoutSite,
        (norm, layer): (Norm, Option<u32>),
    ) -> Result<Stream, PlanError> {
        let dropout = self.dropout(site);
        self.set_layer(layer);
        let sum = self.residual(norm.sum, self.width(stream.x))?;
        let normalised = self.norm(stream.x, Some(Branch { branch, dropout, sum }), norm)?;
        Ok(Stream { x: sum, normalised })
    }

    /// A layer norm. If there is a branch, it is added first.
    pub fn norm(
        &mut self,
        x: TensorId,
        add: Option<Branch>,
        norm: Norm,
    ) -> Result<TensorId, PlanError> {
        let out = self.activation(norm.out, self.width(x))?;
        let rows = self.segment.shape(x).rows();
        let [mean, rstd] = norm.statistics;
        let (mean, rstd) = (self.statistic(mean, &[rows])?, self.statistic(rstd, &[rows])?);
        let (gain, bias) = (self.weight(norm.module)?, self.bias(norm.module));
        let epsilon = norm.epsilon;
        self.segment.push(LayerNorm { x, add, gain, bias, out, mean, rstd, epsilon })?;
        Ok(out)
    }

    /// Adds an activation with one row per token, in the compute format.
    pub fn activation(
        &mut self,
        activation: Activation,
        width: u64,
    ) -> Result<TensorId, PlanError> {
        let shape = Shape::new(&[self.rows, self.positions, width])?;
        self.local(activation, self.spec.types.compute, shape)
    }

    /// Adds a tensor for the residual stream at one point of the block.
    pub fn residual(&mut self, activation: Activation, width: u64) -> Result<TensorId, PlanError> {
        let shape = Shape::new(&[self.rows, self.positions, width])?;
        self.local(activation, self.spec.types.residual, shape)
    }

    /// Adds a statistic that the backward needs; always f32.
    pub fn statistic(
        &mut self,
        activation: Activation,
        dims: &[u64],
    ) -> Result<TensorId, PlanError> {
        self.local(activation, Dtype::F32, Shape::new(dims)?)
    }

    fn local(
        &mut self,
        activation: Activation,
        dtype: Dtype,
        shape: Shape,
    ) -> Result<TensorId, PlanError> {
        let id = self.segment.local(activation.name(), dtype, shape, Role::Activation)?;
        self.activations.insert(id, activation);
        Ok(id)
    }

    /// Adds token ids that the host writes.
    pub fn tokens(&mut self, name: &str) -> Result<TensorId, PlanError> {
        let shape = Shape::new(&[self.rows, self.positions])?;
        self.segment.run_input(name, Dtype::I32, shape, Role::Tokens)
    }

    /// The width of an activation: its numbers per token.
    pub fn width(&self, activation: TensorId) -> u64 {
        self.segment.shape(activation).width()
    }

    /// The weight of a module of the current block.
    pub fn weight(&self, module: Module) -> Result<TensorId, PlanError> {
        self.tensors.parameter(module, self.layer, ParamKind::Weight)
    }

    /// The bias of a module of the current block, if its row of the table has one.
    fn bias(&self, module: Module) -> Option<TensorId> {
        self.tensors.find(module, self.layer, ParamKind::Bias)
    }

    /// The dropout at a site of the current block. The embedding's counts as the first block's.
    pub fn dropout(&self, site: DropoutSite) -> Option<Dropout> {
        let (probability, layer) = (self.dropout, self.layer.unwrap_or(0));
        (probability != 0.0).then_some(Dropout { probability, layer, site })
    }
}
