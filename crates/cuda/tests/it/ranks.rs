//! Runs on several ranks: two of them on one GPU, each on a thread, which exchange bytes through
//! the host; and one that makes all of NCCL's calls. Their bits are those of one rank with the same
//! groups.

use crate::fixture::{gpu, gpu_alone};
use crate::small_run::{ROWS, SmallRun, iterate, small_run};
use cpu::{CpuBackend, CpuOptions, CpuScratch};
use fitgpt_cuda::{
    Communicator, CubinCache, CudaBackend, CudaOptions, GRANULE, GRAPH_RESERVE, Gpu, Nccl,
    Transport,
};
use model::{Draft, Sharing, Types};
use plan::{Backend, BackendError, Dtype, Exchange, OneRank, Plan, Rank, StepInputs, verify};
use requires::{Need, absent};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use train::engine::{Engine, Report};

const ITERATIONS: u64 = 3;

/// Longer than any rank computes before it sends.
const PATIENCE: Duration = Duration::from_secs(120);

/// The end of a thread, with a channel to and from every other.
struct InProcess {
    rank: usize,
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Receiver<Vec<u8>>>,
}

/// One for each rank.
fn in_process(ranks: usize) -> Vec<InProcess> {
    let end = |rank| InProcess { rank, to: Vec::new(), from: Vec::new() };
    let mut ends: Vec<InProcess> = (0..ranks).map(end).collect();
    for sender in 0..ranks {
        for receiver in 0..ranks {
            let (to, from) = channel();
            ends[sender].to.push(to);
            ends[receiver].from.push(from);
        }
    }
    ends
}

impl InProcess {
    fn send(&self, rank: usize, bytes: &[u8]) -> Result<(), BackendError> {
        let gone = |_| BackendError::Device { what: format!("rank {rank} is gone") };
        self.to[rank].send(bytes.to_vec()).map_err(gone)
    }

    fn receive(&self, rank: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        let gone = |error| BackendError::Device { what: format!("rank {rank}: {error}") };
        let arrived = self.from[rank].recv_timeout(PATIENCE).map_err(gone)?;
        assert_eq!(arrived.len(), bytes.len(), "from rank {rank}");
        bytes.copy_from_slice(&arrived);
        Ok(())
    }
}

impl Exchange for InProcess {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.to.len()
    }

    fn all_to_all(
        &mut self,
        send: &[u8],
        pieces: &[usize],
        received: &mut [u8],
    ) -> Result<(), BackendError> {
        assert_eq!(send.len(), pieces.iter().sum::<usize>());
        assert_eq!(received.len(), pieces[self.rank] * pieces.len());
        let (mut first, own) = (0, pieces[self.rank]);
        for (rank, &piece) in pieces.iter().enumerate() {
            self.send(rank, &send[first..first + piece])?;
            first += piece;
        }
        let row = |rank: usize| rank * own..(rank + 1) * own;
        (0..pieces.len()).try_for_each(|rank| self.receive(rank, &mut received[row(rank)]))
    }

    fn all_gather(&mut self, buffer: &mut [u8], pieces: &[usize]) -> Result<(), BackendError> {
        assert_eq!(buffer.len(), pieces.iter().sum::<usize>());
        let first = |rank: usize| pieces[..rank].iter().sum::<usize>();
        let range = |rank: usize| first(rank)..first(rank) + pieces[rank];
        for rank in 0..pieces.len() {
            self.send(rank, &buffer[range(self.rank)])?;
        }
        (0..pieces.len()).try_for_each(|rank| self.receive(rank, &mut buffer[range(rank)]))
    }

    fn broadcast(&mut self, root: usize, buffer: &mut [u8]) -> Result<(), BackendError> {
        if self.rank == root {
            (0..self.to.len()).try_for_each(|rank| self.send(rank, buffer))?;
        }
        self.receive(root, buffer)
    }
}

/// What a rank sees: the losses of all sequences of each iteration, and as bytes the state and all
/// weights at the end.
#[derive(PartialEq)]
struct Seen {
    losses: Vec<Vec<f32>>,
    bytes: Vec<u8>,
}

/// The losses of all sequences, from the ranks that computed them.
fn losses(engine: &mut Engine, report: &mut Report) -> Vec<f32> {
    let Sharing { rank, groups, .. } = engine.program().sharing;
    engine.begin_report(report, ROWS).unwrap();
    engine.finish_report(report).unwrap();
    let group = ROWS / groups;
    let owner = |row: u64| (row / group) as usize % rank.ranks;
    (0..ROWS).map(|row| report.losses_of(owner(row))[row as usize]).collect()
}

/// Trains on a GPU.
fn train_on(run: &SmallRun, gpu: &Gpu, options: &CudaOptions) -> Seen {
    train(run.engine(gpu, options))
}

/// Trains, and puts sharded state together at the end as a checkpoint does.
fn train(mut engine: Engine) -> Seen {
    let mut report = Report::default();
    let mut seen = Seen { losses: Vec::new(), bytes: Vec::new() };
    for iteration in 0..ITERATIONS {
        let state = iterate(&mut engine, iteration);
        assert!(state.grad_norm.is_finite() && !state.skipped, "{state:?}");
        seen.bytes.extend(state.to_words().iter().flat_map(|word| word.to_le_bytes()));
        seen.losses.push(losses(&mut engine, &mut report));
    }
    let (backend, program) = engine.parts();
    let mut read = |backend: &mut dyn Backend, id| {
        let mut content = vec![0; backend.plan().schedule.tensors.bytes(id).get() as usize];
        backend.read(id, &mut content).unwrap();
        seen.bytes.extend(content);
    };
    program.parameters.iter().for_each(|row| read(backend, row.compute));
    let is_sharded = |id| program.sharded.iter().position(|role| role.gathered.contains(&id));
    let states = program.parameters.first().map_or(0, |row| row.state.len());
    for role in 0..=states {
        let ids = program.parameters.iter().map(|row| match role {
            0 => row.weight,
            _ => row.state[role - 1].1,
        });
        let ids: Vec<_> = ids.collect();
        if let Some(sharded) = is_sharded(ids[0]) {
            let gather = program.sharded[sharded].gather;
            backend.run(gather, &StepInputs::default()).unwrap();
        }
        ids.into_iter().for_each(|id| read(backend, id));
    }
    seen
}

/// As `ranks` ranks, each on a thread; `train` gets the run of its rank.
fn train_ranks(
    run: &SmallRun,
    ranks: usize,
    train: impl Fn(SmallRun, InProcess) -> Seen + Sync,
) -> Vec<Seen> {
    let train = |exchange: InProcess| {
        let rank = Rank { rank: exchange.rank, ranks };
        let sharing = Sharing { rank, ..run.sharing };
        train(SmallRun { sharing, ..run.clone() }, exchange)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            in_process(ranks).into_iter().map(|end| scope.spawn(|| train(end))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// All on one GPU.
fn train_among(run: &SmallRun, ranks: usize, graphs: bool) -> Vec<Seen> {
    train_ranks(run, ranks, |run, exchange| {
        let gpu = Gpu::open(0, CubinCache::standard()).unwrap();
        let transport = Transport::host(Box::new(exchange));
        let options = CudaOptions { graphs, transport, ..CudaOptions::new(&gpu) };
        train_on(&run, &gpu, &options)
    })
}

/// On the CPU.
fn train_on_cpu(run: &SmallRun, exchange: Box<dyn Exchange>) -> Seen {
    let scratch = CpuScratch { threads: 1 };
    let Draft { program, schedule, .. } = run.draft_with(Rc::new(scratch));
    let proved = verify(Plan::new(schedule).unwrap(), scratch).unwrap();
    let backend = CpuBackend::new(proved, CpuOptions::new(1)).unwrap().among(exchange);
    train(run.engine_on(Box::new(backend), program))
}

fn assert_same(what: &str, got: &Seen, want: &Seen) {
    assert_eq!(got.losses, want.losses, "{what}");
    let differ = got.bytes.iter().zip(&want.bytes).filter(|(a, b)| a != b).count();
    let bytes = want.bytes.len();
    assert!(got.bytes.len() == bytes && differ == 0, "{what}: {differ} of {bytes} bytes");
}

/// To the rounding of a format, against gradients that were summed in another order.
fn assert_near(what: &str, got: &Seen, want: &Seen, compute: Dtype) {
    let share = if compute == Dtype::F32 { 1e-3 } else { 1e-2 };
    for (got, want) in got.losses.iter().zip(&want.losses) {
        let [got, want] = [got, want].map(|losses| losses.iter().sum::<f32>());
        assert!((got - want).abs() <= share * want, "{what}: {got}, {want} on one rank");
    }
}

fn run_of(compute: Dtype, groups: u64, zero: bool, wire: Dtype) -> SmallRun {
    let types = Types { compute, residual: compute };
    let sharing = Sharing { groups, zero, wire, ..Sharing::NONE };
    SmallRun { types, dropout: 0.1, slices: vec![ROWS / groups], sharing, ..small_run() }
}

/// One rank and two give the same bits, and both ranks the same.
fn check(run: &SmallRun, gpu: &Gpu) {
    let what = format!("{:?} {:?}", run.types, run.sharing);
    let alone = train_on(run, gpu, &CudaOptions::new(gpu));
    let two = train_among(run, 2, true);
    assert_same(&format!("both ranks: {what}"), &two[0], &two[1]);
    assert_same(&what, &two[0], &alone);
    let whole = SmallRun { sharing: Sharing::NONE, slices: vec![ROWS], ..run.clone() };
    let whole = train_on(&whole, gpu, &CudaOptions::new(gpu));
    assert_near(&what, &two[0], &whole, run.types.compute);
}

/// What the tests below ask of a GPU holds on the CPU, so that they ask for the right thing.
#[test]
fn two_ranks_give_the_bits_of_one_on_the_cpu() {
    for (groups, zero, wire) in [
        (2, false, Dtype::F32),
        (2, true, Dtype::Bf16),
        (6, false, Dtype::F16),
        (6, true, Dtype::F32),
    ] {
        let run = SmallRun { n_embd: 64, ..run_of(Dtype::F32, groups, zero, wire) };
        let alone = train_on_cpu(&run, Box::new(OneRank));
        let two = train_ranks(&run, 2, |run, exchange| train_on_cpu(&run, Box::new(exchange)));
        assert_same("both ranks", &two[0], &two[1]);
        assert_same(&format!("{:?}", run.sharing), &two[0], &alone);
    }
}

#[test]
fn two_ranks_give_the_bits_of_one() {
    let Some(gpu) = gpu() else { return };
    for compute in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
        for groups in [2, 6] {
            for zero in [false, true] {
                check(&run_of(compute, groups, zero, Dtype::F32), &gpu);
            }
        }
    }
}

#[test]
fn gradients_travel_in_16_bits() {
    let Some(gpu) = gpu() else { return };
    for (compute, wire, groups) in
        [(Dtype::Bf16, Dtype::Bf16, 2), (Dtype::F32, Dtype::Bf16, 6), (Dtype::F32, Dtype::F16, 2)]
    {
        check(&run_of(compute, groups, true, wire), &gpu);
    }
}

/// Several windows of gradients, three ranks, several slices of a group, state on the host.
#[test]
fn three_ranks_of_a_wide_model_give_the_bits_of_one() {
    let Some(gpu) = gpu() else { return };
    let run = run_of(Dtype::Bf16, 3, true, Dtype::F32);
    let wide = SmallRun { n_embd: 512, slices: vec![1, 1], dropout: 0.0, ..run };
    let windows = wide.draft().program.shard.windows.len();
    assert!(windows > 1, "{windows} windows");
    for offload in [None, Some(1 << 20)] {
        let wide = SmallRun { offload, ..wide.clone() };
        let alone = train_on(&wide, &gpu, &CudaOptions::new(&gpu));
        for (rank, seen) in train_among(&wide, 3, false).iter().enumerate() {
            assert_same(&format!("rank {rank}, offload {offload:?}"), seen, &alone);
        }
    }
}

#[test]
fn a_plan_for_another_rank_is_refused() {
    let Some(gpu) = gpu() else { return };
    let rank = Rank { rank: 1, ranks: 2 };
    let run = run_of(Dtype::F32, 2, true, Dtype::F32);
    let sharing = Sharing { rank, ..run.sharing };
    let Draft { schedule, .. } = SmallRun { sharing, ..run }.draft();
    let proved = verify(Plan::new(schedule).unwrap(), gpu.scratch()).unwrap();
    let loaded = CudaBackend::new(&gpu, proved, &CudaOptions::new(&gpu));
    let error = loaded.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("a plan for rank 1 of 2 in a process that is 0 of 1"), "{error}");
}

/// NCCL with one rank; without the library, the test is recorded as skipped.
fn nccl_alone(gpu: &Gpu) -> Option<Arc<Communicator>> {
    let nccl = match Nccl::load() {
        Ok(nccl) => nccl,
        Err(error) => {
            absent(Need::Nccl, error);
            return None;
        }
    };
    println!("{nccl:?}");
    let id = nccl.unique_id().unwrap();
    Some(Communicator::join(gpu, &nccl, &id, Rank::ONLY).unwrap())
}

/// Needs no GPU.
#[test]
fn nccl_is_found_and_has_a_version() {
    match Nccl::load() {
        Ok(nccl) => assert!(nccl.version().starts_with("2."), "{nccl:?}"),
        Err(error) => absent(Need::Nccl, error),
    }
}

#[test]
fn nccl_with_one_rank_changes_no_bit() {
    let Some(gpu) = gpu_alone() else { return };
    let Some(communicator) = nccl_alone(&gpu) else { return };
    for (compute, wire) in
        [(Dtype::F32, Dtype::F32), (Dtype::Bf16, Dtype::Bf16), (Dtype::F16, Dtype::F32)]
    {
        let run = run_of(compute, 6, true, wire);
        let want = train_on(&run, &gpu, &CudaOptions::new(&gpu));
        for graphs in [true, false] {
            let transport = Transport::Nccl(communicator.clone());
            let options = CudaOptions { graphs, transport, ..CudaOptions::new(&gpu) };
            let got = train_on(&run, &gpu, &options);
            assert_same(&format!("{compute} on {wire}, graphs {graphs}"), &got, &want);
        }
    }
    communicator.check().unwrap();
}

/// All memory of NCCL is taken before the arena is sized.
#[test]
fn nccl_takes_no_memory_after_the_arena() {
    let Some(gpu) = gpu_alone() else { return };
    let Some(communicator) = nccl_alone(&gpu) else { return };
    let run = run_of(Dtype::Bf16, 2, true, Dtype::F32);
    let Draft { program, schedule, .. } = run.draft();
    let plan = Plan::new(schedule).unwrap();
    let arena = plan.arena_bytes.get().next_multiple_of(GRANULE);
    let options =
        CudaOptions { transport: Transport::Nccl(communicator), ..CudaOptions::new(&gpu) };
    let backend = CudaBackend::new(&gpu, verify(plan, gpu.scratch()).unwrap(), &options).unwrap();
    let held = backend.held();
    let graphs = held.total.saturating_sub(held.outside_arena + arena);
    println!("outside the arena {}, arena {arena}, graphs {graphs}", held.outside_arena);
    assert!(graphs <= GRAPH_RESERVE, "{graphs} bytes for graphs");
    let mut engine = run.engine_on(Box::new(backend), program);
    for iteration in 0..4 {
        iterate(&mut engine, iteration);
    }
    let now = gpu.held_bytes().unwrap();
    assert!(now <= held.total, "{now} bytes held, {} when it was loaded", held.total);
}

/// A backend whose communicator was given up returns the reason, and ends.
#[test]
fn a_communicator_that_was_given_up_ends_the_run() {
    let Some(gpu) = gpu_alone() else { return };
    let Some(communicator) = nccl_alone(&gpu) else { return };
    let run = run_of(Dtype::F32, 2, true, Dtype::F32);
    let transport = Transport::Nccl(communicator.clone());
    let options = CudaOptions { transport, ..CudaOptions::new(&gpu) };
    let mut engine = run.engine(&gpu, &options);
    iterate(&mut engine, 0);
    let start = Instant::now();
    assert!(communicator.abort("rank 1 on host b is gone"));
    let update = engine.program().update.unwrap();
    let error = engine.backend().run(update, &StepInputs::default()).unwrap_err().to_string();
    assert!(error.contains("rank 1 on host b is gone"), "{error}");
    drop((engine, options));
    drop(communicator);
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}
