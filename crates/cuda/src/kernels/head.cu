// Cross-entropy over a slab of logits. Each row is read once into registers and gives its loss; in
// training it is then overwritten with its own gradient.
//
// Defined by the host: T, VOCABULARY, COLUMNS (the vocabulary and the padding behind it), VEC,
// THREADS, HELD (a row fits registers), THREADS_OF_ONE_BLOCK (with so many, a multiprocessor has
// room for one block, else for two), TRAIN, EXTRA_SCALE, WEIGHT_SCALARS and INPUT_SCALARS (where
// each matmul finds its alpha and beta).

constexpr int PACKS = COLUMNS / VEC;
constexpr int ITEMS = (PACKS + THREADS - 1) / THREADS;
// The first item that has padding in some thread; none if there is no padding.
constexpr int PADDED_ITEM = COLUMNS > VOCABULARY ? VOCABULARY / VEC / THREADS : ITEMS;

#define DEVICE_MEMBER __device__ __forceinline__

// exp(x - most). For 16-bit numbers one fused multiply-add and one instruction are exact enough;
// `shift` is then the largest number times log2(e), otherwise that number.
DEVICE float exponential(float x, float shift) {
    if constexpr (sizeof(T) == 4) return expf(x - shift);
    else return fast_exp2(fmaf(x, LOG2_E, -shift));
}

// The larger of each of two pairs of 16-bit numbers.
DEVICE u32 larger_pair(bf16, u32 a, u32 b) {
    u32 y;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}

DEVICE u32 larger_pair(f16, u32 a, u32 b) {
    u32 y;
    asm("max.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}

// The largest of a pack's numbers; a NaN counts only if all are.
template <class Number, int COUNT> DEVICE float largest(const Held<Number, COUNT> &pack) {
    if constexpr (sizeof(Number) == 2 && COUNT % 2 == 0) {
        u32 pair = pack.words[0];
        UNROLL for (int i = 1; i < COUNT / 2; ++i) {
            pair = larger_pair(Number(), pair, pack.words[i]);
        }
        return fmaxf(widen(Number{(u16)pair}), widen(Number{(u16)(pair >> 16)}));
    } else {
        float most = number(pack, 0);
        UNROLL for (int i = 1; i < COUNT; ++i) most = fmaxf(most, number(pack, i));
        return most;
    }
}

// A pack from memory. The padding's logits count as -infinity, so that they get no share.
template <class Number> DEVICE Held<Number, VEC> hold_logits(const Number *start, int item) {
    int first = (item * THREADS + (int)threadIdx.x) * VEC;
    Held<Number, VEC> held = hold<Number, VEC>(start + first);
    if (item >= PADDED_ITEM && first + VEC > VOCABULARY) {
        UNROLL for (int i = 0; i < VEC; ++i) {
            if (first + i < VOCABULARY) continue;
            if constexpr (sizeof(Number) == 4) {
                held.words[i] = 0xff800000u;
            } else {
                u32 least = rounded<Number>(__uint_as_float(0xff800000u)).bits;
                u32 kept = VEC == 1 ? 0 : 0xffffu << (1 - i % 2) * 16;
                held.words[i / 2] = (held.words[i / 2] & kept) | least << i % 2 * 16;
            }
        }
    }
    return held;
}

// The factor on the loss's gradient: 1 / tokens times the loss scale.
DEVICE float gradient_scale(const Step *step, const State *state) {
    return step->inverse_tokens * state->loss_scale;
}

// fp16 gradients of logits would be subnormal. A power of two lifts the scale to [128, 256), and
// the matmuls that read them divide by it again.
DEVICE float extra_scale(float scale) {
    int exponent = (int)(__float_as_uint(scale) >> 23 & 0xff) - 127;
    int lift = 7 - exponent;
    lift = lift > 100 ? 100 : lift < -100 ? -100 : lift;
    return __uint_as_float((u32)(lift + 127) << 23);
}

// alpha and beta of the two matmuls that follow: the weight's gradient accumulates, the input's
// does not.
KERNEL SIGNATURE(head_scalars) {
    if (blockIdx.x >= blocks || threadIdx.x > 0) return;
    float alpha = 1.0f / extra_scale(gradient_scale(step, state));
    scalars[WEIGHT_SCALARS] = alpha;
    scalars[WEIGHT_SCALARS + 1] = 1.0f;
    scalars[INPUT_SCALARS] = alpha;
    scalars[INPUT_SCALARS + 1] = 0.0f;
}

// The row's numbers: from registers, or from memory again if the row is too long for them.
struct Row {
#if HELD
    Held<T, VEC> held[ITEMS];
#endif
    T *start;

    DEVICE_MEMBER void fetch(int item) {
#if HELD
        held[item] = hold_logits(start, item);
#endif
    }

    DEVICE_MEMBER Held<T, VEC> pack(int item) const {
#if HELD
        return held[item];
#else
        return hold_logits(start, item);
#endif
    }
};

DEVICE bool is_inside(int item) { return item * THREADS + (int)threadIdx.x < PACKS; }

#if HELD
#define FOR_ITEMS UNROLL for (int item = 0; item < ITEMS; ++item)
#else
#define FOR_ITEMS _Pragma("unroll 2") for (int item = 0; item < ITEMS; ++item)
#endif

constexpr int BLOCKS = THREADS == THREADS_OF_ONE_BLOCK ? 1 : 2;

KERNEL __launch_bounds__(THREADS, BLOCKS) SIGNATURE(cross_entropy) {
    if (blockIdx.x >= rows) return;
    Row row;
    row.start = slab_mv + (u64)blockIdx.x * COLUMNS;
    int target = targets_m[blockIdx.x];
    float most = __uint_as_float(0xff800000u);
    FOR_ITEMS {
        if (!is_inside(item)) continue;
        row.fetch(item);
        most = fmaxf(most, largest(row.pack(item)));
    }
    most = block_max<THREADS>(most);
    float shift = sizeof(T) == 4 ? most : most * LOG2_E;
    float sum = 0.0f;
    FOR_ITEMS {
        if (!is_inside(item)) continue;
        Held<T, VEC> logits = row.pack(item);
        UNROLL for (int i = 0; i < VEC; ++i) sum += exponential(number(logits, i), shift);
    }
    // -1 means "no target"; the host has checked that all other targets are below the vocabulary.
    // The target's logit is read before its gradient overwrites it: every thread passes the barrier
    // of the sum in between.
    float wanted = target < 0 ? 0.0f : widen(row.start[target]);
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x == 0) token_loss_m[blockIdx.x] = target < 0 ? 0.0f : logf(sum) + (most - wanted);
#if TRAIN
    float scale = target < 0 ? 0.0f : gradient_scale(step, state);
#if EXTRA_SCALE
    scale *= extra_scale(gradient_scale(step, state));
#endif
    float share = scale / sum;
    FOR_ITEMS {
        if (!is_inside(item)) continue;
        Held<T, VEC> logits = row.pack(item);
        forget(logits);
        Pack<T, VEC> gradients;
        int first = (item * THREADS + threadIdx.x) * VEC;
        UNROLL for (int i = 0; i < VEC; ++i) {
            narrow(exponential(number(logits, i), shift) * share, gradients.at[i]);
        }
        store<T, VEC>(row.start + first, gradients);
    }
    // The thread that has just written the target's column subtracts 1 there.
    if (target >= 0 && target / VEC % THREADS == threadIdx.x) {
        narrow(exponential(wanted, shift) * share - scale, row.start[target]);
    }
#endif
}
