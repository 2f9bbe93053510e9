//! Whose memory ran out, and on which system.

use super::text::Line;

/// Whose memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// An NVIDIA GPU.
    Cuda,
    /// An AMD GPU.
    Rocm,
    /// An Apple GPU.
    Mps,
    /// The machine's own memory: the kernel killed the process, or an allocation on the CPU failed.
    Host,
    /// The log does not say.
    Unknown,
}

impl Backend {
    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Cuda => "cuda",
            Backend::Rocm => "rocm",
            Backend::Mps => "mps",
            Backend::Host => "host",
            Backend::Unknown => "unknown",
        }
    }

    /// Whose memory ran out in a log.
    pub fn find(lines: &[Line]) -> Backend {
        let has = |words: &str| lines.iter().any(|line| line.text.contains(words));
        match () {
            () if has("HIP out of memory") => Backend::Rocm,
            () if has("MPS backend out of memory") => Backend::Mps,
            () if has("CUDA") => Backend::Cuda,
            () if has("Out of memory: Kill") => Backend::Host,
            () => Backend::Unknown,
        }
    }
}

/// The operating system of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Linux.
    Linux,
    /// Windows. Its driver lends host memory to the GPU, so a process may hold more than the card.
    Windows,
    /// Linux in Windows, with the same driver.
    Wsl,
    /// macOS.
    Mac,
    /// The log does not say.
    Unknown,
}

impl System {
    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            System::Linux => "linux",
            System::Windows => "windows",
            System::Wsl => "wsl",
            System::Mac => "mac",
            System::Unknown => "unknown",
        }
    }

    /// The system of a log.
    pub fn find(lines: &[Line]) -> System {
        let has = |words: &str| lines.iter().any(|line| line.text.contains(words));
        match () {
            () if has("WSL") => System::Wsl,
            () if has(":\\") => System::Windows,
            () if has("/Users/") => System::Mac,
            () if has("/home/") => System::Linux,
            () => System::Unknown,
        }
    }
}
