//! The model crate from outside: initial weights against PyTorch, schedules against their bounds.

mod specs;

mod init;
mod on_host;
mod placement;
mod sizes;
mod snapshots;
mod structure;
