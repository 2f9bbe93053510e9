//! A model of PyTorch's memory: what nanoGPT allocates, when, and for how long.

pub mod nanogpt;
pub mod tape;

pub use nanogpt::{TorchRun, WORKSPACE, WORKSPACE_HOPPER, peaks, play};
pub use tape::{Alive, Birth, Peak, Phase, Played};
