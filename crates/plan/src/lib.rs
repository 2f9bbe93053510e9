//! The program: a training step as data.
//!
//! A [`schedule::Schedule`] is an ordered list of steps over typed tensors. Everything else is
//! computed from it: [`lifetimes`] says when each tensor is alive, [`arena`] gives each tensor an
//! address, [`mod@verify`] proves that no step touches another tensor's bytes, [`report`] prints
//! the bill of memory, and a [`backend::Backend`] executes the proved plan. This crate knows no
//! device, file, clock or setting.
//!
//! ```
//! use fitgpt_plan::ops::{Gelu, GeluKind, Op};
//! use fitgpt_plan::{Dtype, Io, NoScratch, Phase, Plan, Role, ScheduleBuilder, Shape, verify};
//!
//! let mut builder = ScheduleBuilder::new();
//! let mut segment = builder.segment("demo", Phase::Train);
//! let shape = Shape::new(&[4, 8])?;
//! let x = segment.host_tensor("x", Dtype::F32, shape, Role::Activation, Io::Input)?;
//! let y = segment.host_tensor("y", Dtype::F32, shape, Role::Activation, Io::Output)?;
//! segment.push(Op::Gelu(Gelu { x, out: y, kind: GeluKind::Erf }))?;
//! segment.finish();
//!
//! let plan = Plan::new(builder.finish())?;
//! let proved = verify(plan, NoScratch).map_err(|defects| format!("{defects:?}"))?;
//! assert_eq!(proved.arena_bytes.get(), 2 * 256);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod bytes;
pub mod tensor;
pub mod ops;
pub mod schedule;
pub mod recompute;
pub mod fuse;
pub mod offload;
pub mod lanes;
pub mod lifetimes;
pub mod arena;
pub mod verify;
mod races;
mod ranges;
pub mod defect;
pub mod report;
pub mod fnv;
pub mod backend;
pub mod ranks;
pub mod exchange;
pub mod step_state;
pub mod host_access;
pub mod gpu_scratch;
pub mod warpgroup_linear;
pub mod hardware;
pub mod links;
pub mod cost;
pub mod overlap;
pub mod op_times;
pub mod half;
pub mod error;

pub use arena::{Placement, Plan, SegmentLayout};
pub use backend::{Backend, BackendError, LateRead, NoScratch, Scratch, StepInputs};
pub use bytes::{ALIGNMENT, Bytes, OPERAND_ALIGNMENT};
pub use defect::Defect;
pub use error::PlanError;
pub use exchange::{Exchange, OneRank, staged_bytes};
pub use gpu_scratch::GpuScratch;
pub use host_access::HostAccess;
pub use lanes::Lane;
pub use lifetimes::Live;
pub use ranks::{Pieces, Rank};
pub use schedule::{Pass, Schedule, ScheduleBuilder, Segment, SegmentBuilder, SegmentId, Step};
pub use step_state::{StateField, StateWords, StepState};
pub use tensor::{Dtype, Io, Phase, Role, Scope, Shape, Tensor, TensorId, Tensors, View};
pub use verify::{Proved, verify};
