// Transposes a matrix of f32, so that a matmul in TF32 reads it along its inner dimension.
//
// Defined by the host: SIDE, of the square tile that a block moves, and THREADS. Rows and columns of
// the matrix are multiples of four.

constexpr u32 QUADS = SIDE / 4;
constexpr u32 STEP = THREADS / QUADS;
static_assert(SIDE % 4 == 0 && THREADS % QUADS == 0 && SIDE % STEP == 0, "threads fill rows");

KERNEL __launch_bounds__(THREADS) SIGNATURE(transpose) {
    if (blockIdx.x >= blocks) return;
    // One more than the side, so that a column's numbers are in different banks.
    __shared__ float tile[SIDE][SIDE + 1];
    const u32 across = (columns + SIDE - 1) / SIDE;
    const u32 row = blockIdx.x / across * SIDE, column = blockIdx.x % across * SIDE;
    const u32 quad = threadIdx.x % QUADS * 4, line = threadIdx.x / QUADS;
    UNROLL for (u32 i = line; i < SIDE; i += STEP) {
        if (row + i >= rows || column + quad >= columns) continue;
        const Pack<float, 4> four = load<float, 4>(from_rc + (u64)(row + i) * columns + column + quad);
        UNROLL for (u32 j = 0; j < 4; ++j) tile[i][quad + j] = four.at[j];
    }
    __syncthreads();
    UNROLL for (u32 i = line; i < SIDE; i += STEP) {
        if (column + i >= columns || row + quad >= rows) continue;
        Pack<float, 4> four;
        UNROLL for (u32 j = 0; j < 4; ++j) four.at[j] = tile[quad + j][i];
        store<float, 4>(to_cr + (u64)(column + i) * rows + row + quad, four);
    }
}
