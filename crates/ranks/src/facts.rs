//! What all ranks must have in common: the version of the program, the settings, the data, the
//! plan. Each rank sends its facts to rank 0, which compares them with its own.

use serde_json::{Value, json};

/// The most facts of a rank, and how many bytes they may have together.
pub const MOST_FACTS: usize = 1024;
/// See [`MOST_FACTS`].
pub const LONGEST_FACTS: usize = 1 << 20;

/// Characters of a value that a message shows.
const SHOWN: usize = 80;

/// What a rank says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The version of the program.
    pub program: String,
    /// Names with values that must be the same on all ranks, in the order of comparison.
    pub list: Vec<(String, String)>,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
}

impl Facts {
    /// Those of this process.
    pub fn new(program: &str, list: Vec<(String, String)>) -> Facts {
        let (program, host) = (program.to_owned(), host_name());
        Facts { program, list, host, pid: std::process::id() }
    }

    /// The first thing in which `other`, a rank's facts, differs from these, those of rank 0.
    pub fn difference(&self, rank: usize, other: &Facts) -> Option<String> {
        let (name, theirs, ours) = self.first_difference(other)?;
        let (theirs, ours) = (shown(theirs), shown(ours));
        let (host, own) = (shown(&other.host), shown(&self.host));
        Some(format!(
            "rank {rank} on {host} differs from rank 0 on {own} in {}: {theirs} instead of {ours}",
            shown(name)
        ))
    }

    fn first_difference<'a>(&'a self, other: &'a Facts) -> Option<(&'a str, &'a str, &'a str)> {
        if self.program != other.program {
            return Some(("version", &other.program, &self.program));
        }
        let value = |facts: &'a Facts, name: &str| {
            let found = facts.list.iter().find(|(key, _)| key == name);
            found.map_or("nothing", |(_, value)| value.as_str())
        };
        let names = self.list.iter().chain(&other.list).map(|(name, _)| name.as_str());
        let mut all = names.map(|name| (name, value(other, name), value(self, name)));
        let differs = all.find(|(_, theirs, ours)| theirs != ours);
        let order = || (self.list != other.list).then_some(("the list of facts", "other", "ours"));
        differs.or_else(order)
    }

    /// For the wire. The error: they are too many or too long.
    pub(crate) fn to_json(&self, rank: usize, ranks: usize) -> Result<Vec<u8>, String> {
        let list: Vec<Value> = self.list.iter().map(|(name, value)| json!([name, value])).collect();
        let value = json!({
            "rank": rank,
            "ranks": ranks,
            "program": self.program,
            "host": self.host,
            "pid": self.pid,
            "facts": list,
        });
        let bytes = value.to_string().into_bytes();
        let (count, length) = (self.list.len(), bytes.len());
        if count <= MOST_FACTS && length <= LONGEST_FACTS {
            return Ok(bytes);
        }
        let most = format!("{MOST_FACTS} of {LONGEST_FACTS}");
        Err(format!("rank {rank} has {count} facts of {length} bytes; at most {most}"))
    }

    /// From the wire: rank, number of ranks and facts; nothing if the bytes are none of ours.
    pub(crate) fn from_json(bytes: &[u8]) -> Option<(usize, usize, Facts)> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let text = |value: &Value| Some(value.as_str()?.to_owned());
        let number = |name: &str| usize::try_from(value.get(name)?.as_u64()?).ok();
        let facts = value.get("facts")?.as_array().filter(|facts| facts.len() <= MOST_FACTS)?;
        let pair = |pair: &Value| Some((text(pair.get(0)?)?, text(pair.get(1)?)?));
        let list = facts.iter().map(pair).collect::<Option<Vec<_>>>()?;
        let (program, host) = (text(value.get("program")?)?, text(value.get("host")?)?);
        let pid = u32::try_from(value.get("pid")?.as_u64()?).ok()?;
        Some((number("rank")?, number("ranks")?, Facts { program, list, host, pid }))
    }
}

/// A text of another process for a message: short and on one line.
pub(crate) fn shown(text: &str) -> String {
    let clean: String =
        text.chars().take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(SHOWN).is_some() { format!("{clean}…") } else { clean }
}

/// The name of this machine.
pub fn host_name() -> String {
    let file = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = file.or_else(|| std::env::var("HOSTNAME").ok());
    let name = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    name.unwrap_or_else(|| "an unnamed machine".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(program: &str, list: &[(&str, &str)], host: &str) -> Facts {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let list = list.iter().map(own).collect();
        Facts { program: program.to_owned(), list, host: host.to_owned(), pid: 4 }
    }

    #[test]
    fn the_first_difference_is_named_with_both_values() {
        let ours = facts("0.1.0", &[("lr", "6e-4"), ("data", "ab12")], "n1");
        for (theirs, want) in [
            (facts("0.1.0", &[("lr", "6e-4"), ("data", "ab12")], "n2"), None),
            (facts("0.2.0", &[], "n2"), Some("in version: 0.2.0 instead of 0.1.0")),
            (
                facts("0.1.0", &[("lr", "1e-3"), ("data", "x")], "n2"),
                Some("rank 3 on n2 differs from rank 0 on n1 in lr: 1e-3 instead of 6e-4"),
            ),
            (facts("0.1.0", &[("lr", "6e-4")], "n2"), Some("in data: nothing instead of ab12")),
            (
                facts("0.1.0", &[("lr", "6e-4"), ("data", "ab12"), ("x", "1")], "n2"),
                Some("in x: 1 instead of nothing"),
            ),
            (
                facts("0.1.0", &[("lr", "6e-4"), ("data", "a\n\x1b[2J")], "n2"),
                Some("in data: a  [2J instead of ab12"),
            ),
        ] {
            let said = ours.difference(3, &theirs);
            assert_eq!(said.is_some(), want.is_some(), "{said:?}");
            assert!(
                said.as_deref().unwrap_or_default().contains(want.unwrap_or_default()),
                "{said:?}"
            );
        }
        let (short, long) = (facts("a", &[("k", "v")], "h"), "w".repeat(500));
        let said = short.difference(1, &facts("a", &[("k", &long)], "h")).unwrap();
        assert!(said.len() < 200 && said.contains("…"), "{said}");
    }

    #[test]
    fn facts_survive_the_wire() {
        let ours = facts("0.1.0", &[("lr", "6e-4"), ("name", "\"ü\"\n")], "n1");
        assert_eq!(Facts::from_json(&ours.to_json(2, 5).unwrap()), Some((2, 5, ours)));
        // A difference at the end of a long value is one.
        let long =
            |end: &str| facts("0.1.0", &[("k", &format!("{}{end}", "ü".repeat(9000)))], "n1");
        let (_, _, read) = Facts::from_json(&long("a").to_json(0, 1).unwrap()).unwrap();
        assert_eq!(long("a").difference(1, &read), None);
        assert!(long("b").difference(1, &read).is_some());
        let said = facts("0.1.0", &[("k", &"x".repeat(LONGEST_FACTS))], "n1").to_json(1, 2);
        assert!(said.unwrap_err().starts_with("rank 1 has 1 facts of 104"));
        assert!(facts("0.1.0", &[("k", "v"); MOST_FACTS + 1], "n1").to_json(1, 2).is_err());
    }

    #[test]
    fn other_bytes_are_no_facts() {
        let good = facts("0.1.0", &[("lr", "6e-4")], "n1").to_json(1, 2).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x15;
            let _ = Facts::from_json(&bad);
            assert_eq!(Facts::from_json(&good[..at]), None, "cut after {at}");
        }
        let many = format!("{{\"facts\":[{}1]}}", "1,".repeat(MOST_FACTS));
        for bytes in ["", "null", "[]", "{}", &many, "{\"rank\":-1}"] {
            assert_eq!(Facts::from_json(bytes.as_bytes()), None, "{bytes}");
        }
    }
}
