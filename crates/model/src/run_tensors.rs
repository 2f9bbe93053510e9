//! Tensors that outlive segments: flat arrays of weights, gradients and optimizer state with a view
//! for each parameter, the step state, and the losses of sequences.

use crate::optimizer::StateRow;
use crate::params::{FlatLayout, Module, Param, ParamKind, parameters};
use crate::program::{ProgramParam, ProgramSpec};
use crate::sharing::{Shard, Sharing};
use plan::{
    Bytes, Dtype, PlanError, Role, ScheduleBuilder, Scope, Shape, StepState, Tensor, TensorId, View,
};
use std::collections::BTreeMap;

/// All tensors that outlive segments.
pub(crate) struct RunTensors {
    pub parameters: Vec<ProgramParam>,
    by_module: BTreeMap<(Module, Option<u32>, ParamKind), TensorId>,
    pub gradient_of: BTreeMap<TensorId, TensorId>,
    pub flat: Flat,
    pub decayed: u64,
    pub total: u64,
    pub state: TensorId,
    pub row_loss: Option<TensorId>,
    /// The losses of all ranks.
    pub row_losses: Option<TensorId>,
    pub head: HeadWeight,
    pub sharing: Sharing,
    /// What this rank sums and updates; empty if there are no groups.
    pub shard: Shard,
    /// Sums of this rank's groups, if it has several.
    pub totals: Option<TensorId>,
}

/// The weight that heads with a loss multiply with: the parameter, or the parameter and zeros
/// behind it, where the backend wants more rows. The zeros have no gradient, so they stay zero.
#[derive(Clone, Copy)]
pub(crate) struct HeadWeight {
    pub w: TensorId,
    pub padding: u64,
}

/// The flat arrays of a program.
pub(crate) struct Flat {
    /// The weights that kernels read.
    pub compute: FlatRole,
    /// The f32 weights, if kernels read an f16 copy; their lower halves, if kernels read the upper
    /// ones in bfloat16.
    pub master: Option<FlatRole>,
    /// Only in training.
    pub gradients: Option<FlatRole>,
    /// In the order of the optimizer's table; empty without training.
    pub state: Vec<(StateRow, FlatRole)>,
}

/// The sizes of flat arrays: whole, or this rank's shard.
struct FlatSizes<'a> {
    layout: &'a FlatLayout,
    table: &'a [Param],
    /// Where master weights and optimizer state are divided among ranks.
    shard: Option<&'a Shard>,
}

impl Flat {
    fn new(
        b: &mut ScheduleBuilder,
        spec: &ProgramSpec,
        sizes: &FlatSizes<'_>,
    ) -> Result<Flat, PlanError> {
        let (types, FlatSizes { layout, table, shard }) = (spec.model.types, sizes);
        let mut whole = |name: &str, prefix: &str, dtype: Dtype, role: Role, scope: Scope| {
            flat_role(b, table, layout, (name, prefix), dtype, (role, scope))
        };
        let compute = whole("weights", "", types.compute, Role::Weight, Scope::Run)?;
        let Some(train) = &spec.train else {
            return Ok(Flat { compute, master: None, gradients: None, state: Vec::new() });
        };
        let scope = if train.optimizer.offload.is_some() { Scope::Host } else { Scope::Run };
        let master_dtype = match types.compute {
            Dtype::F32 => None,
            Dtype::Bf16 => Some(Dtype::U16),
            _ => Some(Dtype::F32),
        };
        let mut master = match (master_dtype, shard) {
            (Some(dtype), None) => Some(whole("master", "master ", dtype, Role::Master, scope)?),
            _ => None,
        };
        let gradients = whole("gradients", "grad ", Dtype::F32, Role::Gradient, Scope::Run)?;
        let mut role = |name: &str, prefix: &str, dtype: Dtype, role: Role| match shard {
            None => flat_role(b, table, layout, (name, prefix), dtype, (role, scope)),
            Some(shard) => {
                let gathered = Gathered { gradients: gradients.root, layout, table };
                sharded_role(b, shard, (name, prefix), dtype, (role, scope), &gathered)
            }
        };
        if let (Some(dtype), None) = (master_dtype, &master) {
            master = Some(role("master", "master ", dtype, Role::Master)?);
        }
        let rows = train.optimizer.rule.rule().state().into_iter();
        let state = rows
            .map(|row| {
                let prefix = format!("{} ", row.name);
                Ok((row, role(row.name, &prefix, row.dtype, row.role)?))
            })
            .collect::<Result<_, PlanError>>()?;
        Ok(Flat { compute, master, gradients: Some(gradients), state })
    }

    fn parameter(&self, index: usize, param: Param) -> ProgramParam {
        let compute = self.compute.windows[index];
        ProgramParam {
            param,
            weight: self.master.as_ref().map_or(compute, |master| master.windows[index]),
            compute,
            gradient: self.gradients.as_ref().map(|role| role.windows[index]),
            state: self.state.iter().map(|(row, role)| (row.name, role.windows[index])).collect(),
        }
    }
}

/// One flat array and its views, one for each parameter. If the array is only this rank's shard,
/// the views are in the array of gradients, where the shards of all ranks are put together.
pub(crate) struct FlatRole {
    pub root: TensorId,
    pub windows: Vec<TensorId>,
    pub is_sharded: bool,
}

impl RunTensors {
    pub fn new(b: &mut ScheduleBuilder, spec: &ProgramSpec) -> Result<RunTensors, PlanError> {
        let table = parameters(spec.model.architecture.network(), &spec.model.dims)?;
        let head = spec.model.architecture.network().head();
        let rows_of = |param: &Param| {
            let rows = param.shape.rows();
            if param.module == head { b.head_rows(rows) } else { rows }
        };
        let layout = FlatLayout::new(&table, rows_of);
        let sharing = spec.train.as_ref().map_or(Sharing::NONE, |train| train.sharing);
        let shard = match sharing.has_groups() || sharing.averages {
            true => Shard::new(sharing.rank, layout.total),
            false => Shard::default(),
        };
        let divided = Some(&shard).filter(|_| sharing.is_sharded());
        let sizes = FlatSizes { layout: &layout, table: &table, shard: divided };
        let flat = Flat::new(b, spec, &sizes)?;
        let numbered = table.into_iter().enumerate();
        let parameters: Vec<ProgramParam> =
            numbered.map(|(index, param)| flat.parameter(index, param)).collect();
        let key = |param: &Param| (param.module, param.layer, param.kind);
        let by_module = parameters.iter().map(|p| (key(&p.param), p.compute)).collect();
        let mut gradient_of =
            parameters.iter().filter_map(|p| Some((p.compute, p.gradient?))).collect();
        let head = parameters.iter().find(|p| p.param.module == head);
        let head = head.ok_or_else(|| missing("head"))?;
        let head = HeadWeight::new(b, head, &mut gradient_of)?;
        let state_shape = Shape::new(&[StepState::WORDS as u64])?;
        let state = b.run_tensor("state", Dtype::U32, state_shape, Role::State)?;
        let [row_loss, row_losses] = losses(b, spec, sharing)?;
        let totals = match sharing.rounds() > 1 {
            true => {
                let shape = Shape::new(&[shard.elements.max(1)])?;
                Some(b.run_tensor("totals", Dtype::F32, shape, Role::Gradient)?)
            }
            false => None,
        };
        let (decayed, total) = (layout.decayed, layout.total);
        Ok(RunTensors {
            parameters,
            by_module,
            gradient_of,
            flat,
            decayed,
            total,
            state,
            row_loss,
            row_losses,
            head,
            sharing,
            shard,
            totals,
        })
    }
}

/// The losses of this rank's sequences, and those of all ranks if there are several.
fn losses(
    b: &mut ScheduleBuilder,
    spec: &ProgramSpec,
    sharing: Sharing,
) -> Result<[Option<TensorId>; 2], PlanError> {
    let train_rows = spec.train.as_ref().map(|train| train.loss_rows);
    let eval_rows = spec.eval.as_ref().map(|eval| eval.loss_rows);
    let has_others = sharing.rank.has_others();
    // One more with others: the ranks' requests to stop travel with the losses.
    let rows = train_rows.max(eval_rows).map(|rows| rows.saturating_add(u64::from(has_others)));
    let mut tensor = |name: &str, ranks: u64| {
        let shape = |rows: u64| Shape::new(&[rows.saturating_mul(ranks)]);
        rows.map(|rows| b.run_tensor(name, Dtype::F32, shape(rows)?, Role::State)).transpose()
    };
    let own = tensor("row_loss", 1)?;
    let all = match has_others {
        true => tensor("row_losses of all ranks", sharing.rank.ranks as u64)?,
        false => None,
    };
    Ok([own, all])
}

impl HeadWeight {
    fn new(
        b: &mut ScheduleBuilder,
        head: &ProgramParam,
        gradient_of: &mut BTreeMap<TensorId, TensorId>,
    ) -> Result<HeadWeight, PlanError> {
        let shape = head.param.shape;
        let rows = b.head_rows(shape.rows());
        let padding = rows.saturating_sub(shape.rows());
        if padding == 0 {
            return Ok(HeadWeight { w: head.compute, padding });
        }
        let mut padded = |tensor: TensorId| {
            let (root, offset) = b.tensors().root(tensor);
            let name = format!("padded {}", b.tensors().get(tensor).name);
            b.window(&name, Shape::new(&[rows, shape.width()])?, root, offset, None)
        };
        let w = padded(head.compute)?;
        if let Some(gradient) = head.gradient {
            gradient_of.insert(w, padded(gradient)?);
        }
        Ok(HeadWeight { w, padding })
    }
}

impl RunTensors {
    pub fn row_loss(&self) -> Result<TensorId, PlanError> {
        self.row_loss.ok_or_else(|| missing("row_loss"))
    }

    pub fn gradient(&self, weight: TensorId) -> Result<TensorId, PlanError> {
        self.gradient_of.get(&weight).copied().ok_or_else(|| missing("gradients"))
    }

    /// The tensor of a parameter that kernels read.
    pub fn parameter(
        &self,
        module: Module,
        layer: Option<u32>,
        kind: ParamKind,
    ) -> Result<TensorId, PlanError> {
        let found = self.find(module, layer, kind);
        found.ok_or_else(|| missing(&module.parameter_name(layer, kind)))
    }

    /// The same, or none where the module has no such parameter.
    pub fn find(&self, module: Module, layer: Option<u32>, kind: ParamKind) -> Option<TensorId> {
        self.by_module.get(&(module, layer, kind)).copied()
    }
}

/// The error when a segment needs a tensor that the spec did not ask for.
pub(crate) fn missing(what: &str) -> PlanError {
    PlanError::Attribute { op: "program", problem: format!("this program has no {what}") }
}

fn flat_role(
    b: &mut ScheduleBuilder,
    table: &[Param],
    layout: &FlatLayout,
    (name, prefix): (&str, &str),
    dtype: Dtype,
    (role, scope): (Role, Scope),
) -> Result<FlatRole, PlanError> {
    let shape = Shape::new(&[layout.total])?;
    let root = b.held_tensor(name, dtype, shape, role, scope)?;
    let windows = table
        .iter()
        .zip(&layout.offsets)
        .map(|(param, &element)| {
            let name = format!("{prefix}{}", param.name);
            b.window(&name, param.shape, root, element_offset(element, dtype)?, param.layer)
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(FlatRole { root, windows, is_sharded: false })
}

/// Where the shards of all ranks are put together.
struct Gathered<'a> {
    gradients: TensorId,
    layout: &'a FlatLayout,
    table: &'a [Param],
}

/// This rank's shard of a flat array. Its views are in the array of gradients, which is free (and
/// zero) between iterations and has at least as many bytes.
fn sharded_role(
    b: &mut ScheduleBuilder,
    shard: &Shard,
    (name, prefix): (&str, &str),
    dtype: Dtype,
    (role, scope): (Role, Scope),
    gathered: &Gathered<'_>,
) -> Result<FlatRole, PlanError> {
    let shape = Shape::new(&[shard.elements.max(1)])?;
    let root = b.held_tensor(name, dtype, shape, role, scope)?;
    let Gathered { gradients, layout, table } = *gathered;
    let like = b.tensors().get(gradients).clone();
    let windows = table.iter().zip(&layout.offsets).map(|(param, &element)| {
        let view = Some(View { root: gradients, offset: element_offset(element, dtype)? });
        let name = format!("gathered {prefix}{}", param.name);
        b.tensor(Tensor {
            name,
            dtype,
            shape: param.shape,
            layer: param.layer,
            view,
            ..like.clone()
        })
    });
    let windows = windows.collect::<Result<Vec<_>, _>>()?;
    Ok(FlatRole { root, windows, is_sharded: true })
}

/// The byte offset of an element in a flat array.
pub(crate) fn element_offset(element: u64, dtype: Dtype) -> Result<Bytes, PlanError> {
    let bytes = element.checked_mul(dtype.size()).and_then(Bytes::new);
    bytes.ok_or_else(|| PlanError::ArenaTooLarge { at: format!("element {element}") })
}
