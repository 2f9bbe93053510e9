//! Texts into ids and back, as callers see it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod added;
mod bpe;
mod json;
mod text;
