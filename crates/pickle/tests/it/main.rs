//! Pickles as Python 3 writes them, in every protocol; hostile and damaged ones; the way back.
#![allow(clippy::unwrap_used, clippy::panic)]

mod hostile;
mod python;
mod round_trip;
