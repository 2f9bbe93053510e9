//! Tile sizes of attention by head size and architecture. They affect speed but never whether a
//! result is right. Each set fits the 99 KiB of shared memory that every GPU has.

use plan::Dtype;

/// The rows that a block owns, the columns that it walks over at a time, and its warps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Queries in the forward and for their gradient; keys for the gradients of keys and values.
    pub rows: u32,
    /// The other of the two.
    pub columns: u32,
    /// Warps of 32 threads.
    pub warps: u32,
}

/// The tiles of the three kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionTiles {
    /// For the forward.
    pub forward: Tile,
    /// For the gradient of queries.
    pub query: Tile,
    /// For the gradients of keys and values.
    pub key: Tile,
}

/// The set of tiles for a group of architectures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tiles {
    /// sm_86, sm_89, sm_120, the GPUs that most people own. They have 100 KiB of shared memory per
    /// multiprocessor, and the tiles are such that eight warps fit.
    Small,
    /// sm_80 and sm_90, with 164 KiB and more: two blocks of large tiles fit.
    Large,
}

/// The same tile for all three kernels.
const fn same(rows: u32, columns: u32, warps: u32) -> AttentionTiles {
    let tile = Tile { rows, columns, warps };
    AttentionTiles { forward: tile, query: tile, key: tile }
}

/// One tile for the forward and one for both gradients.
const fn two(forward: [u32; 3], backward: [u32; 3]) -> AttentionTiles {
    let gradients = same(backward[0], backward[1], backward[2]);
    let forward = Tile { rows: forward[0], columns: forward[1], warps: forward[2] };
    AttentionTiles { forward, ..gradients }
}

/// Tiles by the largest padded head size that they are for.
type Table = [(u64, AttentionTiles)];
const SMALL: &Table = &[
    (32, same(128, 64, 4)),
    (64, two([128, 32, 4], [64, 32, 4])),
    (96, two([128, 64, 8], [128, 32, 8])),
    (128, two([128, 32, 8], [128, 16, 8])),
];
const LARGE: &Table = &[(64, same(128, 64, 4)), (128, two([64, 64, 4], [64, 32, 4]))];
const PLAIN: &Table = &[(64, same(64, 64, 8)), (128, same(32, 32, 4)), (256, same(16, 16, 4))];

/// With dropout, the forward needs its registers for masks, so its tiles are narrower.
const COLUMNS_WITH_DROPOUT: u32 = 32;

impl Tiles {
    /// The tiles for an architecture.
    pub fn of(sm: u32) -> Tiles {
        if sm == 80 || sm / 10 == 9 { Tiles::Large } else { Tiles::Small }
    }

    /// The tiles for heads of this size.
    pub fn attention(self, head_size: u64, dtype: Dtype, dropout: bool) -> AttentionTiles {
        let table = match (dtype, self) {
            (Dtype::F32, _) => PLAIN,
            (_, Tiles::Small) => SMALL,
            (_, Tiles::Large) => LARGE,
        };
        let pad = padded(head_size);
        let row = table.iter().find(|(most, _)| pad <= *most).or(table.last());
        let mut tiles = row.map_or(same(16, 16, 4), |(_, tiles)| *tiles);
        if dropout && dtype != Dtype::F32 {
            tiles.forward.columns = tiles.forward.columns.min(COLUMNS_WITH_DROPOUT);
        }
        tiles
    }
}

/// Head sizes are padded to the 16 numbers that tensor cores process at a time.
pub(crate) fn padded(head_size: u64) -> u64 {
    head_size.next_multiple_of(16)
}

/// Numbers of a head's line in shared memory. The extra 16 bytes move each line against the banks.
pub(crate) fn line(head_size: u64, dtype: Dtype) -> u64 {
    padded(head_size) + 16 / dtype.size()
}

/// Bytes of shared memory: arrays of owned and walked lines, and for f32 a tile of weights. The
/// kernels are compiled with them and do not compile if they use another number.
impl Tile {
    fn bytes(self, owned: u64, head_size: u64, dtype: Dtype, each_column: u64) -> u32 {
        let (rows, columns) = (u64::from(self.rows), u64::from(self.columns));
        let line = line(head_size, dtype);
        let bytes = match dtype {
            Dtype::F32 => 4 * ((owned * rows + 2 * columns) * line + rows * (columns + 4)),
            _ => 2 * (owned * rows + 4 * columns) * line + each_column * columns,
        };
        bytes as u32
    }

    /// Of the forward.
    pub fn forward_bytes(self, head_size: u64, dtype: Dtype) -> u32 {
        self.bytes(1, head_size, dtype, 0)
    }

    /// Of the gradient of queries.
    pub fn query_bytes(self, head_size: u64, dtype: Dtype) -> u32 {
        self.bytes(2, head_size, dtype, 0)
    }

    /// Of the gradients of keys and values.
    pub fn key_bytes(self, head_size: u64, dtype: Dtype) -> u32 {
        self.bytes(2, head_size, dtype, 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_fits_the_shared_memory_that_every_gpu_has() {
        const EVERYWHERE: u32 = 99 << 10;
        for tiles in [Tiles::Small, Tiles::Large] {
            for dtype in [Dtype::F32, Dtype::Bf16] {
                let most = if dtype == Dtype::F32 { 256 } else { 128 };
                for size in 1..=most {
                    let AttentionTiles { forward, query, key } =
                        tiles.attention(size, dtype, false);
                    let bytes = [
                        forward.forward_bytes(size, dtype),
                        query.query_bytes(size, dtype),
                        key.key_bytes(size, dtype),
                    ];
                    assert!(bytes.iter().all(|&b| b <= EVERYWHERE), "{size} {dtype}: {bytes:?}");
                }
            }
        }
    }
}
