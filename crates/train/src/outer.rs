//! DiLoCo: every rank trains alone for some iterations; then the average of all changes goes
//! through an outer step with Nesterov momentum. The outer state is in host memory: the weights
//! after the last average, and their momentum.

use crate::engine::Engine;
use crate::error::TrainError;
use crate::host::{room, words_to_floats};
use crate::shards;
use crate::weights;
use checkpoint::TensorInfo;
use model::{Program, Shard};
use plan::{Backend, BackendError, Dtype, Rank, SegmentId, StepInputs, TensorId, half};
use spec::RunSpec;
use std::ops::Range;

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
    /// What this rank averages.
    shard: Shard,
    /// The average changes of the shard.
    averages: Vec<f32>,
    /// All weights after the last average, flat; likewise their momentum.
    start: Vec<f32>,
    momentum: Vec<f32>,
    bytes: Vec<u8>,
    numbers: Vec<f32>,
}

/// A parameter in the flat arrays.
struct Place {
    /// Its row of the program's table.
    row: usize,
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
        let shard = match rank.has_others() {
            true => Shard::new(rank, total),
            false => Shard::default(),
        };
        let flat = |elements: u64| room(elements, "the outer step");
        let mut outer = Outer {
            step,
            rank,
            averages: flat(shard.elements)?,
            start: flat(total)?,
            momentum: flat(total)?,
            shard,
            bytes: Vec::new(),
            numbers: Vec::new(),
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

    /// Averages the changes of all ranks and makes the outer step, the same on all of them.
    pub fn average(&mut self, engine: &mut Engine) -> Result<(), TrainError> {
        let (backend, program) = engine.parts();
        let places = places(backend, program)?;
        let Some(segments) = program.averaging else {
            // With one rank the average is its own weights, and nothing travels.
            for place in &places {
                self.read_weights(backend, program, place)?;
                self.step_place(backend, program, place)?;
            }
            return Ok(());
        };
        for place in &places {
            self.send_change(backend, program, place)?;
        }
        backend.run(segments.sum, &StepInputs::default())?;
        let (gradients, wire) = (gradients(program)?, program.sharing.wire);
        self.exchange_averages(backend, (gradients, wire), segments.gather)?;
        for place in &places {
            self.read_average(backend, (gradients, wire), place)?;
            self.step_place(backend, program, place)?;
        }
        shards::clear_gradients(backend, program)
    }

    /// Writes how far a parameter has moved since the last average.
    fn send_change(
        &mut self,
        backend: &mut dyn Backend,
        program: &Program,
        place: &Place,
    ) -> Result<(), TrainError> {
        self.read_weights(backend, program, place)?;
        let start = &self.start[place.first..place.first + place.elements];
        let moved = start.iter().zip(&self.numbers).map(|(start, weight)| start - weight);
        self.bytes.clear();
        self.bytes.extend(moved.flat_map(f32::to_le_bytes));
        Ok(backend.write_at(place.gradient, 0, &self.bytes)?)
    }

    /// From the sums of this rank's pieces to the averages of all ranks' pieces, in 16 bits. All
    /// sums are read first: the averages are written over them.
    fn exchange_averages(
        &mut self,
        backend: &mut dyn Backend,
        (gradients, wire): (TensorId, Dtype),
        gather: SegmentId,
    ) -> Result<(), TrainError> {
        let ranks = self.rank.ranks as f32;
        for piece in &self.shard.pieces {
            self.bytes.resize(piece.elements as usize * 4, 0);
            backend.read_at(gradients, piece.first * 4, &mut self.bytes)?;
            let words = self.bytes.as_chunks::<4>().0.iter();
            let averages = &mut self.averages[piece.at as usize..];
            for (average, &word) in averages.iter_mut().zip(words) {
                *average = f32::from_le_bytes(word) / ranks;
            }
        }
        for piece in &self.shard.pieces {
            let at = piece.at as usize..(piece.at + piece.elements) as usize;
            self.bytes.clear();
            half::encode(wire, &self.averages[at], &mut self.bytes);
            backend.write_at(gradients, piece.first * wire.size(), &self.bytes)?;
        }
        Ok(backend.run(gather, &StepInputs::default())?)
    }

    /// Reads the average change of a parameter, and turns it into the average of its weights.
    fn read_average(
        &mut self,
        backend: &mut dyn Backend,
        (gradients, wire): (TensorId, Dtype),
        place: &Place,
    ) -> Result<(), TrainError> {
        self.bytes.resize(place.elements * wire.size() as usize, 0);
        backend.read_at(gradients, place.first as u64 * wire.size(), &mut self.bytes)?;
        self.numbers.clear();
        half::decode(wire, &self.bytes, &mut self.numbers);
        let start = &self.start[place.first..place.first + place.elements];
        self.numbers.iter_mut().zip(start).for_each(|(change, start)| *change = start - *change);
        Ok(())
    }

    /// The outer step of a parameter, from the average of its weights. The new weights are also
    /// where the next step starts.
    fn step_place(
        &mut self,
        backend: &mut dyn Backend,
        program: &Program,
        place: &Place,
    ) -> Result<(), TrainError> {
        let range = place.first..place.first + place.elements;
        let state = self.start[range.clone()].iter_mut().zip(&mut self.momentum[range]);
        for (number, (start, momentum)) in self.numbers.iter_mut().zip(state) {
            *number = self.step.stepped(*start, *number, momentum);
            *start = *number;
        }
        let row = &program.parameters[place.row];
        Ok(weights::write(backend, program, row, (0, &self.numbers), &mut self.bytes)?)
    }

    /// Reads the weights of a parameter.
    fn read_weights(
        &mut self,
        backend: &mut dyn Backend,
        program: &Program,
        place: &Place,
    ) -> Result<(), TrainError> {
        self.bytes.resize(place.elements * 4, 0);
        weights::read(backend, &program.parameters[place.row], &mut self.bytes)?;
        words_to_floats(&self.bytes, &mut self.numbers);
        Ok(())
    }

    fn take_weights(
        &mut self,
        backend: &mut dyn Backend,
        program: &Program,
    ) -> Result<(), TrainError> {
        for place in places(backend, program)? {
            self.read_weights(backend, program, &place)?;
            let range = place.first..place.first + place.elements;
            self.start[range].copy_from_slice(&self.numbers);
        }
        Ok(())
    }
}

/// The momentum in checkpoints. Every rank has all of it.
impl Outer {
    /// The tensors that a checkpoint has for the outer step.
    pub fn infos(program: &Program) -> Vec<TensorInfo> {
        let rows = program.parameters.iter();
        let info = |name: &str, shape: &[u64]| {
            TensorInfo::new(format!("{PREFIX}{name}"), checkpoint::Dtype::F32, shape)
        };
        rows.map(|row| info(&row.param.name, row.param.shape.dims())).collect()
    }

    /// Copies the momentum of a parameter.
    pub fn fill(
        &self,
        engine: &mut Engine,
        index: usize,
        content: &mut [u8],
    ) -> Result<(), TrainError> {
        let range = self.range(engine, index, content.len())?;
        let numbers = self.momentum[range].iter();
        for (bytes, number) in content.as_chunks_mut::<4>().0.iter_mut().zip(numbers) {
            *bytes = number.to_le_bytes();
        }
        Ok(())
    }

    /// Takes the momentum of a parameter from a checkpoint.
    pub fn restore(
        &mut self,
        engine: &mut Engine,
        index: usize,
        content: &[u8],
    ) -> Result<(), TrainError> {
        let range = self.range(engine, index, content.len())?;
        let words = content.as_chunks::<4>().0;
        for (number, &word) in self.momentum[range].iter_mut().zip(words) {
            *number = f32::from_le_bytes(word);
        }
        Ok(())
    }

    /// Where a parameter is in the flat arrays.
    fn range(
        &self,
        engine: &mut Engine,
        index: usize,
        bytes: usize,
    ) -> Result<Range<usize>, TrainError> {
        let (backend, program) = engine.parts();
        let places = places(backend, program)?;
        let place = places.get(index).filter(|place| place.elements * 4 == bytes);
        let place = place.ok_or_else(|| {
            let what = format!("{bytes} bytes for the momentum of parameter {index}");
            BackendError::Internal { what }
        })?;
        Ok(place.first..place.first + place.elements)
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
    let place = |(index, row): (usize, &model::ProgramParam)| {
        let gradient = row.gradient?;
        Some(Place {
            row: index,
            gradient,
            first: (tensors.root(gradient).1.get() / 4) as usize,
            elements: row.param.shape.elements() as usize,
        })
    };
    let found: Option<Vec<Place>> = program.parameters.iter().enumerate().map(place).collect();
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
