// Linear layers and the gradients of their inputs on Hopper's warpgroups, with the GELU next to
// them in the same pass: out = x w^T + bias, or x w if DOWN (w's rows are then summed over).
//
// Defined by the host: T, DOWN, HAS_BIAS, GELU (NO_GELU, GELU_OF_SUMS or GELU_SLOPE), TANH, KEEP
// (with GELU_OF_SUMS: write the sums too), AGAIN (with GELU_SLOPE: overwrite GELU's input with its
// result), TILE_ROWS and TILE_COLUMNS of a tile, STAGES, SHARED_BYTES.
//
// Included after `gelu.cuh`, `warpgroups.cuh` and `tensor_maps.cuh`.
//
// A block stays on its multiprocessor and computes one tile after another. Its warps have three
// duties, so that copies, matmuls and all the rest overlap:
// - one thread has the copy engine fill a ring of stages with tiles of x and w;
// - two warpgroups multiply, each half of the tile's rows, and put the rounded sums into shared
//   memory;
// - seven warps take the sums from there, compute GELU, and write the results.

constexpr u32 INNER = 64;
constexpr u32 X_BYTES = TILE_ROWS * PANEL_ROW, W_BYTES = TILE_COLUMNS * PANEL_ROW;
constexpr u32 STAGE_BYTES = X_BYTES + W_BYTES;
constexpr u32 PANELS = TILE_COLUMNS / 64, PANEL_BYTES = TILE_ROWS * PANEL_ROW;
constexpr u32 FINISHING_WARPS = 7, MULTIPLYING = 256, THREADS = 512;
// A warp finishes eight rows of a panel at a time, four with each access.
constexpr u32 UNITS = TILE_ROWS / 8 * PANELS;
// Units whose GELU inputs are read ahead.
constexpr u32 AHEAD = 2;
// Registers of a thread that multiplies, and of one that does not.
constexpr int MULTIPLYING_REGISTERS = 144, OTHER_REGISTERS = 112;

enum { NO_GELU, GELU_OF_SUMS, GELU_SLOPE };

// The layout of shared memory: stages, the sums of a tile, barriers.
struct Shared {
    u32 start;
};

DEVICE u32 x_at(Shared shared, u32 stage) { return shared.start + stage * STAGE_BYTES; }

DEVICE u32 w_at(Shared shared, u32 stage) { return x_at(shared, stage) + X_BYTES; }

DEVICE u32 sums_at(Shared shared) { return x_at(shared, STAGES); }

DEVICE u32 full(Shared shared, u32 stage) {
    return sums_at(shared) + PANELS * PANEL_BYTES + stage * 8;
}

DEVICE u32 empty(Shared shared, u32 stage) { return full(shared, STAGES) + stage * 8; }

// Sums of a tile are there, and have been taken.
DEVICE u32 filled(Shared shared) { return empty(shared, STAGES); }

DEVICE u32 taken(Shared shared) { return filled(shared) + 8; }

static_assert(1024 + STAGES * STAGE_BYTES + PANELS * PANEL_BYTES + (2 * STAGES + 2) * 8 <=
              SHARED_BYTES);

// A place in the ring of stages; the phase changes with each round.
struct Turn {
    u32 stage, phase;
};

DEVICE void advance(Turn &turn) {
    if (++turn.stage == STAGES) turn.stage = 0, turn.phase ^= 1;
}

// What all tiles have in common.
struct Sizes {
    u32 tiles, rows, columns, inner;
};

DEVICE u32 tile_row(const Sizes &sizes, u32 tile) {
    return tile / ceil_divide(sizes.columns, TILE_COLUMNS) * TILE_ROWS;
}

DEVICE u32 tile_column(const Sizes &sizes, u32 tile) {
    return tile % ceil_divide(sizes.columns, TILE_COLUMNS) * TILE_COLUMNS;
}

DEVICE void bring(Shared shared, const TensorMap &x, const TensorMap &w, const Sizes &sizes) {
    Turn turn = {0, 0};
    for (u32 tile = blockIdx.x; tile < sizes.tiles; tile += gridDim.x) {
        const u32 row = tile_row(sizes, tile), column = tile_column(sizes, tile);
        for (u32 k = 0; k < sizes.inner; k += INNER) {
            wait_barrier(empty(shared, turn.stage), turn.phase ^ 1);
            const u32 barrier = full(shared, turn.stage);
            arrive_expecting(barrier, STAGE_BYTES);
            copy_tile(x_at(shared, turn.stage), x, k, row, barrier);
            UNROLL for (u32 panel = 0; DOWN && panel < PANELS; ++panel) {
                copy_tile(w_at(shared, turn.stage) + panel * INNER * PANEL_ROW, w,
                          column + panel * 64, k, barrier);
            }
            if (!DOWN) copy_tile(w_at(shared, turn.stage), w, k, column, barrier);
            advance(turn);
        }
    }
}

// The bias of the columns of a result that a thread has.
struct Biases {
    u32 at[HAS_BIAS ? TILE_COLUMNS / 8 : 1];
};

DEVICE Biases load_biases(const T *bias_n, u32 column, u32 columns) {
    Biases biases;
    column += threadIdx.x % 4 * 2;
    UNROLL for (u32 n = 0; HAS_BIAS && n < TILE_COLUMNS / 8; ++n) {
        const u32 here = column + n * 8;
        biases.at[HAS_BIAS ? n : 0] = here < columns ? *(const u32 *)(bias_n + here) : 0;
    }
    return biases;
}

// Adds the bias, rounds, and writes a warpgroup's 64 rows to shared memory.
DEVICE void put_sums(Shared shared, u32 group, const float (&sums)[TILE_COLUMNS / 8][4],
                     const Biases &biases) {
    const u32 row = group * 64 + warp_row();
    UNROLL for (u32 panel = 0; panel < PANELS; ++panel) {
        u32 words[4][4];
        UNROLL for (u32 i = 0; i < 16; ++i) {
            // Of each 16 columns, the rows above and below of the first eight, then of the others.
            const u32 n = panel * 8 + i / 2, half = i % 2 * 2;
            float low = sums[n][half], high = sums[n][half + 1];
            if (HAS_BIAS) {
                low += lower_of(biases.at[HAS_BIAS ? n : 0], T());
                high += upper_of(biases.at[HAS_BIAS ? n : 0], T());
            }
            words[i / 4][i % 4] = pair(low, high, T());
        }
        store_panel(sums_at(shared) + panel * PANEL_BYTES, row, words);
    }
}

DEVICE void multiply(Shared shared, u32 group, const T *bias_n, const Sizes &sizes) {
    Turn turn = {0, 0};
    u32 was_taken = 1;
    float sums[TILE_COLUMNS / 8][4];
    for (u32 tile = blockIdx.x; tile < sizes.tiles; tile += gridDim.x) {
        u32 before = 0;
        for (u32 k = 0; k < sizes.inner; k += INNER) {
            wait_barrier(full(shared, turn.stage), turn.phase);
            const u64 x = matrix_at(x_at(shared, turn.stage) + group * 64 * PANEL_ROW, TILE_ROWS);
            const u64 w = matrix_at(w_at(shared, turn.stage), DOWN ? INNER : TILE_COLUMNS);
            warpgroup_arrive();
            UNROLL for (int i = 0; i < 4; ++i) {
                warpgroup_multiply<0, DOWN>(sums, x + (i * 32 >> 4),
                                            w + (DOWN ? rows_at(i) : i * 32 >> 4), k > 0 || i > 0);
            }
            warpgroup_commit();
            if (k > 0) {
                warpgroup_wait<1>(sums);
                if (threadIdx.x % 128 == 0) arrive(empty(shared, before));
            }
            before = turn.stage;
            advance(turn);
        }
        const Biases biases = load_biases(bias_n, tile_column(sizes, tile), sizes.columns);
        warpgroup_wait<0>(sums);
        if (threadIdx.x % 128 == 0) arrive(empty(shared, before));
        wait_barrier(taken(shared), was_taken);
        was_taken ^= 1;
        put_sums(shared, group, sums, biases);
        arrive(filled(shared));
    }
}

// Eight numbers.
struct Eight {
    u32 words[4];
};

DEVICE Eight load_shared_eight(u32 from) {
    Eight x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.words[0]), "=r"(x.words[1]), "=r"(x.words[2]), "=r"(x.words[3])
                 : "r"(from)
                 : "memory");
    return x;
}

DEVICE Eight load_eight(const T *from) {
    const Pack<u32, 4> x = load<u32, 4>((const u32 *)from);
    return {{x.at[0], x.at[1], x.at[2], x.at[3]}};
}

DEVICE void store_eight(T *to, const Eight &x) {
    store<u32, 4>((u32 *)to, {{x.words[0], x.words[1], x.words[2], x.words[3]}});
}

DEVICE void apply_gelu(Eight &x) {
    UNROLL for (u32 &word : x.words) {
        word = pair(gelu(T(), lower_of(word, T())).out, gelu(T(), upper_of(word, T())).out, T());
    }
}

// Multiplies by the slope at x, which becomes GELU's result if AGAIN.
DEVICE void apply_slope(Eight &d, Eight &x) {
    UNROLL for (int i = 0; i < 4; ++i) {
        const Value low = gelu(T(), lower_of(x.words[i], T()));
        const Value high = gelu(T(), upper_of(x.words[i], T()));
        d.words[i] = pair(lower_of(d.words[i], T()) * low.slope,
                          upper_of(d.words[i], T()) * high.slope, T());
        if (AGAIN) x.words[i] = pair(low.out, high.out, T());
    }
}

// Where a thread has its numbers of a unit, and which of its two rows exist.
struct Place {
    u64 at;
    bool exists[2];
};

// A thread's first row and column of a tile.
struct Corner {
    u32 row, column;
};

DEVICE Place place_of(const Corner &corner, u32 unit, const Sizes &sizes) {
    const u32 row = corner.row + unit / PANELS * 8, column = corner.column + unit % PANELS * 64;
    const bool is_inside = unit < UNITS && column < sizes.columns;
    return {(u64)row * sizes.columns + column,
            {is_inside && row < sizes.rows, is_inside && row + 4 < sizes.rows}};
}

DEVICE void read_ahead(Eight (&x)[2], const T *from, const Corner &corner, u32 unit,
                       const Sizes &sizes) {
    const Place place = place_of(corner, unit, sizes);
    UNROLL for (u32 i = 0; i < 2; ++i) {
        if (place.exists[i]) x[i] = load_eight(from + place.at + i * 4 * sizes.columns);
    }
}

// What a warp does with the sums of a unit.
DEVICE void finish_unit(const Place &place, Eight (&sums)[2], Eight (&x)[2], T *hidden_mn,
                        T *out_mn, u32 columns) {
    UNROLL for (u32 i = 0; GELU == GELU_OF_SUMS && KEEP && i < 2; ++i) {
        if (place.exists[i]) store_eight(hidden_mn + place.at + i * 4 * columns, sums[i]);
    }
    UNROLL for (u32 i = 0; i < 2; ++i) {
        if (GELU == GELU_OF_SUMS) apply_gelu(sums[i]);
        if (GELU == GELU_SLOPE) apply_slope(sums[i], x[i]);
    }
    UNROLL for (u32 i = 0; i < 2; ++i) {
        if (!place.exists[i]) continue;
        store_eight(out_mn + place.at + i * 4 * columns, sums[i]);
        if (GELU == GELU_SLOPE && AGAIN) {
            store_eight(hidden_mn + place.at + i * 4 * columns, x[i]);
        }
    }
}

DEVICE void finish(Shared shared, T *hidden_mn, T *out_mn, const Sizes &sizes) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 1;
    u32 phase = 0;
    for (u32 tile = blockIdx.x; tile < sizes.tiles; tile += gridDim.x, phase ^= 1) {
        const Corner corner = {tile_row(sizes, tile) + lane / 8,
                               tile_column(sizes, tile) + lane % 8 * 8};
        Eight next[AHEAD][2];
        UNROLL for (u32 i = 0; GELU == GELU_SLOPE && i < AHEAD; ++i) {
            read_ahead(next[i], hidden_mn, corner, warp + i * FINISHING_WARPS, sizes);
        }
        wait_barrier(filled(shared), phase);
        _Pragma("unroll 1") for (u32 unit = warp; unit < UNITS; unit += FINISHING_WARPS) {
            Eight sums[2], x[2];
            UNROLL for (u32 i = 0; i < 2; ++i) {
                const u32 row = i * 4 + lane / 8;
                sums[i] = load_shared_eight(sums_at(shared) + unit % PANELS * PANEL_BYTES +
                                            (unit / PANELS * 8 + row) * PANEL_ROW +
                                            (lane % 8 ^ row) * 16);
                x[i] = next[0][i];
                UNROLL for (u32 n = 0; n + 1 < AHEAD; ++n) next[n][i] = next[n + 1][i];
            }
            if (GELU == GELU_SLOPE) {
                read_ahead(next[AHEAD - 1], hidden_mn, corner, unit + AHEAD * FINISHING_WARPS,
                           sizes);
            }
            finish_unit(place_of(corner, unit, sizes), sums, x, hidden_mn, out_mn, sizes.columns);
        }
        arrive(taken(shared));
    }
}

KERNEL __launch_bounds__(THREADS, 1) SIGNATURE(linear) {
    if (tiles == 0) return;
    const Shared shared = {aligned_shared_start()};
    const Sizes sizes = {tiles, rows, columns, inner};
    if (threadIdx.x == 0) {
        for (u32 stage = 0; stage < STAGES; ++stage) {
            init_barrier(full(shared, stage), 1);
            init_barrier(empty(shared, stage), MULTIPLYING / 128);
        }
        init_barrier(filled(shared), MULTIPLYING);
        init_barrier(taken(shared), FINISHING_WARPS * 32);
        publish_barriers();
    }
    __syncthreads();
    if (warpgroup() >= 2) {
        take_registers<MULTIPLYING_REGISTERS>();
        multiply(shared, warpgroup() - 2, bias_n, sizes);
    } else {
        give_registers_up<OTHER_REGISTERS>();
        if (threadIdx.x >= 32) finish(shared, hidden_mn, out_mn, sizes);
        if (threadIdx.x == 0) bring(shared, x, w, sizes);
    }
}
