// What both kinds of attention on tensor cores do with scores: hide later keys, and keep a running
// softmax.
//
// Included after `tensor_cores.cuh`.

constexpr float LN_2 = 0.69314718f;

// Which keys a query sees.

// Keys after their query get no weight. `row` and `column` are the position of the lane's first
// number; KEYS_DOWN means that rows are keys.
template <int COUNT, bool KEYS_DOWN>
DEVICE void hide_later_keys(float (&scores)[COUNT / 8][4], u32 row, u32 column) {
    const int ahead = (int)(column - row);
    UNROLL for (int n = 0; n < COUNT / 8; ++n) {
        UNROLL for (int i = 0; i < 4; ++i) {
            const int difference = ahead + n * 8 + i % 2 - i / 2 * 8;
            const bool later = KEYS_DOWN ? difference < 0 : difference > 0;
            if (later) scores[n][i] = __int_as_float(0xff800000);
        }
    }
}

// What a lane keeps for its two rows in a tile: the largest score so far, and its own share of the
// sum of probabilities relative to it.
struct Softmax {
    float most[2];
    float sum[2];
};

// Turns scores into probabilities relative to the largest score so far, and rescales what was
// summed before.
template <int COUNT>
DEVICE void softmax_step(float (&scores)[COUNT / 8][4], float (&sums)[CHANNEL_TILES * 2][4],
                         Softmax &softmax, float scale) {
    UNROLL for (int half = 0; half < 2; ++half) {
        float most = softmax.most[half];
        UNROLL for (int n = 0; n < COUNT / 8; ++n) {
            most = fmaxf(most, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
        }
        most = quad_max(most);
        const float shift = most * scale;
        const float shrink = fast_exp2(softmax.most[half] * scale - shift);
        float sum = softmax.sum[half] * shrink;
        UNROLL for (int n = 0; n < CHANNEL_TILES * 2; ++n) {
            sums[n][2 * half] *= shrink;
            sums[n][2 * half + 1] *= shrink;
        }
        UNROLL for (int n = 0; n < COUNT / 8; ++n) {
            UNROLL for (int i = 2 * half; i < 2 * half + 2; ++i) {
                scores[n][i] = fast_exp2(scores[n][i] * scale - shift);
                sum += scores[n][i];
            }
        }
        softmax.most[half] = most;
        softmax.sum[half] = sum;
    }
}
