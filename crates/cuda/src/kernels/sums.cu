// Sums over tokens in two stages with fixed shares: a bias's gradient, the second stage of every
// column sum, and the loss of each sequence.
//
// Defined by the host: T, WIDTH, VEC, PARTIAL_TOKENS, THREADS, SUM_COLUMNS, SUM_ROWS.

// Columns of a block, and how many blocks a row needs.
constexpr int COLUMNS = 32 * VEC;
constexpr int COLUMN_BLOCKS = (WIDTH + COLUMNS - 1) / COLUMNS;
constexpr int WARPS = THREADS / 32;

// `partials[p, column] = Σ d_out[row, column]` over the rows of part p: each warp sums every
// WARPS-th row, then their sums are added in order.
KERNEL __launch_bounds__(THREADS) SIGNATURE(column_partials) {
    __shared__ float parts[WARPS][COLUMNS];
    if (blockIdx.x >= blocks) return;
    u32 part = blockIdx.x / COLUMN_BLOCKS;
    int start = blockIdx.x % COLUMN_BLOCKS * COLUMNS, column = start + threadIdx.x % 32 * VEC;
    u32 warp = threadIdx.x / 32, first = part * PARTIAL_TOKENS;
    u32 last = rows - first < PARTIAL_TOKENS ? rows : first + PARTIAL_TOKENS;
    float sums[VEC];
    UNROLL for (int i = 0; i < VEC; ++i) sums[i] = 0.0f;
    if (column < WIDTH) {
#pragma unroll 8
        for (u32 row = first + warp; row < last; row += WARPS) {
            Pack<T, VEC> values = load<T, VEC>(d_out + (u64)row * WIDTH + column);
            UNROLL for (int i = 0; i < VEC; ++i) sums[i] += widen(values.at[i]);
        }
    }
    UNROLL for (int i = 0; i < VEC; ++i) parts[warp][threadIdx.x % 32 * VEC + i] = sums[i];
    __syncthreads();
    for (int i = threadIdx.x; i < COLUMNS && start + i < WIDTH; i += THREADS) {
        float sum = parts[0][i];
        UNROLL for (int other = 1; other < WARPS; ++other) sum += parts[other][i];
        partials[(u64)part * WIDTH + start + i] = sum;
    }
}

// `target[column] += Σ partials[row, column]`: SUM_ROWS shares of rows, added in order. Columns
// from `split` on belong to the second target.
KERNEL __launch_bounds__(SUM_ROWS *SUM_COLUMNS) SIGNATURE(add_partials) {
    __shared__ float shares[SUM_ROWS][SUM_COLUMNS];
    u32 column = blockIdx.x * SUM_COLUMNS + threadIdx.x % SUM_COLUMNS;
    u32 share = threadIdx.x / SUM_COLUMNS;
    float sum = 0.0f;
    if (column < columns) {
#pragma unroll 8
        for (u32 row = share; row < rows; row += SUM_ROWS) {
            sum += partials[(u64)row * columns + column];
        }
    }
    shares[share][threadIdx.x % SUM_COLUMNS] = sum;
    __syncthreads();
    if (share > 0 || column >= columns) return;
    UNROLL for (int other = 1; other < SUM_ROWS; ++other) sum += shares[other][threadIdx.x];
    float *to = column < split ? target + column : second + (column - split);
    *to += sum;
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
