//! Nothing yet.
#![forbid(unsafe_code)]
