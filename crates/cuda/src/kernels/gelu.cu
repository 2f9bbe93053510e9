// GELU, and its gradient in place.
//
// Defined by the host: T, VEC, TANH, AGAIN (the gradient overwrites GELU's input with its output),
// THREADS. Included after `gelu.cuh`.

KERNEL __launch_bounds__(THREADS) SIGNATURE(gelu_forward) {
    u64 pack = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (pack >= packs) return;
    Pack<T, VEC> values = load<T, VEC>(x + pack * VEC);
    UNROLL for (int i = 0; i < VEC; ++i) {
        narrow(gelu(T(), widen(values.at[i])).out, values.at[i]);
    }
    store<T, VEC>(out + pack * VEC, values);
}

KERNEL __launch_bounds__(THREADS) SIGNATURE(gelu_backward) {
    u64 pack = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (pack >= packs) return;
    Pack<T, VEC> values = load<T, VEC>(x + pack * VEC);
    Pack<T, VEC> gradients = load<T, VEC>(d + pack * VEC);
    UNROLL for (int i = 0; i < VEC; ++i) {
        Value value = gelu(T(), widen(values.at[i]));
        narrow(widen(gradients.at[i]) * value.slope, gradients.at[i]);
        if (AGAIN) narrow(value.out, values.at[i]);
    }
    store<T, VEC>(d + pack * VEC, gradients);
    if (AGAIN) store<T, VEC>(x + pack * VEC, values);
}
