//! Whole diagnoses: causes of real logs, predictions without a log, and fixes that really fit.

use fitgpt_doctor::account::What;
use fitgpt_doctor::advice::{USUAL, Verdict};
use fitgpt_doctor::cause::Cause;
use fitgpt_doctor::diagnosis::{Diagnosis, Given};
use fitgpt_doctor::fixes::device_bytes;
use fitgpt_doctor::log::{Claim, Log};
use fitgpt_doctor::markdown::markdown;
use fitgpt_doctor::recovered::{Defect, RecoveredRun};
use fitgpt_doctor::report::Report;
use fitgpt_doctor::words::Language;
use plan::Bytes;
use plan::hardware::Card;
use search::{Machine, plan_for};
use spec::World;

fn recover(log: Option<&Log>, given: &[String]) -> Option<RecoveredRun> {
    let nothing = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let world = World { read: &nothing, unix_time: 0.0 };
    RecoveredRun::recover(log, given, &world, None, |_| None).unwrap()
}

/// Without a log that tells it, the vocabulary is that of the data set's name.
#[test]
fn a_known_data_set_of_characters_has_its_own_vocabulary() {
    let nothing = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let world = World { read: &nothing, unix_time: 0.0 };
    let characters = |name: &str| (name == "letters").then_some(65);
    for (dataset, want) in [("letters", 65), ("openwebtext", 50304)] {
        let given = [format!("--dataset={dataset}")];
        let recovered =
            RecoveredRun::recover(None, &given, &world, None, characters).unwrap().unwrap();
        assert_eq!(recovered.dims.vocab_size, want, "{dataset}");
    }
}

fn card(name: &str, vram: Option<u64>) -> Given {
    Given { card: Card::find(name), vram, used: None }
}

fn diagnose(text: &str) -> Diagnosis {
    let log = Log::read(text.as_bytes());
    let recovered = recover(Some(&log), &[]);
    Diagnosis::new(Some(log), recovered, Given::default()).unwrap()
}

fn verdict(diagnosis: &Diagnosis, claim: Claim) -> Verdict {
    let found = diagnosis.advice.iter().find(|judged| judged.claim.name() == claim.name());
    found.unwrap_or_else(|| panic!("{}", claim.name())).verdict
}

const BATCH: Claim = Claim::SmallerBatch { batch_size: None };
const CONTEXT: Claim = Claim::ShorterContext { block_size: None };

fn budget(diagnosis: &Diagnosis) -> u64 {
    diagnosis.room.unwrap().free()
}

#[test]
fn real_logs_have_their_causes() {
    for (text, phase, cause) in [
        (include_str!("../logs/eager_124m_batch_64.log"), "first_eval", Cause::Logits),
        (include_str!("../logs/compiled_124m_batch_64.log"), "first_eval", Cause::StaleLogits),
        (include_str!("../logs/eager_77m_float16_batch_16.log"), "forward", Cause::Logits),
        (include_str!("../logs/eager_774m_batch_1.log"), "optimizer", Cause::OptimizerState),
    ] {
        let found = diagnose(text);
        assert_eq!((found.phase.name(), found.cause), (phase, cause));
        assert_eq!(budget(&found) * 100 / (1 << 30), 1168, "11.69 GiB were allowed");
        assert!(found.unknown.is_empty());
        assert_eq!(verdict(&found, Claim::EmptyCache), Verdict::DoesNothing);
        assert_eq!(verdict(&found, Claim::ExpandableSegments), Verdict::DoesNothing);
        assert_eq!(verdict(&found, Claim::EvalBatchSizeKeyExists), Verdict::DoesNothing);
        let evaluates = phase == "first_eval";
        let checkpointing = verdict(&found, Claim::Checkpointing);
        assert!(!evaluates || checkpointing == Verdict::DoesNothing, "it dies in evaluation");
        for language in Language::ALL {
            let report = Report { diagnosis: &found, language, program: "fitgpt" };
            let text = markdown(&report);
            assert!(
                !text.contains('{') && text.contains("6.14 GiB") || !text.contains('{'),
                "{text}"
            );
            assert!(report.fitgpt_command().unwrap().contains("--vram=11.69GiB"));
        }
    }
}

/// More real logs, recorded with other caps: phase, cause, the tensor's name, and how much of
/// PyTorch's memory stays unexplained.
#[test]
fn more_real_logs_have_their_causes() {
    type Row = (&'static str, &'static str, Cause, &'static str);
    let rows: [Row; 7] = [
        (
            include_str!("../logs/backward_124m_batch_12.log"),
            "backward",
            Cause::Logits,
            "gradient of the log-softmax, f32",
        ),
        (
            include_str!("../logs/compiled_backward_124m_batch_16.log"),
            "backward",
            Cause::Logits,
            "gradient of the logits",
        ),
        (
            include_str!("../logs/float32_124m_batch_8.log"),
            "forward",
            Cause::Logits,
            "log-softmax of the logits, f32",
        ),
        (
            include_str!("../logs/optimizer_350m_batch_1.log"),
            "optimizer",
            Cause::OptimizerState,
            "Adam's ",
        ),
        (include_str!("../logs/characters_batch_1024.log"), "forward", Cause::Activations, "h."),
        (
            include_str!("../logs/resumed_124m_batch_2.log"),
            "first_eval",
            Cause::LoadedCheckpoint,
            "eval ",
        ),
        (include_str!("../logs/weights_1558m.log"), "load", Cause::Weights, "parameter "),
    ];
    for (text, phase, cause, name) in rows {
        let found = diagnose(text);
        let tensor = found.tensor.as_ref().unwrap();
        assert_eq!((found.phase.name(), found.cause), (phase, cause), "{}", tensor.name);
        assert!(tensor.name.starts_with(name), "{} is not {name}", tensor.name);
        let of = |what: What| {
            found.account.rows.iter().find(|(row, _)| *row == what).map_or(0, |(_, bytes)| *bytes)
        };
        let allocated = found.log.as_ref().unwrap().message.allocated.as_ref().unwrap().bytes;
        let share = of(What::Unexplained) as f64 / allocated as f64;
        assert!(share < 0.12, "{name}: {share} of it is unexplained");
    }
}

/// The advice that everybody gives for case (a), with the memory that was measured for it.
#[test]
fn a_smaller_batch_is_predicted_as_measured() {
    for (compile, gib) in [("False", 5.756), ("True", 4.678)] {
        let arguments =
            ["batch_size=4", "gradient_accumulation_steps=16"].map(|a| format!("--{a}"));
        let given = [&arguments[..], &[format!("--compile={compile}")]].concat();
        let recovered = recover(None, &given).unwrap();
        let found = Diagnosis::new(None, Some(recovered), card("H200", None)).unwrap();
        let peak = found.peaks.iter().map(|peak| peak.bytes).max().unwrap() as f64;
        let peak = peak / (1u64 << 30) as f64;
        assert!((peak / gib - 1.0).abs() < 0.03, "{compile}: {peak} of {gib}");
        let last = found.peaks.iter().max_by_key(|peak| peak.bytes).unwrap();
        let logits = last.alive.iter().find(|alive| alive.name == "logits").unwrap().bytes;
        assert!((logits as f64 / (1u64 << 30) as f64 - 0.38).abs() < 0.005);
        assert!(found.fixes.is_empty(), "it fits");
    }
}

/// What fragmentation and other programs look like.
#[test]
fn pieces_and_other_programs_are_told_apart_from_need() {
    let message = |unallocated: &str, free: &str, process: &str| {
        format!(
            "Overriding: batch_size = 2\nnumber of parameters: 123.59M\n\
             torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 196.00 MiB. GPU 0 has a \
             total capacity of 11.69 GiB of which {free} is free. Including non-PyTorch memory, \
             this process has {process} memory in use. Of the allocated memory 2.00 GiB is \
             allocated by PyTorch, and {unallocated} is reserved by PyTorch but unallocated."
        )
    };
    let pieces = diagnose(&message("2.50 GiB", "100.00 MiB", "11.50 GiB"));
    assert_eq!(pieces.cause, Cause::Fragmentation);
    assert_eq!(verdict(&pieces, Claim::ExpandableSegments), Verdict::Helps);
    let others = diagnose(&message("10.00 MiB", "20.00 MiB", "2.70 GiB"));
    assert_eq!(others.cause, Cause::OtherProcess);
    assert_eq!(verdict(&others, Claim::KillOthers), Verdict::Suffices);
}

/// A linear congruential generator: the same cases every time.
struct Draws(u64);

impl Draws {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % n
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }
}

#[test]
fn what_is_suggested_fits_in_100_random_cases() {
    let mut draws = Draws(5);
    let (mut fixed, mut commanded) = (0, 0);
    for round in 0..100 {
        let heads = 2 + draws.below(15);
        let given = vec![
            format!("--n_layer={}", 2 + draws.below(30)),
            format!("--n_head={heads}"),
            format!("--n_embd={}", heads * 64),
            format!("--batch_size={}", 1 << draws.below(7)),
            format!("--gradient_accumulation_steps={}", 1 << draws.below(5)),
            format!("--block_size={}", 256 << draws.below(3)),
            format!("--compile={}", draws.of(&["True", "False"])),
            format!("--dtype={}", draws.of(&["float16", "bfloat16", "float32"])),
        ];
        let budget = (3u64 << 30) + draws.below(20 << 30);
        let recovered = recover(None, &given).unwrap();
        let tokens = recovered.run.tokens_per_iteration();
        let found = Diagnosis::new(None, Some(recovered), card("RTX 4070", Some(budget))).unwrap();
        for fix in &found.fixes {
            let typed = fix.settings.iter().map(|(key, value)| format!("--{key}={value}"));
            let all: Vec<String> = given.iter().cloned().chain(typed).collect();
            let changed = recover(None, &all).unwrap();
            assert_eq!(device_bytes(&changed.torch).unwrap(), fix.device_bytes, "{round}: {fix:?}");
            assert!(fix.device_bytes <= budget, "{round}: {fix:?}");
            assert_eq!(fix.tokens_per_iteration, tokens, "{round}: {fix:?}");
            fixed += 1;
        }
        if let Some(command) = &found.fitgpt {
            let run = recover(None, &command.arguments).unwrap().run;
            let single = run.dtype == spec::RequestedDtype::Float32;
            let hardware = Card::find("RTX 4070").unwrap().hardware(single);
            let all = Bytes::new(1 << 50).unwrap();
            let machine = Machine::gpu(hardware, &run, Bytes::new(budget).unwrap(), all);
            let planned = plan_for(&run, run.dims(50304).unwrap(), &machine).unwrap();
            assert!(planned.device_bytes(&machine) <= budget, "{round}");
            commanded += 1;
        }
    }
    println!("{fixed} fixes, {commanded} commands");
    assert!(fixed > 60 && commanded > 90, "{fixed} {commanded}");
}

/// Settings that the log contradicts are not used, and the diagnosis says so.
#[test]
fn contradictions_are_unknown_not_defaults() {
    let text = include_str!("../logs/compiled_124m_batch_64.log");
    let without: String = text
        .lines()
        .filter(|line| !line.contains("batch_size"))
        .fold(String::new(), |all, line| all + line + "\n");
    let found = diagnose(&without);
    assert!(!found.unknown.is_empty());
    assert!(found.fixes.is_empty() && found.fitgpt.is_none());
    assert!(found.advice.len() < USUAL.len(), "only what the message tells");
    let tensor = found.tensor.unwrap();
    assert_eq!(tensor.shape, [65536, 50304], "the code names it");
}

/// The table adds up to the message's numbers.
#[test]
fn tables_add_up() {
    for text in [
        include_str!("../logs/eager_124m_batch_64.log"),
        include_str!("../logs/compiled_124m_batch_64.log"),
        include_str!("../logs/eager_77m_float16_batch_16.log"),
        include_str!("../logs/eager_774m_batch_1.log"),
        include_str!("../logs/backward_124m_batch_12.log"),
        include_str!("../logs/float32_124m_batch_8.log"),
        include_str!("../logs/characters_batch_1024.log"),
    ] {
        let found = diagnose(text);
        let sum: u64 = found.account.rows.iter().map(|(_, bytes)| bytes).sum();
        let total = found.account.total.unwrap();
        let off = sum.abs_diff(total) as f64 / (1u64 << 20) as f64;
        assert!(off < 1.0, "{off} MiB: {:?}", found.account.rows);
    }
}

/// A log never ends in a usage error.
#[test]
fn lines_that_only_python_understands_are_left_out() {
    let text = "Overriding config with config/finetune.py:\nimport time\nwandb_run_name = 'ft-' + \
        str(time.time())\nlr_decay_iters = max_iters\ngradient_accumulation_steps = 5 * 8\n\
        Overriding: num_samples = 1\nnumber of parameters: 123.59M\n\
        Traceback (most recent call last):\n\
        \u{20} File \"sample.py\", line 89, in <module>\n    y = model.generate(x, 5)\n\
        torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0";
    let found = diagnose(text);
    assert_eq!(found.phase.name(), "sample");
    assert_eq!(found.recovered.unwrap().run.gradient_accumulation_steps, 40);
}

/// Full checkpointing of blocks at micro-batch 16, compiled: 12.0 to 7.3 GiB were measured.
#[test]
fn checkpointing_is_judged_by_what_it_saves() {
    let text = include_str!("../logs/compiled_backward_124m_batch_16.log");
    let found = diagnose(text);
    let judged = found.advice.iter().find(|one| one.claim == Claim::Checkpointing).unwrap();
    assert_eq!(judged.verdict, Verdict::Suffices);
    let saved = judged.bytes as f64 / (1u64 << 30) as f64;
    assert!((saved - 4.7).abs() < 0.8, "{saved}");
    assert_eq!(verdict(&found, BATCH), Verdict::Suffices);
    let large = diagnose(include_str!("../logs/eager_774m_batch_1.log"));
    assert_eq!(verdict(&large, CONTEXT), Verdict::DoesNothing, "Adam alone is too much");
}

#[test]
fn slow_attention_is_named() {
    let text = "Overriding: batch_size = 16\nOverriding: gradient_accumulation_steps = 1\n\
        WARNING: using slow attention. Flash Attention requires PyTorch >= 2.0\n\
        number of parameters: 123.59M\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to \
        allocate 768.00 MiB (GPU 0; 11.69 GiB total capacity; 9.00 GiB already allocated; 400.00 \
        MiB free; 10.00 GiB reserved in total by PyTorch)";
    let found = diagnose(text);
    assert_eq!(found.cause, Cause::AttentionScores);
    assert_eq!(found.tensor.as_ref().unwrap().shape, [16, 12, 1024, 1024]);
    assert_eq!(verdict(&found, Claim::OtherVersion), Verdict::Helps);
}

/// This program's own refusals are read, too.
#[test]
fn own_refusals_are_read() {
    let text = "Overriding: n_layer = 36\nOverriding: n_head = 20\nOverriding: n_embd = 1280\n\
        error: 2.01 GiB of memory are missing: the smallest plan needs 13.70 GiB of 11.69 GiB\n\
        \u{20} largest at its fullest moment: m 2.88 GiB, v 2.88 GiB, gradients 2.88 GiB\n\
        \u{20} what fits:\n    --optimizer_state=bfloat16\n";
    let found = diagnose(text);
    assert_eq!(found.cause, Cause::OptimizerState);
    assert_eq!(budget(&found) * 100 / (1 << 30), 1168);
    let report = Report { diagnosis: &found, language: Language::English, program: "fitgpt" };
    assert!(report.summary().iter().any(|line| line.contains("--optimizer_state=bfloat16")));
}

/// Even without settings, a message shows which advice does nothing.
#[test]
fn a_message_alone_is_judged_as_far_as_it_goes() {
    let found = diagnose(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total \
         capacity of 11.69 GiB of which 2.68 GiB is free. Including non-PyTorch memory, this \
         process has 7.04 GiB memory in use. Of the allocated memory 6.78 GiB is allocated by \
         PyTorch, and 35.10 MiB is reserved by PyTorch but unallocated.",
    );
    assert_eq!(verdict(&found, Claim::EmptyCache), Verdict::DoesNothing);
    assert_eq!(verdict(&found, Claim::KillOthers), Verdict::Helps);
    assert!(found.fitgpt.is_none() && !found.unknown.is_empty());
    assert!((budget(&found) as f64 / (1u64 << 30) as f64 - 9.72).abs() < 0.01);
}

/// Speeds of nanoGPT on an H200 (tokens a second): compiled 4 x 1024 409k, 8 x 1024 459k.
#[test]
fn fixes_have_their_price_on_a_card_that_is_known() {
    let given = ["--batch_size=64", "--gradient_accumulation_steps=1"].map(String::from);
    let recovered = recover(None, &given).unwrap();
    let found = Diagnosis::new(None, Some(recovered), card("H200", Some(8 << 30))).unwrap();
    let batch = &found.fixes[0];
    let rate = batch.tokens_per_second.unwrap();
    assert!((380e3..520e3).contains(&rate), "{batch:?}");
}

/// Weights and Adam's moments are also identified without settings.
#[test]
fn weights_are_named_by_size() {
    let found = diagnose(
        "  File \"adam.py\", line 178, in _init_group\n    state[\"exp_avg\"] = torch.zeros_like(\n\
         OutOfMemoryError: CUDA out of memory. Tried to allocate 26.00 MiB. GPU 0 has a total \
         capacity of 11.69 GiB of which 2.00 MiB is free.",
    );
    let tensor = found.tensor.unwrap();
    assert_eq!((found.phase.name(), found.cause), ("optimizer", Cause::OptimizerState));
    assert_eq!(tensor.shape, [5120, 1280]);
}

/// Heads that do not divide the width are a defect of the run, not the end of its diagnosis.
#[test]
fn heads_that_do_not_divide_the_width_are_a_defect() {
    let given = ["--n_embd=500", "--n_head=12", "--batch_size=8"].map(String::from);
    let recovered = recover(None, &given).unwrap();
    assert_eq!(recovered.defects, [Defect::Heads { n_embd: 500, n_head: 12, nearest: 10 }]);
    assert_eq!(recovered.dims.n_head, 10);
    assert!(recovered.arguments.contains(&"--n_head=10".to_string()), "{:?}", recovered.arguments);
}
