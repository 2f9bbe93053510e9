//! The table of op cases, one file for each family of ops. Sizes are small and odd, because kernels
//! break at remainders of tiles, single elements, and sums that cross a block of 256 tokens.

mod embed;
mod layernorm;
mod linear;
mod attention;
mod gelu;
mod head;
mod decode;
mod update;

use crate::case::Case;
use plan::{PlanError, Scratch};
use std::rc::Rc;

/// All op cases, with the scratch that the backend needs.
pub fn cases(scratch: &Rc<dyn Scratch>) -> Result<Vec<Case>, PlanError> {
    let families = [
        embed::cases(scratch)?,
        layernorm::cases(scratch)?,
        linear::cases(scratch)?,
        attention::cases(scratch)?,
        gelu::cases()?,
        head::cases(scratch)?,
        decode::cases(scratch)?,
        update::cases()?,
    ];
    Ok(families.into_iter().flatten().collect())
}
