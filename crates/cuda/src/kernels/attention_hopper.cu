// Causal attention in a 16-bit format on Hopper's warpgroups. What a caller sees is as in
// `attention.cu`.
//
// Included after `warpgroups.cuh`. The host defines T, HEADS, HEAD_SIZE (a multiple of 8, 48 to
// 128), HEAD_PAD and DROPOUT; FORWARD_GROUPS, the warpgroups of a block, and FORWARD_BLOCKS, how
// many blocks share a multiprocessor; FORWARD_BYTES of dynamic shared memory.

static_assert(ALIGNED && HEAD_SIZE >= 48 && HEAD_SIZE <= 128, "another kernel does this head size");

// Forward: FORWARD_GROUPS warpgroups, each with 64 queries.

constexpr int QUERIES = 64 * FORWARD_GROUPS;
constexpr int COLUMNS = 64;
constexpr int FORWARD_THREADS = 128 * FORWARD_GROUPS;
constexpr u32 OWN_BYTES = PANELS * QUERIES * PANEL_ROW;
constexpr u32 COLUMN_BYTES = PANELS * COLUMNS * PANEL_ROW;
static_assert(1024 + OWN_BYTES + 4 * COLUMN_BYTES == FORWARD_BYTES, "shared memory");

// Weights that dropout takes become zero. The others are scaled at the end.
DEVICE void drop_weights(float (&weights)[COLUMNS / 8][4], const HeadDropout &dropout, u32 query,
                         u32 key) {
    UNROLL for (int n = 0; n < COLUMNS / 8; n += 2) {
        const Words draws = draws_for_queries(dropout, query, key + n * 8);
        UNROLL for (int i = 0; i < 8; ++i) {
            float &weight = weights[n + i / 4][i % 4];
            if (!is_kept<false>(dropout, draws, i / 4, i % 4)) weight = 0;
        }
    }
}

DEVICE void forward_tile(float (&sums)[HEAD_PAD / 8][4], Softmax &softmax, u32 queries, u32 keys,
                         u32 query, u32 key, const HeadDropout &dropout) {
    float scores[COLUMNS / 8][4];
    const u64 a = matrix_at(queries, QUERIES), b = matrix_at(keys, COLUMNS);
    warpgroup_arrive();
    UNROLL for (int k = 0; k < HEAD_PAD / 16; ++k) {
        warpgroup_multiply<0, 0>(scores, a + channels_at<QUERIES>(k), b + channels_at<COLUMNS>(k),
                                 k > 0);
    }
    warpgroup_commit();
    warpgroup_wait<0>(scores);
    const u32 thread = thread_anew(), column = key + thread % 4 * 2;
    const u32 row = query + thread % 128 / 32 * 16 + thread % 32 / 4;
    if (key + COLUMNS - 1 > query) hide_later_keys<COLUMNS, false>(scores, row, column);
    softmax_step<COLUMNS>(scores, sums, softmax, score_scale() * LOG2_E);
    if (DROPOUT) drop_weights(scores, dropout, row, column);
    Weights<COLUMNS> weights;
    weights_from<COLUMNS>(weights, scores);
    const u64 values = matrix_at(keys + COLUMN_BYTES, COLUMNS);
    warpgroup_arrive();
    UNROLL for (int k = 0; k < COLUMNS / 16; ++k) {
        warpgroup_multiply<1>(sums, weights.at[k], values + rows_at(k), 1);
    }
    warpgroup_commit();
    warpgroup_wait<0>(sums);
}

KERNEL __launch_bounds__(FORWARD_THREADS, FORWARD_BLOCKS) SIGNATURE(attention_forward) {
    if (blockIdx.x >= blocks) return;
    const u32 tiles = ceil_divide(positions, QUERIES);
    const BlockTile place = tile_of_block(tiles);
    const u32 first = (tiles - 1 - place.rank) * QUERIES, query = first + warpgroup() * 64;
    qkv_bt3c += qkv_start(place, positions);
    const u32 own = aligned_shared_start(), walked = own + OWN_BYTES;
    auto copy_tile = [&](u32 tile, u32 to) {
        const u32 thread = thread_anew();
        copy_panels<COLUMNS, FORWARD_THREADS, QKV_WIDTH>(to, qkv_bt3c + WIDTH, tile * COLUMNS,
                                                         positions, thread);
        copy_panels<COLUMNS, FORWARD_THREADS, QKV_WIDTH>(to + COLUMN_BYTES, qkv_bt3c + 2 * WIDTH,
                                                         tile * COLUMNS, positions, thread);
    };
    const u32 end = first + QUERIES < positions ? first + QUERIES : positions;
    u32 tile = ceil_divide(end, COLUMNS) - 1;
    copy_panels<QUERIES, FORWARD_THREADS, QKV_WIDTH>(own, qkv_bt3c, first, positions, threadIdx.x);
    copy_tile(tile, walked);

    float sums[HEAD_PAD / 8][4] = {};
    Softmax softmax = {{LOWEST, LOWEST}, {0, 0}};
    // The next tile is copied while this one is used. One barrier ensures both that this one has
    // arrived and that no warp still reads what the copy overwrites.
    for (u32 stage = 0;; stage ^= 1, --tile) {
        wait_for_copies();
        publish_shared();
        __syncthreads();
        if (tile > 0) copy_tile(tile - 1, walked + (stage ^ 1) * 2 * COLUMN_BYTES);
        if (tile * COLUMNS < query + 64) {
            forward_tile(sums, softmax, own + warpgroup() * 64 * PANEL_ROW,
                         walked + stage * 2 * COLUMN_BYTES, query, tile * COLUMNS,
                         head_dropout(step, {threshold, tag, scale}, place));
        }
        if (tile == 0) break;
    }

    out_btc += out_start(place, positions);
    lse_bht += line_start(place, positions);
    const u32 start = query + warp_row(), row = start + lane_row();
    const float sum[2] = {quad_sum(softmax.sum[0]), quad_sum(softmax.sum[1])};
    UNROLL for (int half = 0; half < 2; ++half) {
        if (threadIdx.x % 4 != 0 || row + 8 * half >= positions) continue;
        lse_bht[row + 8 * half] = softmax.most[half] * score_scale() + fast_log2(sum[half]) * LN_2;
    }
    const float factor = DROPOUT ? scale : 1.0f;
    store_rows<WIDTH>(out_btc + (u64)start * WIDTH, (int)(positions - start), sums, factor / sum[0],
                      factor / sum[1]);
}
