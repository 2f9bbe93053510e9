//! From a plan to launches: which kernels of which modules run with which arguments, and which
//! matmuls of which shapes. Lowering needs no GPU, because addresses are still locations in the
//! plan. So the test that compiles all kernels for all architectures lowers the same plans as a run
//! does.

use crate::constants::format_name;
use crate::cublaslt::{MatmulShape, Orientation};
use crate::kernel_source::ModuleSpec;
use crate::kernels;
use crate::signature::{
    Argument, Element, In, Kind, Launch, Map, MatmulInput, MatmulOutput, Out, Parameter,
    ParameterType, Pointer, Signature,
};
use crate::step::Step;
use crate::tensor_map::MatrixTiles;
use crate::tiles::Tiles;
use crate::transport::Travel;
use plan::ops::{Access, Dropout, DropoutSite, Elements, Op, Operand};
use plan::{
    BackendError, Dtype, Lane, OPERAND_ALIGNMENT, Plan, Scope, SegmentId, Shape, StepState,
    TensorId, Tensors,
};
use rng::dropout::{MaskKey, Site, threshold};

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

    /// Bytes from the start of its memory; 0 if it is not a tensor.
    fn offset(self) -> u64 {
        match self {
            Location::Arena(offset) | Location::Host(offset) => offset,
            Location::Step | Location::Scalars | Location::Nowhere => 0,
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
    pub(crate) residual: Option<Location>,
    pub(crate) workspace: Location,
    /// Offset from [`Location::Scalars`], in bytes.
    pub(crate) scalars: u64,
}

/// One operation on the device's stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Work {
    Kernel(KernelLaunch),
    Matmul(MatmulLaunch),
    /// A copy, on the device or between host and device memory.
    Copy {
        from: Location,
        to: Location,
        bytes: u64,
    },
    /// Zeros.
    Fill {
        at: Location,
        bytes: u64,
    },
    /// Bytes that travel between ranks.
    Travel(Travel<Location>),
}

/// Options that choose among equivalent kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoweringOptions {
    /// Whether f32 matmuls, attention's too, may round their inputs to tf32.
    pub tf32: bool,
    /// Tile sizes of attention.
    pub tiles: Tiles,
    /// Whether attention and linear layers run on Hopper's warpgroups where there is such a kernel,
    /// and operands of TF32 matmuls are transposed for them. The plan's scratch must be proved for
    /// it.
    pub warpgroups: bool,
    /// The GPU's multiprocessors. No result depends on them.
    pub multiprocessors: u32,
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
            if !has_lane(&step.op, step.lane) {
                let what =
                    format!("{} on the lane of {}", step.op.operation().name(), step.lane.name());
                return Err(BackendError::Unsupported { what });
            }
            cx.operands = step.operands();
            cx.written.clear();
            kernels::lower(&mut cx, &step.op)?;
            steps.push(std::mem::take(&mut cx.work));
        }
        segments.push(steps);
    }
    Ok(Lowered { modules: cx.modules, matmuls: cx.matmuls, segments })
}

/// Whether an op runs on a lane. Matmuls are on the compute lane alone, as their library is, and
/// ranks must agree on the order of what travels.
fn has_lane(op: &Op, lane: Lane) -> bool {
    match op {
        Op::Transfer(_) => true,
        Op::ReduceScatter(_) | Op::AllGather(_) => lane == Lane::Communication,
        _ => lane == Lane::Compute,
    }
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
    pub(crate) accumulate: bool,
    /// Where alpha and beta are, in bytes from [`Location::Scalars`], if they are on the device.
    pub(crate) scalars: Option<u64>,
}

impl MatmulSpec {
    /// Bytes, at most 16, to which all rows and all operands are aligned.
    fn alignment(
        &self,
        [inputs, output]: [Dtype; 2],
        operands: [Location; 3],
        added: impl Iterator<Item = Location>,
    ) -> u32 {
        let widths = match self.orientation {
            Orientation::TimesTransposed => [self.k, self.k, self.n],
            Orientation::Plain => [self.k, self.n, self.n],
            Orientation::TransposedTimes => [self.m, self.n, self.n],
            Orientation::BothTransposed => [self.m, self.k, self.n],
        };
        let sizes = [inputs, inputs, output].map(Dtype::size);
        let rows = widths.iter().zip(sizes).map(|(width, size)| width * size);
        let starts = operands.into_iter().chain(added).map(Location::offset);
        rows.chain(starts).map(alignment).min().unwrap_or(16)
    }
}

/// The operands of a matmul, read and written as the op may. Their formats are the plan's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matmul {
    pub(crate) a: In<MatmulInput>,
    pub(crate) b: In<MatmulInput>,
    pub(crate) out: Out<MatmulOutput>,
    pub(crate) bias: Option<In<MatmulOutput>>,
    /// What is added to the result, like `out`.
    pub(crate) residual: Option<In<MatmulOutput>>,
    /// The op's workspace.
    pub(crate) scratch: Out<f32>,
}

impl Matmul {
    /// As a kernel's arguments. An output that is accumulated into is also listed as read.
    fn arguments(self, accumulate: bool) -> Vec<(Parameter, Argument)> {
        fn one<P: ParameterType>(name: &'static str, operand: P) -> (Parameter, Argument) {
            (Parameter { name, kind: P::KIND }, operand.argument())
        }
        let mut arguments = vec![one("a", self.a), one("b", self.b)];
        arguments.extend(self.bias.map(|bias| one("bias", bias)));
        arguments.extend(self.residual.map(|residual| one("residual", residual)));
        arguments.extend(accumulate.then(|| one("out", self.out.read())));
        arguments.push(one("out", self.out));
        arguments
    }
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

    pub(crate) fn tensors(&self) -> &Tensors {
        &self.plan.schedule.tensors
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
        let unplaced = || BackendError::BadPlan { defects: "an operand has no placement".into() };
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

    /// A matrix of 16-bit numbers of which a kernel reads tiles of so many rows and columns.
    pub(crate) fn map<E>(
        &self,
        tensor: TensorId,
        [rows, columns]: [u64; 2],
    ) -> Result<Map<E>, BackendError> {
        let shape = self.shape(tensor);
        if !matches!(self.dtype(tensor), Dtype::Bf16 | Dtype::F16) {
            return Err(internal(format!("tiles of {tensor:?}, which is not of 16-bit numbers")));
        }
        let tile = [rows as u32, columns as u32];
        let tiles = MatrixTiles { rows: shape.rows(), columns: shape.width(), tile };
        Ok(Map::new(self.read(tensor)?, tiles))
    }

    /// An optional operand that is read.
    pub(crate) fn maybe_read<E>(&self, tensor: Option<TensorId>) -> Result<In<E>, BackendError> {
        tensor.map_or(Ok(In::nowhere()), |tensor| self.read(tensor))
    }

    /// An optional operand that is written.
    pub(crate) fn maybe_write<E>(&self, tensor: Option<TensorId>) -> Result<Out<E>, BackendError> {
        tensor.map_or(Ok(Out::nowhere()), |tensor| self.write(tensor))
    }

    /// The op's workspace, whose format the kernel chooses.
    pub(crate) fn scratch<E>(&self, tensor: TensorId) -> Result<Out<E>, BackendError> {
        let operand = self.operands.iter().find(|operand| operand.tensor == tensor);
        match operand.map(|operand| operand.elements) {
            Some(Elements::Workspace) => Ok(Out::at(self.location(tensor)?)),
            _ => {
                let name = &self.plan.schedule.tensors.get(tensor).name;
                Err(internal(format!("{name} is used as scratch, but is not its op's workspace")))
            }
        }
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
        if !module.source.signatures.contains(&signature) {
            let (entry, file) = (signature.entry, module.file());
            return Err(internal(format!("{entry} is not a kernel of {file}")));
        }
        let operands = signature.parameters.iter().copied().zip(arguments.iter().copied());
        self.check(signature.entry, operands, |name| module.element(name))?;
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

    /// Checks that every operand has the format of its pointer, and that the op permits what the
    /// kernel does with it.
    fn check<'e>(
        &mut self,
        entry: &str,
        operands: impl IntoIterator<Item = (Parameter, Argument)>,
        element: impl Fn(&'static str) -> &'e str,
    ) -> Result<(), BackendError> {
        let before = self.written.len();
        for (Parameter { name, kind }, argument) in operands {
            let Some(Pointer { operand: Some(tensor), written, .. }) = argument.pointer() else {
                continue;
            };
            let problem = self.access_problem(tensor, written, before);
            let problem = problem.or_else(|| match kind {
                Kind::Reads(of) | Kind::Writes(of) | Kind::Maps(of) => {
                    self.format_problem(tensor, element(of))
                }
                Kind::Work(_) | Kind::Number(_) => Some("is not a pointer".to_string()),
            });
            if let Some(problem) = problem {
                return Err(internal(format!("{entry}: {name} {problem}")));
            }
            if written {
                self.written.push(tensor);
            }
        }
        Ok(())
    }

    fn operand(&self, tensor: TensorId) -> Option<&Operand> {
        self.operands.iter().find(|operand| operand.tensor == tensor)
    }

    /// What is wrong with how a kernel accesses a tensor. If it does not write, it only reads, even
    /// through a pointer that permits writing.
    fn access_problem(&self, tensor: TensorId, written: bool, before: usize) -> Option<String> {
        let Some(operand) = self.operand(tensor) else {
            return Some("is not an operand of the op".to_string());
        };
        let was_written = self.written[..before].contains(&tensor);
        match (operand.access, written) {
            (Access::Read, true) => Some("is written, and the op only reads it".to_string()),
            (Access::Write, false) if !was_written => {
                Some("is read before it is written".to_string())
            }
            (Access::Read | Access::Write | Access::Update, _) => None,
        }
    }

    fn format_problem(&self, tensor: TensorId, wanted: &str) -> Option<String> {
        let found = match self.operand(tensor)?.elements {
            Elements::Words => StepState::NAME,
            Elements::WideSums => f64::NAME,
            Elements::Workspace => "a workspace",
            Elements::Float
            | Elements::Single
            | Elements::LowerHalves
            | Elements::Any
            | Elements::Ids => format_name(self.dtype(tensor)),
        };
        (wanted != found).then(|| format!("is {found}, the kernel takes {wanted}"))
    }

    /// Adds a matmul's launch.
    pub(crate) fn matmul(
        &mut self,
        spec: MatmulSpec,
        operands: Matmul,
    ) -> Result<(), BackendError> {
        let Matmul { a, b, out, bias, residual, scratch } = operands;
        let [a, b, out] = [a.pointer(), b.pointer(), out.pointer()];
        let dtype = |pointer: Pointer| pointer.operand.map(|tensor| self.dtype(tensor));
        // One of the inputs may be in the workspace.
        let (Some(inputs), Some(output)) = (dtype(a).or(dtype(b)), dtype(out)) else {
            return Err(internal("a matmul uses a tensor that is not an operand".to_string()));
        };
        let element = |name: &'static str| match name {
            MatmulInput::NAME => format_name(inputs),
            _ => format_name(output),
        };
        self.check("matmul", operands.arguments(spec.accumulate), element)?;
        let MatmulSpec { m, n, k, .. } = spec;
        let [bias, residual] = [bias, residual].map(|operand| operand.map(In::pointer));
        let [read, written] = [inputs, output].map(Dtype::size);
        let reached = [(a, m * k * read), (b, n * k * read), (out, m * n * written)].into_iter();
        let added = bias.map(|bias| (bias, n * written)).into_iter();
        let added = added.chain(residual.map(|residual| (residual, m * n * written)));
        for (pointer, bytes) in reached.chain(added) {
            self.check_reach(pointer, bytes)?;
        }
        let [bias, residual] = [bias, residual].map(|pointer| pointer.map(|p| p.location));
        let shape = MatmulShape {
            orientation: spec.orientation,
            m,
            n,
            k,
            inputs,
            output,
            bias: bias.is_some(),
            accumulate: spec.accumulate,
            residual: residual.is_some(),
            device_scalars: spec.scalars.is_some(),
            alignment: spec.alignment(
                [inputs, output],
                [a, b, out].map(|p| p.location),
                bias.into_iter().chain(residual),
            ),
            tf32: self.options.tf32 && inputs == Dtype::F32,
        };
        let known = self.matmuls.iter().position(|matmul| *matmul == shape);
        let matmul = known.unwrap_or_else(|| {
            self.matmuls.push(shape);
            self.matmuls.len() - 1
        });
        self.work.push(Work::Matmul(MatmulLaunch {
            matmul,
            a: a.location,
            b: b.location,
            out: out.location,
            bias,
            residual,
            workspace: scratch.pointer().location,
            scalars: spec.scalars.unwrap_or(0),
        }));
        Ok(())
    }

    /// Checks that so many bytes from a pointer on lie inside its tensor, or inside the workspace.
    fn check_reach(&self, pointer: Pointer, bytes: u64) -> Result<(), BackendError> {
        let mut workspaces = self.operands.iter().filter(|of| of.elements == Elements::Workspace);
        let workspace = workspaces.next().map(|operand| operand.tensor);
        let Some(tensor) = pointer.operand.or(workspace) else {
            return Err(internal("a matmul uses a tensor that is not an operand".to_string()));
        };
        let end = pointer.location.plus(bytes);
        let limit = self.location(tensor)?.plus(self.bytes(tensor));
        if end.offset() > limit.offset() {
            let name = &self.plan.schedule.tensors.get(tensor).name;
            return Err(internal(format!("a matmul reaches past the end of {name}")));
        }
        Ok(())
    }

    /// Adds a copy, of which at most one side is on the host.
    pub(crate) fn copy(&mut self, from: Location, to: Location, bytes: u64) {
        self.work.push(Work::Copy { from, to, bytes });
    }

    /// Adds zeros.
    pub(crate) fn fill(&mut self, at: Location, bytes: u64) {
        self.work.push(Work::Fill { at, bytes });
    }

    /// Adds what travels between ranks.
    pub(crate) fn travel(&mut self, travel: Travel<Location>) {
        self.work.push(Work::Travel(travel));
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

/// How many numbers of a row one access moves: 16 bytes of the narrowest format, or fewer if the
/// row's width is not a multiple of that. An access of the widest format moves as many numbers, and
/// never more bytes than operands are aligned to.
pub(crate) fn pack_of(width: u64, formats: &[Dtype]) -> u64 {
    let sizes = || formats.iter().map(|dtype| dtype.size());
    let (narrowest, widest) = (sizes().min().unwrap_or(4), sizes().max().unwrap_or(4));
    let most = (16 / narrowest).min(OPERAND_ALIGNMENT / widest);
    1 << width.trailing_zeros().min(most.ilog2())
}

/// What a kernel needs to know about its op's dropout.
pub(crate) struct Mask {
    /// In the upper half.
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
        let threshold = u32::from(threshold(dropout.probability)) << 16;
        Mask { threshold, tag, scale: dropout.keep_scale() }
    }
}

/// The error for kernels that do not match their ops: a bug in this crate, not in the plan.
fn internal(what: String) -> BackendError {
    BackendError::Internal { what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::gelu::{GELU, GeluForward, GeluGradient};
    use crate::signature::WorkCount;
    use plan::ops::{Gelu, GeluKind, Linear};
    use plan::{Io, NoScratch, Phase, Role, Schedule, ScheduleBuilder, verify};

    const OPTIONS: LoweringOptions =
        LoweringOptions { tf32: false, tiles: Tiles::Small, warpgroups: false, multiprocessors: 1 };

    #[test]
    fn packs_divide_rows_and_stay_aligned() {
        for (width, formats, want) in [
            (768, &[Dtype::Bf16, Dtype::F32][..], 8),
            (768, &[Dtype::F32], 4),
            (12, &[Dtype::F16], 4),
            (6, &[Dtype::Bf16], 2),
            (33, &[Dtype::Bf16, Dtype::F32], 1),
        ] {
            let pack = pack_of(width, formats);
            assert_eq!(pack, want, "{width} {formats:?}");
            assert!(formats.iter().all(|dtype| pack * dtype.size() <= OPERAND_ALIGNMENT));
        }
    }

    /// GELU of a bf16 tensor, and what it touches.
    fn gelu() -> (Schedule, Gelu) {
        let mut builder = ScheduleBuilder::new();
        let mut segment = builder.segment("one", Phase::Train);
        let shape = Shape::new(&[4, 8]).unwrap();
        let x = segment.host_tensor("x", Dtype::Bf16, shape, Role::Activation, Io::Input);
        let out = segment.host_tensor("out", Dtype::Bf16, shape, Role::Activation, Io::Output);
        let op = Gelu { x: x.unwrap(), out: out.unwrap(), kind: GeluKind::Erf };
        segment.push(op.clone()).unwrap();
        segment.finish();
        (builder.finish(), op)
    }

    /// A linear layer of f32.
    fn linear() -> (Schedule, Linear) {
        let mut builder = ScheduleBuilder::new();
        let mut segment = builder.segment("one", Phase::Train);
        let mut tensor = |name: &str, dims: &[u64], role, io| {
            let shape = Shape::new(dims).unwrap();
            segment.host_tensor(name, Dtype::F32, shape, role, io).unwrap()
        };
        let op = Linear {
            x: tensor("x", &[4, 8], Role::Activation, Io::Input),
            w: tensor("w", &[16, 8], Role::Weight, Io::Input),
            bias: Some(tensor("bias", &[16], Role::Weight, Io::Input)),
            out: tensor("out", &[4, 16], Role::Activation, Io::Output),
            gelu: None,
            residual: None,
            workspace: tensor("workspace", &[64], Role::Workspace, Io::Device),
        };
        segment.push(op.clone()).unwrap();
        segment.finish();
        (builder.finish(), op)
    }

    fn placed(schedule: Schedule) -> Plan {
        Plan::new(schedule).unwrap()
    }

    /// The first step of a plan, about to be lowered.
    fn first_step(plan: &Plan) -> Lowering<'_> {
        let segment = plan.schedule.segment_ids().next();
        Lowering {
            plan,
            options: OPTIONS,
            segment,
            operands: plan.schedule.segment(segment.unwrap()).steps[0].operands(),
            written: Vec::new(),
            modules: Vec::new(),
            matmuls: Vec::new(),
            work: Vec::new(),
        }
    }

    /// The message of an internal error.
    fn mistake<Any>(result: Result<Any, BackendError>) -> String {
        match result.map(|_| ()) {
            Err(BackendError::Internal { what }) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_operand_of_another_format_than_its_pointer_is_refused() {
        let (mut schedule, op) = gelu();
        assert_eq!(lower(&placed(schedule.clone()), OPTIONS).unwrap().modules.len(), 1);
        schedule.tensors.set_dtype(op.out, Dtype::F32).unwrap();
        let said = mistake(lower(&placed(schedule.clone()), OPTIONS));
        assert_eq!(said, "gelu_forward: out is float, the kernel takes bf16");
        let defects = verify(placed(schedule), NoScratch).map(|_| ()).unwrap_err();
        assert!(defects[0].to_string().ends_with("the op needs bf16"), "{defects:?}");
    }

    #[test]
    fn a_kernel_does_no_more_than_its_op_may() {
        let (schedule, op) = gelu();
        let plan = placed(schedule);
        let mut cx = first_step(&plan);
        let constants = vec![("T", "bf16".to_string())];
        let module = ModuleSpec { source: &GELU, constants };
        let (packs, extent) = (WorkCount(4), Extent::new(1, 32));
        let (x, d) = (cx.write(op.x).unwrap(), cx.write(op.out).unwrap());
        let said = mistake(cx.launch(module.clone(), extent, GeluGradient { packs, x, d }));
        assert!(said.contains("x is written, and the op only reads it"), "{said}");
        let (x, out) = (cx.read(op.out).unwrap(), cx.write(op.out).unwrap());
        let said = mistake(cx.launch(module.clone(), extent, GeluForward { packs, x, out }));
        assert!(said.contains("x is read before it is written"), "{said}");
        // In a form that only reads through a pointer for writing.
        let (x, d) = (cx.write_if(false, op.out).unwrap(), cx.write(op.out).unwrap());
        let said = mistake(cx.launch(module.clone(), extent, GeluGradient { packs, x, d }));
        assert!(said.contains("x is read before it is written"), "{said}");
        let x = cx.read(op.x).unwrap();
        let other = ModuleSpec { source: &kernels::sums::SUMS, ..module };
        let said = mistake(cx.launch(other, extent, GeluForward { packs, x, out }));
        assert!(said.contains("gelu_forward is not a kernel of sums.cu"), "{said}");
        assert!(mistake(cx.scratch::<f32>(op.out)).contains("not its op's workspace"));
    }

    #[test]
    fn a_matmul_of_two_formats_is_refused() {
        assert_eq!(lower(&placed(linear().0), OPTIONS).unwrap().matmuls.len(), 1);
        let (_, Linear { w, bias, .. }) = linear();
        for (tensor, said) in [(w, "b"), (bias.unwrap(), "bias")] {
            let (mut schedule, _) = linear();
            schedule.tensors.set_dtype(tensor, Dtype::Bf16).unwrap();
            let error = mistake(lower(&placed(schedule.clone()), OPTIONS));
            assert_eq!(error, format!("matmul: {said} is bf16, the kernel takes float"));
            let defects = verify(placed(schedule), NoScratch).map(|_| ()).unwrap_err();
            assert!(defects[0].to_string().ends_with("the op needs f32"), "{defects:?}");
        }
    }

    #[test]
    fn a_matmul_does_no_more_than_its_op_may() {
        let (schedule, op) = linear();
        let plan = placed(schedule);
        let mut cx = first_step(&plan);
        let orientation = Orientation::TimesTransposed;
        let spec = MatmulSpec { orientation, m: 4, n: 16, k: 8, accumulate: false, scalars: None };
        let right = Matmul {
            a: cx.read(op.x).unwrap(),
            b: cx.read(op.w).unwrap(),
            out: cx.write(op.out).unwrap(),
            bias: None,
            residual: None,
            scratch: cx.scratch(op.workspace).unwrap(),
        };
        let swapped = Matmul { b: cx.read(op.x).unwrap(), out: cx.write(op.w).unwrap(), ..right };
        let said = mistake(cx.matmul(spec, swapped));
        assert_eq!(said, "matmul: out is written, and the op only reads it");
        let said = mistake(cx.matmul(MatmulSpec { accumulate: true, ..spec }, right));
        assert_eq!(said, "matmul: out is read before it is written");
        let said = mistake(cx.matmul(MatmulSpec { k: 9, ..spec }, right));
        assert_eq!(said, "a matmul reaches past the end of x");
        cx.matmul(spec, right).unwrap();
    }
}
