//! NVRTC compiles CUDA source to machine code for one architecture. It needs no GPU.

use crate::error::CudaError;
use crate::library::{LibraryError, Origin, Package, Wanted, function_table};
use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;

/// The compiler's library.
const NVRTC: Wanted = Wanted {
    name: "NVRTC (NVIDIA's run-time compiler)",
    stem: "libnvrtc.so",
    majors: &[13, 12],
    before: &["libnvrtc-builtins.so."],
    wheels: &["cu13/lib", "cuda_nvrtc/lib"],
    origin: Origin::Package(Package {
        cuda13: "nvidia-cuda-nvrtc",
        cuda12: "nvidia-cuda-nvrtc-cu12",
        elsewhere: "with the CUDA toolkit",
    }),
};

type Program = *mut c_void;

function_table! {
    /// The NVRTC functions that we call.
    NvrtcApi {
        nvrtcVersion: fn(*mut i32, *mut i32) -> i32,
        nvrtcGetErrorString: fn(i32) -> *const c_char,
        nvrtcGetNumSupportedArchs: fn(*mut i32) -> i32,
        nvrtcGetSupportedArchs: fn(*mut i32) -> i32,
        nvrtcCreateProgram: fn(
            *mut Program, *const c_char, *const c_char, i32, *const *const c_char,
            *const *const c_char,
        ) -> i32,
        nvrtcDestroyProgram: fn(*mut Program) -> i32,
        nvrtcCompileProgram: fn(Program, i32, *const *const c_char) -> i32,
        nvrtcGetProgramLogSize: fn(Program, *mut usize) -> i32,
        nvrtcGetProgramLog: fn(Program, *mut c_char) -> i32,
        nvrtcGetCUBINSize: fn(Program, *mut usize) -> i32,
        nvrtcGetCUBIN: fn(Program, *mut c_char) -> i32,
    }
}

/// The loaded compiler.
pub struct Compiler {
    api: NvrtcApi,
    version: (i32, i32),
}

impl std::fmt::Debug for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NVRTC {}.{}", self.version.0, self.version.1)
    }
}

/// What code is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The compute capability times ten.
    pub sm: u32,
    /// Whether the code uses instructions that only this architecture has, and no later one.
    pub specific: bool,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.sm, if self.specific { "a" } else { "" })
    }
}

/// How kernels are compiled. Fused multiply-adds are written explicitly, so that two forms of one
/// kernel cannot differ in them.
pub(crate) const OPTIONS: [&str; 2] = ["--std=c++17", "--fmad=false"];

/// The oldest version that the kernels are written for.
const OLDEST: (i32, i32) = (12, 1);

impl Compiler {
    /// Finds the compiler; `newest` is the driver's CUDA major version, if there is a driver.
    pub fn load(newest: Option<u32>) -> Result<Compiler, CudaError> {
        let api = NvrtcApi::load(NVRTC.find(newest)?)?;
        let mut version = (0, 0);
        // SAFETY: the pointers are to locals.
        let code = unsafe { (api.nvrtcVersion)(&raw mut version.0, &raw mut version.1) };
        if code != 0 || version < OLDEST {
            let (name, path) = (NVRTC.name, api.library.path().to_string());
            let symbol = format!("version {}.{} or newer", OLDEST.0, OLDEST.1);
            return Err(LibraryError::Symbol { name, path, symbol }.into());
        }
        Ok(Compiler { api, version })
    }

    /// Its version.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Where it was found.
    pub fn path(&self) -> &str {
        self.api.library.path()
    }

    /// The architectures that it compiles for, as compute capabilities times ten.
    pub fn architectures(&self) -> Vec<u32> {
        let mut count = 0;
        // SAFETY: the pointer is to a local.
        if unsafe { (self.api.nvrtcGetNumSupportedArchs)(&raw mut count) } != 0 {
            return Vec::new();
        }
        let mut found = vec![0; count.max(0) as usize];
        // SAFETY: room for as many as were counted.
        match unsafe { (self.api.nvrtcGetSupportedArchs)(found.as_mut_ptr()) } {
            0 => found.into_iter().map(|sm| sm.max(0) as u32).collect(),
            _ => Vec::new(),
        }
    }

    /// Compiles one file to machine code.
    pub fn compile(&self, file: &str, source: &str, target: Target) -> Result<Vec<u8>, CudaError> {
        let refused = |log: String| CudaError::Compiler { file: file.to_string(), log };
        if !self.architectures().contains(&target.sm) {
            let (major, minor) = self.version;
            let log =
                format!("NVRTC {major}.{minor} does not support {target}; install a newer one");
            return Err(refused(log));
        }
        let inner_nul = |_| refused("the source has a NUL".to_string());
        let source = CString::new(source).map_err(inner_nul)?;
        let name = CString::new(file).map_err(inner_nul)?;
        let target = format!("--gpu-architecture={target}");
        let options: Vec<CString> = OPTIONS
            .into_iter()
            .chain([target.as_str()])
            .map(CString::new)
            .collect::<Result<_, _>>()
            .map_err(inner_nul)?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program = Owned { api: &self.api, program: std::ptr::null_mut() };
        // SAFETY: pointers to a local and to NUL-terminated strings; no headers.
        let code = unsafe {
            (self.api.nvrtcCreateProgram)(
                &raw mut program.program,
                source.as_ptr(),
                name.as_ptr(),
                0,
                std::ptr::null(),
                std::ptr::null(),
            )
        };
        self.check(code).map_err(refused)?;
        // SAFETY: the program was made above; as many options as are counted.
        let code = unsafe {
            let count = pointers.len() as i32;
            (self.api.nvrtcCompileProgram)(program.program, count, pointers.as_ptr())
        };
        self.check(code).map_err(|said| refused(format!("{said}\n{}", program.log())))?;
        program.cubin().map_err(refused)
    }

    fn check(&self, code: i32) -> Result<(), String> {
        self.api.check(code)
    }
}

impl NvrtcApi {
    fn check(&self, code: i32) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the library returns a constant string for any number.
        let text = unsafe { CStr::from_ptr((self.nvrtcGetErrorString)(code)) };
        Err(text.to_string_lossy().into_owned())
    }
}

/// A program that is destroyed when it is dropped.
struct Owned<'a> {
    api: &'a NvrtcApi,
    program: Program,
}

impl Owned<'_> {
    fn log(&self) -> String {
        let mut size = 0;
        // SAFETY: the pointer is to a local.
        let code = unsafe { (self.api.nvrtcGetProgramLogSize)(self.program, &raw mut size) };
        if code != 0 || size == 0 {
            return String::new();
        }
        let mut text = vec![0u8; size];
        // SAFETY: the buffer has the size that was asked for.
        unsafe { (self.api.nvrtcGetProgramLog)(self.program, text.as_mut_ptr().cast()) };
        String::from_utf8_lossy(&text).trim_end_matches('\0').trim().to_string()
    }

    fn cubin(&self) -> Result<Vec<u8>, String> {
        let mut size = 0;
        // SAFETY: the pointer is to a local.
        self.api.check(unsafe { (self.api.nvrtcGetCUBINSize)(self.program, &raw mut size) })?;
        let mut cubin = vec![0u8; size];
        // SAFETY: the buffer has the size that was asked for.
        let code = unsafe { (self.api.nvrtcGetCUBIN)(self.program, cubin.as_mut_ptr().cast()) };
        self.api.check(code)?;
        Ok(cubin)
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `nvrtcCreateProgram`, or null where that failed.
        unsafe { (self.api.nvrtcDestroyProgram)(&raw mut self.program) };
    }
}
