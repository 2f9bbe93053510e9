//! The model of PyTorch's memory compared with measurements of PyTorch 2.11 on an H200: allocator
//! peaks in each phase of nanoGPT's loop, eager and compiled.

use fitgpt_doctor::torch::{Phase, TorchRun, WORKSPACE_HOPPER, peaks};
use model::{Dims, Gpt2};
use plan::Dtype;
use plan::ops::GeluKind;

struct Measured {
    /// Layers, heads, width, positions, vocabulary.
    model: [u64; 5],
    batch: u64,
    compute: Dtype,
    compiled: bool,
    bias: bool,
    dropout: f64,
    accumulation: u64,
    /// GiB: the first evaluation (its second batch), the first forward pass, the last forward and
    /// backward pass of the second iteration, the first optimizer step, a later evaluation.
    peaks: [f64; 6],
}

const GPT2: [u64; 5] = [12, 12, 768, 1024, 50304];
const CASE_B: [u64; 5] = [12, 12, 576, 1024, 50304];
const BABY: [u64; 5] = [6, 6, 384, 256, 65];

const MEDIUM: [u64; 5] = [24, 16, 1024, 1024, 50304];
const LARGE: [u64; 5] = [36, 20, 1280, 1024, 50304];

const fn measured(model: [u64; 5], batch: u64, compiled: bool, peaks: [f64; 6]) -> Measured {
    Measured {
        model,
        batch,
        compute: Dtype::Bf16,
        compiled,
        bias: false,
        dropout: 0.0,
        accumulation: 2,
        peaks,
    }
}

impl Measured {
    const fn computing(self, compute: Dtype) -> Measured {
        Measured { compute, ..self }
    }

    const fn in_one_micro_batch(self) -> Measured {
        Measured { accumulation: 1, ..self }
    }

    const fn with_dropout(self, dropout: f64) -> Measured {
        Measured { dropout, ..self }
    }

    const fn with_bias_and_dropout(self, dropout: f64) -> Measured {
        Measured { bias: true, dropout, ..self }
    }
}

fn table() -> Vec<Measured> {
    vec![
        measured(GPT2, 4, false, [2.683, 3.582, 5.399, 5.756, 2.311, 4.024]),
        measured(GPT2, 16, false, [8.509, 12.117, 15.074, 16.513, 3.459, 11.003]),
        measured(GPT2, 64, false, [31.817, 46.255, 53.815, 59.578, 8.06, 38.915]),
        measured(GPT2, 12, false, [6.566, 9.274, 11.382, 12.461, 3.072, 8.675])
            .in_one_micro_batch(),
        measured(CASE_B, 16, false, [8.211, 10.538, 12.98, 14.443, 2.761, 10.361])
            .computing(Dtype::F16),
        measured(MEDIUM, 4, false, [3.967, 6.989, 11.369, 11.717, 5.731, 7.026]),
        measured(LARGE, 1, false, [4.938, 6.43, 15.371, 15.452, 11.907, 10.968]),
        measured(BABY, 64, false, [0.282, 1.536, 1.687, 1.675, 0.226, 0.397]).with_dropout(0.2),
        measured(GPT2, 4, false, [2.824, 4.321, 6.517, 7.27, 2.691, 4.554]).computing(Dtype::F32),
        measured(GPT2, 8, false, [4.626, 6.573, 8.778, 9.495, 2.695, 6.358])
            .with_bias_and_dropout(0.1),
        measured(GPT2, 4, true, [1.343, 2.405, 4.222, 4.678, 2.314, 2.69]),
        measured(GPT2, 16, true, [3.661, 7.476, 10.374, 11.981, 3.462, 6.163]),
        measured(GPT2, 64, true, [12.944, 27.453, 35.013, 41.226, 8.063, 20.043]),
        measured(CASE_B, 16, true, [3.462, 5.862, 8.307, 9.897, 2.764, 5.611])
            .computing(Dtype::F16),
        measured(MEDIUM, 12, true, [3.777, 13.382, 18.531, 19.779, 6.499, 7.602]),
        measured(BABY, 64, true, [0.205, 1.54, 1.646, 1.677, 0.228, 0.32]).with_dropout(0.2),
        measured(GPT2, 8, true, [2.116, 4.223, 6.429, 7.269, 2.705, 3.851])
            .with_bias_and_dropout(0.1),
    ]
}

fn run(row: &Measured) -> TorchRun {
    let [n_layer, n_head, n_embd, block_size, vocab_size] = row.model;
    let dims = Dims { n_layer, n_head, n_embd, block_size, vocab_size, bias: row.bias };
    TorchRun {
        model: Gpt2 { gelu: GeluKind::Erf },
        dims: dims.checked().unwrap(),
        batch: row.batch,
        eval_batch: row.batch,
        positions: block_size,
        compute: row.compute,
        compiled: row.compiled,
        dropout: row.dropout,
        accumulation: row.accumulation,
        checkpointed: false,
        keeps_logits: true,
        resumed: false,
        workspace: WORKSPACE_HOPPER,
    }
}

fn predicted(row: &Measured) -> [f64; 5] {
    let found = peaks(&run(row)).unwrap();
    let of = |phase: Phase| {
        let peak = found.iter().find(|peak| peak.phase == phase).unwrap();
        peak.bytes as f64 / (1u64 << 30) as f64
    };
    [Phase::FirstEval, Phase::Forward, Phase::Backward, Phase::Optimizer, Phase::Eval].map(of)
}

/// The largest error of a phase's peak.
const NEAR: f64 = 0.10;

#[test]
fn peaks_are_near_the_measured_ones() {
    for row in table() {
        let [eval, _, forward, backward, optimizer, later] = row.peaks;
        let got = predicted(&row);
        let want = [eval, forward, backward, optimizer, later];
        let off = [0, 1, 2, 3, 4].map(|i| 100.0 * (got[i] / want[i] - 1.0));
        let line = format!(
            "{:?} x {} compiled {}: {:.3?} measured {want:.3?}: {off:+.1?} %",
            row.model, row.batch, row.compiled, got
        );
        println!("{line}");
        assert!(off.iter().all(|off| off.abs() <= 100.0 * NEAR), "{line}");
    }
}

/// Largest peaks of other runs, as they were measured alone (GiB): compiled micro-batches of 32, 12
/// and 8, and 16 with every block checkpointed.
#[test]
fn other_measured_peaks_are_near_too() {
    for (batch, checkpointed, want) in
        [(32, false, 21.7), (12, false, 9.5), (8, false, 7.1), (16, true, 7.3)]
    {
        let row = measured(GPT2, batch, true, [0.0; 6]);
        let found = peaks(&TorchRun { checkpointed, ..run(&row) }).unwrap();
        let most = found.iter().map(|peak| peak.bytes).max().unwrap() as f64;
        let off = most / (1u64 << 30) as f64 / want - 1.0;
        println!("{batch} {checkpointed}: {:+.1} %", 100.0 * off);
        assert!(off.abs() <= NEAR, "{batch}: {off}");
    }
}
