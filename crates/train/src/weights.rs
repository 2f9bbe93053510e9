//! A parameter's f32 weights, wherever the device keeps them: in one tensor, in a second one beside
//! a 16-bit copy, or in two halves.

use crate::shards;
use model::{Program, ProgramParam};
use plan::{Backend, BackendError, Dtype, TensorId, half};

/// Weights that are converted at a time.
const CHUNK: usize = 1 << 18;

/// The tensors that hold a parameter's weights.
fn places(row: &ProgramParam) -> impl Iterator<Item = TensorId> {
    [Some(row.weight), Some(row.compute).filter(|&id| id != row.weight)].into_iter().flatten()
}

/// The format of a parameter's weights when they are read: f32 if they are in two halves.
pub(crate) fn format(backend: &dyn Backend, row: &ProgramParam) -> Dtype {
    match backend.plan().schedule.tensors.get(row.weight).dtype {
        Dtype::U16 => Dtype::F32,
        dtype => dtype,
    }
}

/// Writes a parameter's weights from element `first` on, everywhere. `bytes` is room to convert.
pub(crate) fn write(
    backend: &mut dyn Backend,
    program: &Program,
    row: &ProgramParam,
    (first, weights): (u64, &[f32]),
    bytes: &mut Vec<u8>,
) -> Result<(), BackendError> {
    for id in places(row) {
        let dtype = backend.plan().schedule.tensors.get(id).dtype;
        bytes.clear();
        half::encode_weights(dtype, weights, bytes);
        shards::write_at(backend, program, id, first * dtype.size(), bytes)?;
    }
    Ok(())
}

/// The same for all weights of a parameter, from bytes of f32.
pub(crate) fn write_all(
    backend: &mut dyn Backend,
    program: &Program,
    row: &ProgramParam,
    content: &[u8],
) -> Result<(), BackendError> {
    let (mut numbers, mut bytes) = (Vec::new(), Vec::new());
    for (chunk, part) in content.chunks(CHUNK * 4).enumerate() {
        half::decode(Dtype::F32, part, &mut numbers);
        write(backend, program, row, ((chunk * CHUNK) as u64, &numbers), &mut bytes)?;
    }
    Ok(())
}

/// Reads all weights of a parameter, in their [`format()`].
pub(crate) fn read(
    backend: &mut dyn Backend,
    row: &ProgramParam,
    content: &mut [u8],
) -> Result<(), BackendError> {
    if backend.plan().schedule.tensors.get(row.weight).dtype != Dtype::U16 {
        return backend.read(row.weight, content);
    }
    let mut halves = [row.compute, row.weight].map(|id| (id, Vec::new()));
    for (chunk, part) in content.chunks_mut(CHUNK * 4).enumerate() {
        for (id, bytes) in &mut halves {
            bytes.resize(part.len() / 2, 0);
            backend.read_at(*id, (chunk * CHUNK * 2) as u64, bytes)?;
        }
        let [upper, lower] = halves.each_ref().map(|(_, bytes)| bytes.as_chunks::<2>().0.iter());
        for (number, (&upper, &lower)) in
            part.as_chunks_mut::<4>().0.iter_mut().zip(upper.zip(lower))
        {
            *number = half::joined([upper, lower].map(u16::from_le_bytes)).to_le_bytes();
        }
    }
    Ok(())
}
