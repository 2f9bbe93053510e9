//! What a queue promises: order, no waiting in an iteration, no silent loss, no hanging.

use crate::fixture::{Broken, Collector, end, iteration, save, start};
use fitgpt_events::{Emitter, Evaluating, What};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Nobody may read the console after the run, and the process may be killed: the end is written
/// when it comes, and a sample can follow it.
#[test]
fn events_come_in_order_and_the_end_at_once() {
    let collector = Collector::default();
    let mut events = Emitter::new(vec![Box::new(collector.clone())]).unwrap();
    events.emit(start());
    (0..100).for_each(|number| events.emit(iteration(number)));
    events.emit(end());
    assert!(events.flush(&AtomicBool::new(false)));
    let whats = collector.whats();
    assert!(matches!(whats[0], What::Start(_)));
    assert_eq!(collector.iterations(), Vec::from_iter(0..100));
    assert_eq!(whats[101..], [end()]);
    events.emit(save(100));
    drop(events);
    assert_eq!(collector.whats()[101..], [end(), save(100)]);
    assert_times_are_sorted(&collector);
}

fn assert_times_are_sorted(collector: &Collector) {
    let times: Vec<f64> =
        collector.events.lock().unwrap().iter().map(|event| event.time.seconds).collect();
    assert!(times.is_sorted() && times[0] >= 0.0, "{times:?}");
}

/// log_interval=1000 and a console that nobody reads: what it shows is not pushed out by what it
/// does not.
#[test]
fn unlogged_iterations_take_no_slot_of_logged_ones() {
    let console = Collector { takes_every_event: true, ..Collector::default() };
    let mut events = Emitter::new(vec![Box::new(console.clone())]).unwrap();
    let gate = console.gate.lock().unwrap();
    for number in 0..100_000 {
        let What::Iteration(mut report) = iteration(number) else { panic!() };
        report.is_logged = number % 1000 == 0;
        events.emit(What::Iteration(report));
        events.emit(What::Evaluating(Evaluating { iter: number, share: 0.5 }));
    }
    drop(gate);
    drop(events);
    assert_eq!(console.notices(), []);
    let logged = console.iterations().into_iter().filter(|number| number % 1000 == 0);
    assert_eq!(Vec::from_iter(logged), Vec::from_iter((0..100).map(|at| at * 1000)));
    assert!(console.whats().len() > 100, "a console that is not behind gets the others too");
}

/// No iteration waits for a stalled sink, the other sink gets everything at once, and both get a
/// notice at the place where iterations are missing.
#[test]
fn a_stalled_sink_loses_iterations_and_says_so() {
    const MANY: u64 = 5000;
    let (stuck, free) = (Collector::default(), Collector::default());
    let mut events = Emitter::new(vec![Box::new(free.clone()), Box::new(stuck.clone())]).unwrap();
    let gate = stuck.gate.lock().unwrap();
    let began = Instant::now();
    for number in 0..MANY {
        events.emit(iteration(number));
        if number % 1000 == 0 {
            wait_for(|| free.iterations().len() as u64 == number + 1);
        }
    }
    // A rare event finds one of the slots that iterations leave free.
    events.emit(save(MANY));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    wait_for(|| free.whats().contains(&save(MANY)));
    drop(gate);
    drop(events);
    assert_eq!(free.iterations(), Vec::from_iter(0..MANY));
    let got = stuck.iterations();
    let dropped = MANY - got.len() as u64;
    assert!(dropped > 0 && got == Vec::from_iter(0..got.len() as u64));
    for sink in [&stuck, &free] {
        let [notice] = &sink.notices()[..] else { panic!("{:?}", sink.notices()) };
        assert_eq!(notice.dropped, Some(dropped));
        assert!(notice.text.contains(&format!("{dropped} iterations are missing")), "{notice:?}");
    }
    let whats = stuck.whats();
    assert!(matches!(whats[got.len()], What::Notice(_)), "where they are missing");
    assert_eq!(whats[got.len() + 1..], [save(MANY)]);
    assert_times_are_sorted(&stuck);
    assert_times_are_sorted(&free);
}

#[test]
fn a_rare_event_waits_for_a_slot() {
    let stuck = Collector::default();
    let mut events = Emitter::new(vec![Box::new(stuck.clone())]).unwrap();
    let gate = stuck.gate.lock().unwrap();
    (0..5000).for_each(|number| events.emit(iteration(number)));
    let sender = std::thread::spawn(move || {
        (0..200).for_each(|number| events.emit(save(number)));
    });
    std::thread::sleep(Duration::from_millis(100));
    assert!(!sender.is_finished(), "200 saves do not fit in the reserved slots");
    drop(gate);
    sender.join().unwrap();
    let saves = stuck.whats().into_iter().filter(|what| matches!(what, What::Save(_)));
    assert_eq!(Vec::from_iter(saves), Vec::from_iter((0..200).map(save)));
}

#[test]
fn a_failing_sink_gives_one_notice() {
    let collector = Collector::default();
    let broken = Box::new(Broken { panics: false });
    let mut events = Emitter::new(vec![Box::new(collector.clone()), broken]).unwrap();
    (0..10).for_each(|number| events.emit(iteration(number)));
    drop(events);
    let notices = collector.notices();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert_eq!((notices[0].text.as_str(), notices[0].dropped), ("the disk is full", None));
    assert_eq!(collector.iterations().len(), 10);
}

#[test]
fn a_panicking_sink_delays_nobody() {
    let collector = Collector::default();
    let broken = Box::new(Broken { panics: true });
    let mut events = Emitter::new(vec![Box::new(collector.clone()), broken]).unwrap();
    for number in 0..5000 {
        events.emit(iteration(number));
        events.emit(save(number));
    }
    assert!(events.flush(&AtomicBool::new(true)));
    drop(events);
    let mut notices = collector.notices();
    notices.retain(|notice| notice.dropped.is_none()); // the collector itself may be slow
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].text.contains("the broken one stopped because of a bug"), "{notices:?}");
    let saves = collector.whats().into_iter().filter(|what| matches!(what, What::Save(_))).count();
    assert_eq!(saves, 5000);
}

fn wait_for(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "it never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}
