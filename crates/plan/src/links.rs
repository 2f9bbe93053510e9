//! What connects the GPUs of a run: one table of links, and the rate that a rank gets of them. A
//! rate is what programs reach in each direction while both are used, because ranks send and
//! receive at the same time. It is not what is printed on the box.

use crate::hardware::Network;

/// What a link connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// GPUs of one machine.
    Gpus,
    /// Machines. All GPUs of a machine share its network card.
    Machines,
}

impl Between {
    /// One word for reports.
    pub const fn name(self) -> &'static str {
        match self {
            Between::Gpus => "GPUs",
            Between::Machines => "machines",
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// As reports name it.
    pub name: &'static str,
    /// Other names, as [`spelled`] writes them.
    aliases: &'static [&'static str],
    /// What it connects.
    pub between: Between,
    /// Bytes per second in each direction while both are used.
    pub rate: f64,
    /// Seconds of an exchange without content.
    pub latency: f64,
    /// Where the rate comes from.
    pub source: &'static str,
}

const fn pcie(
    name: &'static str,
    aliases: &'static [&'static str],
    nominal: f64,
    source: &'static str,
) -> Link {
    let (rate, latency) = (nominal * PCIE, INSIDE);
    Link { name, aliases, between: Between::Gpus, rate, latency, source }
}

const fn nvlink(
    name: &'static str,
    aliases: &'static [&'static str],
    nominal: f64,
    source: &'static str,
) -> Link {
    let (rate, latency) = (nominal * NVLINK, INSIDE);
    Link { name, aliases, between: Between::Gpus, rate, latency, source }
}

/// `gigabits` is the nominal rate, of which programs reach `share`.
const fn network(
    name: &'static str,
    aliases: &'static [&'static str],
    (gigabits, share): (f64, f64),
    latency: f64,
    source: &'static str,
) -> Link {
    let rate = gigabits * share * 1e9 / 8.0;
    Link { name, aliases, between: Between::Machines, rate, latency, source }
}

/// The share of PCIe's nominal rate that NCCL reaches between cards that cannot read each other's
/// memory, as GeForce cannot: bytes pass through the host's memory. NCCL's bus bandwidth for
/// 16 MiB on four RTX 4090 with PCIe 4 x16 was 12.6 of 31.5 GB/s (tinygrad/open-gpu-kernel-modules,
/// pull request 22). Cards that can reach more: 18 GB/s on A40 (NVIDIA/nccl-tests, issue 74).
const PCIE: f64 = 0.40;

/// The share of NVLink's nominal rate that NCCL reaches: 208 of 300 GB/s on A100
/// (NVIDIA/nccl-tests, issue 178). Other generations were not looked up.
const NVLINK: f64 = 0.69;

/// The share that TCP reaches in both directions together: `iperf3 --bidir` shows 931 and 933 Mb/s
/// on 1 Gb/s. Frames of 1500 bytes permit 941, acknowledgements take the rest.
const TCP: f64 = 0.93;

/// TCP where one stream is limited by a core: NCCL reached 60 % of 32 Gb/s with one stream
/// (NVIDIA/nccl, issue 209) and now opens several. An estimate.
const FAST_TCP: f64 = 0.80;

/// NCCL over TCP on 100 Gb/s, 16 ranks: 6 GB/s (NVIDIA/nccl, issue 398).
const FASTEST_TCP: f64 = 0.48;

/// RDMA (InfiniBand, RoCE): NCCL reached 85 to 96 % of four 200 Gb cards (NVIDIA/nccl-tests,
/// issue 119), 600 of 800 Gb/s over RoCE (NVIDIA/nccl, issue 495), and at 32 MiB 41 of 50 GB/s on
/// 400 Gb (NVIDIA/nccl-tests, issue 232).
const RDMA: f64 = 0.85;

/// Seconds of NCCL's smallest exchange between GPUs of one machine: 11 to 12 µs on RTX 4090
/// (tinygrad/open-gpu-kernel-modules, issue 17).
const INSIDE: f64 = 12e-6;

/// The same over TCP: 38 to 46 µs (NVIDIA/nccl-tests, issue 82). A switch at home takes longer.
const BY_TCP: f64 = 50e-6;
const AT_HOME: f64 = 100e-6;

/// The same over RDMA: an estimate between the two.
const BY_RDMA: f64 = 20e-6;

const OF_PCIE: &str = "40 % of nominal, as NCCL on GeForce cards, through host memory";
const OF_NVLINK: &str = "69 % of nominal, as NCCL on A100";
const OF_TCP: &str = "93 % of nominal, as iperf3 in both directions";
const OF_FAST_TCP: &str = "80 % of nominal: an estimate for TCP with several streams";
const OF_RDMA: &str = "85 % of nominal, as NCCL over InfiniBand and RoCE";

/// All known links, slower ones first.
pub const LINKS: [Link; 20] = [
    pcie("PCIe 3 x8", &[], 7.88e9, OF_PCIE),
    pcie("PCIe 3 x16", &["pcie3"], 15.75e9, OF_PCIE),
    pcie("PCIe 4 x8", &[], 15.75e9, OF_PCIE),
    pcie("PCIe 4 x16", &["pcie4"], 31.5e9, OF_PCIE),
    pcie("PCIe 5 x8", &[], 31.5e9, OF_PCIE),
    pcie("PCIe 5 x16", &["pcie5"], 63.0e9, OF_PCIE),
    nvlink("NVLink bridge", &["nvlink3090", "nvlinka6000"], 56.25e9, OF_NVLINK),
    nvlink("NVLink 2", &["nvlinkv100"], 150e9, OF_NVLINK),
    nvlink("NVLink 3", &["nvlinka100"], 300e9, OF_NVLINK),
    nvlink("NVLink 4", &["nvlinkh100", "nvlinkh200"], 450e9, OF_NVLINK),
    nvlink("NVLink 5", &["nvlinkb200", "nvlinkb100"], 900e9, OF_NVLINK),
    network("1GbE", &["gigabit", "ethernet"], (1.0, TCP), AT_HOME, OF_TCP),
    network("2.5GbE", &[], (2.5, TCP), AT_HOME, OF_TCP),
    network("10GbE", &[], (10.0, TCP), BY_TCP, OF_TCP),
    network("25GbE", &[], (25.0, FAST_TCP), BY_TCP, OF_FAST_TCP),
    network("40GbE", &[], (40.0, FAST_TCP), BY_TCP, OF_FAST_TCP),
    network("100GbE", &["100gbetcp"], (100.0, FASTEST_TCP), BY_TCP, "6 GB/s: NCCL over TCP"),
    network(
        "100Gb RDMA",
        &["edr", "100gbeedr", "100gbeinfiniband", "100gberoce", "100gberdma"],
        (100.0, RDMA),
        BY_RDMA,
        OF_RDMA,
    ),
    network(
        "200Gb RDMA",
        &["hdr", "200gbe", "200gbehdr", "200gbeinfiniband", "200gberoce", "200gberdma"],
        (200.0, RDMA),
        BY_RDMA,
        OF_RDMA,
    ),
    network(
        "400Gb RDMA",
        &["ndr", "400gbe", "400gbendr", "400gbeinfiniband", "400gberoce", "400gberdma"],
        (400.0, RDMA),
        BY_RDMA,
        OF_RDMA,
    ),
];

impl Link {
    /// The row for a name, however it is spelled: `25GbE`, `25 Gb/s`, `PCIe Gen4 x8`, `NVLink4`.
    pub fn find(name: &str) -> Option<&'static Link> {
        let given = spelled(name);
        let is_it = |link: &&Link| spelled(link.name) == given || link.aliases.contains(&&*given);
        LINKS.iter().find(is_it)
    }

    /// The names that are spelled most alike. `distance` counts the edits between two texts.
    pub fn nearest(
        name: &str,
        count: usize,
        distance: fn(&str, &str) -> usize,
    ) -> Vec<&'static str> {
        let given = spelled(name);
        let mut ranked: Vec<(usize, &str)> =
            LINKS.iter().map(|link| (distance(&given, &spelled(link.name)), link.name)).collect();
        ranked.sort_by_key(|(distance, _)| *distance); // stable: slower ones first
        ranked.into_iter().take(count).map(|(_, name)| name).collect()
    }
}

/// A name in the one form that is compared: lower case, without spaces and signs; `pcie4x8` for
/// `PCIe Gen 4.0 x8`, `25gbe` for any way to write 25 Gb/s.
fn spelled(name: &str) -> String {
    // 25 GB/s are eight times 25 Gb/s.
    let bytes = ["GB/s", "GBps", "GB"].iter().any(|unit| name.contains(unit));
    let lower = name.to_ascii_lowercase().replace("express", "e").replace("gen", "");
    let kept = |c: &char| c.is_ascii_alphanumeric() || *c == '.';
    let text: String = lower.chars().filter(kept).collect::<String>().replace(".0", "");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    const GIGABITS: [&str; 10] =
        ["gbitethernet", "gbits", "gbit", "gigabit", "gbps", "gbe", "gbs", "gb", "ge", "g"];
    let rest = GIGABITS.iter().find_map(|word| unit.strip_prefix(word));
    match rest {
        Some(rest) if !number.is_empty() && !bytes => format!("{number}gbe{rest}"),
        _ => text,
    }
}

/// How the GPUs of a run are connected. All machines are alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Topology {
    /// GPUs of each machine, at least 1.
    pub gpus: usize,
    /// Machines, at least 1.
    pub machines: usize,
    /// What connects the GPUs of a machine; none if that does not matter.
    pub inside: Option<&'static Link>,
    /// What connects machines; none with one machine.
    pub network: Option<&'static Link>,
}

impl Topology {
    /// How many ranks there are: one for each GPU.
    pub fn ranks(&self) -> usize {
        self.gpus.saturating_mul(self.machines).max(1)
    }

    /// What a rank gets of the links. The slowest one on its way bounds it.
    ///
    /// In a reduce-scatter, every rank sends each other rank a piece. The pieces for other machines
    /// pass the machine's one network card, and so do those of its other GPUs. In an all-gather,
    /// NCCL passes pieces on from GPU to GPU in a ring, so that each enters a machine once.
    ///
    /// It assumes a switch that carries the full rate of all ports, and slots that do not share
    /// lanes.
    pub fn network(&self) -> Network {
        let (gpus, ranks) = (self.gpus.max(1) as f64, self.ranks() as f64);
        if self.ranks() == 1 {
            return Network::NONE;
        }
        let mut found = Network::NONE;
        if let Some(inside) = self.inside {
            found = Network { rate: inside.rate, gather: inside.rate, latency: inside.latency };
        }
        if let Some(network) = self.network.filter(|_| self.machines > 1) {
            let to_others = (ranks - gpus) / (ranks - 1.0);
            found.rate = found.rate.min(network.rate / (gpus * to_others));
            found.gather = found.gather.min(network.rate);
            found.latency = found.latency.max(network.latency);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str) -> &'static Link {
        Link::find(name).unwrap_or_else(|| panic!("{name}"))
    }

    #[test]
    fn names_are_found_however_they_are_spelled() {
        for (given, want) in [
            ("25GbE", "25GbE"),
            ("25 gbe", "25GbE"),
            ("25G", "25GbE"),
            ("25 Gb/s", "25GbE"),
            ("25Gbps", "25GbE"),
            ("10 Gbit Ethernet", "10GbE"),
            ("2.5Gb", "2.5GbE"),
            ("1GbE", "1GbE"),
            ("Gigabit", "1GbE"),
            ("pcie4x8", "PCIe 4 x8"),
            ("PCIe Gen4 x8", "PCIe 4 x8"),
            ("PCIe 4.0 x16", "PCIe 4 x16"),
            ("PCI Express 5.0 x16", "PCIe 5 x16"),
            ("nvlink4", "NVLink 4"),
            ("NVLink-bridge", "NVLink bridge"),
            ("HDR", "200Gb RDMA"),
            ("400Gb InfiniBand", "400Gb RDMA"),
            ("100GbE RoCE", "100Gb RDMA"),
            ("100GbE", "100GbE"),
            ("400G", "400Gb RDMA"),
        ] {
            assert_eq!(Link::find(given).map(|link| link.name), Some(want), "{given}");
        }
        for unknown in ["25 GB/s", "7GbE", "", "PCIe", "smoke signals", "²", "Gb"] {
            assert_eq!(Link::find(unknown), None, "{unknown}");
        }
        let nearest = |name| Link::nearest(name, 1, strsim::levenshtein);
        assert_eq!(nearest("24GbE"), ["25GbE"]);
        assert_eq!(nearest("PCIe 4 x4"), ["PCIe 4 x8"]);
    }

    #[test]
    fn rows_are_named_once_and_lead_to_themselves() {
        for (index, row) in LINKS.iter().enumerate() {
            assert_eq!(link(row.name), row);
            for alias in row.aliases {
                assert_eq!((link(alias), spelled(alias).as_str()), (row, *alias));
            }
            assert!(row.rate > 1e8 && row.latency > 0.0 && row.latency < 1e-3);
            // Of two links of one kind, the later is never slower.
            let before = LINKS[..index].iter().rfind(|other| other.between == row.between);
            assert!(
                before.is_none_or(|other| other.rate <= row.rate && other.latency >= row.latency),
                "{}",
                row.name
            );
        }
    }

    #[test]
    fn the_slowest_link_on_the_way_bounds_a_rank() {
        let [pcie, net] = [link("PCIe 4 x8"), link("25GbE")];
        let of = |gpus, machines, inside, network| {
            let found = Topology { gpus, machines, inside, network }.network();
            (found.rate, found.gather)
        };
        assert_eq!(of(1, 1, None, None), (f64::INFINITY, f64::INFINITY));
        assert_eq!(of(2, 1, Some(pcie), None), (6.3e9, 6.3e9));
        // One GPU in each machine has the network card to itself.
        assert_eq!(of(1, 2, None, Some(net)), (2.5e9, 2.5e9));
        assert_eq!(of(1, 4, None, Some(net)), (2.5e9, 2.5e9));
        // Eight GPUs share it, and send 8 of 15 pieces to the other machine.
        let (rate, gather) = of(8, 2, Some(pcie), Some(net));
        assert!((rate - 2.5e9 / 8.0 * 15.0 / 8.0).abs() < 1.0 && gather == 2.5e9, "{rate}");
        // The network is faster than the slots.
        assert_eq!(of(2, 2, Some(pcie), Some(link("400Gb RDMA"))), (6.3e9, 6.3e9));
    }
}
