// Matmuls of warpgroups (Hopper's wgmma): tiles in shared memory as the hardware wants them,
// descriptors that name them, and copies and barriers that threads need not wait for.
// `warpgroup_multiply` itself is written by the host for each width, since C++ cannot count the
// operands of an instruction:
//     warpgroup_multiply<A_DOWN, B_DOWN>(sums, a, b, add)   both in shared memory
//     warpgroup_multiply<B_DOWN>(sums, registers, b, add)
// where DOWN means that the dimension that is summed goes down the rows of the tile.
//
// Included after `shared_memory.cuh`.
//
// A tile is kept in panels of 64 numbers, 128 bytes a row. The hardware's swizzle exchanges the
// 16-byte chunks of a row: chunk c of row r is at c ^ (r % 8), so that eight rows at one chunk are
// in different banks. Tiles begin at multiples of 1024 bytes.

constexpr u32 PANEL_ROW = 128;

DEVICE u32 aligned_shared_start() { return (shared_start() + 1023) & ~1023u; }

DEVICE u32 warpgroup() { return __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); }

// The first of the 16 rows of 64 that a warp has in a result.
DEVICE u32 warp_row() { return threadIdx.x % 128 / 32 * 16; }

// Describes a tile in panels of `rows` rows; groups of eight rows are 1024 bytes apart.
DEVICE u64 matrix_at(u32 address, u32 rows) {
    return (u64)((address & 0x3ffff) >> 4) | (u64)(rows * PANEL_ROW >> 4) << 16 |
           (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

// What to add to a description for the k-th sixteen channels, if channels are summed.
template <int ROWS> DEVICE constexpr u32 channels_at(int k) {
    return (u32)(k / 4 * (ROWS * PANEL_ROW) + k % 4 * 32) >> 4;
}

// The same for the k-th sixteen rows, if rows are summed.
DEVICE constexpr u32 rows_at(int k) { return (u32)(k * 16 * PANEL_ROW) >> 4; }

DEVICE void warpgroup_arrive() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

DEVICE void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Keeps the compiler from moving reads of a result before the wait for it.
template <int N> DEVICE void settle(float (&sums)[N][4]) {
    UNROLL for (int n = 0; n < N; ++n) {
        UNROLL for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(sums[n][i])::"memory");
    }
}

// Waits until all but the last LEFT groups of matmuls are done, `sums` among them.
template <int LEFT, int N> DEVICE void warpgroup_wait(float (&sums)[N][4]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
    settle(sums);
}

// The same while all sums are still being added to; nothing may read them yet.
template <int LEFT> DEVICE void warpgroup_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// Makes what this thread wrote to shared memory visible to matmuls and bulk copies.
DEVICE void publish_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Writes a warp's 16 rows of 64 numbers into a panel.
DEVICE void store_panel(u32 to, u32 row, const u32 (&numbers)[4][4]) {
    row += threadIdx.x % 16;
    UNROLL for (int k = 0; k < 4; ++k) {
        const u32 chunk = k * 2 + threadIdx.x / 16 % 2;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                         to + row * PANEL_ROW + (chunk ^ row % 8) * 16),
                     "r"(numbers[k][0]), "r"(numbers[k][1]), "r"(numbers[k][2]), "r"(numbers[k][3])
                     : "memory");
    }
}

DEVICE void load_shared_4(float (&x)[4], u32 from) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                 : "r"(from)
                 : "memory");
}

DEVICE void store_shared_4(u32 to, const float (&x)[4]) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(x[0]), "f"(x[1]),
                 "f"(x[2]), "f"(x[3])
                 : "memory");
}

// Registers move between warpgroups, all of whose threads call this.
template <int LEFT> DEVICE void give_registers_up() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(LEFT));
}

template <int COUNT> DEVICE void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// Barriers in shared memory: threads arrive without waiting, and others wait for a phase to end.

DEVICE void init_barrier(u32 at, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}

DEVICE void arrive(u32 at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

// The phase also waits for a copy of so many bytes.
DEVICE void arrive_expecting(u32 at, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
                 : "memory");
}

DEVICE bool is_over(u32 at, u32 phase) {
    u32 over;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(over)
                 : "r"(at), "r"(phase)
                 : "memory");
    return over;
}

DEVICE void wait_barrier(u32 at, u32 phase) {
    while (!is_over(at, phase)) {
    }
}

// The warpgroups from the second on, 256 threads.
DEVICE void multiplying_barrier() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

// Bulk copies, which one thread starts.

DEVICE void copy_in(u32 to, const void *from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

DEVICE void copy_out(void *to, u32 from, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
                 "cp.async.bulk.commit_group;" ::"l"(to),
                 "r"(from), "r"(bytes)
                 : "memory");
}

DEVICE void wait_for_copies_out() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Orders bulk copies against this thread's other accesses of memory.
DEVICE void order_memory_for_copies() { asm volatile("fence.proxy.async;" ::: "memory"); }

// Between blocks.

DEVICE u32 load_acquire(const u32 *from) {
    u32 x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
    return x;
}

DEVICE void store_release(u32 *to, u32 x) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
