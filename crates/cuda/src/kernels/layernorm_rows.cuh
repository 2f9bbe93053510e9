// What layer normalisation and its gradient share: how a row is divided among threads.
//
// Defined by the host: WIDTH, VEC (numbers that are moved together, a divisor of WIDTH),
// ROW_THREADS (of a row), THREADS (of a block), BIAS.

constexpr int PACKS = WIDTH / VEC;
constexpr int ITEMS = (PACKS + ROW_THREADS - 1) / ROW_THREADS;
constexpr int ROWS_AT_ONCE = THREADS / ROW_THREADS;

// Sums over a row's threads: a warp, or several warps that wait for each other alone. `turn` is 0
// and 1 by turns, so that no warp overwrites what another one still reads.
template <int COUNT> DEVICE void row_sums(float (&sums)[COUNT], int turn) {
    UNROLL for (int i = 0; i < COUNT; ++i) sums[i] = warp_sum(sums[i]);
    if constexpr (ROW_THREADS > 32) {
        constexpr int WARPS = ROW_THREADS / 32;
        __shared__ float parts[2][ROWS_AT_ONCE][WARPS][COUNT];
        int group = threadIdx.x / ROW_THREADS;
        float(&row)[WARPS][COUNT] = parts[turn][group];
        if (threadIdx.x % 32 == 0) {
            UNROLL for (int i = 0; i < COUNT; ++i) row[threadIdx.x / 32 % WARPS][i] = sums[i];
        }
        asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(ROW_THREADS) : "memory");
        UNROLL for (int i = 0; i < COUNT; ++i) {
            sums[i] = 0.0f;
            UNROLL for (int warp = 0; warp < WARPS; ++warp) sums[i] += row[warp][i];
        }
    }
}

// A number of the output from the normalised one. The forward and the re-emitting gradient share
// it, so the bits are the same.
DEVICE float scaled(float normal, float gain, float bias) {
    return BIAS ? normal * gain + bias : normal * gain;
}
