//! One file for each op, plus the matrix product they share. A kernel takes the step's context and
//! the op, gets its slices, checks the values that only now are known, and splits the work.

pub(crate) mod adamw;
pub(crate) mod attention;
pub(crate) mod decode;
pub(crate) mod dropout;
pub(crate) mod embed;
pub(crate) mod gelu;
pub(crate) mod gemm;
pub(crate) mod grad_norm;
pub(crate) mod head;
pub(crate) mod layernorm;
pub(crate) mod linear;
pub(crate) mod loss_scaler;
pub(crate) mod transfer;
