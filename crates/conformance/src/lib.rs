//! What every backend must be able to do, as one table of cases.
//!
//! A [`Case`] is a small schedule, the inputs that the host writes, the segments that run, and the
//! tensors that are read afterwards, each with its tolerance. The table has several uses:
//!
//! - [`check_ops`] and [`check_models`] compare a backend with goldens that PyTorch computed in
//!   double precision (`golden/reference.py`; `cargo xtask golden` makes them again);
//! - [`check_finite_differences`] compares its gradients with its own forward, without PyTorch;
//! - [`check_agreement`] compares two backends with each other;
//! - [`check_formats`] and [`check_tf32`] compare formats that are rounded with f32;
//! - a benchmark loads a case into a [`Runner`] and times its runs.
//!
//! Inputs are drawn from `rng`, keyed by the names of the case and of the input. So they depend
//! neither on the machine nor on the order or number of cases. Only tests use this crate.
//!
//! ```no_run
//! use fitgpt_conformance::check_ops;
//! use plan::{Backend, BackendError, NoScratch, Plan, Scratch};
//! use std::rc::Rc;
//!
//! fn load(plan: Plan) -> Result<Box<dyn Backend>, BackendError> {
//! #   drop(plan);
//! #   Err(BackendError::Unsupported { what: "an example".into() })
//!     // prove the plan with `plan::verify` and call your backend's constructor
//! }
//!
//! let scratch: Rc<dyn Scratch> = Rc::new(NoScratch);
//! match check_ops(&load, &scratch) {
//!     Ok(summary) => println!("{summary}"),
//!     Err(failures) => failures.iter().for_each(|failure| eprintln!("{failure}")),
//! }
//! ```
#![forbid(unsafe_code)]

pub mod values;

pub mod case;

mod case_builder;
mod masks;

pub mod cases;
pub mod models;

pub mod compare;
pub mod golden;
pub mod run;

pub mod check;
pub mod finite_difference;
pub mod formats;

pub use case::{Action, Case, Form, Input, Reading, Tolerance};
pub use check::{
    Failure, Problem, Summary, check_agreement, check_finite_differences, check_models, check_ops,
};
pub use formats::{check_formats, check_tf32};
pub use golden::Goldens;
pub use run::{LoadBackend, Runner, run_case};
pub use values::Values;
