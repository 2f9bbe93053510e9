//! Every kernel of typical plans, at every level of recompute, compiled for every architecture that
//! people own. This needs no GPU, only NVRTC. No kernel may spill registers, have a stack frame, or
//! need more shared memory than the architecture has.

use fitgpt_cuda::{Compiler, LoweringOptions, ModuleUse, Tiles, modules};
use model::{
    AdamW, Dims, Draft, EvalSpec, GenerateSpec, Gpt2, Level, ModelSpec, OptimizerSpec, ProgramSpec,
    TrainSpec, Types,
};
use plan::ops::{GeluKind, Op, Scaling};
use plan::{Dtype, GpuScratch, Plan, Scratch};
use requires::{Need, absent};
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

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

const RUNS: [Run; 6] = [
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

fn plan_of(run: &Run, level: Level) -> Plan {
    let [compute, residual, moments] = run.formats;
    let spec = ProgramSpec {
        model: ModelSpec {
            dims: run.dims,
            dropout: run.dropout,
            architecture: Gpt2 { gelu: run.gelu }.into(),
            types: Types { compute, residual },
        },
        train: Some(TrainSpec {
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
    let draft = Draft::new(&spec, Rc::new(GpuScratch)).unwrap();
    Plan::new(draft.schedule).unwrap()
}

/// What the compiler reports about one kernel.
#[derive(Debug)]
struct Usage {
    kernel: String,
    registers: u64,
    stack: u64,
    spilled: u64,
    shared: u64,
}

/// The number before a word.
fn before(line: &str, word: &str) -> u64 {
    let Some(at) = line.find(word) else { return 0 };
    let number = line[..at].trim_end().rsplit(|c: char| !c.is_ascii_digit()).next();
    number.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn usages(log: &str) -> Vec<Usage> {
    let mut found: Vec<Usage> = Vec::new();
    for line in log.lines() {
        if let Some(rest) = line.split("Compiling entry function '").nth(1) {
            let kernel = rest.split('\'').next().unwrap_or_default().to_string();
            found.push(Usage { kernel, registers: 0, stack: 0, spilled: 0, shared: 0 });
        }
        let Some(last) = found.last_mut() else { continue };
        last.stack += before(line, "bytes stack frame");
        last.spilled += before(line, "bytes spill stores") + before(line, "bytes spill loads");
        if line.contains("Used ") {
            last.registers = before(line, "registers");
            last.shared = before(line, "bytes smem");
        }
    }
    found
}

fn check(compiler: &Compiler, used: &ModuleUse, sm: u32, table: &mut Vec<String>) -> Vec<String> {
    let module = &used.module;
    let (file, constants) = (module.file(), module.constants());
    let compiled = match compiler.compile(file, &module.text(), sm) {
        Ok(compiled) => compiled,
        Err(error) => return vec![format!("sm_{sm} {file} {constants}: {error}")],
    };
    let usages = usages(&compiled.log);
    let mut problems = Vec::new();
    if usages.is_empty() {
        problems.push(format!("sm_{sm} {file}: the log names no kernel: {}", compiled.log));
    }
    for usage in usages {
        let Usage { kernel, registers, stack, spilled, shared } = &usage;
        let dynamic =
            used.shared.iter().find(|(entry, _)| entry == kernel).map_or(0, |use_| use_.1);
        let together = shared + u64::from(dynamic);
        table.push(format!("sm_{sm} {kernel}: {registers} registers, {together} bytes shared"));
        if *stack > 0 || *spilled > 0 || together > most_shared(sm) {
            problems.push(format!("sm_{sm} {file} {constants}: {usage:?}"));
        }
    }
    problems
}

/// Every module of a run at a level, with the tiles of an architecture.
fn modules_of(run: &Run, level: Level, sm: u32) -> Vec<ModuleUse> {
    let options = LoweringOptions { tf32: true, tiles: Tiles::of(sm) };
    let found = modules(&plan_of(run, level), options);
    found.unwrap_or_else(|error| panic!("{} at {level}: {error}", run.name))
}

/// Every module of every run at every level, and those of ops that no model has, from their cases.
fn modules_for(sm: u32) -> Vec<ModuleUse> {
    let mut all: Vec<ModuleUse> = Vec::new();
    for run in &RUNS {
        for level in Level::ALL {
            for module in modules_of(run, level, sm) {
                if !all.contains(&module) {
                    all.push(module);
                }
            }
        }
    }
    let files: BTreeSet<&str> = all.iter().map(|used| used.module.file()).collect();
    let scratch: Rc<dyn Scratch> = Rc::new(GpuScratch);
    let options = LoweringOptions { tf32: true, tiles: Tiles::of(sm) };
    for case in conformance::cases::cases(&scratch).unwrap() {
        let plan = conformance::run::placed(&case).unwrap();
        let found = modules(&plan, options).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        all.extend(found.into_iter().filter(|used| !files.contains(used.module.file())));
    }
    all
}

/// Whether a module's file is among those wanted; without a list, all are.
fn is_wanted(used: &ModuleUse, only: Option<&str>) -> bool {
    only.is_none_or(|files| files.split(',').any(|file| file == used.module.file()))
}

/// The files of kernels that use the re-emitting form at a level.
fn made_again(run: &Run, level: Level) -> Vec<&'static str> {
    let again = |used: &ModuleUse| used.module.constants().contains("AGAIN=1");
    let mut files: Vec<&str> =
        modules_of(run, level, 90).iter().filter(|u| again(u)).map(|u| u.module.file()).collect();
    files.sort_unstable();
    files.dedup();
    files
}

#[test]
fn the_plans_have_the_re_emitting_forms() {
    for run in &RUNS {
        for level in Level::ALL {
            let files = made_again(run, level);
            let want: &[&str] = match level {
                Level::R0 => &[],
                // From R4 on, both norms are computed again for the matmuls after them.
                Level::R1 | Level::R4 | Level::R5 | Level::R6 => &["gelu.cu"],
                Level::R2 | Level::R3 | Level::R3q => &["gelu.cu", "layernorm.cu"],
            };
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

/// A form that none of the models above has.
#[test]
fn embeddings_without_positions_compile() {
    let compiler = match Compiler::load(None) {
        Ok(compiler) => compiler,
        Err(error) => return absent(Need::Nvrtc, error),
    };
    let scratch: Rc<dyn Scratch> = Rc::new(GpuScratch);
    let cases = conformance::cases::cases(&scratch).unwrap();
    let case = cases.into_iter().find(|case| case.name == "embed_without_positions").unwrap();
    let options = LoweringOptions { tf32: true, tiles: Tiles::of(90) };
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
    let compiled = modules_for(90).iter().map(|used| used.module.file().to_string()).collect();
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
    let work: Vec<(u32, ModuleUse)> = ARCHITECTURES
        .iter()
        .filter(|sm| known.contains(sm))
        .flat_map(|&sm| modules_for(sm).into_iter().map(move |module| (sm, module)))
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
