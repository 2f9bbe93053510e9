//! From a plan to launches: which kernels of which modules run with which arguments, and which
//! matmuls of which shapes. Lowering needs no GPU, because addresses are still locations in the
//! plan. So the test that compiles all kernels for all architectures lowers the same plans as a run
//! does.

use crate::cublaslt::{MatmulShape, Orientation};
use crate::kernels;
use crate::signature::{Argument, In, Kind, Launch, Out, Parameter, Pointer, Signature};
use crate::step::{self, Step};
use crate::tiles::Tiles;
use plan::ops::{Access, Dropout, DropoutSite, Operand};
use plan::{BackendError, Dtype, Plan, Scope, SegmentId, Shape, TensorId};
use rng::dropout::{MaskKey, Site, threshold};

/// A file of kernels.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) file: &'static str,
    /// Its kernels.
    pub(crate) signatures: &'static [&'static Signature],
    /// The texts it is made of, the file itself last.
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

    /// The constants, as text for people.
    pub fn constants(&self) -> String {
        let words: Vec<String> =
            self.constants.iter().map(|(name, value)| format!("{name}={value}")).collect();
        words.join(" ")
    }

    /// The source text for the compiler.
    pub fn text(&self) -> String {
        let mut text = step::definitions() + kernels::PRELUDE + "\n";
        let constants = self.constants.iter();
        text.extend(constants.map(|(name, value)| format!("#define {name} {value}\n")));
        text.extend(self.source.signatures.iter().map(|signature| signature.definition()));
        text + &self.source.parts.join("\n")
    }

    /// The element type of a kernel's pointer: the value of the constant with that name, or the
    /// name itself.
    fn element<'a>(&'a self, name: &'a str) -> &'a str {
        let constant = self.constants.iter().find(|(constant, _)| *constant == name);
        constant.map_or(name, |(_, value)| value)
    }
}

/// Where something is, before there are addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// An offset in the device's arena.
    Arena(u64),
    /// An offset in the host's arena.
    Host(u64),
    /// The inputs that the host passes to this run.
    Step,
    /// alpha and beta of the head's matmuls.
    Scalars,
    /// No operand: a null pointer that the kernel does not dereference.
    Nowhere,
}

impl Location {
    /// The location `bytes` further on.
    pub(crate) fn plus(self, bytes: u64) -> Location {
        match self {
            Location::Arena(offset) => Location::Arena(offset + bytes),
            Location::Host(offset) => Location::Host(offset + bytes),
            other => other,
        }
    }
}

/// The launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KernelLaunch {
    pub(crate) module: usize,
    pub(crate) signature: &'static Signature,
    pub(crate) grid: u32,
    pub(crate) block: u32,
    pub(crate) shared: u32,
    pub(crate) arguments: Vec<Argument>,
}

/// The launch of a matmul.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MatmulLaunch {
    pub(crate) matmul: usize,
    pub(crate) a: Location,
    pub(crate) b: Location,
    pub(crate) out: Location,
    pub(crate) bias: Option<Location>,
    pub(crate) workspace: Location,
    /// Offset from [`Location::Scalars`], in bytes.
    pub(crate) scalars: u64,
}

/// One operation on the device's stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Work {
    Kernel(KernelLaunch),
    Matmul(MatmulLaunch),
    /// A copy between host and device memory.
    Copy {
        from: Location,
        to: Location,
        bytes: u64,
    },
}

/// Options that choose among equivalent kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoweringOptions {
    /// Whether f32 matmuls may round their inputs to tf32, as in nanoGPT.
    pub tf32: bool,
    /// Tile sizes of attention.
    pub tiles: Tiles,
}

/// A whole plan as launches.
#[derive(Clone, Debug)]
pub(crate) struct Lowered {
    pub(crate) modules: Vec<ModuleSpec>,
    pub(crate) matmuls: Vec<MatmulShape>,
    /// By segment, by step.
    pub(crate) segments: Vec<Vec<Vec<Work>>>,
}

/// Lowers every step of every segment.
pub(crate) fn lower(plan: &Plan, options: LoweringOptions) -> Result<Lowered, BackendError> {
    let mut cx = Lowering {
        plan,
        options,
        segment: None,
        operands: Vec::new(),
        written: Vec::new(),
        modules: Vec::new(),
        matmuls: Vec::new(),
        work: Vec::new(),
    };
    let mut segments = Vec::new();
    for segment in plan.schedule.segment_ids() {
        cx.segment = Some(segment);
        let mut steps = Vec::new();
        for step in &plan.schedule.segment(segment).steps {
            cx.operands = step.operands();
            cx.written.clear();
            kernels::lower(&mut cx, &step.op)?;
            steps.push(std::mem::take(&mut cx.work));
        }
        segments.push(steps);
    }
    Ok(Lowered { modules: cx.modules, matmuls: cx.matmuls, segments })
}

/// What a file of kernels uses to lower its ops.
pub(crate) struct Lowering<'a> {
    plan: &'a Plan,
    options: LoweringOptions,
    segment: Option<SegmentId>,
    /// Operands of the step being lowered.
    operands: Vec<Operand>,
    /// Operands that a kernel of this step has already written.
    written: Vec<TensorId>,
    modules: Vec<ModuleSpec>,
    matmuls: Vec<MatmulShape>,
    work: Vec<Work>,
}

/// A matmul of tensors, as an op describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatmulSpec {
    pub(crate) orientation: Orientation,
    pub(crate) m: u64,
    pub(crate) n: u64,
    pub(crate) k: u64,
    pub(crate) inputs: Dtype,
    pub(crate) output: Dtype,
    pub(crate) accumulate: bool,
    /// Where alpha and beta are, in bytes from [`Location::Scalars`], if they are on the device.
    pub(crate) scalars: Option<u64>,
}

/// How many threads run a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) grid: u64,
    pub(crate) block: u32,
    pub(crate) shared: u32,
}

impl Extent {
    /// `grid` blocks of `block` threads.
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
    pub(crate) fn location(&self, tensor: TensorId) -> Result<Location, BackendError> {
        let unplaced = || BackendError::BadPlan { defects: "an operand has no place".into() };
        location_of(self.plan, self.segment.ok_or_else(unplaced)?, tensor).ok_or_else(unplaced)
    }

    fn pointer(&self, tensor: TensorId, written: bool) -> Result<Pointer, BackendError> {
        Ok(Pointer { location: self.location(tensor)?, operand: Some(tensor), written })
    }

    /// An operand that a kernel reads.
    pub(crate) fn read<E>(&self, tensor: TensorId) -> Result<In<E>, BackendError> {
        Ok(In::new(self.pointer(tensor, false)?))
    }

    /// An operand that a kernel writes.
    pub(crate) fn write<E>(&self, tensor: TensorId) -> Result<Out<E>, BackendError> {
        self.write_if(true, tensor)
    }

    /// An operand that a kernel writes in one of its forms and only reads in the others.
    pub(crate) fn write_if<E>(&self, is: bool, tensor: TensorId) -> Result<Out<E>, BackendError> {
        Ok(Out::new(self.pointer(tensor, is)?))
    }

    /// An optional operand that is read.
    pub(crate) fn maybe_read<E>(&self, tensor: Option<TensorId>) -> Result<In<E>, BackendError> {
        tensor.map_or(Ok(In::nowhere()), |tensor| self.read(tensor))
    }

    /// An optional operand that is written.
    pub(crate) fn maybe_write<E>(&self, tensor: Option<TensorId>) -> Result<Out<E>, BackendError> {
        tensor.map_or(Ok(Out::nowhere()), |tensor| self.write(tensor))
    }

    /// Workspace, whose format the kernel chooses.
    pub(crate) fn scratch<E>(&self, tensor: TensorId) -> Result<Out<E>, BackendError> {
        Ok(Out::at(self.location(tensor)?))
    }

    /// The inputs that the host passes to the run.
    pub(crate) fn step(&self) -> In<Step> {
        In::at(Location::Step)
    }

    /// Adds a kernel's launch.
    pub(crate) fn launch<K: Launch>(
        &mut self,
        module: ModuleSpec,
        extent: Extent,
        kernel: K,
    ) -> Result<(), BackendError> {
        let (signature, arguments) = (K::SIGNATURE, kernel.arguments());
        self.check(&module, signature, &arguments)?;
        let known = self.modules.iter().position(|known| *known == module);
        let module = known.unwrap_or_else(|| {
            self.modules.push(module);
            self.modules.len() - 1
        });
        let grid = u32::try_from(extent.grid).ok().filter(|&grid| grid <= i32::MAX as u32);
        let grid = grid.ok_or_else(|| {
            let (blocks, entry) = (extent.grid, signature.entry);
            let what = format!("{blocks} blocks of {entry}: lower batch_size or block_size");
            BackendError::Unsupported { what }
        })?;
        let (block, shared) = (extent.block, extent.shared);
        let launch = KernelLaunch { module, signature, grid, block, shared, arguments };
        self.work.push(Work::Kernel(launch));
        Ok(())
    }

    /// Checks that the file contains the kernel, that every operand has the format of its pointer
    /// in the module, and that the op permits what the kernel does with it.
    fn check(
        &mut self,
        module: &ModuleSpec,
        signature: &Signature,
        arguments: &[Argument],
    ) -> Result<(), BackendError> {
        let entry = signature.entry;
        if !module.source.signatures.contains(&signature) {
            return Err(unsupported(format!("{entry} is not a kernel of {}", module.file())));
        }
        let before = self.written.len();
        for (parameter, argument) in signature.parameters.iter().zip(arguments) {
            let Argument::At(Pointer { operand: Some(tensor), written, .. }) = *argument else {
                continue;
            };
            let problem = self.problem(module, parameter, tensor, written, before);
            if let Some(problem) = problem {
                return Err(unsupported(format!("{entry}: {} {problem}", parameter.name)));
            }
            if written {
                self.written.push(tensor);
            }
        }
        Ok(())
    }

    fn problem(
        &self,
        module: &ModuleSpec,
        parameter: &Parameter,
        tensor: TensorId,
        written: bool,
        before: usize,
    ) -> Option<String> {
        let Some(operand) = self.operands.iter().find(|operand| operand.tensor == tensor) else {
            return Some("is not an operand of the op".to_string());
        };
        let was_written = self.written[..before].contains(&tensor);
        if written && operand.access == Access::Read {
            return Some("is written, and the op only reads it".to_string());
        }
        let is_read = matches!(parameter.kind, Kind::Reads(_));
        if is_read && operand.access == Access::Write && !was_written {
            return Some("is read before it is written".to_string());
        }
        let (Kind::Reads(name) | Kind::Writes(name)) = parameter.kind else {
            return Some("is not a pointer".to_string());
        };
        let (wanted, found) = (module.element(name), format_name(self.dtype(tensor)));
        let is_state = wanted == "State" && found == "u32";
        (wanted != found && !is_state).then(|| format!("is {found}, the kernel takes {wanted}"))
    }

    /// Adds a matmul's launch.
    pub(crate) fn matmul(
        &mut self,
        spec: MatmulSpec,
        [a, b, out, workspace]: [Location; 4],
        bias: Option<Location>,
    ) {
        let widths = match spec.orientation {
            Orientation::TimesTransposed => [spec.k, spec.k, spec.n],
            Orientation::Plain => [spec.k, spec.n, spec.n],
            Orientation::TransposedTimes => [spec.m, spec.n, spec.n],
        };
        let sizes = [spec.inputs, spec.inputs, spec.output].map(Dtype::size);
        let rows = widths.iter().zip(sizes).map(|(width, size)| alignment(width * size));
        let starts = [a, b, out].into_iter().chain(bias).map(|location| match location {
            Location::Arena(offset) | Location::Host(offset) => alignment(offset),
            Location::Step | Location::Scalars | Location::Nowhere => 16,
        });
        let shape = MatmulShape {
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
        let known = self.matmuls.iter().position(|matmul| *matmul == shape);
        let matmul = known.unwrap_or_else(|| {
            self.matmuls.push(shape);
            self.matmuls.len() - 1
        });
        let scalars = spec.scalars.unwrap_or(0);
        self.work.push(Work::Matmul(MatmulLaunch { matmul, a, b, out, bias, workspace, scalars }));
    }

    /// Adds a copy between host and device.
    pub(crate) fn copy(&mut self, from: Location, to: Location, bytes: u64) {
        self.work.push(Work::Copy { from, to, bytes });
    }
}

/// The largest power of two, at most 16, that divides `bytes`.
fn alignment(bytes: u64) -> u32 {
    1 << bytes.trailing_zeros().min(4)
}

/// Where a tensor, or the root of a view, is while a segment runs.
pub(crate) fn location_of(plan: &Plan, segment: SegmentId, tensor: TensorId) -> Option<Location> {
    let (root, offset) = plan.schedule.tensors.root(tensor);
    let location = plan.layout(segment).placement(root)?;
    let at = location.offset.get() + offset.get();
    Some(match plan.schedule.tensors.get(root).scope {
        Scope::Host => Location::Host(at - plan.arena_bytes.get()),
        Scope::Run | Scope::Phase(_) | Scope::Segment(_) => Location::Arena(at),
    })
}

/// The name of a format in the kernels.
pub(crate) fn format_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "float",
        Dtype::Bf16 => "bf16",
        Dtype::F16 => "f16",
        Dtype::I32 => "int",
        Dtype::U32 => "u32",
    }
}

/// How many numbers of a row are moved together: 16 bytes of the narrowest format, or fewer if that
/// does not divide the row.
pub(crate) fn pack_of(width: u64, formats: &[Dtype]) -> u64 {
    let narrowest = formats.iter().map(|dtype| dtype.size()).min().unwrap_or(4);
    let most = 16 / narrowest;
    [8, 4, 2, 1].into_iter().find(|&pack| pack <= most && width.is_multiple_of(pack)).unwrap_or(1)
}

/// What a kernel needs to know about its op's dropout.
pub(crate) struct Mask {
    pub(crate) threshold: u32,
    pub(crate) tag: u32,
    pub(crate) scale: f32,
}

impl Mask {
    /// Without dropout, everything is kept unchanged.
    pub(crate) fn of(dropout: Option<Dropout>) -> Mask {
        let Some(dropout) = dropout else {
            return Mask { threshold: 0, tag: 0, scale: 1.0 };
        };
        let site = match dropout.site {
            DropoutSite::Embedding => Site::Embedding,
            DropoutSite::Attention => Site::Attention,
            DropoutSite::AttentionProjection => Site::AttentionProjection,
            DropoutSite::MlpProjection => Site::MlpProjection,
        };
        let tag = MaskKey::new(0, 0, dropout.layer, site).tag();
        let (threshold, scale) = (threshold(dropout.probability), dropout.keep_scale());
        Mask { threshold, tag, scale }
    }
}

/// 1 or 0, as the preprocessor conditions of the kernels expect it.
pub(crate) fn flag(is: bool) -> String {
    u32::from(is).to_string()
}

fn unsupported(what: String) -> BackendError {
    BackendError::Unsupported { what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::gelu::{GELU, GeluForward, GeluGradient};
    use crate::signature::WorkCount;
    use plan::ops::{Gelu, GeluKind};
    use plan::{Io, Phase, Role, ScheduleBuilder};

    /// GELU of a bf16 tensor, and its plan.
    fn plan_of(out: Dtype) -> (Plan, Gelu) {
        let mut builder = ScheduleBuilder::new();
        let mut segment = builder.segment("one", Phase::Train);
        let shape = Shape::new(&[4, 8]).unwrap();
        let x = segment.host_tensor("x", Dtype::Bf16, shape, Role::Activation, Io::Input);
        let out = segment.host_tensor("out", out, shape, Role::Activation, Io::Output);
        let op = Gelu { x: x.unwrap(), out: out.unwrap(), kind: GeluKind::Erf };
        segment.push(op.clone()).unwrap();
        segment.finish();
        (Plan::new(builder.finish()).unwrap(), op)
    }

    const OPTIONS: LoweringOptions = LoweringOptions { tf32: false, tiles: Tiles::Small };

    fn words<Any>(result: Result<Any, BackendError>) -> String {
        result.map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn an_operand_of_another_format_than_its_pointer_is_refused() {
        assert_eq!(lower(&plan_of(Dtype::Bf16).0, OPTIONS).unwrap().modules.len(), 1);
        let error = words(lower(&plan_of(Dtype::F32).0, OPTIONS));
        assert!(error.ends_with("gelu_forward: out is float, the kernel takes bf16"), "{error}");
    }

    #[test]
    fn a_kernel_does_no_more_than_its_op_may() {
        let (plan, op) = plan_of(Dtype::Bf16);
        let segment = plan.schedule.segment_ids().next();
        let mut cx = Lowering {
            plan: &plan,
            options: OPTIONS,
            segment,
            operands: plan.schedule.segment(segment.unwrap()).steps[0].operands(),
            written: Vec::new(),
            modules: Vec::new(),
            matmuls: Vec::new(),
            work: Vec::new(),
        };
        let constants = vec![("T", "bf16".to_string())];
        let module = ModuleSpec { source: &GELU, constants };
        let (packs, extent) = (WorkCount(4), Extent::new(1, 32));
        let (x, d) = (cx.write(op.x).unwrap(), cx.write(op.out).unwrap());
        let error = words(cx.launch(module.clone(), extent, GeluGradient { packs, x, d }));
        assert!(error.contains("x is written, and the op only reads it"), "{error}");
        let (x, out) = (cx.read(op.out).unwrap(), cx.write(op.out).unwrap());
        let error = words(cx.launch(module.clone(), extent, GeluForward { packs, x, out }));
        assert!(error.contains("x is read before it is written"), "{error}");
        let other = ModuleSpec { source: &kernels::sums::SUMS, ..module };
        let error = words(cx.launch(other, extent, GeluForward { packs, x, out }));
        assert!(error.contains("gelu_forward is not a kernel of sums.cu"), "{error}");
    }
}
