//! The doctor against real logs, measured memory, and anything a log may be.
#![allow(clippy::unwrap_used, clippy::panic)]

mod answers;
mod dialects;
mod real_logs;
mod torch_peaks;
