// Copies of tiles of a matrix by the copy engine, which knows the matrix by a map that the host
// has made (`tensor_map.rs`). What lies outside the matrix becomes zero. One thread starts a copy.
//
// Included after `warpgroups.cuh`.

struct alignas(64) TensorMap {
    u64 words[16];
};

DEVICE void copy_tile(u32 to, const TensorMap &map, u32 column, u32 row, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(&map), "r"(column), "r"(row), "r"(barrier)
                 : "memory");
}

// Makes initialised barriers visible to the copy engine.
DEVICE void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
