//! The constants that a file of kernels is compiled with. A file has one table of them
//! (`constants!`), which makes a struct with one field for each constant: a module that lacks one
//! does not compile in Rust. What launches and kernels must agree on (threads of a block, layouts)
//! is a `const` in Rust and reaches the file through the table.

use plan::Dtype;

/// A type that a constant can have.
pub(crate) trait Constant {
    /// Its text after `#define NAME`.
    fn text(&self) -> String;
}

impl Constant for u32 {
    fn text(&self) -> String {
        self.to_string()
    }
}

impl Constant for u64 {
    fn text(&self) -> String {
        self.to_string()
    }
}

/// 1 or 0, for `#if`.
impl Constant for bool {
    fn text(&self) -> String {
        u32::from(*self).to_string()
    }
}

/// The type's name in C.
impl Constant for Dtype {
    fn text(&self) -> String {
        format_name(*self).to_string()
    }
}

/// How the kernels call a format.
pub(crate) fn format_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "float",
        Dtype::Bf16 => "bf16",
        Dtype::F16 => "f16",
        Dtype::I32 => "int",
        Dtype::U32 => "u32",
        Dtype::U16 => "u16",
    }
}

/// A table of constants: those that a plan decides, with their types, then the names of those that
/// a `const` of the same name in Rust decides.
macro_rules! constants {
    ($Name:ident { $($constant:ident: $Type:ty),+ $(,)? } fixed { $($fixed:ident),* $(,)? }) => {
        #[allow(non_snake_case, reason = "constants have their names in C")]
        struct $Name {
            $($constant: $Type),+
        }

        impl $Name {
            /// Their names.
            const NAMES: &'static [&'static str] =
                &[$(stringify!($constant)),+ $(, stringify!($fixed))*];

            /// The file of kernels with these constants.
            fn module(
                self,
                source: &'static $crate::kernel_source::Source,
            ) -> $crate::kernel_source::ModuleSpec {
                use $crate::constants::Constant as _;
                let constants = vec![
                    $((stringify!($constant), self.$constant.text())),+
                    $(, (stringify!($fixed), $fixed.text()))*
                ];
                $crate::kernel_source::ModuleSpec { source, constants }
            }
        }
    };
}

pub(crate) use constants;
