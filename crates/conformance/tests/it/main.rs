//! The table checks itself: its cases are sound, and a backend that follows the ops' formulas
//! passes while one that errs does not.
#![allow(clippy::unwrap_used, clippy::panic)]

mod naive;
mod naive_ops;
mod passes;
mod table;
