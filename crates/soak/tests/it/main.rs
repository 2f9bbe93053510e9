//! A short run of the sections that need no other program, so that the soak keeps working.

use fitgpt_soak::tally::Tally;
use fitgpt_soak::{Environment, bytes, plans};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// The allocation counters are per process, so both sections are in one test.
#[test]
fn every_reader_and_some_plans() {
    let environment = Environment { seed: 1, ..Environment::default() };
    let mut tally = Tally::default();
    let mut inputs = bytes::open(&environment, "bytes").unwrap();
    for index in 0..600 {
        let (name, case) = inputs.locate(index).unwrap();
        let outcome = inputs.run(index, &mut tally);
        assert_eq!(outcome, Ok(()), "{name} {case}");
    }
    for name in bytes::names() {
        assert!(tally.sum(&format!("inputs/{name}")) > 0, "{name}");
    }
    let mut runs = plans::open(&environment, "plans").unwrap();
    // Cases 0, 11 and 20 are executed.
    for index in [0, 1, 2, 3, 11, 20] {
        assert_eq!(runs.run(index, &mut tally), Ok(()), "{index}");
    }
    assert!(tally.sum("planned") > 0 && tally.sum("executed") == 3, "{tally:?}");
}
