// Sums over tokens in two stages with fixed shares: a bias's gradient, the second stage of every
// column sum, and the loss of each sequence.
//
// Defined by the host: T, WIDTH, VEC, PARTIAL_TOKENS, THREADS, SUM_COLUMNS, SUM_ROWS.

constexpr int PACKS = WIDTH / VEC;
constexpr int COLUMN_BLOCKS = (PACKS + THREADS - 1) / THREADS;

// `partials[p, column] = Σ d_out[row, column]` over the rows of part p.
KERNEL SIGNATURE(column_partials) {
    if (blockIdx.x >= blocks) return;
    u32 part = blockIdx.x / COLUMN_BLOCKS;
    int pack = blockIdx.x % COLUMN_BLOCKS * THREADS + threadIdx.x;
    if (pack >= PACKS) return;
    u32 first = part * PARTIAL_TOKENS;
    u32 last = rows - first < PARTIAL_TOKENS ? rows : first + PARTIAL_TOKENS;
    float sums[VEC];
    UNROLL for (int i = 0; i < VEC; ++i) sums[i] = 0.0f;
    for (u32 row = first; row < last; ++row) {
        Pack<T, VEC> values = load<T, VEC>(d_out + (u64)row * WIDTH + pack * VEC);
        UNROLL for (int i = 0; i < VEC; ++i) sums[i] += widen(values.at[i]);
    }
    float *to = partials + (u64)part * WIDTH + pack * VEC;
    UNROLL for (int i = 0; i < VEC; ++i) to[i] = sums[i];
}

// `target[column] += Σ partials[row, column]`: SUM_ROWS shares of rows, added in order.
KERNEL SIGNATURE(add_partials) {
    __shared__ float shares[SUM_ROWS][SUM_COLUMNS];
    u32 column = blockIdx.x * SUM_COLUMNS + threadIdx.x % SUM_COLUMNS;
    u32 share = threadIdx.x / SUM_COLUMNS;
    float sum = 0.0f;
    if (column < columns) {
        for (u32 row = share; row < rows; row += SUM_ROWS) {
            sum += partials[(u64)row * pitch + column];
        }
    }
    shares[share][threadIdx.x % SUM_COLUMNS] = sum;
    __syncthreads();
    if (share > 0 || column >= columns) return;
    UNROLL for (int other = 1; other < SUM_ROWS; ++other) sum += shares[other][threadIdx.x];
    target[column] += sum;
}

// Writes the summed loss of each sequence to the slice's rows.
KERNEL SIGNATURE(row_losses) {
    if (blockIdx.x >= rows) return;
    const float *losses = token_loss + (u64)blockIdx.x * positions;
    double sum = 0.0;
    for (u32 position = threadIdx.x; position < positions; position += THREADS) {
        sum += losses[position];
    }
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x == 0) row_loss[step->first_row + blockIdx.x] = (float)sum;
}
