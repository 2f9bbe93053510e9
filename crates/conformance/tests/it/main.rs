//! The table checks itself: its cases are sound, a backend that follows the ops' formulas passes,
//! and one with errors does not.
#![allow(clippy::unwrap_used, clippy::panic)]

mod naive;
mod naive_ops;
mod passes;
mod table;
