//! Loaded machine code and its kernels.

use crate::context::DriverContext;
use crate::driver::Handle;
use crate::error::CudaError;
use std::ffi::CString;
use std::sync::Arc;

/// A kernel of a loaded module. It is valid as long as its module.
#[derive(Clone, Copy)]
pub(crate) struct Function(Handle);

// SAFETY: a handle that any thread may use once the context is current.
unsafe impl Send for Function {}

impl Function {
    pub(crate) fn handle(self) -> Handle {
        self.0
    }
}

/// Loaded code.
pub(crate) struct Module {
    context: Arc<DriverContext>,
    module: Handle,
}

// SAFETY: as for `DriverContext`.
unsafe impl Send for Module {}

impl Module {
    /// Loads a cubin.
    pub(crate) fn new(context: &Arc<DriverContext>, cubin: &[u8]) -> Result<Module, CudaError> {
        context.enter()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the pointer is to a local; the image is a whole ELF file, which has its own
        // length, and the driver copies it.
        context.check("cuModuleLoadData", unsafe {
            (context.api().cuModuleLoadData)(&raw mut module, cubin.as_ptr().cast())
        })?;
        Ok(Module { context: context.clone(), module })
    }

    /// A kernel by name, with permission to use `shared` bytes of dynamic shared memory.
    pub(crate) fn function(&self, name: &str, shared: u32) -> Result<Function, CudaError> {
        const MAX_DYNAMIC_SHARED: i32 = 8;
        const SHARED_CARVEOUT: i32 = 9;
        const ALL: i32 = 100;
        let symbol = CString::new(name).unwrap_or_default();
        let mut function = std::ptr::null_mut();
        let context = &self.context;
        // SAFETY: the pointers are to locals.
        context.check("cuModuleGetFunction", unsafe {
            (context.api().cuModuleGetFunction)(&raw mut function, self.module, symbol.as_ptr())
        })?;
        if shared > 0 {
            // SAFETY: the function is that of the module.
            context.check("cuFuncSetAttribute", unsafe {
                (context.api().cuFuncSetAttribute)(function, MAX_DYNAMIC_SHARED, shared as i32)
            })?;
            // Otherwise the driver may reserve room for only one block where two would fit.
            // SAFETY: as above.
            context.check("cuFuncSetAttribute", unsafe {
                (context.api().cuFuncSetAttribute)(function, SHARED_CARVEOUT, ALL)
            })?;
        }
        Ok(Function(function))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.context.enter();
        // SAFETY: ours; nothing of it runs, the owner has waited.
        unsafe { (self.context.api().cuModuleUnload)(self.module) };
    }
}
