//! The rules of the diagnosis, each with a small case: who held the memory, what the cause is, what
//! fits, what a claim is worth, and what is said about programs that are not nanoGPT.

use fitgpt_doctor::account::What;
use fitgpt_doctor::advice::Verdict;
use fitgpt_doctor::cause::{Cause, Reason};
use fitgpt_doctor::diagnosis::{Diagnosis, Given};
use fitgpt_doctor::log::{Claim, Log};
use fitgpt_doctor::markdown::markdown;
use fitgpt_doctor::recovered::RecoveredRun;
use fitgpt_doctor::remedies::Remedy;
use fitgpt_doctor::report::Report;
use fitgpt_doctor::room::{Fit, RoomSource};
use fitgpt_doctor::words::Language;
use plan::hardware::Card;
use spec::World;

fn recover(log: Option<&Log>, given: &[String]) -> Option<RecoveredRun> {
    let nothing = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let world = World { read: &nothing, unix_time: 0.0 };
    RecoveredRun::recover(log, given, &world, None, |_| None).unwrap()
}

fn diagnose(text: &str) -> Diagnosis {
    let log = Log::read(text.as_bytes());
    let recovered = recover(Some(&log), &[]);
    Diagnosis::new(Some(log), recovered, Given::default()).unwrap()
}

fn gib(n: f64) -> u64 {
    (n * (1u64 << 30) as f64) as u64
}

/// A config alone, on a card with this much in use.
fn would(settings: &[&str], used: Option<f64>) -> Diagnosis {
    let given: Vec<String> = settings.iter().map(|setting| format!("--{setting}")).collect();
    let recovered = recover(None, &given);
    let used = used.map(gib);
    let card = Card::find("RTX 4070");
    Diagnosis::new(None, recovered, Given { card, vram: None, used }).unwrap()
}

fn fit(found: &Diagnosis) -> Fit {
    found.room.unwrap().fit(found.needs.unwrap())
}

fn reasons(found: &Diagnosis) -> Vec<Reason> {
    found.reasons.iter().map(|said| said.reason).collect()
}

fn text(found: &Diagnosis, language: Language) -> String {
    let report = Report { diagnosis: found, language, program: "fitgpt" };
    report.summary().join("\n") + &markdown(&report)
}

/// A message of PyTorch 2.3 with these figures.
fn message(asked: &str, card: &str, free: &str, process: &str, torch: [&str; 2]) -> String {
    let [allocated, pieces] = torch;
    format!(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total \
         capacity of {card} of which {free} is free. Including non-PyTorch memory, this process \
         has {process} memory in use. Of the allocated memory {allocated} is allocated by PyTorch, \
         and {pieces} is reserved by PyTorch but unallocated."
    )
}

/// A message of PyTorch 1.x, which does not say what the process holds.
fn older(asked: &str, card: &str, allocated: &str, free: &str, reserved: &str) -> String {
    format!(
        "RuntimeError: CUDA out of memory. Tried to allocate {asked} (GPU 0; {card} total \
         capacity; {allocated} already allocated; {free} free; {reserved} reserved in total by \
         PyTorch)"
    )
}

/// Whatever is held by whom, the rows add up to the card.
#[test]
fn rows_add_up_to_the_card() {
    for text in [
        message("1.00 GiB", "15.70 GiB", "0.50 GiB", "14.00 GiB", ["13.00 GiB", "300.00 MiB"]),
        message("1.00 GiB", "15.70 GiB", "0.50 GiB", "4.00 GiB", ["3.00 GiB", "300.00 MiB"]),
        older("700.00 MiB", "7.80 GiB", "6.10 GiB", "300.00 MiB", "6.40 GiB"),
        older("700.00 MiB", "15.80 GiB", "2.00 GiB", "300.00 MiB", "2.20 GiB"),
    ] {
        let found = diagnose(&text);
        let sum: u64 = found.account.rows.iter().map(|(_, bytes)| bytes).sum();
        let total = found.account.total.unwrap();
        assert!(sum.abs_diff(total) < 1 << 20, "{sum} of {total}: {:?}", found.account.rows);
    }
}

/// A small request on a full card is the last straw; a large one is the cause.
#[test]
fn a_small_request_is_the_last_straw() {
    let found = diagnose(&message(
        "150.00 MiB",
        "23.60 GiB",
        "90.00 MiB",
        "23.40 GiB",
        ["22.80 GiB", "40.00 MiB"],
    ));
    assert_eq!(found.cause, Cause::Full);
    assert!(reasons(&found).contains(&Reason::LastStraw));
    let found = diagnose(&message(
        "9.00 GiB",
        "23.60 GiB",
        "4.00 GiB",
        "19.50 GiB",
        ["19.00 GiB", "40.00 MiB"],
    ));
    assert_eq!(found.cause, Cause::Request, "its size names no tensor, but it is large");
    assert!(found.fitgpt.is_none(), "the run is not understood");
}

/// 2 MiB and 20 MiB are the allocator's own blocks.
#[test]
fn blocks_name_no_tensor() {
    for asked in ["2.00 MiB", "20.00 MiB"] {
        let found = diagnose(&older(asked, "7.90 GiB", "7.30 GiB", "0 bytes", "7.40 GiB"));
        assert!(found.tensor.is_none());
        assert!(reasons(&found).contains(&Reason::Block), "{asked}");
        assert_eq!(found.cause, Cause::Full);
    }
}

/// Others are blamed only if they hold enough to matter.
#[test]
fn others_are_blamed_only_if_they_matter() {
    let held = |process: &str| {
        let [torch, _] = [process, ""];
        diagnose(&message("900.00 MiB", "12.00 GiB", "100.00 MiB", torch, ["5.00 GiB", "0 bytes"]))
    };
    let others = held("5.50 GiB");
    assert_eq!(others.cause, Cause::OtherProcess);
    assert!(others.remedies.starts_with(&[Remedy::SeeNvidia, Remedy::SeeDevices]));
    let few = diagnose(&message(
        "60.00 MiB",
        "7.70 GiB",
        "40.00 MiB",
        "7.40 GiB",
        ["7.10 GiB", "5.00 MiB"],
    ));
    assert_eq!(few.cause, Cause::Full, "0.26 GiB of a desktop");
    // An older message does not say what is the context and what are others.
    let older = diagnose(&older("1.00 GiB", "16.00 GiB", "0 bytes", "500.00 MiB", "0 bytes"));
    assert_eq!(older.cause, Cause::OtherProcess);
    assert!(older.account.of(What::Outside) > gib(15.0));
}

/// Pieces are the cause if they would have been enough and are a good part of what is held.
#[test]
fn fragmentation_needs_enough_pieces() {
    let found = diagnose(&message(
        "2.50 GiB",
        "15.70 GiB",
        "1.20 GiB",
        "14.40 GiB",
        ["11.00 GiB", "3.00 GiB"],
    ));
    assert_eq!(found.cause, Cause::Fragmentation);
    assert!(found.remedies.contains(&Remedy::Expandable));
    let found = diagnose(&message(
        "30.00 MiB",
        "15.70 GiB",
        "10.00 MiB",
        "15.60 GiB",
        ["15.00 GiB", "90.00 MiB"],
    ));
    assert_eq!(found.cause, Cause::Full, "some pieces are always left");
}

/// Without a line of nanoGPT's, nothing of nanoGPT's is said.
#[test]
fn other_programs_get_no_keys_of_nanogpt() {
    let texts = [
        message("150.00 MiB", "23.60 GiB", "90.00 MiB", "23.40 GiB", ["22.80 GiB", "40.00 MiB"]),
        format!(
            "  File \"/opt/site-packages/transformers/trainer.py\", line 9, in training_step\n{}",
            older("600.00 MiB", "14.70 GiB", "13.40 GiB", "500.00 MiB", "13.50 GiB")
        ),
    ];
    for log in texts {
        let found = diagnose(&log);
        assert!(!found.modelled && found.fitgpt.is_none() && found.patch.is_none());
        for language in Language::ALL {
            let said = text(&found, language);
            for key in ["n_embd", "block_size", "fitgpt train", "train.py"] {
                assert!(!said.contains(key), "{key}: {said}");
            }
        }
    }
    let trainer = diagnose(&format!(
        "  File \"/opt/site-packages/transformers/trainer.py\", line 9, in training_step\n{}",
        older("600.00 MiB", "14.70 GiB", "13.40 GiB", "500.00 MiB", "13.50 GiB")
    ));
    assert!(trainer.remedies.contains(&Remedy::TrainerBatch), "{:?}", trainer.remedies);
}

/// The history of a real run (float16, compiled): what died, what ran, on 9.72 GiB.
#[test]
fn what_ran_fits_and_what_died_does_not() {
    let run = |width: u64, batch: u64, compile: &str| {
        let settings = [
            format!("n_embd={width}"),
            format!("batch_size={batch}"),
            "gradient_accumulation_steps=32".to_string(),
            "dtype=float16".to_string(),
            format!("compile={compile}"),
        ];
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        would(&settings, Some(1.97))
    };
    for (width, batch, fits) in
        [(576, 16, false), (504, 16, false), (384, 16, true), (768, 16, false), (768, 8, true)]
    {
        let compiled = run(width, batch, "True");
        assert_eq!(fit(&compiled) == Fit::Fits, fits, "{width} x {batch}: {:?}", compiled.needs);
        assert_eq!(compiled.would_not_fit(), !fits);
        assert_ne!(fit(&run(width, batch, "False")), Fit::Fits, "eager {width} x {batch}");
    }
}

/// What is meant to fit leaves a margin, and an assumed desktop is named.
#[test]
fn margins_are_said() {
    let run = ["n_embd=576", "batch_size=16", "dtype=float16", "gradient_accumulation_steps=32"];
    let found = would(&run, None);
    assert_eq!(found.room.unwrap().source, RoomSource::Desktop);
    assert_ne!(fit(&found), Fit::Fits);
    let said = text(&found, Language::English);
    for words in ["10.82 GiB", "±7 %", "0.3 to 2 GiB", "--used"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    for fix in &found.fixes {
        assert!(fix.device_bytes <= found.room.unwrap().target(), "{fix:?}");
    }
    // A config that fits gets no advice.
    let small = would(&["batch_size=2"], Some(0.5));
    assert_eq!(fit(&small), Fit::Fits);
    assert!(small.advice.is_empty() && small.fixes.is_empty() && small.patch.is_none());
    assert!(!small.would_not_fit());
}

/// A run that our model lets fit, and that died: the report says so.
#[test]
fn a_failure_against_the_model_is_said() {
    let found = diagnose(&format!(
        "Overriding: batch_size = 2\nOverriding: compile = False\n\
         number of parameters: 123.59M\n{}",
        message("196.00 MiB", "15.70 GiB", "50.00 MiB", "15.60 GiB", ["15.00 GiB", "80.00 MiB"])
    ));
    assert!(found.modelled);
    assert!(reasons(&found).contains(&Reason::ModelFits), "{:?}", found.reasons);
    assert!(!found.lacks_fixes());
}

/// A checkpoint that stays beside the model.
#[test]
fn resumed_runs_keep_their_checkpoint() {
    let found = diagnose(include_str!("../logs/resumed_124m_batch_2.log"));
    assert_eq!(found.cause, Cause::LoadedCheckpoint);
    let command = found.fitgpt.as_ref().unwrap();
    assert!(command.arguments.iter().any(|word| word == "--init_from=resume"));
    let diff = found.patch.unwrap().diff();
    assert!(diff.contains("map_location='cpu'"), "{diff}");
}

/// Claims are judged with the bytes of this run.
#[test]
fn claims_are_judged_by_bytes() {
    let given = ["n_embd=576", "batch_size=16", "dtype=float16", "gradient_accumulation_steps=32"];
    let given: Vec<String> = given.iter().map(|setting| format!("--{setting}")).collect();
    let mut log = Log::read(b"");
    for claim in [
        Claim::KvCacheInTraining,
        Claim::GraphKeptInEval,
        Claim::AdamAtFirstEval,
        Claim::EvalIsCulprit,
        Claim::EvalBatchSizeAlone,
        Claim::EvalBatchSizeKeyExists,
        Claim::SuppressErrors,
        Claim::CheckpointingHalves { percent: 50 },
        Claim::SmallerModel { n_embd: Some(512) },
        Claim::SmallerModel { n_embd: Some(384) },
        Claim::SmallerBatch { batch_size: Some(4) },
        Claim::CompileOff,
        Claim::CompileMode,
        Claim::EvalIters,
        Claim::KillOthers,
    ] {
        log.claims.push((claim, "somebody says so".to_string()));
    }
    let recovered = recover(None, &given);
    let card = Card::find("RTX 4070");
    let used = Some(gib(1.97));
    // The run is given, so its claims can be judged without a line of nanoGPT's.
    let found = Diagnosis::new(Some(log), recovered, Given { card, vram: None, used }).unwrap();
    let verdicts: Vec<Verdict> = found.advice.iter().map(|one| one.verdict).collect();
    assert_eq!(verdicts[..6], [Verdict::False; 6]);
    assert_eq!(verdicts[6], Verdict::DoesNothing, "suppress_errors");
    let checkpointing = &found.advice[7];
    assert_eq!(checkpointing.verdict, Verdict::Suffices, "{checkpointing:?}");
    assert!(checkpointing.bytes > 2 << 30);
    assert_eq!(verdicts[8], Verdict::Impossible, "12 heads do not divide 512");
    assert_eq!(verdicts[9..11], [Verdict::Suffices; 2]);
    assert_eq!(verdicts[11..13], [Verdict::Worse; 2]);
    assert_eq!(verdicts[13], Verdict::DoesNothing);
    assert_eq!(verdicts[14], Verdict::Suffices, "just so, on an empty card");
    for language in Language::ALL {
        let said = text(&found, language);
        assert!(!said.contains("{0}") && !said.contains("{bytes}"), "{said}");
    }
}

/// Numbers have the language's decimal separator, names are in the language.
#[test]
fn numbers_and_names_are_in_the_language() {
    let found = diagnose(include_str!("../logs/compiled_124m_batch_64.log"));
    for (language, wanted) in [
        (Language::German, ["6,14 GiB", "die Logits des nächsten"]),
        (Language::French, ["6,14 GiB", "lot d'évaluation suivant"]),
        (Language::Japanese, ["6.14 GiB", "次の評価バッチのロジット"]),
        (Language::Chinese, ["6.14 GiB", "下一个评估批次的logits"]),
    ] {
        let said = text(&found, language);
        for words in wanted {
            assert!(said.contains(words), "{language:?} {words}: {said}");
        }
        assert!(said.contains("--vram=11.69GiB"), "commands keep their point");
        for english in ["eval logits", "first_eval", "backward pass", "logits of"] {
            assert!(!said.contains(english), "{language:?} {english}: {said}");
        }
    }
}

/// Errors that name a shape, a step or a phase, but no size.
#[test]
fn errors_without_a_size_still_say_something() {
    let scores = diagnose(
        "ResourceExhaustedError: OOM when allocating tensor with shape[16,12,512,512] and type \
         float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
    );
    assert_eq!(scores.cause, Cause::AttentionScores);
    assert_eq!(scores.tensor.as_ref().unwrap().shape, [16, 12, 512, 512]);
    assert!(scores.remedies.contains(&Remedy::TensorflowGrowth));
    assert!(text(&scores, Language::English).contains("192.00 MiB did not fit"));
    let step = diagnose(
        "Traceback (most recent call last):\n  File \"/opt/torch/optim/adamw.py\", line 5, in \
         _multi_tensor_adamw\n    torch._foreach_add_(a, b)\nRuntimeError: CUDA out of memory.\n",
    );
    assert_eq!(step.cause, Cause::OptimizerStep);
    assert!(step.remedies.starts_with(&[Remedy::Foreach]), "{:?}", step.remedies);
    let first = diagnose(
        "  File \"main.py\", line 3, in <module>\n    model.to(device)\n\
         RuntimeError: CUDA error: out of memory\n",
    );
    assert_eq!(first.cause, Cause::FullBefore);
    assert!(first.remedies.contains(&Remedy::SeeDevices));
}

/// 16 bytes for each parameter, whatever the program is.
#[test]
fn parameters_are_counted_for_any_program() {
    let full =
        message("40.00 MiB", "23.60 GiB", "10.00 MiB", "23.50 GiB", ["23.00 GiB", "100.00 MiB"]);
    let found = diagnose(&format!("Total number of parameters: 2,000,000,000\n{full}"));
    assert_eq!(found.cause, Cause::State);
    let said = text(&found, Language::German);
    assert!(said.contains("2.000.000.000 Parameter") && said.contains("29,80 GiB"), "{said}");
    assert!(!found.remedies.contains(&Remedy::Batch), "the batch does not help");
    let small =
        diagnose(&format!("python run_clm.py --model_name_or_path=gpt2 --do_train\n{full}"));
    assert_eq!(small.cause, Cause::Full);
    assert!(reasons(&small).contains(&Reason::Beyond), "activations fill the card");
}

/// Host memory is not the GPU's, and Windows' shared memory is real.
#[test]
fn other_memories_are_told_apart() {
    let killed = diagnose(
        "kernel: Out of memory: Killed process 4242 (python) total-vm:99999999kB, \
         anon-rss:31457280kB, file-rss:0kB",
    );
    assert_eq!(killed.cause, Cause::HostMemory);
    assert!(killed.room.is_none() && killed.fitgpt.is_none());
    assert!(text(&killed, Language::English).contains("30.00 GiB"));
    let shared = diagnose(
        "  File \"C:\\Users\\me\\x.py\", line 1, in <module>\ntorch.cuda.OutOfMemoryError: CUDA \
         out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 8.00 GiB of \
         which 0 bytes is free. Of the allocated memory 12.00 GiB is allocated by PyTorch, and \
         300.00 MiB is reserved by PyTorch but unallocated.",
    );
    assert!(reasons(&shared).contains(&Reason::SharedMemory), "{:?}", shared.reasons);
    assert!(shared.remedies.contains(&Remedy::WindowsShared), "{:?}", shared.remedies);
}

/// More free than was asked for: the figures are not believed.
#[test]
fn contradictions_are_said_not_computed_with() {
    let found = diagnose(&older("300.00 MiB", "15.80 GiB", "4.00 GiB", "9.00 GiB", "4.20 GiB"));
    assert_eq!(found.cause, Cause::Contradiction);
    assert!(reasons(&found).contains(&Reason::FreeExceeds));
    let nothing = diagnose(&message(
        "3.00 GiB",
        "79.10 GiB",
        "2.00 GiB",
        "0 bytes",
        ["50.00 GiB", "1.00 GiB"],
    ));
    assert!(reasons(&nothing).contains(&Reason::HoldsNothing));
    assert_eq!(nothing.cause, Cause::OtherProcess, "26 GiB are neither PyTorch's nor free");
}
