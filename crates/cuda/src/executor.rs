//! The executor runs a plan's launches on a stream for each lane, one by one or as captured graphs.
//! It knows only the plan. All memory is allocated in `new`, in an order that lets it measure each
//! part.

use crate::context::{Arguments, DriverContext};
use crate::cublaslt::{Algorithm, Matmul, MatmulShape, Operands, algorithm_of};
use crate::device::Gpu;
use crate::error::{CudaError, OUT_OF_MEMORY};
use crate::kernel_source::ModuleSpec;
use crate::lane_events::LaneEvents;
use crate::late_reads::LateReads;
use crate::limits::InputLimits;
use crate::lowering::{Location, LoweringOptions, location_of, lower};
use crate::memory::{DeviceMemory, PinnedMemory};
use crate::module::{Function, Module};
use crate::setup::{bind, load_matmuls, load_modules, matmuls_to_time, run_once, travels};
use crate::staging::Staging;
use crate::step::Step;
use crate::stream::{Event, Graph};
use crate::tiles::Tiles;
use crate::transport::{Transport, Travel, Wire};
use plan::{
    Backend, BackendError, Bytes, GpuScratch, HostAccess, Lane, LateRead, Phase, Plan, Proved,
    Scope, SegmentId, StepInputs, TensorId,
};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// How to run.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// Whether segments run as captured graphs.
    pub graphs: bool,
    /// Whether f32 matmuls, attention's too, may round their inputs to tf32.
    pub tf32: bool,
    /// Tile sizes of attention.
    pub tiles: Tiles,
    /// Whether attention and linear layers run on warpgroups, and operands of TF32 matmuls are
    /// transposed for them, if the plan's scratch allows for it.
    pub warpgroups: bool,
    /// The GPU's multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of device memory that the process may hold in total.
    pub budget: Option<u64>,
    /// What [`Backend::choices`] returned in an earlier run. They are used again if possible.
    pub choices: Vec<(String, String)>,
    /// Whether other matmuls use the algorithm that was fastest when timed: from the cache, or
    /// timed when the plan is loaded. If not, they use the favourite of cuBLASLt's heuristic.
    pub autotune: bool,
    /// How this rank reaches the others. Ranks load plans together: with NCCL, loading makes every
    /// call once.
    pub transport: Transport,
}

impl CudaOptions {
    /// Graphs, tf32, the GPU's own tiles, no limit, one rank; matmuls are not timed.
    pub fn new(gpu: &Gpu) -> CudaOptions {
        CudaOptions {
            graphs: true,
            tf32: true,
            tiles: gpu.tiles(),
            warpgroups: gpu.info().has_warpgroups(),
            multiprocessors: gpu.info().multiprocessors,
            budget: None,
            choices: Vec::new(),
            autotune: false,
            transport: Transport::Alone,
        }
    }

    /// Warpgroups need scratch that is proved for them.
    fn lowering(&self, plan: &Proved<GpuScratch>) -> LoweringOptions {
        let warpgroups = self.warpgroups && plan.scratch().warpgroups;
        let &CudaOptions { tf32, tiles, multiprocessors, .. } = self;
        LoweringOptions { tf32, tiles, warpgroups, multiprocessors }
    }

    /// The algorithm of an earlier run for a matmul.
    pub(crate) fn chosen(&self, shape: &MatmulShape) -> Option<Algorithm> {
        let key = shape.key();
        let (_, text) = self.choices.iter().find(|(name, _)| *name == key)?;
        algorithm_of(text)
    }
}

/// Why a plan could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The backend cannot execute it.
    Backend(BackendError),
    /// A call failed during loading; `new` turns it into one of the others.
    Cuda(CudaError),
    /// Context, code and arena together would exceed the budget. A plan that reserves
    /// `outside_arena` bytes is needed.
    OverBudget {
        /// Measured bytes that the process holds outside the arena.
        outside_arena: u64,
        /// Bytes of the arena.
        arena: u64,
        /// Bytes that the process may hold.
        budget: u64,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Backend(error) => error.fmt(f),
            LoadError::Cuda(error) => error.fmt(f),
            LoadError::OverBudget { outside_arena, arena, budget } => {
                let shown = |bytes: &u64| Bytes::new(*bytes).unwrap_or(Bytes::ZERO);
                let (outside_arena, arena, budget) =
                    (shown(outside_arena), shown(arena), shown(budget));
                write!(f, "context and code take {outside_arena} and the arena {arena}, ")?;
                write!(f, "together more than the {budget} that this run may use")
            }
        }
    }
}

impl std::error::Error for LoadError {}

impl From<BackendError> for LoadError {
    fn from(error: BackendError) -> LoadError {
        LoadError::Backend(error)
    }
}

impl From<CudaError> for LoadError {
    fn from(error: CudaError) -> LoadError {
        LoadError::Cuda(error)
    }
}

/// A failed call as a backend error.
fn failed(error: CudaError) -> BackendError {
    match error {
        CudaError::Exchange(error) => error,
        other => BackendError::Device { what: other.to_string() },
    }
}

/// Bytes that graphs may need when they are created. Part of every budget, and measured afterwards.
pub const GRAPH_RESERVE: u64 = 8 << 20;

/// The driver allocates memory in pieces of this size.
pub const GRANULE: u64 = 2 << 20;

/// A few bytes on the device for the run's inputs and the head's scalars.
const CONTROL_BYTES: u64 = 4096;
const SCALARS_AT: u64 = 256;

/// Bytes that a process holds on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Before the arena was allocated: context, code, libraries and the executor's control bytes.
    pub outside_arena: u64,
    /// With arena and graphs.
    pub total: u64,
}

/// A launch with its addresses.
pub(crate) enum Bound {
    Kernel { function: Function, grid: u32, block: u32, shared: u32, arguments: Arguments },
    Matmul { matmul: usize, operands: Operands },
    Upload { to: u64, from: *const u8, bytes: usize },
    Download { to: *mut u8, from: u64, bytes: usize },
    Copy { to: u64, from: u64, bytes: usize },
    Fill { at: u64, bytes: usize },
    Travel(Travel<u64>),
}

/// Executes a plan on a GPU.
pub struct CudaBackend {
    plan: Proved<GpuScratch>,
    access: HostAccess,
    limits: InputLimits,
    graphs: Vec<Option<Graph>>,
    /// By segment, by step.
    segments: Vec<Vec<Vec<Bound>>>,
    /// By segment.
    lanes: Vec<LaneEvents>,
    matmuls: Vec<Matmul>,
    staging: Staging,
    late_reads: LateReads,
    held: Held,
    // Behind the graphs, which NCCL wants to see gone first.
    wire: Wire,
    memory: DeviceArena,
    // Declared last, so that it is dropped after everything that uses it.
    _modules: Vec<Module>,
    context: Arc<DriverContext>,
}

// SAFETY: raw pointers in `Bound` lead into pinned memory that the value owns.
unsafe impl Send for CudaBackend {}

/// All device and host memory of a backend.
pub(crate) struct DeviceArena {
    pub(crate) arena: DeviceMemory,
    pub(crate) control: DeviceMemory,
    pub(crate) host: PinnedMemory,
}

impl DeviceArena {
    pub(crate) fn address(&self, location: Location) -> u64 {
        match location {
            Location::Arena(offset) => self.arena.address() + offset,
            Location::Host(offset) => self.host.start() as u64 + offset,
            Location::Step => self.control.address(),
            Location::Scalars => self.control.address() + SCALARS_AT,
            Location::Nowhere => 0,
        }
    }
}

impl CudaBackend {
    /// Loads all code of the plan, times matmuls that are not in the cache, runs every kernel and
    /// matmul once, measures memory, allocates the arena, captures graphs, and measures again.
    ///
    /// ```
    /// use fitgpt_cuda::{CudaBackend, CudaOptions, Gpu, LoadError};
    /// use plan::{BackendError, Plan, verify};
    ///
    /// fn load(gpu: &Gpu, plan: Plan, options: &CudaOptions) -> Result<CudaBackend, LoadError> {
    ///     let proved = verify(plan, gpu.scratch()).map_err(BackendError::from)?;
    ///     CudaBackend::new(gpu, proved, options)
    /// }
    /// ```
    ///
    /// A plan that was not proved, or that was proved for kernels with another workspace, does not
    /// compile:
    ///
    /// ```compile_fail,E0308
    /// # use fitgpt_cuda::{CudaBackend, CudaOptions, Gpu, LoadError};
    /// # use plan::Plan;
    /// fn load(gpu: &Gpu, plan: Plan, options: &CudaOptions) -> Result<CudaBackend, LoadError> {
    ///     CudaBackend::new(gpu, plan, options)
    /// }
    /// ```
    ///
    /// ```compile_fail,E0308
    /// # use fitgpt_cuda::{CudaBackend, CudaOptions, Gpu, LoadError};
    /// # use plan::{NoScratch, Plan, Proved};
    /// fn load(
    ///     gpu: &Gpu,
    ///     proved: Proved<NoScratch>,
    ///     options: &CudaOptions,
    /// ) -> Result<CudaBackend, LoadError> {
    ///     CudaBackend::new(gpu, proved, options)
    /// }
    /// ```
    pub fn new(
        gpu: &Gpu,
        plan: Proved<GpuScratch>,
        options: &CudaOptions,
    ) -> Result<CudaBackend, LoadError> {
        let wanted = plan.arena_bytes;
        CudaBackend::load(gpu, plan, options).map_err(|error| match error {
            LoadError::Cuda(CudaError::Call { code: OUT_OF_MEMORY, .. }) => {
                BackendError::OutOfMemory { wanted }.into()
            }
            LoadError::Cuda(error) => failed(error).into(),
            other => other,
        })
    }

    fn load(
        gpu: &Gpu,
        plan: Proved<GpuScratch>,
        options: &CudaOptions,
    ) -> Result<CudaBackend, LoadError> {
        let context = gpu.context.clone();
        let lowered = lower(&plan, options.lowering(&plan))?;
        let limits = InputLimits::new(&plan)?;
        let modules = load_modules(gpu, &lowered)?;
        let matmuls = load_matmuls(gpu, &plan, &lowered, options)?;
        let control = DeviceMemory::new(&context, CONTROL_BYTES)?;
        let staging = Staging::new(&context)?;
        let late_reads = LateReads::new(&context)?;
        let wire = Wire::new(&context, &options.transport, &plan)?;
        run_once(&context, &lowered, &modules, &matmuls, control.address())?;
        wire.travel_once(travels(&lowered), options.graphs)?;
        let outside_arena = gpu.held_bytes()?;
        let arena_bytes = plan.arena_bytes.get();
        let reserve = if options.graphs { GRAPH_RESERVE } else { 0 };
        let wanted = outside_arena + arena_bytes.next_multiple_of(GRANULE) + reserve;
        if let Some(budget) = options.budget.filter(|&budget| wanted > budget) {
            return Err(LoadError::OverBudget {
                outside_arena: outside_arena + reserve,
                arena: arena_bytes,
                budget,
            });
        }
        // Check first, because some drivers (WDDM) would hand out the host's memory instead.
        if arena_bytes > context.memory()?.0 {
            return Err(BackendError::OutOfMemory { wanted: plan.arena_bytes }.into());
        }
        let arena = DeviceMemory::new(&context, arena_bytes)?;
        let host = PinnedMemory::new(&context, plan.host_bytes.get())?;
        // SAFETY: the range is ours.
        unsafe { context.fill(Lane::Compute, arena.address(), 0, arena.bytes() as usize) }?;
        // SAFETY: the memory is ours and nobody reads it yet.
        unsafe { std::ptr::write_bytes(host.start(), 0, host.bytes()) };
        let memory = DeviceArena { arena, control, host };
        let segments = bind(&context, &lowered, &modules, &memory)?;
        let lanes = plan.schedule.segments.iter();
        let lanes = lanes.map(|segment| LaneEvents::new(&context, &segment.steps));
        let lanes = lanes.collect::<Result<Vec<_>, _>>()?;
        let mut backend = CudaBackend {
            access: HostAccess::new(&plan),
            limits,
            plan,
            graphs: Vec::new(),
            segments,
            lanes,
            matmuls,
            staging,
            late_reads,
            held: Held { outside_arena, total: outside_arena },
            wire,
            memory,
            _modules: modules,
            context,
        };
        backend.record_graphs(options.graphs)?;
        backend.context.synchronize()?;
        backend.held.total = gpu.held_bytes()?;
        let total = backend.held.total;
        if let Some(budget) = options.budget.filter(|&budget| total > budget) {
            let outside_arena = total.saturating_sub(arena_bytes);
            return Err(LoadError::OverBudget { outside_arena, arena: arena_bytes, budget });
        }
        Ok(backend)
    }

    /// How many files of kernels must be compiled before a plan can run.
    pub fn to_compile(
        gpu: &Gpu,
        plan: &Proved<GpuScratch>,
        options: &CudaOptions,
    ) -> Result<usize, BackendError> {
        let lowered = lower(plan, options.lowering(plan))?;
        let is_missing =
            |module: &&ModuleSpec| !gpu.cache.holds(&gpu.compiler, module, gpu.info().sm);
        Ok(lowered.modules.iter().filter(is_missing).count())
    }

    /// How many matmuls must be timed before a plan can run.
    pub fn to_time(
        gpu: &Gpu,
        plan: &Proved<GpuScratch>,
        options: &CudaOptions,
    ) -> Result<usize, BackendError> {
        let lowered = lower(plan, options.lowering(plan))?;
        Ok(matmuls_to_time(gpu, plan, &lowered, options))
    }

    /// What the process holds on the device.
    pub fn held(&self) -> Held {
        self.held
    }

    fn record_graphs(&mut self, wanted: bool) -> Result<(), CudaError> {
        for segment in self.plan.schedule.segment_ids() {
            let steps = &self.plan.schedule.segment(segment).steps;
            let graph = match wanted && !steps.iter().any(|step| self.is_late(step)) {
                true => Some(Graph::capture(&self.context, || self.launch_steps(segment))?),
                false => None,
            };
            self.graphs.push(graph);
        }
        Ok(())
    }

    /// Matmuls are on the compute lane alone, as lowering has checked.
    fn launch(&self, work: &Bound, lane: Lane) -> Result<(), CudaError> {
        match work {
            Bound::Kernel { function, grid, block, shared, arguments } => {
                // SAFETY: their types made the arguments those of the kernel's signature, and
                // lowering has checked their formats; `verify` has shown that the operands lie in
                // the arena and have the sizes of the op's rule.
                unsafe {
                    let extent = [*grid, *block, *shared];
                    self.context.launch(lane, *function, extent, arguments)
                }
            }
            // SAFETY: lowering has checked that the operands have the formats of the shape that the
            // matmul was made for and do not end before it; the workspace has its smallest size.
            Bound::Matmul { matmul, operands } => unsafe { self.matmuls[*matmul].launch(operands) },
            // SAFETY: both sides are tensors of that size, one of them in our pinned memory.
            Bound::Upload { to, from, bytes } => unsafe {
                self.context.upload(lane, *to, *from, *bytes)
            },
            // SAFETY: as above.
            Bound::Download { to, from, bytes } => unsafe {
                self.context.download(lane, *to, *from, *bytes)
            },
            // SAFETY: two tensors in the arena, of that size; `verify` has shown that they do not
            // overlap.
            Bound::Copy { to, from, bytes } => unsafe {
                self.context.copy(lane, *to, *from, *bytes)
            },
            // SAFETY: a tensor in the arena.
            Bound::Fill { at, bytes } => unsafe { self.context.fill(lane, *at, 0, *bytes) },
            // SAFETY: a window of gradients and the workspace that the op's rule asks for, or a
            // buffer of all pieces, all in the arena.
            Bound::Travel(travel) => unsafe { self.wire.travel(lane, travel) },
        }
    }

    /// Whether the host waits while a step runs.
    fn is_late(&self, step: &plan::Step) -> bool {
        step.lane == Lane::Communication && self.wire.is_staged()
    }

    /// Gives every step of a segment to its lane's stream, behind the steps that it waits for.
    fn launch_steps(&self, segment: SegmentId) -> Result<(), CudaError> {
        let lanes = &self.lanes[segment.index()];
        let steps = &self.plan.schedule.segment(segment).steps;
        lanes.fork()?;
        let mut late = 0;
        for (index, step) in steps.iter().enumerate() {
            if self.is_late(step) {
                continue;
            }
            for &wait in step.waits.iter().filter(|&&wait| self.is_late(&steps[wait])) {
                self.launch_late(segment, late..wait + 1)?;
                late = late.max(wait + 1);
            }
            self.launch_step(segment, index)?;
        }
        self.launch_late(segment, late..steps.len())?;
        lanes.join()
    }

    /// The steps of a range for which the host waits. They are launched as late as other steps
    /// permit, so that the device has work meanwhile. Their order does not change.
    fn launch_late(&self, segment: SegmentId, range: Range<usize>) -> Result<(), CudaError> {
        let steps = &self.plan.schedule.segment(segment).steps;
        let mut late = range.filter(|&index| self.is_late(&steps[index]));
        late.try_for_each(|index| self.launch_step(segment, index))
    }

    fn launch_step(&self, segment: SegmentId, index: usize) -> Result<(), CudaError> {
        let lanes = &self.lanes[segment.index()];
        let step = &self.plan.schedule.segment(segment).steps[index];
        let work = &self.segments[segment.index()][index];
        step.waits.iter().try_for_each(|&wait| lanes.wait(wait, step.lane))?;
        work.iter().try_for_each(|work| self.launch(work, step.lane))?;
        lanes.ended(index, step.lane)
    }

    /// Called before a run: uploads the run's inputs, in stream order.
    fn begin(&mut self, segment: SegmentId, inputs: &StepInputs) -> Result<(), BackendError> {
        self.limits.check_step(segment, inputs)?;
        self.wire.check().map_err(failed)?;
        self.context.enter().map_err(failed)?;
        let phase = self.plan.schedule.segment(segment).phase;
        let entered = self.access.begin(segment, phase)?;
        self.poison(entered)?;
        let step = Step::new(inputs).to_bytes();
        // SAFETY: the control memory has room for it.
        unsafe { self.staging.upload(self.memory.control.address(), &step) }.map_err(failed)
    }

    /// Fills the tensors of a phase with NaN when it is entered.
    fn poison(&mut self, entered: Option<Phase>) -> Result<(), BackendError> {
        let Some(phase) = entered else {
            return Ok(());
        };
        let tensors = &self.plan.schedule.tensors;
        let kept = |id: &TensorId| tensors.get(*id).scope == Scope::Phase(phase);
        for id in tensors.ids().filter(|id| tensors.get(*id).view.is_none() && kept(id)) {
            if let Some(Location::Arena(offset)) = self.held_location(id) {
                let (at, bytes) = (self.memory.arena.address() + offset, tensors.bytes(id).get());
                // SAFETY: a tensor of the arena.
                unsafe { self.context.fill(Lane::Compute, at, 0xff, bytes as usize) }
                    .map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Where a tensor that the host can access is.
    fn held_location(&self, tensor: TensorId) -> Option<Location> {
        let schedule = &self.plan.schedule;
        let (root, _) = schedule.tensors.root(tensor);
        let holds = |segment: &SegmentId| match schedule.tensors.get(root).scope {
            Scope::Segment(owner) => owner == *segment,
            Scope::Run | Scope::Host | Scope::Phase(_) => schedule.is_held(root, *segment),
        };
        let segment = schedule.segment_ids().find(holds)?;
        location_of(&self.plan, segment, tensor)
    }
}

impl Drop for CudaBackend {
    fn drop(&mut self) {
        self.wire.settle();
        // The device must not use the memory any more when it is freed. A lost GPU uses nothing.
        let _ = self.context.synchronize();
    }
}

impl Backend for CudaBackend {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn arena_bytes(&self) -> Bytes {
        self.plan.arena_bytes
    }

    /// The algorithm of every matmul, by its shape's key.
    fn choices(&self) -> Vec<(String, String)> {
        let choice = |matmul: &Matmul| (matmul.shape().key(), matmul.algorithm_text());
        self.matmuls.iter().map(choice).collect()
    }

    fn write_at(
        &mut self,
        tensor: TensorId,
        offset: u64,
        content: &[u8],
    ) -> Result<(), BackendError> {
        self.limits.check_ids(&self.plan, tensor, offset, content)?;
        let entered = self.access.write(tensor, offset, content.len())?;
        self.context.enter().map_err(failed)?;
        self.poison(entered)?;
        let location = self.held_location(tensor).ok_or_else(no_location)?.plus(offset);
        let address = self.memory.address(location);
        if let Location::Host(_) = location {
            self.context.synchronize().map_err(failed)?;
            // SAFETY: the range was checked to be inside the tensor, which is in our pinned
            // memory; no copy of the device is on its way.
            unsafe {
                let to = address as *mut u8;
                std::ptr::copy_nonoverlapping(content.as_ptr(), to, content.len());
            }
            return Ok(());
        }
        // SAFETY: the range was checked to be inside the tensor.
        unsafe { self.staging.upload(address, content) }.map_err(failed)
    }

    fn read_at(
        &mut self,
        tensor: TensorId,
        offset: u64,
        content: &mut [u8],
    ) -> Result<(), BackendError> {
        self.access.read(tensor, offset, content.len())?;
        self.context.enter().map_err(failed)?;
        let location = self.held_location(tensor).ok_or_else(no_location)?.plus(offset);
        let address = self.memory.address(location);
        if let Location::Host(_) = location {
            self.context.synchronize().map_err(failed)?;
            // SAFETY: as in `write_at`, the other way round.
            unsafe {
                let from = address as *const u8;
                std::ptr::copy_nonoverlapping(from, content.as_mut_ptr(), content.len());
            }
        } else {
            // SAFETY: the range was checked to be inside the tensor.
            unsafe { self.staging.download(content, address) }.map_err(failed)?;
        }
        self.wire.check().map_err(failed)
    }

    fn read_later(
        &mut self,
        tensor: TensorId,
        offset: u64,
        bytes: usize,
        late: &mut LateRead,
    ) -> Result<(), BackendError> {
        if let Some(slot) = late.slot.take() {
            self.late_reads.give_up(slot);
        }
        late.content.resize(bytes, 0);
        self.access.read(tensor, offset, bytes)?;
        self.context.enter().map_err(failed)?;
        let location = self.held_location(tensor).ok_or_else(no_location)?.plus(offset);
        if !matches!(location, Location::Host(_)) {
            let from = self.memory.address(location);
            // SAFETY: the range was checked to be inside the tensor.
            late.slot = unsafe { self.late_reads.start(from, bytes) }.map_err(failed)?;
        }
        match late.slot {
            Some(_) => Ok(()),
            None => self.read_at(tensor, offset, &mut late.content),
        }
    }

    fn arrived<'a>(&mut self, late: &'a mut LateRead) -> Result<&'a [u8], BackendError> {
        if let Some(slot) = late.slot.take() {
            self.context.enter().map_err(failed)?;
            self.late_reads.fetch(slot, &mut late.content).map_err(failed)?;
            // What was computed after other ranks were lost means nothing.
            self.wire.check().map_err(failed)?;
        }
        Ok(&late.content)
    }

    fn run(&mut self, segment: SegmentId, inputs: &StepInputs) -> Result<(), BackendError> {
        self.begin(segment, inputs)?;
        let ran = match &self.graphs[segment.index()] {
            Some(graph) => graph.launch(),
            None => self.launch_steps(segment),
        };
        ran.map_err(failed)?;
        self.access.end(segment);
        Ok(())
    }

    fn run_timed(
        &mut self,
        segment: SegmentId,
        inputs: &StepInputs,
    ) -> Result<Vec<f64>, BackendError> {
        self.begin(segment, inputs)?;
        let seconds = self.timed(segment).map_err(failed)?;
        self.access.end(segment);
        Ok(seconds)
    }
}

impl CudaBackend {
    /// Runs plain launches with an event after each step.
    fn timed(&self, segment: SegmentId) -> Result<Vec<f64>, CudaError> {
        let steps = &self.segments[segment.index()];
        let marks = (0..=steps.len())
            .map(|_| Event::new(&self.context, true))
            .collect::<Result<Vec<_>, _>>()?;
        marks[0].record()?;
        for (step, mark) in steps.iter().zip(&marks[1..]) {
            step.iter().try_for_each(|work| self.launch(work, Lane::Compute))?;
            mark.record()?;
        }
        self.context.synchronize()?;
        marks.windows(2).map(|pair| pair[1].seconds_since(&pair[0])).collect()
    }
}

fn no_location() -> BackendError {
    BackendError::BadPlan { defects: "a tensor has no placement".into() }
}
