// What every kernel shares: number formats, sums within a block, and keyed random draws. No CUDA
// header is included anywhere: NVRTC alone compiles these files.
//
// The host puts `Step` (the inputs of a run) and `State` (`plan::StepState`) before this text.
// After it come the constants of a plan (widths, head sizes, formats) and the kernels' parameters,
// whose table (`signatures!`) is in the Rust file next to each .cu.
//
// Names of tensors end in their dimensions, slowest first: b sequences, t positions, c width of the
// model, 3c query, key and value side by side, h heads, s size of a head, v vocabulary, m tokens of
// a chunk; 2 before them: keys, then values. x_btc is [sequences, positions, width].

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE static __device__ __forceinline__
#define KERNEL extern "C" __global__ void
#define SIGNATURE(kernel) kernel(PARAMETERS_OF_##kernel)
#define UNROLL _Pragma("unroll")

// Number formats. 16-bit formats are storage only: every computation is in f32.

struct bf16 {
    u16 bits;
};

struct f16 {
    u16 bits;
};

DEVICE float widen(float x) { return x; }

DEVICE float widen(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

DEVICE float widen(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

// To nearest, ties to even.
DEVICE void narrow(float x, float &y) { y = x; }

DEVICE void narrow(float x, bf16 &y) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }

DEVICE void narrow(float x, f16 &y) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }

template <class T> DEVICE T rounded(float x) {
    T y;
    narrow(x, y);
    return y;
}

// Two numbers of a 16-bit format in a word. The last argument only chooses the format.

DEVICE u32 pair(float low, float high, bf16) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

DEVICE u32 pair(float low, float high, f16) {
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

DEVICE float lower_of(u32 both, bf16) { return __uint_as_float(both << 16); }

DEVICE float upper_of(u32 both, bf16) { return __uint_as_float(both & 0xffff0000u); }

DEVICE float lower_of(u32 both, f16) { return widen(f16{(u16)both}); }

DEVICE float upper_of(u32 both, f16) { return widen(f16{(u16)(both >> 16)}); }

// COUNT numbers that are moved together; memory is aligned to all of them.
template <class T, int COUNT> struct alignas(sizeof(T) * COUNT) Pack {
    T at[COUNT];
};

template <class T, int COUNT> DEVICE Pack<T, COUNT> load(const T *from) {
    return *reinterpret_cast<const Pack<T, COUNT> *>(from);
}

template <class T, int COUNT> DEVICE void store(T *to, const Pack<T, COUNT> &pack) {
    *reinterpret_cast<Pack<T, COUNT> *>(to) = pack;
}

// A pack that stays in registers for long: as words, since the compiler gives every 16-bit number
// of a Pack a register of its own.
template <class T, int COUNT> struct Held {
    u32 words[(sizeof(T) * COUNT + 3) / 4];
};

template <class T, int COUNT> DEVICE Held<T, COUNT> hold(const T *from) {
    Held<T, COUNT> held;
    if constexpr (sizeof(T) * COUNT % 4 == 0) {
        constexpr int WORDS = sizeof(T) * COUNT / 4;
        Pack<u32, WORDS> read = load<u32, WORDS>(reinterpret_cast<const u32 *>(from));
        UNROLL for (int i = 0; i < WORDS; ++i) held.words[i] = read.at[i];
    } else {
        static_assert(sizeof(T) * COUNT == 2, "a pack is one number, or whole words");
        held.words[0] = from->bits;
    }
    return held;
}

// One of the numbers of a held pack.
template <class T, int COUNT> DEVICE float number(const Held<T, COUNT> &held, int i) {
    if constexpr (sizeof(T) == 4) return __uint_as_float(held.words[i]);
    else return widen(T{(u16)(held.words[i / 2] >> i % 2 * 16)});
}

// Makes the compiler compute from a held pack anew what it would otherwise keep in registers.
template <class T, int COUNT> DEVICE void forget(Held<T, COUNT> &held) {
    UNROLL for (u32 &word : held.words) asm volatile("" : "+r"(word));
}

DEVICE constexpr u32 ceil_divide(u32 x, u32 y) { return (x + y - 1) / y; }

// Functions of one instruction, to about 2e-7. Results below 2^-126 are 0.

constexpr float LOG2_E = 1.44269504f;

DEVICE float fast_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE float fast_reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Sums within a block, in an order that depends only on the number of threads.

template <class Number> DEVICE Number warp_sum(Number x) {
    UNROLL for (int lane = 16; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
    return x;
}

DEVICE float warp_max(float x) {
    UNROLL for (int lane = 16; lane > 0; lane /= 2) {
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lane));
    }
    return x;
}

// Every thread gets the sum. THREADS is a multiple of 32, at most 1024.
template <int THREADS, class Number> DEVICE Number block_sum(Number x) {
    __shared__ Number parts[THREADS / 32];
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    Number sum = 0;
    UNROLL for (int warp = 0; warp < THREADS / 32; ++warp) sum += parts[warp];
    __syncthreads();
    return sum;
}

template <int THREADS> DEVICE float block_max(float x) {
    __shared__ float parts[THREADS / 32];
    x = warp_max(x);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    float most = parts[0];
    UNROLL for (int warp = 1; warp < THREADS / 32; ++warp) most = fmaxf(most, parts[warp]);
    __syncthreads();
    return most;
}

// Philox4x32, as in the crate `rng`: ten rounds, or seven for dropout.

struct Words {
    u32 at[4];
};

template <int ROUNDS = 10>
DEVICE Words philox(u32 c0, u32 c1, u32 c2, u32 c3, u32 k0, u32 k1) {
    UNROLL for (int round = 0; round < ROUNDS; ++round) {
        u32 high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        u32 high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

// One of four words. Uses selects, since registers cannot be indexed.
DEVICE u32 word_of(const Words &words, u32 index) {
    u32 low = index & 1 ? words.at[1] : words.at[0];
    u32 high = index & 1 ? words.at[3] : words.at[2];
    return index & 2 ? high : low;
}

// One op's dropout. A draw is half a word, the threshold is in the upper half of its own.
struct Dropout {
    u32 threshold;
    u32 tag;
    float scale;
};

// Whether the draw in the lower (0) or upper (1) half of a word reaches the threshold.
DEVICE bool reaches(u32 word, int half, u32 threshold) {
    return (half ? word : word << 16) >= threshold;
}

// The draws of columns `8 group ..` of a row, two in a word.
DEVICE Words dropout_words(const Step *step, const Dropout &dropout, u64 row, u32 group) {
    return philox<7>((u32)row, (u32)(row >> 32), group, dropout.tag, step->dropout_key[0],
                     step->dropout_key[1]);
}

// Which of COUNT columns of a row from `column` on, a multiple of COUNT, are kept: bit i for the
// i-th of them.
template <int COUNT>
DEVICE u32 dropout_bits(const Step *step, const Dropout &dropout, u64 row, u32 column) {
    static_assert(8 % COUNT == 0, "a pack is part of a group");
    const Words words = dropout_words(step, dropout, row, column / 8);
    u32 bits = 0;
    UNROLL for (int i = 0; i < COUNT; ++i) {
        const u32 word = COUNT == 8 ? words.at[i / 2] : word_of(words, (column + i) / 2);
        const u32 draw = COUNT == 1 && column & 1 ? word >> 16 : word;
        bits |= (reaches(draw, i % 2, dropout.threshold) ? 1 : 0) << i;
    }
    return bits;
}

// The same as factors, 0 or `scale`.
template <int COUNT>
DEVICE void dropout_factors(const Step *step, const Dropout &dropout, u64 row, u32 column,
                            float *factors) {
    const u32 bits = dropout_bits<COUNT>(step, dropout, row, column);
    UNROLL for (int i = 0; i < COUNT; ++i) factors[i] = bits >> i & 1 ? dropout.scale : 0.0f;
}
