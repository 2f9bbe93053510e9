//! Launches of the embeddings and their gradients.

use super::count;
use crate::constants::constants;
use crate::lowering::{Extent, Lowering, Mask, ModuleSpec, Source, pack_of};
use crate::signature::{In, Out, R, T, WorkCount, signatures};
use crate::step::Step;
use plan::ops::{Embed, EmbedBackward, PositionFrom};
use plan::{BackendError, Dtype};

signatures! {
    /// Token embedding, plus positions where they are learned.
    EmbedTokens = embed_forward(
        packs: WorkCount<u64>,
        tokens_bt: In<i32>,
        wte_vc: In<T>,
        wpe_tc: In<T>,
        out_btc: Out<R>,
        positions: u32,
        from_step: u32,
        step: In<Step>,
        threshold: u32,
        tag: u32,
        scale: f32,
    );
    /// Sorts tokens by id.
    SortTokens = sort_tokens(count: WorkCount<u32>, tokens_bt: In<i32>, scratch: Out<u32>);
    /// The gradient of the token embedding.
    TokenGradient = embed_backward_tokens(
        count: WorkCount<u32>,
        ids: In<u32>,
        places: In<u32>,
        d_out_btc: In<R>,
        d_wte_vc: Out<f32>,
        positions: u32,
        step: In<Step>,
        threshold: u32,
        tag: u32,
        scale: f32,
    );
    /// The gradient of the position embedding.
    PositionGradient = embed_backward_positions(
        positions: WorkCount<u32>,
        sequences: u32,
        d_out_btc: In<R>,
        d_wpe_tc: Out<f32>,
        step: In<Step>,
        threshold: u32,
        tag: u32,
        scale: f32,
    );
}

constants! {
    Constants {
        T: Dtype,
        R: Dtype,
        WIDTH: u64,
        VEC: u64,
        DROPOUT: bool,
        LEARNED_POSITIONS: bool,
        SORT_PASSES: u32,
    }
    fixed { THREADS, SORT_THREADS, DIGIT_BITS }
}

pub(super) static EMBED: Source = Source {
    file: "embed.cu",
    signatures: SIGNATURES,
    constants: Constants::NAMES,
    parts: &[include_str!("embed.cu")],
    warpgroups: false,
};

const THREADS: u32 = 128;
const SORT_THREADS: u32 = 512;
/// Bits that one pass of the sort uses.
const DIGIT_BITS: u32 = 4;

/// Passes that distinguish all ids. An even number, so that the result ends up in the second pair
/// of arrays.
fn sort_passes(vocabulary: u64) -> u32 {
    let bits = 64 - vocabulary.saturating_sub(1).leading_zeros();
    bits.div_ceil(DIGIT_BITS).max(1).next_multiple_of(2)
}

fn module(
    [table, residual]: [Dtype; 2],
    (width, vocabulary): (u64, u64),
    [dropout, learned_positions]: [bool; 2],
) -> ModuleSpec {
    let constants = Constants {
        T: table,
        R: residual,
        WIDTH: width,
        VEC: pack_of(width, &[table, residual]),
        DROPOUT: dropout,
        LEARNED_POSITIONS: learned_positions,
        SORT_PASSES: sort_passes(vocabulary),
    };
    constants.module(&EMBED)
}

pub(super) fn forward(cx: &mut Lowering<'_>, op: &Embed) -> Result<(), BackendError> {
    let (shape, formats) = (cx.shape(op.out), [cx.dtype(op.wte), cx.dtype(op.out)]);
    let (width, vocabulary) = (shape.width(), cx.shape(op.wte).rows());
    let packs = shape.elements() / pack_of(width, &formats);
    let from_step = u32::from(op.position == PositionFrom::Step);
    let Mask { threshold, tag, scale } = Mask::of(op.dropout);
    let kernel = EmbedTokens {
        packs: WorkCount(packs),
        tokens_bt: cx.read(op.tokens)?,
        wte_vc: cx.read(op.wte)?,
        wpe_tc: cx.maybe_read(op.wpe)?,
        out_btc: cx.write(op.out)?,
        positions: count(cx.shape(op.tokens).width(), "positions")?,
        from_step,
        step: cx.step(),
        threshold,
        tag,
        scale,
    };
    let flags = [op.dropout.is_some(), op.wpe.is_some()];
    let module = module(formats, (width, vocabulary), flags);
    cx.launch(module, Extent::new(packs.div_ceil(u64::from(THREADS)), THREADS), kernel)
}

pub(super) fn backward(cx: &mut Lowering<'_>, op: &EmbedBackward) -> Result<(), BackendError> {
    let residual = cx.dtype(op.d_out);
    let (width, vocabulary) = (cx.shape(op.d_out).width(), cx.shape(op.d_wte).rows());
    let flags = [op.dropout.is_some(), op.d_wpe.is_some()];
    let module = module([residual, residual], (width, vocabulary), flags);
    let shape = cx.shape(op.tokens);
    let tokens = count(shape.elements(), "tokens")?;
    let scratch = cx.scratch(op.workspace)?;
    let sort = SortTokens { count: WorkCount(tokens), tokens_bt: cx.read(op.tokens)?, scratch };
    cx.launch(module.clone(), Extent::new(1, SORT_THREADS), sort)?;
    // After an even number of passes, ids and positions are in the second pair.
    let ids = scratch.read().plus(8 * u64::from(tokens));
    let positions = count(shape.width(), "positions")?;
    let (d_out, step) = (cx.read(op.d_out)?, cx.step());
    let Mask { threshold, tag, scale } = Mask::of(op.dropout);
    let by_token = TokenGradient {
        count: WorkCount(tokens),
        ids,
        places: ids.plus(4 * u64::from(tokens)),
        d_out_btc: d_out,
        d_wte_vc: cx.write(op.d_wte)?,
        positions,
        step,
        threshold,
        tag,
        scale,
    };
    cx.launch(module.clone(), Extent::new(u64::from(tokens), THREADS), by_token)?;
    let Some(d_wpe) = op.d_wpe else {
        return Ok(());
    };
    let by_position = PositionGradient {
        positions: WorkCount(positions),
        sequences: count(shape.rows(), "sequences")?,
        d_out_btc: d_out,
        d_wpe_tc: cx.write(d_wpe)?,
        step,
        threshold,
        tag,
        scale,
    };
    cx.launch(module, Extent::new(u64::from(positions), THREADS), by_position)
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
