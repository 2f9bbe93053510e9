//! Ranks that finish, fail, die and fall silent, as threads. A death is the end of a connection
//! without a goodbye, which is what the others see of a killed process.

use crate::fixture::{all_meet, facts, listener, meeting};
use fitgpt_ranks::{Failure, Farewell, Met, Watch, WatchOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const FAST: WatchOptions = WatchOptions {
    interval: Duration::from_millis(20),
    silence: Duration::from_secs(2),
    standstill: Duration::from_secs(1),
};

/// What must have happened within the bound, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

fn watch(met: Met, options: WatchOptions) -> (Watch, Receiver<Failure>) {
    let (sender, receiver) = channel();
    // Tests that do not ask are gone by then.
    let tell = move |failure: &Failure| drop(sender.send(failure.clone()));
    (Watch::start(met, options, tell).unwrap(), receiver)
}

#[test]
fn all_finish_and_nobody_is_gone() {
    for ranks in [1, 2, 5] {
        let watches: Vec<_> = all_meet(ranks).into_iter().map(|met| watch(met, FAST)).collect();
        std::thread::sleep(Duration::from_millis(100));
        let started = Instant::now();
        let threads: Vec<_> = watches
            .into_iter()
            .map(|(watch, failures)| {
                std::thread::spawn(move || {
                    assert_eq!(watch.goodbye(Farewell::Finished), Ok(()));
                    assert!(failures.try_recv().is_err(), "nobody was gone");
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    }
}

/// A rank may be done long before rank 0, and rank 0 before the others. All leave together.
#[test]
fn ranks_finish_at_different_times() {
    let mut watches: Vec<_> = all_meet(3).into_iter().map(|met| watch(met, FAST)).collect();
    let (last, _) = watches.pop().unwrap();
    let (middle, _) = watches.pop().unwrap();
    let (zero, _) = watches.pop().unwrap();
    let middle = std::thread::spawn(move || middle.goodbye(Farewell::Finished));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!middle.is_finished(), "rank 1 keeps the watch on rank 0");
    let zero = std::thread::spawn(move || zero.goodbye(Farewell::Finished));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!zero.is_finished(), "rank 0 keeps the watch for rank 2");
    assert_eq!(last.goodbye(Farewell::Finished), Ok(()));
    assert_eq!(zero.join().unwrap(), Ok(()));
    assert_eq!(middle.join().unwrap(), Ok(()));
}

/// The others have said goodbye, and rank 0 still works on the last checkpoint.
#[test]
fn rank_0_may_die_at_the_very_end() {
    let (mut others, dying) = with_a_mortal(2, 0);
    let (_, one, failures) = others.pop().unwrap();
    let one = std::thread::spawn(move || one.goodbye(Farewell::Finished));
    std::thread::sleep(Duration::from_millis(300));
    drop(dying);
    let failure = one.join().unwrap().unwrap_err();
    assert!(failure.to_string().starts_with("rank 0 on host0 died"), "{failure}");
    assert_eq!(failures.recv_timeout(SOON).unwrap(), failure);
}

/// What rank 0 may still say: it does not end while a rank goes on and does not finish.
#[test]
fn rank_0_does_not_wait_for_ever() {
    let mut watches: Vec<_> = all_meet(2).into_iter().map(|met| watch(met, FAST)).collect();
    let (one, failures) = watches.pop().unwrap();
    let (zero, _) = watches.pop().unwrap();
    one.progress(3);
    let said = zero.goodbye(Farewell::Finished).unwrap_err().to_string();
    assert_eq!(said, "rank 1 on host1 did not end within 2 s of rank 0, last seen at iteration 3");
    assert_eq!(failures.recv_timeout(SOON).unwrap().to_string(), said);
    drop(one);
}

/// Replaces the watch of one rank by a bare connection that beats and is then cut.
fn with_a_mortal(ranks: usize, mortal: usize) -> (Vec<(usize, Watch, Receiver<Failure>)>, Met) {
    let mut met = all_meet(ranks);
    let dying = met.remove(mortal);
    let watches = met.into_iter().map(|met| {
        let rank = met.rank;
        let (watch, failures) = watch(met, FAST);
        (rank, watch, failures)
    });
    (watches.collect(), dying)
}

#[test]
fn a_death_is_told_to_all() {
    for (ranks, mortal) in [(2, 1), (2, 0), (4, 2), (4, 0)] {
        let (watches, dying) = with_a_mortal(ranks, mortal);
        for (rank, watch, _) in &watches {
            watch.progress(10 + *rank as u64);
        }
        std::thread::sleep(Duration::from_millis(100));
        drop(dying);
        for (rank, watch, failures) in watches {
            let failure = failures.recv_timeout(SOON).unwrap();
            assert_eq!(
                (failure.rank, &*failure.host),
                (mortal, &*format!("host{mortal}")),
                "{rank}"
            );
            let said = failure.to_string();
            assert!(said.contains("died before the first iteration"), "{said}");
            assert_eq!(mortal == 0, !said.contains("the others were at iteration 1"), "{said}");
            assert_eq!(watch.goodbye(Farewell::Finished), Err(failure));
        }
    }
}

#[test]
fn deaths_at_random_moments_are_told_among_many() {
    let mut state = 0x1234_5678_9abc_def1u64;
    for round in 0..12 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mortal = (state >> 33) as usize % 6;
        let (watches, dying) = with_a_mortal(6, mortal);
        std::thread::sleep(Duration::from_millis((state >> 40) % 60));
        drop(dying);
        for (_, watch, failures) in watches {
            assert_eq!(failures.recv_timeout(SOON).unwrap().rank, mortal, "round {round}");
            assert_eq!(watch.failure().unwrap().rank, mortal);
        }
    }
}

#[test]
fn one_of_a_hundred_dies() {
    let (watches, dying) = with_a_mortal(100, 63);
    drop(dying);
    let started = Instant::now();
    for (_, _, failures) in &watches {
        assert_eq!(failures.recv_timeout(SOON).unwrap().rank, 63);
    }
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

/// A rank that keeps its connection and says nothing: stopped, or behind a cut link.
#[test]
fn silence_is_told_within_the_bound() {
    for mortal in [1, 0] {
        let (watches, silent) = with_a_mortal(3, mortal);
        let started = Instant::now();
        for (_, watch, failures) in watches {
            let failure = failures.recv_timeout(SOON).unwrap();
            let said = failure.to_string();
            let want = format!("rank {mortal} on host{mortal} has been silent for 2 s, last seen");
            assert!(said.starts_with(&want), "{said}");
            drop(watch);
        }
        let took = started.elapsed();
        assert!((FAST.silence..Duration::from_secs(8)).contains(&took), "{took:?}");
        drop(silent);
    }
}

#[test]
fn a_rank_that_fails_tells_the_others_why() {
    for failing in [0, 1, 2] {
        let mut watches: Vec<_> = all_meet(3).into_iter().map(|met| watch(met, FAST)).collect();
        let (failed, own) = watches.remove(failing);
        failed.progress(7);
        std::thread::sleep(Duration::from_millis(60));
        let why = "the GPU is\nout of memory".to_owned();
        assert_eq!(failed.goodbye(Farewell::Failed(why)), Ok(()));
        assert!(own.try_recv().is_err(), "it knows its own error");
        for (watch, failures) in watches {
            let said = failures.recv_timeout(SOON).unwrap().to_string();
            let want = format!(
                "rank {failing} on host{failing} failed at iteration 7: the GPU is out of memory"
            );
            assert!(said.starts_with(&want), "{said}");
            drop(watch);
        }
    }
}

/// A rank dies, and others report the error that follows: the death is the cause that all hear.
#[test]
fn the_death_comes_before_the_errors_that_follow() {
    for failing in [0, 1] {
        let (mut watches, dying) = with_a_mortal(4, 3);
        std::thread::sleep(Duration::from_millis(50));
        let (_, failed, _) = watches.remove(failing);
        let thread = std::thread::spawn(move || {
            failed.goodbye(Farewell::Failed("MPI: it broke".to_owned()))
        });
        std::thread::sleep(Duration::from_millis(30));
        drop(dying);
        assert_eq!(thread.join().unwrap().unwrap_err().rank, 3);
        for (_, watch, failures) in watches {
            assert_eq!(failures.recv_timeout(SOON).unwrap().rank, 3);
            drop(watch);
        }
    }
}

/// Adds steps to the count of a rank.
fn advance(watch: &Watch, steps: u64) {
    watch.steps().fetch_add(steps, Ordering::Relaxed);
}

/// A rank whose main thread is stuck lives on, and its heartbeats too: it is named by what it does
/// not do. All hear it, also the rank itself.
#[test]
fn a_rank_that_stands_still_is_named_on_all() {
    for stuck in 0..3 {
        let watches: Vec<_> = all_meet(3).into_iter().map(|met| watch(met, FAST)).collect();
        for (rank, (watch, _)) in watches.iter().enumerate() {
            watch.progress(7);
            // The others have gone on, as far as they can without it.
            advance(watch, if rank == stuck { 5 } else { 6 + rank as u64 });
        }
        let started = Instant::now();
        for (watch, failures) in watches {
            let said = failures.recv_timeout(SOON).unwrap().to_string();
            let want = [1, 2, 3].map(|seconds| {
                format!(
                    "rank {stuck} on host{stuck} has not moved for {seconds} s at iteration 7, \
                     and the others wait for it; the others were at iteration 7"
                )
            });
            assert!(want.contains(&said), "{said}");
            drop(watch);
        }
        let took = started.elapsed();
        assert!((FAST.standstill..Duration::from_secs(8)).contains(&took), "{took:?}");
    }
}

#[test]
fn ranks_that_stand_still_at_the_same_step_are_named_together() {
    let watches: Vec<_> = all_meet(4).into_iter().map(|met| watch(met, FAST)).collect();
    advance(&watches[0].0, 1);
    advance(&watches[2].0, 2);
    let said = watches[2].1.recv_timeout(SOON).unwrap().to_string();
    assert!(said.starts_with("rank 1 on host1 has not moved for "), "{said}");
    assert!(
        said.ends_with(" before the first iteration, nor has rank 3, and the others wait for them")
    );
}

/// Neither ranks that all stand still, nor a slow one, nor rank 0 during a save that takes its
/// time, nor ranks that wait for it at the end.
#[test]
fn who_may_take_time_is_not_named() {
    let mut watches: Vec<_> = all_meet(2).into_iter().map(|met| watch(met, FAST)).collect();
    std::thread::sleep(2 * FAST.standstill);
    let (one, failures) = watches.pop().unwrap();
    let (zero, own) = watches.pop().unwrap();
    advance(&zero, 1000);
    for _ in 0..20 {
        std::thread::sleep(FAST.standstill / 10);
        advance(&one, 1);
    }
    zero.allow(4 * FAST.standstill);
    advance(&one, 2000);
    std::thread::sleep(2 * FAST.standstill);
    let one = std::thread::spawn(move || one.goodbye(Farewell::Finished));
    std::thread::sleep(FAST.standstill);
    assert!(own.try_recv().is_err() && failures.try_recv().is_err(), "nobody was named");
    assert_eq!(zero.goodbye(Farewell::Finished), Ok(()));
    assert_eq!(one.join().unwrap(), Ok(()));
}

/// What was allowed before for something longer does not help.
#[test]
fn rank_0_is_named_after_what_it_may_take() {
    let watches: Vec<_> = all_meet(2).into_iter().map(|met| watch(met, FAST)).collect();
    advance(&watches[1].0, 1);
    let started = Instant::now();
    watches[0].0.allow(2 * SOON);
    watches[0].0.allow(FAST.standstill);
    let said = watches[1].1.recv_timeout(SOON).unwrap().to_string();
    assert!(started.elapsed() > 2 * FAST.standstill, "{:?}", started.elapsed());
    assert!(said.starts_with("rank 0 on host0 has not moved for "), "{said}");
    assert_eq!(watches[0].1.recv_timeout(SOON).unwrap().to_string(), said);
}

/// A watch that is dropped, as an error does on its way out, is told as the end of its rank.
#[test]
fn leaving_without_a_word_is_told() {
    let mut watches: Vec<_> = all_meet(2).into_iter().map(|met| watch(met, FAST)).collect();
    let (one, _) = watches.pop().unwrap();
    drop(one);
    let (_zero, failures) = watches.pop().unwrap();
    let said = failures.recv_timeout(SOON).unwrap().to_string();
    assert_eq!(said, "rank 1 on host1 failed before the first iteration: it ended early");
}

/// Any bytes from a rank end the run, with a line that names it; they never end it with a panic.
#[test]
fn bytes_that_are_no_message_are_told() {
    let beat: Vec<u8> = [vec![1], vec![0; 23]].concat();
    let long: Vec<u8> = [vec![3, 0, 0xFF, 0xFF], vec![0; 20]].concat();
    for bytes in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xFF; 5000], &long, &[beat, vec![9; 16]].concat()]
    {
        let (listener, place) = listener();
        let address = listener.local_addr().unwrap();
        let hostile = bytes.to_vec();
        // A rank that behaves until it has met rank 0.
        let guest = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            let mut greeting = b"fitGPT\x02G".to_vec();
            greeting.extend(crate::fixture::TOKEN.to_le_bytes());
            stream.write_all(&greeting).unwrap();
            let facts = r#"{"rank":1,"ranks":2,"program":"1.0","host":"h","pid":1,"facts":[]}"#;
            stream.write_all(&(facts.len() as u32).to_le_bytes()).unwrap();
            stream.write_all(facts.as_bytes()).unwrap();
            stream.write_all(&hostile).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let met = meeting(0, 2, SOON).host(listener, &facts(0, &[]), &[]).unwrap();
        let (watch, failures) = watch(met, FAST);
        let said = failures.recv_timeout(SOON).unwrap().to_string();
        assert!(said.starts_with("rank 1 on h is not understood: "), "{said}");
        drop(watch);
        guest.join().unwrap();
        assert!(place.port > 0);
    }
}
