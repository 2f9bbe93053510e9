// Tiles of heads for matmuls of warpgroups.
//
// Included after `warpgroups.cuh`, `tensor_cores.cuh` and `softmax.cuh`.

constexpr int PANELS = (HEAD_PAD + 63) / 64;

// Starts to copy rows `first ..` of one head into panels. Rows from `limit` on, and channels past
// the head's size, become zero.
template <int ROWS, int THREADS, u32 STRIDE>
DEVICE void copy_panels(u32 to, const T *from, u32 first, u32 limit, u32 thread) {
    constexpr u32 CHUNKS = HEAD_PAD / 8;
    from += (u64)first * STRIDE;
    UNROLL for (u32 i = 0; i < ceil_divide(ROWS * CHUNKS, THREADS); ++i) {
        const u32 index = thread + i * THREADS, row = index / CHUNKS, chunk = index % CHUNKS;
        if (ROWS * CHUNKS % THREADS != 0 && row >= ROWS) break;
        const bool inside = first + row < limit && chunk * 8 < HEAD_SIZE;
        copy_16(to + chunk / 8 * (ROWS * PANEL_ROW) + row * PANEL_ROW + (chunk % 8 ^ row % 8) * 16,
                from + (inside ? row * STRIDE + chunk * 8 : 0), inside ? 16 : 0);
    }
}
