//! Launches of the embeddings and their gradients.

use super::count;
use crate::lowering::{
    Extent, Kernel, Lowering, Place, Source, arguments, dropout_arguments, flag, format_name,
    pack_of,
};
use plan::ops::{Embed, EmbedBackward, PositionFrom};
use plan::{BackendError, Dtype};

static EMBED: Source = Source { file: "embed.cu", parts: &[include_str!("embed.cu")] };

const THREADS: u32 = 128;
const SORT_THREADS: u32 = 512;
/// Bits that a pass of the sort looks at.
const DIGIT_BITS: u32 = 4;

/// Passes that tell all ids apart; an even number, so that the result stands where it is looked
/// for.
fn sort_passes(vocabulary: u64) -> u32 {
    let bits = 64 - vocabulary.saturating_sub(1).leading_zeros();
    bits.div_ceil(DIGIT_BITS).max(1).next_multiple_of(2)
}

fn kernel(
    [table, residual]: [Dtype; 2],
    (width, vocabulary): (u64, u64),
    dropout: bool,
    entry: &'static str,
) -> Kernel {
    let constants = vec![
        ("T", format_name(table).to_string()),
        ("R", format_name(residual).to_string()),
        ("WIDTH", width.to_string()),
        ("VEC", pack_of(width, &[table, residual]).to_string()),
        ("DROPOUT", flag(dropout)),
        ("SORT_PASSES", sort_passes(vocabulary).to_string()),
    ];
    Kernel { source: &EMBED, constants, entry }
}

pub(super) fn forward(cx: &mut Lowering<'_>, op: &Embed) -> Result<(), BackendError> {
    let (shape, formats) = (cx.shape(op.out), [cx.dtype(op.wte), cx.dtype(op.out)]);
    let (width, vocabulary) = (shape.width(), cx.shape(op.wte).rows());
    let packs = shape.elements() / pack_of(width, &formats);
    let from_step = u32::from(op.position == PositionFrom::Step);
    let mut arguments = arguments![
        packs,
        cx.place(op.tokens)?,
        cx.place(op.wte)?,
        cx.place(op.wpe)?,
        cx.place(op.out)?,
        count(cx.shape(op.tokens).width(), "positions")?,
        from_step,
        Place::Step,
    ];
    arguments.extend(dropout_arguments(op.dropout));
    let kernel = kernel(formats, (width, vocabulary), op.dropout.is_some(), "embed_forward");
    cx.launch(kernel, Extent::new(packs.div_ceil(u64::from(THREADS)), THREADS), arguments)
}

pub(super) fn backward(cx: &mut Lowering<'_>, op: &EmbedBackward) -> Result<(), BackendError> {
    let residual = cx.dtype(op.d_out);
    let (width, vocabulary) = (cx.shape(op.d_out).width(), cx.shape(op.d_wte).rows());
    let named =
        |entry| kernel([residual, residual], (width, vocabulary), op.dropout.is_some(), entry);
    let tokens = cx.shape(op.tokens);
    let (sequences, positions) = (tokens.rows(), tokens.width());
    let tokens_count = count(tokens.elements(), "tokens")?;
    let (scratch, d_out) = (cx.place(op.workspace)?, cx.place(op.d_out)?);
    let arguments = arguments![tokens_count, cx.place(op.tokens)?, scratch];
    cx.launch(named("sort_tokens"), Extent::new(1, SORT_THREADS), arguments)?;
    // After an even number of passes ids and places stand in the second pair.
    let ids = scratch.plus(8 * u64::from(tokens_count));
    let places = ids.plus(4 * u64::from(tokens_count));
    let positions_count = count(positions, "positions")?;
    let mut arguments = arguments![
        tokens_count,
        ids,
        places,
        d_out,
        cx.place(op.d_wte)?,
        positions_count,
        Place::Step,
    ];
    arguments.extend(dropout_arguments(op.dropout));
    let extent = Extent::new(u64::from(tokens_count), THREADS);
    cx.launch(named("embed_backward_tokens"), extent, arguments)?;
    let mut arguments = arguments![
        positions_count,
        count(sequences, "sequences")?,
        d_out,
        cx.place(op.d_wpe)?,
        Place::Step,
    ];
    arguments.extend(dropout_arguments(op.dropout));
    cx.launch(named("embed_backward_positions"), Extent::new(positions, THREADS), arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_tell_all_ids_apart() {
        for (vocabulary, passes) in [(1, 2), (2, 2), (65, 2), (256, 2), (257, 4), (65536, 4)] {
            assert_eq!(sort_passes(vocabulary), passes, "{vocabulary}");
        }
        assert_eq!(sort_passes(65537), 6);
    }
}
