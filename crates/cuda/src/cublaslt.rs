//! cuBLASLt: matmuls with our workspace, and with an algorithm that is chosen once for each shape
//! (`setup` chooses, `autotune` times). We describe matrices row-major. The library's order is
//! column-major, so every matmul is requested transposed.

use crate::context::DriverContext;
use crate::error::CudaError;
use crate::library::{Origin, Package, Wanted, function_table};
use plan::Dtype;
use std::ffi::c_void;
use std::sync::Arc;

/// The library.
const CUBLASLT: Wanted = Wanted {
    name: "cuBLASLt (NVIDIA's matrix multiplication)",
    stem: "libcublasLt.so",
    majors: &[13, 12],
    before: &[],
    wheels: &["cu13/lib", "cublas/lib"],
    origin: Origin::Package(Package {
        cuda13: "nvidia-cublas",
        cuda12: "nvidia-cublas-cu12",
        elsewhere: "with the CUDA toolkit",
    }),
};

type Handle = *mut c_void;

function_table! {
    /// The cuBLASLt functions that we call.
    LtApi {
        cublasLtCreate: fn(*mut Handle) -> i32,
        cublasLtDestroy: fn(Handle) -> i32,
        cublasLtGetVersion: fn() -> usize,
        cublasLtMatmulDescCreate: fn(*mut Handle, i32, i32) -> i32,
        cublasLtMatmulDescDestroy: fn(Handle) -> i32,
        cublasLtMatmulDescSetAttribute: fn(Handle, i32, *const c_void, usize) -> i32,
        cublasLtMatrixLayoutCreate: fn(*mut Handle, i32, u64, u64, i64) -> i32,
        cublasLtMatrixLayoutDestroy: fn(Handle) -> i32,
        cublasLtMatmulPreferenceCreate: fn(*mut Handle) -> i32,
        cublasLtMatmulPreferenceDestroy: fn(Handle) -> i32,
        cublasLtMatmulPreferenceSetAttribute: fn(Handle, i32, *const c_void, usize) -> i32,
        cublasLtMatmulAlgoGetHeuristic: fn(
            Handle, Handle, Handle, Handle, Handle, Handle, Handle, i32, *mut Found, *mut i32,
        ) -> i32,
        cublasLtMatmulAlgoConfigGetAttribute: fn(
            *const Algorithm, i32, *mut c_void, usize, *mut usize,
        ) -> i32,
        cublasLtMatmulAlgoCheck: fn(
            Handle, Handle, Handle, Handle, Handle, Handle, *const Algorithm, *mut Found,
        ) -> i32,
        cublasLtMatmul: fn(
            Handle, Handle, *const c_void, *const c_void, Handle, *const c_void, Handle,
            *const c_void, *const c_void, Handle, *mut c_void, Handle, *const Algorithm,
            *mut c_void, usize, Handle,
        ) -> i32,
    }
}

/// An answer of the heuristic.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Found {
    algorithm: Algorithm,
    workspace: usize,
    state: i32,
    waves: f32,
    reserved: [i32; 4],
}

/// How many answers the heuristic is asked for. For Hopper's kernels it never gives more than 8.
const ANSWERS: usize = 32;

/// The reduction scheme that combines split sums in the workspace.
const IN_COMPUTE_TYPE: u32 = 2;

/// An algorithm, as the library stores it.
pub(crate) type Algorithm = [u64; 8];

/// Which operand is read transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Orientation {
    /// `out[m, n] = a[m, k] b[n, k]ᵀ`: a linear layer.
    TimesTransposed,
    /// `out[m, n] = a[m, k] b[k, n]`: the gradient of its input.
    Plain,
    /// `out[m, n] = a[k, m]ᵀ b[k, n]`: the gradient of its weight.
    TransposedTimes,
    /// `out[m, n] = a[k, m]ᵀ b[n, k]ᵀ`: the same with its input transposed before.
    BothTransposed,
}

/// Everything that the choice of an algorithm depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatmulShape {
    pub(crate) orientation: Orientation,
    pub(crate) m: u64,
    pub(crate) n: u64,
    pub(crate) k: u64,
    pub(crate) inputs: Dtype,
    pub(crate) output: Dtype,
    /// Whether a bias in the output's format (cuBLASLt's default) is added to each row.
    pub(crate) bias: bool,
    /// Whether the result is added to the old content.
    pub(crate) accumulate: bool,
    /// Whether the result is added to another matrix like the output; not with `accumulate`.
    pub(crate) residual: bool,
    /// Whether alpha and beta are read from device memory.
    pub(crate) device_scalars: bool,
    /// Alignment of all addresses and rows in bytes, at most 16.
    pub(crate) alignment: u32,
    /// Whether f32 inputs may be rounded to tf32.
    pub(crate) tf32: bool,
}

impl MatmulShape {
    /// Bytes of the largest operand.
    pub(crate) fn largest_operand(&self) -> u64 {
        let (m, n, k) = (self.m, self.n, self.k);
        let inputs = (m * k).max(n * k) * self.inputs.size();
        inputs.max(m * n * self.output.size())
    }

    /// Bytes of `a`, `b`, the output, the bias and the residual.
    pub(crate) fn operand_bytes(&self) -> [u64; 5] {
        let (m, n, k) = (self.m, self.n, self.k);
        let (inputs, output) = (self.inputs.size(), self.output.size());
        let bias = if self.bias { n * output } else { 0 };
        let residual = if self.residual { m * n * output } else { 0 };
        [m * k * inputs, n * k * inputs, m * n * output, bias, residual]
    }

    /// Floating-point operations.
    pub(crate) fn flops(&self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64
    }

    /// All of it in one line, for people and for the cache.
    pub fn key(&self) -> String {
        let MatmulShape { m, n, k, inputs, output, alignment, .. } = self;
        let orientation = match self.orientation {
            Orientation::TimesTransposed => "nt",
            Orientation::Plain => "nn",
            Orientation::TransposedTimes => "tn",
            Orientation::BothTransposed => "tt",
        };
        let flags = [
            (self.bias, "+bias"),
            (self.accumulate, "+add"),
            (self.residual, "+residual"),
            (self.device_scalars, "+alpha"),
            (self.tf32, "+tf32"),
        ];
        let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, word)| *word).collect();
        format!("{orientation} {m}x{n}x{k} {inputs}>{output} a{alignment}{flags}")
    }
}

/// The loaded library with its handle.
pub struct MatmulLibrary {
    api: LtApi,
    handle: Handle,
    context: Arc<DriverContext>,
}

// SAFETY: the handle may be used from any thread, one at a time; the context is made current first.
unsafe impl Send for MatmulLibrary {}
// SAFETY: cuBLASLt's handle holds no state that calls change.
unsafe impl Sync for MatmulLibrary {}

impl std::fmt::Debug for MatmulLibrary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cuBLASLt {}", self.version())
    }
}

impl MatmulLibrary {
    pub(crate) fn load(
        context: &Arc<DriverContext>,
        newest: u32,
    ) -> Result<MatmulLibrary, CudaError> {
        context.enter()?;
        let api = LtApi::load(CUBLASLT.find(Some(newest))?)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is to a local; the context is current.
        check("cublasLtCreate", unsafe { (api.cublasLtCreate)(&raw mut handle) })?;
        Ok(MatmulLibrary { api, handle, context: context.clone() })
    }

    /// Its version; 130100 means 13.1.0.
    pub fn version(&self) -> usize {
        // SAFETY: takes nothing.
        unsafe { (self.api.cublasLtGetVersion)() }
    }

    /// Where it was found.
    pub fn path(&self) -> &str {
        self.api.library.path()
    }
}

/// Version and path of the library, without a context, to find out whether it is installed.
/// `newest` is the driver's CUDA major version, if there is a driver.
pub fn find_matmul_library(newest: Option<u32>) -> Result<(usize, String), CudaError> {
    let api = LtApi::load(CUBLASLT.find(newest)?)?;
    // SAFETY: takes nothing, needs no handle and no context.
    let version = unsafe { (api.cublasLtGetVersion)() };
    Ok((version, api.library.path().to_string()))
}

impl Drop for MatmulLibrary {
    fn drop(&mut self) {
        let _ = self.context.enter();
        // SAFETY: made once in `load`.
        unsafe { (self.api.cublasLtDestroy)(self.handle) };
    }
}

fn check(call: &'static str, code: i32) -> Result<(), CudaError> {
    let said = match code {
        0 => return Ok(()),
        1 => "not initialised",
        3 => "out of memory",
        7 => "invalid value",
        8 => "not supported on this GPU",
        13 => "the GPU failed to execute it",
        14 => "internal error",
        15 => "not supported",
        _ => "failed",
    };
    Err(CudaError::Call { call, code, said: said.to_string() })
}

/// A matmul of one shape with its algorithm. It can be launched any number of times.
pub(crate) struct Matmul {
    library: Arc<MatmulLibrary>,
    shape: MatmulShape,
    description: Handle,
    /// Layouts of `a`, `b` and the output, in the library's order.
    layouts: [Handle; 3],
    algorithm: Algorithm,
    workspace: usize,
}

// SAFETY: as for `MatmulLibrary`.
unsafe impl Send for Matmul {}

/// An algorithm as text, for checkpoints and the cache.
pub(crate) fn text_of(algorithm: &Algorithm) -> String {
    algorithm.iter().map(|word| format!("{word:016x}")).collect()
}

/// Parses an algorithm from a checkpoint or the cache.
pub(crate) fn algorithm_of(text: &str) -> Option<Algorithm> {
    let (words, rest) = text.as_bytes().as_chunks::<16>();
    let words: &[[u8; 16]; 8] = words.try_into().ok()?;
    let mut algorithm = [0; 8];
    for (word, digits) in algorithm.iter_mut().zip(words) {
        *word = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    rest.is_empty().then_some(algorithm)
}

/// Where a matmul's operands are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands {
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) out: u64,
    pub(crate) bias: Option<u64>,
    pub(crate) residual: Option<u64>,
    pub(crate) workspace: u64,
    /// Device address of alpha; beta follows 4 bytes later. Only with `device_scalars`.
    pub(crate) scalars: u64,
}

impl Matmul {
    /// A matmul that has no algorithm yet.
    pub(crate) fn new(
        library: &Arc<MatmulLibrary>,
        shape: MatmulShape,
        workspace: u64,
    ) -> Result<Matmul, CudaError> {
        library.context.enter()?;
        let mut matmul = Matmul {
            library: library.clone(),
            shape,
            description: std::ptr::null_mut(),
            layouts: [std::ptr::null_mut(); 3],
            algorithm: [0; 8],
            workspace: workspace as usize,
        };
        matmul.describe()?;
        Ok(matmul)
    }

    /// Uses an algorithm, one of the `candidates` or one that it `accepts`.
    pub(crate) fn choose(&mut self, algorithm: Algorithm) {
        self.algorithm = algorithm;
    }

    pub(crate) fn shape(&self) -> &MatmulShape {
        &self.shape
    }

    /// Bytes of workspace that it may use.
    pub(crate) fn workspace(&self) -> u64 {
        self.workspace as u64
    }

    /// Its algorithm as text, for a checkpoint.
    pub(crate) fn algorithm_text(&self) -> String {
        text_of(&self.algorithm)
    }

    /// In the library's order the output is `[n, m]`, its left operand our `b`, its right operand
    /// our `a`.
    fn describe(&mut self) -> Result<(), CudaError> {
        const TRANS_A: i32 = 3;
        const TRANS_B: i32 = 4;
        const EPILOGUE: i32 = 7;
        const POINTER_MODE: i32 = 2;
        let shape = self.shape;
        let compute = match (shape.inputs, shape.tf32) {
            (Dtype::F32, true) => 77, // 32F_FAST_TF32
            _ => 68,                  // 32F
        };
        let api = &self.library.api;
        // SAFETY: pointers to fields and locals of `self`; 0 is CUDA_R_32F.
        check("cublasLtMatmulDescCreate", unsafe {
            (api.cublasLtMatmulDescCreate)(&raw mut self.description, compute, 0)
        })?;
        let transposed = |is: bool| i32::from(is);
        let (left, right) = match shape.orientation {
            Orientation::TimesTransposed => (transposed(true), transposed(false)),
            Orientation::Plain => (transposed(false), transposed(false)),
            Orientation::TransposedTimes => (transposed(false), transposed(true)),
            Orientation::BothTransposed => (transposed(true), transposed(true)),
        };
        self.set(TRANS_A, &left)?;
        self.set(TRANS_B, &right)?;
        if shape.bias {
            self.set(EPILOGUE, &4i32)?; // BIAS
        }
        if shape.device_scalars {
            self.set(POINTER_MODE, &1i32)?; // DEVICE
        }
        let MatmulShape { m, n, k, .. } = shape;
        let inputs = data_type(shape.inputs);
        let left = if left == 1 { (k, n) } else { (n, k) };
        let right = if right == 1 { (m, k) } else { (k, m) };
        let sizes = [(inputs, left), (inputs, right), (data_type(shape.output), (n, m))];
        for (layout, (kind, (rows, columns))) in self.layouts.iter_mut().zip(sizes) {
            // SAFETY: the pointer is to a field; columns of `rows` elements lie one behind another.
            check("cublasLtMatrixLayoutCreate", unsafe {
                let api = &self.library.api;
                (api.cublasLtMatrixLayoutCreate)(&raw mut *layout, kind, rows, columns, rows as i64)
            })?;
        }
        Ok(())
    }

    fn set<V>(&self, attribute: i32, value: &V) -> Result<(), CudaError> {
        let (from, bytes) = (std::ptr::from_ref(value).cast(), size_of::<V>());
        // SAFETY: the attribute has the type of the value (see the callers).
        check("cublasLtMatmulDescSetAttribute", unsafe {
            (self.library.api.cublasLtMatmulDescSetAttribute)(
                self.description,
                attribute,
                from,
                bytes,
            )
        })
    }

    /// Whether the library supports an algorithm from an earlier run, within the workspace, and its
    /// sums have a fixed order.
    pub(crate) fn accepts(&self, algorithm: &Algorithm) -> bool {
        let mut found = Found::empty();
        let [a, b, out] = self.layouts;
        // SAFETY: all handles are ours, the pointers are to locals.
        let code = unsafe {
            (self.library.api.cublasLtMatmulAlgoCheck)(
                self.library.handle,
                self.description,
                a,
                b,
                out,
                out,
                algorithm,
                &raw mut found,
            )
        };
        let fits = code == 0 && found.state == 0 && found.workspace <= self.workspace;
        fits && self.has_fixed_order(algorithm)
    }

    /// Whether an algorithm adds split sums in a fixed order: it has none, or combines them in the
    /// workspace. The alternatives are atomic additions, and rounding to the output's format. The
    /// heuristic was already asked for no others, so an algorithm that cannot be read passes.
    fn has_fixed_order(&self, algorithm: &Algorithm) -> bool {
        const REDUCTION_SCHEME: i32 = 3;
        let (mut scheme, mut written) = (0u32, 0);
        let (to, bytes) = ((&raw mut scheme).cast(), size_of::<u32>());
        let get = self.library.api.cublasLtMatmulAlgoConfigGetAttribute;
        // SAFETY: the pointers are to locals; the attribute is a u32.
        let code = unsafe { get(algorithm, REDUCTION_SCHEME, to, bytes, &raw mut written) };
        code != 0 || scheme == 0 || scheme == IN_COMPUTE_TYPE
    }

    /// The heuristic's answers whose sums have a fixed order, its favourite first. There is at
    /// least one.
    pub(crate) fn candidates(&self) -> Result<Vec<Algorithm>, CudaError> {
        let api = &self.library.api;
        let preference = Preference::new(api)?;
        preference.limit(&self.shape, self.workspace)?;
        let (mut found, mut count) = ([Found::empty(); ANSWERS], 0);
        let [a, b, out] = self.layouts;
        // SAFETY: all handles are ours; room for as many answers as are asked for.
        let code = unsafe {
            (api.cublasLtMatmulAlgoGetHeuristic)(
                self.library.handle,
                self.description,
                a,
                b,
                out,
                out,
                preference.handle,
                ANSWERS as i32,
                found.as_mut_ptr(),
                &raw mut count,
            )
        };
        let answers = &found[..(count.max(0) as usize).min(ANSWERS)];
        let is_usable = |found: &&Found| found.state == 0 && self.has_fixed_order(&found.algorithm);
        let usable: Vec<Algorithm> =
            answers.iter().filter(is_usable).map(|found| found.algorithm).collect();
        if code != 0 || usable.is_empty() {
            let said = format!("no algorithm for {}", self.shape.key());
            let call = "cublasLtMatmulAlgoGetHeuristic";
            return Err(CudaError::Call { call, code, said });
        }
        Ok(usable)
    }

    /// Adds the matmul to the stream.
    ///
    /// # Safety
    /// The operands have the sizes of the shape, and the workspace that of `new`.
    pub(crate) unsafe fn launch(&self, operands: &Operands) -> Result<(), CudaError> {
        const BIAS_POINTER: i32 = 8;
        if let Some(bias) = operands.bias {
            self.set(BIAS_POINTER, &bias)?;
        }
        let adds = self.shape.accumulate || self.shape.residual;
        let host = [1.0f32, if adds { 1.0 } else { 0.0 }];
        let scalar = |index: usize| -> *const c_void {
            match self.shape.device_scalars {
                true => (operands.scalars + 4 * index as u64) as *const c_void,
                false => std::ptr::from_ref(&host[index]).cast(),
            }
        };
        let [a, b, out] = self.layouts;
        // SAFETY: the caller's promise; scalars on the host are read before the call returns.
        check("cublasLtMatmul", unsafe {
            (self.library.api.cublasLtMatmul)(
                self.library.handle,
                self.description,
                scalar(0),
                operands.b as *const c_void,
                a,
                operands.a as *const c_void,
                b,
                scalar(1),
                operands.residual.unwrap_or(operands.out) as *const c_void,
                out,
                operands.out as *mut c_void,
                out,
                &raw const self.algorithm,
                operands.workspace as *mut c_void,
                self.workspace,
                self.library.context.stream(),
            )
        })
    }
}

impl Drop for Matmul {
    fn drop(&mut self) {
        let api = &self.library.api;
        for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
            // SAFETY: made in `describe`, destroyed once.
            unsafe { (api.cublasLtMatrixLayoutDestroy)(layout) };
        }
        if !self.description.is_null() {
            // SAFETY: as above.
            unsafe { (api.cublasLtMatmulDescDestroy)(self.description) };
        }
    }
}

impl Found {
    fn empty() -> Found {
        Found { algorithm: [0; 8], workspace: 0, state: -1, waves: 0.0, reserved: [0; 4] }
    }
}

fn data_type(dtype: Dtype) -> i32 {
    match dtype {
        Dtype::F16 => 2,
        Dtype::Bf16 => 14,
        Dtype::F32 | Dtype::I32 | Dtype::U32 | Dtype::U16 => 0,
    }
}

/// Which algorithms the heuristic may choose.
struct Preference<'a> {
    api: &'a LtApi,
    handle: Handle,
}

impl Preference<'_> {
    fn new(api: &LtApi) -> Result<Preference<'_>, CudaError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        check("cublasLtMatmulPreferenceCreate", unsafe {
            (api.cublasLtMatmulPreferenceCreate)(&raw mut handle)
        })?;
        Ok(Preference { api, handle })
    }

    /// Only algorithms that respect our workspace and alignment and whose sums have a fixed order:
    /// a split sum may be combined in the workspace, never in the output.
    fn limit(&self, shape: &MatmulShape, workspace: usize) -> Result<(), CudaError> {
        const MAX_WORKSPACE: i32 = 1;
        const REDUCTION_SCHEMES: i32 = 3;
        const ALIGNMENT_OF_A: i32 = 5;
        self.set(MAX_WORKSPACE, &(workspace as u64))?;
        self.set(REDUCTION_SCHEMES, &IN_COMPUTE_TYPE)?;
        for operand in 0..4 {
            self.set(ALIGNMENT_OF_A + operand, &shape.alignment)?;
        }
        Ok(())
    }

    fn set<V>(&self, attribute: i32, value: &V) -> Result<(), CudaError> {
        let (from, bytes) = (std::ptr::from_ref(value).cast(), size_of::<V>());
        // SAFETY: the attribute has the type of the value (see `limit`).
        check("cublasLtMatmulPreferenceSetAttribute", unsafe {
            (self.api.cublasLtMatmulPreferenceSetAttribute)(self.handle, attribute, from, bytes)
        })
    }
}

impl Drop for Preference<'_> {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once.
        unsafe { (self.api.cublasLtMatmulPreferenceDestroy)(self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_algorithms_are_read() {
        let text: String = (1..=8u64).map(|word| format!("{word:016x}")).collect();
        assert_eq!(algorithm_of(&text), Some([1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(text_of(&[1, 2, 3, 4, 5, 6, 7, 8]), text);
        for bad in ["", "12", &text[1..], &format!("{text}0"), &text.replace('1', "g")] {
            assert_eq!(algorithm_of(bad), None, "{bad}");
        }
    }
}
