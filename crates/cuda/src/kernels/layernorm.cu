// Residual addition with layer normalisation.
//
// Defined by the host: T (branch, gain, output), R (residual stream), ADD, DROPOUT, and what
// layernorm_rows.cuh needs.

// The normalisation reads the sum as it is stored, so that recomputing it gives the same bits.
KERNEL __launch_bounds__(THREADS) SIGNATURE(layernorm_forward) {
    u32 row = blockIdx.x * ROWS_AT_ONCE + threadIdx.x / ROW_THREADS;
    if (row >= rows) return;
    int lane = threadIdx.x % ROW_THREADS;
    u64 start = (u64)row * WIDTH;
    float values[ITEMS][VEC];
    float total[1] = {0.0f};
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
        dropout_factors<VEC>(step, {threshold, tag, scale}, step->first_row * positions + row,
                             pack * VEC, factors);
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
            total[0] += values[item][i];
        }
    }
    row_sums(total, 0);
    float centre = total[0] / WIDTH;
    float squares[1] = {0.0f};
    UNROLL for (int item = 0; item < ITEMS; ++item) {
        if (item * ROW_THREADS + lane >= PACKS) continue;
        UNROLL for (int i = 0; i < VEC; ++i) {
            float distance = values[item][i] - centre;
            squares[0] = fmaf(distance, distance, squares[0]);
        }
    }
    row_sums(squares, 1);
    float factor = 1.0f / sqrtf(squares[0] / WIDTH + epsilon);
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
            float normal = (values[item][i] - centre) * factor;
            narrow(scaled(normal, widen(gains.at[i]), shift), result.at[i]);
        }
        store<T, VEC>(out_btc + start + pack * VEC, result);
    }
}
