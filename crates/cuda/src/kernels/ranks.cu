// What a rank does with gradients before they travel and after they have arrived.
//
// Defined by the host: WIRE (the format in which they travel), HAS_TOTAL (whether sums are added to
// those of earlier rounds), THREADS.

// Rounds gradients to the format in which they travel.
KERNEL __launch_bounds__(THREADS) SIGNATURE(to_wire) {
    const u64 stride = (u64)gridDim.x * THREADS;
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < elements; i += stride) {
        sent[i] = rounded<WIRE>(gradients[i]);
    }
}

// The same in place, for a run of one rank: nothing travels, but the rounding is the same.
KERNEL __launch_bounds__(THREADS) SIGNATURE(round_alone) {
    const u64 stride = (u64)gridDim.x * THREADS;
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < elements; i += stride) {
        gradients[i] = widen(rounded<WIRE>(gradients[i]));
    }
}

// Adds what arrived, one row of `own` numbers from each rank, in the order of the ranks: to the
// total, or to 0 in this rank's piece of the gradients, which begins at `first`. All other gradients
// become 0. With one rank `received` is `gradients`: a thread reads a number before it replaces it.
KERNEL __launch_bounds__(THREADS) SIGNATURE(add_rows) {
    const u64 stride = (u64)gridDim.x * THREADS;
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < elements; i += stride) {
        float stays = 0.0f;
        if (i >= first && i - first < own) {
            const u64 at = i - first;
#if HAS_TOTAL
            float sum = total[at];
#else
            float sum = 0.0f;
#endif
            for (u32 row = 0; row < ranks; ++row) sum += widen(received[row * own + at]);
#if HAS_TOTAL
            total[at] = sum;
#else
            stays = sum;
#endif
        }
        gradients[i] = stays;
    }
}
