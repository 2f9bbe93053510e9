// The gradient of layer normalisation.
//
// Defined by the host: T (branch, gain, output), R (residual stream), BLOCKS (that a multiprocessor
// must have room for), DROPOUT, ACCUMULATE, BRANCH_GRADIENT, BIAS_GRADIENT, AGAIN (the output's
// gradient is overwritten with the output), PARTIAL_TOKENS, and what layernorm_rows.cuh needs.

// What the gradient reads of one row, a thread's share of it.
struct Inputs {
    Held<R, VEC> x[ITEMS];
    Held<T, VEC> d_out[ITEMS];
    float centre, factor;
};

// Whether the next row is read while this one is computed. The other forms lack the registers.
constexpr bool AHEAD = !(AGAIN || BIAS_GRADIENT || BRANCH_GRADIENT);

DEVICE bool is_inside(int item, int lane) {
    return PACKS % ROW_THREADS == 0 || item * ROW_THREADS + lane < PACKS;
}

// The sums of a column of the groups of threads, in the order of the groups.
template <int COLUMNS>
DEVICE void add_groups(float (&sums)[ITEMS][VEC], int group, int lane, float *to) {
    __shared__ float parts[ROWS_AT_ONCE][COLUMNS];
    UNROLL for (int item = 0; item < ITEMS; ++item) {
        if (!is_inside(item, lane)) continue;
        UNROLL for (int i = 0; i < VEC; ++i) {
            parts[group][(item * ROW_THREADS + lane) * VEC + i] = sums[item][i];
        }
    }
    __syncthreads();
    for (int column = threadIdx.x; column < COLUMNS; column += THREADS) {
        float sum = parts[0][column];
        UNROLL for (int other = 1; other < ROWS_AT_ONCE; ++other) sum += parts[other][column];
        to[column] = sum;
    }
    __syncthreads();
}

DEVICE void write_partials(float (&sums)[ITEMS][VEC], int group, int lane, float *to) {
    if constexpr (ROWS_AT_ONCE > 1) {
        add_groups<WIDTH>(sums, group, lane, to);
    } else {
        UNROLL for (int item = 0; item < ITEMS; ++item) {
            if (!is_inside(item, lane)) continue;
            UNROLL for (int i = 0; i < VEC; ++i) {
                to[(item * ROW_THREADS + lane) * VEC + i] = sums[item][i];
            }
        }
    }
}

// With n = (x - mean) rstd and g = d_out gain: d_x (+)= rstd (g - mean(g) - n mean(g n)); the
// gradients of gain and bias are the sums of d_out n and d_out over tokens.
//
// A block has PARTIAL_TOKENS rows. Each group of ROW_THREADS threads takes every ROWS_AT_ONCE-th of
// them, reads it once, and keeps the sums of its columns in registers until the end.
KERNEL __launch_bounds__(THREADS, BLOCKS) SIGNATURE(layernorm_backward) {
    if (blockIdx.x >= blocks) return;
    int group = threadIdx.x / ROW_THREADS, lane = threadIdx.x % ROW_THREADS;
    u32 first = blockIdx.x * PARTIAL_TOKENS;
    u32 last = rows - first < PARTIAL_TOKENS ? rows : first + PARTIAL_TOKENS;
    auto fetch = [&](u32 row) {
        Inputs read;
        UNROLL for (int item = 0; item < ITEMS; ++item) {
            if (!is_inside(item, lane)) continue;
            u64 at = (u64)row * WIDTH + (item * ROW_THREADS + lane) * VEC;
            read.x[item] = hold<R, VEC>(x_btc + at);
            read.d_out[item] = hold<T, VEC>(d_out_btc + at);
        }
        read.centre = mean_bt[row];
        read.factor = rstd_bt[row];
        return read;
    };
    Held<T, VEC> gains[ITEMS];
    float d_gains[ITEMS][VEC], d_biases[ITEMS][VEC];
    UNROLL for (int item = 0; item < ITEMS; ++item) {
        if (is_inside(item, lane)) {
            gains[item] = hold<T, VEC>(gain_c + (item * ROW_THREADS + lane) * VEC);
        }
        UNROLL for (int i = 0; i < VEC; ++i) d_gains[item][i] = d_biases[item][i] = 0.0f;
    }
    u32 row = first + group;
    Inputs next;
    if (AHEAD && row < last) next = fetch(row);
#pragma unroll 1
    for (int turn = 0; row < last; row += ROWS_AT_ONCE, turn ^= 1) {
        Inputs read = AHEAD ? next : fetch(row);
        if (AHEAD && row + ROWS_AT_ONCE < last) next = fetch(row + ROWS_AT_ONCE);
#if DROPOUT
        // Drawn while the row is read, which an empty `asm` ensures.
        u32 kept[ITEMS];
        UNROLL for (int item = 0; item < ITEMS; ++item) {
            kept[item] = dropout_bits<VEC>(step, {threshold, tag, scale},
                                           step->first_row * positions + row,
                                           (item * ROW_THREADS + lane) * VEC);
            asm volatile("" : "+r"(kept[item]));
        }
#endif
        float means[2] = {0.0f, 0.0f}; // of g and of g n
        UNROLL for (int item = 0; item < ITEMS; ++item) {
            if (!is_inside(item, lane)) continue;
            UNROLL for (int i = 0; i < VEC; ++i) {
                float d = number(read.d_out[item], i);
                float n = (number(read.x[item], i) - read.centre) * read.factor;
                float g = d * number(gains[item], i);
                means[0] += g;
                means[1] = fmaf(g, n, means[1]);
                d_gains[item][i] = fmaf(d, n, d_gains[item][i]);
                d_biases[item][i] += d;
            }
        }
#if ACCUMULATE
        Held<R, VEC> d_x[ITEMS];
        UNROLL for (int item = 0; item < ITEMS; ++item) {
            if (!is_inside(item, lane)) continue;
            u64 at = (u64)row * WIDTH + (item * ROW_THREADS + lane) * VEC;
            d_x[item] = hold<R, VEC>(d_x_btc + at);
        }
#endif
        row_sums(means, turn);
        float mean_g = means[0] / WIDTH, mean_gn = means[1] / WIDTH;
        UNROLL for (int item = 0; item < ITEMS; ++item) {
            if (!is_inside(item, lane)) continue;
            int column = (item * ROW_THREADS + lane) * VEC;
            u64 at = (u64)row * WIDTH + column;
            Pack<R, VEC> result;
#if AGAIN
            Pack<T, VEC> again;
#if BIAS
            Pack<T, VEC> biases = load<T, VEC>(bias_c + column);
#endif
#endif
            forget(read.x[item]);
            forget(read.d_out[item]);
            forget(gains[item]);
            UNROLL for (int i = 0; i < VEC; ++i) {
                float gain = number(gains[item], i);
                float n = (number(read.x[item], i) - read.centre) * read.factor;
                float g = number(read.d_out[item], i) * gain;
                float slope = read.factor * fmaf(n, -mean_gn, g - mean_g);
#if ACCUMULATE
                slope += number(d_x[item], i);
#endif
                narrow(slope, result.at[i]);
#if AGAIN
#if BIAS
                float bias = widen(biases.at[i]);
#else
                float bias = 0.0f;
#endif
                narrow(scaled(n, gain, bias), again.at[i]);
#endif
            }
            store<R, VEC>(d_x_btc + at, result);
#if AGAIN
            store<T, VEC>(d_out_btc + at, again);
#endif
#if BRANCH_GRADIENT
            Pack<T, VEC> branch;
            UNROLL for (int i = 0; i < VEC; ++i) {
                float delivered = widen(result.at[i]);
#if DROPOUT
                delivered *= kept[item] >> i & 1 ? scale : 0.0f;
#endif
                narrow(delivered, branch.at[i]);
            }
            store<T, VEC>(d_branch_btc + at, branch);
#endif
        }
    }
    float *to = partials + (u64)blockIdx.x * (1 + BIAS_GRADIENT) * WIDTH;
    write_partials(d_gains, group, lane, to);
    if (BIAS_GRADIENT) write_partials(d_biases, group, lane, to + WIDTH);
}
