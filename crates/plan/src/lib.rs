//! The program: a training step as data.
//!
//! A [`schedule::Schedule`] is an ordered list of steps over typed tensors. Everything else is a
//! function of it: [`lifetimes`] says when each tensor is alive, [`arena`] gives each an address,
//! [`mod@verify`] proves that no step can meet another tensor's bytes, [`report`] prints the bill,
//! and a [`backend::Backend`] executes what was proved. Nothing here knows a device, a file, a
//! clock or a setting.
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

pub mod arena;
pub mod backend;
pub mod bytes;
pub mod cost;
pub mod defect;
pub mod hardware;
pub mod error;
pub mod fnv;
pub mod gpu_scratch;
pub mod half;
pub mod host_access;
pub mod lanes;
pub mod lifetimes;
pub mod op_times;
pub mod ops;
mod races;
mod ranges;
pub mod recompute;
pub mod report;
pub mod schedule;
pub mod step_state;
pub mod tensor;
pub mod verify;

pub use arena::{Placement, Plan, SegmentLayout};
pub use backend::{Backend, BackendError, NoScratch, Scratch, StepInputs};
pub use bytes::{ALIGNMENT, Bytes};
pub use defect::Defect;
pub use error::PlanError;
pub use gpu_scratch::GpuScratch;
pub use host_access::HostAccess;
pub use lanes::Lane;
pub use lifetimes::Live;
pub use schedule::{Pass, Schedule, ScheduleBuilder, Segment, SegmentBuilder, SegmentId, Step};
pub use step_state::{StateField, StateWords, StepState};
pub use tensor::{Dtype, Io, Phase, Role, Scope, Shape, Tensor, TensorId, Tensors, View};
pub use verify::{Proved, verify};
