//! Reads the current state of the CPU, of every NVIDIA GPU, and of the libraries that training on
//! one needs. It creates no CUDA context, so it uses no GPU memory.

use crate::device::Device;
use ::cuda::{
    Compiler, CudaError, Driver, GpuInfo, GpuLoad, GpuProcess, Nccl, Nvml, NvmlGpu,
    find_matmul_library, gpus,
};
use plan::BackendError;
use std::sync::Arc;

/// The libraries, found once: they do not change.
pub struct Survey {
    driver: Result<Arc<Driver>, CudaError>,
    compiler: Result<Compiler, CudaError>,
    matmuls: Result<(usize, String), CudaError>,
    nccl: Result<Arc<Nccl>, CudaError>,
    nvml: Result<Nvml, CudaError>,
}

/// A library that training on a GPU needs.
pub struct LibraryFacts {
    /// Its key in JSON.
    pub key: &'static str,
    /// Its name for the user.
    pub name: &'static str,
    /// Its version, if it was found and reports it.
    pub version: Option<String>,
    /// The CUDA version that the driver supports.
    pub cuda: Option<String>,
    /// Where it was found.
    pub path: Option<String>,
    /// Why it cannot be used, and what to install.
    pub problem: Option<String>,
}

/// The current state of the CPU.
pub struct CpuFacts {
    /// Its name.
    pub name: Option<String>,
    /// Number of compute threads.
    pub threads: usize,
    /// Its vector instructions.
    pub instruction_set: &'static str,
    /// The most memory that this process could use.
    pub memory: Option<u64>,
    /// How much of it is free.
    pub free: Option<u64>,
}

/// The current state of a GPU.
pub struct GpuFacts {
    /// Name, architecture, memory size.
    pub info: GpuInfo,
    /// Bytes free, and bytes in use by all processes.
    pub memory: Option<(u64, u64)>,
    /// Load, temperature and power.
    pub load: Option<GpuLoad>,
    /// The processes that hold its memory, largest first.
    pub processes: Vec<GpuProcess>,
}

/// Everything read at one moment.
pub struct Reading {
    /// The CPU.
    pub cpu: CpuFacts,
    /// The GPUs that this process can see.
    pub gpus: Vec<GpuFacts>,
    /// The libraries that training on a GPU needs.
    pub libraries: [LibraryFacts; 5],
}

impl Survey {
    /// Looks for the libraries.
    pub fn new() -> Survey {
        let driver = Driver::load();
        let newest = driver.as_ref().ok().map(|driver| (driver.version() / 1000) as u32);
        Survey {
            compiler: Compiler::load(newest),
            matmuls: find_matmul_library(newest),
            nccl: Nccl::load(),
            nvml: Nvml::load().map_err(CudaError::from),
            driver,
        }
    }

    /// Reads everything that changes.
    pub fn read(&self) -> Result<Reading, BackendError> {
        let (gpus, problem) = match self.driver.as_ref().map(|driver| gpus(driver)) {
            Ok(Ok(found)) if !found.is_empty() => (found, None),
            Ok(Ok(_)) => (Vec::new(), Some(CudaError::NoDevice)),
            Ok(Err(error)) => (Vec::new(), Some(error)),
            Err(error) => (Vec::new(), Some(error.clone())),
        };
        let gpus = gpus.into_iter().map(|info| self.gpu(info)).collect();
        Ok(Reading { cpu: cpu_facts()?, gpus, libraries: self.libraries(problem) })
    }

    fn gpu(&self, info: GpuInfo) -> GpuFacts {
        let known: Option<(&Nvml, NvmlGpu)> =
            self.nvml.as_ref().ok().and_then(|nvml| Some((nvml, nvml.gpu(&info.pci_bus_id)?)));
        let memory = known.and_then(|(nvml, gpu)| nvml.memory(gpu));
        GpuFacts {
            memory: memory.map(|(_, free, used)| (free, used)),
            load: known.map(|(nvml, gpu)| nvml.load_of(gpu)),
            processes: known.map_or_else(Vec::new, |(nvml, gpu)| nvml.processes(gpu)),
            info,
        }
    }

    fn libraries(&self, driver_problem: Option<CudaError>) -> [LibraryFacts; 5] {
        let nvml = self.nvml.as_ref();
        let driver = self.driver.as_ref().ok();
        let compiler = self.compiler.as_ref().map(|compiler| {
            let (major, minor) = compiler.version();
            (Some(format!("{major}.{minor}")), compiler.path())
        });
        let matmuls = self.matmuls.as_ref();
        let matmuls = matmuls.map(|(version, path)| (Some(dotted(*version)), path.as_str()));
        let nccl = self.nccl.as_ref().map(|nccl| (Some(nccl.version()), nccl.path()));
        let mut nccl = library("nccl", "NCCL", nccl);
        nccl.problem = nccl.problem.map(|why| format!("only needed for several GPUs: {why}"));
        [
            LibraryFacts {
                key: "driver",
                name: "driver",
                version: nvml.ok().and_then(Nvml::driver_version),
                cuda: driver.map(|driver| cuda_version(driver.version())),
                path: driver.map(|driver| driver.path().to_string()),
                problem: driver_problem.map(|error| error.to_string()),
            },
            library("nvrtc", "NVRTC", compiler),
            library("cublaslt", "cuBLASLt", matmuls),
            nccl,
            library("nvml", "NVML", nvml.map(|nvml| (None, nvml.path()))),
        ]
    }
}

fn library(
    key: &'static str,
    name: &'static str,
    found: Result<(Option<String>, &str), &CudaError>,
) -> LibraryFacts {
    let empty = LibraryFacts { key, name, version: None, cuda: None, path: None, problem: None };
    match found {
        Ok((version, path)) => LibraryFacts { version, path: Some(path.to_string()), ..empty },
        Err(error) => LibraryFacts { problem: Some(error.to_string()), ..empty },
    }
}

fn cpu_facts() -> Result<CpuFacts, BackendError> {
    let found = Device::find(spec::RequestedDevice::Cpu, None)?;
    let (name, threads, instruction_set) = match &found {
        Device::Cpu(cpu) => (cpu.processor(), cpu.threads(), cpu.instruction_set()),
        Device::Cuda(_) => (None, 0, ""),
    };
    let (memory, free) = (::cpu::total_bytes(), ::cpu::available_bytes());
    Ok(CpuFacts { name, threads, instruction_set, memory, free })
}

/// 13010 is 13.1.
fn cuda_version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// 130102 is 13.1.2.
fn dotted(number: usize) -> String {
    format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_written_with_dots() {
        assert_eq!(cuda_version(13_010), "13.1");
        assert_eq!(cuda_version(12_080), "12.8");
        assert_eq!(dotted(130_102), "13.1.2");
        assert_eq!(dotted(120_804), "12.8.4");
    }
}
