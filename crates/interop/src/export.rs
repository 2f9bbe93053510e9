//! A model to be written for another program, and why that may fail.

use crate::new_folder::Existing;
use checkpoint::{Dtype, ReadError, SaveError, TensorSource};
use model::Dims;
use plan::ops::GeluKind;
use std::path::{Path, PathBuf};
use tokenizer::Tokenizer;

/// A model to write.
#[derive(Clone, Copy)]
pub struct ExportModel<'a> {
    /// Its weights, under the names of our checkpoints. Nothing else is read.
    pub tensors: &'a dyn TensorSource,
    /// Its sizes.
    pub dims: Dims,
    /// Its form of GELU.
    pub gelu: GeluKind,
    /// Its tokenizer, if it is known.
    pub tokenizer: Option<&'a Tokenizer>,
    /// What to call it where a format asks for a name.
    pub name: &'a str,
}

/// The number format of written weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// 32-bit floats.
    Float32,
    /// IEEE 16-bit floats; the largest is 65504.
    Float16,
    /// The upper halves of 32-bit floats.
    BFloat16,
}

impl Precision {
    /// All, with their names.
    pub const ALL: [(&'static str, Precision); 3] = [
        ("float32", Precision::Float32),
        ("float16", Precision::Float16),
        ("bfloat16", Precision::BFloat16),
    ];

    /// The name that PyTorch and nanoGPT use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Precision::Float32 => "float32",
            Precision::Float16 => "float16",
            Precision::BFloat16 => "bfloat16",
        }
    }

    /// The element type.
    #[must_use]
    pub fn dtype(self) -> Dtype {
        match self {
            Precision::Float32 => Dtype::F32,
            Precision::Float16 => Dtype::F16,
            Precision::BFloat16 => Dtype::BF16,
        }
    }
}

/// Why a model was not written. What was there before is untouched, and no temporary file remains.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The model cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file cannot be written.
    #[error(transparent)]
    Save(#[from] SaveError),
    /// The format cannot hold this model.
    #[error("{what}")]
    Refused {
        /// Why, and what to do.
        what: String,
    },
    /// A weight is beyond the largest number of the wanted format.
    #[error(
        "{tensor} has the value {value:e}, but the largest {} is {}; use --dtype {advice}",
        precision.name(),
        if *precision == Precision::Float16 { "65504" } else { "3.4e38" }
    )]
    Overflow {
        /// The tensor.
        tensor: String,
        /// The value.
        value: f32,
        /// The wanted format.
        precision: Precision,
        /// A format that holds it.
        advice: &'static str,
    },
    /// Something has the name already.
    #[error("{} exists already: {advice}", path.display())]
    Exists {
        /// The file or folder.
        path: PathBuf,
        /// What to do.
        advice: String,
    },
    /// The caller asked to stop.
    #[error("stopped; nothing was written")]
    Stopped,
}

/// Refuses the name of a file that exists already, unless it may be replaced.
///
/// # Errors
///
/// When it exists and is to be kept, or is not a file: a device such as `/dev/null` must not be
/// replaced, whoever asks for it.
pub fn check_file(path: &Path, existing: Existing) -> Result<(), ExportError> {
    let refuse = |advice: &str| {
        Err(ExportError::Exists { path: path.to_owned(), advice: advice.to_owned() })
    };
    match std::fs::symlink_metadata(path) {
        Err(_) => Ok(()),
        Ok(found) if found.is_dir() => refuse("it is a folder; give --out the name of a file"),
        Ok(_) if path.exists() && !path.is_file() => {
            refuse("it is a device or a pipe; give --out the name of a file")
        }
        Ok(_) if existing == Existing::Keep => {
            refuse("give another --out, or add --overwrite to replace it")
        }
        Ok(_) => Ok(()),
    }
}

/// Counts written bytes and tells the caller, who may stop the work.
pub(crate) struct Meter<'a> {
    done: u64,
    total: u64,
    report: &'a mut dyn FnMut(u64, u64) -> bool,
}

impl<'a> Meter<'a> {
    /// Tells the caller how many bytes there will be, before the first is written.
    pub fn start(
        total: u64,
        report: &'a mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Meter<'a>, ExportError> {
        let mut meter = Meter { done: 0, total, report };
        meter.add(0)?;
        Ok(meter)
    }

    /// Counts bytes.
    pub fn add(&mut self, bytes: usize) -> Result<(), ExportError> {
        self.done += bytes as u64;
        match (self.report)(self.done, self.total) {
            true => Ok(()),
            false => Err(ExportError::Stopped),
        }
    }
}
