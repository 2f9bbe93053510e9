//! What hardware can do, so that plans and predictions need no device: the rates that the cost
//! model uses, and one table of NVIDIA's cards. The table's rates are nominal (dense, fp32
//! accumulation). Which share of them a program reaches depends on the family; the shares were
//! measured (`docs/experiments.md`).

use crate::bytes::Bytes;
use crate::op_times::OpTimes;

/// A GPU or CPU as the cost model sees it, with the rates that programs really reach.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// For people.
    pub name: String,
    /// Memory as the driver reports it.
    pub memory: Bytes,
    /// The part of it that driver and libraries use.
    pub context: Bytes,
    /// Matmuls, operations per second.
    pub matmul: f64,
    /// Attention, operations per second.
    pub attention: f64,
    /// Memory traffic, bytes per second.
    pub bandwidth: f64,
    /// To and from the host's memory, bytes per second.
    pub link: f64,
    /// To and from other ranks.
    pub network: Network,
    /// Extra seconds of every step: its launch, and the tail of the step before.
    pub launch: f64,
    /// Seconds that a kernel loses when it waits for a copy to or from the host's memory.
    pub copy_wait: f64,
    /// Multiprocessors, where it is known how matmuls fill them; otherwise 0.
    pub multiprocessors: u64,
    /// Whether it multiplies by warpgroups (Hopper), for which attention has its own kernels.
    pub warpgroups: bool,
    /// Times that were measured on it.
    pub times: OpTimes,
}

/// What connects a rank with the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Bytes per second that a rank sends while it receives as many, each rank from each.
    pub rate: f64,
    /// The same where ranks pass on what all of them get.
    pub gather: f64,
    /// Seconds of an exchange without content.
    pub latency: f64,
}

impl Network {
    /// For a run of one rank.
    pub const NONE: Network = Network { rate: f64::INFINITY, gather: f64::INFINITY, latency: 0.0 };

    /// Seconds of an exchange in which this rank sends so many bytes at one of the rates.
    pub fn seconds(&self, bytes: u64, rate: f64) -> f64 {
        bytes as f64 / rate + if bytes > 0 { self.latency } else { 0.0 }
    }
}

/// How a family of cards turns nominal rates into real ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// Consumer cards. They halve the rate of fp32 accumulation, so memory and attention keep up
    /// with matmuls, and they run faster than the clock at which their rates are quoted.
    GeForce,
    /// Consumer cards of the latest generation, whose driver keeps more of the memory.
    Blackwell,
    /// Workstation cards, limited by power.
    Workstation,
    /// Inference cards: limited by power too, and error correction takes a part of their memory.
    Inference,
    /// A100: large register files, mature kernels.
    Ampere,
    /// H100 and H200: matmuls far faster than kernels without their new instructions can feed.
    Hopper,
    /// RTX 20 and other consumer cards before sm_80. They are in the table so that the program can
    /// say that they are not supported.
    Turing,
    /// T4 and V100, unsupported as well.
    Older,
}

impl Family {
    /// Shares of the nominal rates that matmuls, attention and memory reach.
    const fn shares(self) -> [f64; 3] {
        match self {
            Family::GeForce | Family::Blackwell => [1.07, 0.54, 0.91],
            Family::Workstation | Family::Inference => [0.72, 0.35, 0.88],
            Family::Ampere => [0.74, 0.38, 0.88],
            Family::Hopper => [0.755, 0.175, 0.88],
            Family::Turing | Family::Older => [0.70, 0.25, 0.85],
        }
    }

    /// Rate of f32 matmuls relative to 16-bit ones: TF32 where the card has it.
    const fn single(self) -> f64 {
        match self {
            Family::Turing => 0.25,
            Family::Older => 0.125,
            _ => 0.5,
        }
    }

    /// The share of the advertised memory that the driver reports: the smallest value seen in
    /// messages from such cards (4070 11.69 of 12, 3090 23.69 of 24, 5080 15.45 of 16, L4 22.03 of
    /// 24, T4 14.75 of 16, L40S 44.39 of 48, A100 39.39 of 40, H200 139.8 of 141, V100 15.77 of 16,
    /// 2080 Ti 10.75 of 11).
    const fn reported(self) -> f64 {
        match self {
            Family::GeForce | Family::Workstation | Family::Turing => 0.974,
            Family::Blackwell => 0.965,
            Family::Inference | Family::Older => 0.918,
            Family::Ampere | Family::Hopper => 0.984,
        }
    }

    /// Bytes per second of pinned copies over the slot in which these cards usually are: PCIe 4
    /// with 16 lanes, PCIe 5 for Hopper (55 GB/s measured on an H200), PCIe 3 for the oldest.
    const fn link(self) -> f64 {
        match self {
            Family::GeForce | Family::Blackwell | Family::Workstation => 24e9,
            Family::Inference | Family::Ampere => 24e9,
            Family::Hopper => 54e9,
            Family::Turing | Family::Older => 12e9,
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// As the driver names it, without the manufacturer.
    pub name: &'static str,
    /// Advertised memory, in GB of 2^30.
    memory_gib: f64,
    /// Nominal 16-bit matmuls with fp32 accumulation, TFLOP/s.
    tflops: f64,
    /// Nominal GB/s.
    gigabytes_per_second: f64,
    family: Family,
}

const fn card(
    name: &'static str,
    memory_gib: f64,
    tflops: f64,
    gigabytes_per_second: f64,
    family: Family,
) -> Card {
    Card { name, memory_gib, tflops, gigabytes_per_second, family }
}

use Family::{Ampere, Blackwell, GeForce, Hopper, Inference, Older, Turing, Workstation};

/// All known cards.
pub const CARDS: [Card; 68] = [
    card("RTX 2060", 6.0, 25.8, 336.0, Turing),
    card("RTX 2070", 8.0, 29.9, 448.0, Turing),
    card("RTX 2070 Super", 8.0, 36.3, 448.0, Turing),
    card("RTX 2080", 8.0, 40.3, 448.0, Turing),
    card("RTX 2080 Super", 8.0, 44.6, 496.0, Turing),
    card("RTX 2080 Ti", 11.0, 53.8, 616.0, Turing),
    card("RTX 3050", 8.0, 18.2, 224.0, GeForce),
    card("RTX 3060", 12.0, 25.5, 360.0, GeForce),
    card("RTX 3060 Ti", 8.0, 32.4, 448.0, GeForce),
    card("RTX 3070", 8.0, 40.6, 448.0, GeForce),
    card("RTX 3070 Ti", 8.0, 43.5, 608.0, GeForce),
    card("RTX 3080", 10.0, 59.5, 760.0, GeForce),
    card("RTX 3080 12GB", 12.0, 61.3, 912.0, GeForce),
    card("RTX 3080 Ti", 12.0, 68.2, 912.0, GeForce),
    card("RTX 3090", 24.0, 71.2, 936.0, GeForce),
    card("RTX 3090 Ti", 24.0, 80.0, 1008.0, GeForce),
    card("RTX 4060", 8.0, 30.2, 272.0, GeForce),
    card("RTX 4060 Ti", 8.0, 44.1, 288.0, GeForce),
    card("RTX 4060 Ti 16GB", 16.0, 44.1, 288.0, GeForce),
    card("RTX 4070", 12.0, 58.3, 504.0, GeForce),
    card("RTX 4070 Super", 12.0, 71.0, 504.0, GeForce),
    card("RTX 4070 Ti", 12.0, 80.2, 504.0, GeForce),
    card("RTX 4070 Ti Super", 16.0, 88.2, 672.0, GeForce),
    card("RTX 4080", 16.0, 97.5, 717.0, GeForce),
    card("RTX 4080 Super", 16.0, 104.4, 736.0, GeForce),
    card("RTX 4090", 24.0, 165.2, 1008.0, GeForce),
    card("RTX 4050 Laptop GPU", 6.0, 17.0, 192.0, GeForce),
    card("RTX 4060 Laptop GPU", 8.0, 23.0, 256.0, GeForce),
    card("RTX 4070 Laptop GPU", 8.0, 31.0, 256.0, GeForce),
    card("RTX 4080 Laptop GPU", 12.0, 49.0, 432.0, GeForce),
    card("RTX 4090 Laptop GPU", 16.0, 66.0, 576.0, GeForce),
    card("RTX 5060", 8.0, 38.4, 448.0, Blackwell),
    card("RTX 5060 Ti", 8.0, 47.4, 448.0, Blackwell),
    card("RTX 5060 Ti 16GB", 16.0, 47.4, 448.0, Blackwell),
    card("RTX 5070", 12.0, 61.7, 672.0, Blackwell),
    card("RTX 5070 Ti", 16.0, 87.9, 896.0, Blackwell),
    card("RTX 5080", 16.0, 112.6, 960.0, Blackwell),
    card("RTX 5090", 32.0, 209.5, 1792.0, Blackwell),
    card("RTX 3050 6GB", 6.0, 13.5, 168.0, GeForce),
    card("RTX 3060 Laptop GPU", 6.0, 21.0, 336.0, GeForce),
    card("RTX 3070 Laptop GPU", 8.0, 32.0, 448.0, GeForce),
    card("RTX 3080 Laptop GPU", 8.0, 38.0, 448.0, GeForce),
    card("RTX 5060 Laptop GPU", 8.0, 26.0, 384.0, Blackwell),
    card("RTX 5070 Laptop GPU", 8.0, 33.0, 384.0, Blackwell),
    card("RTX 5070 Ti Laptop GPU", 12.0, 42.0, 672.0, Blackwell),
    card("RTX 5080 Laptop GPU", 16.0, 55.0, 896.0, Blackwell),
    card("RTX 5090 Laptop GPU", 24.0, 72.0, 896.0, Blackwell),
    card("RTX A2000", 12.0, 32.0, 288.0, Workstation),
    card("RTX A4000", 16.0, 76.7, 448.0, Workstation),
    card("RTX A4500", 20.0, 94.6, 640.0, Workstation),
    card("RTX A5000", 24.0, 111.0, 768.0, Workstation),
    card("RTX A6000", 48.0, 154.8, 768.0, Workstation),
    card("RTX 4000 Ada", 20.0, 106.9, 360.0, Workstation),
    card("RTX 6000 Ada", 48.0, 364.2, 960.0, Workstation),
    card("T4", 16.0, 65.0, 320.0, Older),
    card("V100 16GB", 16.0, 125.0, 900.0, Older),
    card("V100 32GB", 32.0, 125.0, 900.0, Older),
    card("A10", 24.0, 125.0, 600.0, Inference),
    card("A10G", 24.0, 70.0, 600.0, Inference),
    card("A40", 48.0, 149.7, 696.0, Inference),
    card("A100 40GB", 40.0, 312.0, 1555.0, Ampere),
    card("A100 80GB", 80.0, 312.0, 2039.0, Ampere),
    card("L4", 24.0, 121.0, 300.0, Inference),
    card("L40S", 48.0, 362.0, 864.0, Inference),
    card("L40", 48.0, 181.0, 864.0, Inference),
    card("H100 PCIe", 80.0, 756.0, 2000.0, Hopper),
    card("H100", 80.0, 989.4, 3350.0, Hopper),
    card("H200", 141.0, 989.4, 4800.0, Hopper),
];

/// Context, libraries and kernels as measured on an H200; an estimate for other cards.
const CONTEXT: u64 = 512 << 20;

/// Launching a kernel and waiting for the tail of the one before it.
const LAUNCH: f64 = 2.5e-6;

/// What a kernel loses when it waits for a copy. Without it, the gain of layers that keep
/// activations in host memory is predicted up to twice as large as it is on an H200. Perhaps all
/// kernels beside a copy are slower instead: the runs do not tell. No other card was measured.
const COPY_WAIT: f64 = 38e-6;

impl Card {
    /// The row for a name, however it is spelled: `RTX 4070`, `NVIDIA GeForce RTX 4070`, `rtx4070`,
    /// `NVIDIA A100-SXM4-80GB`. Every word must match, except those that manufacturers and drivers
    /// add; a memory size must be the row's. If a name matches several rows (`A100`, `4070`), the
    /// plainest one with the least memory is chosen.
    pub fn find(name: &str) -> Option<&'static Card> {
        let given = CardQuery::new(name);
        // A row that names its memory is a variant. Of several variants, the smallest is safe to
        // plan for.
        let safest = |a: &&Card, b: &&Card| {
            let variant = |card: &Card| CardQuery::new(card.name).gigabytes.is_some();
            variant(a).cmp(&variant(b)).then(a.memory_gib.total_cmp(&b.memory_gib))
        };
        let by_words = |a: &&Card, b: &&Card| a.words().len().cmp(&b.words().len());
        let exact = CARDS.iter().filter(|card| given.names(card));
        let exact = exact.min_by(|a, b| by_words(b, a).then(safest(a, b)));
        let partly = || CARDS.iter().filter(|card| given.begins(card));
        exact.or_else(|| partly().min_by(|a, b| by_words(a, b).then(safest(a, b))))
    }

    /// Similar names: those with the most words in common first, then by spelling. `distance`
    /// counts the edits between two texts.
    pub fn nearest(
        name: &str,
        count: usize,
        distance: fn(&str, &str) -> usize,
    ) -> Vec<&'static str> {
        let given = CardQuery::new(name);
        let squeezed_name = squeezed(name);
        let mut ranked: Vec<(usize, usize, &str)> = CARDS
            .iter()
            .map(|card| {
                let words = card.words();
                let common = given.words.iter().filter(|word| words.contains(word)).count();
                let missing = given.words.len() - common;
                (missing, distance(&squeezed_name, &squeezed(card.name)), card.name)
            })
            .collect();
        ranked.sort_unstable();
        ranked.into_iter().take(count).map(|(_, _, name)| name).collect()
    }

    /// The words of its name, without a memory size.
    fn words(&self) -> Vec<String> {
        CardQuery::new(self.name).words
    }

    /// Whether it has the instructions that the kernels need (sm_80).
    pub fn is_supported(&self) -> bool {
        !matches!(self.family, Turing | Older)
    }

    /// The name of the link that usually connects several of them in one machine: two consumer
    /// cards share the 16 lanes of a desktop's processor, servers have 16 for each.
    pub fn usual_link(&self) -> &'static str {
        match (self.family, self.name) {
            (Family::GeForce, _) => "PCIe 4 x8",
            (Family::Blackwell, _) => "PCIe 5 x8",
            (Family::Workstation | Family::Inference, _) => "PCIe 4 x16",
            (Family::Ampere, _) => "NVLink 3",
            (Family::Hopper, "H100 PCIe") => "PCIe 5 x16",
            (Family::Hopper, _) => "NVLink 4",
            (Family::Turing, _) => "PCIe 3 x8",
            (Family::Older, _) => "PCIe 3 x16",
        }
    }

    /// Only Hopper was measured closely enough.
    fn multiprocessors(&self) -> u64 {
        match (self.family, self.name) {
            (Family::Hopper, "H100 PCIe") => 114,
            (Family::Hopper, _) => 132,
            _ => 0,
        }
    }

    /// As the cost model sees it, for 16-bit matmuls or for f32 ones (TF32, half the rate).
    pub fn hardware(&self, single: bool) -> Hardware {
        let [matmul, attention, bandwidth] = self.family.shares();
        let rate = self.tflops * 1e12 * if single { self.family.single() } else { 1.0 };
        let memory = (self.memory_gib * self.family.reported() * (1u64 << 30) as f64) as u64;
        Hardware {
            name: self.name.to_string(),
            memory: Bytes::new(memory).unwrap_or(Bytes::ZERO),
            context: Bytes::new(CONTEXT).unwrap_or(Bytes::ZERO),
            matmul: rate * matmul,
            attention: rate * attention,
            bandwidth: self.gigabytes_per_second * 1e9 * bandwidth,
            link: self.family.link(),
            network: Network::NONE,
            launch: LAUNCH,
            copy_wait: COPY_WAIT,
            multiprocessors: self.multiprocessors(),
            warpgroups: self.family == Family::Hopper,
            times: OpTimes::default(),
        }
    }
}

/// A name as the user spelled it.
struct CardQuery {
    /// Letters and digits separated, without what manufacturers add.
    words: Vec<String>,
    /// `80GB`.
    gigabytes: Option<f64>,
}

/// What manufacturers and drivers add to a name.
const ADDED: [&str; 12] = [
    "nvidia",
    "geforce",
    "tesla",
    "quadro",
    "graphics",
    "gpu",
    "card",
    "generation",
    "gddr",
    "hbm",
    "sxm",
    "edition",
];

/// Words like `nvidia`, also with a number after them: `sxm4`, `hbm3e`.
fn is_added(part: &str) -> bool {
    let number = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || c == 'e');
    ADDED.iter().any(|added| part.strip_prefix(added).is_some_and(number))
}

impl CardQuery {
    fn new(name: &str) -> CardQuery {
        let lower = name.to_ascii_lowercase();
        let parts = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|p| !p.is_empty());
        let (mut words_found, mut gigabytes) = (Vec::new(), None);
        for part in parts {
            let memory = part.strip_suffix("gb").or_else(|| part.strip_suffix("gib"));
            if let Some(size) = memory.and_then(|number| number.parse::<f64>().ok()) {
                gigabytes = Some(size);
            } else if part == "gb" || part == "gib" {
                gigabytes = words_found.pop().and_then(|word: String| word.parse().ok());
            } else if !is_added(part) {
                words_found.extend(words(part));
            }
        }
        CardQuery { words: words_found, gigabytes }
    }

    fn has_memory_of(&self, card: &Card) -> bool {
        self.gigabytes.is_none_or(|size| (size / card.memory_gib - 1.0).abs() < 0.1)
    }

    /// Whether these are exactly the words of a row, in order. A card counts as `PCIe` unless its
    /// row names another form.
    fn names(&self, card: &Card) -> bool {
        let own = card.words();
        let plain: Vec<String> =
            self.words.iter().filter(|word| *word != "pcie").cloned().collect();
        (self.words == own || plain == own) && self.has_memory_of(card)
    }

    /// Whether a row contains these words, in order.
    fn begins(&self, card: &Card) -> bool {
        let own = card.words();
        let mut rest = own.iter();
        let numbered = self.words.iter().any(|word| word.chars().any(|c| c.is_ascii_digit()));
        numbered
            && self.words.iter().all(|word| rest.any(|other| other == word))
            && self.has_memory_of(card)
    }
}

/// Runs of letters and runs of digits, in lower case.
fn words(name: &str) -> Vec<String> {
    let kind = |c: char| (c.is_ascii_alphabetic(), c.is_ascii_digit());
    let mut words: Vec<String> = Vec::new();
    let mut last = (false, false);
    for c in name.chars().map(|c| c.to_ascii_lowercase()) {
        match (kind(c), words.last_mut()) {
            ((false, false), _) => {}
            (now, Some(word)) if now == last => word.push(c),
            _ => words.push(c.to_string()),
        }
        last = kind(c);
    }
    words
}

/// Letters and digits alone, in lower case.
fn squeezed(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_however_they_are_spelled() {
        for (given, want) in [
            ("RTX 4070", "RTX 4070"),
            ("NVIDIA GeForce RTX 4070", "RTX 4070"),
            ("rtx4070ti", "RTX 4070 Ti"),
            ("RTX 4070 Ti SUPER", "RTX 4070 Ti Super"),
            ("NVIDIA GeForce RTX 4070 Laptop GPU", "RTX 4070 Laptop GPU"),
            ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
            ("NVIDIA H100 80GB HBM3", "H100"),
            ("NVIDIA H100 PCIe", "H100 PCIe"),
            ("NVIDIA H200", "H200"),
            ("L40S", "L40S"),
            ("Tesla T4", "T4"),
        ] {
            assert_eq!(Card::find(given).map(|card| card.name), Some(want), "{given}");
        }
        for (given, want) in [
            ("A100", "A100 40GB"),
            ("V100", "V100 16GB"),
            ("RTX 3050", "RTX 3050"),
            ("RTX 4060 Ti 16GB", "RTX 4060 Ti 16GB"),
            ("4070", "RTX 4070"),
            ("3060", "RTX 3060"),
            ("RTX 3060 12GB", "RTX 3060"),
            ("RTX 3060 Laptop GPU", "RTX 3060 Laptop GPU"),
            ("RTX 3050 6GB", "RTX 3050 6GB"),
            ("RTX 3080 Ti 12GB", "RTX 3080 Ti"),
            ("RTX 3080 12 GB", "RTX 3080 12GB"),
            ("NVIDIA GeForce RTX 5090 Laptop GPU", "RTX 5090 Laptop GPU"),
            ("NVIDIA H100 NVL", "none"),
            ("RTX 4090 xyz T4", "none"),
            ("RTX 4070 64GB", "none"),
            ("RTX", "none"),
            ("Voodoo 2", "none"),
            ("", "none"),
        ] {
            assert_eq!(Card::find(given).map_or("none", |card| card.name), want, "{given}");
        }
        let nearest = |name, count| Card::nearest(name, count, strsim::levenshtein);
        assert_eq!(nearest("RTX 4071", 1), ["RTX 4070"]);
        assert!(nearest("RTX 4070 Max-Q", 4).iter().all(|name| name.contains("4070")));
    }

    #[test]
    fn rows_are_plausible_and_named_once() {
        for (index, card) in CARDS.iter().enumerate() {
            assert!(CARDS[..index].iter().all(|other| other.name != card.name), "{}", card.name);
            let hardware = card.hardware(false);
            let link = crate::links::Link::find(card.usual_link());
            assert_eq!(link.map(|link| link.name), Some(card.usual_link()));
            assert!(
                hardware.matmul > hardware.attention && hardware.bandwidth > 1e11,
                "{hardware:?}"
            );
            let intensity = hardware.matmul / hardware.bandwidth;
            assert!((20.0..400.0).contains(&intensity), "{}: {intensity}", card.name);
        }
    }
}
