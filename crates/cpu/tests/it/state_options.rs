//! Options for models larger than the device: optimizer state in host memory changes no bit, and
//! moments in 16 bits follow the 32-bit ones because they are rounded stochastically.

use crate::bits::{assert_same, trace};
use crate::fixture::{Run, Setup, setup, to_bytes};
use fitgpt_cpu::{CpuOptions, MemoryMode};
use plan::{Backend, Bytes, Dtype, Plan};

#[test]
fn state_in_host_memory_changes_no_bit() {
    for moments in [Dtype::F32, Dtype::Bf16] {
        let want = trace(&Setup { moments, ..setup() }, CpuOptions::new(2));
        // Windows that cut every parameter, that end where a group ends, and that are larger than
        // everything.
        for window in [1008, 4096, 1 << 30] {
            let offloaded = Setup { moments, offload: Some(window), ..setup() };
            for (memory, poison) in [(MemoryMode::Arena, true), (MemoryMode::Separate, false)] {
                let options = CpuOptions { memory, poison, ..CpuOptions::new(3) };
                let what = format!("{moments}, windows of {window}, {memory:?}");
                assert_same(&what, &trace(&offloaded, options), &want);
            }
        }
    }
}

#[test]
fn what_is_in_host_memory_is_not_in_the_arena() {
    let bytes = |setup: &Setup| {
        let plan = Plan::new(setup.draft().schedule).unwrap();
        assert_eq!(plan::verify::defects(&plan, &setup.scratch()), []);
        (plan.arena_bytes.get(), plan.host_bytes.get())
    };
    let (all, none) = bytes(&setup());
    let (less, host) = bytes(&Setup { offload: Some(512), ..setup() });
    assert_eq!(none, 0);
    let moments = all - less;
    assert!(host >= moments && host - moments < 64 << 10, "{all} {less} {host}");
    let run = Setup { offload: Some(512), ..setup() }.run(CpuOptions::new(1));
    assert_eq!(run.backend.arena_bytes(), Bytes::new(less + host).unwrap(), "both are obtained");
}

/// The mean of both moments after this many updates, if all gradients are `gradient`.
fn moments_after(updates: u64, gradient: f32, moments: Dtype) -> [f64; 2] {
    let mut run = Setup { moments, ..setup() }.run(CpuOptions::new(2));
    for _ in 0..updates {
        for index in 0..run.program.parameters.len() {
            let row = &run.program.parameters[index];
            let (id, elements) = (row.gradient.unwrap(), row.param.shape.elements());
            run.backend.write(id, &to_bytes(&vec![gradient; elements as usize])).unwrap();
        }
        run.update_at(0.0, 0.0);
    }
    let state = &run.program.parameters[0].state;
    [state[0].1, state[1].1].map(|id| mean(&mut run, id, moments))
}

fn mean(run: &mut Run, id: plan::TensorId, dtype: Dtype) -> f64 {
    let values: Vec<f32> = match dtype {
        Dtype::F32 => run.read(id),
        _ => run.read_halves(id),
    };
    values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len() as f64
}

/// With beta2 = 0.95 a moment moves by 5 % of its distance to the limit. Near the limit that is
/// less than half a unit of 8 bits, and rounding to nearest would stop it a few per cent short.
#[test]
fn averages_in_16_bits_arrive_where_those_in_32_do() {
    for gradient in [0.37f32, -1e-4] {
        let exact = moments_after(150, gradient, Dtype::F32);
        let halves = moments_after(150, gradient, Dtype::Bf16);
        for (exact, half) in exact.into_iter().zip(halves) {
            let off = (half / exact - 1.0).abs();
            assert!(off < 5e-4, "{gradient}: {exact} and {half}, {off}");
        }
    }
}

#[test]
fn rounding_depends_on_seed_and_index_alone() {
    let halves = Setup { moments: Dtype::Bf16, ..setup() };
    let want = trace(&halves, CpuOptions::new(1));
    for threads in [2, 3] {
        assert_same("threads", &trace(&halves, CpuOptions::new(threads)), &want);
    }
    assert!(trace(&setup(), CpuOptions::new(1)) != want, "it is not the 32-bit run");
    let rounded = |seed: u64| {
        let mut run = halves.run(CpuOptions::new(2));
        run.run_slices(&halves, &halves.slices, false, 0);
        run.update_with(seed);
        let (_, m) = run.program.parameters[0].state[0];
        run.read_halves(m)
    };
    assert_eq!(rounded(5), rounded(5));
    assert_ne!(rounded(5), rounded(6), "another seed rounds in another way");
}
