//! The model crate from outside: initial weights against PyTorch, schedules against their bounds.

mod specs;

mod init;
mod placement;
mod sizes;
mod snapshots;
mod structure;
