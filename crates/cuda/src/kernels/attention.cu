// Causal attention on tensor cores, in a 16-bit format (after `tensor_16bit.cuh`) or in f32 rounded to
// TF32 (after `tensor_tf32.cuh`). The forward pass keeps a running softmax. The backward pass is two
// kernels, one whose blocks own queries and one whose blocks own keys; each recomputes the scores,
// so that no sum needs atomics and nothing of size positions x positions is ever in memory.
//
// The host defines T, HEADS, HEAD_SIZE, HEAD_PAD, LINE, DROPOUT, and for each kernel the rows a
// block owns, the columns of the tile it walks over, its warps, and the bytes of its dynamic shared
// memory, which are in lines of LINE numbers:
//     forward  FORWARD_ROWS + 4 FORWARD_COLUMNS
//     query    2 QUERY_ROWS + 4 QUERY_COLUMNS
//     key      2 KEY_ROWS + 4 KEY_COLUMNS, and 16 bytes for each of KEY_COLUMNS

// Tiles of 16 rows that a warp owns: each fragment of the walked tile serves all of them.
constexpr int FORWARD_TILES = FORWARD_ROWS / (16 * FORWARD_WARPS);
constexpr int QUERY_TILES = QUERY_ROWS / (16 * QUERY_WARPS);
constexpr int KEY_TILES = KEY_ROWS / (16 * KEY_WARPS);

// What follows may be defined by the host too, to try variants. HELD: the owned rows stay in
// registers; else they are read again for each tile. SLICE: the walked rows that are in registers
// at a time. BLOCKS: how many blocks a multiprocessor must be able to hold, which bounds registers.
// Draws need registers too.
constexpr int ROOM = DROPOUT ? 4 : 8;
#ifndef FORWARD_HELD
#define FORWARD_HELD (FORWARD_TILES * CHANNEL_TILES <= ROOM)
#endif
#ifndef QUERY_HELD
#define QUERY_HELD (sizeof(T) == 2 && QUERY_TILES * CHANNEL_TILES <= ROOM)
#endif
#ifndef KEY_HELD
#define KEY_HELD (sizeof(T) == 2 && KEY_TILES * CHANNEL_TILES <= 4)
#endif
#ifndef QUERY_SLICE
#define QUERY_SLICE (QUERY_COLUMNS % 32 == 0 && QUERY_TILES * CHANNEL_TILES <= 8 ? 32 : 16)
#endif
#ifndef KEY_SLICE
#define KEY_SLICE (KEY_COLUMNS % 32 == 0 && KEY_TILES * CHANNEL_TILES <= ROOM ? 32 : 16)
#endif
#ifndef FORWARD_BLOCKS
#define FORWARD_BLOCKS 1
#endif
#ifndef QUERY_BLOCKS
#define QUERY_BLOCKS 1
#endif
#ifndef KEY_BLOCKS
#define KEY_BLOCKS 1
#endif

static_assert(HEAD_SIZE >= 1 && HEAD_SIZE <= 128, "a larger head does not fit the registers");
static_assert(FORWARD_ROWS == 16 * FORWARD_WARPS * FORWARD_TILES && FORWARD_TILES > 0, "rows");
static_assert(QUERY_ROWS == 16 * QUERY_WARPS * QUERY_TILES && QUERY_TILES > 0, "rows");
static_assert(KEY_ROWS == 16 * KEY_WARPS * KEY_TILES && KEY_TILES > 0, "rows");
static_assert(FORWARD_COLUMNS % 16 == 0 && FORWARD_COLUMNS > 0, "columns");
static_assert(QUERY_COLUMNS % QUERY_SLICE == 0 && QUERY_SLICE % 16 == 0, "columns");
static_assert(KEY_COLUMNS % KEY_SLICE == 0 && KEY_SLICE % 16 == 0, "columns");
static_assert((FORWARD_ROWS + 4 * FORWARD_COLUMNS) * LINE_BYTES == FORWARD_BYTES, "shared memory");
static_assert((2 * QUERY_ROWS + 4 * QUERY_COLUMNS) * LINE_BYTES == QUERY_BYTES, "shared memory");
static_assert((2 * KEY_ROWS + 4 * KEY_COLUMNS) * LINE_BYTES + 16 * KEY_COLUMNS == KEY_BYTES,
              "shared memory");

// Dropout.

// What dropout keeps of a warp's tiles: bit 4 n + i for number i of the n-th eight columns.
template <int COUNT, bool KEYS_DOWN, int TILES>
DEVICE void draw_tiles(u32 (&kept)[TILES], const HeadDropout &head, u32 row, u32 column) {
    static_assert(!DROPOUT || COUNT <= 64, "the bits of a tile fill a word");
    UNROLL for (int tile = 0; tile < TILES; ++tile) kept[tile] = 0;
    // Not unrolled: many draws at once would fill the registers.
    _Pragma("unroll 1") for (u32 n = 0; DROPOUT && n < COUNT / 16; ++n) {
        UNROLL for (int tile = 0; tile < TILES; ++tile) {
            const u32 down = row + tile * 16, across = column + n * 16;
            const Words draws = KEYS_DOWN ? draws_for_keys(head, down, across)
                                          : draws_for_queries(head, down, across);
            u32 bits = 0;
            UNROLL for (int i = 0; i < 8; ++i) {
                bits |= (is_kept<KEYS_DOWN>(head, draws, i / 4, i % 4) ? 1 : 0) << i;
            }
            kept[tile] |= bits << 8 * n;
        }
    }
}

DEVICE float dropped(float x, const HeadDropout &head, u32 kept, int n, int i) {
    if (!DROPOUT) return x;
    return kept >> (4 * n + i) & 1 ? x * head.dropout.scale : 0;
}

// Forward.

// Adds the keys of one tile to the sums of a warp's queries; `query` and `key` are the first of the
// warp and of the tile.
DEVICE void forward_tile(float (&sums)[FORWARD_TILES][CHANNEL_TILES * 2][4],
                         Softmax (&softmax)[FORWARD_TILES],
                         const Rows<FORWARD_TILES, FORWARD_HELD> &queries, u32 keys, u32 values,
                         u32 query, u32 key, const HeadDropout &dropout, float scale) {
    constexpr int COUNT = FORWARD_COLUMNS;
    const u32 row = query + lane_row(), column = key + lane_column();
    u32 kept[FORWARD_TILES];
    draw_tiles<COUNT, false>(kept, dropout, row, column);
    float scores[FORWARD_TILES][COUNT / 8][4] = {};
    multiply_by_transposed<COUNT>(scores, queries, keys);
    if (key + COUNT - 1 > query) {
        UNROLL for (int tile = 0; tile < FORWARD_TILES; ++tile) {
            hide_later_keys<COUNT, false>(scores[tile], row + tile * 16, column);
        }
    }
    Weights<COUNT> weights[FORWARD_TILES];
    UNROLL for (int tile = 0; tile < FORWARD_TILES; ++tile) {
        softmax_step<COUNT>(scores[tile], sums[tile], softmax[tile], scale);
        UNROLL for (int n = 0; DROPOUT && n < COUNT / 8; ++n) {
            UNROLL for (int i = 0; i < 4; ++i) {
                scores[tile][n][i] = dropped(scores[tile][n][i], dropout, kept[tile], n, i);
            }
        }
        weights_from<COUNT>(weights[tile], scores[tile]);
    }
    multiply<COUNT>(sums, weights, values);
}

KERNEL __launch_bounds__(32 * FORWARD_WARPS, FORWARD_BLOCKS) SIGNATURE(attention_forward) {
    if (blockIdx.x >= blocks) return;
    constexpr u32 TILE_BYTES = FORWARD_COLUMNS * LINE_BYTES;
    const u32 tiles = ceil_divide(positions, FORWARD_ROWS);
    const BlockTile place = tile_of_block(tiles);
    const u32 first = (tiles - 1 - place.rank) * FORWARD_ROWS;
    const u32 query = first + threadIdx.x / 32 * (16 * FORWARD_TILES);
    const HeadDropout dropout = head_dropout(step, {threshold, tag, scale}, place);
    qkv_bt3c += qkv_start(place, positions);
    const u32 own = shared_start(), keys = own + FORWARD_ROWS * LINE_BYTES;
    auto copy_tile = [&](u32 tile, u32 to) {
        copy_rows<FORWARD_COLUMNS, 32 * FORWARD_WARPS, QKV_WIDTH>(
            to, qkv_bt3c + WIDTH, tile * FORWARD_COLUMNS, positions);
        copy_rows<FORWARD_COLUMNS, 32 * FORWARD_WARPS, QKV_WIDTH>(
            to + TILE_BYTES, qkv_bt3c + 2 * WIDTH, tile * FORWARD_COLUMNS, positions);
    };
    const u32 end = first + FORWARD_ROWS < positions ? first + FORWARD_ROWS : positions;
    u32 tile = ceil_divide(end, FORWARD_COLUMNS) - 1;
    copy_rows<FORWARD_ROWS, 32 * FORWARD_WARPS, QKV_WIDTH>(own, qkv_bt3c, first, positions);
    copy_tile(tile, keys);
    wait_for_copies();
    round_rows<FORWARD_ROWS, 32 * FORWARD_WARPS>(own);
    __syncthreads();
    Rows<FORWARD_TILES, FORWARD_HELD> queries;
    hold(queries, own + (query - first) * LINE_BYTES);

    float sums[FORWARD_TILES][CHANNEL_TILES * 2][4] = {};
    Softmax softmax[FORWARD_TILES];
    UNROLL for (int i = 0; i < FORWARD_TILES; ++i) softmax[i] = {{LOWEST, LOWEST}, {0, 0}};
    // The next tile is copied while this one is used. One barrier ensures both that this one has
    // arrived and that no warp still reads what the copy overwrites.
    for (u32 stage = 0;; stage ^= 1, --tile) {
        if (tile > 0) copy_tile(tile - 1, keys + (stage ^ 1) * 2 * TILE_BYTES);
        const u32 key = tile * FORWARD_COLUMNS;
        if (key < query + 16 * FORWARD_TILES) {
            const u32 from = keys + stage * 2 * TILE_BYTES;
            forward_tile(sums, softmax, queries, from, from + TILE_BYTES, query, key, dropout,
                         score_scale() * LOG2_E);
        }
        if (tile == 0) break;
        wait_for_copies();
        __syncthreads();
    }

    out_btc += out_start(place, positions);
    lse_bht += line_start(place, positions);
    UNROLL for (int i = 0; i < FORWARD_TILES; ++i) {
        const u32 row = query + i * 16 + lane_row();
        float sum[2] = {quad_sum(softmax[i].sum[0]), quad_sum(softmax[i].sum[1])};
        UNROLL for (int half = 0; half < 2; ++half) {
            if (threadIdx.x % 4 != 0 || row + 8 * half >= positions) continue;
            const float log_sum = fast_log2(sum[half]) * LN_2;
            lse_bht[row + 8 * half] = softmax[i].most[half] * score_scale() + log_sum;
        }
        store_rows<WIDTH>(out_btc + (u64)(query + i * 16) * WIDTH,
                          (int)(positions - query) - i * 16, sums[i], 1.0f / sum[0], 1.0f / sum[1]);
    }
}

// Backward, by queries.

// What a lane keeps for its two rows in a tile: log2 of the sum of exponentials, and delta.
struct QueryRows {
    float log_sum[2];
    float delta[2];
};

// The dot product of two rows, by the four lanes of a row.
DEVICE float quad_dot(const T *a, const T *b) {
    constexpr u32 STEP = ALIGNED ? CHUNK : 1;
    float sum = 0;
    for (u32 channel = threadIdx.x % 4 * STEP; channel < HEAD_SIZE; channel += 4 * STEP) {
        const Pack<T, STEP> x = load<T, STEP>(a + channel), y = load<T, STEP>(b + channel);
        UNROLL for (int i = 0; i < STEP; ++i) sum += widen(x.at[i]) * widen(y.at[i]);
    }
    return quad_sum(sum);
}

// Reads what belongs to the lane's rows and writes delta. Queries that do not exist get zeros.
DEVICE void query_rows(QueryRows (&rows)[QUERY_TILES], const T *out, const T *d_out,
                       const float *lse, float *delta, u32 query, u32 positions) {
    UNROLL for (int i = 0; i < QUERY_TILES * 2; ++i) {
        const u32 row = query + i * 8 + lane_row();
        const bool inside = row < positions;
        // All four lanes of a row must take part in its sum.
        const u64 start = (u64)(inside ? row : 0) * WIDTH;
        const float dot = quad_dot(out + start, d_out + start);
        rows[i / 2].log_sum[i % 2] = inside ? lse[row] * LOG2_E : 0;
        rows[i / 2].delta[i % 2] = inside ? dot : 0;
        if (inside && threadIdx.x % 4 == 0) delta[row] = dot;
    }
}

// Adds a slice of keys to the derivatives of a warp's queries.
DEVICE void query_slice(float (&d_queries)[QUERY_TILES][CHANNEL_TILES * 2][4],
                        const Rows<QUERY_TILES, QUERY_HELD> &queries,
                        const Rows<QUERY_TILES, QUERY_HELD> &d_out,
                        const QueryRows (&rows)[QUERY_TILES], u32 keys, u32 values, u32 query,
                        u32 key, const HeadDropout &dropout, float scale) {
    constexpr int COUNT = QUERY_SLICE;
    const u32 row = query + lane_row(), column = key + lane_column();
    u32 kept[QUERY_TILES];
    draw_tiles<COUNT, false>(kept, dropout, row, column);
    float scores[QUERY_TILES][COUNT / 8][4] = {}, slopes[QUERY_TILES][COUNT / 8][4] = {};
    multiply_by_transposed<COUNT>(scores, queries, keys);
    if (key + COUNT - 1 > query) {
        UNROLL for (int tile = 0; tile < QUERY_TILES; ++tile) {
            hide_later_keys<COUNT, false>(scores[tile], row + tile * 16, column);
        }
    }
    multiply_by_transposed<COUNT>(slopes, d_out, values);
    Weights<COUNT> weights[QUERY_TILES];
    UNROLL for (int tile = 0; tile < QUERY_TILES; ++tile) {
        UNROLL for (int n = 0; n < COUNT / 8; ++n) {
            UNROLL for (int i = 0; i < 4; ++i) {
                const float p = fast_exp2(scores[tile][n][i] * scale - rows[tile].log_sum[i / 2]);
                const float slope = dropped(slopes[tile][n][i], dropout, kept[tile], n, i);
                slopes[tile][n][i] = p * (slope - rows[tile].delta[i / 2]);
            }
        }
        weights_from<COUNT>(weights[tile], slopes[tile]);
    }
    multiply<COUNT>(d_queries, weights, keys);
}

KERNEL __launch_bounds__(32 * QUERY_WARPS, QUERY_BLOCKS) SIGNATURE(attention_backward_query) {
    if (blockIdx.x >= blocks) return;
    constexpr u32 TILE_BYTES = QUERY_COLUMNS * LINE_BYTES;
    const u32 tiles = ceil_divide(positions, QUERY_ROWS);
    const BlockTile place = tile_of_block(tiles);
    const u32 first = (tiles - 1 - place.rank) * QUERY_ROWS;
    const u32 query = first + threadIdx.x / 32 * (16 * QUERY_TILES);
    const HeadDropout dropout = head_dropout(step, {threshold, tag, scale}, place);
    qkv_bt3c += qkv_start(place, positions);
    d_out_btc += out_start(place, positions);
    const u32 own = shared_start(), keys = own + 2 * QUERY_ROWS * LINE_BYTES;
    auto copy_tile = [&](u32 tile, u32 to) {
        copy_rows<QUERY_COLUMNS, 32 * QUERY_WARPS, QKV_WIDTH>(to, qkv_bt3c + WIDTH,
                                                              tile * QUERY_COLUMNS, positions);
        copy_rows<QUERY_COLUMNS, 32 * QUERY_WARPS, QKV_WIDTH>(to + TILE_BYTES, qkv_bt3c + 2 * WIDTH,
                                                              tile * QUERY_COLUMNS, positions);
    };
    const u32 end = first + QUERY_ROWS < positions ? first + QUERY_ROWS : positions;
    u32 tile = ceil_divide(end, QUERY_COLUMNS) - 1;
    copy_rows<QUERY_ROWS, 32 * QUERY_WARPS, QKV_WIDTH>(own, qkv_bt3c, first, positions);
    copy_rows<QUERY_ROWS, 32 * QUERY_WARPS, WIDTH>(own + QUERY_ROWS * LINE_BYTES, d_out_btc, first,
                                                   positions);
    copy_tile(tile, keys);
    QueryRows rows[QUERY_TILES];
    const u64 line = line_start(place, positions);
    query_rows(rows, out_btc + out_start(place, positions), d_out_btc, lse_bht + line,
               delta_bht + line, query, positions);
    wait_for_copies();
    round_rows<QUERY_ROWS, 32 * QUERY_WARPS>(own);
    round_rows<QUERY_ROWS, 32 * QUERY_WARPS>(own + QUERY_ROWS * LINE_BYTES);
    __syncthreads();
    Rows<QUERY_TILES, QUERY_HELD> queries, d_outs;
    hold(queries, own + (query - first) * LINE_BYTES);
    hold(d_outs, own + (QUERY_ROWS + query - first) * LINE_BYTES);

    float d_queries[QUERY_TILES][CHANNEL_TILES * 2][4] = {};
    for (u32 stage = 0;; stage ^= 1, --tile) {
        if (tile > 0) copy_tile(tile - 1, keys + (stage ^ 1) * 2 * TILE_BYTES);
        u32 from = keys + stage * 2 * TILE_BYTES;
        for (u32 key = tile * QUERY_COLUMNS; key < (tile + 1) * QUERY_COLUMNS;
             key += QUERY_SLICE, from += QUERY_SLICE * LINE_BYTES) {
            if (key >= query + 16 * QUERY_TILES) break;
            query_slice(d_queries, queries, d_outs, rows, from, from + TILE_BYTES, query, key,
                        dropout, score_scale() * LOG2_E);
        }
        if (tile == 0) break;
        wait_for_copies();
        __syncthreads();
    }

    d_qkv_bt3c += qkv_start(place, positions);
    UNROLL for (int i = 0; i < QUERY_TILES; ++i) {
        store_rows<QKV_WIDTH>(d_qkv_bt3c + (u64)(query + i * 16) * QKV_WIDTH,
                              (int)(positions - query) - i * 16, d_queries[i], score_scale(),
                              score_scale());
    }
}

// Backward, by keys. Scores have keys as rows, so that probabilities and the gradients of scores
// can be used as left operands without rearranging.

// Where a slice of queries is in shared memory; log sums and deltas from the lane's column on.
struct QuerySlice {
    u32 queries;
    u32 d_out;
    u32 log_sums;
    u32 deltas;
};

// Adds a slice of queries to the derivatives of a warp's keys and values.
DEVICE void key_slice(float (&d_keys)[KEY_TILES][CHANNEL_TILES * 2][4],
                      float (&d_values)[KEY_TILES][CHANNEL_TILES * 2][4],
                      const Rows<KEY_TILES, KEY_HELD> &keys,
                      const Rows<KEY_TILES, KEY_HELD> &values, const QuerySlice &from, u32 key,
                      u32 query, const HeadDropout &dropout, float scale) {
    constexpr int COUNT = KEY_SLICE;
    const u32 row = key + lane_row(), column = query + lane_column();
    u32 kept[KEY_TILES];
    draw_tiles<COUNT, true>(kept, dropout, row, column);
    float scores[KEY_TILES][COUNT / 8][4] = {}, slopes[KEY_TILES][COUNT / 8][4] = {};
    multiply_by_transposed<COUNT>(scores, keys, from.queries);
    if (query < key + 16 * KEY_TILES - 1) {
        UNROLL for (int tile = 0; tile < KEY_TILES; ++tile) {
            hide_later_keys<COUNT, true>(scores[tile], row + tile * 16, column);
        }
    }
    multiply_by_transposed<COUNT>(slopes, values, from.d_out);
    UNROLL for (int n = 0; n < COUNT / 8; ++n) {
        const Pack<float, 2> log_sum = load_shared(from.log_sums + n * 32);
        const Pack<float, 2> delta = load_shared(from.deltas + n * 32);
        UNROLL for (int tile = 0; tile < KEY_TILES; ++tile) {
            UNROLL for (int i = 0; i < 4; ++i) {
                const float shift = log_sum.at[i % 2] * LOG2_E;
                const float p = fast_exp2(scores[tile][n][i] * scale - shift);
                const float slope = dropped(slopes[tile][n][i], dropout, kept[tile], n, i);
                scores[tile][n][i] = dropped(p, dropout, kept[tile], n, i);
                slopes[tile][n][i] = p * (slope - delta.at[i % 2]);
            }
        }
    }
    Weights<COUNT> weights[KEY_TILES], changes[KEY_TILES];
    UNROLL for (int tile = 0; tile < KEY_TILES; ++tile) {
        weights_from<COUNT>(weights[tile], scores[tile]);
        weights_from<COUNT>(changes[tile], slopes[tile]);
    }
    multiply<COUNT>(d_values, weights, from.d_out);
    multiply<COUNT>(d_keys, changes, from.queries);
}

KERNEL __launch_bounds__(32 * KEY_WARPS, KEY_BLOCKS) SIGNATURE(attention_backward_key) {
    if (blockIdx.x >= blocks) return;
    constexpr int THREADS = 32 * KEY_WARPS;
    constexpr u32 TILE_BYTES = KEY_COLUMNS * LINE_BYTES;
    const BlockTile place = tile_of_block(ceil_divide(positions, KEY_ROWS));
    const u32 first = place.rank * KEY_ROWS;
    const u32 key = first + threadIdx.x / 32 * (16 * KEY_TILES);
    const HeadDropout dropout = head_dropout(step, {threshold, tag, scale}, place);
    qkv_bt3c += qkv_start(place, positions);
    d_out_btc += out_start(place, positions);
    lse_bht += line_start(place, positions);
    delta_bht += line_start(place, positions);
    const u32 own = shared_start(), walked = own + 2 * KEY_ROWS * LINE_BYTES;
    const u32 lines = walked + 4 * TILE_BYTES;
    auto copy_tile = [&](u32 start, u32 stage) {
        const u32 to = walked + stage * 2 * TILE_BYTES, line = lines + stage * 8 * KEY_COLUMNS;
        copy_rows<KEY_COLUMNS, THREADS, QKV_WIDTH>(to, qkv_bt3c, start, positions);
        copy_rows<KEY_COLUMNS, THREADS, WIDTH>(to + TILE_BYTES, d_out_btc, start, positions);
        for (u32 i = threadIdx.x; i < KEY_COLUMNS; i += THREADS) {
            const u32 size = start + i < positions ? 4 : 0;
            copy_4(line + i * 4, lse_bht + start + i, size);
            copy_4(line + (KEY_COLUMNS + i) * 4, delta_bht + start + i, size);
        }
    };
    u32 start = first / KEY_COLUMNS * KEY_COLUMNS;
    copy_rows<KEY_ROWS, THREADS, QKV_WIDTH>(own, qkv_bt3c + WIDTH, first, positions);
    copy_rows<KEY_ROWS, THREADS, QKV_WIDTH>(own + KEY_ROWS * LINE_BYTES, qkv_bt3c + 2 * WIDTH,
                                            first, positions);
    copy_tile(start, 0);
    wait_for_copies();
    round_rows<KEY_ROWS, THREADS>(own);
    round_rows<KEY_ROWS, THREADS>(own + KEY_ROWS * LINE_BYTES);
    __syncthreads();
    Rows<KEY_TILES, KEY_HELD> keys, values;
    hold(keys, own + (key - first) * LINE_BYTES);
    hold(values, own + (KEY_ROWS + key - first) * LINE_BYTES);

    float d_keys[KEY_TILES][CHANNEL_TILES * 2][4] = {};
    float d_values[KEY_TILES][CHANNEL_TILES * 2][4] = {};
    for (u32 stage = 0;; stage ^= 1, start += KEY_COLUMNS) {
        const bool last = positions - start <= KEY_COLUMNS;
        if (!last) copy_tile(start + KEY_COLUMNS, stage ^ 1);
        const u32 queries = walked + stage * 2 * TILE_BYTES;
        const u32 line = lines + stage * 8 * KEY_COLUMNS + lane_column() * 4;
        for (u32 i = 0; i < KEY_COLUMNS; i += KEY_SLICE) {
            if (start + i + KEY_SLICE <= key) continue;
            const u32 from = queries + i * LINE_BYTES;
            key_slice(d_keys, d_values, keys, values,
                      {from, from + TILE_BYTES, line + i * 4, line + (KEY_COLUMNS + i) * 4}, key,
                      start + i, dropout, score_scale() * LOG2_E);
        }
        if (last) break;
        wait_for_copies();
        __syncthreads();
    }

    d_qkv_bt3c += qkv_start(place, positions) + WIDTH;
    UNROLL for (int i = 0; i < KEY_TILES; ++i) {
        T *to = d_qkv_bt3c + (u64)(key + i * 16) * QKV_WIDTH;
        const int limit = (int)(positions - key) - i * 16;
        store_rows<QKV_WIDTH>(to, limit, d_keys[i], score_scale(), score_scale());
        store_rows<QKV_WIDTH>(to + WIDTH, limit, d_values[i], 1, 1);
    }
}
