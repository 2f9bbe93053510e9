// What the gradients of attention for narrow and for wide heads share (`attention_hopper_narrow.cu`,
// `attention_hopper_wide.cu`). One kernel computes all three gradients, since its matmuls are what
// costs most.
//
// Included after `warpgroups.cuh`. The host defines T, HEADS, HEAD_SIZE (a multiple of 8, 48 to
// 128), HEAD_PAD and DROPOUT; STEP and CHANNELS, the queries of a tile and the channels in which
// each of two warpgroups sums their gradient; BACKWARD_BYTES of dynamic shared memory.
//
// A block owns KEYS keys of one head and walks over the queries that see them, STEP at a time. The
// gradients of its keys and values stay in registers. The gradient of a tile of queries is a sum
// over blocks, in memory: each block in turn, from the latest keys to the first, adds its share, so
// that the order is always the same. `turns` says how many have added to a tile. The block of the
// first keys is the last, and writes the result.
//
// Blocks with later keys have lower numbers, so a block starts before any block that waits for it.
// All blocks walk towards later queries, so those of one head are at different tiles, and a block
// rarely waits.

static_assert(ALIGNED && HEAD_SIZE >= 48 && HEAD_SIZE <= 128, "another kernel does this head size");

constexpr int KEYS = 128;
// Two warpgroups multiply. The threads of the first warpgroup bring and take away.
constexpr int MULTIPLYING = 256;
constexpr int BACKWARD_THREADS = 128 + MULTIPLYING;
// Numbers of a tile of queries' gradient that a thread has. Where the last panel of a wide head is
// narrower than CHANNELS, the rest sums whatever is there, and is left out at the end.
constexpr int SHARE = CHANNELS / 2;
constexpr u32 KEY_BYTES = PANELS * KEYS * PANEL_ROW;
constexpr u32 STEP_BYTES = PANELS * STEP * PANEL_ROW;
constexpr u32 CHANGE_BYTES = KEYS * PANEL_ROW;

// `delta` is the sum over channels of out * d_out. LANES lanes add one position of one head.
// Nothing has been added to any tile of queries yet.
KERNEL SIGNATURE(attention_delta) {
    constexpr u32 LANES = HEAD_SIZE <= 64 ? 8 : 16;
    const u32 index = (u32)(((u64)blockIdx.x * 256 + threadIdx.x) / LANES);
    const u32 lane = threadIdx.x % LANES;
    const bool inside = index < lines;
    const u32 head = index % HEADS, token = index / HEADS;
    const u64 at = (u64)token * WIDTH + head * HEAD_SIZE + lane * 8;
    float sum = 0;
    if (inside && lane * 8 < HEAD_SIZE) {
        const Pack<T, 8> a = load<T, 8>(out_btc + at), b = load<T, 8>(d_out_btc + at);
        UNROLL for (int i = 0; i < 8; ++i) sum = fmaf(widen(a.at[i]), widen(b.at[i]), sum);
    }
    UNROLL for (int i = LANES / 2; i > 0; i /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, i);
    if (!inside || lane != 0) return;
    const u32 row = token / positions, position = token % positions;
    const u64 line = (u64)row * HEADS + head;
    delta_bht[line * positions + position] = sum;
    if (position % STEP == 0) turns[line * ceil_divide(positions, STEP) + position / STEP] = 0;
}

// Which keys this block owns. Read anew where it is needed, since registers are few.
DEVICE BlockTile keys_of_block(u32 key_tiles) {
    u32 index;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
    return {index / HEADS / key_tiles, index % HEADS, key_tiles - 1 - index / HEADS % key_tiles};
}

// The sums of one head's queries in memory.
struct QuerySums {
    float *sums;
    u32 *turns;
    u32 rank;
    u32 first;
    u32 tiles;
};

DEVICE u32 turn_of(const QuerySums &to, u32 tile) { return tile / (KEYS / STEP) - to.rank; }

DEVICE float *tile_sums(const QuerySums &to, u32 tile) {
    return to.sums + (u64)tile * (SHARE * MULTIPLYING);
}
