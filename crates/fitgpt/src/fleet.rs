//! Several GPUs to plan for, as `--gpus`, `--nodes` and `--link` name them, and how these connect.

use plan::Rank;
use plan::hardware::{Card, Hardware};
use plan::links::{Between, LINKS, Link, Topology};
use spec::{Settings, SpecError, Value};
use std::ops::RangeInclusive;

/// Accepted values of `--nodes`.
pub const NODES: RangeInclusive<usize> = 1..=64;

/// How many similar names the error for an unknown link lists.
const NEAREST: usize = 3;

/// What connects GPUs that the table of cards does not know.
const UNNAMED: &str = "PCIe 4 x8";

/// The machines to plan for, as given by flags.
#[derive(Clone, Copy)]
pub struct Fleet<'a> {
    /// How many there are.
    pub machines: usize,
    /// The links by name.
    pub links: &'a [String],
}

impl Fleet<'_> {
    /// GPUs of each machine.
    fn gpus(settings: &Settings) -> usize {
        match settings.get("gpus").map(|setting| &setting.value) {
            // resolve() refuses what is out of range.
            Some(&Value::Int(gpus)) => gpus.clamp(1, 64) as usize,
            _ => 1,
        }
    }

    /// The rank that is planned: the first of all.
    pub fn rank(&self, settings: &Settings) -> Rank {
        Rank { rank: 0, ranks: Fleet::gpus(settings).saturating_mul(self.machines.max(1)) }
    }

    /// How its GPUs are connected; none for a single one.
    pub fn topology(
        &self,
        settings: &Settings,
        hardware: &Hardware,
    ) -> Result<Option<Topology>, SpecError> {
        let (gpus, machines) = (Fleet::gpus(settings), self.machines.max(1));
        let refuse = |what: String| Err(SpecError::Conflict { what });
        let (mut inside, mut network) = (None, None);
        for name in self.links {
            let link = find_link(name)?;
            let place = match link.between {
                Between::Gpus => &mut inside,
                Between::Machines => &mut network,
            };
            if let Some(Link { name, .. }) = place.replace(link) {
                let (other, what) = (link.name, link.between.name());
                return refuse(format!("--link {name} and {other} both connect {what}: give one"));
            }
        }
        match network {
            Some(Link { name, .. }) if machines == 1 => {
                return refuse(format!("--link {name} connects machines: give --nodes=2 or more"));
            }
            None if machines > 1 => {
                return refuse(format!(
                    "--nodes={machines}: give the network between the machines, e.g. --link \
                     10GbE; --link all compares them, --link list lists them"
                ));
            }
            _ => {}
        }
        if gpus > 1 && inside.is_none() {
            let usual = Card::find(&hardware.name).map_or(UNNAMED, Card::usual_link);
            inside = Link::find(usual);
        }
        let topology = Topology { gpus, machines, inside, network };
        Ok((topology.ranks() > 1).then_some(topology))
    }
}

/// Finds a link in the table; the error lists similar names.
fn find_link(name: &str) -> Result<&'static Link, SpecError> {
    Link::find(name).ok_or_else(|| {
        let shown: String = name.chars().take(40).collect();
        let short: String = name.chars().take(200).collect(); // edits take the square of it
        let nearest = Link::nearest(&short, NEAREST, strsim::levenshtein).join(", ");
        let what = format!(
            "unknown --link '{shown}'; the nearest names are {nearest} (--link list lists all)"
        );
        SpecError::Conflict { what }
    })
}

/// The same fleet by each link that it could have instead, slower ones first.
pub fn by_each_link(topology: &Topology) -> impl Iterator<Item = (&'static Link, Topology)> {
    let topology = *topology;
    let between = if topology.machines > 1 { Between::Machines } else { Between::Gpus };
    LINKS.iter().filter(move |link| link.between == between).map(move |link| {
        let other = match between {
            Between::Gpus => Topology { inside: Some(link), ..topology },
            Between::Machines => Topology { network: Some(link), ..topology },
        };
        (link, other)
    })
}
