//! A GPU of this machine: what it is, and its context with the libraries that compute on it. Its
//! memory use is measured with the driver's numbers from before the context was created, never
//! assumed.

use crate::context::DriverContext;
use crate::cubin_cache::CubinCache;
use crate::cublaslt::MatmulLibrary;
use crate::driver::{Attribute, Driver};
use crate::error::{CudaError, OUT_OF_MEMORY};
use crate::matmul_cache::MatmulCache;
use crate::nvml::{Nvml, NvmlGpu};
use crate::nvrtc::Compiler;
use crate::tiles::Tiles;
use plan::GpuScratch;
use std::sync::Arc;

/// The oldest compute capability that the kernels run on, times ten.
pub const OLDEST_SM: u32 = 80;

/// What kind of GPU it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// Its index among the GPUs that this process sees.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Compute capability times ten: 89 is 8.9.
    pub sm: u32,
    /// Bytes of its memory.
    pub memory: u64,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Its PCI address.
    pub pci_bus_id: String,
}

impl GpuInfo {
    /// Whether it multiplies by warpgroups: Hopper alone.
    pub fn has_warpgroups(&self) -> bool {
        self.sm / 10 == 9
    }

    /// Whether the kernels run on it.
    pub fn is_supported(&self) -> bool {
        self.sm >= OLDEST_SM
    }
}

/// All GPUs that this process may see.
pub fn gpus(driver: &Driver) -> Result<Vec<GpuInfo>, CudaError> {
    (0..driver.device_count()?).map(|index| info(driver, index)).collect()
}

fn info(driver: &Driver, index: u32) -> Result<GpuInfo, CudaError> {
    let device = driver.device(index)?;
    let attribute = |what| driver.attribute(what, device);
    Ok(GpuInfo {
        index,
        name: driver.name(device)?,
        sm: attribute(Attribute::Major)? * 10 + attribute(Attribute::Minor)?,
        memory: driver.total_memory(device)?,
        multiprocessors: attribute(Attribute::Multiprocessors)?,
        pci_bus_id: driver.pci_bus_id(device)?,
    })
}

/// A GPU with its context and libraries.
pub struct Gpu {
    pub(crate) context: Arc<DriverContext>,
    pub(crate) matmuls: Arc<MatmulLibrary>,
    pub(crate) compiler: Compiler,
    pub(crate) cache: CubinCache,
    info: GpuInfo,
    /// The CUDA version that the driver supports; 13000 means 13.0.
    driver_version: i32,
    nvml: Option<(Nvml, NvmlGpu)>,
    /// Bytes of the context: how much more memory was in use after it was created.
    context_bytes: u64,
    /// Bytes in use by all processes right after the context was created, as the driver reports.
    used_with_context: u64,
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GPU {}: {}", self.info.index, self.info.name)
    }
}

impl Gpu {
    /// Which files of the kernel cache were not used, and why.
    pub fn cache_notice(&self) -> Option<String> {
        self.cache.take_notice()
    }

    /// Opens a GPU: driver, compiler, context and matmul library.
    pub fn open(index: u32, cache: CubinCache) -> Result<Gpu, CudaError> {
        let driver = Driver::load()?;
        let info = info(&driver, index)?;
        if !info.is_supported() {
            return Err(CudaError::Architecture { name: info.name, sm: info.sm });
        }
        let newest = (driver.version() / 1000) as u32;
        let compiler = Compiler::load(Some(newest))?;
        let nvml = Nvml::load().ok().and_then(|nvml| {
            let gpu = nvml.gpu(&info.pci_bus_id)?;
            Some((nvml, gpu))
        });
        if !compiler.architectures().contains(&info.sm) {
            let (major, minor) = compiler.version();
            return Err(CudaError::CompilerTooOld { major, minor, sm: info.sm });
        }
        let used = || nvml.as_ref().and_then(|(nvml, gpu)| nvml.used(*gpu));
        let before = used();
        let context =
            DriverContext::new(driver.clone(), driver.device(index)?).map_err(|error| {
                let holders = nvml.as_ref().map_or(Vec::new(), |(nvml, gpu)| nvml.processes(*gpu));
                match error {
                    CudaError::Call { code: OUT_OF_MEMORY, .. } => CudaError::Full { holders },
                    other => other,
                }
            })?;
        let (free, total) = context.memory()?;
        let grown = before.zip(used()).map(|(before, now)| now.saturating_sub(before));
        // Another process may have freed memory in between. No context is that small.
        let context_bytes =
            grown.filter(|&grown| grown >= LEAST_CONTEXT).unwrap_or(ASSUMED_CONTEXT);
        let matmuls = Arc::new(MatmulLibrary::load(&context, newest)?);
        Ok(Gpu {
            context,
            matmuls,
            compiler,
            cache,
            info,
            driver_version: driver.version(),
            nvml,
            context_bytes,
            used_with_context: total - free,
        })
    }

    /// What it is.
    pub fn info(&self) -> &GpuInfo {
        &self.info
    }

    /// The compiler.
    pub fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    /// The matmuls.
    pub fn matmuls(&self) -> &MatmulLibrary {
        &self.matmuls
    }

    /// The algorithms that were fastest on this GPU with these libraries; none without a cache.
    pub(crate) fn matmul_cache(&self) -> Option<MatmulCache> {
        let (name, driver) = (&self.info.name, self.driver_version);
        let made_for = format!("{name}, driver {driver}, cuBLASLt {}", self.matmuls.version());
        let (cache, notice) = MatmulCache::read(self.cache.folder()?, made_for);
        notice.into_iter().for_each(|notice| self.cache.notice(notice));
        Some(cache)
    }

    /// Tile sizes that suit it.
    pub fn tiles(&self) -> Tiles {
        Tiles::of(self.info.sm)
    }

    /// The scratch of its kernels. Hopper has its own for attention.
    pub fn scratch(&self) -> GpuScratch {
        GpuScratch { warpgroups: self.info.has_warpgroups() }
    }

    /// Free bytes and total bytes of its memory.
    pub fn memory(&self) -> Result<(u64, u64), CudaError> {
        self.context.memory()
    }

    /// Bytes that this process holds on the device now: context, code, libraries and arena. As the
    /// driver reports for this process, if it does; else how much more is in use than before.
    pub fn held_bytes(&self) -> Result<u64, CudaError> {
        let (free, total) = self.context.memory()?;
        let since = (total - free).saturating_sub(self.used_with_context);
        let own = self.nvml.as_ref().and_then(|(nvml, gpu)| nvml.own_bytes(*gpu));
        Ok(held(own, self.context_bytes, since, self.context.allocated()))
    }

    /// Other processes that hold memory of it.
    pub fn others(&self) -> Vec<crate::nvml::GpuProcess> {
        let own = std::process::id();
        let Some((nvml, gpu)) = &self.nvml else {
            return Vec::new();
        };
        nvml.processes(*gpu).into_iter().filter(|process| process.pid != own).collect()
    }
}

/// The assumed size of a context if the driver does not report it: more than was ever measured.
const ASSUMED_CONTEXT: u64 = 640 << 20;

/// Less than any context holds.
const LEAST_CONTEXT: u64 = 64 << 20;

/// Bytes that a process holds, from several counts. The driver's count (`own`) is used unless it is
/// less than what we allocated ourselves: then it belongs to a process with our id in another
/// container. Otherwise the result is the context plus what is in use `since` it was created. That
/// misses what other processes have freed, so it is at least what we allocated.
fn held(own: Option<u64>, context: u64, since: u64, allocated: u64) -> u64 {
    let least = context.saturating_add(allocated);
    let own = own.filter(|&own| own >= allocated.saturating_add(LEAST_CONTEXT));
    own.unwrap_or(context.saturating_add(since).max(least))
}

#[cfg(test)]
mod tests {
    use super::held;

    #[test]
    fn no_count_can_hide_what_we_took() {
        const MIB: u64 = 1 << 20;
        let cases = [
            // The driver reports it.
            (Some(9000), 520, 8400, 8400, 9000),
            // It does not: the context and what came after it.
            (None, 520, 8410, 8400, 8930),
            // Others freed 1000 in between.
            (None, 520, 7410, 8400, 8920),
            // Another process has our id.
            (Some(30), 520, 8410, 8400, 8930),
        ];
        for (own, context, since, allocated, want) in cases {
            let got =
                held(own.map(|own: u64| own * MIB), context * MIB, since * MIB, allocated * MIB);
            assert_eq!(got / MIB, want);
        }
    }
}
