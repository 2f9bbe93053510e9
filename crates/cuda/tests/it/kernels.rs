//! Every kernel of typical plans, at every level of recompute, compiled for every architecture that
//! people own. This needs no GPU, only NVRTC. No kernel may spill registers, have a stack frame, or
//! need more shared memory than the architecture has.

use crate::cubin::{Usage, usages};
use crate::fixture::MOST_SCRATCH;
use conformance::Case;
use fitgpt_cuda::{Compiler, LoweringOptions, ModuleUse, Target, Tiles, modules};
use model::{
    AdamW, Dims, Draft, EvalSpec, GenerateSpec, Gpt2, Level, ModelSpec, OptimizerSpec, ProgramSpec,
    Sharing, TrainSpec, Types,
};
use plan::ops::{GeluKind, Op, Scaling};
use plan::{Dtype, Plan, Rank, Scratch, verify};
use requires::{Need, absent};
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const HOPPER: u32 = 90;
const ARCHITECTURES: [u32; 5] = [80, 86, 89, 90, 120];
/// Names the `.cu` files that are compiled, separated by commas: for work on one kernel.
const ONLY: &str = "FITGPT_KERNELS";
/// Architectures that every compiler must know, or nothing was checked.
const KNOWN_TO_ALL: [u32; 4] = [80, 86, 89, 90];

/// Bytes of shared memory that a block may have, static and dynamic.
fn most_shared(sm: u32) -> u64 {
    match sm {
        80 => 163 << 10,
        90 => 227 << 10,
        _ => 99 << 10,
    }
}

/// A model that people train, small enough in layers to be planned quickly.
struct Run {
    name: &'static str,
    dims: Dims,
    /// Of activations, the residual stream and AdamW's moments.
    formats: [Dtype; 3],
    dropout: f32,
    gelu: GeluKind,
    scaling: Scaling,
    offload: Option<u64>,
}

/// A first layer, which adds no branch, and a second one.
const LAYERS: u64 = 2;

const fn dims(n_head: u64, n_embd: u64, vocab_size: u64, bias: bool) -> Dims {
    Dims { n_layer: LAYERS, n_head, n_embd, block_size: 1024, vocab_size, bias }
}

const RUNS: [Run; 7] = [
    Run {
        name: "124M bf16",
        dims: dims(12, 768, 50304, false),
        formats: [Dtype::Bf16, Dtype::Bf16, Dtype::F32],
        dropout: 0.0,
        gelu: GeluKind::Erf,
        scaling: Scaling::Off,
        offload: None,
    },
    Run {
        name: "77M fp16",
        dims: dims(12, 576, 50304, false),
        formats: [Dtype::F16, Dtype::F16, Dtype::F32],
        dropout: 0.0,
        gelu: GeluKind::Erf,
        scaling: Scaling::Dynamic { growth_interval: 2000 },
        offload: None,
    },
    Run {
        name: "1558M bf16, offloaded bf16 moments, f32 residual",
        dims: dims(25, 1600, 50304, true),
        formats: [Dtype::Bf16, Dtype::F32, Dtype::Bf16],
        dropout: 0.1,
        gelu: GeluKind::Tanh,
        scaling: Scaling::Off,
        offload: Some(1 << 20),
    },
    Run {
        name: "124M f32",
        dims: dims(12, 768, 50304, false),
        formats: [Dtype::F32; 3],
        dropout: 0.0,
        gelu: GeluKind::Erf,
        scaling: Scaling::Off,
        offload: None,
    },
    Run {
        name: "characters f32",
        dims: dims(6, 384, 65, false),
        formats: [Dtype::F32; 3],
        dropout: 0.2,
        gelu: GeluKind::Erf,
        scaling: Scaling::Off,
        offload: None,
    },
    Run {
        name: "GPT-2's own vocabulary, wide heads",
        dims: dims(6, 768, 50257, true),
        formats: [Dtype::Bf16, Dtype::Bf16, Dtype::F32],
        dropout: 0.1,
        gelu: GeluKind::Tanh,
        scaling: Scaling::Off,
        offload: None,
    },
    Run {
        name: "odd sizes",
        dims: dims(3, 33, 61, true),
        formats: [Dtype::Bf16, Dtype::F32, Dtype::F32],
        dropout: 0.1,
        gelu: GeluKind::Erf,
        scaling: Scaling::Off,
        offload: Some(1000),
    },
];

/// Besides the 48 and 64 of the runs: each number of registers, and a head that is padded.
const WARPGROUP_HEADS: [u64; 5] = [56, 80, 96, 112, 128];

/// For TF32, besides the 64 of the runs: sizes and dropout. Odd heads are copied number by number.
const TF32_HEADS: [(u64, f32); 6] =
    [(16, 0.0), (33, 0.1), (48, 0.0), (96, 0.0), (128, 0.0), (128, 0.1)];

fn plan_of_heads(size: u64, dtype: Dtype, dropout: f32) -> (String, Plan) {
    let [run, ..] = &RUNS;
    let formats = [dtype, dtype, Dtype::F32];
    let run = Run { dims: dims(2, 2 * size, 512, false), formats, dropout, ..*run };
    (format!("{dtype} heads of {size}, dropout {dropout}"), plan_of(&run, Level::R0))
}

fn plan_of(run: &Run, level: Level) -> Plan {
    plan_shared(run, level, Sharing::NONE)
}

/// Runs in each format of compute and wire, on one rank and as one of three, with one round and
/// two, with shards and without.
fn plans_of_ranks() -> Vec<(String, Plan)> {
    let mut plans = Vec::new();
    for run in [0, 1, 2, 4].map(|index: usize| &RUNS[index]) {
        for wire in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            for (ranks, rounds, zero) in
                [(1, 2, false), (3, 1, true), (3, 2, true), (3, 1, false), (3, 2, false)]
            {
                let rank = Rank { rank: ranks - 1, ranks };
                let groups = ranks as u64 * rounds;
                let alone = Sharing { groups, zero, wire, ..Sharing::NONE };
                let sharing = Sharing { rank, ..alone };
                let name = format!("{} {sharing:?}", run.name);
                plans.push((name, plan_shared(run, Level::R0, sharing)));
            }
        }
    }
    plans
}

fn plan_shared(run: &Run, level: Level, sharing: Sharing) -> Plan {
    let [compute, residual, moments] = run.formats;
    let spec = ProgramSpec {
        model: ModelSpec {
            dims: run.dims,
            dropout: run.dropout,
            architecture: Gpt2 { gelu: run.gelu }.into(),
            types: Types { compute, residual },
        },
        train: Some(TrainSpec {
            sharing,
            slices: vec![2],
            positions: 1024,
            head_chunk: 1024,
            loss_rows: 2,
            levels: vec![level; LAYERS as usize],
            optimizer: OptimizerSpec {
                rule: AdamW { moments, ..AdamW::NANOGPT }.into(),
                scaling: run.scaling,
                offload: run.offload,
            },
        }),
        eval: Some(EvalSpec { slices: vec![2], positions: 1024, head_chunk: 1024, loss_rows: 2 }),
        generate: Some(GenerateSpec { rows: 1, prefill: Vec::new() }),
    };
    let draft = Draft::new(&spec, Rc::new(MOST_SCRATCH)).unwrap();
    Plan::new(draft.schedule).unwrap()
}

/// A line of the table for each kernel of a cubin, and what is wrong with them. `dynamic` is the
/// shared memory that launches add.
fn judge(cubin: &[u8], dynamic: &[(&str, u32)], sm: u32) -> (Vec<String>, Vec<String>) {
    let (mut table, mut problems) = (Vec::new(), Vec::new());
    let usages = usages(cubin, sm).unwrap_or_else(|problem| {
        problems.push(problem);
        Vec::new()
    });
    for (entry, _) in dynamic {
        if !usages.iter().any(|usage| usage.kernel == *entry) {
            problems.push(format!("no kernel is called {entry}"));
        }
    }
    for usage in usages {
        let Usage { kernel, registers, frame, stack, shared } = &usage;
        let added = dynamic.iter().find(|(entry, _)| entry == kernel).map_or(0, |use_| use_.1);
        let together = shared + u64::from(added);
        table.push(format!("{kernel}: {registers} registers, {together} bytes shared"));
        if *frame > 0 || *stack > 0 || together > most_shared(sm) {
            problems.push(format!("{usage:?}, {added} bytes more are dynamic"));
        }
    }
    (table, problems)
}

fn check(compiler: &Compiler, used: &ModuleUse, sm: u32, table: &mut Vec<String>) -> Vec<String> {
    let module = &used.module;
    let (file, constants) = (module.file(), module.constants());
    let (lines, problems) = match compiler.compile(file, &module.text(), module.target(sm)) {
        Ok(cubin) => judge(&cubin, &used.shared, sm),
        Err(error) => (Vec::new(), vec![error.to_string()]),
    };
    table.extend(lines.iter().map(|line| format!("sm_{sm} {line}")));
    let named = |problem: &String| format!("sm_{sm} {file} {constants}: {problem}");
    problems.iter().map(named).collect()
}

/// Every module of a plan, with the tiles of an architecture and both kinds of f32; for Hopper with
/// both kinds of attention.
fn modules_of(name: &str, plan: &Plan, sm: u32) -> Vec<ModuleUse> {
    let kinds = [(true, false), (false, false), (true, true)];
    let found = |&(tf32, warpgroups): &(bool, bool)| {
        let options =
            LoweringOptions { tf32, tiles: Tiles::of(sm), warpgroups, multiprocessors: 132 };
        modules(plan, options).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    kinds.iter().filter(|kind| sm == HOPPER || !kind.1).flat_map(found).collect()
}

/// The plans whose kernels are compiled: those of every run at every level, and those of the
/// conformance cases, some of whose ops no model has.
struct Plans {
    runs: Vec<(String, Plan)>,
    cases: Vec<(String, Plan)>,
    /// Other head sizes of attention on warpgroups, and of TF32.
    heads: Vec<(String, Plan)>,
    tf32_heads: Vec<(String, Plan)>,
    /// Of one rank among several.
    ranks: Vec<(String, Plan)>,
}

impl Plans {
    fn new() -> Plans {
        let at_all_levels = |run: &'static Run| {
            let named = move |level| (format!("{} at {level}", run.name), plan_of(run, level));
            Level::ALL.into_iter().map(named)
        };
        let scratch: Rc<dyn Scratch> = Rc::new(MOST_SCRATCH);
        let cases = conformance::cases::cases(&scratch).unwrap();
        let placed = |case: &Case| (case.name.clone(), conformance::run::placed(case).unwrap());
        Plans {
            runs: RUNS.iter().flat_map(at_all_levels).collect(),
            cases: cases.iter().map(placed).collect(),
            heads: [0.0, 0.1]
                .into_iter()
                .flat_map(|dropout| {
                    WARPGROUP_HEADS.map(|size| plan_of_heads(size, Dtype::Bf16, dropout))
                })
                .collect(),
            tf32_heads: TF32_HEADS
                .map(|(size, dropout)| plan_of_heads(size, Dtype::F32, dropout))
                .into(),
            ranks: plans_of_ranks(),
        }
    }

    /// Every module once: of all runs, and of the cases those in files that no run uses.
    fn modules(&self, sm: u32) -> Vec<ModuleUse> {
        let mut all: Vec<ModuleUse> = Vec::new();
        for (name, plan) in &self.runs {
            modules_of(name, plan, sm).into_iter().for_each(|used| add(&mut all, used));
        }
        for (name, plan) in &self.ranks {
            let mut found = modules_of(name, plan, sm);
            found.retain(|used| ["ranks.cu", "update.cu"].contains(&used.module.file()));
            found.into_iter().for_each(|used| add(&mut all, used));
        }
        for (name, plan) in self.heads.iter().filter(|_| sm == HOPPER) {
            let mut found = modules_of(name, plan, sm);
            found.retain(|used| used.module.file().starts_with("attention_hopper"));
            found.into_iter().for_each(|used| add(&mut all, used));
        }
        for (name, plan) in &self.tf32_heads {
            let mut found = modules_of(name, plan, sm);
            found.retain(|used| used.module.file() == "attention.cu");
            found.into_iter().for_each(|used| add(&mut all, used));
        }
        let files: BTreeSet<&str> = all.iter().map(|used| used.module.file()).collect();
        for (name, plan) in &self.cases {
            let mut found = modules_of(name, plan, sm);
            found.retain(|used| !files.contains(used.module.file()));
            found.into_iter().for_each(|used| add(&mut all, used));
        }
        all
    }
}

/// Adds a module, or to the same module the kernels and the shared memory of another use.
fn add(all: &mut Vec<ModuleUse>, used: ModuleUse) {
    let Some(known) = all.iter_mut().find(|known| known.module == used.module) else {
        return all.push(used);
    };
    for (entry, bytes) in used.shared {
        match known.shared.iter_mut().find(|(name, _)| *name == entry) {
            Some((_, most)) => *most = bytes.max(*most),
            None => known.shared.push((entry, bytes)),
        }
    }
}

/// Whether a module's file is among those wanted; without a list, all are.
fn is_wanted(used: &ModuleUse, only: Option<&str>) -> bool {
    only.is_none_or(|files| files.split(',').any(|file| file == used.module.file()))
}

/// The files of kernels that use the re-emitting form at a level.
fn made_again(run: &Run, level: Level) -> Vec<&'static str> {
    let again = |used: &ModuleUse| used.module.constants().contains("AGAIN=1");
    let found = modules_of(run.name, &plan_of(run, level), 90);
    let mut files: Vec<&str> =
        found.iter().filter(|used| again(used)).map(|used| used.module.file()).collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// Whether GELU is computed with the matmul next to it: in 16 bits, in models that are wide enough.
fn joins_gelu(run: &Run) -> bool {
    run.formats[0] != Dtype::F32 && run.dims.n_embd >= 384
}

#[test]
fn the_plans_have_the_re_emitting_forms() {
    for run in &RUNS {
        for level in Level::ALL {
            let files = made_again(run, level);
            let mut want: Vec<&str> = match level {
                Level::R0 => vec![],
                // From R4 on, both norms are computed again for the matmuls after them.
                Level::R1 | Level::R4 | Level::R5 | Level::R6 => vec!["gelu.cu"],
                Level::R2 | Level::R2h | Level::R3 | Level::R3q => {
                    vec!["gelu.cu", "layernorm_backward.cu"]
                }
            };
            let joins = level != Level::R0 && joins_gelu(run);
            want.extend(joins.then_some("linear_hopper.cu"));
            assert_eq!(files, want, "{} at {level}", run.name);
        }
    }
}

#[test]
fn the_plans_have_the_rare_forms_of_the_update() {
    let has = |is: &dyn Fn(&Op) -> bool| {
        let plans = RUNS.iter().map(|run| plan_of(run, Level::R0));
        let mut segments = plans.flat_map(|plan| plan.schedule.segments);
        segments.any(|segment| segment.steps.iter().any(|step| is(&step.op)))
    };
    assert!(has(&|op| matches!(op, Op::Transfer(_))), "no state is offloaded");
    let is_dynamic = |scaling| matches!(scaling, Scaling::Dynamic { .. });
    let scales = |op: &Op| matches!(op, Op::LossScaler(op) if is_dynamic(op.scaling));
    assert!(has(&scales), "no loss is scaled");
}

/// What a GPU is given of ranks is proved, and has every form of their kernels.
#[test]
fn the_plans_of_ranks_are_proved_and_have_all_forms() {
    let mut forms = BTreeSet::new();
    for (name, plan) in plans_of_ranks() {
        for used in modules_of(&name, &plan, 80) {
            if used.module.file() == "ranks.cu" {
                let entries = used.shared.iter().map(|(entry, _)| *entry);
                forms.extend(entries.map(|entry| format!("{entry} {}", used.module.constants())));
            }
        }
        verify(plan, MOST_SCRATCH).unwrap_or_else(|defects| panic!("{name}: {defects:?}"));
    }
    let forms: Vec<&str> = forms.iter().filter_map(|form| form.split(" THREADS").next()).collect();
    let rows = ["bf16", "f16", "float"]
        .map(|wire| [0, 1].map(|total| format!("add_rows WIRE={wire} HAS_TOTAL={total}")));
    let halves = ["round_alone", "to_wire"]
        .map(|entry| ["bf16", "f16"].map(|wire| format!("{entry} WIRE={wire} HAS_TOTAL=0")));
    assert_eq!(forms, [rows.concat(), halves.concat()].concat());
}

/// A form that none of the models above has.
#[test]
fn embeddings_without_positions_compile() {
    let compiler = match Compiler::load(None) {
        Ok(compiler) => compiler,
        Err(error) => return absent(Need::Nvrtc, error),
    };
    let scratch: Rc<dyn Scratch> = Rc::new(MOST_SCRATCH);
    let cases = conformance::cases::cases(&scratch).unwrap();
    let case = cases.into_iter().find(|case| case.name == "embed_without_positions").unwrap();
    let options = LoweringOptions {
        tf32: true,
        tiles: Tiles::of(90),
        warpgroups: false,
        multiprocessors: 132,
    };
    let found = modules(&Plan::new(case.schedule).unwrap(), options).unwrap();
    let without = |used: &&ModuleUse| used.module.constants().contains("LEARNED_POSITIONS=0");
    let used = found.iter().find(without).expect("the case has no positions");
    let problems = check(&compiler, used, 90, &mut Vec::new());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// What the next test compiles, known without a compiler.
#[test]
fn every_file_of_kernels_is_compiled() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kernels");
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files: BTreeSet<String> = names.filter(|name| name.ends_with(".cu")).collect();
    let compiled =
        Plans::new().modules(90).iter().map(|used| used.module.file().to_string()).collect();
    assert_eq!(files, compiled);
}

#[test]
fn no_kernel_spills_on_any_architecture() {
    let compiler = match Compiler::load(None) {
        Ok(compiler) => compiler,
        Err(error) => return absent(Need::Nvrtc, error),
    };
    let known = compiler.architectures();
    for unknown in ARCHITECTURES.iter().filter(|sm| !known.contains(sm)) {
        absent(Need::Architectures, format!("{compiler:?} does not know sm_{unknown}"));
    }
    assert!(KNOWN_TO_ALL.iter().all(|sm| known.contains(sm)), "{compiler:?} knows {known:?}");
    let only = std::env::var(ONLY).ok();
    let plans = Plans::new();
    let work: Vec<(u32, ModuleUse)> = ARCHITECTURES
        .iter()
        .filter(|sm| known.contains(sm))
        .flat_map(|&sm| plans.modules(sm).into_iter().map(move |module| (sm, module)))
        .filter(|(_, used)| is_wanted(used, only.as_deref()))
        .collect();
    assert!(!work.is_empty(), "{ONLY}={only:?} names no file of kernels");
    let next = AtomicUsize::new(0);
    let found = Mutex::new((Vec::new(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((sm, module)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut table = Vec::new();
                    let problems = check(&compiler, module, *sm, &mut table);
                    let mut found = found.lock().unwrap();
                    found.0.extend(table);
                    found.1.extend(problems);
                }
            });
        }
    });
    let (mut table, problems) = found.into_inner().unwrap();
    table.sort();
    println!("{compiler:?}: {} modules, {} kernels", work.len(), table.len());
    table.iter().for_each(|line| println!("{line}"));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Kernels that must not pass: the name and the source of each.
const PLANTED: [(&str, &str); 4] = [
    (
        "spills",
        "extern \"C\" __global__ void __launch_bounds__(1024, 2) spills(float* x, int n) {
            float a[96];
            for (int i = 0; i < 96; i++) a[i] = x[i * 1024 + threadIdx.x];
            for (int k = 0; k < n; k++)
                for (int i = 0; i < 96; i++) a[i] = a[i] * a[(i * 7 + 3) % 96] + x[k];
            for (int i = 0; i < 96; i++) x[i * 1024 + threadIdx.x] = a[i];
        }",
    ),
    (
        "indexes_an_array",
        "extern \"C\" __global__ void indexes_an_array(float* x, const int* at, int n) {
            float a[64] = {};
            for (int i = 0; i < n; i++) a[at[i] & 63] += x[i];
            x[threadIdx.x] = a[at[threadIdx.x] & 63];
        }",
    ),
    (
        "calls",
        "__device__ __noinline__ float callee(float* x, const int* at, int n) {
            float a[64] = {};
            for (int i = 0; i < n; i++) a[at[i] & 63] += x[i];
            return a[at[threadIdx.x] & 63];
        }
        extern \"C\" __global__ void calls(float* x, const int* at, int n) {
            x[threadIdx.x] = callee(x, at, n);
        }",
    ),
    (
        "shares_much",
        "extern \"C\" __global__ void shares_much(float* x) {
            __shared__ float a[12000];
            a[threadIdx.x] = x[threadIdx.x];
            __syncthreads();
            x[threadIdx.x] = a[threadIdx.x ^ 1];
        }",
    ),
];

/// The check above can fail: a spill, an array, a called function's array and too much shared
/// memory are found, and a kernel that shares 400 bytes is not.
#[test]
fn planted_spills_are_found() {
    let compiler = match Compiler::load(None) {
        Ok(compiler) => compiler,
        Err(error) => return absent(Need::Nvrtc, error),
    };
    let known = compiler.architectures();
    for sm in ARCHITECTURES.into_iter().filter(|sm| known.contains(sm)) {
        let used = |name: &str, source: &str, dynamic: u32| {
            let target = Target { sm, specific: false };
            let cubin = compiler.compile("planted.cu", source, target).unwrap();
            judge(&cubin, &[(name, dynamic)], sm).1
        };
        for (name, source) in PLANTED {
            // Static and dynamic memory count together.
            let dynamic = most_shared(sm) as u32 - 47_999;
            let problems = used(name, source, if name == "shares_much" { dynamic } else { 0 });
            assert_eq!(problems.len(), 1, "sm_{sm} {name}: {problems:?}");
            assert!(problems[0].contains(name), "sm_{sm} {name}: {problems:?}");
        }
        let (name, source) = PLANTED[3];
        assert_eq!(used(name, source, most_shared(sm) as u32 - 48_000), [""; 0], "sm_{sm}");
        assert_eq!(used("absent", source, 0), ["no kernel is called absent"]);
    }
}
