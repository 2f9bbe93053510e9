//! The pure sampler: inside the data, uniform, never changing, and independent of other uses.

use fitgpt_data::{Batch, BatchSampler, DataError, Split, TokenStream, Use, fill_rows};
use proptest::prelude::*;
use std::collections::HashSet;

const TRAIN: Batch = Batch { purpose: Use::Train, rank: 0, iteration: 0, micro_step: 0 };

fn stream(tokens: u64) -> TokenStream {
    TokenStream::from_memory("ramp", (0..tokens).map(|t| (t % 60_000) as u16).collect())
}

fn starts(seed: u64, batch: Batch, stream: &TokenStream, block_size: u64) -> [u64; 6] {
    let mut starts = [0; 6];
    BatchSampler { seed }.starts(batch, stream, block_size, &mut starts).unwrap();
    starts
}

/// Changing any of these numbers changes every run: say so in the changelog.
#[test]
fn batches_are_pinned() {
    let data = stream(1_003_854);
    let eval = |split| Batch { purpose: Use::Eval(split), iteration: 250, micro_step: 3, ..TRAIN };
    let cases = [
        (TRAIN, PINNED[0]),
        (Batch { iteration: 1, ..TRAIN }, PINNED[1]),
        (Batch { micro_step: 1, ..TRAIN }, PINNED[2]),
        (Batch { rank: 1, ..TRAIN }, PINNED[3]),
        (eval(Split::Train), PINNED[4]),
        (eval(Split::Val), PINNED[5]),
    ];
    for (batch, want) in cases {
        assert_eq!(starts(1337, batch, &data, 256), want, "{batch:?}");
    }
}

/// From a second implementation of Philox and of the documented layout, in Python.
const PINNED: [[u64; 6]; 6] = [
    [350622, 346788, 48675, 621829, 742165, 705529],
    [104982, 704004, 692152, 340522, 369932, 915474],
    [625134, 230541, 992165, 700764, 914391, 189718],
    [709996, 589413, 859693, 761570, 988807, 650262],
    [599034, 425142, 82531, 720957, 181375, 25478],
    [207577, 1001351, 515254, 90746, 349924, 120999],
];

#[test]
fn every_batch_has_a_stream_of_its_own() {
    let data = stream(1 << 20);
    let uses = [Use::Train, Use::Eval(Split::Train), Use::Eval(Split::Val)];
    let mut seen = HashSet::new();
    let mut count = 0;
    for purpose in uses {
        for rank in [0, 1, 7] {
            for iteration in [0, 1, 2, 600_000] {
                for micro_step in [0, 1, 2, 479] {
                    let batch = Batch { purpose, rank, iteration, micro_step };
                    for seed in [1337, 1338] {
                        seen.insert(starts(seed, batch, &data, 64));
                        count += 1;
                    }
                }
            }
        }
    }
    assert_eq!(seen.len(), count);
    // The split is part of the evaluation's name only; it says where training comes from.
    assert_eq!(uses.map(Use::split), [Split::Train, Split::Train, Split::Val]);
}

/// Evaluation at any time and in any number leaves training as it was.
#[test]
fn evaluation_never_affects_training() {
    let data = stream(5000);
    let train = |iteration| starts(1, Batch { iteration, ..TRAIN }, &data, 128);
    let alone: Vec<_> = (0..20).map(train).collect();
    let disturbed: Vec<_> = (0..20)
        .map(|iteration| {
            for micro_step in 0..iteration as u16 {
                let purpose = Use::Eval(Split::Train);
                starts(1, Batch { purpose, iteration, micro_step, ..TRAIN }, &data, 128);
            }
            train(iteration)
        })
        .collect();
    assert_eq!(alone, disturbed);
    // The same batches in reverse order.
    let backwards: Vec<_> = (0..20).rev().map(train).collect();
    assert!(alone.iter().eq(backwards.iter().rev()));
}

#[test]
fn all_places_are_equally_likely() {
    let data = stream(110);
    let mut counts = [0_u32; 10];
    for iteration in 0..2000 {
        for start in starts(9, Batch { iteration, ..TRAIN }, &data, 100) {
            counts[start as usize] += 1;
        }
    }
    // Five standard deviations of a binomial of 12,000 at 1/10.
    assert!(counts.iter().all(|count| count.abs_diff(1200) < 165), "{counts:?}");
}

#[test]
fn rows_are_tokens_and_their_successors() {
    let data = stream(1000);
    let (mut tokens, mut targets) = ([0; 12], [0; 12]);
    fill_rows(&data, &[5, 995, 100], &mut tokens, &mut targets).unwrap();
    assert_eq!(tokens, [5, 6, 7, 8, 995, 996, 997, 998, 100, 101, 102, 103]);
    assert_eq!(targets, [6, 7, 8, 9, 996, 997, 998, 999, 101, 102, 103, 104]);
    // Rows of one token; the last row that fits.
    let (mut tokens, mut targets) = ([0; 1], [0; 1]);
    fill_rows(&data, &[998], &mut tokens, &mut targets).unwrap();
    assert_eq!((tokens, targets), ([998], [999]));
    assert!(fill_rows(&data, &[999], &mut tokens, &mut targets).is_err());
    assert!(fill_rows(&data, &[u64::MAX], &mut tokens, &mut targets).is_err());
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let data = stream(1000);
    for (rows, tokens, targets) in [(0, 4, 4), (3, 4, 4), (2, 4, 6), (1, 0, 0)] {
        let starts = vec![0; rows];
        let result = fill_rows(&data, &starts, &mut vec![0; tokens], &mut vec![0; targets]);
        assert!(matches!(result, Err(DataError::Shape { .. })), "{rows} {tokens} {targets}");
    }
    let error = BatchSampler { seed: 1 }.starts(TRAIN, &data, 1000, &mut [0]).unwrap_err();
    assert!(matches!(error, DataError::TooShort { tokens: 1000, block_size: 1000, .. }));
}

proptest! {
    #[test]
    fn rows_stay_inside(
        tokens in 2..3000_u64,
        block in 1..3000_u64,
        seed in any::<u64>(),
        rank in any::<u16>(),
        iteration in any::<u32>(),
        micro_step in any::<u16>(),
    ) {
        let data = stream(tokens);
        let batch = Batch { purpose: Use::Train, rank, iteration, micro_step };
        let mut starts = [0; 5];
        let chosen = BatchSampler { seed }.starts(batch, &data, block, &mut starts);
        prop_assert_eq!(chosen.is_ok(), tokens > block);
        if chosen.is_ok() {
            let size = 5 * block as usize;
            fill_rows(&data, &starts, &mut vec![0; size], &mut vec![0; size]).unwrap();
        }
    }
}
