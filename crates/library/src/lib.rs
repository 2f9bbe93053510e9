//! Loads C libraries at run time, so that nothing of NVIDIA's or of an MPI is needed to build this
//! program: `loaded.rs` opens a file and finds its functions, `environments.rs` knows the Python
//! environments whose wheels may hold one. Which files to try is the caller's business.

mod loaded;
mod environments;

pub use environments::{environments, own_root, program, site_packages_of};
pub use loaded::{Library, LibraryError};

/// Declares a table of C functions of one library: a struct with a field for each, and `load`,
/// whose error names a missing function. The types are those of the library's reference.
#[macro_export]
macro_rules! function_table {
    (
        $(#[$doc:meta])*
        $table:ident { $($symbol:ident : fn($($arg:ty),* $(,)?) -> $out:ty),+ $(,)? }
    ) => {
        $(#[$doc])*
        #[allow(non_snake_case)]
        pub(crate) struct $table {
            $(pub(crate) $symbol: unsafe extern "C" fn($($arg),*) -> $out,)+
            /// Keeps the library loaded.
            #[allow(dead_code)]
            pub(crate) library: $crate::Library,
        }

        impl $table {
            pub(crate) fn load(library: $crate::Library) -> Result<$table, $crate::LibraryError> {
                Ok($table {
                    $(
                        // SAFETY: the type is that of the library's reference for this symbol.
                        $symbol: unsafe { library.function(stringify!($symbol)) }?,
                    )+
                    library,
                })
            }
        }
    };
}
