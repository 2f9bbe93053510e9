//! Models as data. [`program`] holds what every model shares: specs, segments and the ids that a
//! caller needs. An [`architecture`] supplies modules, a forward pass, initial weights and what
//! each level of recompute drops. [`gpt2`] is one architecture, exactly as nanoGPT defines it. An
//! [`optimizer`] supplies its state and its op; [`adamw`] is one.
#![forbid(unsafe_code)]

pub mod dims;
pub mod architecture;
pub mod gpt2;
mod forward;
pub mod params;
pub mod activation;
pub mod levels;
mod init;
pub mod program;
pub mod generation;
mod run_tensors;
pub mod optimizer;
pub mod adamw;
pub mod sharing;
mod communication;
pub mod update;

pub use activation::Activation;
pub use adamw::AdamW;
pub use architecture::Architecture;
pub use dims::{Dims, DimsError, GPT2_ROWS, MOST_LAYERS, NORM_EPSILON, implied_attributes};
pub use generation::{GenerateSegments, LogitsSegment, NextLogits};
pub use gpt2::Gpt2;
pub use levels::Level;
pub use optimizer::{Optimizer, OptimizerSpec};
pub use params::{Init, Module, ModuleKind, Param, ParamKind};
pub use program::{
    AverageSegments, Draft, EvalSpec, FullDraft, GenerateSpec, LossSegment, ModelSpec, Program,
    ProgramParam, ProgramSpec, ShardedRole, TrainSpec, Types, slice_segment,
};
pub use sharing::{Piece, Shard, Sharing, Window};
