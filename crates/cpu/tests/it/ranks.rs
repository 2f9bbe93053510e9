//! Training on several ranks, each a thread with its own backend: the same bits as on one rank that
//! adds up the same groups, with and without shards of state, in any order of arrival.

use crate::fixture::Run;
use fitgpt_cpu::{CpuBackend, CpuOptions, CpuScratch};
use model::{
    AdamW, Dims, Draft, Gpt2, ModelSpec, OptimizerSpec, ProgramSpec, Sharing, TrainSpec, Types,
    slice_segment,
};
use plan::ops::{GeluKind, Scaling};
use plan::{Backend, BackendError, Dtype, Exchange, Plan, Rank, StepInputs, verify};
use std::rc::Rc;
use std::sync::{Arc, Barrier, Mutex};

/// Ranks in one process: what each sends lies on a table until all have read it.
struct Table {
    barrier: Barrier,
    sent: Mutex<Vec<Vec<u8>>>,
    bytes: Mutex<u64>,
}

struct Seat {
    rank: Rank,
    table: Arc<Table>,
}

impl Seat {
    fn all(ranks: usize) -> Vec<Seat> {
        let table = Arc::new(Table {
            barrier: Barrier::new(ranks),
            sent: Mutex::new(vec![Vec::new(); ranks]),
            bytes: Mutex::new(0),
        });
        (0..ranks)
            .map(|rank| Seat { rank: Rank { rank, ranks }, table: Arc::clone(&table) })
            .collect()
    }

    fn exchange(&self, content: &[u8], take: impl FnOnce(&[Vec<u8>])) {
        self.table.sent.lock().unwrap()[self.rank.rank] = content.to_vec();
        self.table.barrier.wait();
        take(&self.table.sent.lock().unwrap());
        self.table.barrier.wait();
    }

    fn count(&self, bytes: usize) {
        *self.table.bytes.lock().unwrap() += bytes as u64;
    }
}

impl Exchange for Seat {
    fn rank(&self) -> usize {
        self.rank.rank
    }

    fn ranks(&self) -> usize {
        self.rank.ranks
    }

    fn all_to_all(
        &mut self,
        send: &[u8],
        pieces: &[usize],
        received: &mut [u8],
    ) -> Result<(), BackendError> {
        let own = pieces[self.rank.rank];
        let first: usize = pieces[..self.rank.rank].iter().sum();
        self.count(send.len() - own);
        self.exchange(send, |sent| {
            for (rank, content) in sent.iter().enumerate() {
                received[rank * own..(rank + 1) * own]
                    .copy_from_slice(&content[first..first + own]);
            }
        });
        Ok(())
    }

    fn all_gather(&mut self, buffer: &mut [u8], pieces: &[usize]) -> Result<(), BackendError> {
        let first: usize = pieces[..self.rank.rank].iter().sum();
        let own = buffer[first..first + pieces[self.rank.rank]].to_vec();
        self.count(own.len() * (self.rank.ranks - 1));
        self.exchange(&own, |sent| {
            let mut at = 0;
            for (piece, content) in pieces.iter().zip(sent) {
                buffer[at..at + piece].copy_from_slice(content);
                at += piece;
            }
        });
        Ok(())
    }

    fn broadcast(&mut self, root: usize, buffer: &mut [u8]) -> Result<(), BackendError> {
        let own = buffer.to_vec();
        self.exchange(&own, |sent| buffer.copy_from_slice(&sent[root]));
        Ok(())
    }
}

/// A model of several norm blocks, so that every rank has something to update.
const DIMS: Dims =
    Dims { n_layer: 3, n_head: 2, n_embd: 96, block_size: 16, vocab_size: 300, bias: true };
const SEQUENCES: u64 = 12;
const ITERATIONS: u64 = 4;

#[derive(Clone, Copy)]
struct Setting {
    groups: u64,
    zero: bool,
    moments: Dtype,
    wire: Dtype,
    dropout: f32,
}

const PLAIN: Setting =
    Setting { groups: 6, zero: true, moments: Dtype::F32, wire: Dtype::F32, dropout: 0.0 };

fn spec(rank: Rank, setting: Setting) -> ProgramSpec {
    let group = SEQUENCES / setting.groups;
    let slices = if group > 1 { vec![1; group as usize] } else { vec![1] };
    let Setting { groups, zero, wire, .. } = setting;
    let train = TrainSpec {
        slices,
        positions: DIMS.block_size,
        head_chunk: 256,
        loss_rows: SEQUENCES,
        levels: Vec::new(),
        optimizer: OptimizerSpec {
            rule: AdamW { moments: setting.moments, ..AdamW::NANOGPT }.into(),
            scaling: Scaling::Off,
            offload: None,
        },
        sharing: Sharing { rank, groups, zero, wire, averages: false },
    };
    let model = ModelSpec {
        dims: DIMS,
        dropout: setting.dropout,
        architecture: Gpt2 { gelu: GeluKind::Erf }.into(),
        types: Types::F32,
    };
    ProgramSpec { model, train: Some(train), eval: None, generate: None }
}

/// The weights and row losses after some iterations, and the bytes that the plan says this rank
/// sends in one.
struct Trained {
    weights: Vec<Vec<u8>>,
    norm: Vec<u8>,
    losses: Vec<f32>,
    wire_bytes: u64,
}

fn train(seat: Seat, setting: Setting) -> Trained {
    let threads = 1 + seat.rank.rank % 2;
    let scratch = CpuScratch { threads: 2 };
    let rank = seat.rank;
    let Draft { program, schedule } = Draft::new(&spec(rank, setting), Rc::new(scratch)).unwrap();
    let plan = Plan::new(schedule).unwrap();
    let proved = verify(plan, scratch).unwrap();
    let backend = CpuBackend::new(proved, CpuOptions { poison: true, ..CpuOptions::new(threads) });
    let mut run = Run { backend: backend.unwrap().among(Box::new(seat)), program };
    run.fill_weights();
    let ids: Vec<i32> = {
        let mut stream = rng::Stream::new(3, rng::Purpose::TrainBatch, 0);
        let count = SEQUENCES * DIMS.block_size + 1;
        (0..count).map(|_| stream.below(DIMS.vocab_size) as i32).collect()
    };
    let group = SEQUENCES / setting.groups;
    for iteration in 0..ITERATIONS {
        let step = StepInputs {
            lr: 1e-3,
            grad_clip: 1.0,
            iteration,
            seed: 9,
            inverse_tokens: 1.0 / (SEQUENCES * DIMS.block_size) as f32,
            ..StepInputs::default()
        };
        for round in 0..run.program.sharing.rounds() {
            let mut row = run.program.sharing.group(round) * group;
            let slices = run.program.train_slices.clone();
            for slice in 0..slices.len() {
                let index = slice_segment(&run.program.train, &slices, slice).unwrap();
                let segment = run.program.train[index].clone();
                let first = (row * DIMS.block_size) as usize;
                let length = (segment.rows * DIMS.block_size) as usize;
                let bytes = |shift: usize| -> Vec<u8> {
                    let ids = &ids[first + shift..first + shift + length];
                    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
                };
                run.backend.write(segment.tokens, &bytes(0)).unwrap();
                run.backend.write(segment.targets, &bytes(1)).unwrap();
                run.backend.run(segment.segment, &StepInputs { first_row: row, ..step }).unwrap();
                row += segment.rows;
            }
        }
        run.backend.run(run.program.update.unwrap(), &step).unwrap();
    }
    trained(run, setting)
}

fn trained(mut run: Run, setting: Setting) -> Trained {
    let tensors = &run.backend.plan().schedule.tensors;
    let bytes_of = |id| tensors.bytes(id).get() as usize;
    let ids: Vec<_> = run.program.parameters.iter().map(|row| row.compute).collect();
    let sizes: Vec<usize> = ids.iter().map(|&id| bytes_of(id)).collect();
    let (losses, ranks) = match run.program.row_losses {
        Some(all) => (all, run.program.sharing.rank.ranks),
        None => (run.program.row_loss.unwrap(), 1),
    };
    let loss_bytes = bytes_of(losses);
    let wire_bytes = wire_bytes(&run);
    let mut read = |id, size| {
        let mut content = vec![0; size];
        run.backend.read(id, &mut content).unwrap();
        content
    };
    let weights = ids.iter().zip(sizes).map(|(&id, size)| read(id, size)).collect();
    let norm = read(run.program.state, plan::StepState::WORDS * 4);
    let all = read(losses, loss_bytes);
    let all: Vec<f32> =
        all.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    let (each, group) = (all.len() / ranks, SEQUENCES / setting.groups);
    let loss_of = |row: u64| all[(row / group) as usize % ranks * each + row as usize];
    Trained { weights, norm, losses: (0..SEQUENCES).map(loss_of).collect(), wire_bytes }
}

/// Bytes that this rank sends in an iteration, by the plan.
fn wire_bytes(run: &Run) -> u64 {
    let schedule = &run.backend.plan().schedule;
    let sent = |id| -> u64 {
        let steps = schedule.segment(id).steps.iter();
        steps.map(|step| step.op.operation().wire_bytes(&schedule.tensors)).sum()
    };
    let group: u64 = (0..run.program.train_slices.len())
        .filter_map(|slice| slice_segment(&run.program.train, &run.program.train_slices, slice))
        .map(|index| sent(run.program.train[index].segment))
        .sum();
    group * run.program.sharing.rounds() + sent(run.program.update.unwrap())
}

/// Trains on as many ranks; all must end with the same weights and losses.
fn on_ranks(ranks: usize, setting: Setting) -> Trained {
    let seats = Seat::all(ranks);
    let table = Arc::clone(&seats[0].table);
    let mut all: Vec<Trained> = std::thread::scope(|scope| {
        let started: Vec<_> =
            seats.into_iter().map(|seat| scope.spawn(move || train(seat, setting))).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let planned: u64 = all.iter().map(|rank| rank.wire_bytes).sum();
    assert_eq!(*table.bytes.lock().unwrap(), ITERATIONS * planned, "bytes on the wire");
    let first = all.swap_remove(0);
    for other in &all {
        assert!(first.weights == other.weights, "ranks disagree on the weights");
        assert_eq!((&first.norm, &first.losses), (&other.norm, &other.losses));
    }
    first
}

fn check(setting: Setting) -> Trained {
    let one = on_ranks(1, setting);
    for ranks in [2, 3, 6] {
        let many = on_ranks(ranks, setting);
        assert!(one.weights == many.weights, "{ranks} ranks: other weights");
        assert_eq!(one.norm, many.norm, "{ranks} ranks");
        assert_eq!(one.losses, many.losses, "{ranks} ranks");
    }
    one
}

#[test]
fn ranks_give_the_bits_of_one() {
    let sharded = check(PLAIN);
    let whole = check(Setting { zero: false, ..PLAIN });
    assert!(sharded.weights == whole.weights, "shards change no bit");
    assert!(sharded.losses.iter().all(|loss| loss.is_finite()));
}

#[test]
fn ranks_give_the_bits_of_one_with_dropout_and_16_bits() {
    let without = check(PLAIN);
    let dropout = check(Setting { dropout: 0.2, ..PLAIN });
    assert!(without.weights != dropout.weights);
    check(Setting { moments: Dtype::Bf16, dropout: 0.2, ..PLAIN });
    for wire in [Dtype::Bf16, Dtype::F16] {
        let rounded = check(Setting { wire, ..PLAIN });
        assert!(without.weights != rounded.weights, "{wire} on the wire");
    }
}

#[test]
fn groups_change_only_the_order_of_sums() {
    let one = on_ranks(1, Setting { groups: 1, ..PLAIN });
    let six = on_ranks(1, PLAIN);
    for (one, six) in one.losses.iter().zip(&six.losses) {
        assert!((one - six).abs() < 1e-3, "{one} {six}");
    }
}
