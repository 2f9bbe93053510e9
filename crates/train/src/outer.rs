//! DiLoCo: every rank trains alone for some iterations; then the average of all changes goes
//! through an outer step with Nesterov momentum. The outer state is in host memory: the weights
//! after the last average, and this rank's shard of the momentum.

use crate::engine::Engine;
use crate::error::TrainError;
use crate::host::room;
use crate::shards::write_at;
use checkpoint::{Dtype, TensorInfo};
use model::{Piece, Program, Shard};
use plan::{Backend, BackendError, Rank, StepInputs, TensorId, half};
use spec::RunSpec;

/// What precedes a parameter's name in a checkpoint.
pub const PREFIX: &str = "outer_momentum/";

/// The outer step's constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OuterStep {
    /// Learning rate.
    pub lr: f32,
    /// Nesterov momentum.
    pub momentum: f32,
    /// Iterations between two averages.
    pub every: u64,
}

impl OuterStep {
    /// The step that the keys ask for; none unless ranks train alone.
    pub fn of(spec: &RunSpec) -> Option<OuterStep> {
        let keys = &spec.ranks;
        (keys.sync == spec::Sync::Diloco).then_some(OuterStep {
            lr: keys.outer_lr as f32,
            momentum: keys.outer_momentum as f32,
            every: keys.sync_every,
        })
    }

    /// The new weight from the one of the last average and the average now. Rate 1 and momentum 0
    /// give exactly the average.
    fn stepped(&self, start: f32, average: f32, momentum: &mut f32) -> f32 {
        let change = start - average;
        *momentum = self.momentum.mul_add(*momentum, change);
        let rest = (1.0 - self.lr).mul_add(change, average);
        (-self.lr * self.momentum).mul_add(*momentum, rest)
    }
}

/// The outer state.
pub struct Outer {
    step: OuterStep,
    rank: Rank,
    /// What this rank steps; with one rank everything.
    shard: Shard,
    /// All weights after the last average, flat.
    start: Vec<f32>,
    /// Of the shard.
    momentum: Vec<f32>,
    bytes: Vec<u8>,
}

/// A parameter in the flat arrays.
struct Place {
    weight: TensorId,
    copy: Option<TensorId>,
    gradient: TensorId,
    first: usize,
    elements: usize,
}

impl Outer {
    /// Allocates the outer state. Its weights are those that the engine has now.
    pub fn new(step: OuterStep, engine: &mut Engine) -> Result<Outer, TrainError> {
        let (backend, program) = engine.parts();
        let total = flat_elements(backend, program);
        let rank = program.sharing.rank;
        let shard = Shard::new(rank, total);
        let mut outer = Outer {
            step,
            rank,
            start: room(total, "the outer step")?,
            momentum: room(shard.elements, "the outer step")?,
            shard,
            bytes: Vec::new(),
        };
        outer.take_weights(backend, program)?;
        Ok(outer)
    }

    /// The next step starts from the engine's weights.
    pub fn restart(&mut self, engine: &mut Engine) -> Result<(), TrainError> {
        let (backend, program) = engine.parts();
        self.take_weights(backend, program)
    }

    /// Whether ranks average before this iteration.
    pub fn is_due(&self, iteration: u64) -> bool {
        iteration > 0 && iteration.is_multiple_of(self.step.every)
    }

    /// Averages the changes of all ranks, makes the outer step and gives all ranks the new weights.
    pub fn average(&mut self, engine: &mut Engine) -> Result<(), TrainError> {
        let (backend, program) = engine.parts();
        let places = places(backend, program)?;
        match program.averaging {
            Some(segments) => {
                for place in &places {
                    self.send_change(backend, place)?;
                }
                backend.run(segments.sum, &StepInputs::default())?;
                let gradients = gradients(program)?;
                for piece in self.shard.pieces.clone() {
                    self.step_piece(backend, gradients, &piece)?;
                }
                backend.run(segments.gather, &StepInputs::default())?;
                for place in &places {
                    self.receive(backend, program, place)?;
                }
                self.clear(backend, gradients)
            }
            None => places.iter().try_for_each(|place| self.step_alone(backend, program, place)),
        }
    }

    /// Writes how far a parameter has moved since the last average.
    fn send_change(&mut self, backend: &mut dyn Backend, place: &Place) -> Result<(), TrainError> {
        self.read(backend, place.weight, place.elements)?;
        let start = &self.start[place.first..place.first + place.elements];
        for (bytes, start) in self.bytes.as_chunks_mut::<4>().0.iter_mut().zip(start) {
            *bytes = (start - f32::from_le_bytes(*bytes)).to_le_bytes();
        }
        Ok(backend.write_at(place.gradient, 0, &self.bytes)?)
    }

    /// The outer step of one of this rank's pieces: from the sum of changes to the new weights.
    fn step_piece(
        &mut self,
        backend: &mut dyn Backend,
        gradients: TensorId,
        piece: &Piece,
    ) -> Result<(), TrainError> {
        let (first, at) = (piece.first as usize, piece.at as usize);
        let elements = piece.elements as usize;
        self.bytes.resize(elements * 4, 0);
        backend.read_at(gradients, piece.first * 4, &mut self.bytes)?;
        let ranks = self.rank.ranks as f32;
        let state =
            self.start[first..first + elements].iter().zip(&mut self.momentum[at..at + elements]);
        for (bytes, (start, momentum)) in self.bytes.as_chunks_mut::<4>().0.iter_mut().zip(state) {
            let average = start - f32::from_le_bytes(*bytes) / ranks;
            *bytes = self.step.stepped(*start, average, momentum).to_le_bytes();
        }
        Ok(backend.write_at(gradients, piece.first * 4, &self.bytes)?)
    }

    /// Takes over the new weights of a parameter.
    fn receive(
        &mut self,
        backend: &mut dyn Backend,
        program: &Program,
        place: &Place,
    ) -> Result<(), TrainError> {
        self.read(backend, place.gradient, place.elements)?;
        self.put(backend, program, place)
    }

    /// With one rank the average is its own weights, and nothing travels.
    fn step_alone(
        &mut self,
        backend: &mut dyn Backend,
        program: &Program,
        place: &Place,
    ) -> Result<(), TrainError> {
        self.read(backend, place.weight, place.elements)?;
        let range = place.first..place.first + place.elements;
        let state = self.start[range.clone()].iter().zip(&mut self.momentum[range]);
        for (bytes, (start, momentum)) in self.bytes.as_chunks_mut::<4>().0.iter_mut().zip(state) {
            let average = f32::from_le_bytes(*bytes);
            *bytes = self.step.stepped(*start, average, momentum).to_le_bytes();
        }
        self.put(backend, program, place)
    }

    /// Writes the bytes as the weights of a parameter, and keeps them as where the next step
    /// starts.
    fn put(
        &mut self,
        backend: &mut dyn Backend,
        program: &Program,
        place: &Place,
    ) -> Result<(), TrainError> {
        let words = self.bytes.as_chunks::<4>().0;
        let numbers: Vec<f32> = words.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        self.start[place.first..place.first + place.elements].copy_from_slice(&numbers);
        write_at(backend, program, place.weight, 0, &self.bytes)?;
        if let Some(copy) = place.copy {
            let dtype = backend.plan().schedule.tensors.get(copy).dtype;
            self.bytes.clear();
            half::encode(dtype, &numbers, &mut self.bytes);
            backend.write_at(copy, 0, &self.bytes)?;
        }
        Ok(())
    }

    fn read(
        &mut self,
        backend: &mut dyn Backend,
        tensor: TensorId,
        elements: usize,
    ) -> Result<(), TrainError> {
        self.bytes.resize(elements * 4, 0);
        Ok(backend.read(tensor, &mut self.bytes)?)
    }

    /// The next step starts from the engine's weights.
    fn take_weights(
        &mut self,
        backend: &mut dyn Backend,
        program: &Program,
    ) -> Result<(), TrainError> {
        for place in places(backend, program)? {
            self.read(backend, place.weight, place.elements)?;
            let words = self.bytes.as_chunks::<4>().0.iter();
            let start = &mut self.start[place.first..place.first + place.elements];
            start.iter_mut().zip(words).for_each(|(to, &word)| *to = f32::from_le_bytes(word));
        }
        Ok(())
    }

    fn clear(&mut self, backend: &mut dyn Backend, gradients: TensorId) -> Result<(), TrainError> {
        let bytes = backend.plan().schedule.tensors.bytes(gradients).get();
        self.bytes.clear();
        self.bytes.resize((bytes as usize).min(1 << 20), 0);
        let mut offset = 0;
        while offset < bytes {
            let length = (bytes - offset).min(self.bytes.len() as u64) as usize;
            backend.write_at(gradients, offset, &self.bytes[..length])?;
            offset += length as u64;
        }
        Ok(())
    }
}

/// The momentum in checkpoints.
impl Outer {
    /// The tensors that a checkpoint has for the outer step.
    pub fn infos(program: &Program) -> Vec<TensorInfo> {
        let rows = program.parameters.iter();
        let info = |name: &str, shape: &[u64]| {
            TensorInfo::new(format!("{PREFIX}{name}"), Dtype::F32, shape)
        };
        rows.map(|row| info(&row.param.name, row.param.shape.dims())).collect()
    }

    /// Brings the momentum of all ranks together, in the array of gradients. All ranks call it.
    pub fn gather(&mut self, engine: &mut Engine) -> Result<(), TrainError> {
        let (backend, program) = engine.parts();
        let gradients = gradients(program)?;
        for piece in self.shard.pieces.clone() {
            let at = piece.at as usize;
            self.bytes.clear();
            let momentum = &self.momentum[at..at + piece.elements as usize];
            self.bytes.extend(momentum.iter().flat_map(|number| number.to_le_bytes()));
            backend.write_at(gradients, piece.first * 4, &self.bytes)?;
        }
        if let Some(segments) = program.averaging {
            backend.run(segments.gather, &StepInputs::default())?;
        }
        Ok(())
    }

    /// Reads the momentum of a parameter after [`Outer::gather`].
    pub fn fill(engine: &mut Engine, index: usize, content: &mut [u8]) -> Result<(), BackendError> {
        let (backend, program) = engine.parts();
        match program.parameters[index].gradient {
            Some(gradient) => backend.read(gradient, content),
            None => Err(BackendError::Internal { what: "no gradients".to_string() }),
        }
    }

    /// Ends what [`Outer::gather`] began.
    pub fn gathered(&mut self, engine: &mut Engine) -> Result<(), TrainError> {
        let (backend, program) = engine.parts();
        let gradients = gradients(program)?;
        self.clear(backend, gradients)
    }

    /// Takes the momentum of a parameter from a checkpoint; of it, what is in this rank's shard.
    pub fn restore(&mut self, engine: &mut Engine, index: usize, content: &[u8]) -> bool {
        let (backend, program) = engine.parts();
        let Ok(places) = places(backend, program) else { return false };
        let Some(place) = places.get(index).filter(|place| place.elements * 4 == content.len())
        else {
            return false;
        };
        let words = content.as_chunks::<4>().0;
        for [from, to, length] in self.shard.parts(place.first as u64, place.elements as u64) {
            let (from, to, length) = (from as usize, to as usize, length as usize);
            let momentum = &mut self.momentum[to..to + length];
            for (number, &word) in momentum.iter_mut().zip(&words[from..from + length]) {
                *number = f32::from_le_bytes(word);
            }
        }
        true
    }
}

fn gradients(program: &Program) -> Result<TensorId, TrainError> {
    let missing = || BackendError::Internal { what: "an outer step without training".to_string() };
    Ok(program.gradients.ok_or_else(missing)?)
}

/// Elements of the flat arrays.
fn flat_elements(backend: &dyn Backend, program: &Program) -> u64 {
    let tensors = &backend.plan().schedule.tensors;
    program.gradients.map_or(0, |id| tensors.get(id).shape.elements())
}

/// All parameters in the flat arrays.
fn places(backend: &dyn Backend, program: &Program) -> Result<Vec<Place>, TrainError> {
    let tensors = &backend.plan().schedule.tensors;
    let place = |row: &model::ProgramParam| {
        let gradient = row.gradient?;
        Some(Place {
            weight: row.weight,
            copy: Some(row.compute).filter(|&id| id != row.weight),
            gradient,
            first: (tensors.root(gradient).1.get() / 4) as usize,
            elements: row.param.shape.elements() as usize,
        })
    };
    let found: Option<Vec<Place>> = program.parameters.iter().map(place).collect();
    let missing = || BackendError::Internal { what: "an outer step without training".to_string() };
    Ok(found.ok_or_else(missing)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_one_without_momentum_is_the_average() {
        let step = OuterStep { lr: 1.0, momentum: 0.0, every: 1 };
        for (start, average) in [(0.02f32, 1e-12f32), (1.0, 3e-20), (-0.3, 0.3), (0.0, 7.0)] {
            let mut momentum = 0.5;
            assert_eq!(step.stepped(start, average, &mut momentum).to_bits(), average.to_bits());
        }
    }

    #[test]
    fn nesterov_by_hand() {
        let step = OuterStep { lr: 0.5, momentum: 0.5, every: 1 };
        let mut momentum = 2.0;
        // change 1, momentum 0.5 x 2 + 1 = 2, weight 3 - 0.5 x (1 + 0.5 x 2) = 2
        assert_eq!(step.stepped(3.0, 2.0, &mut momentum), 2.0);
        assert_eq!(momentum, 2.0);
    }
}
