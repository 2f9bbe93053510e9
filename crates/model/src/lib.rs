//! GPT-2 as data, exactly as nanoGPT defines it: [`dims`] are its sizes, [`params`] its one table
//! of parameters, [`init`] its initial weights, and [`gpt2`] its schedules for training,
//! evaluation and generation.
#![forbid(unsafe_code)]

pub mod dims;
pub mod gpt2;
pub mod init;
pub mod levels;
pub mod params;
mod run_tensors;
pub mod update;

pub use dims::{Dims, DimsError, GPT2_ROWS, NORM_EPSILON, unsaid_attributes};
pub use gpt2::{
    Draft, EvalSpec, GenerateSegments, GenerateSpec, LogitsSegment, LossSegment, ModelSpec,
    NextLogits, OptimizerSpec, Program, ProgramParam, ProgramSpec, TrainSpec, Types,
};
pub use levels::Level;
pub use params::{Init, Module, Param, ParamRow, parameters};
