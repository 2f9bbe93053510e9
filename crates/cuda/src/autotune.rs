//! Times the algorithms that the heuristic offers for a matmul, and finds the fastest. A GPU at its
//! power limit slows down by a tenth within milliseconds, so candidates take turns, there and back,
//! and the last few run until it has slowed down, as it will in training. All of it is bounded in
//! time and in memory.

use crate::context::DriverContext;
use crate::cublaslt::{Algorithm, Matmul, MatmulShape, Operands};
use crate::error::CudaError;
use crate::memory::DeviceMemory;
use crate::stream::{Event, Graph};
use plan::Lane;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most time that all matmuls of a plan take together. What is left over keeps the heuristic's
/// favourite and is timed at the next start.
pub(crate) const PATIENCE: Duration = Duration::from_secs(6);

/// Rounds in which every candidate runs once, to find the finalists.
const ROUNDS: usize = 3;

/// How many of the fastest come into the last rounds, beside the heuristic's favourite.
const FINALISTS: usize = 3;

/// A candidate slower than the fastest by this factor is out.
const CLEARLY_SLOWER: f64 = 1.25;

/// Finalists run this long at a time.
const BURST: f64 = 5e-3;

/// How often each finalist runs: in order and backwards by turns, so that all are early and late.
const TURNS: usize = 4;

/// The most launches of a burst.
const MOST_LAUNCHES: f64 = 64.0;

/// The favourite stays unless another one is faster by this factor. Less is noise; and with the
/// power limit reached, a little less time at more power gains nothing.
const WORTH_IT: f64 = 1.03;

/// Operands start at multiples of this.
const ALIGNMENT: u64 = 256;

/// The winner of a shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Winner {
    pub(crate) algorithm: Algorithm,
    /// Seconds of the heuristic's favourite and of the winner.
    pub(crate) favourite: f64,
    pub(crate) fastest: f64,
}

/// Memory in which matmuls are timed: operands that do not overlap, with numbers like those of
/// training. Zeros would need less power and run faster.
pub(crate) struct TimingRoom {
    context: Arc<DriverContext>,
    memory: DeviceMemory,
    until: Instant,
}

impl TimingRoom {
    /// Bytes that timing any of these shapes takes. In a plan, the operands of a matmul and its
    /// workspace are in the arena at the same time, so this is never more than the arena.
    pub(crate) fn bytes<'a>(shapes: impl Iterator<Item = &'a MatmulShape>, workspace: u64) -> u64 {
        let each = |shape: &MatmulShape| -> u64 {
            shape.operand_bytes().iter().map(|bytes| bytes.next_multiple_of(ALIGNMENT)).sum()
        };
        ALIGNMENT + workspace.next_multiple_of(ALIGNMENT) + shapes.map(each).max().unwrap_or(0)
    }

    pub(crate) fn new(
        context: &Arc<DriverContext>,
        bytes: u64,
        patience: Duration,
    ) -> Result<TimingRoom, CudaError> {
        let memory = DeviceMemory::new(context, bytes)?;
        let numbers = numbers();
        for at in (0..bytes).step_by(numbers.len()) {
            let piece = numbers.len().min((bytes - at) as usize);
            // SAFETY: the range is inside the memory; the source is pageable.
            unsafe {
                context.upload(Lane::Compute, memory.address() + at, numbers.as_ptr(), piece)
            }?;
        }
        // alpha and beta on the device.
        let scalars = [1f32.to_le_bytes(), 1f32.to_le_bytes()].concat();
        // SAFETY: as above.
        unsafe {
            context.upload(Lane::Compute, memory.address(), scalars.as_ptr(), scalars.len())
        }?;
        context.synchronize()?;
        let until = Instant::now() + patience;
        Ok(TimingRoom { context: context.clone(), memory, until })
    }

    /// Times the candidates of a matmul and lets it use the fastest. None if the time is up: then
    /// it uses the heuristic's favourite.
    pub(crate) fn time(&self, matmul: &mut Matmul) -> Result<Option<Winner>, CudaError> {
        let candidates = matmul.candidates()?;
        matmul.choose(candidates[0]);
        if self.is_over() {
            return Ok(None);
        }
        if candidates.len() == 1 {
            let algorithm = candidates[0];
            return Ok(Some(Winner { algorithm, favourite: 0.0, fastest: 0.0 }));
        }
        let winner = self.fastest(matmul, &candidates)?;
        matmul.choose(winner.map_or(candidates[0], |winner| winner.algorithm));
        Ok(winner)
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    fn fastest(
        &self,
        matmul: &mut Matmul,
        candidates: &[Algorithm],
    ) -> Result<Option<Winner>, CudaError> {
        let operands = self.operands(matmul);
        // The first launch also loads code. An algorithm that does not start is no candidate.
        let mut alive: Vec<(usize, Vec<f64>)> = Vec::new();
        for (index, algorithm) in candidates.iter().enumerate() {
            matmul.choose(*algorithm);
            if launch(matmul, &operands).is_ok() {
                alive.push((index, Vec::new()));
            }
        }
        self.context.synchronize()?;
        for round in 0..ROUNDS {
            self.round(matmul, candidates, &mut alive, round % 2 == 1)?;
            drop_slow(&mut alive);
            if self.is_over() {
                break;
            }
        }
        alive.sort_by(|one, other| middle(&one.1).total_cmp(&middle(&other.1)));
        if alive.is_empty() {
            return Ok(None);
        }
        // If the heuristic's favourite does not start, or is clearly slower, the fastest takes its
        // place.
        let favourite = alive.iter().position(|(index, _)| *index == 0).unwrap_or(0);
        let favourite = alive.remove(favourite);
        alive.truncate(FINALISTS);
        alive.insert(0, favourite);
        // Out of time: the rounds decide, so that a slow GPU too times each shape only once.
        let seconds = match self.is_over() {
            true => alive.iter().map(|(_, seconds)| middle(seconds)).collect(),
            false => self.bursts(matmul, candidates, &alive)?,
        };
        let best = (0..seconds.len()).min_by(|&a, &b| seconds[a].total_cmp(&seconds[b]));
        let best = best.filter(|&best| seconds[0] > seconds[best] * WORTH_IT).unwrap_or(0);
        let algorithm = candidates[alive[best].0];
        Ok(Some(Winner { algorithm, favourite: seconds[0], fastest: seconds[best] }))
    }

    /// Runs every candidate once, from the first to the last or backwards.
    fn round(
        &self,
        matmul: &mut Matmul,
        candidates: &[Algorithm],
        alive: &mut [(usize, Vec<f64>)],
        backwards: bool,
    ) -> Result<(), CudaError> {
        let operands = self.operands(matmul);
        let marks = self.marks(alive.len() + 1)?;
        let mut order: Vec<usize> = (0..alive.len()).collect();
        if backwards {
            order.reverse();
        }
        marks[0].record()?;
        for (&at, mark) in order.iter().zip(&marks[1..]) {
            matmul.choose(candidates[alive[at].0]);
            launch(matmul, &operands)?;
            mark.record()?;
        }
        self.context.synchronize()?;
        for (&at, pair) in order.iter().zip(marks.windows(2)) {
            alive[at].1.push(pair[1].seconds_since(&pair[0])?);
        }
        Ok(())
    }

    /// Seconds of each finalist, in bursts by turns.
    fn bursts(
        &self,
        matmul: &mut Matmul,
        candidates: &[Algorithm],
        finalists: &[(usize, Vec<f64>)],
    ) -> Result<Vec<f64>, CudaError> {
        let operands = self.operands(matmul);
        let fastest = finalists.iter().map(|(_, seconds)| middle(seconds)).fold(f64::MAX, f64::min);
        let launches = (BURST / fastest.max(1e-9)).clamp(1.0, MOST_LAUNCHES).ceil();
        let mut graphs = Vec::new();
        for (index, _) in finalists {
            matmul.choose(candidates[*index]);
            graphs.push(Graph::capture(&self.context, || {
                (0..launches as usize).try_for_each(|_| launch(matmul, &operands))
            })?);
        }
        let order = turns(finalists.len());
        let marks = self.marks(order.len() + 1)?;
        // Not timed: the GPU's clock settles.
        graphs[0].launch()?;
        marks[0].record()?;
        for (&at, mark) in order.iter().zip(&marks[1..]) {
            graphs[at].launch()?;
            mark.record()?;
        }
        self.context.synchronize()?;
        let mut seconds = vec![0.0; finalists.len()];
        for (&at, pair) in order.iter().zip(marks.windows(2)) {
            seconds[at] += pair[1].seconds_since(&pair[0])? / (launches * TURNS as f64);
        }
        Ok(seconds)
    }

    fn marks(&self, count: usize) -> Result<Vec<Event>, CudaError> {
        (0..count).map(|_| Event::new(&self.context, true)).collect()
    }

    /// Operands one behind another; the scalars come first, the workspace last.
    fn operands(&self, matmul: &Matmul) -> Operands {
        let start = self.memory.address();
        let mut at = start + ALIGNMENT;
        let addresses = matmul.shape().operand_bytes().map(|bytes| {
            let here = at;
            at += bytes.next_multiple_of(ALIGNMENT);
            here
        });
        let [a, b, out, bias, residual] = addresses;
        let MatmulShape { bias: has_bias, residual: has_residual, .. } = *matmul.shape();
        let (bias, residual) = (has_bias.then_some(bias), has_residual.then_some(residual));
        Operands { a, b, out, bias, residual, workspace: at, scalars: start }
    }
}

fn launch(matmul: &Matmul, operands: &Operands) -> Result<(), CudaError> {
    // SAFETY: the room was made for operands of these sizes and the matmul's workspace.
    unsafe { matmul.launch(operands) }
}

/// The order in which `count` finalists run: there and back, `TURNS` times in all.
fn turns(count: usize) -> Vec<usize> {
    let turn = |turn: usize| {
        let place = move |at: usize| if turn.is_multiple_of(2) { at } else { count - 1 - at };
        (0..count).map(place)
    };
    (0..TURNS).flat_map(turn).collect()
}

/// Drops candidates that are clearly slower than the fastest; never the favourite.
fn drop_slow(alive: &mut Vec<(usize, Vec<f64>)>) {
    let fastest = alive.iter().map(|(_, seconds)| middle(seconds)).fold(f64::MAX, f64::min);
    alive.retain(|(index, seconds)| *index == 0 || middle(seconds) <= fastest * CLEARLY_SLOWER);
}

/// The median, of two the smaller.
fn middle(seconds: &[f64]) -> f64 {
    let mut sorted = seconds.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::MAX)
}

/// Bytes that are numbers of ordinary size in all three formats: random signs and digits, absolute
/// values between 2^-7 and 2.
fn numbers() -> Vec<u8> {
    const BYTES: usize = 8 << 20;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut numbers = Vec::with_capacity(BYTES);
    while numbers.len() < BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let words = state & 0x83ff_83ff_83ff_83ff | 0x3c00_3c00_3c00_3c00;
        numbers.extend(words.to_le_bytes());
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cublaslt::Orientation;
    use plan::Dtype;

    #[test]
    fn slow_candidates_are_dropped_and_the_favourite_is_not() {
        let mut alive = vec![
            (0, vec![9.0, 9.0, 9.0]),
            (1, vec![1.0, 5.0, 1.0]),
            (2, vec![1.2, 1.2, 1.2]),
            (3, vec![1.0, 1.3, 1.3]),
        ];
        drop_slow(&mut alive);
        assert_eq!(alive.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(middle(&[3.0, 1.0]), 1.0);
        assert_eq!(turns(3), [0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0]);
    }

    #[test]
    fn the_numbers_are_ordinary_in_every_format() {
        let bytes = numbers();
        let (words, rest) = bytes.as_chunks::<4>();
        assert!(rest.is_empty());
        let range = (1.0 / 128.0)..2.0;
        let (mut negative, mut sum) = (0, 0.0);
        for word in words {
            let single = f32::from_le_bytes(*word);
            assert!(range.contains(&single.abs()), "{single}");
            negative += u32::from(single < 0.0);
            let half = u16::from_le_bytes([word[0], word[1]]);
            assert_eq!(half >> 10 & 0x1f, 15, "float16: from 1 to 2");
            sum += f64::from(single);
        }
        let count = words.len() as f64;
        assert!((f64::from(negative) / count - 0.5).abs() < 0.01, "{negative} of {count}");
        assert!((sum / count).abs() < 0.01, "{sum}");
    }

    #[test]
    fn the_room_holds_all_operands_and_the_workspace() {
        let shape = |m, n, k, bias, residual: bool| MatmulShape {
            orientation: Orientation::Plain,
            m,
            n,
            k,
            inputs: Dtype::Bf16,
            output: Dtype::F32,
            bias,
            accumulate: !residual,
            residual,
            device_scalars: false,
            alignment: 16,
            tf32: false,
        };
        let [small, large] = [shape(3, 5, 7, true, false), shape(100, 10, 10, false, false)];
        let one = 256 * 4;
        let other = 2048 + 256 + 4096;
        assert_eq!(TimingRoom::bytes([small].iter(), 1000), 256 + 1024 + one);
        assert_eq!(TimingRoom::bytes([small, large].iter(), 0), 256 + other);
        let with_residual = shape(100, 10, 10, false, true);
        assert_eq!(TimingRoom::bytes([with_residual].iter(), 0), 256 + other + 4096);
    }
}
