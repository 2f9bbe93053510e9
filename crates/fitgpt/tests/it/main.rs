//! The real binary, as a person runs it: one folder per test, exit codes, what is printed, what is
//! on disk afterwards.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bad_input;
mod bench_and_devices;
mod best;
mod budgets;
mod changed_data;
mod ckpt;
mod comparing;
mod disk_full;
mod divergence;
mod doctor;
mod evaluating;
mod exporting;
mod first_hour;
mod fleets;
mod fixture;
mod help;
#[path = "../../../hub/tests/it/http.rs"]
mod http;
#[path = "../../../hub/tests/it/server.rs"]
mod hub_server;
mod interrupts;
mod kills;
mod limits;
mod metrics;
mod naming;
mod own_text;
mod page;
mod parity;
mod peers;
mod planning;
mod preparing;
mod pretrained;
mod ranks;
mod readme;
mod resident;
mod resuming;
mod sampling;
mod soaking;
mod terminal;
mod training;
