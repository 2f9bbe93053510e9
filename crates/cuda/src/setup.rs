//! What happens before the first step: loads code, chooses matmul algorithms, runs everything once
//! so that the driver makes all of its allocations, and turns locations into addresses.

use crate::context::DriverContext;
use crate::cublaslt::{Matmul, MatmulShape, Operands, algorithm_of};
use crate::device::Gpu;
use crate::error::CudaError;
use crate::executor::{Bound, CudaOptions, DeviceArena, GRANULE, LoadError};
use crate::lowering::{Location, Lowered, Work};
use crate::memory::DeviceMemory;
use crate::module::Module;
use crate::signature::Argument;
use plan::Plan;
use std::sync::Arc;

pub(crate) fn load_modules(gpu: &Gpu, lowered: &Lowered) -> Result<Vec<Module>, LoadError> {
    let cubins = gpu.cache.get_all(&gpu.compiler, &lowered.modules, gpu.info().sm)?;
    let load = |cubin: &Vec<u8>| Module::new(&gpu.context, cubin);
    Ok(cubins.iter().map(load).collect::<Result<_, _>>()?)
}

pub(crate) fn load_matmuls(
    gpu: &Gpu,
    plan: &Plan,
    lowered: &Lowered,
    options: &CudaOptions,
) -> Result<Vec<Matmul>, LoadError> {
    let workspace = matmul_workspace(plan, lowered);
    let known = |shape: &MatmulShape| {
        let key = shape.key();
        let found = options.choices.iter().find(|(name, _)| *name == key);
        found.and_then(|(_, text)| algorithm_of(text))
    };
    let mut matmuls = Vec::new();
    for shape in &lowered.matmuls {
        matmuls.push(Matmul::new(&gpu.matmuls, *shape, workspace, known(shape))?);
    }
    Ok(matmuls)
}

/// Bytes of workspace that every step with matmuls has.
fn matmul_workspace(plan: &Plan, lowered: &Lowered) -> u64 {
    let steps = plan.schedule.segments.iter().flat_map(|segment| &segment.steps);
    let has_matmul = |work: &Vec<Work>| work.iter().any(|work| matches!(work, Work::Matmul(_)));
    let with_matmuls = steps.zip(lowered.segments.iter().flatten()).filter(|(_, w)| has_matmul(w));
    let bytes = |tensor| plan.schedule.tensors.bytes(tensor).get();
    with_matmuls.map(|(step, _)| step.op.workspace().map_or(0, bytes)).min().unwrap_or(0)
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
        // SAFETY: the parameter that counts the work is 0: the kernel follows no pointer.
        unsafe { context.launch(function, 1, kernel.block, kernel.shared, &nothing) }?;
    }
    let room = matmuls.iter().map(|matmul| matmul.shape().largest_operand()).max().unwrap_or(0);
    let workspace = matmuls.iter().map(Matmul::workspace).max().unwrap_or(0);
    let scratch = DeviceMemory::new(context, room + workspace + GRANULE)?;
    let (start, behind) = (scratch.address(), scratch.address() + room.next_multiple_of(256));
    for matmul in matmuls {
        let bias = matmul.shape().bias.then_some(start);
        let operands =
            Operands { a: start, b: start, out: start, bias, workspace: behind, scalars: control };
        // SAFETY: each operand alone fits the scratch; that they share bytes only spoils results
        // that nobody reads.
        unsafe { matmul.launch(&operands) }?;
    }
    context.synchronize()?;
    Ok(())
}

/// Turns locations into addresses.
pub(crate) fn bind(
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
                arguments: kernel
                    .arguments
                    .iter()
                    .map(|argument| match *argument {
                        Argument::Word(word) => word,
                        Argument::At(pointer) => memory.address(pointer.location),
                    })
                    .collect(),
            },
            Work::Matmul(launch) => Bound::Matmul {
                matmul: launch.matmul,
                operands: Operands {
                    a: memory.address(launch.a),
                    b: memory.address(launch.b),
                    out: memory.address(launch.out),
                    bias: launch.bias.map(|bias| memory.address(bias)),
                    workspace: memory.address(launch.workspace),
                    scalars: memory.address(Location::Scalars) + launch.scalars,
                },
            },
            Work::Copy { from, to, bytes } => {
                let (source, target) = (memory.address(*from), memory.address(*to));
                let bytes = *bytes as usize;
                match from {
                    Location::Host(_) => {
                        Bound::Upload { to: target, from: source as *const u8, bytes }
                    }
                    _ => Bound::Download { to: target as *mut u8, from: source, bytes },
                }
            }
        })
    };
    let bind_step = |step: &Vec<Work>| step.iter().map(bind_one).collect::<Result<Vec<_>, _>>();
    lowered
        .segments
        .iter()
        .map(|steps| steps.iter().map(bind_step).collect::<Result<Vec<_>, _>>())
        .collect()
}
