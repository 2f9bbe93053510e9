//! Typed tensors, which the steps of a schedule read and write. A tensor has a name, an element
//! type, a shape, a role (for the bill) and a scope (for placement). It has no address yet.

use crate::bytes::Bytes;
use crate::error::PlanError;
use crate::schedule::SegmentId;
use std::fmt;

/// Index of a tensor in [`Tensors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorId(u32);

impl TensorId {
    /// Position in the table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// IEEE single precision.
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
    /// Token ids and targets; -1 means "no target".
    I32,
    /// Raw 32-bit words (the step state).
    U32,
    /// The lower halves of f32 weights whose upper halves are in bfloat16 ([`crate::half::split`]).
    U16,
}

impl Dtype {
    /// Bytes of one element.
    pub const fn size(self) -> u64 {
        match self {
            Dtype::F32 | Dtype::I32 | Dtype::U32 => 4,
            Dtype::Bf16 | Dtype::F16 | Dtype::U16 => 2,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dtype::F32 => "f32",
            Dtype::Bf16 => "bf16",
            Dtype::F16 => "f16",
            Dtype::I32 => "i32",
            Dtype::U32 => "u32",
            Dtype::U16 => "u16",
        })
    }
}

/// One to five dimensions, each at least 1. The last one is contiguous in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [u64; Shape::MAX_RANK],
    rank: usize,
}

impl Shape {
    /// The most dimensions that any tensor has (a key/value cache: 2, rows, heads, positions, head
    /// size).
    pub const MAX_RANK: usize = 5;

    /// Refuses a zero dimension, no dimensions, and more than [`Shape::MAX_RANK`] of them.
    pub fn new(dims: &[u64]) -> Result<Shape, PlanError> {
        if dims.is_empty() || dims.len() > Shape::MAX_RANK || dims.contains(&0) {
            return Err(PlanError::BadShape { dims: dims.to_vec() });
        }
        let mut all = [1; Shape::MAX_RANK];
        all[..dims.len()].copy_from_slice(dims);
        Ok(Shape { dims: all, rank: dims.len() })
    }

    /// The dimensions, slowest first.
    pub fn dims(&self) -> &[u64] {
        &self.dims[..self.rank]
    }

    /// The last dimension.
    pub fn width(&self) -> u64 {
        self.dims[self.rank - 1]
    }

    /// Product of all dimensions but the last. Saturates, but never for a tensor in the table,
    /// whose size was checked.
    pub fn rows(&self) -> u64 {
        self.dims[..self.rank - 1].iter().fold(1, |product: u64, &d| product.saturating_mul(d))
    }

    /// Product of all dimensions, or `None` when it does not fit 64 bits.
    pub fn checked_elements(&self) -> Option<u64> {
        self.dims().iter().try_fold(1u64, |product, &d| product.checked_mul(d))
    }

    /// Product of all dimensions. Saturates, but never for a tensor in the table, whose size was
    /// checked.
    pub fn elements(&self) -> u64 {
        self.checked_elements().unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}

/// What a tensor is for. The bill adds up bytes by role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Parameters as the kernels read them.
    Weight,
    /// The fp32 weights that the optimizer updates, when kernels read a 16-bit copy of them.
    Master,
    /// Accumulated parameter gradients.
    Gradient,
    /// Adam's first and second moments.
    Moment,
    /// Forward values and their gradients.
    Activation,
    /// Logits of one chunk of tokens.
    Logits,
    /// Keys and values of a sequence being generated.
    Cache,
    /// The backend's scratch memory. All steps share it.
    Workspace,
    /// Sums that one step writes and reads. The op says how large they are.
    Partials,
    /// Token ids and targets.
    Tokens,
    /// Scalars: step state and losses.
    State,
}

impl Role {
    /// All roles, in the order of the bill.
    pub const ALL: [Role; 11] = [
        Role::Weight,
        Role::Master,
        Role::Gradient,
        Role::Moment,
        Role::Activation,
        Role::Logits,
        Role::Cache,
        Role::Workspace,
        Role::Partials,
        Role::Tokens,
        Role::State,
    ];

    /// Whether no other step reads what a step leaves there.
    pub const fn is_scratch(self) -> bool {
        matches!(self, Role::Workspace | Role::Partials)
    }

    /// The role under which the bill counts it: all scratch is one line.
    pub const fn billed_as(self) -> Role {
        if self.is_scratch() { Role::Workspace } else { self }
    }

    /// The name used in listings and in the bill.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Weight => "weight",
            Role::Master => "master",
            Role::Gradient => "gradient",
            Role::Moment => "moment",
            Role::Activation => "activation",
            Role::Logits => "logits",
            Role::Cache => "cache",
            Role::Workspace => "workspace",
            Role::Partials => "partials",
            Role::Tokens => "tokens",
            Role::State => "state",
        }
    }
}

/// Which part of the run a segment belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Forward, backward and update.
    Train,
    /// Loss without gradients.
    Eval,
    /// Prefill and decode, which share the key/value cache.
    Generate,
}

impl Phase {
    /// The name used in the bill and its JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Train => "train",
            Phase::Eval => "eval",
            Phase::Generate => "generate",
        }
    }
}

/// How long a tensor keeps its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// From set-up to the end of the run: weights, gradients, moments, state.
    Run,
    /// As long as `Run`, but in the host's memory: state that does not fit on the device, and the
    /// room for activations there.
    Host,
    /// From one segment of a phase to the next: the key/value cache.
    Phase(Phase),
    /// Within one run of one segment, from its first access to its last.
    Segment(SegmentId),
}

/// Whether the host reads or writes a tensor before or after a segment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Io {
    /// Only steps touch it.
    Device,
    /// The host writes it before the segment runs.
    Input,
    /// The host reads it after the segment has run.
    Output,
}

/// A part of another tensor's bytes, used as a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// The tensor that owns the bytes; never itself a view.
    pub root: TensorId,
    /// Where the view starts in its root.
    pub offset: Bytes,
}

/// One tensor of the schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// For people and listings; parameters use nanoGPT's names.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions, slowest first.
    pub shape: Shape,
    /// What it is for.
    pub role: Role,
    /// How long it keeps its bytes.
    pub scope: Scope,
    /// The transformer layer that it belongs to.
    pub layer: Option<u32>,
    /// Whether the host touches it.
    pub io: Io,
    /// Set when another tensor owns its bytes.
    pub view: Option<View>,
}

impl Tensor {
    /// Its size, or an error when that does not fit 63 bits.
    pub fn checked_bytes(&self) -> Result<Bytes, PlanError> {
        self.shape
            .checked_elements()
            .and_then(|elements| elements.checked_mul(self.dtype.size()))
            .and_then(Bytes::new)
            .and_then(|bytes| bytes.aligned().map(|_| bytes))
            .ok_or_else(|| PlanError::TooLarge {
                name: self.name.clone(),
                shape: self.shape,
                dtype: self.dtype,
            })
    }
}

/// The table of tensors. It computes the size of each tensor when it is added, and refuses one that
/// does not fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tensors {
    rows: Vec<Tensor>,
    bytes: Vec<Bytes>,
}

impl Tensors {
    /// Adds a tensor. A view of a view becomes a view of its root. A view starts at a whole element
    /// and lives as long as its root.
    pub fn add(&mut self, mut tensor: Tensor) -> Result<TensorId, PlanError> {
        let bytes = tensor.checked_bytes()?;
        if let Some(view) = tensor.view {
            let (root, offset) = match self.get(view.root).view {
                Some(parent) => (parent.root, parent.offset.plus(view.offset)),
                None => (view.root, Some(view.offset)),
            };
            let end = offset.and_then(|offset| offset.plus(bytes));
            let parent = self.bytes(view.root);
            let inside = view.offset.plus(bytes).is_some_and(|end| end <= parent);
            let Some(offset) = offset.filter(|_| inside) else {
                return Err(PlanError::ViewOutside { name: tensor.name, end, parent });
            };
            if !offset.get().is_multiple_of(tensor.dtype.size())
                || self.get(root).scope != tensor.scope
            {
                return Err(PlanError::ViewMismatch { name: tensor.name, offset });
            }
            tensor.view = Some(View { root, offset });
        }
        let too_many = || PlanError::ArenaTooLarge { at: format!("tensor {}", self.rows.len()) };
        let id = TensorId(u32::try_from(self.rows.len()).map_err(|_| too_many())?);
        self.rows.push(tensor);
        self.bytes.push(bytes);
        Ok(id)
    }

    /// Lets the host read a tensor.
    pub(crate) fn mark_output(&mut self, id: TensorId) {
        self.rows[id.index()].io = Io::Output;
    }

    /// Makes a flat tensor at least `elements` long. It must have no views.
    pub(crate) fn grow(&mut self, id: TensorId, elements: u64) -> Result<(), PlanError> {
        if elements > self.get(id).shape.elements() {
            let grown = Tensor { shape: Shape::new(&[elements])?, ..self.get(id).clone() };
            self.bytes[id.index()] = grown.checked_bytes()?;
            self.rows[id.index()] = grown;
        }
        Ok(())
    }

    /// Gives a tensor another format, so that a conformance case runs in formats that it was not
    /// written for. Views and their roots share bytes, so neither can be changed.
    pub fn set_dtype(&mut self, id: TensorId, dtype: Dtype) -> Result<(), PlanError> {
        let changed = Tensor { dtype, ..self.get(id).clone() };
        let seen = |row: &Tensor| row.view.is_some_and(|view| view.root == id);
        if changed.view.is_some() || self.rows.iter().any(seen) {
            let problem = format!("{} shares its bytes", changed.name);
            return Err(PlanError::Attribute { op: "set_dtype", problem });
        }
        self.bytes[id.index()] = changed.checked_bytes()?;
        self.rows[id.index()] = changed;
        Ok(())
    }

    /// The row of a tensor. Ids come from [`Tensors::add`] on the same table.
    pub fn get(&self, id: TensorId) -> &Tensor {
        &self.rows[id.index()]
    }

    /// Exact size of a tensor.
    pub fn bytes(&self, id: TensorId) -> Bytes {
        self.bytes[id.index()]
    }

    /// The tensor that owns a tensor's bytes (itself unless it is a view) and the offset in it.
    pub fn root(&self, id: TensorId) -> (TensorId, Bytes) {
        self.get(id).view.map_or((id, Bytes::ZERO), |view| (view.root, view.offset))
    }

    /// All ids, in the order of the table.
    pub fn ids(&self) -> impl Iterator<Item = TensorId> + use<> {
        (0..self.rows.len() as u32).map(TensorId)
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Aligned bytes of all tensors that outlive phases, in the device's memory ([`Scope::Run`]) or
    /// the host's ([`Scope::Host`]). `None` if the sum does not fit.
    pub fn held_bytes(&self, memory: Scope) -> Option<Bytes> {
        let held = |id: &TensorId| {
            let tensor = self.get(*id);
            tensor.scope == memory && tensor.view.is_none()
        };
        let sizes: Option<Vec<Bytes>> =
            self.ids().filter(held).map(|id| self.bytes(id).aligned()).collect();
        Bytes::sum(sizes?)
    }

    /// The first tensor with that name; several segments may use it.
    pub fn find(&self, name: &str) -> Option<TensorId> {
        self.ids().find(|&id| self.get(id).name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dims: &[u64], view: Option<View>) -> Tensor {
        Tensor {
            name: "t".into(),
            dtype: Dtype::F32,
            shape: Shape::new(dims).unwrap(),
            role: Role::Weight,
            scope: Scope::Run,
            layer: None,
            io: Io::Device,
            view,
        }
    }

    #[test]
    fn absurd_dimensions_refuse() {
        let mut tensors = Tensors::default();
        for dims in [&[u64::MAX][..], &[1 << 40, 1 << 40], &[1 << 61], &[(1 << 61) - 1]] {
            let error = tensors.add(tensor(dims, None)).unwrap_err();
            assert!(error.to_string().contains("larger than 2^63"), "{error}");
        }
        assert!(Shape::new(&[3, 0]).is_err());
        assert!(Shape::new(&[]).is_err());
        assert!(Shape::new(&[1; 6]).is_err());
    }

    #[test]
    fn views_flatten_and_stay_inside() {
        let mut tensors = Tensors::default();
        let root = tensors.add(tensor(&[100], None)).unwrap();
        let at = |root, offset| Some(View { root, offset: Bytes::new(offset).unwrap() });
        let half = tensors.add(tensor(&[50], at(root, 200))).unwrap();
        let part = tensors.add(tensor(&[25], at(half, 100))).unwrap();
        assert_eq!(tensors.root(part), (root, Bytes::new(300).unwrap()));
        assert!(tensors.add(tensor(&[26], at(half, 100))).is_err());
        assert!(tensors.add(tensor(&[26], at(root, u64::MAX >> 1))).is_err());
        let error = tensors.add(tensor(&[1], at(root, 1))).unwrap_err().to_string();
        assert!(error.contains("1 B into its root"), "{error}");
        let other = Tensor { scope: Scope::Phase(Phase::Eval), ..tensor(&[1], at(root, 4)) };
        assert!(tensors.add(other).is_err(), "a view cannot outlive its root");
    }
}
