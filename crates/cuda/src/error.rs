//! What can go wrong between this program and a GPU. Messages say what to do.

use crate::library::LibraryError;
use crate::nvml::GpuProcess;
use plan::BackendError;
use std::fmt;

/// A call that failed, or a driver that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CudaError {
    /// The library, or one of its functions, is missing.
    Library(LibraryError),
    /// The driver supports only a version below CUDA 12.0.
    TooOld {
        /// The driver's version number.
        version: i32,
    },
    /// There is no GPU.
    NoDevice,
    /// The index is beyond the last GPU.
    NoSuchDevice {
        /// What was asked for.
        asked: u32,
        /// How many there are.
        count: u32,
    },
    /// The GPU's architecture is too old.
    Architecture {
        /// Its name.
        name: String,
        /// Its compute capability times ten.
        sm: u32,
    },
    /// The GPU has no memory left for a context.
    Full {
        /// Processes that hold its memory.
        holders: Vec<GpuProcess>,
    },
    /// The compiler does not know the GPU's architecture.
    CompilerTooOld {
        /// The compiler's version.
        major: i32,
        /// Its second part.
        minor: i32,
        /// The architecture, times ten.
        sm: u32,
    },
    /// A call failed.
    Call {
        /// The function that failed.
        call: &'static str,
        /// The driver's error code.
        code: i32,
        /// The driver's error message.
        said: String,
    },
    /// A call of NCCL failed, or its communicator was given up.
    Nccl {
        /// The function that failed.
        call: &'static str,
        /// NCCL's error code.
        code: i32,
        /// NCCL's error message.
        said: String,
    },
    /// Bytes could not be exchanged with other ranks.
    Exchange(BackendError),
    /// NVRTC refused a kernel.
    Compiler {
        /// The file.
        file: String,
        /// The compiler's log.
        log: String,
    },
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CudaError::Library(error) => error.fmt(f),
            CudaError::TooOld { version } => {
                let (major, minor) = (version / 1000, version % 1000 / 10);
                write!(f, "the NVIDIA driver supports CUDA {major}.{minor}, 12.0 is needed; ")?;
                f.write_str("install driver 525 or newer")
            }
            CudaError::NoDevice => {
                f.write_str("the NVIDIA driver sees no GPU (see nvidia-smi, CUDA_VISIBLE_DEVICES)")
            }
            CudaError::NoSuchDevice { asked, count } => {
                let s = if *count == 1 { "" } else { "s" };
                write!(f, "there is no GPU {asked}: this process sees {count} GPU{s}, ")?;
                f.write_str("counted from 0 (see `fitgpt devices`)")
            }
            CudaError::Architecture { name, sm } => {
                let (major, minor) = (sm / 10, sm % 10);
                write!(f, "{name} has compute capability {major}.{minor}, 8.0 is needed: ")?;
                f.write_str("RTX 30 series, A100 or newer")
            }
            CudaError::Full { holders } => {
                f.write_str("the GPU has no memory left for a context")?;
                let names: Vec<String> = holders.iter().map(ToString::to_string).collect();
                match names.is_empty() {
                    true => f.write_str("; end programs that use it"),
                    false => write!(f, "; its memory is held by {}", names.join(", ")),
                }
            }
            CudaError::CompilerTooOld { major, minor, sm } => {
                write!(f, "NVRTC {major}.{minor} does not support sm_{sm}; install a newer one, ")?;
                f.write_str("`pip install nvidia-cuda-nvrtc`")
            }
            CudaError::Call { call, code, said } => {
                write!(f, "{call}: {said} (error {code})")?;
                match STOPPED.contains(code) {
                    true => f.write_str("; the GPU stopped working in this run, see nvidia-smi"),
                    false => Ok(()),
                }
            }
            CudaError::Nccl { call, code, said } => {
                write!(f, "{call}: {said} (NCCL error {code})")
            }
            CudaError::Exchange(error) => error.fmt(f),
            CudaError::Compiler { file, log } => write!(f, "NVRTC refused {file}: {log}"),
        }
    }
}

impl std::error::Error for CudaError {}

impl From<LibraryError> for CudaError {
    fn from(error: LibraryError) -> CudaError {
        CudaError::Library(error)
    }
}

/// The driver's error code for out of memory.
pub(crate) const OUT_OF_MEMORY: i32 = 2;

/// The driver's error codes after which the GPU cannot be used any more: a memory or launch fault,
/// an uncorrectable error, a GPU that fell off the bus.
const STOPPED: [i32; 6] = [214, 700, 702, 715, 719, 999];
