//! Promise 1: bytes planned are bytes allocated, and nothing is allocated after set-up. The
//! allocator itself counts, in a separate process, so that no other test is counted.

use crate::fixture::{Setup, ids_to_bytes, setup};
use fitgpt_cpu::CpuOptions;
use model::{GenerateSpec, Level};
use plan::{Backend, StepInputs};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// Bytes allocated with the alignment of tensors. Only arenas ask for it.
fn arena_bytes() -> u64 {
    counting::asked_at(plan::ALIGNMENT)
}

const CHILD: &str = "FITGPT_ALLOCATION_CHILD";

#[test]
fn nothing_is_allocated_inside_run() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "allocation::child", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{text}{}", String::from_utf8_lossy(&child.stderr));
    assert!(text.contains("counted every segment"), "the child did not run: {text}");
}

fn allocations(work: impl FnOnce()) -> u64 {
    let before = counting::calls();
    work();
    counting::calls() - before
}

/// The allocator is asked for exactly the planned bytes, whatever the model and its slices.
fn thirty_random_plans() {
    let mut draws = rng::Stream::new(9, rng::Purpose::Sample, 0);
    for round in 0..30 {
        let mut draw = |n: u64| draws.below(n);
        let n_head = 1 + draw(4);
        let (n_layer, n_embd) = (1 + draw(4), n_head * (4 + 4 * draw(8)));
        let (block_size, vocab_size) = (16 + draw(150), 20 + draw(500));
        let dims =
            model::Dims { n_layer, n_head, n_embd, block_size, vocab_size, bias: draw(2) == 0 };
        let rows = 1 + draw(9);
        let first = 1 + draw(rows);
        let slices = if first < rows { vec![first, rows - first] } else { vec![rows] };
        let random = Setup {
            dims,
            slices,
            positions: block_size - draw(8),
            head_chunk: 1 + draw(2000),
            loss_rows: rows,
            levels: (0..n_layer)
                .map(|_| Level::ALL[draw(Level::ALL.len() as u64) as usize])
                .collect(),
            moments: if draw(2) == 0 { plan::Dtype::F32 } else { plan::Dtype::Bf16 },
            offload: (draw(3) == 0).then_some(4096),
            ..setup()
        };
        let plan = plan::Plan::new(random.draft().schedule).unwrap();
        let wanted = plan.arena_bytes.get() + plan.host_bytes.get();
        let before = arena_bytes();
        let proved = plan::verify(plan, random.scratch()).unwrap();
        let backend = fitgpt_cpu::CpuBackend::new(proved, CpuOptions::new(2)).unwrap();
        let taken = arena_bytes() - before;
        assert_eq!(taken, wanted, "{round}");
        drop(backend);
    }
}

/// Does nothing unless the test above starts this process.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1, "the counter counts");
    let generate = Some(GenerateSpec { rows: 2, prefill: vec![8, 90] });
    let setup = Setup { dropout: 0.1, slices: vec![4, 3], generate, ..setup() };
    let plan = plan::Plan::new(setup.draft().schedule).unwrap();
    let arena = plan.arena_bytes;
    let tables = arena_bytes();
    let proved = plan::verify(plan, setup.scratch()).unwrap();
    let backend = fitgpt_cpu::CpuBackend::new(proved, CpuOptions::new(2)).unwrap();
    assert_eq!(backend.arena_bytes(), arena, "planned = allocated, in the backend's words");
    let large = arena_bytes() - tables;
    assert_eq!(large, arena.get(), "planned = allocated, in the allocator's words");
    drop(backend);

    thirty_random_plans();
    let mut run = setup.run(CpuOptions::new(2));
    let ids = ids_to_bytes(&setup.ids());
    let losses = run.program.train.iter().chain(&run.program.eval);
    let mut inputs: Vec<_> = losses
        .flat_map(|slice| [slice.tokens, slice.targets].map(|t| (slice.segment, t)))
        .collect();
    let generate = run.program.generate.clone().unwrap();
    let logits = generate.prefill.iter().chain([&generate.decode]);
    inputs.extend(logits.map(|segment| (segment.segment, segment.tokens)));
    let large_before = arena_bytes();
    for segment in run.backend.plan().schedule.segment_ids() {
        let name = run.backend.plan().schedule.segment(segment).name.clone();
        let step = StepInputs { lr: 1e-3, grad_clip: 1.0, ..StepInputs::default() };
        for round in 0..2 {
            for &(_, tokens) in inputs.iter().filter(|(of, _)| *of == segment) {
                let bytes = run.backend.plan().schedule.tensors.bytes(tokens).get() as usize;
                assert_eq!(allocations(|| run.backend.write(tokens, &ids[..bytes]).unwrap()), 0);
            }
            let count = allocations(|| run.backend.run(segment, &step).unwrap());
            assert_eq!(count, 0, "{name}, round {round}");
        }
    }
    assert_eq!(arena_bytes(), large_before);
    println!("counted every segment");
}
