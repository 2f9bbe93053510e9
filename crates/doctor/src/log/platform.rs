//! Whose memory ran out, and on which system.

use super::failure::Failure;
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
    pub fn find(lines: &[Line], failure: Option<&Failure>, nvidia: bool) -> Backend {
        let Some(failure) = failure else {
            return Backend::Unknown;
        };
        if failure.host {
            return Backend::Host;
        }
        // The message's own words count most.
        let message = failure.message(lines);
        let of = |text: &str| {
            let has = |words: &str| text.contains(words);
            match () {
                () if has("HIP ") || has("hipError") || has("ROCm") || has("rocm") => Backend::Rocm,
                () if has("MPS ") || has("kIOGPU") => Backend::Mps,
                () if has("device:CPU") || has("allocator cpu") => Backend::Host,
                () if has("CUDA") || has("cuda") || has("Cuda") => Backend::Cuda,
                () if has("device:GPU") || has("GPU_0_bfc") => Backend::Cuda,
                () => Backend::Unknown,
            }
        };
        match of(&message) {
            Backend::Unknown => {
                let mut all = lines.iter().rev().map(|line| of(&line.text));
                let found = all.find(|found| *found != Backend::Unknown);
                // Cards that we know by name are NVIDIA's, and PyTorch's other backends name
                // themselves.
                let other = message.contains("torch.OutOfMemoryError") || nvidia;
                found.unwrap_or(if other { Backend::Cuda } else { Backend::Unknown })
            }
            found => found,
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
        let any = |table: &[&str]| {
            lines.iter().any(|line| table.iter().any(|words| line.text.contains(words)))
        };
        let drive = |line: &Line| {
            let text = line.text.as_bytes();
            text.windows(3).any(|w| w[0].is_ascii_alphabetic() && w[1] == b':' && w[2] == b'\\')
        };
        match () {
            () if any(&["WSL", "/mnt/c/", "microsoft-standard"]) => System::Wsl,
            () if lines.iter().any(drive) => System::Windows,
            () if any(&[
                "Windows 1",
                "WIN1",
                "Win1",
                "win1",
                "windows1",
                "(windows)",
                "site-packages\\",
                "\\c10\\",
            ]) =>
            {
                System::Windows
            }
            () if any(&["/Users/", "macOS", "MPS backend"]) => System::Mac,
            () if any(&[
                "/home/",
                "/root/",
                "/usr/",
                "/content/",
                "/opt/",
                "/tmp/",
                "/workspace",
                "/mnt/",
                "kernel: ",
                "Ubuntu",
                "anon-rss",
            ]) =>
            {
                System::Linux
            }
            () => System::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Backend, System};
    use crate::log::Log;

    #[test]
    fn memory_and_system_are_told_apart() {
        for (text, backend, system) in [
            ("HIP out of memory. Tried to allocate 2.00 GiB", Backend::Rocm, System::Unknown),
            ("MPS backend out of memory (MPS allocated: 1.00 GB", Backend::Mps, System::Mac),
            ("/home/me/x.py\nCUDA error: out of memory", Backend::Cuda, System::Linux),
            ("C:\\me\\x.py\nCUDA error: out of memory", Backend::Cuda, System::Windows),
            ("/mnt/c/me/x.py\nCUDA error: out of memory", Backend::Cuda, System::Wsl),
            ("kernel: Out of memory: Killed process 3 (python)", Backend::Host, System::Linux),
            ("Killed", Backend::Host, System::Unknown),
            (
                "DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes",
                Backend::Host,
                System::Unknown,
            ),
            ("all is well", Backend::Unknown, System::Unknown),
        ] {
            let log = Log::read(text.as_bytes());
            assert_eq!((log.backend, log.system), (backend, system), "{text}");
        }
    }
}
