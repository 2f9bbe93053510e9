// Causal attention in f32 with plain multiply-adds: the same entry points and the same mathematics
// as `attention.cu`, for exactness rather than speed.
//
// The host defines T, HEADS, HEAD_SIZE, HEAD_PAD, LINE (a row in shared memory), DROPOUT, and for
// each kernel the rows a block owns, the columns of the tile it walks over, its warps, and the
// bytes of its dynamic shared memory, which are, in floats:
//     forward     (ROWS + 2 COLUMNS) LINE + ROWS (COLUMNS + 4)
//     query, key  (2 ROWS + 2 COLUMNS) LINE + ROWS (COLUMNS + 4)

// Sixteen threads share a row: each has every 16th column of a tile and every 16th channel.
constexpr int LANES = 16;
constexpr int CHANNELS = HEAD_PAD / LANES;

// A block's tile: what a thread has of it, and where shared memory for weights begins.
template <int ROWS_, int COLUMNS_, int WARPS, int OWNED, int BYTES> struct Tile {
    static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, THREADS = 32 * WARPS;
    static constexpr int DOWN = ROWS * LANES / THREADS, ACROSS = COLUMNS / LANES;
    static constexpr int WEIGHT_LINE = COLUMNS + 4;
    // OWNED arrays of rows, two of columns, then the weights.
    static constexpr int WEIGHTS = (OWNED * ROWS + 2 * COLUMNS) * LINE;
    static_assert(DOWN * THREADS == ROWS * LANES && DOWN > 0, "threads divide the rows");
    static_assert(ACROSS * LANES == COLUMNS && ACROSS > 0, "lanes divide the columns");
    static_assert((WEIGHTS + ROWS * WEIGHT_LINE) * 4 == BYTES, "shared memory");
    static_assert(DOWN * ACROSS <= 32, "the bits of a thread's numbers fill a word");
};

typedef Tile<FORWARD_ROWS, FORWARD_COLUMNS, FORWARD_WARPS, 1, FORWARD_BYTES> ForwardTile;
typedef Tile<QUERY_ROWS, QUERY_COLUMNS, QUERY_WARPS, 2, QUERY_BYTES> QueryTile;
typedef Tile<KEY_ROWS, KEY_COLUMNS, KEY_WARPS, 2, KEY_BYTES> KeyTile;

static_assert(sizeof(T) == 4, "this file is for f32");
static_assert(HEAD_SIZE >= 1 && HEAD_SIZE <= 256, "a larger head does not fit shared memory");

extern __shared__ Pack<float, 4> shared_memory[];

DEVICE u32 lane() { return threadIdx.x % LANES; }

// The first row of this thread; its rows follow one another.
template <class Tile> DEVICE u32 thread_row() { return threadIdx.x / LANES * Tile::DOWN; }

DEVICE float row_sum(float x) {
    UNROLL for (int i = LANES / 2; i > 0; i /= 2) x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}

DEVICE float row_max(float x) {
    UNROLL for (int i = LANES / 2; i > 0; i /= 2) {
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
    }
    return x;
}

// What dropout keeps of a thread's numbers: bit i ACROSS + j for row i, column j.
template <class Tile, bool KEYS_DOWN>
DEVICE u32 draw_tile(const HeadDropout &head, u32 row, u32 column) {
    u32 kept = 0;
    // Not unrolled: many draws at once would fill the registers.
    _Pragma("unroll 1") for (u32 i = 0; DROPOUT && i < Tile::DOWN * Tile::ACROSS; ++i) {
        const u32 down = row + i / Tile::ACROSS;
        const u32 across = column + i % Tile::ACROSS * LANES + lane();
        const bool is_kept = KEYS_DOWN ? is_element_kept(head, across, down)
                                       : is_element_kept(head, down, across);
        kept |= (is_kept ? 1 : 0) << i;
    }
    return kept;
}

DEVICE float dropped(float x, const HeadDropout &head, u32 kept, int bit) {
    if (!DROPOUT) return x;
    return kept >> bit & 1 ? x * head.dropout.scale : 0;
}

// Copies rows `first ..` of one head to shared memory. Rows from `limit` on, and channels past the
// head's size, become zero.
template <int COUNT, int THREADS, u32 STRIDE>
DEVICE void copy_rows(float *to, const float *from, u32 first, u32 limit) {
    for (u32 i = threadIdx.x; i < COUNT * HEAD_PAD; i += THREADS) {
        const u32 row = i / HEAD_PAD, channel = i % HEAD_PAD;
        const bool inside = first + row < limit && channel < HEAD_SIZE;
        to[row * LINE + channel] = inside ? from[(u64)(first + row) * STRIDE + channel] : 0;
    }
}

// dots = rows columns^T: the thread's rows of `rows`, its columns of `columns`.
template <class Tile>
DEVICE void multiply_by_transposed(float (&dots)[Tile::DOWN][Tile::ACROSS], const float *rows,
                                   const float *columns) {
    UNROLL for (int i = 0; i < Tile::DOWN; ++i) {
        UNROLL for (int j = 0; j < Tile::ACROSS; ++j) dots[i][j] = 0;
    }
    rows += thread_row<Tile>() * LINE;
    columns += lane() * LINE;
    // Not unrolled, so that the head's size changes only the length of the loop, not of the code.
    _Pragma("unroll 1") for (int k = 0; k < HEAD_PAD; k += 4) {
        Pack<float, 4> a[Tile::DOWN], b[Tile::ACROSS];
        UNROLL for (int i = 0; i < Tile::DOWN; ++i) a[i] = load<float, 4>(rows + i * LINE + k);
        UNROLL for (int j = 0; j < Tile::ACROSS; ++j) {
            b[j] = load<float, 4>(columns + j * LANES * LINE + k);
        }
        UNROLL for (int i = 0; i < Tile::DOWN; ++i) {
            UNROLL for (int j = 0; j < Tile::ACROSS; ++j) {
                UNROLL for (int c = 0; c < 4; ++c) {
                    dots[i][j] = fmaf(a[i].at[c], b[j].at[c], dots[i][j]);
                }
            }
        }
    }
}

// sums += weights columns. The weights of a row are written and read by the same sixteen threads,
// all of one warp, so the block need not synchronise.
template <class Tile>
DEVICE void multiply(float (&sums)[Tile::DOWN][CHANNELS],
                     const float (&weights)[Tile::DOWN][Tile::ACROSS], const float *columns) {
    float *shared = (float *)shared_memory + Tile::WEIGHTS + thread_row<Tile>() * Tile::WEIGHT_LINE;
    __syncwarp();
    UNROLL for (int i = 0; i < Tile::DOWN; ++i) {
        UNROLL for (int j = 0; j < Tile::ACROSS; ++j) {
            shared[i * Tile::WEIGHT_LINE + j * LANES + lane()] = weights[i][j];
        }
    }
    __syncwarp();
    _Pragma("unroll 1") for (int k = 0; k < Tile::COLUMNS; k += 4) {
        Pack<float, 4> a[Tile::DOWN];
        UNROLL for (int i = 0; i < Tile::DOWN; ++i) {
            a[i] = load<float, 4>(shared + i * Tile::WEIGHT_LINE + k);
        }
        UNROLL for (int step = 0; step < 4; ++step) {
            UNROLL for (int c = 0; c < CHANNELS; ++c) {
                const float b = columns[(k + step) * LINE + c * LANES + lane()];
                UNROLL for (int i = 0; i < Tile::DOWN; ++i) {
                    sums[i][c] = fmaf(a[i].at[step], b, sums[i][c]);
                }
            }
        }
    }
}

// Writes the thread's rows, of which the first `limit` exist, each times its factor.
template <int DOWN, u32 STRIDE>
DEVICE void store_rows(float *to, int limit, const float (&rows)[DOWN][CHANNELS],
                       const float (&factors)[DOWN]) {
    UNROLL for (int i = 0; i < DOWN; ++i) {
        UNROLL for (int c = 0; c < CHANNELS; ++c) {
            const u32 channel = c * LANES + lane();
            if (i >= limit || channel >= HEAD_SIZE) continue;
            to[(u64)i * STRIDE + channel] = rows[i][c] * factors[i];
        }
    }
}

// The kernels ask for at least one block per multiprocessor. Without that, ptxas aims at more and
// spills.

// Forward.

// Turns a row's scores into probabilities relative to its largest score so far, and rescales what
// was summed before. Each thread sums its own share.
DEVICE void softmax_step(float (&scores)[ForwardTile::ACROSS], float (&sums)[CHANNELS],
                         float &most, float &sum) {
    float now = most;
    UNROLL for (int j = 0; j < ForwardTile::ACROSS; ++j) now = fmaxf(now, scores[j]);
    now = row_max(now);
    const float shrink = expf(most - now);
    sum *= shrink;
    UNROLL for (int c = 0; c < CHANNELS; ++c) sums[c] *= shrink;
    UNROLL for (int j = 0; j < ForwardTile::ACROSS; ++j) {
        scores[j] = expf(scores[j] - now);
        sum += scores[j];
    }
    most = now;
}

KERNEL __launch_bounds__(ForwardTile::THREADS, 1) SIGNATURE(attention_forward) {
    if (blockIdx.x >= blocks) return;
    typedef ForwardTile Tile;
    const u32 tiles = ceil_divide(positions, Tile::ROWS);
    const BlockTile place = tile_of_block(tiles);
    const u32 first = (tiles - 1 - place.rank) * Tile::ROWS, query = first + thread_row<Tile>();
    const HeadDropout dropout = head_dropout(step, {threshold, tag, scale}, place);
    qkv_bt3c += qkv_start(place, positions);
    float *queries = (float *)shared_memory, *keys = queries + Tile::ROWS * LINE;
    float *values = keys + Tile::COLUMNS * LINE;
    copy_rows<Tile::ROWS, Tile::THREADS, QKV_WIDTH>(queries, qkv_bt3c, first, positions);

    float sums[Tile::DOWN][CHANNELS] = {}, most[Tile::DOWN], sum[Tile::DOWN] = {};
    UNROLL for (int i = 0; i < Tile::DOWN; ++i) most[i] = LOWEST;
    for (u32 key = 0; key < first + Tile::ROWS && key < positions; key += Tile::COLUMNS) {
        __syncthreads();
        copy_rows<Tile::COLUMNS, Tile::THREADS, QKV_WIDTH>(keys, qkv_bt3c + WIDTH, key, positions);
        copy_rows<Tile::COLUMNS, Tile::THREADS, QKV_WIDTH>(values, qkv_bt3c + 2 * WIDTH, key,
                                                           positions);
        __syncthreads();
        const u32 kept = draw_tile<Tile, false>(dropout, query, key);
        float scores[Tile::DOWN][Tile::ACROSS];
        multiply_by_transposed<Tile>(scores, queries, keys);
        UNROLL for (int i = 0; i < Tile::DOWN; ++i) {
            UNROLL for (int j = 0; j < Tile::ACROSS; ++j) {
                const bool later = key + j * LANES + lane() > query + i;
                scores[i][j] = later ? __int_as_float(0xff800000) : scores[i][j] * score_scale();
            }
            softmax_step(scores[i], sums[i], most[i], sum[i]);
            UNROLL for (int j = 0; j < Tile::ACROSS; ++j) {
                scores[i][j] = dropped(scores[i][j], dropout, kept, i * Tile::ACROSS + j);
            }
        }
        multiply<Tile>(sums, scores, values);
    }

    float factors[Tile::DOWN];
    lse_bht += line_start(place, positions);
    UNROLL for (int i = 0; i < Tile::DOWN; ++i) {
        const float all = row_sum(sum[i]);
        factors[i] = 1.0f / all;
        if (lane() == 0 && query + i < positions) lse_bht[query + i] = most[i] + logf(all);
    }
    out_btc += out_start(place, positions) + (u64)query * WIDTH;
    store_rows<Tile::DOWN, WIDTH>(out_btc, (int)(positions - query), sums, factors);
}

// Backward, by queries.

// Reads what belongs to the thread's rows and writes delta. Queries that do not exist get zeros.
DEVICE void query_rows(float (&log_sums)[QueryTile::DOWN], float (&deltas)[QueryTile::DOWN],
                       const float *out, const float *d_out, const float *lse, float *delta,
                       u32 query, u32 positions) {
    UNROLL for (int i = 0; i < QueryTile::DOWN; ++i) {
        const u32 row = query + i;
        const bool inside = row < positions;
        float dot = 0;
        for (u32 channel = lane(); inside && channel < HEAD_SIZE; channel += LANES) {
            const u64 at = (u64)row * WIDTH + channel;
            dot = fmaf(out[at], d_out[at], dot);
        }
        deltas[i] = row_sum(dot);
        log_sums[i] = inside ? lse[row] : 0;
        if (inside && lane() == 0) delta[row] = deltas[i];
    }
}

KERNEL __launch_bounds__(QueryTile::THREADS, 1) SIGNATURE(attention_backward_query) {
    if (blockIdx.x >= blocks) return;
    typedef QueryTile Tile;
    const u32 tiles = ceil_divide(positions, Tile::ROWS);
    const BlockTile place = tile_of_block(tiles);
    const u32 first = (tiles - 1 - place.rank) * Tile::ROWS, query = first + thread_row<Tile>();
    const HeadDropout dropout = head_dropout(step, {threshold, tag, scale}, place);
    qkv_bt3c += qkv_start(place, positions);
    d_out_btc += out_start(place, positions);
    float *queries = (float *)shared_memory, *d_outs = queries + Tile::ROWS * LINE;
    float *keys = d_outs + Tile::ROWS * LINE, *values = keys + Tile::COLUMNS * LINE;
    copy_rows<Tile::ROWS, Tile::THREADS, QKV_WIDTH>(queries, qkv_bt3c, first, positions);
    copy_rows<Tile::ROWS, Tile::THREADS, WIDTH>(d_outs, d_out_btc, first, positions);
    const u64 line = line_start(place, positions);
    float log_sums[Tile::DOWN], deltas[Tile::DOWN];
    query_rows(log_sums, deltas, out_btc + out_start(place, positions), d_out_btc, lse_bht + line,
               delta_bht + line, query, positions);

    float d_queries[Tile::DOWN][CHANNELS] = {};
    for (u32 key = 0; key < first + Tile::ROWS && key < positions; key += Tile::COLUMNS) {
        __syncthreads();
        copy_rows<Tile::COLUMNS, Tile::THREADS, QKV_WIDTH>(keys, qkv_bt3c + WIDTH, key, positions);
        copy_rows<Tile::COLUMNS, Tile::THREADS, QKV_WIDTH>(values, qkv_bt3c + 2 * WIDTH, key,
                                                           positions);
        __syncthreads();
        const u32 kept = draw_tile<Tile, false>(dropout, query, key);
        float scores[Tile::DOWN][Tile::ACROSS], slopes[Tile::DOWN][Tile::ACROSS];
        multiply_by_transposed<Tile>(scores, queries, keys);
        multiply_by_transposed<Tile>(slopes, d_outs, values);
        UNROLL for (int i = 0; i < Tile::DOWN; ++i) {
            UNROLL for (int j = 0; j < Tile::ACROSS; ++j) {
                const u32 column = key + j * LANES + lane();
                const float p = expf(scores[i][j] * score_scale() - log_sums[i]);
                const float slope = dropped(slopes[i][j], dropout, kept, i * Tile::ACROSS + j);
                slopes[i][j] = column > query + i ? 0 : p * (slope - deltas[i]);
            }
        }
        multiply<Tile>(d_queries, slopes, keys);
    }

    float factors[Tile::DOWN];
    UNROLL for (int i = 0; i < Tile::DOWN; ++i) factors[i] = score_scale();
    d_qkv_bt3c += qkv_start(place, positions) + (u64)query * QKV_WIDTH;
    store_rows<Tile::DOWN, QKV_WIDTH>(d_qkv_bt3c, (int)(positions - query), d_queries, factors);
}

// Backward, by keys: rows are keys, columns are queries.

KERNEL __launch_bounds__(KeyTile::THREADS, 1) SIGNATURE(attention_backward_key) {
    if (blockIdx.x >= blocks) return;
    typedef KeyTile Tile;
    const BlockTile place = tile_of_block(ceil_divide(positions, Tile::ROWS));
    const u32 first = place.rank * Tile::ROWS, key = first + thread_row<Tile>();
    const HeadDropout dropout = head_dropout(step, {threshold, tag, scale}, place);
    qkv_bt3c += qkv_start(place, positions);
    d_out_btc += out_start(place, positions);
    lse_bht += line_start(place, positions);
    delta_bht += line_start(place, positions);
    float *keys = (float *)shared_memory, *values = keys + Tile::ROWS * LINE;
    float *queries = values + Tile::ROWS * LINE, *d_outs = queries + Tile::COLUMNS * LINE;
    copy_rows<Tile::ROWS, Tile::THREADS, QKV_WIDTH>(keys, qkv_bt3c + WIDTH, first, positions);
    copy_rows<Tile::ROWS, Tile::THREADS, QKV_WIDTH>(values, qkv_bt3c + 2 * WIDTH, first, positions);

    float d_keys[Tile::DOWN][CHANNELS] = {}, d_values[Tile::DOWN][CHANNELS] = {};
    for (u32 query = first / Tile::COLUMNS * Tile::COLUMNS; query < positions;
         query += Tile::COLUMNS) {
        __syncthreads();
        copy_rows<Tile::COLUMNS, Tile::THREADS, QKV_WIDTH>(queries, qkv_bt3c, query, positions);
        copy_rows<Tile::COLUMNS, Tile::THREADS, WIDTH>(d_outs, d_out_btc, query, positions);
        __syncthreads();
        const u32 kept = draw_tile<Tile, true>(dropout, key, query);
        float scores[Tile::DOWN][Tile::ACROSS], slopes[Tile::DOWN][Tile::ACROSS];
        multiply_by_transposed<Tile>(scores, keys, queries);
        multiply_by_transposed<Tile>(slopes, values, d_outs);
        UNROLL for (int j = 0; j < Tile::ACROSS; ++j) {
            const u32 column = query + j * LANES + lane();
            const bool inside = column < positions;
            const float log_sum = inside ? lse_bht[column] : 0;
            const float shift = inside ? delta_bht[column] : 0;
            UNROLL for (int i = 0; i < Tile::DOWN; ++i) {
                const bool seen = inside && key + i <= column;
                const float p = seen ? expf(scores[i][j] * score_scale() - log_sum) : 0;
                const int bit = i * Tile::ACROSS + j;
                scores[i][j] = dropped(p, dropout, kept, bit);
                slopes[i][j] = seen ? p * (dropped(slopes[i][j], dropout, kept, bit) - shift) : 0;
            }
        }
        multiply<Tile>(d_values, scores, d_outs);
        multiply<Tile>(d_keys, slopes, queries);
    }

    float scales[Tile::DOWN], ones[Tile::DOWN];
    UNROLL for (int i = 0; i < Tile::DOWN; ++i) scales[i] = score_scale(), ones[i] = 1;
    d_qkv_bt3c += qkv_start(place, positions) + WIDTH + (u64)key * QKV_WIDTH;
    store_rows<Tile::DOWN, QKV_WIDTH>(d_qkv_bt3c, (int)(positions - key), d_keys, scales);
    store_rows<Tile::DOWN, QKV_WIDTH>(d_qkv_bt3c + WIDTH, (int)(positions - key), d_values, ones);
}
