//! Tests of the server over real connections.
