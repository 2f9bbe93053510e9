//! What happens before the first step: loads code, chooses matmul algorithms, runs everything once
//! so that the driver makes all of its allocations, and turns locations into addresses.

use crate::autotune::{PATIENCE, TimingRoom};
use crate::context::{Arguments, DriverContext};
use crate::cublaslt::{Algorithm, Matmul, MatmulShape, Operands};
use crate::device::Gpu;
use crate::error::CudaError;
use crate::executor::{Bound, CudaOptions, DeviceArena, GRANULE, LoadError};
use crate::lowering::{Location, Lowered, Work};
use crate::matmul_cache::{MatmulCache, TimedShape};
use crate::memory::DeviceMemory;
use crate::module::Module;
use crate::signature::Argument;
use crate::transport::Travel;
use plan::gpu_scratch::MATMULS;
use plan::{Lane, Phase, Plan};
use std::sync::Arc;

pub(crate) fn load_modules(gpu: &Gpu, lowered: &Lowered) -> Result<Vec<Module>, LoadError> {
    let cubins = gpu.cache.get_all(&gpu.compiler, &lowered.modules, gpu.info().sm)?;
    let load = |cubin: &Vec<u8>| Module::new(&gpu.context, cubin);
    Ok(cubins.iter().map(load).collect::<Result<_, _>>()?)
}

/// Makes every matmul of a plan. Its algorithm is that of the checkpoint, else that of the cache,
/// else the fastest of the heuristic's candidates, which are timed now. Matmuls that are not worth
/// timing, and all if `autotune` is off, use the heuristic's favourite.
pub(crate) fn load_matmuls(
    gpu: &Gpu,
    plan: &Plan,
    lowered: &Lowered,
    options: &CudaOptions,
) -> Result<Vec<Matmul>, LoadError> {
    let workspace = matmul_workspace(plan, lowered);
    let worth_timing = worth_timing(plan, lowered);
    let mut cache = options.autotune.then(|| gpu.matmul_cache()).flatten();
    let (mut matmuls, mut open) = (Vec::new(), Vec::new());
    for (index, shape) in lowered.matmuls.iter().enumerate() {
        let mut matmul = Matmul::new(&gpu.matmuls, *shape, workspace)?;
        let known = options.chosen(shape).filter(|algorithm| matmul.accepts(algorithm));
        let known = known.or_else(|| kept(cache.as_ref(), &matmul));
        match known {
            Some(algorithm) => matmul.choose(algorithm),
            None if options.autotune && worth_timing[index] > 0.0 => open.push(index),
            None => matmul.choose(matmul.candidates()?[0]),
        }
        matmuls.push(matmul);
    }
    if !open.is_empty() {
        open.sort_by(|&one, &other| worth_timing[other].total_cmp(&worth_timing[one]));
        time_matmuls(gpu, &mut matmuls, open, cache.as_mut(), options)?;
    }
    Ok(matmuls)
}

/// How many matmuls of a plan would be timed before it runs.
pub(crate) fn matmuls_to_time(
    gpu: &Gpu,
    plan: &Plan,
    lowered: &Lowered,
    options: &CudaOptions,
) -> usize {
    if !options.autotune {
        return 0;
    }
    let (workspace, cache) = (matmul_workspace(plan, lowered), gpu.matmul_cache());
    let shapes = lowered.matmuls.iter().zip(worth_timing(plan, lowered));
    let is_open = |shape: &MatmulShape| {
        let cached = cache.as_ref().and_then(|cache| cache.find(&cache_key(shape, workspace)));
        options.chosen(shape).or(cached).is_none()
    };
    shapes.filter(|(shape, work)| *work > 0.0 && is_open(shape)).count()
}

/// Work of each matmul in training and evaluation. Generating text is not worth timing: a sample
/// takes less time than that.
fn worth_timing(plan: &Plan, lowered: &Lowered) -> Vec<f64> {
    let mut work = vec![0.0; lowered.matmuls.len()];
    for (segment, steps) in plan.schedule.segments.iter().zip(&lowered.segments) {
        if segment.phase == Phase::Generate {
            continue;
        }
        for launched in steps.iter().flatten() {
            if let Work::Matmul(launch) = launched {
                work[launch.matmul] += lowered.matmuls[launch.matmul].flops();
            }
        }
    }
    work
}

/// A shape in the cache: an algorithm depends on the workspace too.
fn cache_key(shape: &MatmulShape, workspace: u64) -> String {
    format!("{} w{workspace}", shape.key())
}

/// The cached algorithm of a matmul, if the library still accepts it.
fn kept(cache: Option<&MatmulCache>, matmul: &Matmul) -> Option<Algorithm> {
    let found = cache?.find(&cache_key(matmul.shape(), matmul.workspace()));
    found.filter(|algorithm| matmul.accepts(algorithm))
}

/// Times matmuls, the most work first, and adds them to the cache. One process does so at a time:
/// the next one finds what it needs in the cache.
fn time_matmuls(
    gpu: &Gpu,
    matmuls: &mut [Matmul],
    open: Vec<usize>,
    mut cache: Option<&mut MatmulCache>,
    options: &CudaOptions,
) -> Result<(), LoadError> {
    let _lock = cache.as_deref_mut().and_then(|cache| {
        let lock = cache.lock();
        cache.refresh();
        lock
    });
    let mut timed = Vec::new();
    let mut room = None;
    for &index in &open {
        let matmul = &mut matmuls[index];
        if let Some(algorithm) = kept(cache.as_deref(), matmul) {
            matmul.choose(algorithm);
            continue;
        }
        if room.is_none() {
            room = Some(timing_room(gpu, &open, matmuls, options)?);
        }
        let matmul = &mut matmuls[index];
        match &room {
            Some(Some(timing)) => match timing.time(matmul) {
                Ok(winner) => timed.extend(winner.map(|winner| TimedShape {
                    key: cache_key(matmul.shape(), matmul.workspace()),
                    algorithm: winner.algorithm,
                    favourite: winner.favourite * 1e6,
                    fastest: winner.fastest * 1e6,
                })),
                // Timing only saves time. If the GPU itself has failed, the next call says so.
                Err(_) => {
                    matmul.choose(matmul.candidates()?[0]);
                    room = Some(None);
                }
            },
            _ => matmul.choose(matmul.candidates()?[0]),
        }
    }
    if let Some(cache) = cache.filter(|_| !timed.is_empty()) {
        cache.add(timed);
    }
    Ok(())
}

/// Memory for timing, where the arena will be; none if the budget or the GPU has no room for it.
fn timing_room(
    gpu: &Gpu,
    open: &[usize],
    matmuls: &[Matmul],
    options: &CudaOptions,
) -> Result<Option<TimingRoom>, LoadError> {
    let workspace = matmuls.iter().map(Matmul::workspace).max().unwrap_or(0);
    let bytes = TimingRoom::bytes(open.iter().map(|&index| matmuls[index].shape()), workspace);
    let held = gpu.held_bytes()?;
    let free = gpu.context.memory()?.0;
    let budget = options.budget.unwrap_or(u64::MAX);
    if bytes > free || held.saturating_add(bytes.next_multiple_of(GRANULE)) > budget {
        return Ok(None);
    }
    Ok(Some(TimingRoom::new(&gpu.context, bytes, PATIENCE)?))
}

/// Bytes of workspace that every matmul may use. Its step may have more for other kernels, but the
/// choice of an algorithm must not depend on what else is in the plan.
fn matmul_workspace(plan: &Plan, lowered: &Lowered) -> u64 {
    let steps = plan.schedule.segments.iter().flat_map(|segment| &segment.steps);
    let has_matmul = |work: &Vec<Work>| work.iter().any(|work| matches!(work, Work::Matmul(_)));
    let with_matmuls = steps.zip(lowered.segments.iter().flatten()).filter(|(_, w)| has_matmul(w));
    let bytes = |tensor| plan.schedule.tensors.bytes(tensor).get();
    let room = with_matmuls.map(|(step, _)| step.op.workspace().map_or(0, bytes)).min();
    room.unwrap_or(0).min(MATMULS)
}

/// Runs every kernel once without work, and every matmul once on memory that is freed afterwards,
/// so that the driver loads now what it loads at first use.
pub(crate) fn run_once(
    context: &Arc<DriverContext>,
    lowered: &Lowered,
    modules: &[Module],
    matmuls: &[Matmul],
    control: u64,
) -> Result<(), LoadError> {
    let mut seen = Vec::new();
    for work in lowered.segments.iter().flatten().flatten() {
        let Work::Kernel(kernel) = work else { continue };
        let entry = kernel.signature.entry;
        if seen.contains(&(kernel.module, entry)) {
            continue;
        }
        seen.push((kernel.module, entry));
        let function = modules[kernel.module].function(entry, kernel.shared)?;
        let nothing = kernel.signature.without_work(&kernel.arguments);
        let extent = [1, kernel.block, kernel.shared];
        // SAFETY: the parameter that counts the work is 0: the kernel follows no pointer.
        unsafe { context.launch(Lane::Compute, function, extent, &nothing) }?;
    }
    let room = matmuls.iter().map(|matmul| matmul.shape().largest_operand()).max().unwrap_or(0);
    let workspace = matmuls.iter().map(Matmul::workspace).max().unwrap_or(0);
    let scratch = DeviceMemory::new(context, room + workspace + GRANULE)?;
    let (start, behind) = (scratch.address(), scratch.address() + room.next_multiple_of(256));
    for matmul in matmuls {
        let bias = matmul.shape().bias.then_some(start);
        let residual = matmul.shape().residual.then_some(start);
        let [a, b, out] = [start; 3];
        let operands = Operands { a, b, out, bias, residual, workspace: behind, scalars: control };
        // SAFETY: each operand alone fits the scratch; that they share bytes only spoils results
        // that nobody reads.
        unsafe { matmul.launch(&operands) }?;
    }
    context.synchronize()?;
    Ok(())
}

/// What travels between ranks in any segment.
pub(crate) fn travels(lowered: &Lowered) -> impl Iterator<Item = Travel<Location>> {
    lowered.segments.iter().flatten().flatten().filter_map(|work| match work {
        Work::Travel(travel) => Some(travel.clone()),
        Work::Kernel(_) | Work::Matmul(_) | Work::Copy { .. } | Work::Fill { .. } => None,
    })
}

/// A kernel's arguments with addresses.
fn bind_arguments(
    context: &DriverContext,
    arguments: &[Argument],
    memory: &DeviceArena,
) -> Result<Arguments, CudaError> {
    let mut bound = Arguments::default();
    for argument in arguments {
        match *argument {
            Argument::Word(word) => bound.push(&[word]),
            Argument::At(pointer) => bound.push(&[memory.address(pointer.location)]),
            Argument::Tiles(pointer, tiles) => {
                bound.push(&tiles.at(context, memory.address(pointer.location))?);
            }
        }
    }
    Ok(bound)
}

/// Turns locations into addresses.
pub(crate) fn bind(
    context: &DriverContext,
    lowered: &Lowered,
    modules: &[Module],
    memory: &DeviceArena,
) -> Result<Vec<Vec<Vec<Bound>>>, CudaError> {
    let bind_one = |work: &Work| -> Result<Bound, CudaError> {
        Ok(match work {
            Work::Kernel(kernel) => Bound::Kernel {
                function: modules[kernel.module].function(kernel.signature.entry, kernel.shared)?,
                grid: kernel.grid,
                block: kernel.block,
                shared: kernel.shared,
                arguments: bind_arguments(context, &kernel.arguments, memory)?,
            },
            Work::Matmul(launch) => Bound::Matmul {
                matmul: launch.matmul,
                operands: Operands {
                    a: memory.address(launch.a),
                    b: memory.address(launch.b),
                    out: memory.address(launch.out),
                    bias: launch.bias.map(|bias| memory.address(bias)),
                    residual: launch.residual.map(|residual| memory.address(residual)),
                    workspace: memory.address(launch.workspace),
                    scalars: memory.address(Location::Scalars) + launch.scalars,
                },
            },
            Work::Copy { from, to, bytes } => {
                let (source, target) = (memory.address(*from), memory.address(*to));
                let bytes = *bytes as usize;
                match (from, to) {
                    (Location::Host(_), _) => {
                        Bound::Upload { to: target, from: source as *const u8, bytes }
                    }
                    (_, Location::Host(_)) => {
                        Bound::Download { to: target as *mut u8, from: source, bytes }
                    }
                    _ => Bound::Copy { to: target, from: source, bytes },
                }
            }
            Work::Fill { at, bytes } => {
                Bound::Fill { at: memory.address(*at), bytes: *bytes as usize }
            }
            Work::Travel(travel) => Bound::Travel(travel.at(|place| memory.address(place))),
        })
    };
    let bind_step = |step: &Vec<Work>| step.iter().map(bind_one).collect::<Result<Vec<_>, _>>();
    lowered
        .segments
        .iter()
        .map(|steps| steps.iter().map(bind_step).collect::<Result<Vec<_>, _>>())
        .collect()
}
