//! A short run of the sections that need no other program, so that the soak does not rot.

use fitgpt_soak::tally::Tally;
use fitgpt_soak::{Context, bytes, plans};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// The counters are those of the whole process, so both sections are one test.
#[test]
fn every_reader_and_some_plans() {
    let context = Context { seed: 1, ..Context::default() };
    let mut tally = Tally::default();
    let mut inputs = bytes::open(&context, "bytes").unwrap();
    for index in 0..600 {
        let (name, case) = inputs.locate(index).unwrap();
        let outcome = inputs.run(index, &mut tally);
        assert_eq!(outcome, Ok(()), "{name} {case}");
    }
    for name in bytes::names() {
        assert!(tally.sum(&format!("inputs/{name}")) > 0, "{name}");
    }
    let mut runs = plans::open(&context, "plans").unwrap();
    // 0, 11 and 20 are executed.
    for index in [0, 1, 2, 3, 11, 20] {
        assert_eq!(runs.run(index, &mut tally), Ok(()), "{index}");
    }
    assert!(tally.sum("planned") > 0 && tally.sum("executed") == 3, "{tally:?}");
}
