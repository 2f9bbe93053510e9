//! The doctor on real logs, measured memory, and arbitrary text.
#![allow(clippy::unwrap_used, clippy::panic)]

mod answers;
mod judgement;
mod dialects;
mod posts;
mod real_logs;
mod reports;
mod torch_peaks;
