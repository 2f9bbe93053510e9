//! State of which every rank keeps a shard, as checkpoints see it: whole. Writing a parameter keeps
//! what belongs to this rank; reading one needs all ranks, which put their shards together.

use crate::engine::Engine;
use crate::error::TrainError;
use model::Program;
use plan::{Backend, BackendError, StepInputs, TensorId};

/// Bytes that are cleared at a time.
const CLEARED: u64 = 1 << 20;

/// Which sharded array a tensor is a part of, and its first element there.
fn sharded(program: &Program, tensor: TensorId) -> Option<(usize, u64)> {
    program.sharded.iter().enumerate().find_map(|(role, row)| {
        let index = row.gathered.iter().position(|&id| id == tensor)?;
        Some((role, row.first[index]))
    })
}

/// Writes a part of a tensor, from byte `offset` on; of a sharded one, what this rank keeps of it.
pub fn write_at(
    backend: &mut dyn Backend,
    program: &Program,
    tensor: TensorId,
    offset: u64,
    content: &[u8],
) -> Result<(), BackendError> {
    let Some((role, first)) = sharded(program, tensor) else {
        return backend.write_at(tensor, offset, content);
    };
    let root = program.sharded[role].root;
    let size = backend.plan().schedule.tensors.get(root).dtype.size();
    let (first, elements) = (first + offset / size, content.len() as u64 / size);
    for [from, to, length] in program.shard.parts(first, elements) {
        let bytes = (from * size) as usize..((from + length) * size) as usize;
        backend.write_at(root, to * size, &content[bytes])?;
    }
    Ok(())
}

/// The order in which a checkpoint needs sharded arrays, for ranks that only contribute.
pub fn attend(engine: &mut Engine) -> Result<(), TrainError> {
    let (backend, program) = engine.parts();
    for row in &program.sharded {
        backend.run(row.gather, &StepInputs::default())?;
    }
    clear(backend, program)
}

/// Puts sharded arrays together one by one, as a checkpoint asks for their tensors.
#[derive(Debug, Default)]
pub struct Gathering {
    /// The array that is together now.
    role: Option<usize>,
}

impl Gathering {
    /// Makes a tensor readable. All tensors of an array must be asked for before those of the next:
    /// the other ranks contribute each array once.
    pub fn prepare(
        &mut self,
        backend: &mut dyn Backend,
        program: &Program,
        tensor: TensorId,
    ) -> Result<(), BackendError> {
        match sharded(program, tensor) {
            Some((role, _)) if self.role != Some(role) => {
                self.role = Some(role);
                backend.run(program.sharded[role].gather, &StepInputs::default())
            }
            _ => Ok(()),
        }
    }
}

/// Clears the array of gradients, in which shards were put together.
pub fn clear(backend: &mut dyn Backend, program: &Program) -> Result<(), TrainError> {
    match program.sharded.is_empty() {
        true => Ok(()),
        false => clear_gradients(backend, program),
    }
}

/// Clears the array of gradients, through which something else has travelled.
pub fn clear_gradients(backend: &mut dyn Backend, program: &Program) -> Result<(), TrainError> {
    let Some(gradients) = program.gradients else { return Ok(()) };
    let bytes = backend.plan().schedule.tensors.bytes(gradients).get();
    let zeros = vec![0; CLEARED.min(bytes) as usize];
    let mut offset = 0;
    while offset < bytes {
        let length = CLEARED.min(bytes - offset);
        backend.write_at(gradients, offset, &zeros[..length as usize])?;
        offset += length;
    }
    Ok(())
}
