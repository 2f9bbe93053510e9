// What matmuls on tensor cores do with a 16-bit format: a step is 16 channels.
//
// Included after `tensor_cores.cuh`.

DEVICE u32 operand(u32 x) { return x; }

template <int COUNT, int THREADS> DEVICE void round_rows(u32) {}

DEVICE void store_shared(u32 to, T x) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(x.bits) : "memory");
}

DEVICE void load_transposed(u32 (&to)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from));
}

// sum (16 x 8) += a (16 x 16) b (16 x 8). The last argument only chooses the format. Sums are read
// and written apart, so that a first sum, zero, needs no registers.
DEVICE void multiply_add(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1, bf16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(sum[0]),
                   "f"(sum[1]), "f"(sum[2]), "f"(sum[3]));
}

DEVICE void multiply_add(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1, f16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(sum[0]),
                   "f"(sum[1]), "f"(sum[2]), "f"(sum[3]));
}

// Results.

// Writes eight channels of a row, as far as the head has them.
DEVICE void store_chunk(T *row, u32 channel, const u32 (&words)[4]) {
    if (ALIGNED && channel < HEAD_SIZE) {
        store<u32, 4>((u32 *)(row + channel), {{words[0], words[1], words[2], words[3]}});
    }
    UNROLL for (u32 i = 0; !ALIGNED && i < 8; ++i) {
        if (channel + i < HEAD_SIZE) row[channel + i].bits = (u16)(words[i / 2] >> (i % 2 * 16));
    }
}

// Writes 16 rows from `channel` on, each half of them multiplied by its factor; only the first
// `limit` rows exist. Lanes exchange pairs so that each writes 16 bytes.
template <u32 STRIDE, int TILES>
DEVICE void store_rows(T *to, int limit, const float (&rows)[TILES][4], float upper, float lower,
                       u32 channel = 0) {
    UNROLL for (int half = 0; half < 2; ++half) {
        const float factor = half ? lower : upper;
        const int row = lane_row() + 8 * half;
        UNROLL for (int tile = 0; tile < TILES; tile += 4) {
            u32 words[4];
            UNROLL for (int i = 0; i < 4; ++i) {
                const int from = tile + i < TILES ? tile + i : tile;
                words[i] = pair(rows[from][2 * half] * factor, rows[from][2 * half + 1] * factor,
                                T());
            }
            transpose_words<1>(words);
            const u32 mine = tile + threadIdx.x % 4;
            if (row < limit && mine < TILES) {
                store_chunk(to + (u64)row * STRIDE, channel + mine * 8, words);
            }
        }
    }
}

// A left operand with COUNT columns.
template <int COUNT> struct Weights {
    u32 at[COUNT / 16][4];
};

// sums += weights rows, for COUNT rows of shared memory from `rows` on.
template <int COUNT, int TILES>
DEVICE void multiply(float (&sums)[TILES][CHANNEL_TILES * 2][4],
                     const Weights<COUNT> (&weights)[TILES], u32 rows) {
    UNROLL for (int k = 0; k < COUNT / 16; ++k) {
        UNROLL for (int n = 0; n < CHANNEL_TILES; ++n) {
            u32 b[4];
            load_transposed(b, rows + left_offset() + k * 16 * LINE_BYTES + n * 32);
            UNROLL for (int tile = 0; tile < TILES; ++tile) {
                multiply_add(sums[tile][2 * n], weights[tile].at[k], b[0], b[1], T());
                multiply_add(sums[tile][2 * n + 1], weights[tile].at[k], b[2], b[3], T());
            }
        }
    }
}

// Turns a result of a matmul into the left operand of the next: a lane holds the same positions in
// both.
template <int COUNT>
DEVICE void weights_from(Weights<COUNT> &weights, const float (&tiles)[COUNT / 8][4]) {
    UNROLL for (int n = 0; n < COUNT / 8; ++n) {
        weights.at[n / 2][n % 2 * 2] = pair(tiles[n][0], tiles[n][1], T());
        weights.at[n / 2][n % 2 * 2 + 1] = pair(tiles[n][2], tiles[n][3], T());
    }
}
