//! Reads an out-of-memory log and finds the cause and the fix. Uses no device, network or clock.
#![forbid(unsafe_code)]

pub mod diagnosis;

pub mod log;
pub mod recovered;
pub mod torch;

pub mod account;
pub mod room;
pub mod tensor;
pub mod cause;

pub mod advice;
pub mod suggested;
pub mod remedies;
pub mod fixes;
pub mod patch;
pub mod fitgpt;

pub mod report;
pub mod markdown;
pub mod figure;
pub mod tensor_name;
pub mod words;
