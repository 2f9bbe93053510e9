//! What people paste, in small cases of our own: other backends, errors without numbers, messages
//! of which a part is missing, threads in two languages. Each case is a rule that a report broke.

use fitgpt_doctor::account::What;
use fitgpt_doctor::advice::Verdict;
use fitgpt_doctor::cause::{Cause, Reason};
use fitgpt_doctor::diagnosis::{Diagnosis, Given};
use fitgpt_doctor::log::{Claim, Dialect, Log, LogPhase, Program};
use fitgpt_doctor::recovered::RecoveredRun;
use fitgpt_doctor::remedies::Remedy;
use fitgpt_doctor::report::Report;
use fitgpt_doctor::words::Language;
use spec::World;

fn diagnose(text: &str) -> Diagnosis {
    let log = Log::read(text.as_bytes());
    let nothing = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let world = World { read: &nothing, unix_time: 0.0 };
    let recovered = RecoveredRun::recover(Some(&log), &[], &world, None, |_| None).unwrap();
    Diagnosis::new(Some(log), recovered, Given::default()).unwrap()
}

fn says(found: &Diagnosis, reason: Reason) -> bool {
    found.reasons.iter().any(|said| said.reason == reason)
}

fn summary(found: &Diagnosis) -> String {
    let report = Report { diagnosis: found, language: Language::English, program: "fitgpt" };
    report.summary().join("\n")
}

/// A message of PyTorch 1.x.
fn older(asked: &str, card: &str, allocated: &str, free: &str, reserved: &str) -> String {
    format!(
        "RuntimeError: CUDA out of memory. Tried to allocate {asked} (GPU 0; {card} total \
         capacity; {allocated} already allocated; {free} free; {reserved} reserved in total by \
         PyTorch)"
    )
}

/// Metal's limit counts what PyTorch holds and what the process holds beside it.
#[test]
fn the_limit_of_an_apple_gpu_counts_all_of_the_process() {
    let found = diagnose(
        "RuntimeError: MPS backend out of memory (MPS allocated: 6.50 GB, other allocations: 11.20 \
         GB, max allowed: 18.00 GB). Tried to allocate 420.00 MB on private pool.",
    );
    assert_eq!(found.account.total, Some(18 << 30));
    let sum: u64 = found.account.rows.iter().map(|(_, bytes)| bytes).sum();
    assert!(sum.abs_diff(18 << 30) < 1 << 20, "{:?}", found.account.rows);
    let free = found.account.of(What::Free) >> 20;
    assert_eq!(free, 307, "0.3 GiB");
    assert!(found.account.held.unwrap() > 17 << 30);
    // More than the limit: no sum.
    let over = diagnose(
        "MPS backend out of memory (MPS allocated: 6.00 GB, other allocations: 1.20 GB, max \
         allowed: 7.00 GB). Tried to allocate 420.00 MB on private pool.",
    );
    assert_eq!(over.account.total, None);
}

/// Names in capitals are messages too; a library's failure is not a plain one.
#[test]
fn errors_in_capitals_are_found() {
    for (text, dialect, cause) in [
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(h)`",
            Dialect::Library,
            Cause::Library,
        ),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", Dialect::Library, Cause::Library),
        ("failed: CUDA_ERROR_OUT_OF_MEMORY", Dialect::Driver, Cause::Unknown),
    ] {
        let found = diagnose(text);
        assert_eq!(found.log.as_ref().unwrap().message.dialect, dialect, "{text}");
        assert_eq!(found.cause, cause, "{text}");
        assert!(!found.is_empty(), "{text}");
        assert!(found.remedies.contains(&Remedy::SeeNvidia), "{text}");
    }
}

/// The end of a message without its request still says who holds the card.
#[test]
fn others_are_seen_without_a_request() {
    let text = "(GPU 0; 15.50 GiB total capacity; 90.00 MiB already allocated; 4.00 MiB free; \
        100.00 MiB reserved in total by PyTorch)";
    let found = diagnose(text);
    assert_eq!(found.cause, Cause::OtherProcess);
    assert!(says(&found, Reason::OthersHoldMost));
}

/// Where the message does not separate them, a tenth of the card may be this process's own
/// libraries, and freeing it would not be enough.
#[test]
fn a_little_outside_pytorch_is_not_blamed_on_others() {
    let found = diagnose(&older("14.00 MiB", "6.00 GiB", "4.40 GiB", "4.00 MiB", "4.50 GiB"));
    assert_eq!(found.cause, Cause::Full);
    let much = diagnose(&older("14.00 MiB", "24.00 GiB", "12.00 GiB", "4.00 MiB", "12.50 GiB"));
    assert_eq!(much.cause, Cause::OtherProcess);
    let verdict = |found: &Diagnosis, claim: Claim| {
        found.advice.iter().find(|row| row.claim == claim).map(|row| row.verdict)
    };
    assert_eq!(
        verdict(&much, Claim::KillOthers),
        Some(Verdict::Helps),
        "what it needs is not known"
    );
    assert_eq!(verdict(&much, Claim::ExpandableSegments), Some(Verdict::DoesNothing));
    let part = diagnose(&older("64.00 MiB", "15.00 GiB", "12.40 GiB", "4.00 MiB", "12.50 GiB"));
    assert_eq!(verdict(&part, Claim::KillOthers), None, "2.5 GiB: whose they are is not said");
}

/// A request beyond the card names nothing, and needs no other cause.
#[test]
fn a_request_beyond_the_card_is_its_own_cause() {
    let found = diagnose(&older("32.00 GiB", "15.20 GiB", "1.00 GiB", "13.00 GiB", "1.10 GiB"));
    assert_eq!(found.cause, Cause::Request);
    assert!(says(&found, Reason::ExceedsCard));
    assert_eq!(found.tensor, None);
}

/// A small request without any totals: nobody is blamed.
#[test]
fn without_totals_nobody_is_blamed() {
    let found = diagnose(
        "ResourceExhaustedError: OOM when allocating tensor with shape[8192,768] and type float on \
         /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
    );
    assert_eq!(found.cause, Cause::Unsaid);
    assert!(found.remedies.contains(&Remedy::TensorflowBatch));
    // TensorFlow does not round the size up.
    let logits = diagnose(
        "OOM when allocating tensor with shape[2048,50257] and type float on \
         /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
    );
    assert_eq!(logits.tensor.unwrap().name, "logits");
}

/// Heads say which GPT-2 it is, and so how many layers keep their scores.
#[test]
fn scores_are_summed_over_the_layers_of_that_model() {
    let found = diagnose(
        "OOM when allocating tensor with shape[2,20,1024,1024] and type float on \
         /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
    );
    assert!(summary(&found).contains("5.62 GiB in 36 layers"), "{}", summary(&found));
}

/// A model that is being moved to the GPU has neither gradients nor activations.
#[test]
fn a_model_that_is_moved_does_not_fit_itself() {
    let text = format!(
        "  File \"C:\\me\\train.py\", line 3, in prepare\n    model = model.to(device)\n{}",
        older("20.00 MiB", "4.00 GiB", "3.40 GiB", "0 bytes", "3.45 GiB")
    );
    let found = diagnose(&text);
    assert_eq!(found.cause, Cause::Weights);
    assert!(!found.remedies.contains(&Remedy::Batch), "{:?}", found.remedies);
}

/// A call above the message tells the phase, even if its frame was cut off.
#[test]
fn a_line_of_code_above_the_message_tells_the_phase() {
    let text = format!(
        "    Variable._execution_engine.run_backward(  # Calls into the C++ engine\n{}",
        older("64.00 MiB", "4.00 GiB", "3.40 GiB", "0 bytes", "3.45 GiB")
    );
    assert_eq!(diagnose(&text).phase, LogPhase::Backward);
}

/// Host memory: what was asked for, and what helps on that system.
#[test]
fn host_memory_is_asked_for_or_the_kernel_kills() {
    let windows = diagnose(
        "RuntimeError: [enforce fail at ..\\c10\\core\\impl\\alloc_cpu.cpp:72] data. \
         DefaultCPUAllocator: not enough memory: you tried to allocate 52428800 bytes.",
    );
    assert!(summary(&windows).starts_with("50.00 MiB of host memory"), "{}", summary(&windows));
    assert_eq!(windows.remedies, [Remedy::HostMemory, Remedy::PageFile]);
    let killed = diagnose("Training...\nKilled\n");
    assert_eq!(killed.cause, Cause::Killed, "nothing says that it was for memory");
    assert_eq!(killed.remedies, [Remedy::HostKilled, Remedy::HostMemory]);
    let kernel = diagnose("kernel: Out of memory: Killed process 7 (python3) anon-rss:9437184kB");
    assert_eq!(kernel.cause, Cause::HostMemory);
}

/// Whose program it is decides which advice is true.
#[test]
fn programs_are_known_by_their_scripts() {
    let message = older("64.00 MiB", "16.00 GiB", "15.00 GiB", "4.00 MiB", "15.20 GiB");
    for (line, program, name) in [
        ("File \"run_clm_no_trainer.py\", line 9, in main", Program::HfTransformers, None),
        ("--per_gpu_train_batch_size 4", Program::HfTransformers, None),
        ("python finetune/lora.py --devices 2", Program::LitGpt, None),
        ("File \"/x/minimind/train.py\", line 1, in f", Program::OtherTorch, Some("minimind")),
    ] {
        let found = diagnose(&format!("{line}\n{message}")).log.unwrap().program;
        assert_eq!((found.program, found.name), (program, name), "{line}");
    }
    let jax = diagnose(
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to \
        allocate 99000000 bytes.",
    );
    assert_eq!(jax.log.as_ref().unwrap().program.program, Program::Jax);
    assert!(jax.remedies.contains(&Remedy::JaxPreallocates));
    assert!(jax.advice.is_empty(), "PyTorch's allocator is not JAX's");
    let driver = diagnose(
        "E tensorflow/stream_executor/rocm/rocm_driver.cc:601] failed to allocate 900.00M \
         (943718400 bytes) from device: HIP_ERROR_OutOfMemory",
    );
    assert_eq!(driver.log.as_ref().unwrap().program.program, Program::TensorFlow);
}

/// Hugging Face's loss drops the last position, and its logs say the batch.
#[test]
fn logits_of_a_said_batch_are_named() {
    let text = format!(
        "run_clm.py: Instantaneous batch size per device = 8\n{}",
        older("1.53 GiB", "14.70 GiB", "11.40 GiB", "1.20 GiB", "12.40 GiB")
    );
    let tensor = diagnose(&text).tensor.unwrap();
    assert_eq!((tensor.shape, tensor.alternatives.len()), (vec![8 * 1023, 50257], 0));
    assert!(diagnose(&text).advice.iter().all(|row| row.line.is_none()), "no claim is made");
}

/// A batch of one sequence cannot get smaller.
#[test]
fn a_batch_of_one_gets_other_advice() {
    let text = format!(
        "I set the batch size to 1 already.\n{}",
        older("64.00 MiB", "16.00 GiB", "15.00 GiB", "4.00 MiB", "15.20 GiB")
    );
    let found = diagnose(&text);
    assert!(found.remedies.contains(&Remedy::BatchIsOne), "{:?}", found.remedies);
    assert!(!found.remedies.contains(&Remedy::Batch));
}

/// A sentence that names the model is enough to say what its state takes.
#[test]
fn the_state_of_a_named_model_is_counted() {
    let found = diagnose("I keep getting OOM when I train gpt2xl on my RTX 3090 with 24GB memory.");
    assert_eq!(found.cause, Cause::State);
    assert!(says(&found, Reason::StateLeavesNothing), "{:?}", found.reasons);
}

/// nanoGPT's fine-tuning: OpenAI's models come in four sizes, and a smaller one is the way out.
#[test]
fn a_smaller_pretrained_model_is_offered() {
    let text = format!(
        "$ python train.py --init_from=gpt2-xl --dataset=mine --batch_size=1\n\
         You may use a smaller model.\n{}",
        older("100.00 MiB", "23.60 GiB", "21.60 GiB", "80.00 MiB", "21.90 GiB")
    );
    let found = diagnose(&text);
    assert!(found.modelled);
    assert_eq!(found.cause, Cause::State, "16 bytes for each of 1558M parameters");
    let settings: Vec<_> = found.fixes.iter().flat_map(|fix| &fix.settings).collect();
    assert_eq!(settings, [&("init_from", "gpt2-large".to_string())]);
    let names = found.tensor.unwrap().alternatives.into_iter().map(|other| other.name);
    assert!(names.into_iter().any(|name| name == "attention scores"), "before PyTorch 2.0");
}

/// The message counts, not what someone says about the card.
#[test]
fn another_size_of_the_card_is_said() {
    let message = older("64.00 MiB", "15.70 GiB", "15.00 GiB", "4.00 MiB", "15.20 GiB");
    let other = diagnose(&format!("My run on an NVIDIA V100 32GB fails:\n\n{message}"));
    assert!(says(&other, Reason::CardDiffers));
    let same = diagnose(&format!("My run on an NVIDIA V100 16GB fails:\n\n{message}"));
    assert!(!says(&same, Reason::CardDiffers));
}

/// The language is that of most sentences; a program that prints two does not count.
#[test]
fn a_thread_is_answered_in_the_language_of_most_of_it() {
    let language = |text: &str| Log::read(text.as_bytes()).language;
    let english = "When I run the script on my card, it stops with this error, and that is all I \
        know about it. What is the reason for this?";
    assert_eq!(language(&format!("{english}\n\n遇到同样的问题\n")), Some(Language::English));
    assert_eq!(
        language("我也遇到同样的问题，请问怎么解决\n\nSame here on my side."),
        Some(Language::Chinese)
    );
    assert_eq!(language("steps for 9 epochs is / 指定エポックまでのステップ数: 90"), None);
}

/// Launchers tell how many processes share a run.
#[test]
fn ranks_are_read_from_the_launcher() {
    let ranks = |text: &str| Log::read(text.as_bytes()).run.ranks;
    assert_eq!(ranks("torchrun --nproc_per_node=4 --nnodes=2 train.py"), Some(8));
    assert_eq!(ranks("torchrun --nproc-per-node 4 train.py"), Some(4));
    assert_eq!(ranks("python train.py"), None);
}

/// A model that only generates has no gradients and no optimizer.
#[test]
fn generation_gets_no_advice_about_training() {
    let message = older("86.00 MiB", "3.90 GiB", "3.00 GiB", "29.00 MiB", "3.10 GiB");
    let text = format!("---> 15 out = model.generate(ids, max_length=25)\n{message}");
    let found = diagnose(&text);
    assert_eq!((found.phase, found.cause), (LogPhase::Sample, Cause::FullOfInference));
    assert_eq!(found.remedies, [Remedy::Inference]);
    let server =
        diagnose("ValueError: No available memory for the cache blocks. Try increasing x.");
    assert_eq!(server.phase, LogPhase::Sample);
    assert!(server.remedies.contains(&Remedy::Inference));
}

/// The Trainer's own evaluation keeps what it predicts.
#[test]
fn predictions_of_an_evaluation_are_kept() {
    let text = format!(
        "  File \"/x/site-packages/transformers/trainer.py\", line 25, in evaluation_loop\n    \
         preds = nested_concat(preds, logits)\n{}",
        older("2.80 GiB", "39.50 GiB", "35.00 GiB", "2.20 GiB", "35.20 GiB")
    );
    let found = diagnose(&text);
    assert!(says(&found, Reason::PredictionsKept));
    assert!(found.remedies.contains(&Remedy::TrainerEval));
}

/// A context that cannot be made: the card was full before.
#[test]
fn a_context_needs_memory_too() {
    let found = diagnose(
        "InternalError: failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of \
         memory; total memory reported: 4200000000",
    );
    assert_eq!(found.cause, Cause::FullBefore);
}

/// Ranks run one program, so the frames of one tell the phase of all.
#[test]
fn frames_of_another_rank_are_better_than_none() {
    let message = older("270.00 MiB", "23.60 GiB", "22.80 GiB", "200.00 MiB", "22.90 GiB");
    let text = format!(
        "[rank6]: {message}\n[rank1]: Traceback (most recent call last):\n[rank1]:   File \
         \"/x/run.py\", line 9, in run\n[rank1]:     trainer.predict(data)\n"
    );
    assert_eq!(diagnose(&text).phase, LogPhase::Eval);
}

/// A message that says what is free but not what PyTorch holds: nothing is counted twice.
#[test]
fn a_message_without_its_own_sum_adds_up() {
    let found = diagnose(
        "nanoGPT with batch_size=32 and block_size=1024 fails in the evaluation:\n\n\
         torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.07 GiB. GPU 0 has a total \
         capacity of 7.63 GiB of which 2.20 GiB is free.",
    );
    assert!(found.modelled && found.tensor.is_some());
    let sum: u64 = found.account.rows.iter().map(|(_, bytes)| bytes).sum();
    assert!(sum.abs_diff(found.account.total.unwrap()) < 1 << 20, "{:?}", found.account.rows);
}

/// A command names nanoGPT's own file; unless the log echoes it, its content is known.
#[test]
fn a_shipped_file_counts_unless_it_is_echoed() {
    let log = Log::read(
        b"$ python train.py config/train_shakespeare_char.py --batch_size=512\n\
          Overriding: batch_size = 512\nnumber of parameters: 10.65M\n",
    );
    assert_eq!(log.run.setting("n_embd"), Some("384"));
    assert_eq!(log.run.setting("batch_size"), Some("512"));
    let log = Log::read(b"Overriding config with config/train_shakespeare_char.py:\nn_embd = 96\n");
    assert_eq!((log.run.setting("n_embd"), log.run.setting("n_layer")), (Some("96"), None));
}
