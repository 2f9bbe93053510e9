//! The CUDA driver: the table of its functions that we call, and what it reports about GPUs. We
//! call nothing newer than CUDA 12.0. The error of a failed call names the function and has the
//! driver's message.

use crate::error::CudaError;
use crate::library::{Origin, Wanted, function_table};
use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::sync::Arc;

/// The driver's library.
const DRIVER: Wanted = Wanted {
    name: "the NVIDIA driver (libcuda.so.1)",
    stem: "libcuda.so.1",
    majors: &[],
    before: &[],
    wheels: &[],
    origin: Origin::Driver("install NVIDIA's driver, 525 or newer"),
};

/// CUDA 12.0, as the driver encodes it.
const OLDEST: i32 = 12_000;

/// An opaque pointer of the driver.
pub(crate) type Handle = *mut c_void;

function_table! {
    /// The driver functions that we call.
    DriverApi {
        cuInit: fn(u32) -> i32,
        cuDriverGetVersion: fn(*mut i32) -> i32,
        cuGetErrorString: fn(i32, *mut *const c_char) -> i32,
        cuDeviceGetCount: fn(*mut i32) -> i32,
        cuDeviceGet: fn(*mut i32, i32) -> i32,
        cuDeviceGetName: fn(*mut c_char, i32, i32) -> i32,
        cuDeviceGetAttribute: fn(*mut i32, i32, i32) -> i32,
        cuDeviceTotalMem_v2: fn(*mut usize, i32) -> i32,
        cuDeviceGetPCIBusId: fn(*mut c_char, i32, i32) -> i32,
        cuDevicePrimaryCtxRetain: fn(*mut Handle, i32) -> i32,
        cuDevicePrimaryCtxRelease_v2: fn(i32) -> i32,
        cuCtxSetCurrent: fn(Handle) -> i32,
        cuMemGetInfo_v2: fn(*mut usize, *mut usize) -> i32,
        cuMemAlloc_v2: fn(*mut u64, usize) -> i32,
        cuMemFree_v2: fn(u64) -> i32,
        cuMemHostAlloc: fn(*mut Handle, usize, u32) -> i32,
        cuMemFreeHost: fn(Handle) -> i32,
        cuMemcpyHtoDAsync_v2: fn(u64, *const c_void, usize, Handle) -> i32,
        cuMemcpyDtoHAsync_v2: fn(*mut c_void, u64, usize, Handle) -> i32,
        cuMemcpyDtoDAsync_v2: fn(u64, u64, usize, Handle) -> i32,
        cuMemsetD8Async: fn(u64, u8, usize, Handle) -> i32,
        cuStreamCreate: fn(*mut Handle, u32) -> i32,
        cuStreamDestroy_v2: fn(Handle) -> i32,
        cuStreamSynchronize: fn(Handle) -> i32,
        cuStreamQuery: fn(Handle) -> i32,
        cuStreamWaitEvent: fn(Handle, Handle, u32) -> i32,
        cuEventCreate: fn(*mut Handle, u32) -> i32,
        cuEventDestroy_v2: fn(Handle) -> i32,
        cuEventRecord: fn(Handle, Handle) -> i32,
        cuEventSynchronize: fn(Handle) -> i32,
        cuEventElapsedTime: fn(*mut f32, Handle, Handle) -> i32,
        cuModuleLoadData: fn(*mut Handle, *const c_void) -> i32,
        cuModuleUnload: fn(Handle) -> i32,
        cuModuleGetFunction: fn(*mut Handle, Handle, *const c_char) -> i32,
        cuFuncSetAttribute: fn(Handle, i32, i32) -> i32,
        cuLaunchKernel: fn(
            Handle, u32, u32, u32, u32, u32, u32, u32, Handle, *mut *mut c_void, *mut *mut c_void,
        ) -> i32,
        cuTensorMapEncodeTiled: fn(
            *mut c_void, i32, u32, *mut c_void, *const u64, *const u64, *const u32, *const u32,
            i32, i32, i32, i32,
        ) -> i32,
        cuStreamBeginCapture_v2: fn(Handle, i32) -> i32,
        cuStreamEndCapture: fn(Handle, *mut Handle) -> i32,
        cuGraphInstantiateWithFlags: fn(*mut Handle, Handle, u64) -> i32,
        cuGraphUpload: fn(Handle, Handle) -> i32,
        cuGraphLaunch: fn(Handle, Handle) -> i32,
        cuGraphDestroy: fn(Handle) -> i32,
        cuGraphExecDestroy: fn(Handle) -> i32,
    }
}

/// Attributes of a GPU, by the driver's numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attribute {
    Multiprocessors = 16,
    Major = 75,
    Minor = 76,
}

/// The loaded driver.
pub struct Driver {
    pub(crate) api: DriverApi,
    version: i32,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUDA driver {}", self.version)
    }
}

impl Driver {
    /// Finds and starts the driver.
    pub fn load() -> Result<Arc<Driver>, CudaError> {
        let api = DriverApi::load(DRIVER.find(None)?)?;
        let mut version = 0;
        // SAFETY: the pointer is to a local; allowed before `cuInit`.
        let code = unsafe { (api.cuDriverGetVersion)(&raw mut version) };
        let driver = Driver { api, version };
        driver.check("cuDriverGetVersion", code)?;
        if driver.version < OLDEST {
            return Err(CudaError::TooOld { version: driver.version });
        }
        // SAFETY: no argument but the reserved 0.
        match unsafe { (driver.api.cuInit)(0) } {
            100 => Err(CudaError::NoDevice),
            code => driver.check("cuInit", code).map(|()| Arc::new(driver)),
        }
    }

    /// The CUDA version that it supports; 13000 means 13.0.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// Where it was found.
    pub fn path(&self) -> &str {
        self.api.library.path()
    }

    /// Number of GPUs that this process may see.
    pub fn device_count(&self) -> Result<u32, CudaError> {
        let mut count = 0;
        // SAFETY: the pointer is to a local.
        self.check("cuDeviceGetCount", unsafe { (self.api.cuDeviceGetCount)(&raw mut count) })?;
        Ok(count.max(0) as u32)
    }

    pub(crate) fn device(&self, index: u32) -> Result<i32, CudaError> {
        let count = self.device_count()?;
        if count == 0 {
            return Err(CudaError::NoDevice);
        }
        if index >= count {
            return Err(CudaError::NoSuchDevice { asked: index, count });
        }
        let mut device = 0;
        // SAFETY: the pointer is to a local, the index is below the count.
        self.check("cuDeviceGet", unsafe {
            (self.api.cuDeviceGet)(&raw mut device, index as i32)
        })?;
        Ok(device)
    }

    pub(crate) fn name(&self, device: i32) -> Result<String, CudaError> {
        self.text("cuDeviceGetName", self.api.cuDeviceGetName, device)
    }

    pub(crate) fn pci_bus_id(&self, device: i32) -> Result<String, CudaError> {
        self.text("cuDeviceGetPCIBusId", self.api.cuDeviceGetPCIBusId, device)
    }

    fn text(
        &self,
        call: &'static str,
        function: unsafe extern "C" fn(*mut c_char, i32, i32) -> i32,
        device: i32,
    ) -> Result<String, CudaError> {
        let mut text = [0u8; 256];
        // SAFETY: the buffer has the length that is given; the last byte stays 0.
        self.check(call, unsafe { function(text.as_mut_ptr().cast(), 255, device) })?;
        let text = CStr::from_bytes_until_nul(&text).map(CStr::to_string_lossy);
        Ok(text.map(|text| text.into_owned()).unwrap_or_default())
    }

    pub(crate) fn attribute(&self, what: Attribute, device: i32) -> Result<u32, CudaError> {
        let mut value = 0;
        // SAFETY: the pointer is to a local.
        self.check("cuDeviceGetAttribute", unsafe {
            (self.api.cuDeviceGetAttribute)(&raw mut value, what as i32, device)
        })?;
        Ok(value.max(0) as u32)
    }

    pub(crate) fn total_memory(&self, device: i32) -> Result<u64, CudaError> {
        let mut bytes = 0;
        // SAFETY: the pointer is to a local.
        self.check("cuDeviceTotalMem", unsafe {
            (self.api.cuDeviceTotalMem_v2)(&raw mut bytes, device)
        })?;
        Ok(bytes as u64)
    }

    pub(crate) fn check(&self, call: &'static str, code: i32) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the pointer is to a local; what it is set to is a constant of the driver.
        let known = unsafe { (self.api.cuGetErrorString)(code, &raw mut text) } == 0;
        let said = match known && !text.is_null() {
            // SAFETY: a constant string of the driver, as above.
            true => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
            false => "unknown".to_string(),
        };
        Err(CudaError::Call { call, code, said })
    }
}
