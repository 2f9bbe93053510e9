// Matmuls on tensor cores for attention: instructions that C++ lacks, which lane of a warp holds
// which numbers, tiles from global to shared memory, and rows that are left operands. What depends
// on the format is in `tensor_16bit.cuh` and `tensor_tf32.cuh`, one of which follows.
//
// Included after `attention_heads.cuh` and `shared_memory.cuh`. Defined by the host: T, the format; LINE, the numbers of a
// row in shared memory: 16 bytes more than HEAD_PAD, so that the eight rows of one matrix load never
// meet in a bank.

constexpr int CHANNEL_TILES = HEAD_PAD / 16;
constexpr u32 LINE_BYTES = LINE * sizeof(T);
// Numbers of a 16-byte copy, and whether every head begins where one may begin.
constexpr u32 CHUNK = 16 / sizeof(T);
constexpr bool ALIGNED = HEAD_SIZE % CHUNK == 0;
// Steps of a matmul over the channels: an instruction takes 32 bytes of each row.
constexpr int STEPS = HEAD_PAD * sizeof(T) / 32;

// In the format's own file.

// sum (16 x 8) += a b, where a has 16 rows of 32 bytes and b 8 columns.
DEVICE void multiply_add(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1, T);

// Rounds what is not yet in the operands' format.
DEVICE u32 operand(u32 x);

DEVICE void store_shared(u32 to, T x);

// Instructions that C++ lacks.

// Starts a copy of 16 bytes, of which those from `size` on become zero.
DEVICE void copy_16(u32 to, const void *from, u32 size) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size)
                 : "memory");
}

DEVICE void copy_4(u32 to, const void *from, u32 size) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(size)
                 : "memory");
}

DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

DEVICE Pack<float, 2> load_shared(u32 from) {
    Pack<float, 2> x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.at[0]), "=f"(x.at[1]) : "r"(from));
    return x;
}

// Four 8 x 8 matrices; lane 8 i + j gives the address of row j of matrix i.
DEVICE void load_matrices(u32 (&to)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from));
}

DEVICE float fast_log2(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Lanes and blocks.

// In the result of a matmul, a lane has rows lane / 4 and that + 8, columns 2 (lane % 4) and the
// next, of each tile of 16 x 8: numbers 0, 1 in the upper row, 2, 3 in the lower.
DEVICE u32 lane_row() { return threadIdx.x % 32 / 4; }

DEVICE u32 lane_column() { return threadIdx.x % 4 * 2; }

DEVICE float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

DEVICE float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// Word i becomes word i ^ place. Uses selects, since registers cannot be indexed.
DEVICE void permute_words(u32 (&words)[4], u32 place) {
    const bool odd = place & 1, upper = place & 2;
    u32 w0 = odd ? words[1] : words[0], w1 = odd ? words[0] : words[1];
    u32 w2 = odd ? words[3] : words[2], w3 = odd ? words[2] : words[3];
    words[0] = upper ? w2 : w0, words[1] = upper ? w3 : w1;
    words[2] = upper ? w0 : w2, words[3] = upper ? w1 : w3;
}

// Four lanes, STRIDE apart, exchange words: word i becomes what lane i had at this lane's place.
template <int STRIDE> DEVICE void transpose_words(u32 (&words)[4]) {
    const u32 place = threadIdx.x / STRIDE % 4;
    permute_words(words, place);
    UNROLL for (int i = 1; i < 4; ++i) {
        words[i] = __shfl_xor_sync(0xffffffffu, words[i], i * STRIDE);
    }
    permute_words(words, place);
}

// Tiles between global and shared memory.

// For heads that a 16-byte copy cannot read.
template <int COUNT, int THREADS, u32 STRIDE>
DEVICE void copy_numbers(u32 to, const T *from, u32 first, u32 limit) {
    for (u32 i = threadIdx.x; i < COUNT * HEAD_PAD; i += THREADS) {
        const u32 row = i / HEAD_PAD, channel = i % HEAD_PAD;
        T x = T();
        if (first + row < limit && channel < HEAD_SIZE) {
            x = from[(u64)(first + row) * STRIDE + channel];
        }
        store_shared(to + row * LINE_BYTES + channel * sizeof(T), x);
    }
}

// Starts to copy rows `first ..` of one head. Rows from `limit` on, and channels past the head's
// size, become zero.
template <int COUNT, int THREADS, u32 STRIDE>
DEVICE void copy_rows(u32 to, const T *from, u32 first, u32 limit) {
    if (!ALIGNED) return copy_numbers<COUNT, THREADS, STRIDE>(to, from, first, limit);
    constexpr u32 CHUNKS = HEAD_PAD / CHUNK;
    // When the threads fill whole rows, a thread stays in its column and addresses are constants.
    constexpr bool STRAIGHT = THREADS % CHUNKS == 0;
    from += (u64)first * STRIDE;
    UNROLL for (u32 i = 0; i < ceil_divide(COUNT * CHUNKS, THREADS); ++i) {
        u32 row = threadIdx.x / CHUNKS + i * (THREADS / CHUNKS), chunk = threadIdx.x % CHUNKS;
        if (!STRAIGHT) {
            row = (threadIdx.x + i * THREADS) / CHUNKS;
            chunk = (threadIdx.x + i * THREADS) % CHUNKS;
        }
        if (COUNT * CHUNKS % THREADS != 0 && row >= COUNT) break;
        const bool inside = first + row < limit && chunk * CHUNK < HEAD_SIZE;
        copy_16(to + row * LINE_BYTES + chunk * 16, from + (u64)row * STRIDE + chunk * CHUNK,
                inside ? 16 : 0);
    }
}

// Matmuls.

// Where a lane reads 16 rows of 32 bytes: its matrices are the upper and the lower rows of the first
// eight columns, then of the others. This is the order of a left operand, and of a right operand
// that is transposed on the way.
DEVICE u32 left_offset() {
    return threadIdx.x % 16 * LINE_BYTES + threadIdx.x / 16 % 2 * 16;
}

// The same with the columns first, the order of a right operand that is not transposed: a matmul
// takes two of its registers, which must be adjacent.
DEVICE u32 right_offset() {
    return (threadIdx.x % 8 + threadIdx.x / 16 % 2 * 8) * LINE_BYTES + threadIdx.x / 8 % 2 * 16;
}

// TILES x 16 rows that a warp owns, the left operand of its matmuls.
template <int TILES, bool HELD> struct Rows {
    u32 address;
    u32 held[HELD ? TILES : 1][HELD ? STEPS : 1][4];
};

template <int TILES, bool HELD> DEVICE void hold(Rows<TILES, HELD> &rows, u32 address) {
    rows.address = address + left_offset();
    UNROLL for (int tile = 0; HELD && tile < TILES; ++tile) {
        UNROLL for (int k = 0; k < STEPS; ++k) {
            load_matrices(rows.held[HELD ? tile : 0][HELD ? k : 0],
                          rows.address + tile * 16 * LINE_BYTES + k * 32);
        }
    }
}

template <int TILES, bool HELD>
DEVICE void fetch(u32 (&to)[TILES][4], const Rows<TILES, HELD> &rows, int k) {
    UNROLL for (int tile = 0; tile < TILES; ++tile) {
        if (!HELD) load_matrices(to[tile], rows.address + tile * 16 * LINE_BYTES + k * 32);
        UNROLL for (int i = 0; HELD && i < 4; ++i) {
            to[tile][i] = rows.held[HELD ? tile : 0][HELD ? k : 0][i];
        }
    }
}

// sums += rows columns^T, for COUNT rows of shared memory from `columns` on.
template <int COUNT, int TILES, bool HELD>
DEVICE void multiply_by_transposed(float (&sums)[TILES][COUNT / 8][4],
                                   const Rows<TILES, HELD> &rows, u32 columns) {
    UNROLL for (int k = 0; k < STEPS; ++k) {
        u32 a[TILES][4];
        fetch(a, rows, k);
        UNROLL for (int n = 0; n < COUNT / 16; ++n) {
            u32 b[4];
            load_matrices(b, columns + right_offset() + n * 16 * LINE_BYTES + k * 32);
            UNROLL for (u32 &word : b) word = operand(word);
            UNROLL for (int tile = 0; tile < TILES; ++tile) {
                multiply_add(sums[tile][2 * n], a[tile], b[0], b[1], T());
                multiply_add(sums[tile][2 * n + 1], a[tile], b[2], b[3], T());
            }
        }
    }
}
