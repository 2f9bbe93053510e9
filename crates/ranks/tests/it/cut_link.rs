//! Two machines, as network namespaces with a cable between them, and the cable is cut: no packet
//! says so, and the ranks on both sides end within the bound.

use crate::processes::{SILENCE, ended, start_at};
use requires::{Need, absent};
use std::process::Command;
use std::time::{Duration, Instant};

/// Two namespaces and the cable; gone with the test.
struct Machines {
    names: [String; 2],
}

impl Machines {
    fn new() -> Result<Machines, String> {
        let id = std::process::id();
        let machines = Machines { names: ["a", "b"].map(|side| format!("fitgpt-{side}-{id}")) };
        let [a, b] = &machines.names;
        let (end_a, end_b) = (format!("fga{id}"), format!("fgb{id}"));
        for command in [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("-n {a} link add {end_a} type veth peer name {end_b} netns {b}"),
            format!("-n {a} addr add 10.231.0.1/30 dev {end_a}"),
            format!("-n {b} addr add 10.231.0.2/30 dev {end_b}"),
            format!("-n {a} link set lo up"),
            format!("-n {a} link set {end_a} up"),
            format!("-n {b} link set {end_b} up"),
        ] {
            ip(&command)?;
        }
        Ok(machines)
    }

    fn cut(&self) {
        let [_, b] = &self.names;
        ip(&format!("-n {b} link set fgb{} down", std::process::id())).unwrap();
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split(' ')).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("ip {words}: {said}")) }
}

#[test]
fn a_cut_cable_ends_both_sides() {
    let machines = match Machines::new() {
        Ok(machines) => machines,
        Err(why) => return absent(Need::Netns, why),
    };
    // Ranks 0 and 1 are on the first machine, rank 2 is on the second.
    let mut ranks = start_at("10.231.0.1:29700", |rank| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &machines.names[rank / 2]]);
        command.arg(std::env::current_exe().unwrap());
        command
    });
    machines.cut();
    let started = Instant::now();
    for (rank, child) in ranks.iter_mut().enumerate() {
        let (code, said) = ended(child);
        assert_eq!(code, Some(5), "rank {rank}: {said}");
        let gone = if rank == 2 { 0 } else { 2 };
        let want = format!("ended: rank {gone} on host{gone} has been silent for 2 s, last seen");
        assert!(said.contains(&want), "rank {rank}: {said}");
    }
    let took = started.elapsed();
    assert!((SILENCE / 2..Duration::from_secs(15)).contains(&took), "{took:?}");
}
