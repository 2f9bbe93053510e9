//! Messages in every dialect: wrapped, coloured, prefixed, truncated at any byte. What a message
//! does not contain stays unknown.

use fitgpt_doctor::account::Account;
use fitgpt_doctor::log::{Dialect, Log};
use fitgpt_doctor::tensor::in_general;
use proptest::prelude::*;

const TORCH_20: &str = "\
    RuntimeError: CUDA out of memory. Tried to allocate 786.00 MiB (GPU 0; 7.93 GiB total \
    capacity; 6.46 GiB already allocated; 17.62 MiB free; 6.57 GiB reserved in total by \
    PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to \
    avoid fragmentation.";

const TORCH_21: &str = "\
    torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a \
    total capacty of 11.69 GiB of which 2.68 GiB is free. Process 4242 has 1.20 GiB memory \
    in use. Including non-PyTorch memory, this process has 7.04 GiB memory in use. Of the \
    allocated memory 6.78 GiB is allocated by PyTorch, and 35.10 MiB is reserved by PyTorch \
    but unallocated.";

const TORCH_23: &str = "\
    torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 1 has a \
    total capacity of 79.15 GiB of which 3.40 GiB is free. Including non-PyTorch memory, \
    this process has 75.70 GiB memory in use. Of the allocated memory 70.00 GiB is allocated \
    by PyTorch, with 2.10 GiB allocated in private pools (e.g., CUDA Graphs), and 4.10 GiB \
    is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try \
    setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";

const WSL: &str = "\
    torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.54 GiB. GPU 0 has a \
    total capacity of 11.99 GiB of which 0 bytes is free. Process 77 has 17179869184.00 GiB \
    memory in use. Including non-PyTorch memory, this process has 17179869184.00 GiB memory \
    in use. Of the allocated memory 9.00 GiB is allocated by PyTorch, and 1.00 GiB is \
    reserved by PyTorch but unallocated.";

fn bytes(gib: f64) -> u64 {
    (gib * (1u64 << 30) as f64) as u64
}

#[test]
fn every_dialect_is_read() {
    let log = Log::read(TORCH_20.as_bytes());
    assert_eq!(log.message.dialect, Dialect::Torch20);
    assert_eq!(log.message.capacity.as_ref().unwrap().bytes, bytes(7.93));
    assert_eq!(log.message.allocated.as_ref().unwrap().bytes, bytes(6.46));
    assert_eq!(log.message.reserved.as_ref().unwrap().bytes, bytes(6.57));
    let log = Log::read(TORCH_21.as_bytes());
    assert_eq!(log.message.dialect, Dialect::Torch21);
    assert_eq!(log.message.others.len(), 1);
    assert_eq!(log.message.process.as_ref().unwrap().bytes, bytes(7.04));
    let log = Log::read(TORCH_23.as_bytes());
    assert_eq!(log.message.dialect, Dialect::Torch23);
    assert_eq!(log.message.private_pools.as_ref().unwrap().bytes, bytes(2.10));
    assert!(!log.message.expandable, "the message's own advice is not a setting");
    for (text, dialect) in [
        ("RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be", Dialect::Bare),
        ("[CUDA ERROR] at file train_gpt2.cu:1144:\nout of memory", Dialect::LlmC),
        ("Cuda OOM when allocating tensor of size 1.54 GiB", Dialect::Driver),
        ("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")", Dialect::Driver),
        (
            "MPS backend out of memory (MPS allocated: 5.05 GiB, max allowed: 9.07 GiB)",
            Dialect::Mps,
        ),
        (
            "2.01 GiB of memory are missing: the smallest plan needs 13.70 GiB of 11.69 GiB",
            Dialect::Fitgpt,
        ),
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU", Dialect::Torch23),
        ("everything is fine", Dialect::None),
    ] {
        assert_eq!(Log::read(text.as_bytes()).message.dialect, dialect, "{text}");
    }
}

/// 11.69 - 2.68 - 7.04: a number that the message only implies.
#[test]
fn other_programs_are_found() {
    let others = Account::new(&Log::read(TORCH_21.as_bytes()), None).others;
    assert!((others as f64 / (1u64 << 30) as f64 - 1.97).abs() < 0.005, "{others}");
}

#[test]
fn impossible_numbers_are_ignored_and_named() {
    let log = Log::read(WSL.as_bytes());
    assert_eq!(log.message.nonsense.len(), 2, "{:?}", log.message);
    assert!(log.message.process.is_none() && log.message.others.is_empty());
    assert_eq!(log.message.allocated.as_ref().unwrap().bytes, bytes(9.0));
}

#[test]
fn wrapping_colours_and_prefixes_change_nothing() {
    let plain = Log::read(TORCH_23.as_bytes()).message;
    let words: Vec<&str> = TORCH_23.split(' ').collect();
    for columns in [20, 40, 79] {
        let mut lines = vec![String::new()];
        for word in &words {
            if lines.last().unwrap().len() + word.len() > columns {
                lines.push(String::new());
            }
            let line = lines.last_mut().unwrap();
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        let wrapped: Vec<String> =
            lines.iter().map(|line| format!("[rank0]: \u{1b}[31m{line}\u{1b}[0m")).collect();
        let mut found = Log::read(wrapped.join("\n").as_bytes()).message;
        assert_eq!(found.rank.take(), Some(0));
        assert_eq!(found, plain, "{columns}");
    }
}

#[test]
fn sizes_name_logits_without_any_settings() {
    for (text, vocabulary, shape) in [
        ("Tried to allocate 786.00 MiB (GPU", Some(50304), [8192, 50304]),
        ("Tried to allocate 6.14 GiB. GPU", None, [65536, 50304]),
        ("Tried to allocate 3.07 GiB. GPU", None, [32768, 50304]),
        ("Tried to allocate 8.00 GiB. GPU 0\nnanochat", None, [65536, 65536]),
    ] {
        let log = Log::read(format!("CUDA out of memory. {text}").as_bytes());
        let named = in_general(log.message.requested.as_ref().unwrap(), &log, vocabulary).unwrap();
        assert_eq!(named.shape, shape, "{text}: {named:?}");
        assert_eq!(named.dtype.size(), 2);
    }
    let log = Log::read(b"CUDA out of memory. Tried to allocate 1.23 GiB. GPU 0");
    assert_eq!(in_general(log.message.requested.as_ref().unwrap(), &log, Some(50304)), None);
    // A power of two may be anything.
    let log = Log::read(b"CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0");
    assert_eq!(in_general(log.message.requested.as_ref().unwrap(), &log, None), None);
}

proptest! {
    /// A truncated log says less, never something different.
    #[test]
    fn a_log_cut_anywhere_invents_nothing(which in 0usize..4, share in 0.0f64..1.0, front: bool) {
        let log = include_str!("../logs/eager_774m_batch_1.log");
        let whole = [TORCH_20, TORCH_21, TORCH_23, log][which];
        let at = (whole.len() as f64 * share) as usize;
        let part = if front { &whole.as_bytes()[at..] } else { &whole.as_bytes()[..at] };
        let (full, cut) = (Log::read(whole.as_bytes()).message, Log::read(part).message);
        let pairs = [
            (&cut.requested, &full.requested),
            (&cut.capacity, &full.capacity),
            (&cut.free, &full.free),
            (&cut.process, &full.process),
            (&cut.allowed, &full.allowed),
            (&cut.allocated, &full.allocated),
            (&cut.unallocated, &full.unallocated),
        ];
        for (cut, full) in pairs {
            let (Some(cut), Some(full)) = (cut, full) else {
                prop_assert!(cut.is_none(), "{cut:?} is invented");
                continue;
            };
            // A number may be truncated at the end of the text; then it is shorter.
            let told = full.to_string();
            let number = cut.to_string();
            let number = number.split(' ').next().unwrap();
            prop_assert!(told.contains(number), "{cut} of {full}");
        }
    }

    /// Anything at all is read without a panic.
    #[test]
    fn anything_is_read(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let _ = Log::read(&bytes);
    }

    #[test]
    fn anything_with_the_right_words_is_read(words in proptest::collection::vec(
        prop_oneof![
            Just("CUDA out of memory. Tried to allocate "), Just("GiB"), Just("6.14 "), Just("\n"),
            Just("Process 12 has "), Just(" is free."), Just("File \""), Just("Overriding: a = "),
            Just("empty_strided_cuda(("), Just("99999999999999999999 "), Just("\u{1b}["), Just(")"),
            Just("step 3: "), Just("number of parameters: "), Just("é"), Just(" total capacity;"),
        ], 0..60)) {
        let _ = Log::read(words.concat().as_bytes());
    }
}

/// 2^64 bytes: adding anything would overflow.
#[test]
fn an_impossible_capacity_is_ignored() {
    let text = TORCH_23.replace("79.15 GiB", "17179869184.00 GiB");
    let message = Log::read(text.as_bytes()).message;
    assert_eq!(message.capacity, None);
    assert_eq!(message.nonsense, ["17179869184.00 GiB"]);
    assert_eq!(message.requested.map(|size| size.bytes), Some(8 << 30));
}

/// A terminal may wrap lines inside a number, which is then read completely or not at all.
#[test]
fn any_width_gives_the_same_numbers_or_none() {
    let whole = include_str!("../logs/compiled_124m_batch_64.log");
    let full = Log::read(whole.as_bytes()).message;
    for width in 40..=200 {
        let mut cut = String::new();
        for line in whole.lines() {
            let characters: Vec<char> = line.chars().collect();
            for part in characters.chunks(width) {
                cut.extend(part);
                cut.push('\n');
            }
        }
        let found = Log::read(cut.as_bytes()).message;
        let pairs = [
            (&found.requested, &full.requested),
            (&found.capacity, &full.capacity),
            (&found.free, &full.free),
            (&found.process, &full.process),
            (&found.allowed, &full.allowed),
            (&found.allocated, &full.allocated),
            (&found.unallocated, &full.unallocated),
        ];
        for (found, full) in pairs {
            assert!(found.is_none() || found == full, "{width}: {found:?} of {full:?}");
        }
        assert!(found.requested.is_some() && found.allocated.is_some(), "{width}");
    }
}

#[test]
fn a_process_that_is_not_said_to_be_this_one_is_found() {
    let text = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a \
        total capacity of 23.69 GiB of which 1.29 GiB is free. Process 1234 has 22.40 GiB memory \
        in use. Of the allocated memory 21.00 GiB is allocated by PyTorch, and 0.50 GiB is \
        reserved by PyTorch but unallocated.";
    let log = Log::read(text.as_bytes());
    assert_eq!(log.message.process.as_ref().unwrap().bytes, bytes(22.40));
    assert_eq!(Account::new(&log, None).others, 0);
}
