//! Predictions compared with our own measurements on an H200: `bench` of several runs, op by op.
//! The rates and shares of the cost model were fitted to these.

use crate::typing::run_of;
use fitgpt_search::{Cut, Machine, Planned, StateOptions, plan_again};
use model::Level::{self, R0, R1, R2, R2h, R3q, R4, R5, R6};
use plan::cost::step_seconds;
use plan::hardware::Card;
use plan::ops::Op;
use plan::{Bytes, Dtype, GpuScratch, Scratch, SegmentId, Tensors};
use spec::RunSpec;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A plan and what `bench` measured.
struct Measured {
    name: &'static str,
    /// Layers, heads, width.
    model: (u64, u64, u64),
    /// Sequences of a micro-batch, micro-batches, and positions.
    batch: (u64, u64, u64),
    dtype: &'static str,
    /// Sequences of a slice, and how many slices of them.
    slices: &'static [(u64, usize)],
    head_chunk: u64,
    levels: &'static [(Level, usize)],
    /// None if some kernels were others then; their ops are not listed.
    tokens_per_second: Option<f64>,
    /// Whether matmuls added the residual stream then.
    adds: bool,
    /// Milliseconds of an iteration.
    ops: &'static [(&'static str, f64)],
}

const SMALL: (u64, u64, u64) = (12, 12, 768);
const LARGE: (u64, u64, u64) = (36, 20, 1280);
const XL: (u64, u64, u64) = (48, 25, 1600);
const WIDE_HEADS: (u64, u64, u64) = (12, 6, 768);
const CASE_B: (u64, u64, u64) = (12, 12, 576);
const MEDIUM: (u64, u64, u64) = (24, 16, 1024);

const ALL: &[Measured] = &[
    Measured {
        name: "a",
        model: SMALL,
        batch: (64, 1, 1024),
        dtype: "bfloat16",
        slices: &[(32, 2)],
        head_chunk: 4096,
        levels: &[(R1, 2), (R0, 10)],
        tokens_per_second: Some(632244.6),
        adds: false,
        ops: &[
            ("head_train", 24.12),
            ("linear", 10.68),
            ("linear_gelu", 6.49),
            ("linear_backward_input", 11.00),
            ("linear_backward_gelu", 7.81),
            ("linear_backward_weight", 17.84),
            ("attention", 5.00),
            ("attention_backward", 13.68),
            ("layernorm", 2.60),
            ("layernorm_backward", 3.02),
            ("embed_backward", 0.30),
            ("adamw", 1.02),
        ],
    },
    Measured {
        name: "a no limit",
        model: SMALL,
        batch: (64, 1, 1024),
        dtype: "bfloat16",
        slices: &[(64, 1)],
        head_chunk: 16384,
        levels: &[(R0, 12)],
        tokens_per_second: Some(644537.7),
        adds: false,
        ops: &[
            ("head_train", 23.38),
            ("linear", 10.27),
            ("linear_gelu", 6.32),
            ("linear_backward_input", 10.60),
            ("linear_backward_gelu", 7.58),
            ("linear_backward_weight", 17.28),
            ("attention", 4.76),
            ("attention_backward", 13.54),
            ("layernorm", 2.47),
            ("layernorm_backward", 2.87),
            ("embed_backward", 0.27),
            ("adamw", 1.02),
        ],
    },
    Measured {
        name: "b",
        model: CASE_B,
        batch: (16, 32, 1024),
        dtype: "float16",
        slices: &[(32, 16)],
        head_chunk: 16384,
        levels: &[(R0, 12)],
        tokens_per_second: Some(842187.5),
        adds: false,
        ops: &[
            ("head_train", 152.90),
            ("linear", 53.74),
            ("linear_gelu", 34.19),
            ("linear_backward_input", 56.03),
            ("linear_backward_gelu", 42.42),
            ("linear_backward_weight", 93.33),
            ("attention", 38.30),
            ("attention_backward", 103.28),
            ("layernorm", 18.00),
            ("layernorm_backward", 20.17),
            ("embed_backward", 2.25),
            ("adamw", 0.68),
        ],
    },
    Measured {
        name: "350M",
        model: MEDIUM,
        batch: (12, 8, 1024),
        dtype: "bfloat16",
        slices: &[(12, 8)],
        head_chunk: 2048,
        levels: &[(R3q, 1), (R2, 23)],
        tokens_per_second: Some(222837.0),
        adds: false,
        ops: &[
            ("head_train", 46.55),
            ("linear", 59.45),
            ("linear_gelu", 35.00),
            ("linear_backward_input", 60.49),
            ("linear_backward_gelu", 39.24),
            ("linear_backward_weight", 88.02),
            ("attention", 20.94),
            ("attention_backward", 55.74),
            ("layernorm", 11.27),
            ("layernorm_backward", 15.80),
            ("embed_backward", 0.61),
            ("adamw", 2.92),
        ],
    },
    Measured {
        name: "774M",
        model: LARGE,
        batch: (4, 16, 1024),
        dtype: "bfloat16",
        slices: &[(3, 20), (2, 2)],
        head_chunk: 1024,
        levels: &[(R5, 1), (R3q, 10), (R2, 25)],
        tokens_per_second: Some(94440.7),
        adds: false,
        ops: &[
            ("head_train", 40.12),
            ("linear", 111.85),
            ("linear_gelu", 56.21),
            ("linear_backward_input", 99.51),
            ("linear_backward_gelu", 61.26),
            ("linear_backward_weight", 175.01),
            ("attention", 28.84),
            ("attention_backward", 79.56),
            ("layernorm", 18.94),
            ("layernorm_backward", 32.83),
            ("embed_backward", 0.84),
            ("adamw", 6.15),
        ],
    },
    Measured {
        name: "1558M",
        model: XL,
        batch: (4, 16, 1024),
        dtype: "bfloat16",
        slices: &[(5, 12), (4, 1)],
        head_chunk: 2048,
        levels: &[(R5, 2), (R4, 46)],
        tokens_per_second: Some(40414.6),
        adds: false,
        ops: &[
            ("head_train", 50.38),
            ("linear", 369.28),
            ("linear_gelu", 104.57),
            ("linear_backward_input", 198.99),
            ("linear_backward_gelu", 112.88),
            ("linear_backward_weight", 305.97),
            ("attention", 46.97),
            ("attention_backward", 127.67),
            ("layernorm", 49.13),
            ("layernorm_backward", 41.60),
            ("embed_backward", 0.76),
            ("adamw", 18.28),
        ],
    },
    Measured {
        name: "t4096",
        model: SMALL,
        batch: (4, 4, 4096),
        dtype: "bfloat16",
        slices: &[(8, 2)],
        head_chunk: 16384,
        levels: &[(R2, 5), (R1, 1), (R0, 6)],
        tokens_per_second: Some(475272.1),
        adds: false,
        ops: &[
            ("head_train", 22.20),
            ("linear", 10.17),
            ("linear_gelu", 6.22),
            ("linear_backward_input", 10.70),
            ("linear_backward_gelu", 7.78),
            ("linear_backward_weight", 17.11),
            ("attention", 15.59),
            ("attention_backward", 38.44),
            ("layernorm", 2.58),
            ("layernorm_backward", 3.28),
            ("embed_backward", 0.29),
            ("adamw", 1.04),
        ],
    },
    Measured {
        name: "t256",
        model: SMALL,
        batch: (64, 4, 256),
        dtype: "bfloat16",
        slices: &[(128, 2)],
        head_chunk: 4096,
        levels: &[(R1, 2), (R0, 10)],
        tokens_per_second: Some(692524.8),
        adds: false,
        ops: &[
            ("head_train", 24.90),
            ("linear", 11.24),
            ("linear_gelu", 6.85),
            ("linear_backward_input", 11.49),
            ("linear_backward_gelu", 8.14),
            ("linear_backward_weight", 18.58),
            ("attention", 2.13),
            ("attention_backward", 6.96),
            ("layernorm", 2.67),
            ("layernorm_backward", 3.06),
            ("embed_backward", 0.35),
            ("adamw", 1.02),
        ],
    },
    Measured {
        name: "6 heads",
        model: WIDE_HEADS,
        batch: (12, 8, 1024),
        dtype: "bfloat16",
        slices: &[(32, 3)],
        head_chunk: 4096,
        levels: &[(R1, 2), (R0, 10)],
        tokens_per_second: Some(635878.9),
        adds: false,
        ops: &[
            ("head_train", 35.15),
            ("linear", 15.88),
            ("linear_gelu", 9.59),
            ("linear_backward_input", 16.17),
            ("linear_backward_gelu", 11.41),
            ("linear_backward_weight", 26.27),
            ("attention", 5.88),
            ("attention_backward", 19.86),
            ("layernorm", 3.92),
            ("layernorm_backward", 4.54),
            ("embed_backward", 0.45),
            ("adamw", 1.02),
        ],
    },
    Measured {
        name: "f16",
        model: SMALL,
        batch: (12, 8, 1024),
        dtype: "float16",
        slices: &[(32, 3)],
        head_chunk: 4096,
        levels: &[(R2, 2), (R0, 10)],
        tokens_per_second: Some(607192.3),
        adds: false,
        ops: &[
            ("head_train", 37.50),
            ("linear", 16.92),
            ("linear_gelu", 9.84),
            ("linear_backward_input", 16.93),
            ("linear_backward_gelu", 11.83),
            ("linear_backward_weight", 27.29),
            ("attention", 7.72),
            ("attention_backward", 20.85),
            ("layernorm", 3.91),
            ("layernorm_backward", 4.69),
            ("embed_backward", 0.45),
            ("adamw", 1.08),
        ],
    },
    Measured {
        name: "f32",
        model: SMALL,
        batch: (12, 2, 1024),
        dtype: "float32",
        slices: &[(12, 2)],
        head_chunk: 12288,
        levels: &[(R0, 12)],
        tokens_per_second: Some(268840.0),
        adds: false,
        ops: &[
            ("head_train", 17.44),
            ("linear", 13.03),
            ("linear_backward_input", 13.73),
            ("linear_backward_weight", 18.14),
            ("attention", 5.19),
            ("attention_backward", 15.35),
            ("layernorm", 1.99),
            ("layernorm_backward", 2.22),
            ("gelu", 1.86),
            ("gelu_backward", 2.58),
            ("embed_backward", 0.18),
            ("adamw", 1.02),
        ],
    },
    Measured {
        name: "b again",
        model: CASE_B,
        batch: (16, 32, 1024),
        dtype: "float16",
        slices: &[(52, 2), (51, 8)],
        head_chunk: 4096,
        levels: &[(R1, 8), (R0, 4)],
        tokens_per_second: Some(845508.7),
        adds: false,
        ops: &[
            ("head_train", 159.26),
            ("linear", 50.70),
            ("linear_gelu", 33.68),
            ("linear_backward_input", 53.69),
            ("linear_backward_gelu", 46.30),
            ("linear_backward_weight", 89.42),
            ("attention", 36.34),
            ("attention_backward", 101.43),
            ("layernorm", 17.08),
            ("layernorm_backward", 20.70),
            ("embed_backward", 2.22),
            ("adamw", 0.68),
        ],
    },
    // With the residual stream in matmuls, on a faster card of the same kind. Where copies ran, ops
    // timed one by one had a 6 % higher clock than the iteration: they are not listed.
    Measured {
        name: "a no limit, adds",
        model: SMALL,
        batch: (64, 1, 1024),
        dtype: "bfloat16",
        slices: &[(64, 1)],
        head_chunk: 16384,
        levels: &[(R0, 12)],
        tokens_per_second: Some(658691.0),
        adds: true,
        ops: &[
            ("head_train", 24.20),
            ("linear_add", 7.43),
            ("linear", 3.95),
            ("linear_gelu", 6.48),
            ("linear_backward_input", 10.79),
            ("linear_backward_gelu", 7.72),
            ("linear_backward_weight", 17.64),
            ("attention", 4.90),
            ("attention_backward", 13.76),
            ("layernorm", 1.31),
            ("layernorm_backward", 2.90),
            ("embed_backward", 0.28),
            ("adamw", 1.02),
        ],
    },
    Measured {
        name: "350M, adds",
        model: MEDIUM,
        batch: (12, 8, 1024),
        dtype: "bfloat16",
        slices: &[(12, 8)],
        head_chunk: 2048,
        levels: &[(R3q, 1), (R2, 23)],
        tokens_per_second: Some(230035.0),
        adds: true,
        ops: &[
            ("linear_backward_weight", 86.40),
            ("linear_backward_input", 58.54),
            ("attention_backward", 54.55),
            ("head_train", 45.64),
            ("linear_add", 38.98),
            ("linear_backward_gelu", 38.64),
            ("linear_gelu", 34.22),
            ("linear", 21.53),
            ("attention", 20.22),
            ("layernorm_backward", 15.63),
            ("layernorm", 6.40),
            ("adamw", 2.93),
            ("embed_backward", 0.60),
        ],
    },
    Measured {
        name: "774M, copies",
        model: LARGE,
        batch: (4, 16, 1024),
        dtype: "bfloat16",
        slices: &[(3, 20), (2, 2)],
        head_chunk: 1024,
        levels: &[
            (R2, 2),
            (R2h, 1),
            (R2, 5),
            (R2h, 1),
            (R2, 4),
            (R2h, 1),
            (R2, 5),
            (R2h, 1),
            (R2, 4),
            (R2h, 1),
            (R2, 5),
            (R2h, 1),
            (R2, 5),
        ],
        tokens_per_second: Some(96904.0),
        adds: true,
        ops: &[],
    },
    Measured {
        name: "1558M, copies",
        model: XL,
        batch: (4, 16, 1024),
        dtype: "bfloat16",
        slices: &[(5, 12), (4, 1)],
        head_chunk: 2048,
        levels: &[
            (R5, 2),
            (R2h, 1),
            (R5, 4),
            (R2h, 1),
            (R5, 4),
            (R2h, 1),
            (R5, 4),
            (R2h, 1),
            (R5, 4),
            (R2h, 1),
            (R5, 4),
            (R2h, 1),
            (R5, 4),
            (R2h, 1),
            (R5, 4),
            (R2h, 1),
            (R4, 3),
            (R3q, 1),
            (R2h, 1),
            (R3q, 5),
        ],
        tokens_per_second: Some(41832.0),
        adds: true,
        ops: &[],
    },
    Measured {
        name: "1558M, adds",
        model: XL,
        batch: (4, 16, 1024),
        dtype: "bfloat16",
        slices: &[(5, 12), (4, 1)],
        head_chunk: 1024,
        levels: &[(R5, 38), (R4, 1), (R3q, 9)],
        tokens_per_second: Some(41331.0),
        adds: true,
        ops: &[
            ("linear_backward_weight", 298.34),
            ("linear", 216.34),
            ("linear_backward_input", 191.48),
            ("linear_add", 145.33),
            ("attention_backward", 123.41),
            ("linear_backward_gelu", 110.36),
            ("linear_gelu", 99.45),
            ("head_train", 48.84),
            ("attention", 43.63),
            ("layernorm_backward", 40.78),
            ("layernorm", 33.71),
            ("adamw", 18.49),
            ("embed_backward", 0.76),
        ],
    },
    // Of builds in which some kernels were others: only those that are as they were.
    Measured {
        name: "16 x 1024",
        model: SMALL,
        batch: (16, 1, 1024),
        dtype: "bfloat16",
        slices: &[(16, 1)],
        head_chunk: 16384,
        levels: &[(R0, 12)],
        tokens_per_second: None,
        adds: false,
        ops: &[
            ("head_train", 6.63),
            ("linear_backward_weight", 5.53),
            ("attention", 1.53),
            ("attention_backward", 4.13),
            ("layernorm", 0.78),
            ("layernorm_backward", 0.88),
            ("embed_backward", 0.09),
            ("adamw", 1.02),
        ],
    },
    Measured {
        name: "4 x 1024",
        model: SMALL,
        batch: (4, 1, 1024),
        dtype: "bfloat16",
        slices: &[(4, 1)],
        head_chunk: 4096,
        levels: &[(R0, 12)],
        tokens_per_second: None,
        adds: false,
        ops: &[
            ("head_train", 1.41),
            ("linear_backward_weight", 1.46),
            ("attention", 0.38),
            ("attention_backward", 1.09),
            ("layernorm", 0.23),
            ("layernorm_backward", 0.37),
            ("embed_backward", 0.04),
            ("adamw", 1.02),
        ],
    },
    Measured {
        name: "350M all",
        model: MEDIUM,
        batch: (12, 8, 1024),
        dtype: "bfloat16",
        slices: &[(96, 1)],
        head_chunk: 16384,
        levels: &[(R0, 24)],
        tokens_per_second: None,
        adds: false,
        ops: &[
            ("head_train", 44.18),
            ("linear_backward_weight", 82.28),
            ("attention", 17.82),
            ("attention_backward", 51.17),
            ("layernorm", 9.53),
            ("layernorm_backward", 11.2),
            ("embed_backward", 0.42),
            ("adamw", 2.91),
        ],
    },
    Measured {
        name: "774M 8",
        model: LARGE,
        batch: (1, 64, 1024),
        dtype: "bfloat16",
        slices: &[(8, 8)],
        head_chunk: 2048,
        levels: &[(R6, 32), (R5, 4)],
        tokens_per_second: None,
        adds: false,
        ops: &[
            ("head_train", 36.31),
            ("linear_backward_weight", 149.42),
            ("attention", 47.99),
            ("layernorm", 25.13),
            ("layernorm_backward", 18.16),
            ("embed_backward", 0.58),
            ("adamw", 5.9),
        ],
    },
    Measured {
        name: "774M 5",
        model: LARGE,
        batch: (1, 64, 1024),
        dtype: "bfloat16",
        slices: &[(5, 12), (4, 1)],
        head_chunk: 1024,
        levels: &[(R6, 1), (R5, 32), (R4, 3)],
        tokens_per_second: None,
        adds: false,
        ops: &[
            ("head_train", 41.24),
            ("linear_backward_weight", 163.44),
            ("attention", 29.04),
            ("layernorm", 31.05),
            ("layernorm_backward", 22.94),
            ("embed_backward", 0.63),
            ("adamw", 5.84),
        ],
    },
    Measured {
        name: "1558M 8",
        model: XL,
        batch: (1, 64, 1024),
        dtype: "bfloat16",
        slices: &[(8, 8)],
        head_chunk: 4096,
        levels: &[(R6, 17), (R5, 31)],
        tokens_per_second: None,
        adds: false,
        ops: &[
            ("head_train", 45.8),
            ("linear_backward_weight", 278.73),
            ("attention", 54.55),
            ("layernorm", 47.49),
            ("layernorm_backward", 37.4),
            ("embed_backward", 0.71),
            ("adamw", 15.01),
        ],
    },
];

/// GPUs before matmuls added the residual stream.
#[derive(Debug)]
struct WithoutAdding(GpuScratch);

impl Scratch for WithoutAdding {
    fn bytes(&self, op: &Op, tensors: &Tensors) -> Option<Bytes> {
        self.0.bytes(op, tensors)
    }

    fn head_rows(&self, vocabulary: u64) -> u64 {
        self.0.head_rows(vocabulary)
    }

    fn computes_joined(&self, op: &Op, tensors: &Tensors) -> bool {
        let adds = matches!(op, Op::Linear(linear) if linear.residual.is_some());
        !adds && self.0.computes_joined(op, tensors)
    }
}

/// A list from pairs of an element and its number.
fn repeated<T: Copy>(pairs: &[(T, usize)]) -> Vec<T> {
    pairs.iter().flat_map(|&(one, count)| std::iter::repeat_n(one, count)).collect()
}

fn plan(row: &Measured) -> (RunSpec, Planned, Machine) {
    let ((n_layer, n_head, n_embd), (batch, times, positions)) = (row.model, row.batch);
    let arguments = [
        "--dataset=x".to_string(),
        format!("--n_layer={n_layer}"),
        format!("--n_head={n_head}"),
        format!("--n_embd={n_embd}"),
        format!("--block_size={positions}"),
        format!("--batch_size={batch}"),
        format!("--gradient_accumulation_steps={times}"),
        format!("--dtype={}", row.dtype),
        "--optimizer_state=auto".to_string(),
        "--offload=auto".to_string(),
    ];
    let run = run_of(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    let all = Bytes::new(1 << 50).unwrap();
    let hardware = Card::find("H200").unwrap().hardware(row.dtype == "float32");
    let warpgroups = hardware.warpgroups;
    let mut machine = Machine::gpu(hardware, &run, all, all);
    if !row.adds {
        machine.scratch = Rc::new(WithoutAdding(GpuScratch { warpgroups }));
    }
    // The largest models fit only with moments in 16 bits, and the last one with them on the host.
    let format = if row.model.2 >= LARGE.2 { Dtype::Bf16 } else { Dtype::F32 };
    let offload = row.model == XL;
    let cut = Cut {
        slices: repeated(row.slices),
        head_chunk: row.head_chunk,
        levels: repeated(row.levels),
        state_options: StateOptions { format, offload },
    };
    let planned = plan_again(&run, run.dims(50304).unwrap(), &machine, &cut).unwrap().unwrap();
    (run, planned, machine)
}

/// Predicted milliseconds of an iteration by op.
fn predicted(planned: &Planned, machine: &Machine) -> BTreeMap<&'static str, f64> {
    let (program, schedule) = (&planned.program, &planned.plan.schedule);
    let mut found = BTreeMap::new();
    let mut add = |segment: SegmentId, times: u64| {
        for step in &schedule.segment(segment).steps {
            let seconds = step_seconds(&step.op, &schedule.tensors, &machine.hardware);
            *found.entry(step.op.operation().name()).or_default() += 1e3 * seconds * times as f64;
        }
    };
    for (segment, times) in program.runs() {
        add(segment, times);
    }
    found
}

/// Which of two plans was faster is what matters in the end.
#[test]
fn slices_that_fill_the_device_are_preferred() {
    let named = |name| ALL.iter().find(|row| row.name == name).unwrap();
    let [eight, five] = ["774M 8", "774M 5"].map(|name| plan(named(name)).1.seconds);
    assert!(eight < five, "measured 739 and 773 ms, predicted {eight} and {five} s");
}

/// The largest error of an iteration.
const ITERATION: f64 = 0.05;
/// The mean error of ops, each weighted by its time.
const MEAN_OF_OPS: f64 = 0.05;

#[test]
fn predictions_are_those_measured_on_an_h200() {
    let (mut off_by, mut total) = (0.0, 0.0);
    for row in ALL {
        let (run, planned, machine) = plan(row);
        let rate = planned.predict(&run, &machine.hardware).tokens_per_second.unwrap();
        println!("{}: predicted {rate:.0} tok/s", row.name);
        let by_op = predicted(&planned, &machine);
        for &(op, measured) in row.ops {
            let found = by_op[op];
            let off = 100.0 * (found / measured - 1.0);
            println!("    {op:<24} {found:>7.2}, measured {measured:>7.2} ms: {off:>+6.1} %");
            off_by += (found - measured).abs();
            total += measured;
        }
        let Some(measured) = row.tokens_per_second else { continue };
        let error = rate / measured - 1.0;
        println!("    measured {measured:.0} tok/s: {:+.1} %", 100.0 * error);
        assert!(error.abs() <= ITERATION, "{}: {error}", row.name);
    }
    println!("mean error of ops: {:.1} %", 100.0 * off_by / total);
    assert!(off_by / total <= MEAN_OF_OPS, "{off_by} of {total} ms");
}
