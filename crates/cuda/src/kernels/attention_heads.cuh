// What attention in every format shares: the sizes of heads, which of them a block works on, where
// its numbers are, and its dropout.
//
// Defined by the host: HEADS, HEAD_SIZE, HEAD_PAD (for tensor cores, which take sixteen numbers at
// a time), DROPOUT.

static_assert(HEAD_PAD % 16 == 0 && HEAD_PAD >= HEAD_SIZE, "a padded head");
constexpr u32 WIDTH = HEADS * HEAD_SIZE;
constexpr u32 QKV_WIDTH = 3 * WIDTH;
// Below every score, but finite, so that the difference of two of them is not NaN.
constexpr float LOWEST = -1e37f;

// Order of blocks: the heads of a sequence, then its tiles in order of rank, then the next
// sequence, so that neighbouring blocks find what they read in the cache.
struct BlockTile {
    u32 row;
    u32 head;
    u32 rank;
};

DEVICE BlockTile tile_of_block(u32 tiles) {
    const u32 rest = blockIdx.x / HEADS;
    return {rest / tiles, blockIdx.x % HEADS, rest % tiles};
}

DEVICE u64 qkv_start(const BlockTile &place, u32 positions) {
    return (u64)place.row * positions * QKV_WIDTH + place.head * HEAD_SIZE;
}

DEVICE u64 out_start(const BlockTile &place, u32 positions) {
    return (u64)place.row * positions * WIDTH + place.head * HEAD_SIZE;
}

DEVICE u64 line_start(const BlockTile &place, u32 positions) {
    return ((u64)place.row * HEADS + place.head) * positions;
}

DEVICE constexpr u32 ceil_divide(u32 x, u32 y) { return (x + y - 1) / y; }

DEVICE float score_scale() { return 1.0f / sqrtf((float)HEAD_SIZE); }

// The dropout of one head; `row` is the key of its query 0.
struct HeadDropout {
    const Step *step;
    Dropout dropout;
    u64 row;
};

DEVICE HeadDropout head_dropout(const Step *step, const Dropout &dropout, const BlockTile &place,
                                u32 positions) {
    if (!DROPOUT) return {step, dropout, 0};
    return {step, dropout, ((step->first_row + place.row) * HEADS + place.head) * positions};
}
