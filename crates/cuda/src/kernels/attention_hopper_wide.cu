// The gradients of attention for wide heads, of 72 to 128 channels. Registers are few: d_scores are
// computed in two halves, and the gradient of a tile's queries is complete before the next tile.
//
// Included after `attention_hopper_gradient.cuh`.

static_assert(HEAD_PAD > 64, "narrow heads");

// One thread of the first warpgroup fetches the sums of other blocks, another stores the new sums.
constexpr u32 FETCHING_THREAD = 0, STORING_THREAD = 32;
constexpr int STAGES = 2;
constexpr int SUM_STAGES = 2;
// Queries whose d_weights are in registers at a time.
constexpr int PART = STEP / 2;
constexpr u32 SHARE_BYTES = SHARE * MULTIPLYING * 4;
// Shared memory, from a multiple of 1024 on: keys, values, stages of queries and d_out, d_scores,
// stages of sums, lines of lse and delta, barriers.
constexpr u32 VALUES = KEY_BYTES;
constexpr u32 WALKED = 2 * KEY_BYTES;
constexpr u32 CHANGES = WALKED + STAGES * 2 * STEP_BYTES;
constexpr u32 SUMS = CHANGES + CHANGE_BYTES;
constexpr u32 LINES = SUMS + SUM_STAGES * SHARE_BYTES;
constexpr u32 FETCHED = LINES + STAGES * 2 * STEP * 4;
constexpr u32 SUMMED = FETCHED + SUM_STAGES * 8;
constexpr u32 FREE = SUMMED + SUM_STAGES * 8;
static_assert(1024 + FREE + SUM_STAGES * 8 == BACKWARD_BYTES, "shared memory");

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
DEVICE void start_query_gradient(Share &s) {
    const u32 panel = s.channel / 64 * (KEYS * PANEL_ROW) + s.channel % 64 * sizeof(T);
    const u64 a = matrix_at(s.shared + CHANGES, KEYS);
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

// One tile of queries.
DEVICE void walk(Share &s, const Tensors &t, u32 tile) {
    const u32 stage = s.it % STAGES, query = tile * STEP, key = s.place.rank * KEYS + s.group * 64;
    const u32 queries = s.shared + WALKED + stage * 2 * STEP_BYTES;
    wait_for_copies();
    publish_shared();
    multiplying_barrier();
    if (tile + 1 < s.tiles) copy_step(s, t, tile + 1, s.it + 1);

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

    Words draws[PART / 16]; // made while matmuls run
    const u32 thread = thread_anew(), column = query + thread % 4 * 2;
    const u32 row = key + thread % 128 / 32 * 16 + thread % 32 / 4;
    draw(draws, dropout, row, column);

    warpgroup_wait<1>(scores);
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
        warpgroup_wait<0>(slopes);
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
    store_panel(s.shared + CHANGES, s.group * 64 + warp_row(), changes);
    publish_shared();

    warpgroup_arrive();
    UNROLL for (int k = 0; k < STEP / 16; ++k) {
        warpgroup_multiply<1>(s.d_values, weights[k], d_out + rows_at(k), 1);
    }
    UNROLL for (int k = 0; k < STEP / 16; ++k) {
        warpgroup_multiply<1>(s.d_keys, changes[k], q + rows_at(k), 1);
    }
    warpgroup_commit();
    multiplying_barrier();
    start_query_gradient(s);
    warpgroup_wait<0>(s.d_queries);
    settle(s.d_keys);
    settle(s.d_values);
    give_query_gradient(s, t, s.it);
    ++s.it;
}

DEVICE void multiply_tiles(Share &s, const Tensors &t) {
    const u32 first = s.place.rank * (KEYS / STEP);
    copy_step(s, t, first, 0);
    for (u32 tile = first; tile < s.tiles; ++tile) walk(s, t, tile);
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
