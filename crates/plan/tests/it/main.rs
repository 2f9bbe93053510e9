//! Tests of the plan crate from outside: schedules are built, placed, proved and billed.

mod every_op;
mod fixture;

mod backward;
mod bill;
mod defects;
mod fuse;
mod joins;
mod lanes;
mod memories;
mod overlap;
mod random;
mod refusals;
mod work;
