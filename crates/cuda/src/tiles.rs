//! Tile sizes of attention by head size and architecture. They affect speed but never whether a
//! result is right. Each set fits the shared memory of its architectures.

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
    /// multiprocessor, of which a block may have 99, and the tiles are such that eight warps fit
    /// (four for TF32).
    Small,
    /// sm_80 and sm_90, with 164 KiB and more: two blocks of large tiles fit (for TF32 on sm_90).
    Large,
}

/// What attention multiplies with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multiplier {
    /// Multiply-adds in f32.
    Plain,
    /// Tensor cores, f32 numbers rounded to TF32.
    Tf32,
    /// Tensor cores, a 16-bit format.
    SixteenBit,
}

impl Multiplier {
    /// All of them.
    pub const ALL: [Multiplier; 3] = [Multiplier::Plain, Multiplier::Tf32, Multiplier::SixteenBit];

    /// For heads of a size and format; `tf32` says whether f32 may be rounded. Wide heads do not
    /// fit the registers that tensor cores need, so those of f32 are never rounded.
    pub fn of(head_size: u64, dtype: Dtype, tf32: bool) -> Multiplier {
        match dtype {
            Dtype::F32 if tf32 && head_size <= Multiplier::Tf32.largest_head() => Multiplier::Tf32,
            Dtype::F32 => Multiplier::Plain,
            _ => Multiplier::SixteenBit,
        }
    }

    /// The largest head size. Tensor cores keep a head in registers, multiply-adds in shared
    /// memory.
    pub const fn largest_head(self) -> u64 {
        match self {
            Multiplier::Plain => 256,
            Multiplier::Tf32 | Multiplier::SixteenBit => 128,
        }
    }

    /// Bytes of a number in shared memory.
    const fn size(self) -> u64 {
        match self {
            Multiplier::Plain | Multiplier::Tf32 => 4,
            Multiplier::SixteenBit => 2,
        }
    }
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

/// One for each kernel.
const fn three(forward: [u32; 3], query: [u32; 3], key: [u32; 3]) -> AttentionTiles {
    let key = Tile { rows: key[0], columns: key[1], warps: key[2] };
    AttentionTiles { key, ..two(forward, query) }
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
const SMALL_TF32: &Table =
    &[(64, two([128, 32, 4], [128, 16, 4])), (128, three([64, 32, 4], [64, 16, 4], [32, 16, 2]))];
const LARGE_TF32: &Table =
    &[(64, same(128, 32, 4)), (128, three([64, 32, 4], [64, 16, 4], [64, 16, 4]))];
const PLAIN: &Table = &[(64, same(64, 64, 8)), (128, same(32, 32, 4)), (256, same(16, 16, 4))];

/// With dropout, the forward needs its registers for masks, so its tiles are narrower.
const COLUMNS_WITH_DROPOUT: u32 = 32;

impl Tiles {
    /// The tiles for an architecture.
    pub fn of(sm: u32) -> Tiles {
        if sm == 80 || sm / 10 == 9 { Tiles::Large } else { Tiles::Small }
    }

    /// The tiles for heads of this size.
    pub fn attention(
        self,
        head_size: u64,
        multiplier: Multiplier,
        dropout: bool,
    ) -> AttentionTiles {
        let table = match (multiplier, self) {
            (Multiplier::Plain, _) => PLAIN,
            (Multiplier::Tf32, Tiles::Small) => SMALL_TF32,
            (Multiplier::Tf32, Tiles::Large) => LARGE_TF32,
            (Multiplier::SixteenBit, Tiles::Small) => SMALL,
            (Multiplier::SixteenBit, Tiles::Large) => LARGE,
        };
        let pad = padded(head_size);
        let row = table.iter().find(|(most, _)| pad <= *most).or(table.last());
        let mut tiles = row.map_or(same(16, 16, 4), |(_, tiles)| *tiles);
        if dropout && multiplier != Multiplier::Plain {
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
pub(crate) fn line(head_size: u64, multiplier: Multiplier) -> u64 {
    padded(head_size) + 16 / multiplier.size()
}

/// Bytes of shared memory: arrays of owned and walked lines, and for multiply-adds a tile of
/// weights. The kernels are compiled with them and do not compile if they use another number.
impl Tile {
    fn bytes(self, owned: u64, head_size: u64, multiplier: Multiplier, each_column: u64) -> u32 {
        let (rows, columns) = (u64::from(self.rows), u64::from(self.columns));
        let (line, size) = (line(head_size, multiplier), multiplier.size());
        let bytes = match multiplier {
            Multiplier::Plain => {
                size * ((owned * rows + 2 * columns) * line + rows * (columns + 4))
            }
            _ => size * (owned * rows + 4 * columns) * line + each_column * columns,
        };
        bytes as u32
    }

    /// Of the forward.
    pub fn forward_bytes(self, head_size: u64, multiplier: Multiplier) -> u32 {
        self.bytes(1, head_size, multiplier, 0)
    }

    /// Of the gradient of queries.
    pub fn query_bytes(self, head_size: u64, multiplier: Multiplier) -> u32 {
        self.bytes(2, head_size, multiplier, 0)
    }

    /// Of the gradients of keys and values.
    pub fn key_bytes(self, head_size: u64, multiplier: Multiplier) -> u32 {
        self.bytes(2, head_size, multiplier, 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_fits_the_shared_memory_of_its_architectures() {
        for tiles in [Tiles::Small, Tiles::Large] {
            for multiplier in Multiplier::ALL {
                // Only TF32 needs more than the 99 KiB that every GPU has, and only where there is.
                let most = match (tiles, multiplier) {
                    (Tiles::Large, Multiplier::Tf32) => 163 << 10,
                    _ => 99 << 10,
                };
                for size in 1..=multiplier.largest_head() {
                    let AttentionTiles { forward, query, key } =
                        tiles.attention(size, multiplier, false);
                    let bytes = [
                        forward.forward_bytes(size, multiplier),
                        query.query_bytes(size, multiplier),
                        key.key_bytes(size, multiplier),
                    ];
                    let fits = bytes.iter().all(|&bytes| bytes <= most);
                    assert!(fits, "{size} {multiplier:?}: {bytes:?}");
                }
            }
        }
    }
}
