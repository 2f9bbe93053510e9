//! Ranks as threads on the loopback interface, and as processes that are killed and stopped.

#![allow(clippy::unwrap_used, clippy::panic)]

mod fixture;
mod meetings;
mod watching;
mod processes;
mod cut_link;
