//! An out-of-memory log in, the cause and the fix out. No device, no network, no clock.
#![forbid(unsafe_code)]

pub mod account;
pub mod case;
pub mod log;
pub mod tensor;
pub mod torch;
