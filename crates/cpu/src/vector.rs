//! Registers of f32 behind one trait, for the kernels whose speed depends on keeping sums in
//! registers (matmuls). Everything else is plain loops that the compiler vectorises.
//!
//! A value of [`Avx512`] or [`Avx2`] proves that the CPU has the instructions: only `detect` makes
//! one, so the methods are safe to call.

/// A CPU's vector registers.
pub(crate) trait Vector: Copy {
    /// One register.
    type Register: Copy;
    /// Number of f32 in a register.
    const LANES: usize;
    /// Rows of the register tile of a matmul.
    const ROWS: usize;
    /// The same value in all lanes.
    fn splat(self, value: f32) -> Self::Register;
    /// Loads the first lanes of `from`, which must have enough elements.
    fn load(self, from: &[f32]) -> Self::Register;
    /// Stores into the first elements of `to`, which must have enough.
    fn store(self, to: &mut [f32], value: Self::Register);
    /// `a · b + c` with one rounding.
    fn fma(self, a: Self::Register, b: Self::Register, c: Self::Register) -> Self::Register;
    /// `a + b`.
    fn add(self, a: Self::Register, b: Self::Register) -> Self::Register;
}

/// 512-bit registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx512(());

/// 256-bit registers with fused multiply-add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx2(());

/// No special instructions; `mul_add` may be a library call, which is exact but slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Portable;

#[cfg(not(target_arch = "x86_64"))]
mod absent {
    use super::{Avx2, Avx512};

    impl Avx512 {
        pub(crate) fn detect() -> Option<Avx512> {
            None
        }
    }

    impl Avx2 {
        pub(crate) fn detect() -> Option<Avx2> {
            None
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Avx2, Avx512, Vector};
    use std::arch::x86_64::*;

    impl Avx512 {
        /// A proof, if the CPU has everything that the dispatch enables.
        pub(crate) fn detect() -> Option<Avx512> {
            let has = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma");
            has.then_some(Avx512(()))
        }
    }

    impl Avx2 {
        /// A proof, if the CPU has everything that the dispatch enables.
        pub(crate) fn detect() -> Option<Avx2> {
            let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            has.then_some(Avx2(()))
        }
    }

    impl Vector for Avx512 {
        type Register = __m512;
        const LANES: usize = 16;
        const ROWS: usize = 12;

        #[inline(always)]
        fn splat(self, value: f32) -> __m512 {
            // SAFETY: `self` proves AVX-512F.
            unsafe { _mm512_set1_ps(value) }
        }

        #[inline(always)]
        fn load(self, from: &[f32]) -> __m512 {
            assert!(from.len() >= Self::LANES);
            // SAFETY: `self` proves AVX-512F; the slice has 16 elements.
            unsafe { _mm512_loadu_ps(from.as_ptr()) }
        }

        #[inline(always)]
        fn store(self, to: &mut [f32], value: __m512) {
            assert!(to.len() >= Self::LANES);
            // SAFETY: `self` proves AVX-512F; the slice has 16 elements.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), value) }
        }

        #[inline(always)]
        fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
            // SAFETY: `self` proves AVX-512F.
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }

        #[inline(always)]
        fn add(self, a: __m512, b: __m512) -> __m512 {
            // SAFETY: `self` proves AVX-512F.
            unsafe { _mm512_add_ps(a, b) }
        }
    }

    impl Vector for Avx2 {
        type Register = __m256;
        const LANES: usize = 8;
        const ROWS: usize = 6;

        #[inline(always)]
        fn splat(self, value: f32) -> __m256 {
            // SAFETY: `self` proves AVX2.
            unsafe { _mm256_set1_ps(value) }
        }

        #[inline(always)]
        fn load(self, from: &[f32]) -> __m256 {
            assert!(from.len() >= Self::LANES);
            // SAFETY: `self` proves AVX2; the slice has 8 elements.
            unsafe { _mm256_loadu_ps(from.as_ptr()) }
        }

        #[inline(always)]
        fn store(self, to: &mut [f32], value: __m256) {
            assert!(to.len() >= Self::LANES);
            // SAFETY: `self` proves AVX2; the slice has 8 elements.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), value) }
        }

        #[inline(always)]
        fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
            // SAFETY: `self` proves FMA.
            unsafe { _mm256_fmadd_ps(a, b, c) }
        }

        #[inline(always)]
        fn add(self, a: __m256, b: __m256) -> __m256 {
            // SAFETY: `self` proves AVX2.
            unsafe { _mm256_add_ps(a, b) }
        }
    }
}

impl Vector for Portable {
    type Register = [f32; 4];
    const LANES: usize = 4;
    const ROWS: usize = 4;

    #[inline(always)]
    fn splat(self, value: f32) -> [f32; 4] {
        [value; 4]
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> [f32; 4] {
        [from[0], from[1], from[2], from[3]]
    }

    #[inline(always)]
    fn store(self, to: &mut [f32], value: [f32; 4]) {
        to[..4].copy_from_slice(&value);
    }

    #[inline(always)]
    fn fma(self, a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|lane| a[lane].mul_add(b[lane], c[lane]))
    }

    #[inline(always)]
    fn add(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|lane| a[lane] + b[lane])
    }
}
