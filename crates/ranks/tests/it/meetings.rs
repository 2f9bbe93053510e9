//! Ranks that meet, differ, are missing, or are no ranks at all.

use crate::fixture::{TOKEN, all_meet, facts, join, listener, meeting};
use fitgpt_ranks::meeting::{self, LONGEST_PAYLOAD, MeetError, Meeting};
use fitgpt_ranks::{Facts, MeetingPlace};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn everybody_gets_the_payload() {
    for ranks in [1, 2, 3, 17] {
        for (rank, met) in all_meet(ranks).iter().enumerate() {
            assert_eq!((met.rank, met.ranks), (rank, ranks));
            assert_eq!(met.payload, b"id");
            let others: Vec<usize> = met.peers.iter().map(|peer| peer.rank).collect();
            let want: Vec<usize> = if rank == 0 { (1..ranks).collect() } else { vec![0] };
            assert_eq!(others, want);
            assert!(met.peers.iter().all(|peer| peer.host == format!("host{}", peer.rank)));
        }
    }
}

#[test]
fn a_hundred_ranks_meet() {
    let started = Instant::now();
    assert_eq!(all_meet(100).len(), 100);
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

/// What all ranks of a meeting were told: they were told the same.
fn told(ranks: usize, all: &[Facts]) -> String {
    let (listener, place) = listener();
    let others: Vec<_> = (1..ranks)
        .map(|rank| join(meeting(rank, ranks, SOON), &place, all[rank].clone()))
        .collect();
    let said = meeting(0, ranks, SOON).host(listener, &all[0], &[]).unwrap_err().to_string();
    for other in others {
        assert_eq!(other.join().unwrap().unwrap_err().to_string(), said);
    }
    said
}

#[test]
fn the_first_rank_that_differs_is_named_to_all() {
    let same = [("lr", "6e-4"), ("data", "ab12"), ("plan", "77")];
    let ranks = || -> Vec<Facts> { (0..4).map(|rank| facts(rank, &same)).collect() };
    let mut all = ranks();
    all[3].list[0].1 = "1e-3".to_owned();
    let want = "rank 3 on host3 differs from rank 0 on host0 in lr: 1e-3 instead of 6e-4";
    assert_eq!(told(4, &all), want);
    all[2].list[2].1 = "78".to_owned();
    let want = "rank 2 on host2 differs from rank 0 on host0 in plan: 78 instead of 77";
    assert_eq!(told(4, &all), want);
    let mut all = ranks();
    all[1].program = "2.0".to_owned();
    let want = "rank 1 on host1 differs from rank 0 on host0 in version: 2.0 instead of 1.0";
    assert_eq!(told(4, &all), want);
}

#[test]
fn missing_ranks_are_named_to_all() {
    let short = Duration::from_secs(1);
    for (ranks, come, want) in [
        (4, vec![1, 2], "rank 3 of 4 did not arrive within 1 s at host0:"),
        (4, vec![2], "ranks 1, 3 of 4 did not arrive within 1 s at host0:"),
        (20, vec![], "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 11 more of 20 did not arrive"),
    ] {
        let (listener, place) = listener();
        let others: Vec<_> = come
            .iter()
            .map(|&rank| join(meeting(rank, ranks, SOON), &place, facts(rank, &[])))
            .collect();
        let started = Instant::now();
        let host = meeting(0, ranks, short).host(listener, &facts(0, &[]), &[]);
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
        let said = host.unwrap_err().to_string();
        assert!(said.starts_with(want), "{said}");
        for other in others {
            assert_eq!(other.join().unwrap().unwrap_err().to_string(), said);
        }
    }
}

#[test]
fn nobody_listens_or_somebody_else_does() {
    let short = Duration::from_secs(1);
    let (free, place) = listener();
    drop(free);
    let said = meeting(1, 2, short).join(&place, &facts(1, &[])).unwrap_err().to_string();
    let want = format!("rank 0 did not answer within 1 s at {place}: ");
    assert!(said.starts_with(&want) && said.contains("refused"), "{said}");
    let nowhere = MeetingPlace { host: "no-such-host.invalid".to_owned(), ..place };
    let said = meeting(1, 2, short).join(&nowhere, &facts(1, &[])).unwrap_err().to_string();
    assert!(said.contains("at no-such-host.invalid:"), "{said}");
    // A listener that never speaks, as the agent of torchrun.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let place = MeetingPlace { host: "127.0.0.1".to_owned(), port, ports: 1 };
    let started = Instant::now();
    let error = meeting(1, 2, short).join(&place, &facts(1, &[])).unwrap_err();
    assert!(matches!(error, MeetError::Unreachable { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

/// Two jobs share a machine and a range of ports: each rank finds its own rank 0.
#[test]
fn two_jobs_do_not_meet() {
    let (first, place) = listener();
    let range = MeetingPlace { ports: 40, ..place };
    let second = meeting::listen(&range).unwrap();
    assert_ne!(first.local_addr().unwrap(), second.local_addr().unwrap());
    let other = |meeting: Meeting| Meeting { token: TOKEN + 1, ..meeting };
    let guests = [
        join(meeting(1, 2, SOON), &range, facts(1, &[("job", "a")])),
        join(other(meeting(1, 2, SOON)), &range, facts(1, &[("job", "b")])),
    ];
    let host = std::thread::spawn(move || {
        other(meeting(0, 2, SOON)).host(second, &facts(0, &[("job", "b")]), b"second")
    });
    let met = meeting(0, 2, SOON).host(first, &facts(0, &[("job", "a")]), b"first").unwrap();
    assert_eq!(met.payload, b"first");
    assert_eq!(host.join().unwrap().unwrap().payload, b"second");
    let payloads = guests.map(|guest| guest.join().unwrap().unwrap().payload);
    assert_eq!(payloads, [b"first".to_vec(), b"second".to_vec()]);
}

#[test]
fn ranks_that_fit_no_seat_are_refused() {
    for (guest, want) in [
        (meeting(1, 4, SOON), "rank 1 on host1 was started as one of 4 ranks, rank 0 on host0 as"),
        (meeting(5, 3, SOON), "host1 has a rank 5 of 3; do two runs use one port?"),
        (meeting(0, 3, SOON), "host1 has a rank 0 of 3; do two runs use one port?"),
    ] {
        let (listener, place) = listener();
        let other = join(guest, &place, facts(1, &[]));
        let said = meeting(0, 3, SOON).host(listener, &facts(0, &[]), &[]).unwrap_err().to_string();
        assert!(said.starts_with(want), "{said}");
        assert_eq!(other.join().unwrap().unwrap_err().to_string(), said);
    }
    let (listener, place) = listener();
    let twins = [(); 2].map(|()| join(meeting(1, 3, SOON), &place, facts(1, &[])));
    let said = meeting(0, 3, SOON).host(listener, &facts(0, &[]), &[]).unwrap_err().to_string();
    assert!(said.starts_with("rank 1 came twice, from host1 (process 1) and host1"), "{said}");
    assert!(twins.map(|twin| twin.join().unwrap()).iter().all(Result::is_err));
}

#[test]
fn no_free_port_is_told() {
    let (_taken, place) = listener();
    let error = meeting::listen(&place).unwrap_err();
    let want = format!("rank 0 cannot listen at {place}: ");
    assert!(error.to_string().starts_with(&want), "{error}");
}

#[test]
fn a_payload_that_is_too_long_is_refused() {
    let (listener, place) = listener();
    let other = join(meeting(1, 2, SOON), &place, facts(1, &[]));
    let payload = vec![0; LONGEST_PAYLOAD + 1];
    assert!(meeting(0, 2, SOON).host(listener, &facts(0, &[]), &payload).is_err());
    assert!(other.join().unwrap().is_err());
}

/// The greeting of a rank, to get past the first check.
fn greeting(protocol: u8) -> Vec<u8> {
    let mut bytes = b"fitGPT".to_vec();
    bytes.extend([protocol, b'G']);
    bytes.extend(TOKEN.to_le_bytes());
    bytes
}

/// Whoever connects and sends anything delays nobody and hurts nobody.
#[test]
fn strangers_are_ignored() {
    let (listener, place) = listener();
    let address = listener.local_addr().unwrap();
    let mut said: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        vec![0xFF; 100_000],
        greeting(2)[..9].to_vec(),
    ];
    for tail in [&[][..], &[0xFF; 4], &[0; 4], &[2, 0, 0, 0, b'{', b'}'], &[9, 0, 0, 0, b'[', b'[']]
    {
        said.push([&greeting(2)[..], tail].concat());
    }
    let strangers: Vec<TcpStream> = said
        .iter()
        .map(|bytes| {
            let mut stream = TcpStream::connect(address).unwrap();
            let _ = stream.write_all(bytes);
            stream
        })
        .collect();
    let started = Instant::now();
    let other = join(meeting(1, 2, SOON), &place, facts(1, &[]));
    let met = meeting(0, 2, SOON).host(listener, &facts(0, &[]), b"id").unwrap();
    assert_eq!(met.peers.len(), 1);
    assert_eq!(other.join().unwrap().unwrap().payload, b"id");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    drop(strangers);
}

#[test]
fn another_protocol_is_told_on_both_sides() {
    let (listener, place) = listener();
    let address = listener.local_addr().unwrap();
    let mut old = TcpStream::connect(address).unwrap();
    old.write_all(&greeting(9)).unwrap();
    let said = meeting(0, 2, SOON).host(listener, &facts(0, &[]), &[]).unwrap_err().to_string();
    assert!(said.contains("speaks version 9 of fitgpt's protocol, not 2"), "{said}");
    // A rank 0 of another version.
    let host = TcpListener::bind(("127.0.0.1", place.port)).unwrap();
    let other = join(meeting(1, 2, SOON), &place, facts(1, &[]));
    let (mut stream, _) = host.accept().unwrap();
    let mut greeted = [0; 16];
    stream.read_exact(&mut greeted).unwrap();
    (greeted[6], greeted[7]) = (9, b'H');
    stream.write_all(&greeted).unwrap();
    let said = other.join().unwrap().unwrap_err().to_string();
    assert!(said.contains("rank 0 speaks version 9 of fitgpt's protocol"), "{said}");
}

/// A rank 0 that answers with anything, or dies while others wait.
#[test]
fn a_strange_rank_0_is_an_error() {
    for answer in
        [&b""[..], &[0xFF; 64], &[2, 0, 0, 0, b'{', b'}'], &[4, 0, 0, 0, b'n', b'u', b'l', b'l']]
    {
        let (host, place) = listener();
        let other = join(meeting(1, 2, SOON), &place, facts(1, &[]));
        let (mut stream, _) = host.accept().unwrap();
        let mut greeted = [0; 16];
        stream.read_exact(&mut greeted).unwrap();
        greeted[7] = b'H';
        stream.write_all(&greeted).unwrap();
        stream.write_all(answer).unwrap();
        drop(stream);
        let said = other.join().unwrap().unwrap_err().to_string();
        assert!(said.contains("is gone before all ranks met"), "{said}");
    }
}

/// Ranks look for each other in any order of starting.
#[test]
fn rank_0_may_come_last() {
    let (listener, place) = listener();
    drop(listener);
    let other = join(meeting(1, 2, SOON), &place, facts(1, &[]));
    std::thread::sleep(Duration::from_millis(700));
    let listener = meeting::listen(&place).unwrap();
    meeting(0, 2, SOON).host(listener, &facts(0, &[]), b"id").unwrap();
    assert_eq!(other.join().unwrap().unwrap().payload, b"id");
}
