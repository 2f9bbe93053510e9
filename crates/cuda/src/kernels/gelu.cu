// GELU, exact or in the tanh form, and its gradient in place.
//
// Defined by the host: T, VEC, TANH, AGAIN (the gradient overwrites GELU's input with its output),
// THREADS.

constexpr float ROOT_HALF = 0.70710678118654752f;
constexpr float ROOT_2_BY_PI = 0.79788456080286536f;
constexpr float CUBE = 0.044715f;

#if TANH
DEVICE float inner(float x) { return ROOT_2_BY_PI * fmaf(CUBE * x * x, x, x); }

DEVICE float gelu(float x) { return 0.5f * x * (1.0f + tanhf(inner(x))); }

DEVICE float gelu_slope(float x) {
    float t = tanhf(inner(x));
    float inner_slope = ROOT_2_BY_PI * fmaf(3.0f * CUBE * x, x, 1.0f);
    return fmaf(0.5f * x * (1.0f - t * t), inner_slope, 0.5f * (1.0f + t));
}
#else
constexpr float INVERSE_ROOT_2_PI = 0.39894228040143268f;

DEVICE float gelu(float x) { return 0.5f * x * (1.0f + erff(x * ROOT_HALF)); }

DEVICE float gelu_slope(float x) {
    float density = INVERSE_ROOT_2_PI * __expf(-0.5f * x * x);
    return fmaf(x, density, 0.5f * (1.0f + erff(x * ROOT_HALF)));
}
#endif

KERNEL SIGNATURE(gelu_forward) {
    u64 pack = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (pack >= packs) return;
    Pack<T, VEC> values = load<T, VEC>(x + pack * VEC);
    UNROLL for (int i = 0; i < VEC; ++i) narrow(gelu(widen(values.at[i])), values.at[i]);
    store<T, VEC>(out + pack * VEC, values);
}

KERNEL SIGNATURE(gelu_backward) {
    u64 pack = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (pack >= packs) return;
    Pack<T, VEC> values = load<T, VEC>(x + pack * VEC);
    Pack<T, VEC> gradients = load<T, VEC>(d + pack * VEC);
    UNROLL for (int i = 0; i < VEC; ++i) {
        narrow(widen(gradients.at[i]) * gelu_slope(widen(values.at[i])), gradients.at[i]);
        if (AGAIN) narrow(gelu(widen(values.at[i])), values.at[i]);
    }
    store<T, VEC>(d + pack * VEC, gradients);
    if (AGAIN) store<T, VEC>(x + pack * VEC, values);
}
