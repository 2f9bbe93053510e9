//! The only place where a plan's offsets become memory. All memory is allocated here, once. A step
//! gets slices of its own operands and of nothing else.

use crate::system_memory::available_bytes;
use plan::ops::{Access, Operand};
use plan::{
    ALIGNMENT, BackendError, Bytes, Dtype, HostAccess, Io, Phase, Plan, Scope, SegmentId, TensorId,
};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;

/// How tensors get their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MemoryMode {
    /// One arena, with the plan's offsets.
    #[default]
    Arena,
    /// A separate allocation for every tensor. Results must be the same as with the arena.
    Separate,
}

/// The smallest page size of the platforms that we run on.
const PAGE: usize = 4096;

/// Zeroed memory at an aligned address.
struct Block {
    start: *mut u8,
    layout: Layout,
}

impl Block {
    fn new(size: Bytes) -> Result<Block, BackendError> {
        let refused = BackendError::OutOfMemory { wanted: size };
        // The system promises more memory than it has, so ask first what it really has.
        if available_bytes().is_some_and(|available| size.get() > available) {
            return Err(refused);
        }
        let bytes = usize::try_from(size.get().max(1)).map_err(|_| refused.clone())?;
        let layout =
            Layout::from_size_align(bytes, ALIGNMENT as usize).map_err(|_| refused.clone())?;
        // SAFETY: the layout has a size of at least 1.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return Err(refused);
        }
        // Touch every page now, so that missing memory shows before the run and not during it.
        for page in (0..bytes).step_by(PAGE) {
            // SAFETY: `page` is inside the block. Volatile, or the compiler drops the store.
            unsafe { start.add(page).write_volatile(0) };
        }
        Ok(Block { start, layout })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with this layout and is freed once.
        unsafe { dealloc(self.start, self.layout) }
    }
}

/// A tensor's bytes while one segment runs.
#[derive(Clone, Copy)]
struct Region {
    start: *mut u8,
    bytes: usize,
    dtype: Dtype,
}

/// An operand with its bytes.
#[derive(Clone, Copy)]
struct Bound {
    tensor: TensorId,
    region: Region,
    access: Access,
}

/// All memory of a backend, and where each step's operands are in it.
pub(crate) struct Memory {
    blocks: Vec<Block>,
    bytes: Bytes,
    /// What the host may do now.
    access: HostAccess,
    /// By tensor: where it is, for tensors that the host can access.
    host: Vec<Option<Region>>,
    /// Tensors that each phase keeps between its segments.
    kept: Vec<(Phase, Region)>,
    /// By segment, by step.
    steps: Vec<Vec<Vec<Bound>>>,
    /// By segment, by step: what poison mode fills with NaN after the step.
    dying: Vec<Vec<Vec<Region>>>,
}

impl Memory {
    /// Allocates everything that a verified plan needs.
    pub(crate) fn new(plan: &Plan, mode: MemoryMode) -> Result<Memory, BackendError> {
        let mut memory = Memory {
            blocks: Vec::new(),
            bytes: Bytes::ZERO,
            access: HostAccess::new(plan),
            host: vec![None; plan.schedule.tensors.len()],
            kept: Vec::new(),
            steps: Vec::new(),
            dying: Vec::new(),
        };
        let mut owners: Vec<Option<*mut u8>> = vec![None; plan.schedule.tensors.len()];
        if mode == MemoryMode::Arena {
            memory.add_block(plan.arena_bytes)?;
            if plan.host_bytes > Bytes::ZERO {
                memory.add_block(plan.host_bytes)?;
            }
        }
        for segment in plan.schedule.segment_ids() {
            memory.bind_segment(plan, segment, mode, &mut owners)?;
        }
        Ok(memory)
    }

    /// Bytes allocated.
    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes
    }

    fn add_block(&mut self, size: Bytes) -> Result<*mut u8, BackendError> {
        let block = Block::new(size)?;
        let start = block.start;
        let total = self.bytes.plus(size);
        self.bytes = total.ok_or(BackendError::OutOfMemory { wanted: size })?;
        self.blocks.push(block);
        Ok(start)
    }

    fn bind_segment(
        &mut self,
        plan: &Plan,
        segment: SegmentId,
        mode: MemoryMode,
        owners: &mut [Option<*mut u8>],
    ) -> Result<(), BackendError> {
        for place in &plan.layout(segment).placements {
            let owner = &mut owners[place.tensor.index()];
            *owner = Some(match (mode, *owner) {
                (MemoryMode::Separate, Some(start)) => start,
                (MemoryMode::Separate, None) => self.add_block(place.size)?,
                (MemoryMode::Arena, _) => {
                    let offset = place.offset.get() as usize;
                    let (block, offset) = match plan.is_on_host(place.tensor) {
                        false => (0, offset),
                        true => (1, offset - plan.arena_bytes.get() as usize),
                    };
                    // SAFETY: `verify` has shown that every placement ends inside the arena, which
                    // is the first block, or behind it in the host's, which is the second.
                    unsafe { self.blocks[block].start.add(offset) }
                }
            });
        }
        let regions = Regions { plan, segment, owners };
        for id in plan.schedule.tensors.ids().filter(|&id| regions.host_sees(id)) {
            self.host[id.index()] = regions.of(id);
        }
        for place in &plan.layout(segment).placements {
            let scope = plan.schedule.tensors.get(place.tensor).scope;
            if let (Scope::Phase(phase), Some(region)) = (scope, regions.of(place.tensor)) {
                self.kept.push((phase, region)); // repeated for each segment, which is harmless
            }
        }
        self.steps.push(regions.bound_steps()?);
        self.dying.push(regions.dying());
        Ok(())
    }

    /// The operands of one step, for as long as the step runs.
    pub(crate) fn step(&mut self, segment: SegmentId, step: usize) -> StepMemory<'_> {
        StepMemory { bound: &self.steps[segment.index()][step], taken: Cell::new(0) }
    }

    /// Number of steps of a segment.
    pub(crate) fn steps(&self, segment: SegmentId) -> usize {
        self.steps[segment.index()].len()
    }

    /// Poison mode: fills everything that this step must overwrite with NaN, scratch included.
    pub(crate) fn poison_written(&mut self, segment: SegmentId, step: usize) {
        let written = |bound: &&Bound| bound.access == Access::Write;
        for bound in self.steps[segment.index()][step].iter().filter(written) {
            bound.region.poison();
        }
    }

    /// Poison mode: fills everything whose last use was this step with NaN.
    pub(crate) fn poison_dying(&mut self, segment: SegmentId, step: usize) {
        for region in &self.dying[segment.index()][step] {
            region.poison();
        }
    }

    /// Copies host bytes into a part of a tensor.
    pub(crate) fn write_at(
        &mut self,
        tensor: TensorId,
        offset: u64,
        content: &[u8],
    ) -> Result<(), BackendError> {
        let entered = self.access.write(tensor, offset, content.len())?;
        self.poison_kept(entered);
        let start = self.part(tensor, offset)?;
        // SAFETY: `part` lies in a block of ours and has this size, and `&mut self` excludes any
        // other use of it; `content` is borrowed from elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), start, content.len()) };
        Ok(())
    }

    /// Copies a part of a tensor to host bytes.
    pub(crate) fn read_at(
        &mut self,
        tensor: TensorId,
        offset: u64,
        content: &mut [u8],
    ) -> Result<(), BackendError> {
        self.access.read(tensor, offset, content.len())?;
        let start = self.part(tensor, offset)?;
        // SAFETY: as in `write_at`, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(start, content.as_mut_ptr(), content.len()) };
        Ok(())
    }

    /// Where a part of a tensor starts. `access` has already checked that it lies inside the
    /// tensor.
    fn part(&self, tensor: TensorId, offset: u64) -> Result<*mut u8, BackendError> {
        let unplaced = || BackendError::BadPlan { defects: "a tensor has no placement".into() };
        let region = self.host[tensor.index()].ok_or_else(unplaced)?;
        // SAFETY: the offset is inside the region.
        Ok(unsafe { region.start.add(offset as usize) })
    }

    /// Called before a segment runs.
    pub(crate) fn begin(&mut self, segment: SegmentId, phase: Phase) -> Result<(), BackendError> {
        let entered = self.access.begin(segment, phase)?;
        self.poison_kept(entered);
        Ok(())
    }

    fn poison_kept(&mut self, entered: Option<Phase>) {
        for (_, region) in self.kept.iter().filter(|(of, _)| Some(*of) == entered) {
            region.poison();
        }
    }

    /// Called after a segment has run.
    pub(crate) fn end(&mut self, segment: SegmentId) {
        self.access.end(segment);
    }
}

// SAFETY: the pointers lead into blocks that the value owns; nobody else has them.
unsafe impl Send for Memory {}

/// Where every tensor is while one segment runs.
struct Regions<'a> {
    plan: &'a Plan,
    segment: SegmentId,
    owners: &'a [Option<*mut u8>],
}

impl Regions<'_> {
    fn of(&self, tensor: TensorId) -> Option<Region> {
        let tensors = &self.plan.schedule.tensors;
        let (root, offset) = tensors.root(tensor);
        let start = self.owners[root.index()]?;
        let (bytes, dtype) = (tensors.bytes(tensor).get() as usize, tensors.get(tensor).dtype);
        // SAFETY: a view lies inside its root (`Tensors::add` has checked it).
        Some(Region { start: unsafe { start.add(offset.get() as usize) }, bytes, dtype })
    }

    /// Whether the tensor has a placement here that the host may access.
    fn host_sees(&self, id: TensorId) -> bool {
        match self.plan.schedule.tensors.get(id).scope {
            Scope::Segment(owner) => owner == self.segment,
            Scope::Run | Scope::Host | Scope::Phase(_) => {
                self.plan.schedule.is_held(id, self.segment)
            }
        }
    }

    fn bound_steps(&self) -> Result<Vec<Vec<Bound>>, BackendError> {
        let unplaced = || BackendError::BadPlan { defects: "an operand has no placement".into() };
        let steps = &self.plan.schedule.segment(self.segment).steps;
        let bind = |operand: Operand| {
            let region = self.of(operand.tensor).ok_or_else(unplaced)?;
            Ok(Bound { tensor: operand.tensor, region, access: operand.access })
        };
        steps.iter().map(|step| step.operands().into_iter().map(bind).collect()).collect()
    }

    /// For each step, the tensors that it is the last to use, except outputs.
    fn dying(&self) -> Vec<Vec<Region>> {
        let steps = self.plan.schedule.segment(self.segment).steps.len();
        let mut dying = vec![Vec::new(); steps];
        for place in &self.plan.layout(self.segment).placements {
            let held = self.plan.schedule.is_held(place.tensor, self.segment);
            let output = self.plan.schedule.tensors.get(place.tensor).io == Io::Output;
            let list = dying.get_mut(place.live.last).filter(|_| !held && !output);
            if let (Some(list), Some(region)) = (list, self.of(place.tensor)) {
                list.push(region);
            }
        }
        dying
    }
}

impl Region {
    fn poison(&self) {
        if self.dtype.size() == 2 {
            for half in 0..self.bytes / 2 {
                // SAFETY: as below, 2-byte aligned. This is NaN in both 16-bit formats.
                unsafe { *self.start.cast::<u16>().add(half) = 0x7fc0 };
            }
            return;
        }
        for word in 0..self.bytes / 4 {
            // SAFETY: the region is ours, 4-byte aligned, and `Memory` is borrowed mutably.
            unsafe { *self.start.cast::<u32>().add(word) = f32::NAN.to_bits() };
        }
    }
}

/// The operands of one step. A kernel can take each written operand only once, so that a mutable
/// slice never shares bytes with another slice: `verify` has proved that a written operand shares
/// bytes with no other operand of its step.
pub(crate) struct StepMemory<'a> {
    bound: &'a [Bound],
    taken: Cell<u32>,
}

impl<'a> StepMemory<'a> {
    /// An operand that the step reads, as f32.
    pub(crate) fn read(&self, tensor: TensorId) -> &'a [f32] {
        let region = self.reading(tensor, Dtype::F32);
        // SAFETY: see the type; aligned to 256 bytes or, for a view, to 4.
        unsafe { std::slice::from_raw_parts(region.start.cast(), region.bytes / 4) }
    }

    /// Token ids or targets.
    pub(crate) fn read_ids(&self, tensor: TensorId) -> &'a [i32] {
        let region = self.reading(tensor, Dtype::I32);
        // SAFETY: as in `read`.
        unsafe { std::slice::from_raw_parts(region.start.cast(), region.bytes / 4) }
    }

    /// Raw words that the step reads.
    pub(crate) fn read_words(&self, tensor: TensorId) -> &'a [u32] {
        let region = self.reading(tensor, Dtype::U32);
        // SAFETY: as in `read`.
        unsafe { std::slice::from_raw_parts(region.start.cast(), region.bytes / 4) }
    }

    /// An operand that the step writes or updates. A step can take it once.
    pub(crate) fn write(&self, tensor: TensorId) -> &'a mut [f32] {
        let region = self.writing(tensor, Dtype::F32);
        // SAFETY: see the type.
        unsafe { std::slice::from_raw_parts_mut(region.start.cast(), region.bytes / 4) }
    }

    /// 16-bit numbers that the step writes or updates. A step can take them once.
    pub(crate) fn write_halves(&self, tensor: TensorId) -> &'a mut [u16] {
        let region = self.writing(tensor, Dtype::Bf16);
        // SAFETY: see the type; aligned to 256 bytes or, for a view, to 2.
        unsafe { std::slice::from_raw_parts_mut(region.start.cast(), region.bytes / 2) }
    }

    /// The bytes of two operands, one read and one written, whatever their type.
    pub(crate) fn copy(&self, from: TensorId, to: TensorId) -> (&'a [u8], &'a mut [u8]) {
        let dtype_of = |id| self.bound.iter().find(|bound| bound.tensor == id);
        let dtype = dtype_of(from).map_or(Dtype::U32, |bound| bound.region.dtype);
        let (from, to) = (self.reading(from, dtype), self.writing(to, dtype));
        // SAFETY: see the type; bytes have no alignment.
        unsafe {
            (
                std::slice::from_raw_parts(from.start, from.bytes),
                std::slice::from_raw_parts_mut(to.start, to.bytes),
            )
        }
    }

    /// The bytes of an operand that the step writes or updates, whatever its type. A step can take
    /// them once.
    pub(crate) fn write_bytes(&self, tensor: TensorId) -> &'a mut [u8] {
        let dtype = self.bound.iter().find(|bound| bound.tensor == tensor);
        let region = self.writing(tensor, dtype.map_or(Dtype::U32, |bound| bound.region.dtype));
        // SAFETY: see the type; bytes have no alignment.
        unsafe { std::slice::from_raw_parts_mut(region.start, region.bytes) }
    }

    /// The bytes of an operand that the step reads, whatever its type.
    pub(crate) fn read_bytes(&self, tensor: TensorId) -> &'a [u8] {
        let dtype = self.bound.iter().find(|bound| bound.tensor == tensor);
        let region = self.reading(tensor, dtype.map_or(Dtype::U32, |bound| bound.region.dtype));
        // SAFETY: see the type; bytes have no alignment.
        unsafe { std::slice::from_raw_parts(region.start, region.bytes) }
    }

    /// Raw words that the step updates. A step can take them once.
    pub(crate) fn write_words(&self, tensor: TensorId) -> &'a mut [u32] {
        let region = self.writing(tensor, Dtype::U32);
        // SAFETY: see the type.
        unsafe { std::slice::from_raw_parts_mut(region.start.cast(), region.bytes / 4) }
    }

    fn find(&self, tensor: TensorId, dtype: Dtype) -> (usize, &'a Bound) {
        let found = self.bound.iter().enumerate().find(|(_, bound)| bound.tensor == tensor);
        let (index, bound) = found.expect("a kernel asks only for operands of its op");
        assert!(bound.region.dtype == dtype, "`CpuBackend::new` checks the types of operands");
        (index, bound)
    }

    fn reading(&self, tensor: TensorId, dtype: Dtype) -> Region {
        let (_, bound) = self.find(tensor, dtype);
        assert!(bound.access == Access::Read, "a kernel reads what its op reads");
        bound.region
    }

    fn writing(&self, tensor: TensorId, dtype: Dtype) -> Region {
        let (index, bound) = self.find(tensor, dtype);
        assert!(bound.access != Access::Read, "a kernel writes what its op writes");
        let bit = 1u32 << index;
        assert!(self.taken.get() & bit == 0, "a kernel takes each written operand once");
        self.taken.set(self.taken.get() | bit);
        bound.region
    }
}

/// Numbers as the bytes that travel to other ranks.
pub(crate) fn bytes_of(numbers: &[f32]) -> &[u8] {
    // SAFETY: every f32 is four initialised bytes; the length is that of the same memory.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// As [`bytes_of`], to receive.
pub(crate) fn bytes_of_mut(numbers: &mut [f32]) -> &mut [u8] {
    // SAFETY: as above, and any four bytes are an f32.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

/// 16-bit numbers in memory of whole words.
pub(crate) fn halves_of_mut(numbers: &mut [f32]) -> &mut [u16] {
    // SAFETY: as above; two halves take the place and the alignment of one word.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), numbers.len() * 2) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::ops::{Gelu, GeluKind};
    use plan::{Role, ScheduleBuilder, Shape};

    #[test]
    fn poison_reaches_run_wide_tensors_that_a_step_overwrites() {
        let mut builder = ScheduleBuilder::new();
        let shape = Shape::new(&[4]).unwrap();
        let [x, out] = ["x", "out"]
            .map(|name| builder.run_tensor(name, Dtype::F32, shape, Role::Activation).unwrap());
        let mut segment = builder.segment("s", Phase::Train);
        segment.push(Gelu { x, out, kind: GeluKind::Erf }).unwrap();
        let segment = segment.finish();
        let plan = Plan::new(builder.finish()).unwrap();
        let mut memory = Memory::new(&plan, MemoryMode::Arena).unwrap();
        let (mut read_x, mut read_out) = ([1; 16], [0; 16]);
        memory.poison_written(segment, 0);
        memory.read_at(x, 0, &mut read_x).unwrap();
        memory.read_at(out, 0, &mut read_out).unwrap();
        assert_eq!(read_x, [0; 16], "what is read stays");
        let (words, _) = read_out.as_chunks::<4>();
        assert!(words.iter().all(|&word| f32::from_le_bytes(word).is_nan()));
    }
}
