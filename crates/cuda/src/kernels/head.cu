// Cross-entropy over a slab of logits. Each row is read once into registers and gives its loss; in
// training it is then overwritten with its own gradient.
//
// Defined by the host: T, VOCABULARY, VEC, THREADS, HELD (a row fits registers), TRAIN,
// EXTRA_SCALE, WEIGHT_SCALARS and INPUT_SCALARS (where each matmul finds its alpha and beta).

constexpr int PACKS = VOCABULARY / VEC;
constexpr int ITEMS = (PACKS + THREADS - 1) / THREADS;

#define DEVICE_MEMBER __device__ __forceinline__

DEVICE float exponential(float x) {
    // The row's numbers have 16 bits or 32; the fast form is exact enough for 16.
    if constexpr (sizeof(T) == 4) return expf(x);
    else return __expf(x);
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
    Pack<T, VEC> held[ITEMS];
#endif
    T *start;

    DEVICE_MEMBER void fetch(int item) {
#if HELD
        held[item] = load<T, VEC>(start + (item * THREADS + threadIdx.x) * VEC);
#endif
    }

    DEVICE_MEMBER Pack<T, VEC> pack(int item) const {
#if HELD
        return held[item];
#else
        return load<T, VEC>(start + (item * THREADS + threadIdx.x) * VEC);
#endif
    }
};

DEVICE bool is_inside(int item) { return item * THREADS + (int)threadIdx.x < PACKS; }

#if HELD
#define FOR_ITEMS UNROLL for (int item = 0; item < ITEMS; ++item)
#else
#define FOR_ITEMS for (int item = 0; item < ITEMS; ++item)
#endif

KERNEL __launch_bounds__(THREADS) SIGNATURE(cross_entropy) {
    if (blockIdx.x >= rows) return;
    Row row;
    row.start = slab_mv + (u64)blockIdx.x * VOCABULARY;
    int target = targets_m[blockIdx.x];
    float most = __uint_as_float(0xff800000u);
    FOR_ITEMS {
        if (!is_inside(item)) continue;
        row.fetch(item);
        Pack<T, VEC> logits = row.pack(item);
        UNROLL for (int i = 0; i < VEC; ++i) most = fmaxf(most, widen(logits.at[i]));
    }
    most = block_max<THREADS>(most);
    float sum = 0.0f;
    FOR_ITEMS {
        if (!is_inside(item)) continue;
        Pack<T, VEC> logits = row.pack(item);
        UNROLL for (int i = 0; i < VEC; ++i) sum += exponential(widen(logits.at[i]) - most);
    }
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x == 0) {
        // -1 means "no target"; the host has checked that all other targets are below the
        // vocabulary.
        float wanted = target < 0 ? 0.0f : widen(row.start[target]);
        token_loss_m[blockIdx.x] = target < 0 ? 0.0f : logf(sum) + (most - wanted);
    }
#if TRAIN
    // The target's logit must be read above before its gradient overwrites it below.
    __syncthreads();
    float scale = target < 0 ? 0.0f : gradient_scale(step, state);
#if EXTRA_SCALE
    scale *= extra_scale(gradient_scale(step, state));
#endif
    float share = scale / sum;
    FOR_ITEMS {
        if (!is_inside(item)) continue;
        Pack<T, VEC> logits = row.pack(item);
        int first = (item * THREADS + threadIdx.x) * VEC;
        UNROLL for (int i = 0; i < VEC; ++i) {
            float gradient = exponential(widen(logits.at[i]) - most) * share;
            if (first + i == target) gradient -= scale;
            narrow(gradient, logits.at[i]);
        }
        store<T, VEC>(row.start + first, logits);
    }
#endif
}
