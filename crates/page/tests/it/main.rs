//! Tests of the server over real connections: what it serves, and what it survives.

mod attacks;
mod fixture;
mod serving;
