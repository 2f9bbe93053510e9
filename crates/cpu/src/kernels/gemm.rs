//! The matmul of every linear layer: packed panels, and a tile of sums in registers.
//!
//! Each element of the result is a chain of fused multiply-adds over blocks of 256 along the inner
//! dimension, counted from its start; the block sums are added in order. So the bits do not depend
//! on tile, panel, thread or instruction set. Where the inner dimension is tokens, the sum over a
//! slice is the same in whatever chunks (multiples of 256) it is computed.

use crate::isa::{Isa, Kernel};
use crate::pool::{Output, Pool};
use crate::vector::Vector;
use plan::ops::Write;

/// Inner dimension of a block of sums; `plan::ops::TOKEN_BLOCK`.
const DEPTH: usize = plan::ops::TOKEN_BLOCK as usize;
/// Rows packed at a time: a multiple of every tile height, and about half of an L2 cache.
const ROWS: usize = 120;
/// Columns packed at a time.
const COLUMNS: usize = 1536;
/// Registers across a tile.
const ACROSS: usize = 2;
/// The widest tile of any instruction set.
const WIDEST: usize = 32;
/// The tallest tile of any instruction set.
const TALLEST: usize = 12;

/// Scratch of one thread, in f32.
pub(crate) const SCRATCH: usize = ROWS * DEPTH + COLUMNS * DEPTH;

/// A strided matrix in a slice.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    /// The elements, from the first one on.
    pub(crate) data: &'a [f32],
    /// Distance between rows.
    pub(crate) row: usize,
    /// Distance between columns.
    pub(crate) column: usize,
}

impl<'a> Matrix<'a> {
    /// Row-major with `width` elements in a row.
    pub(crate) fn rows(data: &'a [f32], width: usize) -> Matrix<'a> {
        Matrix { data, row: width, column: 1 }
    }

    /// The transpose of a row-major matrix with `width` elements in a row.
    pub(crate) fn transposed(data: &'a [f32], width: usize) -> Matrix<'a> {
        Matrix { data, row: 1, column: width }
    }

    fn starting_at(self, row: usize) -> Matrix<'a> {
        Matrix { data: &self.data[row * self.row..], ..self }
    }
}

/// `c (+)= a b + bias`, with `a` m×k, `b` k×n, `c` m×n row-major.
pub(crate) struct Matmul<'a> {
    /// Left operand.
    pub(crate) a: Matrix<'a>,
    /// Right operand.
    pub(crate) b: Matrix<'a>,
    /// Inner dimension.
    pub(crate) inner: usize,
    /// Columns of the result.
    pub(crate) columns: usize,
    /// Added to every row. Only allowed when overwriting.
    pub(crate) bias: Option<&'a [f32]>,
    /// Whether the result replaces `c` or is added to it.
    pub(crate) write: Write,
}

/// Divides the rows of `c` among threads. If there are few rows, divides the columns instead.
pub(crate) fn matmul(
    pool: &Pool,
    isa: Isa,
    scratch: &mut [f32],
    matmul: &Matmul<'_>,
    c: &mut [f32],
) {
    let n = matmul.columns;
    let rows = c.len() / n;
    if rows < 2 * pool.threads() {
        for (row, c_row) in c.chunks_exact_mut(n).enumerate() {
            let a = matmul.a.starting_at(row);
            pool.split_with_scratch(
                n,
                scratch,
                [Output::new(c_row, 1)],
                |units, scratch, [part]| {
                    let b_data = &matmul.b.data[units.start * matmul.b.column..];
                    let b = Matrix { data: b_data, ..matmul.b };
                    let bias = matmul.bias.map(|bias| &bias[units.clone()]);
                    let columns = units.len();
                    let whole = Matmul { a, b, columns, bias, ..*matmul };
                    isa.dispatch(Serial { matmul: whole, c: part, scratch });
                },
            );
        }
        return;
    }
    pool.split_with_scratch(rows, scratch, [Output::new(c, n)], |units, scratch, [part]| {
        let mine = Matmul { a: matmul.a.starting_at(units.start), ..*matmul };
        isa.dispatch(Serial { matmul: mine, c: part, scratch });
    });
}

/// One thread's part of a matmul.
struct Serial<'a> {
    matmul: Matmul<'a>,
    c: &'a mut [f32],
    scratch: &'a mut [f32],
}

impl Kernel for Serial<'_> {
    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let Serial { matmul: p, c, scratch } = self;
        let (n, width) = (p.columns, V::LANES * ACROSS);
        let rows = c.len() / n;
        let (a_pack, b_pack) = scratch.split_at_mut(ROWS * DEPTH);
        for column in (0..n).step_by(COLUMNS) {
            let columns = COLUMNS.min(n - column);
            for from in (0..p.inner).step_by(DEPTH) {
                let depth = DEPTH.min(p.inner - from);
                let first = from == 0 && p.write == Write::Overwrite;
                let last = from + depth == p.inner;
                let b = Matrix { data: &p.b.data[from * p.b.row + column * p.b.column..], ..p.b };
                pack_columns(b, depth, columns, width, b_pack);
                let bias = p.bias.filter(|_| last).map(|bias| &bias[column..column + columns]);
                for row in (0..rows).step_by(ROWS) {
                    let height = ROWS.min(rows - row);
                    let a_data = &p.a.data[row * p.a.row + from * p.a.column..];
                    pack_rows(Matrix { data: a_data, ..p.a }, height, depth, V::ROWS, a_pack);
                    let block = Block {
                        a: a_pack,
                        a_step: V::ROWS,
                        a_panel: V::ROWS * depth,
                        b: b_pack,
                        depth,
                        rows: height,
                        columns,
                        stride: n,
                        bias,
                        add: !first,
                    };
                    block.run_tall(v, &mut c[row * n + column..]);
                }
            }
        }
    }
}

/// Packs rows of `a` into panels of `height`: for each inner index, `height` adjacent elements.
/// Missing rows are zero.
#[inline(always)]
pub(crate) fn pack_rows(
    a: Matrix<'_>,
    rows: usize,
    depth: usize,
    height: usize,
    packed: &mut [f32],
) {
    for (panel, out) in packed[..rows.div_ceil(height) * height * depth]
        .chunks_exact_mut(height * depth)
        .enumerate()
    {
        let first = panel * height;
        let here = height.min(rows - first);
        pack_panel(a.data, first * a.row, [a.row, a.column], [here, depth], height, out);
    }
}

/// Packs columns of `b` into panels of `width`: for each inner index, `width` adjacent elements.
/// Missing columns are zero.
#[inline(always)]
pub(crate) fn pack_columns(
    b: Matrix<'_>,
    depth: usize,
    columns: usize,
    width: usize,
    packed: &mut [f32],
) {
    for (panel, out) in packed[..columns.div_ceil(width) * width * depth]
        .chunks_exact_mut(width * depth)
        .enumerate()
    {
        let first = panel * width;
        let here = width.min(columns - first);
        pack_panel(b.data, first * b.column, [b.column, b.row], [here, depth], width, out);
    }
}

/// `out[d * pitch + i] = data[start + i * across + d * along]` for `i < here`, zero beyond.
#[inline(always)]
fn pack_panel(
    data: &[f32],
    start: usize,
    [across, along]: [usize; 2],
    [here, depth]: [usize; 2],
    pitch: usize,
    out: &mut [f32],
) {
    if across == 1 {
        for (d, line) in out.chunks_exact_mut(pitch).take(depth).enumerate() {
            let source = &data[start + d * along..];
            if here == pitch {
                // The compiler knows the length here, so this is not a call to memcpy.
                line.copy_from_slice(&source[..pitch]);
                continue;
            }
            let (filled, rest) = line.split_at_mut(here);
            filled.copy_from_slice(&source[..here]);
            rest.fill(0.0);
        }
        return;
    }
    for i in 0..here {
        let line = &data[start + i * across..];
        if along == 1 {
            for (slot, &value) in out[i..].iter_mut().step_by(pitch).zip(&line[..depth]) {
                *slot = value;
            }
        } else {
            for (d, slot) in out[i..].iter_mut().step_by(pitch).take(depth).enumerate() {
                *slot = line[d * along];
            }
        }
    }
    for i in here..pitch {
        out[i..].iter_mut().step_by(pitch).take(depth).for_each(|slot| *slot = 0.0);
    }
}

/// The matmul of packed panels, at most one block of the inner dimension deep.
pub(crate) struct Block<'a> {
    /// Left panels. With `a_step` the row pitch, also a row-major transposed matrix without
    /// packing.
    pub(crate) a: &'a [f32],
    /// Distance between inner indexes in a left panel.
    pub(crate) a_step: usize,
    /// Distance between left panels.
    pub(crate) a_panel: usize,
    /// Right panels.
    pub(crate) b: &'a [f32],
    /// Inner dimension, at most a block.
    pub(crate) depth: usize,
    /// Rows of the result.
    pub(crate) rows: usize,
    /// Columns of the result.
    pub(crate) columns: usize,
    /// Distance between rows of the result.
    pub(crate) stride: usize,
    /// Added to the sums at the end.
    pub(crate) bias: Option<&'a [f32]>,
    /// Whether the sums are added to the old content.
    pub(crate) add: bool,
}

impl Block<'_> {
    /// Runs with the tallest tile of the instruction set.
    #[inline(always)]
    pub(crate) fn run_tall<V: Vector>(&self, v: V, c: &mut [f32]) {
        match V::ROWS {
            12 => self.run::<V, 12>(v, c),
            6 => self.run::<V, 6>(v, c),
            _ => self.run::<V, 4>(v, c),
        }
    }

    /// Runs with a tile of `H` rows.
    #[inline(always)]
    pub(crate) fn run<V: Vector, const H: usize>(&self, v: V, c: &mut [f32]) {
        let width = V::LANES * ACROSS;
        for column in (0..self.columns).step_by(width) {
            let across = width.min(self.columns - column);
            let b = &self.b[column * self.depth..][..width * self.depth];
            for (panel, row) in (0..self.rows).step_by(H).enumerate() {
                let down = H.min(self.rows - row);
                let sums = tile::<V, H>(v, &self.a[panel * self.a_panel..], self.a_step, b);
                let c = &mut c[row * self.stride + column..];
                if down == H && across == width {
                    self.store_whole(v, &sums, c, column);
                } else {
                    self.store_edge(v, &sums, c, column, [down, across]);
                }
            }
        }
    }

    #[inline(always)]
    fn store_whole<V: Vector, const H: usize>(
        &self,
        v: V,
        sums: &[[V::Register; ACROSS]; H],
        c: &mut [f32],
        column: usize,
    ) {
        for (row, line) in sums.iter().enumerate() {
            let c = &mut c[row * self.stride..][..V::LANES * ACROSS];
            for (part, &sum) in line.iter().enumerate() {
                let lanes = part * V::LANES..(part + 1) * V::LANES;
                let mut value = sum;
                if self.add {
                    value = v.add(v.load(&c[lanes.clone()]), value);
                }
                if let Some(bias) = self.bias {
                    value = v.add(value, v.load(&bias[column..][lanes.clone()]));
                }
                v.store(&mut c[lanes], value);
            }
        }
    }

    /// For a tile that extends beyond the result: the same sums in the same order, element by
    /// element.
    #[inline(always)]
    fn store_edge<V: Vector, const H: usize>(
        &self,
        v: V,
        sums: &[[V::Register; ACROSS]; H],
        c: &mut [f32],
        column: usize,
        [down, across]: [usize; 2],
    ) {
        let mut line = [0.0f32; WIDEST];
        for (row, registers) in sums.iter().enumerate().take(down) {
            for (part, &sum) in registers.iter().enumerate() {
                v.store(&mut line[part * V::LANES..], sum);
            }
            let c = &mut c[row * self.stride..][..across];
            for (index, (slot, &sum)) in c.iter_mut().zip(&line).enumerate() {
                let mut value = if self.add { *slot + sum } else { sum };
                if let Some(bias) = self.bias {
                    value += bias[column + index];
                }
                *slot = value;
            }
        }
    }
}

/// `H` rows by `ACROSS` registers of sums over one panel pair.
#[inline(always)]
fn tile<V: Vector, const H: usize>(
    v: V,
    a: &[f32],
    a_step: usize,
    b: &[f32],
) -> [[V::Register; ACROSS]; H] {
    const { assert!(H <= TALLEST && V::LANES * ACROSS <= WIDEST) };
    let mut sums = [[v.splat(0.0); ACROSS]; H];
    for (a, b) in a.chunks(a_step).zip(b.chunks_exact(V::LANES * ACROSS)) {
        let right: [V::Register; ACROSS] =
            std::array::from_fn(|part| v.load(&b[part * V::LANES..]));
        let a = &a[..H];
        for (line, &left) in sums.iter_mut().zip(a) {
            let left = v.splat(left);
            for (sum, &right) in line.iter_mut().zip(&right) {
                *sum = v.fma(left, right, *sum);
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize, seed: u64) -> Vec<f32> {
        let mut stream = rng::Stream::new(seed, rng::Purpose::Init, 0);
        (0..count).map(|_| stream.normal()).collect()
    }

    /// `[rows, columns, inner]`: beyond every packing limit, at edges, and tiny.
    const SIZES: [[usize; 3]; 7] = [
        [1, 1, 1],
        [5, 33, 2],
        [12, 32, 256],
        [250, 40, 257],
        [3, 1700, 70],
        [121, 1537, 300],
        [260, 70, 600],
    ];

    fn multiply(isa: Isa, threads: usize, [m, n, k]: [usize; 3], kind: usize) -> Vec<f32> {
        let (a, b, bias) = (values(m * k, 1), values(k * n, 2), values(n, 3));
        let pool = Pool::new(threads).unwrap();
        let mut scratch = vec![f32::NAN; SCRATCH * threads];
        let mut c = values(m * n, 4);
        let operands = Matmul {
            a: if kind == 2 { Matrix::transposed(&a, m) } else { Matrix::rows(&a, k) },
            b: if kind == 0 { Matrix::transposed(&b, k) } else { Matrix::rows(&b, n) },
            inner: k,
            columns: n,
            bias: (kind == 0).then_some(&bias[..]),
            write: if kind == 2 { Write::Accumulate } else { Write::Overwrite },
        };
        matmul(&pool, isa, &mut scratch, &operands, &mut c);
        c
    }

    /// The same result in f64, from the definition.
    fn reference([m, n, k]: [usize; 3], kind: usize) -> Vec<f64> {
        let (a, b, bias) = (values(m * k, 1), values(k * n, 2), values(n, 3));
        let before = values(m * n, 4);
        let a_at = |i: usize, p: usize| if kind == 2 { a[p * m + i] } else { a[i * k + p] };
        let b_at = |p: usize, j: usize| if kind == 0 { b[j * k + p] } else { b[p * n + j] };
        let mut c = Vec::new();
        for i in 0..m {
            for j in 0..n {
                let start = match kind {
                    0 => f64::from(bias[j]),
                    2 => f64::from(before[i * n + j]),
                    _ => 0.0,
                };
                let sum = (0..k).map(|p| f64::from(a_at(i, p)) * f64::from(b_at(p, j)));
                c.push(start + sum.sum::<f64>());
            }
        }
        c
    }

    #[test]
    fn matmuls_are_right_and_have_the_same_bits_everywhere() {
        let isas = Isa::all_for_tests();
        for size in SIZES {
            for kind in 0..3 {
                let want = reference(size, kind);
                let first = multiply(Isa::best(), 1, size, kind);
                let worst = (size[2] as f64).sqrt() * 4e-6;
                for (got, want) in first.iter().zip(&want) {
                    assert!((f64::from(*got) - want).abs() < worst, "{size:?} {kind}");
                }
                for &isa in &isas {
                    for threads in [1, 2, 3] {
                        let got = multiply(isa, threads, size, kind);
                        let name = isa.name();
                        assert!(got == first, "{size:?} {kind} {name} {threads} threads");
                    }
                }
            }
        }
    }
}
