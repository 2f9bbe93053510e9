//! The plan crate from outside: schedules are made with its builders, placed, proved, billed.

mod every_op;
mod fixture;

mod backward;
mod bill;
mod defects;
mod lanes;
mod random;
mod refusals;
mod work;
