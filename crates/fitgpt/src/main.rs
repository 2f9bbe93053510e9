//! The binary; its commands come with the trainer.
#![forbid(unsafe_code)]

fn main() {
    println!("fitgpt {}: the engine only; no command yet", env!("CARGO_PKG_VERSION"));
}
