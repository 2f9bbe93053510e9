//! What ranks send and how long it takes, beside arithmetic by hand: 124M parameters on RTX 4070s.

use crate::typing::run_of;
use fitgpt_search::{Communication, Machine, Planned, plan_for};
use plan::Rank;
use plan::hardware::{Card, Hardware};
use plan::links::{Between, LINKS, Link, Topology};
use plan::overlap::segment_time;
use spec::RunSpec;

/// GPT-2 124M without biases, 50304 rows of vocabulary: 12 layers of 12 x 768 x 768 weights and two
/// norms, a norm at the end, positions, tokens.
const PARAMETERS: f64 = (12 * (12 * 768 * 768 + 2 * 768) + 768 + (1024 + 50304) * 768) as f64;

/// A planned run on one GPU in each of several machines.
struct Fleet {
    run: RunSpec,
    planned: Planned,
    hardware: Hardware,
}

impl Fleet {
    /// 512 sequences of 1024 tokens in an iteration.
    fn new(ranks: usize, keys: &[&str]) -> Fleet {
        let usual = ["--dataset=x", "--batch_size=16", "--gradient_accumulation_steps=32"];
        let mut run = run_of(&[&usual[..], keys].concat()).unwrap();
        run.rank = Rank { rank: 0, ranks };
        let single = run.dtype == spec::RequestedDtype::Float32;
        let hardware = Card::find("RTX 4070").unwrap().hardware(single);
        let budget = hardware.memory;
        let machine = Machine::gpu(hardware.clone(), &run, budget, budget);
        let planned = plan_for(&run, run.dims(50304).unwrap(), &machine).unwrap();
        Fleet { run, planned, hardware }
    }

    fn by(&self, topology: Topology) -> Hardware {
        Hardware { network: topology.network(), ..self.hardware.clone() }
    }

    /// What a rank sends over a network, and the seconds of an iteration.
    fn over(&self, link: &str) -> (Communication, f64) {
        let network = Some(Link::find(link).unwrap());
        let machines = self.run.rank.ranks;
        let hardware = self.by(Topology { gpus: 1, machines, inside: None, network });
        let rate = self.planned.predict(&self.run, &hardware).tokens_per_second.unwrap();
        let seconds = self.run.tokens_per_iteration() as f64 / rate;
        (self.planned.communication(&self.run, &hardware), seconds)
    }
}

fn is_near(found: f64, want: f64, part: f64) -> bool {
    (found / want - 1.0).abs() <= part
}

#[test]
fn an_all_reduce_in_f32_takes_its_bytes_over_the_rate() {
    // Each of two ranks sends half of its gradients and half of the sums: 4 bytes per parameter.
    let fleet = Fleet::new(2, &["--dtype=float32", "--zero=0"]);
    let (sent, _) = fleet.over("1GbE");
    let bytes = 4.0 * PARAMETERS;
    assert!(is_near(sent.bytes as f64, bytes, 0.002), "{} {bytes}", sent.bytes);
    // 498 MB at 0.93 Gb/s, a few latencies and passes over memory.
    assert!(is_near(sent.seconds, bytes / (0.93e9 / 8.0), 0.02), "{sent:?}");
    // Four ranks: three quarters of the gradients, three times a quarter of the sums.
    let (sent, _) = Fleet::new(4, &["--dtype=float32", "--zero=0"]).over("1GbE");
    assert!(is_near(sent.bytes as f64, 1.5 * bytes, 0.01), "{} {bytes}", sent.bytes);
}

#[test]
fn two_pcs_on_a_home_switch() {
    let fleet = Fleet::new(2, &["--dtype=bfloat16", "--reduce_dtype=bfloat16"]);
    let (sent, seconds) = fleet.over("1GbE");
    assert!(is_near(sent.bytes as f64, 2.0 * PARAMETERS, 0.002), "{sent:?}");
    assert!(is_near(sent.seconds, 2.3, 0.10), "{sent:?}");
    let computing = seconds - sent.exposed;
    assert!(is_near(computing, 4.4, 0.10), "{computing}");
    assert!(sent.hidden() < 0.3, "only one slice of many has a backward pass to hide behind");
}

#[test]
fn diloco_sends_seldom() {
    let fleet = Fleet::new(
        2,
        &["--dtype=bfloat16", "--sync=diloco", "--sync_every=30", "--eval_interval=30"],
    );
    let (sent, seconds) = fleet.over("1GbE");
    // Half of 2 bytes per parameter in both directions, once in 30 iterations.
    let bytes = 2.0 * PARAMETERS / 30.0;
    assert!(is_near(sent.bytes as f64, bytes, 0.002), "{sent:?}");
    assert!(is_near(sent.seconds, bytes / (0.93e9 / 8.0), 0.01), "{sent:?}");
    assert!(sent.exposed == sent.seconds && sent.hidden() == 0.0);
    let share = sent.exposed / seconds;
    assert!((0.01..0.02).contains(&share), "{share}");
    let every = Fleet { run: twice_as_seldom(&fleet.run), ..fleet };
    assert!(is_near(every.over("1GbE").0.seconds, sent.seconds / 2.0, 1e-6));
}

fn twice_as_seldom(run: &RunSpec) -> RunSpec {
    let mut run = run.clone();
    run.ranks.sync_every *= 2;
    run
}

#[test]
fn a_faster_link_is_never_slower() {
    for (keys, gpus, machines) in [
        (&["--dtype=bfloat16"][..], 2, 1),
        (&["--zero=0"], 1, 2),
        (&["--reduce_groups=16"], 4, 2),
        (&["--sync=diloco"], 8, 2),
    ] {
        let fleet = Fleet::new(gpus * machines, keys);
        let between = if machines > 1 { Between::Machines } else { Between::Gpus };
        let mut last = (f64::INFINITY, f64::INFINITY);
        for link in LINKS.iter().filter(|link| link.between == between) {
            let is_inside = between == Between::Gpus;
            let inside = if is_inside { Some(link) } else { Link::find("PCIe 4 x8") };
            let network = (!is_inside).then_some(link);
            let hardware = fleet.by(Topology { gpus, machines, inside, network });
            let run = fleet.planned.predict(&fleet.run, &hardware).run_seconds;
            let sent = fleet.planned.communication(&fleet.run, &hardware);
            assert!(run <= last.0 && sent.seconds <= last.1, "{keys:?} {}", link.name);
            assert!(sent.exposed >= 0.0 && sent.exposed <= sent.seconds, "{sent:?}");
            last = (run, sent.seconds);
        }
    }
}

/// The embedding of tokens is the head's weight too: its gradient is complete when the backward
/// pass has ended, and nothing is left to hide behind.
#[test]
fn what_leaves_last_is_not_hidden() {
    let fleet = Fleet::new(2, &["--dtype=bfloat16"]);
    let network = Link::find("10GbE");
    let hardware = fleet.by(Topology { gpus: 1, machines: 2, inside: None, network });
    let last = fleet.planned.program.train.iter().find(|slice| slice.ends_group).unwrap();
    let time = segment_time(&fleet.planned.plan.schedule, last.segment, &hardware);
    let rate = 0.93 * 10e9 / 8.0;
    let of = |parameters: f64| 4.0 / 2.0 * parameters / rate;
    assert!(is_near(time.communication, of(PARAMETERS), 0.03), "{time:?}");
    assert!(time.exposed >= of(50304.0 * 768.0), "{time:?}");
    // With it leave the windows that hold a part of the first layer (7.1M parameters), and the one
    // with all norms. Everything else leaves while the backward pass goes on.
    let window = 4_194_304.0_f64;
    let layer = 12.0 * 768.0 * 768.0;
    let windows = ((51328.0 * 768.0 + layer) / window).ceil() + 1.0;
    assert!(time.exposed <= of(windows * window) * 1.03, "{time:?}");
}

#[test]
fn one_rank_sends_nothing_over_any_link() {
    let fleet = Fleet::new(1, &["--dtype=bfloat16"]);
    let network = Link::find("1GbE");
    let linked = fleet.by(Topology { gpus: 1, machines: 1, inside: None, network });
    assert_eq!(linked, fleet.hardware);
    let sent = fleet.planned.communication(&fleet.run, &linked);
    assert_eq!(sent, Communication::default());
}
