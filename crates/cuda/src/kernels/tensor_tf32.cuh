// What matmuls on tensor cores do with f32: operands are rounded to TF32, sums are f32. A step is
// eight channels.
//
// Included after `tensor_cores.cuh`.

// To the nearest number that has ten bits of fraction, ties away from zero: tensor cores ignore the
// 13 bits below. One addition would do, but would turn the NaN with all bits set into zero; with the
// maximum it is still one instruction on Hopper, and less than a conversion elsewhere.
DEVICE u32 operand(u32 x) {
    const int rounded = (int)(x + 0x1000);
    return (u32)(rounded > (int)x ? rounded : (int)x);
}

DEVICE u32 operand(float x) { return operand(__float_as_uint(x)); }

DEVICE void store_shared(u32 to, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
}

// sum (16 x 8) += a (16 x 8) b (8 x 8). Sums are read and written apart, so that a first sum, zero,
// needs no registers.
DEVICE void multiply_add(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1, float) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(sum[0]),
                   "f"(sum[1]), "f"(sum[2]), "f"(sum[3]));
}

// Channels that a lane reads of a row at a time, and that one of its results has beside each other.
constexpr int WIDE = HEAD_PAD % 32 == 0 ? 4 : 2;

DEVICE void load_words(u32 (&to)[4], u32 from) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from));
}

DEVICE void load_words(u32 (&to)[2], u32 from) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(from));
}

DEVICE void store_words(u32 to, const u32 (&words)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]),
                 "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
}

// Rounds rows in shared memory that this thread has copied by `copy_rows`: those that are read many
// times as left operands.
template <int COUNT, int THREADS> DEVICE void round_rows(u32 rows) {
    constexpr u32 CHUNKS = HEAD_PAD / CHUNK;
    // What was copied number by number is another thread's.
    if (!ALIGNED) __syncthreads();
    UNROLL for (u32 i = 0; i < ceil_divide(COUNT * CHUNKS, THREADS); ++i) {
        const u32 at = threadIdx.x + i * THREADS;
        if (COUNT * CHUNKS % THREADS != 0 && at >= COUNT * CHUNKS) break;
        const u32 to = rows + at / CHUNKS * LINE_BYTES + at % CHUNKS * 16;
        u32 words[4];
        load_words(words, to);
        UNROLL for (u32 &word : words) word = operand(word);
        store_words(to, words);
    }
}

// Results.

// Writes 16 rows from `channel` on, each half of them multiplied by its factor; only the first
// `limit` rows exist.
template <u32 STRIDE, int TILES>
DEVICE void store_rows(T *to, int limit, const float (&rows)[TILES][4], float upper, float lower) {
    UNROLL for (int half = 0; half < 2; ++half) {
        const float factor = half ? lower : upper;
        const int row = lane_row() + 8 * half;
        if (row >= limit) continue;
        UNROLL for (int n = 0; n < TILES; n += WIDE) {
            UNROLL for (int odd = 0; odd < 2; ++odd) {
                const u32 channel = n * 8 + (lane_column() + odd) * WIDE;
                Pack<float, WIDE> pack;
                UNROLL for (int i = 0; i < WIDE; ++i) {
                    pack.at[i] = rows[n + i][2 * half + odd] * factor;
                }
                float *at = to + (u64)row * STRIDE + channel;
                if (ALIGNED && channel < HEAD_SIZE) store<float, WIDE>(at, pack);
                UNROLL for (int i = 0; !ALIGNED && i < WIDE; ++i) {
                    if (channel + i < HEAD_SIZE) at[i] = pack.at[i];
                }
            }
        }
    }
}

// A left operand with COUNT columns.
template <int COUNT> struct Weights {
    u32 at[COUNT / 8][4];
};

// sums += weights rows, for COUNT rows of shared memory from `rows` on. Column l of a left operand
// is row 2 l of each eight, and column l + 4 is row 2 l + 1: those that the lane has as results.
// Column g of the i-th of WIDE results is channel WIDE g + i.
template <int COUNT, int TILES>
DEVICE void multiply(float (&sums)[TILES][CHANNEL_TILES * 2][4],
                     const Weights<COUNT> (&weights)[TILES], u32 rows) {
    rows += lane_column() * LINE_BYTES + lane_row() * WIDE * 4;
    UNROLL for (int k = 0; k < COUNT / 8; ++k) {
        UNROLL for (int n = 0; n < CHANNEL_TILES * 2; n += WIDE) {
            u32 even[WIDE], odd[WIDE];
            load_words(even, rows + k * 8 * LINE_BYTES + n * 32);
            load_words(odd, rows + (k * 8 + 1) * LINE_BYTES + n * 32);
            UNROLL for (int i = 0; i < WIDE; ++i) {
                even[i] = operand(even[i]), odd[i] = operand(odd[i]);
                UNROLL for (int tile = 0; tile < TILES; ++tile) {
                    multiply_add(sums[tile][n + i], weights[tile].at[k], even[i], odd[i], T());
                }
            }
        }
    }
}

// Turns a result of a matmul into the left operand of the next.
template <int COUNT>
DEVICE void weights_from(Weights<COUNT> &weights, const float (&tiles)[COUNT / 8][4]) {
    UNROLL for (int n = 0; n < COUNT / 8; ++n) {
        UNROLL for (int i = 0; i < 4; ++i) {
            weights.at[n][i] = operand(tiles[n][i % 2 * 2 + i / 2]);
        }
    }
}
