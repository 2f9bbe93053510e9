// Linear layers and the gradients of their inputs on Hopper's warpgroups, with the GELU next to
// them in the same pass: out = x w^T + bias, or x w if DOWN (w's rows are then summed over).
//
// Defined by the host: T, DOWN, HAS_BIAS, GELU (NO_GELU, GELU_OF_SUMS or GELU_SLOPE), TANH, KEEP
// (with GELU_OF_SUMS: write the sums too), AGAIN (with GELU_SLOPE: overwrite GELU's input with its
// result), TILE_ROWS and TILE_COLUMNS of a tile, STAGES, SHARED_BYTES, THREADS.
//
// Included after `gelu.cuh`, `warpgroups.cuh` and `tensor_maps.cuh`.
//
// A block stays on its multiprocessor and computes one tile after another. Its warps have three
// duties, so that copies, matmuls and all the rest overlap:
// - one thread has the copy engine fill a ring of stages with tiles of x and w;
// - two warpgroups multiply, each one half of the tile's rows, and put the rounded sums into shared
//   memory;
// - seven warps take the sums from there, compute GELU, and write the results.

constexpr u32 INNER = 64;
// Columns of a tile are in panels of 64, and so are the copies of w.
constexpr u32 PANELS = TILE_COLUMNS / 64;
constexpr u32 X_BYTES = TILE_ROWS * PANEL_ROW, W_PANEL_BYTES = 64 * PANEL_ROW;
constexpr u32 STAGE_BYTES = X_BYTES + PANELS * W_PANEL_BYTES;
// A warp finishes one unit at a time: eight rows of a panel, four rows with each access.
constexpr u32 UNITS_OF_PANEL = TILE_ROWS / 8, UNIT_BYTES = 8 * PANEL_ROW;
constexpr u32 PANEL_BYTES = UNITS_OF_PANEL * UNIT_BYTES;
constexpr u32 FINISHING_WARPS = 7, MULTIPLYING = 256;
// Units whose GELU inputs are read ahead.
constexpr u32 AHEAD = 2;
// Registers of a thread that multiplies, and of one that does not.
constexpr int MULTIPLYING_REGISTERS = 144, OTHER_REGISTERS = 112;

// The numbers of `linear_hopper.rs`.
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

// Barriers: a piece's sums are in shared memory; they have been taken from it.
DEVICE u32 filled(Shared shared) { return empty(shared, STAGES); }

DEVICE u32 taken(Shared shared) { return filled(shared) + 8; }

static_assert(1024 + STAGES * STAGE_BYTES + PANELS * PANEL_BYTES + (2 * STAGES + 2) * 8 ==
              SHARED_BYTES);
static_assert(THREADS == 32 + FINISHING_WARPS * 32 + MULTIPLYING);

// A place in the ring of stages; the phase changes with each round.
struct Turn {
    u32 stage, phase;
};

DEVICE void advance(Turn &turn) {
    if (++turn.stage == STAGES) turn.stage = 0, turn.phase ^= 1;
}

struct Sizes {
    u32 rows, columns, inner;
};

// What a block computes at a time: a whole tile, or a single panel of one.
struct Piece {
    u32 row, column, panels;
};

// The pieces of the output, by the rule of `WarpgroupLinear::turns`, in order: whole tiles,
// `across` of them side by side; the panels of the last tiles, if these would leave a third of the
// blocks or more without work; the panels to the right of all tiles.
struct Pieces {
    u32 across, whole, divided, narrow, end;
};

DEVICE Pieces pieces_of(const Sizes &sizes) {
    const u32 down = ceil_divide(sizes.rows, TILE_ROWS), across = sizes.columns / TILE_COLUMNS;
    const u32 tiles = down * across, last = tiles % gridDim.x;
    const u32 divided = last * PANELS <= 2 * gridDim.x ? last : 0;
    const u32 narrow = ceil_divide(sizes.columns % TILE_COLUMNS, 64);
    return {across, tiles - divided, divided, narrow,
            tiles - divided + divided * PANELS + down * narrow};
}

DEVICE Piece piece_at(const Pieces &pieces, u32 index) {
    if (index < pieces.whole) {
        return {index / pieces.across * TILE_ROWS, index % pieces.across * TILE_COLUMNS, PANELS};
    }
    index -= pieces.whole;
    if (index < pieces.divided * PANELS) {
        const u32 tile = pieces.whole + index / PANELS;
        return {tile / pieces.across * TILE_ROWS,
                tile % pieces.across * TILE_COLUMNS + index % PANELS * 64, 1};
    }
    index -= pieces.divided * PANELS;
    return {index / pieces.narrow * TILE_ROWS,
            pieces.across * TILE_COLUMNS + index % pieces.narrow * 64, 1};
}

DEVICE void bring(Shared shared, const TensorMap &x, const TensorMap &w, const Sizes &sizes) {
    Turn turn = {0, 0};
    const Pieces pieces = pieces_of(sizes);
    for (u32 index = blockIdx.x; index < pieces.end; index += gridDim.x) {
        const Piece piece = piece_at(pieces, index);
        for (u32 k = 0; k < sizes.inner; k += INNER) {
            wait_barrier(empty(shared, turn.stage), turn.phase ^ 1);
            const u32 barrier = full(shared, turn.stage);
            arrive_expecting(barrier, X_BYTES + piece.panels * W_PANEL_BYTES);
            copy_tile(x_at(shared, turn.stage), x, k, piece.row, barrier);
            for (u32 panel = 0; panel < piece.panels; ++panel) {
                const u32 column = piece.column + panel * 64;
                copy_tile(w_at(shared, turn.stage) + panel * W_PANEL_BYTES, w, DOWN ? column : k,
                          DOWN ? k : column, barrier);
            }
            advance(turn);
        }
    }
}

// The bias of the columns of a result that a thread has.
template <int N> struct Biases {
    u32 at[HAS_BIAS ? N : 1];
};

template <int N> DEVICE Biases<N> load_biases(const T *bias_n, u32 column, u32 columns) {
    Biases<N> biases;
    column += threadIdx.x % 4 * 2;
    UNROLL for (u32 n = 0; HAS_BIAS && n < N; ++n) {
        const u32 here = column + n * 8;
        biases.at[HAS_BIAS ? n : 0] = here < columns ? *(const u32 *)(bias_n + here) : 0;
    }
    return biases;
}

// Adds the bias, rounds, and writes a warpgroup's 64 rows to shared memory.
template <int N>
DEVICE void put_sums(Shared shared, u32 group, const float (&sums)[N][4], const Biases<N> &biases) {
    const u32 row = group * 64 + warp_row();
    UNROLL for (u32 panel = 0; panel < N / 8; ++panel) {
        u32 words[4][4];
        UNROLL for (u32 i = 0; i < 16; ++i) {
            // For each 16 columns: the first eight, of the upper and the lower row; then the others.
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

// Where the warpgroups that multiply are.
struct Progress {
    Turn turn;
    // The phase of `taken` in which the sums of the piece before are taken.
    u32 was_taken;
};

// Multiplies a piece of N times eight columns.
template <int N>
DEVICE void multiply_piece(Shared shared, u32 group, const T *bias_n, const Sizes &sizes,
                           u32 column, Progress &at) {
    float sums[N][4];
    u32 before = 0;
    for (u32 k = 0; k < sizes.inner; k += INNER) {
        wait_barrier(full(shared, at.turn.stage), at.turn.phase);
        const u64 x = matrix_at(x_at(shared, at.turn.stage) + group * 64 * PANEL_ROW, TILE_ROWS);
        const u64 w = matrix_at(w_at(shared, at.turn.stage), 64);
        warpgroup_arrive();
        UNROLL for (int i = 0; i < 4; ++i) {
            warpgroup_multiply<0, DOWN>(sums, x + (i * 32 >> 4),
                                        w + (DOWN ? rows_at(i) : i * 32 >> 4), k > 0 || i > 0);
        }
        warpgroup_commit();
        if (k > 0) {
            warpgroup_wait<1>();
            if (threadIdx.x % 128 == 0) arrive(empty(shared, before));
        }
        before = at.turn.stage;
        advance(at.turn);
    }
    const Biases<N> biases = load_biases<N>(bias_n, column, sizes.columns);
    warpgroup_wait<0>(sums);
    if (threadIdx.x % 128 == 0) arrive(empty(shared, before));
    wait_barrier(taken(shared), at.was_taken);
    at.was_taken ^= 1;
    put_sums(shared, group, sums, biases);
    arrive(filled(shared));
}

DEVICE void multiply(Shared shared, u32 group, const T *bias_n, const Sizes &sizes) {
    Progress at = {{0, 0}, 1};
    const Pieces pieces = pieces_of(sizes);
    u32 index = blockIdx.x;
    // Two loops, so that the sums of both share registers.
    for (; index < pieces.whole; index += gridDim.x) {
        const u32 column = piece_at(pieces, index).column;
        multiply_piece<TILE_COLUMNS / 8>(shared, group, bias_n, sizes, column, at);
    }
    for (; index < pieces.end; index += gridDim.x) {
        const u32 column = piece_at(pieces, index).column;
        multiply_piece<8>(shared, group, bias_n, sizes, column, at);
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

// Both rows of a thread at once, which hides the latencies of one number behind the others.
DEVICE void apply_gelu(Eight (&x)[2]) {
    UNROLL for (int i = 0; i < 8; ++i) {
        u32 &word = x[i / 4].words[i % 4];
        word = pair(gelu(T(), lower_of(word, T())).out, gelu(T(), upper_of(word, T())).out, T());
    }
}

// Multiplies by the slope at x, which becomes GELU's result if AGAIN.
DEVICE void apply_slope(Eight (&d)[2], Eight (&x)[2]) {
    UNROLL for (int i = 0; i < 8; ++i) {
        u32 &to = d[i / 4].words[i % 4], &from = x[i / 4].words[i % 4];
        const Value low = gelu(T(), lower_of(from, T())), high = gelu(T(), upper_of(from, T()));
        to = pair(lower_of(to, T()) * low.slope, upper_of(to, T()) * high.slope, T());
        if (AGAIN) from = pair(low.out, high.out, T());
    }
}

// The matrices that a warp reads and writes, from a piece's first number on, and how many rows and
// columns follow from there.
struct Area {
    T *hidden, *out;
    u32 rows, columns, stride;
};

DEVICE Area area_of(const Piece &piece, T *hidden_mn, T *out_mn, const Sizes &sizes) {
    const u64 first = (u64)piece.row * sizes.columns + piece.column;
    return {hidden_mn + first, out_mn + first, sizes.rows - piece.row,
            sizes.columns - piece.column, sizes.columns};
}

// Where a thread's numbers of a unit are, and which of its two rows exist.
struct Place {
    u32 offset;
    bool exists[2];
};

DEVICE Place place_of(const Area &area, u32 unit) {
    const u32 lane = threadIdx.x % 32;
    const u32 row = unit % UNITS_OF_PANEL * 8 + lane / 8;
    const u32 column = unit / UNITS_OF_PANEL * 64 + lane % 8 * 8;
    const bool is_inside = column < area.columns;
    return {row * area.stride + column,
            {is_inside && row < area.rows, is_inside && row + 4 < area.rows}};
}

DEVICE void read_ahead(Eight (&x)[2], const Area &area, u32 unit) {
    const Place place = place_of(area, unit);
    UNROLL for (u32 i = 0; i < 2; ++i) {
        if (place.exists[i]) x[i] = load_eight(area.hidden + place.offset + i * 4 * area.stride);
    }
}

// Has a unit of GELU's input brought into the L2 cache, 32 bytes by each thread. The reads ahead
// alone are too few to hide the latency of memory.
DEVICE void announce(const Area &area, u32 unit) {
    const u32 lane = threadIdx.x % 32;
    const u32 row = unit % UNITS_OF_PANEL * 8 + lane / 4;
    const u32 column = unit / UNITS_OF_PANEL * 64 + lane % 4 * 16;
    if (row < area.rows && column < area.columns) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(area.hidden + row * area.stride + column));
    }
}

// What a warp does with the sums of a unit; x is GELU's input.
DEVICE void finish_unit(u32 sums, const Area &area, u32 unit, Eight (&x)[2]) {
    const u32 lane = threadIdx.x % 32;
    const Place place = place_of(area, unit);
    T *const hidden = area.hidden + place.offset, *const out = area.out + place.offset;
    Eight found[2];
    UNROLL for (u32 i = 0; i < 2; ++i) {
        const u32 row = i * 4 + lane / 8;
        found[i] = load_shared_eight(sums + unit * UNIT_BYTES + row * PANEL_ROW +
                                     (lane % 8 ^ row) * 16);
    }
    UNROLL for (u32 i = 0; GELU == GELU_OF_SUMS && KEEP && i < 2; ++i) {
        if (place.exists[i]) store_eight(hidden + i * 4 * area.stride, found[i]);
    }
    if (GELU == GELU_OF_SUMS) apply_gelu(found);
    if (GELU == GELU_SLOPE) apply_slope(found, x);
    UNROLL for (u32 i = 0; i < 2; ++i) {
        if (!place.exists[i]) continue;
        store_eight(out + i * 4 * area.stride, found[i]);
        if (GELU == GELU_SLOPE && AGAIN) store_eight(hidden + i * 4 * area.stride, x[i]);
    }
}

// Finishes a piece when its sums are there, and announces the next one.
DEVICE void finish_piece(Shared shared, u32 phase, u32 units, const Area &area, u32 next_units,
                         const Area &next) {
    const u32 warp = threadIdx.x / 32 - 1;
    Eight x[AHEAD][2];
    UNROLL for (u32 i = 0; GELU == GELU_SLOPE && i < AHEAD; ++i) {
        const u32 unit = warp + i * FINISHING_WARPS;
        if (unit < units) read_ahead(x[i], area, unit);
    }
    for (u32 unit = warp; GELU == GELU_SLOPE && unit < next_units; unit += FINISHING_WARPS) {
        announce(next, unit);
    }
    wait_barrier(filled(shared), phase);
    _Pragma("unroll 1") for (u32 first = warp; first < units; first += AHEAD * FINISHING_WARPS) {
        UNROLL for (u32 i = 0; i < AHEAD; ++i) {
            const u32 unit = first + i * FINISHING_WARPS, later = unit + AHEAD * FINISHING_WARPS;
            if (unit >= units) break;
            finish_unit(sums_at(shared), area, unit, x[i]);
            if (GELU == GELU_SLOPE && later < units) read_ahead(x[i], area, later);
        }
    }
    arrive(taken(shared));
}

DEVICE void finish(Shared shared, T *hidden_mn, T *out_mn, const Sizes &sizes) {
    const Pieces pieces = pieces_of(sizes);
    u32 phase = 0;
    for (u32 index = blockIdx.x; index < pieces.end; index += gridDim.x, phase ^= 1) {
        const bool is_last = index + gridDim.x >= pieces.end;
        const Piece piece = piece_at(pieces, index);
        const Piece next = piece_at(pieces, is_last ? index : index + gridDim.x);
        finish_piece(shared, phase, piece.panels * UNITS_OF_PANEL,
                     area_of(piece, hidden_mn, out_mn, sizes),
                     is_last ? 0 : next.panels * UNITS_OF_PANEL,
                     area_of(next, hidden_mn, out_mn, sizes));
    }
}

KERNEL __launch_bounds__(THREADS, 1) SIGNATURE(linear) {
    const Shared shared = {aligned_shared_start()};
    const Sizes sizes = {rows, columns, inner};
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
