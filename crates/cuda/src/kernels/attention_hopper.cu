// Causal attention in a 16-bit format on Hopper's warpgroups. What a caller sees is as in
// `attention.cu`; the backward pass is one kernel, since its matmuls are what costs most.
//
// Included after `warpgroups.cuh`. The host defines T, HEADS, HEAD_SIZE (a multiple of 8, 48 to
// 128), HEAD_PAD and DROPOUT; FORWARD_GROUPS, the warpgroups of a block, and FORWARD_BLOCKS, how many blocks
// share a multiprocessor; STEP and CHANNELS, the queries of a tile and the channels in which each
// of two warpgroups sums their gradient; the bytes of dynamic shared memory.

static_assert(ALIGNED && HEAD_SIZE >= 48 && HEAD_SIZE <= 128, "another kernel does this head size");

// Draws need registers: with dropout, what only depends on the thread is computed for each tile.
DEVICE u32 thread_anew() {
    if (!DROPOUT) return threadIdx.x;
    u32 thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

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

// Backward. A block owns KEYS keys of one head and walks over the queries that see them, STEP at a
// time. The gradients of its keys and values stay in registers. The gradient of a tile of queries is
// a sum over blocks, in memory: each block in turn, from the latest keys to the first, adds its
// share, so that the order is always the same. `turns` says how many have added to a tile. The block
// of the first keys is the last, and writes the result.
//
// Blocks with later keys have lower numbers, so a block starts before any block that waits for it.
// All blocks walk towards later queries, so those of one head are at different tiles, and a block
// rarely waits.

constexpr int KEYS = 128;
// Two warpgroups multiply. One thread of the first warpgroup fetches the sums of other blocks,
// another stores the new sums.
constexpr int MULTIPLYING = 256;
constexpr int BACKWARD_THREADS = 128 + MULTIPLYING;
constexpr u32 FETCHING_THREAD = 0, STORING_THREAD = 32;
// While a tile is multiplied, the matmul of the tile before, for the gradient of its queries, still
// runs. Wide heads leave no registers for that.
constexpr bool DEFER = HEAD_PAD <= 64;
constexpr int STAGES = DEFER ? 4 : 2;
constexpr int CHANGE_STAGES = DEFER ? 2 : 1;
constexpr int SUM_STAGES = DEFER ? 3 : 2;
// Queries whose d_weights are in registers at a time.
constexpr int PART = DEFER ? STEP : STEP / 2;
// Numbers of a tile of queries' gradient that a thread has. Where the last panel of a wide head is
// narrower than CHANNELS, the rest sums whatever is there, and is left out at the end.
constexpr int SHARE = CHANNELS / 2;
constexpr u32 SHARE_BYTES = SHARE * MULTIPLYING * 4;
constexpr u32 KEY_BYTES = PANELS * KEYS * PANEL_ROW;
constexpr u32 STEP_BYTES = PANELS * STEP * PANEL_ROW;
constexpr u32 CHANGE_BYTES = KEYS * PANEL_ROW;
// Shared memory, from a multiple of 1024 on: keys, values, stages of queries and d_out, stages of
// d_scores, stages of sums, lines of lse and delta, barriers.
constexpr u32 VALUES = KEY_BYTES;
constexpr u32 WALKED = 2 * KEY_BYTES;
constexpr u32 CHANGES = WALKED + STAGES * 2 * STEP_BYTES;
constexpr u32 SUMS = CHANGES + CHANGE_STAGES * CHANGE_BYTES;
constexpr u32 LINES = SUMS + SUM_STAGES * SHARE_BYTES;
constexpr u32 FETCHED = LINES + STAGES * 2 * STEP * 4;
constexpr u32 SUMMED = FETCHED + SUM_STAGES * 8;
constexpr u32 FREE = SUMMED + SUM_STAGES * 8;
static_assert(1024 + FREE + SUM_STAGES * 8 == BACKWARD_BYTES, "shared memory");

// `delta` is the sum over channels of out * d_out. LANES lanes add one position of one head.
// Nothing has been added to any tile of queries yet.
KERNEL SIGNATURE(attention_delta) {
    constexpr u32 LANES = HEAD_SIZE <= 64 ? 8 : 16;
    const u32 index = (u32)(((u64)blockIdx.x * 256 + threadIdx.x) / LANES);
    const u32 lane = threadIdx.x % LANES;
    const bool inside = index < lines;
    const u32 head = index % HEADS, token = index / HEADS;
    const u64 at = (u64)token * WIDTH + head * HEAD_SIZE + lane * 8;
    float sum = 0;
    if (inside && lane * 8 < HEAD_SIZE) {
        const Pack<T, 8> a = load<T, 8>(out_btc + at), b = load<T, 8>(d_out_btc + at);
        UNROLL for (int i = 0; i < 8; ++i) sum = fmaf(widen(a.at[i]), widen(b.at[i]), sum);
    }
    UNROLL for (int i = LANES / 2; i > 0; i /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, i);
    if (!inside || lane != 0) return;
    const u32 row = token / positions, position = token % positions;
    const u64 line = (u64)row * HEADS + head;
    delta_bht[line * positions + position] = sum;
    if (position % STEP == 0) turns[line * ceil_divide(positions, STEP) + position / STEP] = 0;
}

// Which keys this block owns. Read anew where it is needed, since registers are few.
DEVICE BlockTile keys_of_block(u32 key_tiles) {
    u32 index;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
    return {index / HEADS / key_tiles, index % HEADS, key_tiles - 1 - index / HEADS % key_tiles};
}

// The sums of one head's queries in memory.
struct QuerySums {
    float *sums;
    u32 *turns;
    u32 rank;
    u32 first;
    u32 tiles;
};

DEVICE u32 turn_of(const QuerySums &to, u32 tile) { return tile / (KEYS / STEP) - to.rank; }

DEVICE float *tile_sums(const QuerySums &to, u32 tile) {
    return to.sums + (u64)tile * (SHARE * MULTIPLYING);
}

// One thread: copies the sums so far of each tile into shared memory, as soon as it is this block's
// turn and there is room.
DEVICE void fetch_sums(u32 shared, const QuerySums &from) {
    for (u32 tile = from.first; tile < from.tiles; ++tile) {
        const u32 it = tile - from.first, stage = it % SUM_STAGES, use = it / SUM_STAGES;
        if (use > 0) wait_barrier(shared + FREE + stage * 8, (use - 1) & 1);
        const u32 turn = turn_of(from, tile), fetched = shared + FETCHED + stage * 8;
        if (turn == 0) {
            arrive(fetched);
            continue;
        }
        while (load_acquire(from.turns + tile) < turn) {
        }
        order_memory_for_copies();
        arrive_expecting(fetched, SHARE_BYTES);
        copy_in(shared + SUMS + stage * SHARE_BYTES, tile_sums(from, tile), SHARE_BYTES, fetched);
    }
}

// One thread: copies the new sums of each tile into memory, and says so.
DEVICE void store_sums(u32 shared, const QuerySums &to) {
    for (u32 tile = to.first; tile < to.tiles; ++tile) {
        const u32 it = tile - to.first, stage = it % SUM_STAGES, use = it / SUM_STAGES;
        wait_barrier(shared + SUMMED + stage * 8, use & 1);
        copy_out(tile_sums(to, tile), shared + SUMS + stage * SHARE_BYTES, SHARE_BYTES);
        wait_for_copies_out();
        order_memory_for_copies();
        store_release(to.turns + tile, turn_of(to, tile) + 1);
        arrive(shared + FREE + stage * 8);
    }
}

// What a multiplying warpgroup works with: 64 keys, the queries' gradient from `channel` on.
struct Share {
    u32 shared, group, channel, positions, tiles;
    BlockTile place;
    const Step *step;
    Dropout dropout;
    // The tile's number among those that the block walks over.
    u32 it;
    float d_keys[HEAD_PAD / 8][4], d_values[HEAD_PAD / 8][4], d_queries[CHANNELS / 8][4];
};

struct Tensors {
    const T *qkv, *d_out;
    const float *lse, *delta;
    T *d_qkv;
};

DEVICE void copy_step(const Share &s, const Tensors &t, u32 tile, u32 it) {
    const u32 stage = it % STAGES, first = tile * STEP, thread = thread_anew() - 128;
    const u32 to = s.shared + WALKED + stage * 2 * STEP_BYTES;
    copy_panels<STEP, MULTIPLYING, QKV_WIDTH>(to, t.qkv + qkv_start(s.place, s.positions), first, s.positions, thread);
    copy_panels<STEP, MULTIPLYING, WIDTH>(to + STEP_BYTES, t.d_out + out_start(s.place, s.positions), first, s.positions,
                                          thread);
    if (thread < 2 * STEP) {
        const u32 position = first + thread % STEP;
        const bool inside = position < s.positions;
        const float *from = thread < STEP ? t.lse : t.delta;
        copy_4(s.shared + LINES + (stage * 2 * STEP + thread) * 4,
               from + line_start(s.place, s.positions) + (inside ? position : 0), inside ? 4 : 0);
    }
}

// d_queries = d_scores keys, in this warpgroup's channels.
DEVICE void start_query_gradient(Share &s, u32 it) {
    const u32 panel = s.channel / 64 * (KEYS * PANEL_ROW) + s.channel % 64 * sizeof(T);
    const u64 a = matrix_at(s.shared + CHANGES + it % CHANGE_STAGES * CHANGE_BYTES, KEYS);
    const u64 b = matrix_at(s.shared + panel, KEYS);
    warpgroup_arrive();
    UNROLL for (int k = 0; k < KEYS / 16; ++k) {
        warpgroup_multiply<1, 1>(s.d_queries, a + rows_at(k), b + rows_at(k), k > 0);
    }
    warpgroup_commit();
}

// Adds this block's share of a tile's gradient to what was fetched.
DEVICE void give_query_gradient(Share &s, const Tensors &t, u32 it) {
    const u32 stage = it % SUM_STAGES, tile = s.place.rank * (KEYS / STEP) + it;
    const u32 at = s.shared + SUMS + stage * SHARE_BYTES + (thread_anew() - 128) * 16;
    wait_barrier(s.shared + FETCHED + stage * 8, it / SUM_STAGES & 1);
    if (it >= KEYS / STEP) {
        UNROLL for (int n = 0; n < CHANNELS / 8; ++n) {
            float before[4];
            load_shared_4(before, at + n * MULTIPLYING * 16);
            UNROLL for (int i = 0; i < 4; ++i) s.d_queries[n][i] += before[i];
        }
    }
    if (s.place.rank > 0) {
        UNROLL for (int n = 0; n < CHANNELS / 8; ++n) {
            store_shared_4(at + n * MULTIPLYING * 16, s.d_queries[n]);
        }
        publish_shared();
        arrive(s.shared + SUMMED + stage * 8);
        return;
    }
    const u32 start = tile * STEP + warp_row();
    store_rows<QKV_WIDTH>(t.d_qkv + qkv_start(s.place, s.positions) + (u64)start * QKV_WIDTH, (int)(s.positions - start),
                          s.d_queries, score_scale(), score_scale(), s.channel);
    arrive(s.shared + FREE + stage * 8);
}

// d_weights = values d_out^T, for PART queries.
DEVICE void start_slopes(const Share &s, float (&slopes)[PART / 8][4], u64 d_out) {
    const u64 values = matrix_at(s.shared + VALUES + s.group * 64 * PANEL_ROW, KEYS);
    UNROLL for (int k = 0; k < HEAD_PAD / 16; ++k) {
        warpgroup_multiply<0, 0>(slopes, values + channels_at<KEYS>(k),
                                 d_out + channels_at<STEP>(k), k > 0);
    }
    warpgroup_commit();
}

// The draws for PART queries. `key` and `query` are the lane's first.
DEVICE void draw(Words (&draws)[PART / 16], const HeadDropout &dropout, u32 key, u32 query) {
    UNROLL for (int n = 0; DROPOUT && n < PART / 16; ++n) {
        draws[n] = draws_for_keys(dropout, key, query + n * 16);
    }
}

// One tile of queries. BEFORE: there was another, whose queries' gradient is still to be summed.
template <bool BEFORE> DEVICE void walk(Share &s, const Tensors &t, u32 tile) {
    constexpr bool SUMS_BEFORE = BEFORE && DEFER;
    const u32 stage = s.it % STAGES, query = tile * STEP, key = s.place.rank * KEYS + s.group * 64;
    const u32 queries = s.shared + WALKED + stage * 2 * STEP_BYTES;
    wait_for_copies();
    publish_shared();
    multiplying_barrier();
    if (tile + STAGES / 2 < s.tiles) copy_step(s, t, tile + STAGES / 2, s.it + STAGES / 2);

    const HeadDropout dropout = head_dropout(s.step, s.dropout, s.place);
    float scores[STEP / 8][4], slopes[PART / 8][4];
    const u64 keys = matrix_at(s.shared + s.group * 64 * PANEL_ROW, KEYS);
    const u64 q = matrix_at(queries, STEP), d_out = matrix_at(queries + STEP_BYTES, STEP);
    warpgroup_arrive();
    UNROLL for (int k = 0; k < HEAD_PAD / 16; ++k) {
        warpgroup_multiply<0, 0>(scores, keys + channels_at<KEYS>(k), q + channels_at<STEP>(k),
                                 k > 0);
    }
    warpgroup_commit();
    start_slopes(s, slopes, d_out);
    if constexpr (SUMS_BEFORE) start_query_gradient(s, s.it - 1);

    Words draws[PART / 16]; // made while matmuls run
    const u32 thread = thread_anew(), column = query + thread % 4 * 2;
    const u32 row = key + thread % 128 / 32 * 16 + thread % 32 / 4;
    draw(draws, dropout, row, column);

    warpgroup_wait<SUMS_BEFORE ? 2 : 1>(scores);
    settle(s.d_keys);
    settle(s.d_values);
    if (query < key + 63) hide_later_keys<STEP, true>(scores, row, column);
    const u32 line = s.shared + LINES + (stage * 2 * STEP + thread % 4 * 2) * 4;
    UNROLL for (int n = 0; n < STEP / 8; ++n) {
        const Pack<float, 2> log_sum = load_shared(line + n * 32);
        UNROLL for (int i = 0; i < 4; ++i) {
            const float shift = log_sum.at[i % 2] * LOG2_E;
            scores[n][i] = fast_exp2(scores[n][i] * (score_scale() * LOG2_E) - shift);
        }
    }
    u32 weights[STEP / 16][4], changes[STEP / 16][4];
    UNROLL for (int part = 0; part < STEP / PART; ++part) {
        if (part > 0) {
            warpgroup_arrive();
            start_slopes(s, slopes, d_out + rows_at(part * (PART / 16)));
            draw(draws, dropout, row, column + part * PART);
        }
        warpgroup_wait<SUMS_BEFORE ? 1 : 0>(slopes);
        UNROLL for (int i = 0; i < PART / 8; ++i) {
            const int n = part * (PART / 8) + i;
            const Pack<float, 2> delta = load_shared(line + STEP * 4 + n * 32);
            UNROLL for (int j = 0; j < 4; ++j) {
                float slope = slopes[i][j] - delta.at[j % 2], weight = scores[n][j];
                if (DROPOUT) {
                    const bool kept = is_kept<true>(dropout, draws[i / 2], i % 2, j);
                    slope = fmaf(kept ? slopes[i][j] : 0, s.dropout.scale, -delta.at[j % 2]);
                    weight = kept ? weight : 0;
                }
                slopes[i][j] = scores[n][j] * slope;
                scores[n][j] = weight;
            }
            UNROLL for (int half = 0; half < 2; ++half) {
                const int to = n % 2 * 2 + half, from = 2 * half;
                weights[n / 2][to] = pair(scores[n][from], scores[n][from + 1], T());
                changes[n / 2][to] = pair(slopes[i][from], slopes[i][from + 1], T());
            }
        }
    }
    store_panel(s.shared + CHANGES + s.it % CHANGE_STAGES * CHANGE_BYTES,
                s.group * 64 + warp_row(), changes);
    publish_shared();
    if constexpr (SUMS_BEFORE) warpgroup_wait<0>(s.d_queries);

    warpgroup_arrive();
    UNROLL for (int k = 0; k < STEP / 16; ++k) {
        warpgroup_multiply<1>(s.d_values, weights[k], d_out + rows_at(k), 1);
    }
    UNROLL for (int k = 0; k < STEP / 16; ++k) {
        warpgroup_multiply<1>(s.d_keys, changes[k], q + rows_at(k), 1);
    }
    warpgroup_commit();
    if constexpr (SUMS_BEFORE) give_query_gradient(s, t, s.it - 1);
    if constexpr (!DEFER) {
        multiplying_barrier();
        start_query_gradient(s, s.it);
        warpgroup_wait<0>(s.d_queries);
        settle(s.d_keys);
        settle(s.d_values);
        give_query_gradient(s, t, s.it);
    }
    ++s.it;
}

DEVICE void multiply_tiles(Share &s, const Tensors &t) {
    const u32 first = s.place.rank * (KEYS / STEP);
    copy_step(s, t, first, 0);
    if (DEFER && first + 1 < s.tiles) copy_step(s, t, first + 1, 1);
    if constexpr (DEFER) walk<false>(s, t, first);
    for (u32 tile = first + DEFER; tile < s.tiles; ++tile) walk<DEFER>(s, t, tile);
    if constexpr (DEFER) {
        multiplying_barrier();
        start_query_gradient(s, s.it - 1);
        warpgroup_wait<0>(s.d_queries);
        settle(s.d_keys);
        settle(s.d_values);
        give_query_gradient(s, t, s.it - 1);
    }
    const BlockTile place = keys_of_block(ceil_divide(s.positions, KEYS));
    const u32 start = place.rank * KEYS + (warpgroup() - 1) * 64 + warp_row();
    T *to = t.d_qkv + qkv_start(place, s.positions) + WIDTH + (u64)start * QKV_WIDTH;
    const int limit = (int)(s.positions - start);
    store_rows<QKV_WIDTH>(to, limit, s.d_keys, score_scale(), score_scale());
    const float factor = DROPOUT ? s.dropout.scale : 1;
    store_rows<QKV_WIDTH>(to + WIDTH, limit, s.d_values, factor, factor);
}

KERNEL __launch_bounds__(BACKWARD_THREADS, 1) SIGNATURE(attention_backward) {
    if (blockIdx.x >= blocks) return;
    const u32 key_tiles = ceil_divide(positions, KEYS), tiles = ceil_divide(positions, STEP);
    {
        const u32 shared = aligned_shared_start();
        const BlockTile place = keys_of_block(key_tiles);
        UNROLL for (int i = 1; i < 3; ++i) {
            copy_panels<KEYS, BACKWARD_THREADS, QKV_WIDTH>(
                shared + (i - 1) * KEY_BYTES, qkv_bt3c + qkv_start(place, positions) + i * WIDTH,
                place.rank * KEYS, positions, threadIdx.x);
        }
        if (threadIdx.x == 0) {
            UNROLL for (int i = 0; i < SUM_STAGES; ++i) {
                init_barrier(shared + FETCHED + i * 8, 1);
                init_barrier(shared + SUMMED + i * 8, MULTIPLYING);
                init_barrier(shared + FREE + i * 8, place.rank == 0 ? MULTIPLYING : 1);
            }
        }
    }
    wait_for_copies();
    publish_shared();
    __syncthreads();
    if (warpgroup() == 0) {
        give_registers_up<24>();
        const u32 shared = aligned_shared_start();
        const BlockTile place = keys_of_block(key_tiles);
        const u64 head = (u64)place.row * HEADS + place.head;
        const QuerySums query_sums = {sums + head * tiles * (SHARE * MULTIPLYING),
                                      turns + head * tiles, place.rank,
                                      place.rank * (KEYS / STEP), tiles};
        if (threadIdx.x == FETCHING_THREAD) fetch_sums(shared, query_sums);
        if (threadIdx.x == STORING_THREAD && place.rank > 0) store_sums(shared, query_sums);
    } else {
        take_registers<240>();
        const u32 shared = aligned_shared_start(), group = warpgroup() - 1;
        const BlockTile place = keys_of_block(key_tiles);
        const Tensors tensors = {qkv_bt3c, d_out_btc, lse_bht, delta_bht, d_qkv_bt3c};
        Share share = {shared, group, group * CHANNELS, positions, tiles, place, step,
                       {threshold, tag, scale}};
        multiply_tiles(share, tensors);
    }
}
