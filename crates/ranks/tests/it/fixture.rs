//! Meetings of threads on the loopback interface.

use fitgpt_ranks::meeting::{self, MeetError, Meeting, Met};
use fitgpt_ranks::{Facts, MeetingPlace};
use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::Duration;

pub const TOKEN: u64 = 42;

pub fn meeting(rank: usize, ranks: usize, timeout: Duration) -> Meeting {
    Meeting { rank, ranks, token: TOKEN, timeout }
}

pub fn facts(rank: usize, list: &[(&str, &str)]) -> Facts {
    let list = list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Facts { program: "1.0".to_owned(), list, host: format!("host{rank}"), pid: rank as u32 }
}

/// A listener of rank 0 and where it is.
pub fn listener() -> (TcpListener, MeetingPlace) {
    let place = MeetingPlace { host: "127.0.0.1".to_owned(), port: 0, ports: 1 };
    let listener = meeting::listen(&place).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, MeetingPlace { port, ..place })
}

pub type Joined = Result<Met, MeetError>;

/// Another rank, on a thread.
pub fn join(meeting: Meeting, place: &MeetingPlace, facts: Facts) -> JoinHandle<Joined> {
    let place = place.clone();
    std::thread::spawn(move || meeting.join(&place, &facts))
}

/// All ranks meet and agree; they come in the order of rank.
pub fn all_meet(ranks: usize) -> Vec<Met> {
    let timeout = Duration::from_secs(30);
    let (listener, place) = listener();
    let others: Vec<_> = (1..ranks)
        .map(|rank| join(meeting(rank, ranks, timeout), &place, facts(rank, &[("lr", "1")])))
        .collect();
    let host = meeting(0, ranks, timeout).host(listener, &facts(0, &[("lr", "1")]), b"id").unwrap();
    let joined = others.into_iter().map(|other| other.join().unwrap().unwrap());
    [host].into_iter().chain(joined).collect()
}
