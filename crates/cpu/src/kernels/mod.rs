//! One file for each op, plus the matmul that several of them share. A kernel takes the step's
//! context and the op, gets its slices, checks the values that are known only now, and divides the
//! work.
//!
//! Names of tensors end in their dimensions, slowest first: `b` sequences, `t` positions, `c` width
//! of the model, `3c` query, key and value side by side, `h` heads, `s` size of a head, `v`
//! vocabulary, `m` tokens of a chunk, `k` inputs and `n` outputs of a linear layer, `p` partial
//! sums. `x_btc` is `[sequences, positions, width]`, whole or some rows of it; `gain_c` is one row.

pub(crate) mod embed;
pub(crate) mod layernorm;
pub(crate) mod linear;
pub(crate) mod gemm;
pub(crate) mod attention;
pub(crate) mod gelu;
pub(crate) mod dropout;
pub(crate) mod head;
pub(crate) mod decode;
pub(crate) mod grad_norm;
pub(crate) mod loss_scaler;
pub(crate) mod adamw;
pub(crate) mod transfer;
pub(crate) mod clear;
pub(crate) mod reduce_scatter;
pub(crate) mod all_gather;
