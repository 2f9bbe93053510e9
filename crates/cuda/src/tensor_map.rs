//! Maps of matrices, by which the copy engine of a GPU knows where their tiles are
//! (`kernels/tensor_maps.cuh`).

use crate::context::DriverContext;
use crate::error::CudaError;

/// Words of a map.
pub(crate) const WORDS: usize = 16;

/// A matrix of 16-bit numbers, and the tiles that copies take of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MatrixTiles {
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    /// Rows and columns of a tile: at most 256 rows, and 64 columns, which fill a row of a panel.
    pub(crate) tile: [u32; 2],
}

/// As the driver wants it.
#[repr(C, align(64))]
struct Aligned([u64; WORDS]);

impl MatrixTiles {
    /// The map of a matrix at an address of the device.
    pub(crate) fn at(
        self,
        context: &DriverContext,
        address: u64,
    ) -> Result<[u64; WORDS], CudaError> {
        const SIXTEEN_BITS: i32 = 1;
        const NO_INTERLEAVE: i32 = 0;
        const SWIZZLE_128_BYTES: i32 = 3;
        const PROMOTE_128_BYTES: i32 = 2;
        const ZEROS_OUTSIDE: i32 = 0;
        let sizes = [self.columns, self.rows];
        let row_bytes = [self.columns * 2];
        let tile = [self.tile[1], self.tile[0]];
        let steps = [1u32; 2];
        let mut map = Aligned([0; WORDS]);
        // SAFETY: all pointers are to locals with two entries, or one for the bytes of a row, as
        // two dimensions need; the driver only writes the map.
        context.check("cuTensorMapEncodeTiled", unsafe {
            (context.api().cuTensorMapEncodeTiled)(
                map.0.as_mut_ptr().cast(),
                SIXTEEN_BITS,
                2,
                address as *mut _,
                sizes.as_ptr(),
                row_bytes.as_ptr(),
                tile.as_ptr(),
                steps.as_ptr(),
                NO_INTERLEAVE,
                SWIZZLE_128_BYTES,
                PROMOTE_128_BYTES,
                ZEROS_OUTSIDE,
            )
        })?;
        Ok(map.0)
    }
}
