//! A GPU that is there: what it is, and its context with the libraries that compute on it. Memory
//! is measured by the driver's own word from before the context on, never assumed.

use crate::cubin_cache::CubinCache;
use crate::cublaslt::Products;
use crate::driver::{Attribute, Context, CudaError, Driver};
use crate::nvml::{Nvml, NvmlGpu};
use crate::nvrtc::Compiler;
use crate::tiles::Tiles;
use std::sync::Arc;

/// Oldest architecture that the kernels run on, times ten.
pub const OLDEST_SM: u32 = 80;

/// What a GPU is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// Its index among those that this process may see.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Compute capability times ten: 89 is 8.9.
    pub sm: u32,
    /// Bytes of its memory.
    pub memory: u64,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of shared memory that a block may have.
    pub shared_per_block: u32,
    /// Bytes of its second cache.
    pub l2_bytes: u32,
    /// Whether its memory is the host's.
    pub integrated: bool,
    /// Where it is on the bus.
    pub pci_bus_id: String,
}

impl GpuInfo {
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
        shared_per_block: attribute(Attribute::SharedPerBlock)?,
        l2_bytes: attribute(Attribute::L2Bytes)?,
        integrated: attribute(Attribute::Integrated)? != 0,
        pci_bus_id: driver.pci_bus_id(device)?,
    })
}

/// A GPU with its context and libraries.
pub struct Gpu {
    pub(crate) context: Arc<Context>,
    pub(crate) products: Arc<Products>,
    pub(crate) compiler: Compiler,
    pub(crate) cache: CubinCache,
    info: GpuInfo,
    driver: Arc<Driver>,
    nvml: Option<(Nvml, NvmlGpu)>,
    /// Bytes in use by others before the context was made.
    used_before: Option<u64>,
    /// Bytes in use by all right after the context was made, by the driver's count.
    used_with_context: u64,
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GPU {}: {}", self.info.index, self.info.name)
    }
}

impl Gpu {
    /// Opens a GPU: driver, compiler, context, products.
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
        let used_before = nvml.as_ref().and_then(|(nvml, gpu)| nvml.used(*gpu));
        let context = Context::new(driver.clone(), driver.device(index)?)?;
        let (free, total) = context.memory()?;
        let products = Arc::new(Products::load(&context, newest)?);
        Ok(Gpu {
            context,
            products,
            compiler,
            cache,
            info,
            driver,
            nvml,
            used_before,
            used_with_context: total - free,
        })
    }

    /// What it is.
    pub fn info(&self) -> &GpuInfo {
        &self.info
    }

    /// The driver.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The compiler.
    pub fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    /// The products.
    pub fn products(&self) -> &Products {
        &self.products
    }

    /// Tile sizes that suit it.
    pub fn tiles(&self) -> Tiles {
        Tiles::of(self.info.sm)
    }

    /// Bytes of its memory that are free now, and all of them.
    pub fn memory(&self) -> Result<(u64, u64), CudaError> {
        self.context.memory()
    }

    /// Bytes that this process holds on the device now: context, code, libraries and arena. By the
    /// driver's count of this process where it tells, else by how much more is in use than before.
    pub fn held_bytes(&self) -> Result<u64, CudaError> {
        let (free, total) = self.context.memory()?;
        let used = total - free;
        let own = self.nvml.as_ref().and_then(|(nvml, gpu)| nvml.own_bytes(*gpu));
        let since = match self.used_before {
            Some(before) => used.saturating_sub(before),
            None => used.saturating_sub(self.used_with_context) + ASSUMED_CONTEXT,
        };
        Ok(own.unwrap_or(since))
    }

    /// Others that hold memory of it, in words for a refusal: "python3 (PID 4242) 1.97 GiB".
    pub fn others(&self) -> Vec<crate::nvml::GpuProcess> {
        let own = std::process::id();
        let Some((nvml, gpu)) = &self.nvml else {
            return Vec::new();
        };
        nvml.processes(*gpu).into_iter().filter(|process| process.pid != own).collect()
    }
}

/// What a context is taken to hold where the driver cannot be asked: more than was seen anywhere.
const ASSUMED_CONTEXT: u64 = 640 << 20;
