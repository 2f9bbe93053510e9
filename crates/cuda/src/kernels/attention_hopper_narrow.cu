// The gradients of attention for narrow heads, of 48 to 64 channels. The two multiplying warpgroups
// wait for each other only through barriers in shared memory, each when it needs something: so one
// computes exponentials while the other multiplies. Of the first warpgroup, a thread waits for the
// block's turns, a warp passes them on, and two warps copy queries and d_out.
//
// The sums of queries' gradients go from registers to memory and back, not through shared memory,
// whose rate bounds this kernel. The gradient of a tile's queries is one tile late.
//
// Included after `attention_hopper_gradient.cuh`.

static_assert(HEAD_PAD <= 64, "wide heads");

constexpr u32 GRANTING_THREAD = 0, PASSING_THREAD = 32, COPYING_THREAD = 64, COPYING = 64;
constexpr u32 WARPS = MULTIPLYING / 32;
constexpr int STAGES = 4;
constexpr int CHANGE_STAGES = 2;
// Shared memory, from a multiple of 1024 on: keys, values, stages of queries and d_out, stages of
// d_scores, lines of lse and delta, numbers, barriers.
constexpr u32 VALUES = KEY_BYTES;
constexpr u32 WALKED = 2 * KEY_BYTES;
constexpr u32 CHANGES = WALKED + STAGES * 2 * STEP_BYTES;
constexpr u32 LINES = CHANGES + CHANGE_STAGES * CHANGE_BYTES;
// Tiles to which each warp has given its sums, and tiles at which it is this block's turn.
constexpr u32 GIVEN = LINES + STAGES * 2 * STEP * 4;
constexpr u32 GRANTED = GIVEN + WARPS * 4;
// Where the head's queries begin in qkv, and the block's first tile in the sums: what a thread needs
// once a tile, and would else keep in registers.
constexpr u32 QUERIES_AT = GIVEN + 40, SUMS_AT = GIVEN + 48;
// A stage has been copied, and is no longer read; d_scores have been written, and multiplied.
constexpr u32 FULL = GIVEN + 64;
constexpr u32 USED = FULL + STAGES * 8;
constexpr u32 CHANGED = USED + STAGES * 8;
constexpr u32 TAKEN = CHANGED + CHANGE_STAGES * 8;
static_assert(1024 + TAKEN + CHANGE_STAGES * 8 == BACKWARD_BYTES, "shared memory");

// One arrival for all lanes of a warp.
DEVICE void arrive_together(u32 at) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(at);
}

// Arrives when this thread's copies are there.
DEVICE void arrive_after_copies(u32 at) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at) : "memory");
}

DEVICE u32 load_acquire_shared(u32 from) {
    u32 x;
    asm volatile("ld.acquire.cta.shared::cta.u32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
    return x;
}

DEVICE void store_release_shared(u32 to, u32 x) {
    asm volatile("st.release.cta.shared::cta.u32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}

DEVICE u64 load_word(u32 from) {
    u64 x;
    asm volatile("ld.shared.u64 %0, [%1];" : "=l"(x) : "r"(from));
    return x;
}

DEVICE void store_word(u32 to, u64 x) {
    asm volatile("st.shared.u64 [%0], %1;" ::"r"(to), "l"(x) : "memory");
}

// One thread: says at which tiles it is this block's turn.
DEVICE void grant_turns(u32 shared, const QuerySums &from) {
    for (u32 tile = from.first; tile < from.tiles; ++tile) {
        const u32 turn = turn_of(from, tile);
        if (turn == 0) continue;
        while (load_acquire(from.turns + tile) < turn) {
        }
        store_release_shared(shared + GRANTED, tile - from.first + 1);
    }
}

// One warp: passes the turn on when all warps have stored their sums of a tile.
DEVICE void pass_turns_on(u32 shared, const QuerySums &to) {
    const u32 lane = threadIdx.x % 32, given = shared + GIVEN + lane % WARPS * 4;
    for (u32 tile = to.first; tile < to.tiles; ++tile) {
        while (!__all_sync(0xffffffffu, load_acquire_shared(given) > tile - to.first)) {
        }
        __syncwarp();
        if (lane == 0) store_release(to.turns + tile, turn_of(to, tile) + 1);
    }
}

struct Tensors {
    const T *qkv, *d_out;
    const float *lse, *delta;
    T *d_qkv;
    float *sums;
};

// Two warps: copy each tile of queries and d_out, with lse and delta, once there is room. A thread
// copies one chunk of every eighth row. Registers are few.
DEVICE void copy_tiles(u32 shared, const Tensors &t, u32 positions, u32 key_tiles) {
    const u32 thread = threadIdx.x - COPYING_THREAD, row = thread / 8, chunk = thread % 8;
    const T *queries, *d_out;
    u32 tiles, at_line; // all lines together have fewer than 2^32 numbers
    int left;
    {
        const BlockTile place = keys_of_block(key_tiles);
        const u32 first = place.rank * KEYS;
        queries = t.qkv + qkv_start(place, positions) + (u64)(first + row) * QKV_WIDTH + chunk * 8;
        d_out = t.d_out + out_start(place, positions) + (u64)(first + row) * WIDTH + chunk * 8;
        at_line = (u32)line_start(place, positions) + first + thread;
        left = (int)(positions - first);
        tiles = ceil_divide((u32)left, STEP);
    }
    const u32 to = shared + WALKED + row * PANEL_ROW + (chunk ^ row) * 16;
    const u32 line = shared + LINES + thread * 4;
    u32 stage = 0, phase = 1;
    left -= (int)row;
    for (; tiles > 0; --tiles) {
        wait_barrier(shared + USED + stage * 8, phase);
        const u32 at = to + stage * 2 * STEP_BYTES;
        if (chunk * 8 < HEAD_PAD) {
            UNROLL for (int i = 0; i < STEP / 8; ++i) {
                const u32 size = left > i * 8 && chunk * 8 < HEAD_SIZE ? 16 : 0;
                copy_16(at + i * 1024, queries + i * 8 * QKV_WIDTH, size);
                copy_16(at + STEP_BYTES + i * 1024, d_out + i * 8 * WIDTH, size);
            }
        }
        const u32 size = left + (int)row > (int)thread ? 4 : 0;
        copy_4(line + stage * 2 * STEP * 4, t.lse + at_line, size);
        copy_4(line + stage * 2 * STEP * 4 + STEP * 4, t.delta + at_line, size);
        arrive_after_copies(shared + FULL + stage * 8);
        queries += (u64)STEP * QKV_WIDTH;
        d_out += (u64)STEP * WIDTH;
        at_line += STEP;
        left -= STEP;
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
    wait_for_copies();
}

// What a multiplying warpgroup works with: 64 keys, the queries' gradient from `channel` on.
struct Share {
    u32 shared, group, channel, positions, tiles;
    BlockTile place;
    const Step *step;
    Dropout dropout;
    // The tile's number among those that the block walks over.
    u32 it;
    float scores[STEP / 8][4], slopes[STEP / 8][4];
    float d_keys[HEAD_PAD / 8][4], d_values[HEAD_PAD / 8][4], d_queries[CHANNELS / 8][4];
    float before[CHANNELS / 8][4];
    u32 weights[STEP / 16][4], changes[STEP / 16][4];
};

DEVICE u32 queries_at(const Share &s, u32 it) {
    return s.shared + WALKED + it % STAGES * 2 * STEP_BYTES;
}

// Whether other blocks have added to this tile before.
DEVICE bool has_before(u32 it) { return it >= KEYS / STEP; }

DEVICE float *own_sums(const Share &s, const Tensors &t, u32 it) {
    return t.sums + load_word(s.shared + SUMS_AT) + it * (SHARE * MULTIPLYING) +
           (thread_anew() - 128) * 4;
}

// Loads what other blocks have added to a tile, when it is this block's turn.
DEVICE void load_before(Share &s, const Tensors &t, u32 it) {
    while (load_acquire_shared(s.shared + GRANTED) <= it) {
    }
    const float *from = own_sums(s, t, it);
    UNROLL for (int n = 0; n < CHANNELS / 8; ++n) {
        asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(s.before[n][0]), "=f"(s.before[n][1]), "=f"(s.before[n][2]),
                       "=f"(s.before[n][3])
                     : "l"(from + n * MULTIPLYING * 4)
                     : "memory");
    }
}

// d_queries = d_scores keys, in this warpgroup's channels.
DEVICE void start_query_gradient(Share &s, const Tensors &t, u32 it) {
    wait_barrier(s.shared + CHANGED + it % CHANGE_STAGES * 8, it / CHANGE_STAGES & 1);
    const u64 a = matrix_at(s.shared + CHANGES + it % CHANGE_STAGES * CHANGE_BYTES, KEYS);
    const u64 b = matrix_at(s.shared + s.channel * sizeof(T), KEYS);
    warpgroup_arrive();
    UNROLL for (int k = 0; k < KEYS / 16; ++k) {
        warpgroup_multiply<1, 1>(s.d_queries, a + rows_at(k), b + rows_at(k), k > 0);
    }
    warpgroup_commit();
    if (has_before(it)) load_before(s, t, it);
}

// Adds this block's share of a tile's gradient to what was there before.
DEVICE void give_query_gradient(Share &s, const Tensors &t, u32 it) {
    if (has_before(it)) {
        UNROLL for (int n = 0; n < CHANNELS / 8; ++n) {
            UNROLL for (int i = 0; i < 4; ++i) s.d_queries[n][i] += s.before[n][i];
        }
    }
    if (s.place.rank == 0) {
        const u32 start = it * STEP + warp_row();
        T *to = t.d_qkv + load_word(s.shared + QUERIES_AT) + (u64)start * QKV_WIDTH;
        store_rows<QKV_WIDTH>(to, (int)(s.positions - start), s.d_queries, score_scale(),
                              score_scale(), s.channel);
        return;
    }
    float *to = own_sums(s, t, it);
    UNROLL for (int n = 0; n < CHANNELS / 8; ++n) {
        const float(&sum)[4] = s.d_queries[n];
        store<float, 4>(to + n * MULTIPLYING * 4, {{sum[0], sum[1], sum[2], sum[3]}});
    }
    __syncwarp();
    const u32 thread = threadIdx.x - 128;
    if (thread % 32 == 0) store_release_shared(s.shared + GIVEN + thread / 32 * 4, it + 1);
}

// scores = keys queries^T and d_weights = values d_out^T, two groups of matmuls.
DEVICE void start_scores(Share &s, u32 it) {
    const u64 keys = matrix_at(s.shared + s.group * 64 * PANEL_ROW, KEYS);
    const u64 values = matrix_at(s.shared + VALUES + s.group * 64 * PANEL_ROW, KEYS);
    const u64 q = matrix_at(queries_at(s, it), STEP);
    const u64 d_out = matrix_at(queries_at(s, it) + STEP_BYTES, STEP);
    warpgroup_arrive();
    UNROLL for (int k = 0; k < HEAD_PAD / 16; ++k) {
        warpgroup_multiply<0, 0>(s.scores, keys + channels_at<KEYS>(k), q + channels_at<STEP>(k),
                                 k > 0);
    }
    warpgroup_commit();
    UNROLL for (int k = 0; k < HEAD_PAD / 16; ++k) {
        warpgroup_multiply<0, 0>(s.slopes, values + channels_at<KEYS>(k),
                                 d_out + channels_at<STEP>(k), k > 0);
    }
    warpgroup_commit();
}

// Scores become weights, slopes d_scores. BEFORE: the matmuls for the keys' gradients of the tile
// before end with the scores, and those for its queries' gradient may still run at the end.
template <bool BEFORE> DEVICE void soften(Share &s) {
    const u32 query = (s.place.rank * (KEYS / STEP) + s.it) * STEP;
    const u32 key = s.place.rank * KEYS + s.group * 64;
    const HeadDropout dropout = head_dropout(s.step, s.dropout, s.place);
    Words draws[STEP / 16]; // made while matmuls run
    const u32 thread = thread_anew(), column = query + thread % 4 * 2;
    const u32 row = key + thread % 128 / 32 * 16 + thread % 32 / 4;
    UNROLL for (int n = 0; DROPOUT && n < STEP / 16; ++n) {
        draws[n] = draws_for_keys(dropout, row, column + n * 16);
    }
    warpgroup_wait<BEFORE ? 2 : 1>(s.scores);
    if constexpr (BEFORE) {
        settle(s.d_keys);
        settle(s.d_values);
        arrive_together(s.shared + USED + (s.it - 1) % STAGES * 8);
    }
    if (query < key + 63) hide_later_keys<STEP, true>(s.scores, row, column);
    const u32 line = s.shared + LINES + (s.it % STAGES * 2 * STEP + thread % 4 * 2) * 4;
    UNROLL for (int n = 0; n < STEP / 8; ++n) {
        const Pack<float, 2> log_sum = load_shared(line + n * 32);
        UNROLL for (int i = 0; i < 4; ++i) {
            const float shift = log_sum.at[i % 2] * LOG2_E;
            s.scores[n][i] = fast_exp2(s.scores[n][i] * (score_scale() * LOG2_E) - shift);
        }
    }
    warpgroup_wait<BEFORE ? 1 : 0>(s.slopes);
    UNROLL for (int n = 0; n < STEP / 8; ++n) {
        const Pack<float, 2> delta = load_shared(line + STEP * 4 + n * 32);
        UNROLL for (int j = 0; j < 4; ++j) {
            float slope = s.slopes[n][j] - delta.at[j % 2], weight = s.scores[n][j];
            if (DROPOUT) {
                const bool kept = is_kept<true>(dropout, draws[n / 2], n % 2, j);
                slope = fmaf(kept ? s.slopes[n][j] : 0, s.dropout.scale, -delta.at[j % 2]);
                weight = kept ? weight : 0;
            }
            s.slopes[n][j] = s.scores[n][j] * slope;
            s.scores[n][j] = weight;
        }
    }
}

// Rounds weights and d_scores, and puts d_scores where both warpgroups find them.
DEVICE void publish_changes(Share &s) {
    UNROLL for (int n = 0; n < STEP / 8; ++n) {
        UNROLL for (int half = 0; half < 2; ++half) {
            const int to = n % 2 * 2 + half, from = 2 * half;
            s.weights[n / 2][to] = pair(s.scores[n][from], s.scores[n][from + 1], T());
            s.changes[n / 2][to] = pair(s.slopes[n][from], s.slopes[n][from + 1], T());
        }
    }
    const u32 stage = s.it % CHANGE_STAGES, use = s.it / CHANGE_STAGES;
    if (use > 0) wait_barrier(s.shared + TAKEN + stage * 8, (use - 1) & 1);
    store_panel(s.shared + CHANGES + stage * CHANGE_BYTES, s.group * 64 + warp_row(), s.changes);
    publish_shared();
    arrive_together(s.shared + CHANGED + stage * 8);
}

// d_values and d_keys += weights and d_scores times d_out and queries.
DEVICE void start_key_gradients(Share &s) {
    const u64 q = matrix_at(queries_at(s, s.it), STEP);
    const u64 d_out = matrix_at(queries_at(s, s.it) + STEP_BYTES, STEP);
    warpgroup_arrive();
    UNROLL for (int k = 0; k < STEP / 16; ++k) {
        warpgroup_multiply<1>(s.d_values, s.weights[k], d_out + rows_at(k), 1);
    }
    UNROLL for (int k = 0; k < STEP / 16; ++k) {
        warpgroup_multiply<1>(s.d_keys, s.changes[k], q + rows_at(k), 1);
    }
    warpgroup_commit();
}

// One tile of queries. BEFORE: there was another, whose queries' gradient is still to be summed.
template <bool BEFORE> DEVICE void walk(Share &s, const Tensors &t) {
    wait_barrier(s.shared + FULL + s.it % STAGES * 8, s.it / STAGES & 1);
    publish_shared();
    start_scores(s, s.it);
    if constexpr (BEFORE) start_query_gradient(s, t, s.it - 1);
    soften<BEFORE>(s);
    publish_changes(s);
    if constexpr (BEFORE) {
        warpgroup_wait<0>(s.d_queries);
        arrive_together(s.shared + TAKEN + (s.it - 1) % CHANGE_STAGES * 8);
    }
    start_key_gradients(s);
    if constexpr (BEFORE) give_query_gradient(s, t, s.it - 1);
    ++s.it;
}

DEVICE void multiply_tiles(Share &s, const Tensors &t) {
    const u32 count = s.tiles - s.place.rank * (KEYS / STEP);
    walk<false>(s, t);
    while (s.it < count) walk<true>(s, t);
    warpgroup_wait<0>(s.d_keys);
    settle(s.d_values);
    settle(s.d_queries);
    start_query_gradient(s, t, count - 1);
    const BlockTile place = keys_of_block(ceil_divide(s.positions, KEYS));
    const u32 start = place.rank * KEYS + (warpgroup() - 1) * 64 + warp_row();
    T *to = t.d_qkv + qkv_start(place, s.positions) + WIDTH + (u64)start * QKV_WIDTH;
    const int limit = (int)(s.positions - start);
    store_rows<QKV_WIDTH>(to, limit, s.d_keys, score_scale(), score_scale());
    const float factor = DROPOUT ? s.dropout.scale : 1;
    store_rows<QKV_WIDTH>(to + WIDTH, limit, s.d_values, factor, factor);
    warpgroup_wait<0>(s.d_queries);
    give_query_gradient(s, t, count - 1);
}

// One thread, before all others begin.
DEVICE void prepare_block(u32 shared, u32 positions, u32 key_tiles, u32 tiles) {
    const BlockTile place = keys_of_block(key_tiles);
    UNROLL for (int i = 0; i < STAGES; ++i) {
        init_barrier(shared + FULL + i * 8, COPYING);
        init_barrier(shared + USED + i * 8, WARPS);
    }
    UNROLL for (int i = 0; i < CHANGE_STAGES; ++i) {
        init_barrier(shared + CHANGED + i * 8, WARPS);
        init_barrier(shared + TAKEN + i * 8, WARPS);
    }
    const u64 head = (u64)place.row * HEADS + place.head;
    store_word(shared + QUERIES_AT, qkv_start(place, positions));
    store_word(shared + SUMS_AT,
               (head * tiles + place.rank * (KEYS / STEP)) * (SHARE * MULTIPLYING));
    UNROLL for (u32 i = 0; i <= WARPS; ++i) store_release_shared(shared + GIVEN + i * 4, 0);
}

KERNEL __launch_bounds__(BACKWARD_THREADS, 1) SIGNATURE(attention_backward) {
    if (blockIdx.x >= blocks) return;
    const u32 key_tiles = ceil_divide(positions, KEYS), tiles = ceil_divide(positions, STEP);
    if (threadIdx.x == 0) prepare_block(aligned_shared_start(), positions, key_tiles, tiles);
    publish_shared();
    __syncthreads();
    const Tensors tensors = {qkv_bt3c, d_out_btc, lse_bht, delta_bht, d_qkv_bt3c, sums};
    if (warpgroup() == 0) {
        give_registers_up<24>();
        const u32 shared = aligned_shared_start();
        if (threadIdx.x >= COPYING_THREAD) {
            copy_tiles(shared, tensors, positions, key_tiles);
            return;
        }
        const BlockTile place = keys_of_block(key_tiles);
        const u64 head = (u64)place.row * HEADS + place.head;
        const QuerySums query_sums = {sums + head * tiles * (SHARE * MULTIPLYING),
                                      turns + head * tiles, place.rank,
                                      place.rank * (KEYS / STEP), tiles};
        if (threadIdx.x == GRANTING_THREAD) grant_turns(shared, query_sums);
        if (threadIdx.x >= PASSING_THREAD && place.rank > 0) pass_turns_on(shared, query_sums);
    } else {
        take_registers<240>();
        const u32 shared = aligned_shared_start(), group = warpgroup() - 1;
        const BlockTile place = keys_of_block(key_tiles);
        UNROLL for (int i = 1; i < 3; ++i) {
            copy_panels<KEYS, MULTIPLYING, QKV_WIDTH>(
                shared + (i - 1) * KEY_BYTES, qkv_bt3c + qkv_start(place, positions) + i * WIDTH,
                place.rank * KEYS, positions, threadIdx.x - 128);
        }
        wait_for_copies();
        publish_shared();
        multiplying_barrier();
        Share share = {shared, group, group * CHANNELS, positions, tiles, place, step,
                       {threshold, tag, scale}};
        multiply_tiles(share, tensors);
    }
}
