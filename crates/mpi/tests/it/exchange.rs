//! Two and three ranks move uneven, empty and long pieces, share messages, and allocate nothing
//! after the first call. Each rank is this test program, started by `mpiexec`.

use fitgpt_mpi::{LONGEST_MESSAGE, World};
use plan::{BackendError, Exchange};
use requires::{Need, absent};
use std::process::{Command, Output};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// What a rank does, in the environment of the processes that `mpiexec` starts.
const PART: &str = "FITGPT_MPI_PART";

/// The command that runs `part` on so many ranks; nothing where there is no MPI.
pub fn command(count: usize, part: &str) -> Option<Command> {
    let Some(mpiexec) = fitgpt_mpi::mpiexec() else {
        absent(Need::Mpi, "there is no MPI with the standard ABI; `pip install mpich`");
        return None;
    };
    let mut command = Command::new(mpiexec);
    command.args(["-n", &count.to_string()]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "exchange::a_rank", "--nocapture", "--test-threads=1"]);
    command.env(PART, part);
    Some(command)
}

fn ranks(count: usize, part: &str) -> Option<Output> {
    Some(command(count, part)?.output().unwrap())
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

/// What one rank does; nothing in an ordinary run of the tests.
#[test]
fn a_rank() {
    let Ok(part) = std::env::var(PART) else { return };
    fitgpt_mpi::finished(); // so that every rank ends MPI when it is done
    match part.as_str() {
        "exchange" => everything(),
        "long" => more_than_32_bits(),
        "watched" => crate::watched::rank(),
        "quiet" => crate::watched::quiet(),
        "hanging" => crate::watched::hanging(),
        "abort" => World::start().unwrap().abort(7),
        "mismatch" => {
            let error = World::start_as(5, 6).unwrap_err();
            println!("refused: {error}");
        }
        other => panic!("no part {other}"),
    }
}

fn everything() {
    let mut world = World::start().unwrap();
    let version = world.version().unwrap();
    assert!(!version.is_empty() && !version.contains('\n'), "{version}");
    // Rank r has a piece of LENGTHS[k][r] bytes; the last are far above what travels at once.
    let lengths =
        [[0, 0, 0], [1, 0, 0], [0, 7, 0], [5, 0, 11], [3, 8, 1], [4_000_003, 0, 9_000_001]];
    for (round, lengths) in lengths.iter().enumerate() {
        let pieces = &lengths[..world.ranks()];
        all_to_all(&mut world, pieces, round as u8);
        all_gather(&mut world, pieces, round as u8);
        broadcasts(&mut world, pieces[0], round as u8);
    }
    messages(&mut world);
    mistakes(&mut world);
    nothing_is_allocated(&mut world);
    world.barrier().unwrap();
    println!("rank {} of {} is done", world.rank(), world.ranks());
}

/// Byte `at` of what `from` sends to `to`.
fn byte(round: u8, from: usize, to: usize, at: usize) -> u8 {
    (at.wrapping_mul(31) ^ (at >> 8)) as u8 ^ (from * 16 + to * 4) as u8 ^ round.wrapping_mul(77)
}

fn all_to_all(world: &mut World, pieces: &[usize], round: u8) {
    let (me, ranks) = (world.rank(), world.ranks());
    let piece = |from: usize, to: usize| (0..pieces[to]).map(move |at| byte(round, from, to, at));
    let send: Vec<u8> = (0..ranks).flat_map(|to| piece(me, to)).collect();
    let want: Vec<u8> = (0..ranks).flat_map(|from| piece(from, me)).collect();
    let mut received = vec![0xEE; want.len()];
    world.all_to_all(&send, pieces, &mut received).unwrap();
    assert!(received == want, "all_to_all {pieces:?} on rank {me}");
}

fn all_gather(world: &mut World, pieces: &[usize], round: u8) {
    let (me, ranks) = (world.rank(), world.ranks());
    let piece = |from: usize, fill: bool| {
        let value = move |at| if fill { byte(round, from, 0, at) } else { 0xEE };
        (0..pieces[from]).map(value)
    };
    let mut buffer: Vec<u8> = (0..ranks).flat_map(|from| piece(from, from == me)).collect();
    let want: Vec<u8> = (0..ranks).flat_map(|from| piece(from, true)).collect();
    world.all_gather(&mut buffer, pieces).unwrap();
    assert!(buffer == want, "all_gather {pieces:?} on rank {me}");
}

fn broadcasts(world: &mut World, bytes: usize, round: u8) {
    for root in 0..world.ranks() {
        let want: Vec<u8> = (0..bytes).map(|at| byte(round, root, 0, at)).collect();
        let mut buffer = if root == world.rank() { want.clone() } else { vec![0xEE; bytes] };
        world.broadcast(root, &mut buffer).unwrap();
        assert!(buffer == want, "broadcast of {bytes} bytes from {root}");
    }
}

fn messages(world: &mut World) {
    let last = world.ranks() - 1;
    for (root, text) in [(0, "to all"), (last, ""), (last, "x"), (0, &"long ".repeat(2000))] {
        let own = if world.rank() == root { text } else { "what others pass does not count" };
        assert_eq!(world.share(root, own.as_bytes()).unwrap(), text.as_bytes());
    }
    let error = world.share(0, &vec![0; LONGEST_MESSAGE + 1]).unwrap_err();
    assert!(error.to_string().contains("a message of 1048577 bytes"), "{error}");
}

/// All ranks make the same mistake; none of them reaches MPI, and the next call works.
fn mistakes(world: &mut World) {
    let ranks = world.ranks();
    let mut buffer = [0; 3];
    for (call, done) in [
        ("root", world.broadcast(ranks, &mut buffer)),
        ("pieces", world.all_gather(&mut buffer, &[3, 0, 0, 0])),
        ("bytes", world.all_gather(&mut buffer, &vec![2; ranks])),
        ("rows", world.all_to_all(&vec![0; 2 * ranks], &vec![2; ranks], &mut buffer)),
    ] {
        assert!(matches!(done, Err(BackendError::Internal { .. })), "{call}: {done:?}");
    }
}

fn nothing_is_allocated(world: &mut World) {
    let ranks = world.ranks();
    let pieces = vec![100; ranks];
    let (send, mut received) = (vec![1; 100 * ranks], vec![0; 100 * ranks]);
    let mut step = || {
        world.all_to_all(&send, &pieces, &mut received).unwrap();
        world.all_gather(&mut received, &pieces).unwrap();
        world.broadcast(0, &mut received).unwrap();
        world.barrier().unwrap();
        assert_eq!(world.share(0, &[3; 50]).unwrap().len(), 50);
    };
    step();
    let before = counting::calls_here();
    for _ in 0..100 {
        step();
    }
    assert_eq!(counting::calls_here(), before, "allocations in 100 rounds");
}

/// Counts and displacements of more than 32 bits. Takes 9 GiB for two ranks.
fn more_than_32_bits() {
    let mut world = World::start().unwrap();
    let (me, half) = (world.rank(), 1_200_000_000);
    let pieces = [half, half + 1];
    let own = if me == 0 { 0..half } else { half..2 * half + 1 };
    let mut buffer = vec![0u8; 2 * half + 1];
    buffer[own].fill(me as u8 + 1);
    world.all_gather(&mut buffer, &pieces).unwrap();
    assert!(buffer[..half].iter().all(|&b| b == 1) && buffer[half..].iter().all(|&b| b == 2));
    buffer.fill(me as u8 + 3);
    world.broadcast(1, &mut buffer).unwrap();
    assert!(buffer.iter().all(|&b| b == 4));
    buffer.fill(me as u8 + 5);
    let row = pieces[me];
    let mut received = vec![0u8; 2 * row];
    world.all_to_all(&buffer, &pieces, &mut received).unwrap();
    assert!(received[..row].iter().all(|&b| b == 5) && received[row..].iter().all(|&b| b == 6));
    println!("rank {me} of 2 is done");
}

#[test]
fn pieces_of_all_lengths_arrive() {
    for count in [1, 2, 3] {
        let Some(output) = ranks(count, "exchange") else { return };
        let said = said(&output);
        assert!(output.status.success(), "{count} ranks: {said}");
        for rank in 0..count {
            assert!(said.contains(&format!("rank {rank} of {count} is done")), "{said}");
        }
    }
}

#[test]
#[ignore = "takes 9 GiB of memory"]
fn buffers_of_more_than_two_gib_arrive() {
    let Some(output) = ranks(2, "long") else { return };
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(said(&output).matches("of 2 is done").count(), 2);
}

#[test]
fn abort_ends_all_ranks_with_its_code() {
    let Some(output) = ranks(2, "abort") else { return };
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
}

#[test]
fn a_launcher_that_counts_otherwise_is_named() {
    let Some(output) = ranks(2, "mismatch") else { return };
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("the launcher says rank 5 of 6, MPI at "), "{said}");
    assert!(said.contains("says 1 of 2; start the run with the mpiexec of that MPI: /"), "{said}");
}
