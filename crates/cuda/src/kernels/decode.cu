// Generation: the key/value cache, attention of one new token against it, and the selection of the
// position whose logits are returned.
//
// Defined by the host: T, HEADS, HEAD_SIZE, BLOCK (positions of the cache), THREADS.

constexpr int WIDTH = HEADS * HEAD_SIZE;

// Copies keys, then values, of a whole context into the cache `[2, rows, HEADS, BLOCK, HEAD_SIZE]`.
KERNEL SIGNATURE(cache_store) {
    u64 index = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (index >= elements) return;
    u32 channel = index % (2 * WIDTH);
    u64 token = index / (2 * WIDTH);
    u64 row = token / positions, position = token % positions;
    u32 kind = channel / WIDTH, head = channel % WIDTH / HEAD_SIZE;
    u64 unit = ((u64)kind * rows + row) * HEADS + head;
    cache_2bhts[(unit * BLOCK + position) * HEAD_SIZE + channel % HEAD_SIZE] =
        qkv_bt3c[token * 3 * WIDTH + WIDTH + channel];
}

// A block for each head of each row. Dynamic shared memory: BLOCK scores.
KERNEL SIGNATURE(attention_decode) {
    extern __shared__ float scores[];
    __shared__ float query[HEAD_SIZE];
    u32 unit = blockIdx.x;
    if (unit >= units) return;
    u32 position = (u32)step->position;
    const T *token = qkv_bt3c + (u64)(unit / HEADS) * 3 * WIDTH + unit % HEADS * HEAD_SIZE;
    T *keys = cache_2bhts + (u64)unit * BLOCK * HEAD_SIZE;
    T *values = keys + (u64)rows * HEADS * BLOCK * HEAD_SIZE;
    for (int channel = threadIdx.x; channel < HEAD_SIZE; channel += THREADS) {
        query[channel] = widen(token[channel]) * (1.0f / sqrtf((float)HEAD_SIZE));
        keys[(u64)position * HEAD_SIZE + channel] = token[WIDTH + channel];
        values[(u64)position * HEAD_SIZE + channel] = token[2 * WIDTH + channel];
    }
    __syncthreads();
    float most = __uint_as_float(0xff800000u);
    for (u32 key = threadIdx.x; key <= position; key += THREADS) {
        float score = 0.0f;
        for (int channel = 0; channel < HEAD_SIZE; ++channel) {
            score = fmaf(query[channel], widen(keys[(u64)key * HEAD_SIZE + channel]), score);
        }
        scores[key] = score;
        most = fmaxf(most, score);
    }
    most = block_max<THREADS>(most);
    float sum = 0.0f;
    for (u32 key = threadIdx.x; key <= position; key += THREADS) {
        scores[key] = expf(scores[key] - most);
        sum += scores[key];
    }
    sum = block_sum<THREADS>(sum);
    for (int channel = threadIdx.x; channel < HEAD_SIZE; channel += THREADS) {
        float result = 0.0f;
        for (u32 key = 0; key <= position; ++key) {
            result = fmaf(scores[key], widen(values[(u64)key * HEAD_SIZE + channel]), result);
        }
        out_btc[(u64)(unit / HEADS) * WIDTH + unit % HEADS * HEAD_SIZE + channel] =
            rounded<T>(result / sum);
    }
}

// Copies one position of each sequence.
KERNEL SIGNATURE(select_position) {
    u32 index = blockIdx.x * THREADS + threadIdx.x;
    if (index >= elements) return;
    u64 row = index / width;
    out_bc[index] = x_btc[(row * positions + step->position) * width + index % width];
}
