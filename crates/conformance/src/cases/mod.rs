//! The table of op cases, one file for each family of ops. Sizes are small and odd: what breaks
//! kernels are remainders of tiles, single elements, and sums that cross a block of 256 tokens.

mod attention;
mod decode;
mod embed;
mod gelu;
mod head;
mod layernorm;
mod linear;
mod update;

use crate::case::Case;
use plan::{Bytes, PlanError};

/// All op cases, each with so much scratch for the backend.
pub fn cases(workspace: Bytes) -> Result<Vec<Case>, PlanError> {
    let families = [
        embed::cases(workspace)?,
        layernorm::cases(workspace)?,
        linear::cases(workspace)?,
        attention::cases(workspace)?,
        gelu::cases(workspace)?,
        head::cases(workspace)?,
        decode::cases(workspace)?,
        update::cases(workspace)?,
    ];
    Ok(families.into_iter().flatten().collect())
}
