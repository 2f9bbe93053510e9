// Residual addition with layer normalisation, and its gradient.
//
// Defined by the host: T (branch, gain, output), R (residual stream), WIDTH, VEC (numbers that are
// moved together, a divisor of WIDTH), ROW_THREADS (32, or a block for wide rows), THREADS (of a
// block), ADD, BIAS, DROPOUT, ACCUMULATE, BRANCH_GRADIENT, AGAIN (the gradient overwrites its input
// with the norm's output), PARTIAL_TOKENS.

constexpr int PACKS = WIDTH / VEC;
constexpr int ITEMS = (PACKS + ROW_THREADS - 1) / ROW_THREADS;
constexpr int ROWS_AT_ONCE = THREADS / ROW_THREADS;

DEVICE float row_sum(float x) {
    if constexpr (ROW_THREADS == 32) return warp_sum(x);
    else return block_sum<ROW_THREADS>(x);
}

// Factors 0 or `scale` of the columns from `column` on, a multiple of VEC.
DEVICE void mask(const Step *step, const Dropout &dropout, u64 row, int column, float *factors) {
    if constexpr (VEC % 4 == 0) {
        UNROLL for (int four = 0; four < VEC / 4; ++four) {
            Words draws = dropout_draws(step, dropout, row, column / 4 + four);
            UNROLL for (int i = 0; i < 4; ++i) {
                factors[4 * four + i] = dropout_factor(dropout, draws.at[i]);
            }
        }
    } else {
        UNROLL for (int i = 0; i < VEC; ++i) {
            Words draws = dropout_draws(step, dropout, row, (column + i) / 4);
            factors[i] = dropout_factor(dropout, draw_of(draws, column + i));
        }
    }
}

// One number of the output. The forward and the re-emitting gradient share it, so the bits are the
// same.
DEVICE float normalised(float x, float centre, float factor, float gain, float bias) {
    float normal = (x - centre) * factor * gain;
    return BIAS ? normal + bias : normal;
}

// The normalisation reads the sum as it is stored, so that recomputing it gives the same bits.
KERNEL __launch_bounds__(THREADS) SIGNATURE(layernorm_forward) {
    u32 row = blockIdx.x * ROWS_AT_ONCE + threadIdx.x / ROW_THREADS;
    if (row >= rows) return;
    int lane = threadIdx.x % ROW_THREADS;
    u64 start = (u64)row * WIDTH;
    float values[ITEMS][VEC];
    float total = 0.0f;
    UNROLL for (int item = 0; item < ITEMS; ++item) {
        int pack = item * ROW_THREADS + lane;
        UNROLL for (int i = 0; i < VEC; ++i) values[item][i] = 0.0f;
        if (pack >= PACKS) continue;
        u64 at = start + pack * VEC;
        Pack<R, VEC> stream = load<R, VEC>(x_btc + at);
#if ADD
        Pack<T, VEC> joins = load<T, VEC>(branch_btc + at);
        float factors[VEC];
#if DROPOUT
        mask(step, {threshold, tag, scale}, step->first_row * positions + row, pack * VEC, factors);
#endif
        UNROLL for (int i = 0; i < VEC; ++i) {
            float joined = widen(joins.at[i]);
#if DROPOUT
            joined *= factors[i];
#endif
            stream.at[i] = rounded<R>(widen(stream.at[i]) + joined);
        }
        store<R, VEC>(sum_btc + at, stream);
#endif
        UNROLL for (int i = 0; i < VEC; ++i) {
            values[item][i] = widen(stream.at[i]);
            total += values[item][i];
        }
    }
    float centre = row_sum(total) / WIDTH;
    float squares = 0.0f;
    UNROLL for (int item = 0; item < ITEMS; ++item) {
        if (item * ROW_THREADS + lane >= PACKS) continue;
        UNROLL for (int i = 0; i < VEC; ++i) {
            float distance = values[item][i] - centre;
            squares = fmaf(distance, distance, squares);
        }
    }
    float factor = 1.0f / sqrtf(row_sum(squares) / WIDTH + epsilon);
    if (lane == 0) {
        mean_bt[row] = centre;
        rstd_bt[row] = factor;
    }
    UNROLL for (int item = 0; item < ITEMS; ++item) {
        int pack = item * ROW_THREADS + lane;
        if (pack >= PACKS) continue;
        Pack<T, VEC> gains = load<T, VEC>(gain_c + pack * VEC);
#if BIAS
        Pack<T, VEC> biases = load<T, VEC>(bias_c + pack * VEC);
#endif
        Pack<T, VEC> result;
        UNROLL for (int i = 0; i < VEC; ++i) {
#if BIAS
            float shift = widen(biases.at[i]);
#else
            float shift = 0.0f;
#endif
            narrow(normalised(values[item][i], centre, factor, widen(gains.at[i]), shift),
                   result.at[i]);
        }
        store<T, VEC>(out_btc + start + pack * VEC, result);
    }
}

// With n = (x - mean) rstd and g = d_out gain: d_x (+)= rstd (g - mean(g) - n mean(g n)).
DEVICE void row_gradient(u32 row, int lane, const T *d_out, const R *x, float centre, float factor,
                         const T *gain, R *d_x, T *d_branch, const Step *step, u64 mask_row,
                         const Dropout &dropout) {
    u64 start = (u64)row * WIDTH;
    Pack<R, VEC> inputs[ITEMS];
    Pack<T, VEC> gradients[ITEMS];
    float sum_g = 0.0f, sum_gn = 0.0f;
    UNROLL for (int item = 0; item < ITEMS; ++item) {
        int pack = item * ROW_THREADS + lane;
        if (pack >= PACKS) continue;
        inputs[item] = load<R, VEC>(x + start + pack * VEC);
        gradients[item] = load<T, VEC>(d_out + start + pack * VEC);
        Pack<T, VEC> gains = load<T, VEC>(gain + pack * VEC);
        UNROLL for (int i = 0; i < VEC; ++i) {
            float g = widen(gradients[item].at[i]) * widen(gains.at[i]);
            sum_g += g;
            sum_gn = fmaf(g, (widen(inputs[item].at[i]) - centre) * factor, sum_gn);
        }
    }
    float mean_g = row_sum(sum_g) / WIDTH;
    float mean_gn = row_sum(sum_gn) / WIDTH;
    UNROLL for (int item = 0; item < ITEMS; ++item) {
        int pack = item * ROW_THREADS + lane;
        if (pack >= PACKS) continue;
        u64 at = start + pack * VEC;
        Pack<T, VEC> gains = load<T, VEC>(gain + pack * VEC);
        Pack<R, VEC> result;
#if ACCUMULATE
        result = load<R, VEC>(d_x + at);
#endif
        UNROLL for (int i = 0; i < VEC; ++i) {
            float n = (widen(inputs[item].at[i]) - centre) * factor;
            float g = widen(gradients[item].at[i]) * widen(gains.at[i]);
            float slope = factor * fmaf(n, -mean_gn, g - mean_g);
#if ACCUMULATE
            slope += widen(result.at[i]);
#endif
            narrow(slope, result.at[i]);
        }
        store<R, VEC>(d_x + at, result);
#if BRANCH_GRADIENT
        Pack<T, VEC> branch;
        float factors[VEC];
#if DROPOUT
        mask(step, dropout, mask_row, pack * VEC, factors);
#endif
        UNROLL for (int i = 0; i < VEC; ++i) {
            float delivered = widen(result.at[i]);
#if DROPOUT
            delivered *= factors[i];
#endif
            narrow(delivered, branch.at[i]);
        }
        store<T, VEC>(d_branch + at, branch);
#endif
    }
}

// Column sums over a block's tokens: threads in GROUPS, each group over its share of the rows.
constexpr int GROUPS = PACKS >= THREADS ? 1 : (THREADS / PACKS < 8 ? THREADS / PACKS : 8);

// A block has PARTIAL_TOKENS rows. First their gradients, a warp (or the block) for each row; then,
// from caches, their shares of the gradients of gain and bias, a thread for each pack of columns.
KERNEL __launch_bounds__(THREADS) SIGNATURE(layernorm_backward) {
    if (blockIdx.x >= blocks) return;
    __shared__ float centres[PARTIAL_TOKENS], factors[PARTIAL_TOKENS];
    __shared__ float parts[GROUPS > 1 ? GROUPS - 1 : 1][2][GROUPS > 1 ? WIDTH : 1];
    u32 first = blockIdx.x * PARTIAL_TOKENS;
    u32 count = rows - first < PARTIAL_TOKENS ? rows - first : PARTIAL_TOKENS;
    for (u32 i = threadIdx.x; i < count; i += THREADS) {
        centres[i] = mean_bt[first + i];
        factors[i] = rstd_bt[first + i];
    }
    __syncthreads();
    u64 mask_first = 0;
#if DROPOUT
    mask_first = step->first_row * positions + first;
#endif
    for (u32 i = threadIdx.x / ROW_THREADS; i < count; i += ROWS_AT_ONCE) {
        row_gradient(first + i, threadIdx.x % ROW_THREADS, d_out_btc, x_btc, centres[i], factors[i],
                     gain_c, d_x_btc, d_branch_btc, step, mask_first + i,
                     {threshold, tag, scale});
    }
#if AGAIN
    // What follows overwrites what other warps have just read, so wait for them.
    __syncthreads();
#endif
    int group = threadIdx.x / PACKS;
    for (int pack = GROUPS > 1 ? threadIdx.x % PACKS : threadIdx.x; pack < PACKS; pack += THREADS) {
        float gains[VEC], biases[VEC];
        UNROLL for (int i = 0; i < VEC; ++i) gains[i] = biases[i] = 0.0f;
        u32 from = GROUPS > 1 ? group : 0;
        if (GROUPS > 1 && group >= GROUPS) from = count;
        for (u32 row = from; row < count; row += GROUPS) {
            u64 at = (u64)(first + row) * WIDTH + pack * VEC;
            Pack<R, VEC> input = load<R, VEC>(x_btc + at);
            Pack<T, VEC> gradient = load<T, VEC>(d_out_btc + at);
            UNROLL for (int i = 0; i < VEC; ++i) {
                float d = widen(gradient.at[i]);
                gains[i] = fmaf(d, (widen(input.at[i]) - centres[row]) * factors[row], gains[i]);
                biases[i] += d;
#if AGAIN
                float shift = BIAS ? widen(bias_c[pack * VEC + i]) : 0.0f;
                narrow(normalised(widen(input.at[i]), centres[row], factors[row],
                                  widen(gain_c[pack * VEC + i]), shift),
                       gradient.at[i]);
#endif
            }
#if AGAIN
            store<T, VEC>(d_out_btc + at, gradient);
#endif
        }
        if constexpr (GROUPS > 1) {
            if (group > 0 && group < GROUPS) {
                UNROLL for (int i = 0; i < VEC; ++i) {
                    parts[group - 1][0][pack * VEC + i] = gains[i];
                    parts[group - 1][1][pack * VEC + i] = biases[i];
                }
            }
            __syncthreads();
        }
        if (GROUPS == 1 || group == 0) {
            float *to = partials + (u64)blockIdx.x * 2 * WIDTH + pack * VEC;
            UNROLL for (int i = 0; i < VEC; ++i) {
                if constexpr (GROUPS > 1) {
                    for (int other = 0; other < GROUPS - 1; ++other) {
                        gains[i] += parts[other][0][pack * VEC + i];
                        biases[i] += parts[other][1][pack * VEC + i];
                    }
                }
                to[i] = gains[i];
                to[WIDTH + i] = biases[i];
            }
        }
    }
}
