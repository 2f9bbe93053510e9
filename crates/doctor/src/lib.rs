//! Reads an out-of-memory log and finds the cause and the fix. Uses no device, network or clock.
#![forbid(unsafe_code)]

pub mod diagnosis;

pub mod log;
pub mod recovered;
pub mod torch;

pub mod tensor;
pub mod account;
pub mod advice;
pub mod fixes;

pub mod report;
pub mod words;
