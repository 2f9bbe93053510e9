// The shared memory of a block, which is addressed by 32 bits throughout.

extern __shared__ Pack<u32, 4> shared_memory[];

DEVICE u32 shared_start() {
    u64 address;
    asm volatile("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(shared_memory));
    return (u32)address;
}
