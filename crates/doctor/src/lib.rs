//! An out-of-memory log in, the cause and the fix out. No device, no network, no clock.
#![forbid(unsafe_code)]

pub mod account;
pub mod advice;
pub mod case;
pub mod diagnosis;
pub mod fixes;
pub mod log;
pub mod report;
pub mod tensor;
pub mod torch;
pub mod words;
