//! The only list of ops. Each op is a file with its operands, its shape rule, its work, and the
//! hand-written code that emits its backward. A new variant of [`Op`] does not compile until every
//! executor has a match arm for it; `cargo xtask new-op NAME` writes what every op has in common.

mod embed;
mod layernorm;
mod linear;
mod attention;
mod gelu;
mod dropout;
mod head;
mod decode;
mod grad_norm;
mod loss_scaler;
mod adamw;
mod transfer;
mod clear;
mod square_sums;
mod reduce_scatter;
mod all_gather;

pub use adamw::AdamW;
pub use all_gather::AllGather;
pub use attention::{Attention, AttentionBackward};
pub use clear::Clear;
pub use decode::{AttentionDecode, CacheStore, SelectPosition};
pub use dropout::{Dropout, DropoutSite};
pub use embed::{Embed, EmbedBackward, PositionFrom};
pub use gelu::{Gelu, GeluBackward, GeluKind};
pub use grad_norm::{GRAD_NORM_BLOCK, GradNorm};
pub use head::{HeadEval, HeadTrain, HeadWork};
pub use layernorm::{Branch, BranchGradient, LayerNorm, LayerNormBackward, NormalisedAgain};
pub use linear::{GeluBefore, GeluOfSums, Linear, LinearBackwardInput, LinearBackwardWeight};
pub use loss_scaler::{LossScaler, Scaling};
pub use reduce_scatter::ReduceScatter;
pub use square_sums::{NormOfSums, SquareSums};
pub use transfer::Transfer;

use crate::error::PlanError;
use crate::schedule::Backward;
use crate::step_state::StepState;
use crate::tensor::{Dtype, Role, Shape, Tensor, TensorId, Tensors};

/// Sums over tokens are computed in blocks of this many tokens, counted from the slice's first
/// token, and the blocks are added in order. So gradients depend neither on the head chunk nor on
/// the number of threads.
pub const TOKEN_BLOCK: u64 = 256;

/// How an op touches an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads it.
    Read,
    /// Overwrites all of it without reading it.
    Write,
    /// Reads and writes it: accumulation and in-place work.
    Update,
}

/// Whether a result replaces the old content or is added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// The old content is ignored.
    Overwrite,
    /// The result is added to the old content.
    Accumulate,
}

impl Write {
    /// The name in listings.
    pub const fn name(self) -> &'static str {
        match self {
            Write::Overwrite => "overwrite",
            Write::Accumulate => "accumulate",
        }
    }

    /// How an operand that is written this way is accessed.
    pub const fn access(self) -> Access {
        match self {
            Write::Overwrite => Access::Write,
            Write::Accumulate => Access::Update,
        }
    }
}

/// Which element types an operand may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Elements {
    /// Any float type that the op's rule allows. The executor checks whether it supports it.
    Float,
    /// fp32 in every compute format: statistics, losses, sums, whole master weights, and the
    /// accumulated gradients of parameters.
    Single,
    /// The lower halves of fp32 weights.
    LowerHalves,
    /// Any type: the op moves bytes.
    Any,
    /// Token ids and targets.
    Ids,
    /// The step state.
    Words,
    /// Sums in f64, each in two words.
    WideSums,
    /// Bytes that the backend's kernels may use freely during the step: an fp32 tensor of
    /// [`Role::Workspace`], and not a window, so that its offset is aligned.
    Workspace,
}

impl Elements {
    fn accepts(self, tensor: &Tensor) -> bool {
        let dtype = tensor.dtype;
        match self {
            Elements::Float => matches!(dtype, Dtype::F32 | Dtype::Bf16 | Dtype::F16),
            Elements::Single => dtype == Dtype::F32,
            Elements::LowerHalves => dtype == Dtype::U16,
            Elements::Any => true,
            Elements::Ids => dtype == Dtype::I32,
            Elements::Words | Elements::WideSums => dtype == Dtype::U32,
            Elements::Workspace => {
                let is_whole = tensor.view.is_none();
                dtype == Dtype::F32 && tensor.role == Role::Workspace && is_whole
            }
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Elements::Float => "a float type",
            Elements::Single => "f32",
            Elements::LowerHalves => "u16",
            Elements::Any => "any type",
            Elements::Ids => "i32",
            Elements::Words | Elements::WideSums => "u32",
            Elements::Workspace => "an f32 workspace",
        }
    }
}

/// One operand of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// What the tensor is to the op.
    pub name: &'static str,
    /// The tensor itself.
    pub tensor: TensorId,
    /// How it is touched.
    pub access: Access,
    /// The element types that it may have.
    pub elements: Elements,
}

impl Operand {
    /// An operand of any float type.
    pub const fn new(name: &'static str, tensor: TensorId, access: Access) -> Operand {
        Operand { name, tensor, access, elements: Elements::Float }
    }

    /// An operand that is read.
    pub const fn read(name: &'static str, tensor: TensorId) -> Operand {
        Operand::new(name, tensor, Access::Read)
    }

    /// An operand that is completely overwritten.
    pub const fn write(name: &'static str, tensor: TensorId) -> Operand {
        Operand::new(name, tensor, Access::Write)
    }

    /// An operand that is read and written.
    pub const fn update(name: &'static str, tensor: TensorId) -> Operand {
        Operand::new(name, tensor, Access::Update)
    }

    /// The backend's workspace. An op has at most one.
    pub const fn workspace(tensor: TensorId) -> Operand {
        Operand::write("workspace", tensor).of(Elements::Workspace)
    }

    /// The same operand with other element types.
    pub const fn of(self, elements: Elements) -> Operand {
        Operand { elements, ..self }
    }
}

/// What every op's file defines.
pub trait Operation {
    /// The name in listings and errors.
    fn name(&self) -> &'static str;

    /// All tensors that it touches, each once.
    fn operands(&self) -> Vec<Operand>;

    /// The same tensors, mutable, so that a rewrite can redirect a step to others.
    fn tensors_mut(&mut self) -> Vec<&mut TensorId>;

    /// Everything that defines the op except its operands, as `name=value` words for the listing.
    /// Two ops with the same operands and attributes compute the same.
    fn attributes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Checks the shapes, and which operands have the same type.
    fn check(&self, tensors: &Tensors) -> Result<(), PlanError>;

    /// Floating-point operations. A multiply-add counts as two.
    fn flops(&self, tensors: &Tensors) -> u64;

    /// Bytes moved if every operand passes through memory once (twice when updated). Scratch does
    /// not count: it stays in a cache, and how much of it an op uses is up to the backend.
    fn bytes(&self, tensors: &Tensors) -> u64 {
        let cost = |operand: &Operand| {
            if tensors.get(operand.tensor).role.is_scratch() {
                return 0;
            }
            let times = if operand.access == Access::Update { 2 } else { 1 };
            tensors.bytes(operand.tensor).get().saturating_mul(times)
        };
        self.operands().iter().map(cost).fold(0, u64::saturating_add)
    }

    /// Bytes that this rank sends to others. Only ops between ranks send any.
    fn wire_bytes(&self, _: &Tensors) -> u64 {
        0
    }

    /// Emits the steps that compute the gradients of its inputs from those of its results.
    fn emit_backward(&self, _: &mut Backward<'_>) -> Result<(), PlanError> {
        let missing = "it has no backward".to_string();
        Err(PlanError::NoGradient { op: self.name(), missing })
    }
}

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// One operation of the schedule.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Op { $($(#[$doc])* $name($name)),+ }

        impl Op {
            /// The op as a trait object.
            pub fn operation(&self) -> &dyn Operation {
                match self { $(Op::$name(op) => op),+ }
            }

            /// The op as a mutable trait object.
            pub fn operation_mut(&mut self) -> &mut dyn Operation {
                match self { $(Op::$name(op) => op),+ }
            }

            /// The names of all variants, for tests that must cover every op.
            pub const VARIANTS: &'static [&'static str] = &[$(stringify!($name)),+];

            /// The name of its variant.
            pub fn variant(&self) -> &'static str {
                match self { $(Op::$name(_) => stringify!($name)),+ }
            }
        }

        $(impl From<$name> for Op {
            fn from(op: $name) -> Op { Op::$name(op) }
        })+
    };
}

ops! {
    /// Token and position embedding.
    Embed,
    /// Gradients of the token and position embeddings.
    EmbedBackward,
    /// Residual addition (optional) and layer normalisation.
    LayerNorm,
    /// Gradients through the normalisation and the residual addition.
    LayerNormBackward,
    /// `out = x wᵀ + bias`, or GELU of that.
    Linear,
    /// `d_x = d_out w`, or that times the slope of a GELU.
    LinearBackwardInput,
    /// `d_w += d_outᵀ x`, `d_bias += Σ d_out`.
    LinearBackwardWeight,
    /// Causal attention over a whole sequence.
    Attention,
    /// Gradient of query, key and value.
    AttentionBackward,
    /// GELU.
    Gelu,
    /// GELU's gradient, in place.
    GeluBackward,
    /// Head, loss and their gradients, chunk by chunk.
    HeadTrain,
    /// Head and loss, chunk by chunk.
    HeadEval,
    /// Copies keys and values of a prefilled context into the cache.
    CacheStore,
    /// Attention of one new token against the cache.
    AttentionDecode,
    /// Selects one position of each sequence.
    SelectPosition,
    /// Norm of all gradients.
    GradNorm,
    /// Loss scale, clip factor, and whether this update is skipped.
    LossScaler,
    /// The parameter update.
    AdamW,
    /// A copy between the device's memory and the host's.
    Transfer,
    /// Zeros.
    Clear,
    /// Sums of squares of a range of gradients.
    SquareSums,
    /// Norm of all gradients, from sums of squares.
    NormOfSums,
    /// Sum of gradients over all ranks, divided among them.
    ReduceScatter,
    /// Pieces of all ranks, on every rank.
    AllGather,
}

impl Op {
    /// The op that recomputes the same results when the tensors for which `is_there` holds still
    /// exist: the op itself, or the part of it whose result is missing.
    pub fn again(&self, is_there: &dyn Fn(TensorId) -> bool) -> Op {
        match self {
            Op::LayerNorm(norm) => norm.again(is_there).into(),
            Op::Embed(_)
            | Op::EmbedBackward(_)
            | Op::LayerNormBackward(_)
            | Op::Linear(_)
            | Op::LinearBackwardInput(_)
            | Op::LinearBackwardWeight(_)
            | Op::Attention(_)
            | Op::AttentionBackward(_)
            | Op::Gelu(_)
            | Op::GeluBackward(_)
            | Op::HeadTrain(_)
            | Op::HeadEval(_)
            | Op::CacheStore(_)
            | Op::AttentionDecode(_)
            | Op::SelectPosition(_)
            | Op::GradNorm(_)
            | Op::LossScaler(_)
            | Op::AdamW(_)
            | Op::Transfer(_)
            | Op::Clear(_)
            | Op::SquareSums(_)
            | Op::NormOfSums(_)
            | Op::ReduceScatter(_)
            | Op::AllGather(_) => self.clone(),
        }
    }

    /// The tensor that the backend's kernels may use freely while the op runs.
    pub fn workspace(&self) -> Option<TensorId> {
        let operands = self.operation().operands().into_iter();
        let mut workspaces = operands.filter(|o| o.elements == Elements::Workspace);
        workspaces.next().map(|operand| operand.tensor)
    }

    /// The type of every operand, then the op's own rule.
    pub fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let op = self.operation();
        let check = Check::new(op.name(), tensors);
        for operand in op.operands() {
            if !operand.elements.accepts(tensors.get(operand.tensor)) {
                let wanted = operand.elements.name().to_string();
                check.refuse(operand.name, operand.tensor, wanted)?;
            }
        }
        op.check(tensors)
    }
}

/// The checks of one op, so that every message has the same form.
struct Check<'a> {
    op: &'static str,
    tensors: &'a Tensors,
}

impl<'a> Check<'a> {
    fn new(op: &'static str, tensors: &'a Tensors) -> Check<'a> {
        Check { op, tensors }
    }

    fn shape(&self, id: TensorId) -> Shape {
        self.tensors.get(id).shape
    }

    fn dims(&self, name: &str, id: TensorId, wanted: &[u64]) -> Result<(), PlanError> {
        if self.shape(id).dims() == wanted {
            return Ok(());
        }
        self.refuse(name, id, format!("{wanted:?}"))
    }

    /// All have the type of the first: a kernel reads them as one type.
    fn one_type(&self, operands: &[(&str, TensorId)]) -> Result<(), PlanError> {
        let Some((_, first)) = operands.first() else { return Ok(()) };
        let wanted = self.tensors.get(*first).dtype;
        let other = operands.iter().find(|(_, id)| self.tensors.get(*id).dtype != wanted);
        other.map_or(Ok(()), |(name, id)| self.refuse(name, *id, wanted.to_string()))
    }

    fn rank(&self, name: &str, id: TensorId, rank: usize) -> Result<&'a [u64], PlanError> {
        let dims = self.tensors.get(id).shape.dims();
        if dims.len() == rank {
            return Ok(dims);
        }
        Err(self.refusal(name, id, format!("{rank} dimensions")))
    }

    fn state(&self, id: TensorId) -> Result<(), PlanError> {
        self.dims("state", id, &[StepState::WORDS as u64])
    }

    fn attribute(&self, holds: bool, problem: impl FnOnce() -> String) -> Result<(), PlanError> {
        if holds {
            return Ok(());
        }
        Err(PlanError::Attribute { op: self.op, problem: problem() })
    }

    fn refuse(&self, name: &str, id: TensorId, wanted: String) -> Result<(), PlanError> {
        Err(self.refusal(name, id, wanted))
    }

    fn refusal(&self, name: &str, id: TensorId, wanted: String) -> PlanError {
        let tensor = self.tensors.get(id);
        PlanError::Operand {
            op: self.op,
            operand: format!("{name} ({})", tensor.name),
            found: format!("{} {}", tensor.dtype, tensor.shape),
            wanted,
        }
    }
}

/// `2 m n k`, saturating: the work of a matmul.
fn matmul_flops(m: u64, n: u64, k: u64) -> u64 {
    m.saturating_mul(n).saturating_mul(k).saturating_mul(2)
}
