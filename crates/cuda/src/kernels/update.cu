// The update: norm of all gradients, loss scale and clip factor, AdamW. What changes from step to
// step is read from device memory, so the kernels never wait for the host.
//
// Defined by the host: NORM_BLOCK (elements of a partial sum), MOMENT (format of m and v), MASTER
// (format of what is kept of weights), COPY (format of their copy), HAS_COPY, SPLIT (the copy is the
// upper half of the weights), ROUND_STOCHASTICALLY, THREADS, PACK (elements that a thread takes at a
// time).

// In f64, so that no square of a finite f32 overflows or becomes zero.
KERNEL __launch_bounds__(THREADS) SIGNATURE(norm_partials) {
    if (blockIdx.x >= blocks) return;
    u64 first = (u64)blockIdx.x * NORM_BLOCK;
    u64 last = elements - first < NORM_BLOCK ? elements : first + NORM_BLOCK;
    double sum = 0.0;
    for (u64 i = first + threadIdx.x; i < last; i += THREADS) {
        double x = gradients[i];
        sum = fma(x, x, sum);
    }
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

DEVICE void set_norm(double squares, State *state) {
    if (threadIdx.x > 0) return;
    float norm = (float)(sqrt(squares) / state->loss_scale);
    state->grad_norm = norm;
    state->found_inf = (__float_as_uint(norm) & 0x7f800000u) == 0x7f800000u;
}

KERNEL __launch_bounds__(THREADS) SIGNATURE(norm_total) {
    if (blocks == 0) return;
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < blocks; i += THREADS) sum += partials[i];
    set_norm(block_sum<THREADS>(sum), state);
}

// The same from the sums of all ranks. Only one rank has summed a block, the others have 0 there, so
// that a block's sum has the bits it has on one rank.
KERNEL __launch_bounds__(THREADS) SIGNATURE(norm_of_sums) {
    if (blocks == 0) return;
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < blocks; i += THREADS) {
        double of_block = partials[i];
        for (u32 rank = 1; rank < ranks; ++rank) of_block += partials[(u64)rank * blocks + i];
        sum += of_block;
    }
    set_norm(block_sum<THREADS>(sum), state);
}

// PyTorch's GradScaler and clip_grad_norm_. With an interval of 0, the loss is not scaled.
KERNEL SIGNATURE(loss_scaler) {
    if (blocks == 0 || threadIdx.x > 0) return;
    float clip = 1.0f;
    if (step->grad_clip > 0.0) {
        float factor = (float)step->grad_clip / (state->grad_norm + 1e-6f);
        // Not a minimum, which would replace a NaN factor by 1: in nanoGPT the NaN propagates.
        clip = factor > 1.0f ? 1.0f : factor;
    }
    state->grad_multiplier = clip / state->loss_scale;
    state->skipped = 0;
    if (growth_interval > 0) {
        state->skipped = state->found_inf;
        u32 growth = state->growth == 0xffffffffu ? state->growth : state->growth + 1;
        if (state->found_inf) {
            state->loss_scale *= 0.5f;
            growth = 0;
        } else if (growth >= growth_interval) {
            float doubled = state->loss_scale * 2.0f;
            if ((__float_as_uint(doubled) & 0x7f800000u) != 0x7f800000u) {
                state->loss_scale = doubled;
            }
            growth = 0;
        }
        state->growth = growth;
    }
    if (!state->skipped) {
        u64 t = (u64)state->adam_t[0] | (u64)state->adam_t[1] << 32;
        ++t;
        state->adam_t[0] = (u32)t;
        state->adam_t[1] = (u32)(t >> 32);
    }
}

// By squaring, as on the CPU: the same bits for the same count.
DEVICE double power(double base, u64 exponent) {
    double result = 1.0;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1) result *= base;
        base *= base;
    }
    return result;
}

struct Factors {
    float multiplier, toward1, beta2, toward2, eps, decay, step, inverse_root;
};

DEVICE Factors factors(const Step *step, const State *state, double beta1, double beta2,
                       double eps, double weight_decay) {
    u64 t = (u64)state->adam_t[0] | (u64)state->adam_t[1] << 32;
    double lr = step->lr;
    Factors made;
    made.multiplier = state->grad_multiplier;
    made.toward1 = (float)(1.0 - beta1);
    made.beta2 = (float)beta2;
    made.toward2 = (float)(1.0 - beta2);
    made.eps = (float)eps;
    made.decay = (float)(1.0 - lr * weight_decay);
    made.step = (float)(lr / (1.0 - power(beta1, t)));
    made.inverse_root = (float)(1.0 / sqrt(1.0 - power(beta2, t)));
    return made;
}

// The upper half of an f32, stochastically rounded with 16 random bits.
DEVICE bf16 round_stochastically(float number, u32 random) {
    u32 bits = __float_as_uint(number);
    u16 up = (u16)(bits + (random & 0xffffu) >> 16), down = (u16)(bits >> 16);
    bool overflows = (up & 0x7f80) == 0x7f80;
    bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    // A NaN whose upper bits are zero would become infinity.
    return {overflows ? (u16)(is_nan ? down | 1 : down) : up};
}

DEVICE void keep(float number, u32 random, float &to) { to = number; }
DEVICE void keep(float number, u32 random, bf16 &to) { to = round_stochastically(number, random); }

// A weight with its copy.
DEVICE float joined(float weight, const COPY &copy) { return weight; }

DEVICE void part(float number, float &weight, COPY &copy) {
    weight = number;
    narrow(number, copy);
}

// A weight in two halves. The upper one is the nearest bfloat16; exactly between two of them, the
// one farther from zero, so that the halves determine the number.
DEVICE float joined(u16 lower, const bf16 &upper) {
    return __uint_as_float(((u32)upper.bits << 16) + (u32)(int)(short)lower);
}

DEVICE void part(float number, u16 &lower, bf16 &upper) {
    u32 bits = __float_as_uint(number);
    bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    upper.bits = (u16)(is_nan ? bits >> 16 | 0x40 : bits + 0x8000 >> 16);
    lower = (u16)(is_nan ? 0 : bits);
}

DEVICE float update_one(const Factors &f, float p, float gradient, float &m, float &v) {
    gradient *= f.multiplier;
    m = fmaf(f.toward1, gradient - m, m);
    v = fmaf(gradient * gradient, f.toward2, v * f.beta2);
    float root = fmaf(sqrtf(v), f.inverse_root, f.eps);
    return fmaf(-f.step, m / root, p * f.decay);
}

// PACK elements at a time, and the last ones one by one. Gradients become zero even if the update
// is skipped. `first` is the index of the first element among all parameters.
KERNEL __launch_bounds__(THREADS) SIGNATURE(adamw) {
    if (elements == 0) return;
    __shared__ Factors shared;
    bool skipped = state->skipped;
    if (threadIdx.x == 0) shared = factors(step, state, beta1, beta2, eps, weight_decay);
    __syncthreads();
    Factors f = shared;
    u32 seed[2] = {(u32)step->seed, (u32)(step->seed >> 32)};
    u64 stride = (u64)gridDim.x * THREADS;
    u64 packs = (elements + PACK - 1) / PACK;
    for (u64 pack = (u64)blockIdx.x * THREADS + threadIdx.x; pack < packs; pack += stride) {
        u64 at = pack * PACK;
        int count = elements - at < PACK ? (int)(elements - at) : PACK;
        Pack<float, PACK> g;
        Pack<MASTER, PACK> kept;
        Pack<COPY, PACK> copied;
        Pack<MOMENT, PACK> first_moment, second_moment;
        if (count == PACK) {
            kept = load<MASTER, PACK>(weights + at);
#if SPLIT
            copied = load<COPY, PACK>(copy + at);
#endif
            g = load<float, PACK>(gradients + at);
            first_moment = load<MOMENT, PACK>(m + at);
            second_moment = load<MOMENT, PACK>(v + at);
        } else {
            UNROLL for (int i = 0; i < PACK; ++i) {
                if (i >= count) continue;
                kept.at[i] = weights[at + i];
#if SPLIT
                copied.at[i] = copy[at + i];
#endif
                g.at[i] = gradients[at + i];
                first_moment.at[i] = m[at + i];
                second_moment.at[i] = v[at + i];
            }
        }
        UNROLL for (int i = 0; i < PACK; ++i) {
            if (!skipped && i < count) {
                u32 random = 0;
#if ROUND_STOCHASTICALLY
                u64 index = first + at + i, block = index / 4;
                Words words = philox((u32)block, state->adam_t[0], state->adam_t[1],
                                     4u << 24 | (u32)(block >> 32) & 0xffffffu, seed[0], seed[1]);
                random = word_of(words, (u32)index);
#endif
                float wide_m = widen(first_moment.at[i]), wide_v = widen(second_moment.at[i]);
                float weight = joined(kept.at[i], copied.at[i]);
                weight = update_one(f, weight, g.at[i], wide_m, wide_v);
                part(weight, kept.at[i], copied.at[i]);
                keep(wide_m, random, first_moment.at[i]);
                keep(wide_v, random >> 16, second_moment.at[i]);
            }
            g.at[i] = 0.0f;
        }
        if (count == PACK) {
            store<float, PACK>(gradients + at, g);
            if (skipped) continue;
            store<MASTER, PACK>(weights + at, kept);
            store<MOMENT, PACK>(m + at, first_moment);
            store<MOMENT, PACK>(v + at, second_moment);
#if HAS_COPY
            store<COPY, PACK>(copy + at, copied);
#endif
        } else {
            UNROLL for (int i = 0; i < PACK; ++i) {
                if (i >= count) continue;
                gradients[at + i] = 0.0f;
                if (skipped) continue;
                weights[at + i] = kept.at[i];
                m[at + i] = first_moment.at[i];
                v[at + i] = second_moment.at[i];
#if HAS_COPY
                copy[at + i] = copied.at[i];
#endif
            }
        }
    }
}
