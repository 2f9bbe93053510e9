//! A head whose weight has more rows than the vocabulary computes the same bits as one that has
//! not, and the rows behind the vocabulary stay zero.

use crate::fixture::{Run, Setup, setup};
use fitgpt_cpu::{CpuOptions, MemoryMode};
use plan::Backend;

/// Losses, gradients and weights after two updates without clipping (the order in which the norm is
/// summed depends on the padding), and the losses of an evaluation.
fn results(setup: &Setup, run: &mut Run) -> Vec<Vec<f32>> {
    let mut all = Vec::new();
    for iteration in 0..2 {
        run.run_slices(setup, &setup.slices, false, iteration);
        all.push(run.losses());
        all.extend(run.gradients());
        run.update_at(1e-2, 0.0);
    }
    run.run_slices(setup, &setup.slices, true, 2);
    all.push(run.losses());
    all.extend(run.weights());
    all
}

#[test]
fn a_padded_head_computes_the_same_bits_and_its_padding_stays_zero() {
    for slices in [vec![7], vec![4, 3]] {
        let plain = Setup { slices, dropout: 0.2, ..setup() };
        let padded = Setup { head_rows: 64, ..plain.clone() };
        let want = results(&plain, &mut plain.run(CpuOptions::new(2)));
        for memory in [MemoryMode::Arena, MemoryMode::Separate] {
            let options = CpuOptions { memory, poison: true, ..CpuOptions::new(2) };
            let mut run = padded.run(options);
            let got = results(&padded, &mut run);
            assert!(got == want, "{memory:?}");
            for name in ["padded wte.weight", "padded grad wte.weight"] {
                let found = run.backend.plan().schedule.tensors.find(name).unwrap();
                let all = run.read(found);
                let tokens = padded.dims.vocab_size * padded.dims.n_embd;
                assert_eq!(all.len() as u64, 128 * padded.dims.n_embd);
                assert!(all[tokens as usize..].iter().all(|&x| x == 0.0), "{name}");
            }
        }
    }
}
