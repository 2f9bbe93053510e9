//! Which vector instructions this CPU has, and how kernels are compiled for them. The same Rust
//! code is compiled once for each instruction set; results are equal to the bit, only the speed
//! differs.

use crate::vector::{Avx2, Avx512, Portable, Vector};

/// The instruction sets that kernels are compiled for, each with its proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Avx512(Avx512),
    Avx2(Avx2),
    Portable,
}

/// An instruction set that this CPU is known to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Kind);

/// A kernel written over registers of any width. `run` must be `#[inline(always)]`, or it is
/// compiled without the instructions that it was dispatched for.
pub(crate) trait Kernel {
    /// Runs the kernel with the registers `v`.
    fn run<V: Vector>(self, v: V);
}

impl Isa {
    /// All instruction sets that this CPU has, best first.
    pub fn available() -> Vec<Isa> {
        let avx512 = Avx512::detect().map(Kind::Avx512);
        let avx2 = Avx2::detect().map(Kind::Avx2);
        avx512.into_iter().chain(avx2).chain([Kind::Portable]).map(Isa).collect()
    }

    /// All that this CPU has; the running test records those that it lacks.
    #[cfg(test)]
    #[track_caller]
    pub(crate) fn all_for_tests() -> Vec<Isa> {
        use requires::{Need, absent};
        if Avx512::detect().is_none() {
            absent(Need::Avx512, "this CPU has no AVX-512");
        }
        if Avx2::detect().is_none() {
            absent(Need::Avx2, "this CPU has no AVX2");
        }
        Isa::available()
    }

    /// The best instruction set that this CPU has.
    pub fn best() -> Isa {
        Isa::available().first().copied().unwrap_or(Isa(Kind::Portable))
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Avx512(_) => "AVX-512",
            Kind::Avx2(_) => "AVX2",
            Kind::Portable => "portable",
        }
    }

    /// The set itself.
    pub(crate) fn kind(self) -> Kind {
        self.0
    }

    /// Runs a kernel with the registers of this instruction set.
    pub(crate) fn dispatch(self, kernel: impl Kernel) {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        fn avx512(v: Avx512, kernel: impl Kernel) {
            kernel.run(v);
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        fn avx2(v: Avx2, kernel: impl Kernel) {
            kernel.run(v);
        }
        match self.0 {
            // SAFETY: a value of `Avx512` exists only where its features were detected.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(v) => unsafe { avx512(v, kernel) },
            // SAFETY: a value of `Avx2` exists only where its features were detected.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(v) => unsafe { avx2(v, kernel) },
            #[cfg(not(target_arch = "x86_64"))]
            Kind::Avx512(_) | Kind::Avx2(_) => kernel.run(Portable),
            Kind::Portable => kernel.run(Portable),
        }
    }
}

/// Defines a function whose body is plain loops and compiles it for each instruction set. The first
/// argument of the function is the [`Isa`].
macro_rules! for_each_isa {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$meta])*
        $vis fn $name(isa: $crate::isa::Isa, $($arg: $type),*) {
            #[inline(always)]
            fn body($($arg: $type),*) $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            fn avx512($($arg: $type),*) {
                body($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $type),*) {
                body($($arg),*)
            }
            match isa.kind() {
                // SAFETY: a value of `Avx512` exists only where its features were detected.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Kind::Avx512(_) => unsafe { avx512($($arg),*) },
                // SAFETY: a value of `Avx2` exists only where its features were detected.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Kind::Avx2(_) => unsafe { avx2($($arg),*) },
                _ => body($($arg),*),
            }
        }
    };
}
pub(crate) use for_each_isa;
