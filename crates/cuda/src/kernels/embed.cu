// Token embedding, plus positions where they are learned, and its gradient: tokens are sorted by id
// with a stable sort, so that each row of the table is summed by one warp or block in an order that
// depends on the tokens alone.
//
// Defined by the host: T (tables), R (residual stream), WIDTH, VEC, DROPOUT, LEARNED_POSITIONS,
// THREADS, SUM_THREADS (of the sums by token), TOKENS_AT_ONCE (whose gradients a thread reads
// before it adds the first), SORT_TILE (tokens that one block sorts).

constexpr int PACKS = WIDTH / VEC;

// `from_step` is 1 if the first position is that of the step.
KERNEL SIGNATURE(embed_forward) {
    u64 index = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (index >= packs) return;
    u64 row = index / PACKS;
    int column = (int)(index % PACKS) * VEC;
    Pack<T, VEC> token = load<T, VEC>(wte_vc + (u64)tokens_bt[row] * WIDTH + column);
#if LEARNED_POSITIONS
    u64 position = row % positions + (from_step ? step->position : 0);
    Pack<T, VEC> place = load<T, VEC>(wpe_tc + position * WIDTH + column);
#endif
    Pack<R, VEC> sum;
    float factors[VEC];
#if DROPOUT
    dropout_factors<VEC>(step, {threshold, tag, scale}, step->first_row * positions + row, column,
                         factors);
#endif
    UNROLL for (int i = 0; i < VEC; ++i) {
        float value = widen(token.at[i]);
#if LEARNED_POSITIONS
        value += widen(place.at[i]);
#endif
#if DROPOUT
        value *= factors[i];
#endif
        narrow(value, sum.at[i]);
    }
    store<R, VEC>(out_btc + row * WIDTH + column, sum);
}

// The sort by id, in two kernels: tiles of SORT_TILE tokens, each by one block, then the merge.
// A key is an id and, below it, the token's place, so no two are equal and the order is that of a
// stable sort. The first kernel leaves the tiles' sorted keys in `keys`.
KERNEL __launch_bounds__(SORT_TILE / 2) SIGNATURE(sort_tiles) {
    __shared__ u64 tile[SORT_TILE];
    u32 first = blockIdx.x * SORT_TILE;
    if (first >= count) return;
    UNROLL for (int half = 0; half < 2; ++half) {
        u32 slot = threadIdx.x + half * (SORT_TILE / 2), place = first + slot;
        // What is beyond the last token comes last.
        tile[slot] = place < count ? (u64)(u32)tokens_bt[place] << 32 | place : ~0ull;
    }
    // A bitonic sort: runs of `run` keys, upwards and downwards by turns, become runs of twice that.
    for (u32 run = 1; run < SORT_TILE; run *= 2) {
        for (u32 reach = run; reach > 0; reach /= 2) {
            __syncthreads();
            u32 low = threadIdx.x / reach * 2 * reach + threadIdx.x % reach, high = low + reach;
            u64 a = tile[low], b = tile[high];
            if ((a > b) == ((low & 2 * run) == 0)) {
                tile[low] = b;
                tile[high] = a;
            }
        }
    }
    __syncthreads();
    UNROLL for (int half = 0; half < 2; ++half) {
        u32 slot = threadIdx.x + half * (SORT_TILE / 2);
        if (first + slot < count) keys[first + slot] = tile[slot];
    }
}

// A key's rank is the number of keys below it: in its own tile its slot, in any other tile found
// by halving.
KERNEL __launch_bounds__(THREADS) SIGNATURE(merge_tiles) {
    u32 index = blockIdx.x * THREADS + threadIdx.x;
    if (index >= count) return;
    u64 key = keys[index];
    u32 rank = 0;
    for (u32 first = 0; first < count; first += SORT_TILE) {
        u32 from = first, to = count - first < SORT_TILE ? count : first + SORT_TILE;
        if (index >= from && index < to) from = to = index;
        while (from < to) {
            u32 middle = from + (to - from) / 2;
            if (keys[middle] < key) from = middle + 1;
            else to = middle;
        }
        rank += from - first;
    }
    ids[rank] = (u32)(key >> 32);
    places[rank] = (u32)key;
}

// The gradient of VEC numbers of a row of the output.
DEVICE void add_delivered(float (&sums)[VEC], const Held<R, VEC> &d_out, u64 row, int column,
                          const Step *step, u32 positions, const Dropout &dropout) {
    float factors[VEC];
#if DROPOUT
    dropout_factors<VEC>(step, dropout, step->first_row * positions + row, column, factors);
#endif
    UNROLL for (int i = 0; i < VEC; ++i) {
        float d = number(d_out, i);
#if DROPOUT
        d *= factors[i];
#endif
        sums[i] += d;
    }
}

constexpr int WARPS = SUM_THREADS / 32;
// Columns of a block, and how many blocks a row needs.
constexpr int COLUMNS = 32 * VEC;
constexpr int COLUMN_BLOCKS = (WIDTH + COLUMNS - 1) / COLUMNS;

// Adds the gradients of every `stride`-th sorted token from `from` on, as long as they have this
// id, in their order.
DEVICE void add_run(float (&sums)[VEC], u32 from, u32 stride, u32 count, u32 id, const u32 *ids,
                    const u32 *places, const R *d_out, int column, const Step *step, u32 positions,
                    const Dropout &dropout) {
    bool goes_on = true;
    for (u64 start = from; goes_on; start += TOKENS_AT_ONCE * stride) {
        u32 rows[TOKENS_AT_ONCE];
        bool belongs[TOKENS_AT_ONCE];
        Held<R, VEC> read[TOKENS_AT_ONCE];
        UNROLL for (int k = 0; k < TOKENS_AT_ONCE; ++k) {
            u64 at = start + k * stride;
            belongs[k] = at < count && ids[at] == id;
            rows[k] = at < count ? places[at] : 0;
        }
        UNROLL for (int k = 0; k < TOKENS_AT_ONCE; ++k) {
            if (belongs[k]) read[k] = hold<R, VEC>(d_out + (u64)rows[k] * WIDTH + column);
        }
        UNROLL for (int k = 0; k < TOKENS_AT_ONCE; ++k) {
            if (belongs[k]) {
                add_delivered(sums, read[k], rows[k], column, step, positions, dropout);
            }
        }
        goes_on = belongs[TOKENS_AT_ONCE - 1];
    }
}

// A warp for each sorted token. The one with the first token of an id works: alone if the id has
// up to TOKENS_AT_ONCE tokens; otherwise the whole block does, each warp with every WARPS-th token.
KERNEL __launch_bounds__(SUM_THREADS, 1) SIGNATURE(embed_backward_tokens) {
    __shared__ bool is_long[WARPS];
    __shared__ float parts[WARPS][COLUMNS];
    u32 first = blockIdx.x / COLUMN_BLOCKS * WARPS;
    if (first >= count) return;
    u32 warp = threadIdx.x / 32, mine = first + warp;
    int start = blockIdx.x % COLUMN_BLOCKS * COLUMNS, column = start + threadIdx.x % 32 * VEC;
    bool is_first = mine < count && (mine == 0 || ids[mine - 1] != ids[mine]);
    bool has_more = is_first && count - mine > TOKENS_AT_ONCE && ids[mine + TOKENS_AT_ONCE] == ids[mine];
    if (threadIdx.x % 32 == 0) is_long[warp] = has_more;
    if (is_first && !has_more && column < WIDTH) {
        float *to = d_wte_vc + (u64)ids[mine] * WIDTH + column;
        Pack<float, VEC> sums = load<float, VEC>(to);
        add_run(sums.at, mine, 1, count, ids[mine], ids, places, d_out_btc, column, step, positions,
                {threshold, tag, scale});
        store<float, VEC>(to, sums);
    }
    __syncthreads();
    for (int owner = 0; owner < WARPS; ++owner) {
        if (!is_long[owner]) continue;
        u32 id = ids[first + owner];
        float sums[VEC];
        UNROLL for (int i = 0; i < VEC; ++i) sums[i] = 0.0f;
        if (column < WIDTH) {
            add_run(sums, first + owner + warp, WARPS, count, id, ids, places, d_out_btc, column,
                    step, positions, {threshold, tag, scale});
        }
        UNROLL for (int i = 0; i < VEC; ++i) parts[warp][threadIdx.x % 32 * VEC + i] = sums[i];
        __syncthreads();
        for (int i = threadIdx.x; i < COLUMNS && start + i < WIDTH; i += SUM_THREADS) {
            float *to = d_wte_vc + (u64)id * WIDTH + start + i;
            float sum = *to;
            UNROLL for (int other = 0; other < WARPS; ++other) sum += parts[other][i];
            *to = sum;
        }
        __syncthreads();
    }
}

// A thread for VEC columns of a position, over the sequences in order.
KERNEL __launch_bounds__(THREADS) SIGNATURE(embed_backward_positions) {
    u64 index = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (index >= (u64)positions * PACKS) return;
    u32 position = index / PACKS;
    int column = (int)(index % PACKS) * VEC;
    float *at = d_wpe_tc + (u64)position * WIDTH + column;
    Pack<float, VEC> sums = load<float, VEC>(at);
#pragma unroll 4
    for (u32 sequence = 0; sequence < sequences; ++sequence) {
        u64 row = (u64)sequence * positions + position;
        add_delivered(sums.at, hold<R, VEC>(d_out_btc + row * WIDTH + column), row, column, step,
                      positions, {threshold, tag, scale});
    }
    store<float, VEC>(at, sums);
}
