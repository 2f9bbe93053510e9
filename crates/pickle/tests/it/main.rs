//! Pickles that Python 3 wrote in every protocol, hostile and damaged pickles, and our own writer.
#![allow(clippy::unwrap_used, clippy::panic)]

mod hostile;
mod python;
mod round_trip;
