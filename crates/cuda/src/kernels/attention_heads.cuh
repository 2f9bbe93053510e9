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

DEVICE float score_scale() { return 1.0f / sqrtf((float)HEAD_SIZE); }

// The dropout of one head, which is counted over the whole iteration.
struct HeadDropout {
    Dropout dropout;
    u32 head;
    u32 key[2];
};

// Draws need registers: with dropout, what only depends on the thread is computed for each tile.
DEVICE u32 thread_anew() {
    if (!DROPOUT) return threadIdx.x;
    u32 thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

// Not kept in registers from one read to the next.
DEVICE u32 read_anew(const void *from) {
    u32 word;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(word) : "l"(from));
    return word;
}

DEVICE HeadDropout head_dropout(const Step *step, const Dropout &dropout, const BlockTile &place) {
    if (!DROPOUT) return {};
    // The lower word of a number of 64 bits comes first.
    return {dropout,
            (read_anew(&step->first_row) + place.row) * HEADS + place.head,
            {read_anew(step->dropout_key), read_anew(step->dropout_key + 1)}};
}

// The call of the generator that a query and a key share with seven other pairs: those that a lane
// has in the result of a matmul, 16 queries x 16 keys.
DEVICE Words attention_words(const HeadDropout &head, u32 query, u32 key) {
    return philox<7>(head.head, query / 16 * 8 + query % 8, key / 16 * 4 + key % 8 / 2,
                     head.dropout.tag, head.key[0], head.key[1]);
}

DEVICE bool is_element_kept(const HeadDropout &head, u32 query, u32 key) {
    const Words words = attention_words(head, query, key);
    const u32 word = word_of(words, key % 2 * 2 + key / 8 % 2);
    return reaches(query / 8 % 2 ? word : word << 16, 1, head.dropout.threshold);
}

// The draws for what a lane has in the result of a matmul, 16 rows x 16 columns. `row` and `column`
// are the position of the lane's first number. `is_kept` reads them.

DEVICE Words draws_for_queries(const HeadDropout &head, u32 row, u32 column) {
    return attention_words(head, row, column);
}

// The same where rows are keys. A lane needs half of two calls, for two queries, and the lane with
// the key beside its own the other halves. Each makes one of the calls, and they exchange halves:
// the words for even keys and those for odd keys. The result has two words for the first query,
// then two for the second.
DEVICE Words draws_for_keys(const HeadDropout &head, u32 row, u32 column) {
    const bool odd = threadIdx.x & 4;
    const Words mine = attention_words(head, column + (odd ? 1 : 0), row);
    Words words;
    UNROLL for (int i = 0; i < 2; ++i) {
        const u32 given = __shfl_xor_sync(0xffffffffu, odd ? mine.at[i] : mine.at[i + 2], 4);
        words.at[i] = odd ? given : mine.at[i];
        words.at[i + 2] = odd ? mine.at[i + 2] : given;
    }
    return words;
}

// Whether number i of the left (0) or right (1) eight columns is kept.
template <bool KEYS_DOWN>
DEVICE bool is_kept(const HeadDropout &head, const Words &words, int side, int i) {
    const int word = i % 2 * 2 + (KEYS_DOWN ? i / 2 : side);
    return reaches(words.at[word], KEYS_DOWN ? side : i / 2, head.dropout.threshold);
}
