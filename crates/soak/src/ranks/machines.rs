//! Two machines, as network namespaces with a cable between them that can be cut.

use std::process::Command;

/// The address of the first machine.
pub const FIRST: &str = "10.231.0.1";

/// Two namespaces and the cable; gone with the value.
pub struct Machines {
    names: [String; 2],
    end: String,
}

impl Machines {
    /// Makes them, which takes root's rights.
    pub fn new() -> Result<Machines, String> {
        let id = std::process::id();
        let names = ["a", "b"].map(|side| format!("fitgpt-soak-{side}-{id}"));
        let (other, end) = (format!("fsa{id}"), format!("fsb{id}"));
        let machines = Machines { names, end };
        let ([a, b], end) = (&machines.names, &machines.end);
        for command in [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("-n {a} link add {other} type veth peer name {end} netns {b}"),
            format!("-n {a} addr add {FIRST}/30 dev {other}"),
            format!("-n {b} addr add 10.231.0.2/30 dev {end}"),
            format!("-n {a} link set lo up"),
            format!("-n {b} link set lo up"),
            format!("-n {a} link set {other} up"),
            format!("-n {b} link set {end} up"),
        ] {
            ip(&command)?;
        }
        Ok(machines)
    }

    /// The words before a program that runs on a machine.
    pub fn on(&self, machine: usize) -> [&str; 4] {
        ["ip", "netns", "exec", &self.names[machine]]
    }

    /// No packet passes any more, and none says so.
    pub fn cut(&self) -> Result<(), String> {
        ip(&format!("-n {} link set {} down", self.names[1], self.end))
    }

    /// Packets pass again.
    pub fn mend(&self) -> Result<(), String> {
        ip(&format!("-n {} link set {} up", self.names[1], self.end))
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
    if output.status.success() { Ok(()) } else { Err(format!("ip {words}: {}", said.trim())) }
}
