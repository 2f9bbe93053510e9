// GELU, exact or in the tanh form: the function and its slope.
//
// Defined by the host: TANH.

constexpr float ROOT_HALF = 0.70710678118654752f;
constexpr float ROOT_2_BY_PI = 0.79788456080286536f;
constexpr float INVERSE_ROOT_2_PI = 0.39894228040143268f;
constexpr float CUBE = 0.044715f;

struct Value {
    float out, slope;
};

#if TANH
DEVICE float inner(float x) { return ROOT_2_BY_PI * fmaf(CUBE * x * x, x, x); }

DEVICE float inner_slope(float x) { return ROOT_2_BY_PI * fmaf(3.0f * CUBE * x, x, 1.0f); }

// f32, as exactly as the format.
DEVICE Value gelu(float, float x) {
    float t = tanhf(inner(x));
    return {0.5f * x * (1.0f + t),
            fmaf(0.5f * x * (1.0f - t * t), inner_slope(x), 0.5f * (1.0f + t))};
}

// 16-bit formats, to 1e-6: (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)).
template <class Number> DEVICE Value gelu(Number, float x) {
    float share = fast_reciprocal(1.0f + fast_exp2(-2.0f * LOG2_E * inner(x)));
    return {x * share, fmaf(2.0f * x * share * (1.0f - share), inner_slope(x), share)};
}
#else
// f32, as exactly as the format.
DEVICE Value gelu(float, float x) {
    float below = 0.5f * (1.0f + erff(x * ROOT_HALF));
    float density = INVERSE_ROOT_2_PI * __expf(-0.5f * x * x);
    return {0.5f * x * (1.0f + erff(x * ROOT_HALF)), fmaf(x, density, below)};
}

// 16-bit formats, to 1e-7: the normal distribution beyond |x| is a polynomial of 1 / (1 + p |x|)
// times the bell curve (Abramowitz and Stegun 7.1.26), which the slope needs as well. The slope
// of -x is 1 minus that of x.
template <class Number> DEVICE Value gelu(Number, float x) {
    float size = fabsf(x);
    float bell = fast_exp2(-0.5f * LOG2_E * x * x);
    float t = fast_reciprocal(fmaf(0.3275911f * ROOT_HALF, size, 1.0f));
    float p = fmaf(t, 0.5307027145f, -0.7265760135f);
    p = fmaf(t, p, 0.7107068705f);
    p = fmaf(t, p, -0.142248368f);
    p = fmaf(t, p, 0.127414796f);
    p *= t;
    float above_half = fmaf(bell, fmaf(INVERSE_ROOT_2_PI, size, -p), 0.5f);
    return {fmaf(-size, p * bell, fmaxf(x, 0.0f)), 0.5f + copysignf(above_half, x)};
}
#endif
