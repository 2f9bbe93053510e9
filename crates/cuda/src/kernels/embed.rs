//! Launches of the embeddings and their gradients.

use super::count;
use crate::constants::constants;
use crate::kernel_source::{ModuleSpec, Source};
use crate::lowering::{Extent, Lowering, Mask, pack_of};
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
    /// Sorts tiles of tokens by id.
    SortTiles = sort_tiles(count: WorkCount<u32>, tokens_bt: In<i32>, keys: Out<u64>);
    /// Merges the sorted tiles.
    MergeTiles = merge_tiles(
        count: WorkCount<u32>,
        keys: In<u64>,
        ids: Out<u32>,
        places: Out<u32>,
    );
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
    }
    fixed { THREADS, SUM_THREADS, TOKENS_AT_ONCE, SORT_TILE }
}

pub(super) static EMBED: Source = Source {
    file: "embed.cu",
    signatures: SIGNATURES,
    constants: Constants::NAMES,
    parts: &[include_str!("embed.cu")],
    warpgroups: false,
};

const THREADS: u32 = 256;
/// Threads of the sums by token: a warp for each, or all for an id with many.
const SUM_THREADS: u32 = 256;
/// Tokens whose gradients a thread reads before it adds the first.
const TOKENS_AT_ONCE: u32 = 4;
/// Tokens that one block sorts, two for each of its threads.
const SORT_TILE: u32 = 2048;

fn module(
    [table, residual]: [Dtype; 2],
    width: u64,
    [dropout, learned_positions]: [bool; 2],
) -> ModuleSpec {
    let constants = Constants {
        T: table,
        R: residual,
        WIDTH: width,
        VEC: pack_of(width, &[table, residual]),
        DROPOUT: dropout,
        LEARNED_POSITIONS: learned_positions,
    };
    constants.module(&EMBED)
}

pub(super) fn forward(cx: &mut Lowering<'_>, op: &Embed) -> Result<(), BackendError> {
    let (shape, formats) = (cx.shape(op.out), [cx.dtype(op.wte), cx.dtype(op.out)]);
    let width = shape.width();
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
    let module = module(formats, width, flags);
    cx.launch(module, Extent::new(packs.div_ceil(u64::from(THREADS)), THREADS), kernel)
}

/// Sorts the tokens by id, and those of one id by place, in the workspace: keys, then ids, then
/// places.
fn sort(
    cx: &mut Lowering<'_>,
    op: &EmbedBackward,
    module: &ModuleSpec,
    tokens: u32,
) -> Result<(In<u32>, In<u32>), BackendError> {
    let keys: Out<u64> = cx.scratch(op.workspace)?;
    let ids: Out<u32> = cx.scratch(op.workspace)?.plus(8 * u64::from(tokens));
    let places = ids.plus(4 * u64::from(tokens));
    let count = WorkCount(tokens);
    let tiles = SortTiles { count, tokens_bt: cx.read(op.tokens)?, keys };
    cx.launch(
        module.clone(),
        Extent::new(tokens.div_ceil(SORT_TILE).into(), SORT_TILE / 2),
        tiles,
    )?;
    let merge = MergeTiles { count, keys: keys.read(), ids, places };
    cx.launch(module.clone(), Extent::new(tokens.div_ceil(THREADS).into(), THREADS), merge)?;
    Ok((ids.read(), places.read()))
}

pub(super) fn backward(cx: &mut Lowering<'_>, op: &EmbedBackward) -> Result<(), BackendError> {
    let residual = cx.dtype(op.d_out);
    let width = cx.shape(op.d_out).width();
    let flags = [op.dropout.is_some(), op.d_wpe.is_some()];
    let module = module([residual, residual], width, flags);
    let shape = cx.shape(op.tokens);
    let tokens = count(shape.elements(), "tokens")?;
    let (ids, places) = sort(cx, op, &module, tokens)?;
    let positions = count(shape.width(), "positions")?;
    let (d_out, step) = (cx.read(op.d_out)?, cx.step());
    let Mask { threshold, tag, scale } = Mask::of(op.dropout);
    let by_token = TokenGradient {
        count: WorkCount(tokens),
        ids,
        places,
        d_out_btc: d_out,
        d_wte_vc: cx.write(op.d_wte)?,
        positions,
        step,
        threshold,
        tag,
        scale,
    };
    let packs = width / pack_of(width, &[residual]);
    let blocks = u64::from(tokens.div_ceil(SUM_THREADS / 32)) * packs.div_ceil(32);
    cx.launch(module.clone(), Extent::new(blocks, SUM_THREADS), by_token)?;
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
    let blocks = (u64::from(positions) * packs).div_ceil(u64::from(THREADS));
    cx.launch(module, Extent::new(blocks, THREADS), by_position)
}
