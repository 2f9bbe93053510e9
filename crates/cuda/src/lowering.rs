//! From a plan to launches: which kernels of which modules run with which arguments, and which
//! products of which shapes. No GPU is needed for it: addresses are still places in the plan, so
//! that the check of all kernels for all architectures lowers the same plans as a run does.

use crate::context::MOST_ARGUMENTS;
use crate::cublaslt::{Orientation, ProductShape};
use crate::kernels;
use crate::tiles::Tiles;
use plan::ops::{Dropout, DropoutSite};
use plan::{BackendError, Dtype, Plan, Scope, SegmentId, Shape, TensorId};
use rng::dropout::{MaskKey, Site, threshold};

/// A file of kernels.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) file: &'static str,
    /// What it consists of, the file itself last.
    pub(crate) parts: &'static [&'static str],
}

/// A file of kernels with the constants of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleSpec {
    pub(crate) source: &'static Source,
    pub(crate) constants: Vec<(&'static str, String)>,
}

impl ModuleSpec {
    /// The file's name.
    pub fn file(&self) -> &'static str {
        self.source.file
    }

    /// The constants, for people.
    pub fn constants(&self) -> String {
        let words: Vec<String> =
            self.constants.iter().map(|(name, value)| format!("{name}={value}")).collect();
        words.join(" ")
    }

    /// What the compiler gets.
    pub fn text(&self) -> String {
        let constants: String = self
            .constants
            .iter()
            .map(|(name, value)| format!("#define {name} {value}\n"))
            .collect();
        format!("{}\n{constants}{}", kernels::PRELUDE, self.source.parts.join("\n"))
    }
}

/// Where something is, before there are addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// An offset in the device's arena.
    Arena(u64),
    /// An offset in the host's.
    Host(u64),
    /// What the host gives this run.
    Step,
    /// alpha and beta of the head's products.
    Scalars,
    /// No operand: a null pointer that the kernel does not follow.
    Nowhere,
}

impl Place {
    /// So many bytes behind.
    pub(crate) fn plus(self, bytes: u64) -> Place {
        match self {
            Place::Arena(offset) => Place::Arena(offset + bytes),
            Place::Host(offset) => Place::Host(offset + bytes),
            other => other,
        }
    }
}

/// One parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    /// A number, in the low bytes.
    Word(u64),
    /// A pointer.
    At(Place),
}

impl From<Place> for Argument {
    fn from(place: Place) -> Argument {
        Argument::At(place)
    }
}

impl From<u32> for Argument {
    fn from(number: u32) -> Argument {
        Argument::Word(u64::from(number))
    }
}

impl From<u64> for Argument {
    fn from(number: u64) -> Argument {
        Argument::Word(number)
    }
}

impl From<f32> for Argument {
    fn from(number: f32) -> Argument {
        Argument::Word(u64::from(number.to_bits()))
    }
}

impl From<f64> for Argument {
    fn from(number: f64) -> Argument {
        Argument::Word(number.to_bits())
    }
}

/// The arguments of a kernel, in the order of its parameters.
macro_rules! arguments {
    ($($argument:expr),+ $(,)?) => {
        vec![$($crate::lowering::Argument::from($argument)),+]
    };
}

pub(crate) use arguments;

/// A kernel's launch. Its first argument counts its work: with 0 it does nothing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KernelLaunch {
    pub(crate) module: usize,
    pub(crate) entry: &'static str,
    pub(crate) grid: u32,
    pub(crate) block: u32,
    pub(crate) shared: u32,
    pub(crate) arguments: Vec<Argument>,
}

/// A product's launch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProductLaunch {
    pub(crate) product: usize,
    pub(crate) a: Place,
    pub(crate) b: Place,
    pub(crate) out: Place,
    pub(crate) bias: Option<Place>,
    pub(crate) workspace: Place,
    /// Bytes behind [`Place::Scalars`].
    pub(crate) scalars: u64,
}

/// One thing that the device does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Work {
    Kernel(KernelLaunch),
    Product(ProductLaunch),
    /// Between the memories of host and device.
    Copy {
        from: Place,
        to: Place,
        bytes: u64,
    },
}

/// What decides between ways to do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoweringOptions {
    /// Whether products of f32 may round their inputs to tf32, as nanoGPT lets them.
    pub tf32: bool,
    /// Tile sizes of attention.
    pub tiles: Tiles,
}

/// A whole plan as launches.
#[derive(Clone, Debug)]
pub(crate) struct Lowered {
    pub(crate) modules: Vec<ModuleSpec>,
    pub(crate) products: Vec<ProductShape>,
    /// By segment, by step.
    pub(crate) segments: Vec<Vec<Vec<Work>>>,
}

/// Lowers every step of every segment.
pub(crate) fn lower(plan: &Plan, options: LoweringOptions) -> Result<Lowered, BackendError> {
    let mut cx = Lowering {
        plan,
        options,
        segment: None,
        modules: Vec::new(),
        products: Vec::new(),
        work: Vec::new(),
    };
    let mut segments = Vec::new();
    for segment in plan.schedule.segment_ids() {
        cx.segment = Some(segment);
        let mut steps = Vec::new();
        for step in &plan.schedule.segment(segment).steps {
            kernels::lower(&mut cx, &step.op)?;
            steps.push(std::mem::take(&mut cx.work));
        }
        segments.push(steps);
    }
    Ok(Lowered { modules: cx.modules, products: cx.products, segments })
}

/// What a file of kernels sees while its ops are lowered.
pub(crate) struct Lowering<'a> {
    plan: &'a Plan,
    options: LoweringOptions,
    segment: Option<SegmentId>,
    modules: Vec<ModuleSpec>,
    products: Vec<ProductShape>,
    work: Vec<Work>,
}

/// A product of tensors as an op sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProductSpec {
    pub(crate) orientation: Orientation,
    pub(crate) m: u64,
    pub(crate) n: u64,
    pub(crate) k: u64,
    pub(crate) inputs: Dtype,
    pub(crate) output: Dtype,
    pub(crate) accumulate: bool,
    /// Bytes behind [`Place::Scalars`] where alpha and beta are, if they are on the device.
    pub(crate) scalars: Option<u64>,
}

/// A kernel of a module.
pub(crate) struct Kernel {
    pub(crate) source: &'static Source,
    pub(crate) constants: Vec<(&'static str, String)>,
    pub(crate) entry: &'static str,
}

/// How many threads run it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) grid: u64,
    pub(crate) block: u32,
    pub(crate) shared: u32,
}

impl Extent {
    /// So many blocks of so many threads.
    pub(crate) fn new(grid: u64, block: u32) -> Extent {
        Extent { grid, block, shared: 0 }
    }
}

impl Lowering<'_> {
    pub(crate) fn options(&self) -> LoweringOptions {
        self.options
    }

    pub(crate) fn shape(&self, tensor: TensorId) -> Shape {
        self.plan.schedule.tensors.get(tensor).shape
    }

    pub(crate) fn dtype(&self, tensor: TensorId) -> Dtype {
        self.plan.schedule.tensors.get(tensor).dtype
    }

    pub(crate) fn bytes(&self, tensor: TensorId) -> u64 {
        self.plan.schedule.tensors.bytes(tensor).get()
    }

    /// Where an operand is while the segment runs.
    pub(crate) fn place(&self, tensor: TensorId) -> Result<Place, BackendError> {
        let unplaced = || BackendError::BadPlan { defects: "an operand has no place".into() };
        place_of(self.plan, self.segment.ok_or_else(unplaced)?, tensor).ok_or_else(unplaced)
    }

    /// An operand that need not be there.
    pub(crate) fn maybe(&self, tensor: Option<TensorId>) -> Result<Place, BackendError> {
        tensor.map_or(Ok(Place::Nowhere), |tensor| self.place(tensor))
    }

    /// Adds a kernel's launch.
    pub(crate) fn launch(
        &mut self,
        kernel: Kernel,
        extent: Extent,
        arguments: Vec<Argument>,
    ) -> Result<(), BackendError> {
        let Kernel { source, constants, entry } = kernel;
        let spec = ModuleSpec { source, constants };
        let known = self.modules.iter().position(|module| *module == spec);
        let module = known.unwrap_or_else(|| {
            self.modules.push(spec);
            self.modules.len() - 1
        });
        let grid = u32::try_from(extent.grid).ok().filter(|&grid| grid <= i32::MAX as u32);
        let grid = grid.ok_or_else(|| {
            let what = format!("{} blocks of {entry}: lower batch_size or block_size", extent.grid);
            BackendError::Unsupported { what }
        })?;
        if arguments.len() > MOST_ARGUMENTS {
            let what = format!("{} arguments of {entry}", arguments.len());
            return Err(BackendError::Unsupported { what });
        }
        let (block, shared) = (extent.block, extent.shared);
        let launch = KernelLaunch { module, entry, grid, block, shared, arguments };
        self.work.push(Work::Kernel(launch));
        Ok(())
    }

    /// Adds a product's launch.
    pub(crate) fn product(
        &mut self,
        spec: ProductSpec,
        [a, b, out, workspace]: [Place; 4],
        bias: Option<Place>,
    ) {
        let widths = match spec.orientation {
            Orientation::TimesTransposed => [spec.k, spec.k, spec.n],
            Orientation::Plain => [spec.k, spec.n, spec.n],
            Orientation::TransposedTimes => [spec.m, spec.n, spec.n],
        };
        let sizes = [spec.inputs, spec.inputs, spec.output].map(Dtype::size);
        let rows = widths.iter().zip(sizes).map(|(width, size)| alignment(width * size));
        let starts = [a, b, out].into_iter().chain(bias).map(|place| match place {
            Place::Arena(offset) | Place::Host(offset) => alignment(offset),
            Place::Step | Place::Scalars | Place::Nowhere => 16,
        });
        let shape = ProductShape {
            orientation: spec.orientation,
            m: spec.m,
            n: spec.n,
            k: spec.k,
            inputs: spec.inputs,
            output: spec.output,
            bias: bias.is_some(),
            accumulate: spec.accumulate,
            device_scalars: spec.scalars.is_some(),
            alignment: rows.chain(starts).min().unwrap_or(16),
            tf32: self.options.tf32 && spec.inputs == Dtype::F32,
        };
        let known = self.products.iter().position(|product| *product == shape);
        let product = known.unwrap_or_else(|| {
            self.products.push(shape);
            self.products.len() - 1
        });
        let scalars = spec.scalars.unwrap_or(0);
        self.work.push(Work::Product(ProductLaunch {
            product,
            a,
            b,
            out,
            bias,
            workspace,
            scalars,
        }));
    }

    /// Adds a copy between host and device.
    pub(crate) fn copy(&mut self, from: Place, to: Place, bytes: u64) {
        self.work.push(Work::Copy { from, to, bytes });
    }
}

/// The largest power of two, at most 16, that divides it.
fn alignment(bytes: u64) -> u32 {
    1 << bytes.trailing_zeros().min(4)
}

/// Where a tensor, or the tensor that a view looks into, is while a segment runs.
pub(crate) fn place_of(plan: &Plan, segment: SegmentId, tensor: TensorId) -> Option<Place> {
    let (root, offset) = plan.schedule.tensors.root(tensor);
    let place = plan.layout(segment).placement(root)?;
    let at = place.offset.get() + offset.get();
    Some(match plan.schedule.tensors.get(root).scope {
        Scope::Host => Place::Host(at - plan.arena_bytes.get()),
        Scope::Run | Scope::Phase(_) | Scope::Segment(_) => Place::Arena(at),
    })
}

/// How the kernels call a format.
pub(crate) fn format_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "float",
        Dtype::Bf16 => "bf16",
        Dtype::F16 => "f16",
        Dtype::I32 => "int",
        Dtype::U32 => "u32",
    }
}

/// How many numbers of a row move together: 16 bytes of the narrowest format, or fewer where the
/// row does not divide so.
pub(crate) fn pack_of(width: u64, formats: &[Dtype]) -> u64 {
    let narrowest = formats.iter().map(|dtype| dtype.size()).min().unwrap_or(4);
    let most = 16 / narrowest;
    [8, 4, 2, 1].into_iter().find(|&pack| pack <= most && width.is_multiple_of(pack)).unwrap_or(1)
}

/// The three arguments of a dropout: threshold, tag, scale.
pub(crate) fn dropout_arguments(dropout: Option<Dropout>) -> [Argument; 3] {
    let Some(dropout) = dropout else {
        return [0u32.into(), 0u32.into(), 1.0f32.into()];
    };
    let site = match dropout.site {
        DropoutSite::Embedding => Site::Embedding,
        DropoutSite::Attention => Site::Attention,
        DropoutSite::AttentionProjection => Site::AttentionProjection,
        DropoutSite::MlpProjection => Site::MlpProjection,
    };
    let tag = MaskKey::new(0, 0, dropout.layer, site).tag();
    [threshold(dropout.probability).into(), tag.into(), dropout.keep_scale().into()]
}

/// 1 or 0, as the kernels' conditions have it.
pub(crate) fn flag(is: bool) -> String {
    u32::from(is).to_string()
}
