// Token embedding, plus positions where they are learned, and its gradient: tokens are sorted by id
// with a stable sort, so that one block sums each row of the table in token order.
//
// Defined by the host: T (tables), R (residual stream), WIDTH, VEC, DROPOUT, LEARNED_POSITIONS,
// SORT_PASSES, THREADS, SORT_THREADS, DIGIT_BITS.

constexpr int PACKS = WIDTH / VEC;

DEVICE float factor_of(const Step *step, const Dropout &dropout, u64 row, int column) {
    Words draws = dropout_draws(step, dropout, row, column / 4);
    return dropout_factor(dropout, draw_of(draws, column));
}

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
    UNROLL for (int i = 0; i < VEC; ++i) {
        float value = widen(token.at[i]);
#if LEARNED_POSITIONS
        value += widen(place.at[i]);
#endif
#if DROPOUT
        value *= factor_of(step, {threshold, tag, scale}, step->first_row * positions + row,
                           column + i);
#endif
        narrow(value, sum.at[i]);
    }
    store<R, VEC>(out_btc + row * WIDTH + column, sum);
}

constexpr int DIGITS = 1 << DIGIT_BITS;

// The destination of each thread's first element of each digit: an exclusive sum, digit by digit.
DEVICE void exclusive_sum(u32 *counts) {
    __shared__ u32 totals[SORT_THREADS];
    u32 *mine = counts + threadIdx.x * DIGITS;
    u32 sum = 0;
    UNROLL for (int i = 0; i < DIGITS; ++i) sum += mine[i];
    totals[threadIdx.x] = sum;
    __syncthreads();
    for (u32 reach = 1; reach < SORT_THREADS; reach *= 2) {
        u32 before = threadIdx.x >= reach ? totals[threadIdx.x - reach] : 0;
        __syncthreads();
        totals[threadIdx.x] += before;
        __syncthreads();
    }
    u32 place = totals[threadIdx.x] - sum;
    UNROLL for (int i = 0; i < DIGITS; ++i) {
        u32 count = mine[i];
        mine[i] = place;
        place += count;
    }
    __syncthreads();
}

// A stable radix sort by one block, DIGIT_BITS at a time. `scratch` holds ids, positions, ids,
// positions of `count` words each. SORT_PASSES is even, so the result is in the second pair.
KERNEL __launch_bounds__(SORT_THREADS) SIGNATURE(sort_tokens) {
    __shared__ u32 counts[DIGITS * SORT_THREADS];
    if (count == 0) return;
    u32 share = (count + SORT_THREADS - 1) / SORT_THREADS;
    u32 first = threadIdx.x * share < count ? threadIdx.x * share : count;
    u32 last = first + share < count ? first + share : count;
    u32 *ids = scratch + 2 * (u64)count, *places = ids + count;
    u32 *to_ids = scratch, *to_places = to_ids + count;
    for (int pass = 0; pass < SORT_PASSES; ++pass) {
        UNROLL for (int digit = 0; digit < DIGITS; ++digit) {
            counts[digit * SORT_THREADS + threadIdx.x] = 0;
        }
        for (u32 i = first; i < last; ++i) {
            u32 id = pass == 0 ? (u32)tokens_bt[i] : ids[i];
            ++counts[(id >> DIGIT_BITS * pass & (DIGITS - 1)) * SORT_THREADS + threadIdx.x];
        }
        __syncthreads();
        exclusive_sum(counts);
        for (u32 i = first; i < last; ++i) {
            u32 id = pass == 0 ? (u32)tokens_bt[i] : ids[i];
            u32 place = pass == 0 ? i : places[i];
            u32 to = counts[(id >> DIGIT_BITS * pass & (DIGITS - 1)) * SORT_THREADS + threadIdx.x]++;
            to_ids[to] = id;
            to_places[to] = place;
        }
        __syncthreads();
        u32 *swap = ids;
        ids = to_ids;
        to_ids = swap;
        swap = places;
        places = to_places;
        to_places = swap;
    }
}

DEVICE float delivered(const R *d_out, u64 row, int column, const Step *step, u32 positions,
                       const Dropout &dropout) {
    float d = widen(d_out[row * WIDTH + column]);
#if DROPOUT
    d *= factor_of(step, dropout, step->first_row * positions + row, column);
#endif
    return d;
}

// A block for each sorted token. Only the block of the first token of an id works, for all of that
// id.
KERNEL SIGNATURE(embed_backward_tokens) {
    u32 first = blockIdx.x;
    if (first >= count) return;
    u32 id = ids[first];
    if (first > 0 && ids[first - 1] == id) return;
    u32 last = first + 1;
    while (last < count && ids[last] == id) ++last;
    for (int column = threadIdx.x; column < WIDTH; column += THREADS) {
        float sum = d_wte_vc[(u64)id * WIDTH + column];
        for (u32 i = first; i < last; ++i) {
            sum += delivered(d_out_btc, places[i], column, step, positions,
                             {threshold, tag, scale});
        }
        d_wte_vc[(u64)id * WIDTH + column] = sum;
    }
}

// A block for each position, over the sequences in order.
KERNEL SIGNATURE(embed_backward_positions) {
    u32 position = blockIdx.x;
    if (position >= positions) return;
    for (int column = threadIdx.x; column < WIDTH; column += THREADS) {
        float sum = d_wpe_tc[(u64)position * WIDTH + column];
        for (u32 sequence = 0; sequence < sequences; ++sequence) {
            u64 row = (u64)sequence * positions + position;
            sum += delivered(d_out_btc, row, column, step, positions, {threshold, tag, scale});
        }
        d_wpe_tc[(u64)position * WIDTH + column] = sum;
    }
}
