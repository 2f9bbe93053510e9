//! One log in many renderings says one thing. Posts and notes of every kind are read; what they do
//! not say stays unknown.

use fitgpt_doctor::log::{
    Backend, Claim, Contradiction, Dialect, Log, LogPhase, Origin, Program, System,
};
use fitgpt_doctor::words::Language;
use proptest::prelude::*;

const LOG: &str = "\
Overriding: batch_size = 24
Overriding: n_embd = 640
Overriding: n_head = 10
tokens per iteration will be: 24,576
number of parameters: 89.97M
Traceback (most recent call last):
  File \"/home/me/nanoGPT/train.py\", line 264, in <module>
    losses = estimate_loss()
             ^^^^^^^^^^^^^^^
  File \"/home/me/nanoGPT/train.py\", line 224, in estimate_loss
    logits, loss = model(X, Y)
                   ^^^^^^^^^^^
  File \"/home/me/nanoGPT/model.py\", line 187, in forward
    loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.61 GiB. GPU 0 has a total \
capacity of 9.77 GiB of which 3.02 GiB is free. Including non-PyTorch memory, this process has \
6.60 GiB memory in use. Of the allocated memory 6.01 GiB is allocated by PyTorch, and 80.25 MiB \
is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting \
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.
";

fn each_line(change: impl Fn(&str) -> String) -> String {
    LOG.lines().map(|line| change(line) + "\n").collect()
}

fn utf16(text: &str) -> Vec<u8> {
    [0xff, 0xfe].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect()
}

/// Lines as a terminal of this width cuts them.
fn cut(width: usize) -> String {
    let mut text = String::new();
    for line in LOG.lines() {
        for part in line.chars().collect::<Vec<_>>().chunks(width) {
            text.extend(part);
            text.push('\n');
        }
    }
    text
}

#[test]
fn every_rendering_of_a_log_says_the_same() {
    let json: String = LOG.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let renderings: Vec<(&str, Vec<u8>)> = vec![
        ("UTF-16", utf16(LOG)),
        ("UTF-16 without a mark", utf16(LOG)[2..].to_vec()),
        ("CRLF", LOG.replace('\n', "\r\n").into_bytes()),
        ("colours", each_line(|line| format!("\u{1b}[31m{line}\u{1b}[0m")).into_bytes()),
        ("colours without ESC", each_line(|line| format!("[0;31m{line}[0m")).into_bytes()),
        ("a quote", each_line(|line| format!("> {line}")).into_bytes()),
        ("a quoted quote", each_line(|line| format!("> > {line}")).into_bytes()),
        ("a fence", format!("```\n{LOG}```\n").into_bytes()),
        (
            "a fence in a quote",
            format!("> ```\n{}> ```\n", each_line(|line| format!("> {line}"))).into_bytes(),
        ),
        ("times", each_line(|line| format!("2026-01-02 03:04:05,678 {line}")).into_bytes()),
        ("levels", each_line(|line| format!("[2026-01-02 03:04:05] [INFO] {line}")).into_bytes()),
        ("JSON", format!("{{\"output\": \"{json}\"}}").into_bytes()),
        ("HTML", LOG.replace('<', "&lt;").replace('>', "&gt;").into_bytes()),
        ("blank lines", LOG.replace('\n', "\n\n").into_bytes()),
        ("a narrow terminal", cut(72).into_bytes()),
        ("workers", each_line(|line| format!("(Trainer pid=12) {line}")).into_bytes()),
        ("a container", each_line(|line| format!("trainer-1  | {line}")).into_bytes()),
        (
            "a logger",
            each_line(|line| format!("2026-01-02 03:04:05,678 - INFO - {line}")).into_bytes(),
        ),
        ("code in Markdown", each_line(|line| format!("    {line}")).into_bytes()),
        ("a box", each_line(|line| format!("│ {line:<700} │")).into_bytes()),
    ];
    let want = Log::read(LOG.as_bytes());
    assert_eq!(want.traceback.phase, LogPhase::FirstEval);
    for (name, pasted) in renderings {
        let mut found = Log::read(&pasted);
        assert_eq!(found.message, want.message, "{name}");
        assert_eq!(found.run, want.run, "{name}");
        assert_eq!(found.traceback, want.traceback, "{name}");
        // JSON puts its key before the first line of the output.
        found.program.evidence.clone_from(&want.program.evidence);
        assert_eq!(found, want, "{name}");
    }
    let mut ranks = Log::read(each_line(|line| format!("[rank3]: {line}")).as_bytes());
    assert_eq!(ranks.message.rank.take(), Some(3));
    assert_eq!(ranks, want);
}

/// Lines of two ranks alternate; the frames of one do not get into the other's.
#[test]
fn ranks_are_kept_apart() {
    let mut mixed = String::new();
    for line in LOG.lines() {
        mixed += &format!("[rank1]: {}\n", line.replace("4.61", "9.22"));
        mixed += &format!("[rank0]: {line}\n");
    }
    let mut found = Log::read(mixed.as_bytes());
    assert_eq!(found.message.rank.take(), Some(0));
    assert_eq!(found.traceback, Log::read(LOG.as_bytes()).traceback);
    assert_eq!(found.message.requested.unwrap().to_string(), "4.61 GiB");
}

/// A notebook's traceback has other frames, and its message may come first.
#[test]
fn notebooks_and_boxes_have_frames() {
    let notebook = "\
        OutOfMemoryError                          Traceback (most recent call last)\n\
        Cell In[4], line 9\n      8 for batch in loader:\n----> 9     loss = step(batch)\n\n\
        File ~/mine/steps.py:31, in step(batch)\n     30 out = net(batch)\n\
        ---> 31 out.sum().backward()\n     32 return out\n\n\
        OutOfMemoryError: CUDA out of memory. Tried to allocate 640.00 MiB. GPU 0 has a total \
        capacity of 14.74 GiB of which 20.06 MiB is free.";
    let found = Log::read(notebook.as_bytes());
    assert_eq!((found.traceback.phase, found.traceback.frames.len()), (LogPhase::Backward, 2));
    let first = "{\n\t\"message\": \"CUDA error: out of memory\nCompile with x\n\",\n\t\"stack\": \
        \"----\nRuntimeError    Traceback (most recent call last)\nCell In[2], line 1\n\
        ----> 1 loss.backward()";
    let found = Log::read(first.as_bytes());
    assert_eq!((found.message.dialect, found.traceback.phase), (Dialect::Bare, LogPhase::Backward));
    let boxed = "\
        ╭─────────────── Traceback (most recent call last) ───────────────╮\n\
        │ C:\\lab\\venv\\lib\\site-packages\\torch\\optim\\adamw.py:99 in step │\n\
        │                                                                 │\n\
        │    98 │   │   if a:                                             │\n\
        │ ❱  99 │   │   │   b = torch.zeros_like(p)                       │\n\
        ╰─────────────────────────────────────────────────────────────────╯\n\
        OutOfMemoryError: CUDA out of memory";
    let found = Log::read(boxed.as_bytes());
    assert_eq!((found.traceback.phase, found.system), (LogPhase::Optimizer, System::Windows));
    assert_eq!(found.traceback.frames[0].code, "b = torch.zeros_like(p)");
}

/// Messages of other programs, versions and devices.
#[test]
fn other_dialects_have_their_numbers() {
    let gib = |gib: f64| (gib * (1u64 << 30) as f64) as u64;
    let found = Log::read(
        b"RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 1; 10.92 GiB total \
          capacity; 5.25 GiB already allocated; 1.10 GiB free; 3.75 GiB cached)",
    );
    assert_eq!(found.message.dialect, Dialect::Torch13);
    assert_eq!(found.message.unallocated.unwrap().bytes, gib(3.75));
    assert_eq!(found.message.gpu, Some(1));
    let found = Log::read(
        b"RuntimeError: MPS backend out of memory (MPS allocated: 6.50 GB, other allocations: 1.25 \
          GB, max allowed: 9.07 GB). Tried to allocate 1.50 GB on private pool.",
    );
    assert_eq!((found.backend, found.message.process.unwrap().bytes), (Backend::Mps, gib(7.75)));
    let found = Log::read(
        b"ResourceExhaustedError: OOM when allocating tensor with shape[4,12,512,512] and type \
          float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n\
          \t [[{{node opt/gradients/model/h3/attn/Softmax_grad/mul}}]]",
    );
    assert_eq!(found.program.program, Program::TensorFlow);
    assert_eq!(found.message.requested.unwrap().bytes, 4 * 12 * 512 * 512 * 4);
    assert_eq!(found.traceback.phase, LogPhase::Backward);
    let kill = "Jan  2 03:04:05 box kernel: Out of memory: Killed process 4242 (python3) \
        total-vm:99000000kB, anon-rss:33554432kB, file-rss:0kB";
    let found = Log::read(kill.as_bytes());
    assert_eq!((found.backend, found.message.process.unwrap().bytes), (Backend::Host, 32 << 30));
    let text = "RuntimeError: [enforce fail at alloc_cpu.cpp:73] . DefaultCPUAllocator: can't \
        allocate memory: you tried to allocate 21474836480 bytes. Error code 12";
    let found = Log::read(text.as_bytes());
    assert_eq!(
        (found.backend, found.message.requested.unwrap().to_string().as_str()),
        (Backend::Host, "20.00 GiB")
    );
    let text = "MemoryError: Unable to allocate 3.00 GiB for an array with shape (805306368,) and \
        data type float32";
    assert_eq!(Log::read(text.as_bytes()).message.dialect, Dialect::Host);
}

/// What cannot be true is said, not computed with; what Windows permits is kept.
#[test]
fn contradictions_are_named() {
    let message = |rest: &str| {
        format!(
            "{rest}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 500.00 MiB. \
            GPU 0 has a total capacity of 8.00 GiB of which 2.50 GiB is free. Including \
            non-PyTorch memory, this process has 0 bytes memory in use. Of the allocated memory \
            11.00 GiB is allocated by PyTorch, and 1.00 MiB is reserved by PyTorch but unallocated."
        )
    };
    let found = Log::read(message("").as_bytes());
    let all = &found.message.contradictions;
    assert!(all.iter().any(|one| matches!(one, Contradiction::FreeExceedsRequest { .. })));
    assert!(all.iter().any(|one| matches!(one, Contradiction::ProcessHoldsNothing { .. })));
    assert!(found.shared_memory && found.message.allocated.is_some());
    let linux = Log::read(message("/home/me/x.py\n").as_bytes());
    assert!(!linux.shared_memory && linux.message.allocated.is_none());
    // A shape gone wrong asks for more than any machine has; that is no wrapped number.
    let text = "CUDA out of memory. Tried to allocate 200000.00 GiB. GPU 0 has a total capacity of";
    assert!(Log::read(text.as_bytes()).message.requested.is_some());
}

/// Notes about one failure, in five languages.
const NOTES: [(Language, &str); 5] = [
    (
        Language::English,
        "nanoGPT fails with an out-of-memory error in the first estimate_loss(): a buffer of \
         shape (24576, 50304) in bfloat16, about 2.30 GiB, on a card with a total capacity of \
         9.75 GiB and only 1.50 GiB free. It has a batch size of 24, a context length of \
         1024 and about 90M parameters.\n### Fixes\nbatch_size = 6\nThe KV cache is large.",
    ),
    (
        Language::German,
        "nanoGPT bricht in der ersten Auswertung (estimate_loss()) mit einem OOM-Fehler ab: ein \
         Puffer der Form (24576, 50304) in bfloat16, etwa 2,30 GiB, und die Karte hat eine \
         Kapazität von 9,75 GiB, davon sind nur 1,50 GiB frei. Der Lauf hat eine Batch-Größe von \
         24, eine Sequenzlänge von 1024 und rund 90M Parameter.\n### Empfohlene Lösung\n\
         batch_size = 6\nDer KV-Cache ist groß.",
    ),
    (
        Language::French,
        "nanoGPT échoue avec une erreur OOM pendant la première évaluation (estimate_loss()) : \
         un tampon de forme (24576, 50304) en bfloat16, environ 2,30 Gio, sur une carte avec une \
         capacité de 9,75 Gio et 1,50 Gio libres. La taille de lot est de 24, la longueur de \
         séquence de 1024, pour 90M paramètres.\n### Solutions\nbatch_size = 6\nLe cache KV est \
         grand.",
    ),
    (
        Language::Japanese,
        "nanoGPTは最初のestimate_loss()でメモリ不足エラーになります。形状(24576, 50304)のbfloat16バッファは\
         約2.30GiBです。総容量は9.75GiBですが、空きは1.50GiBのみ。バッチサイズ:24、シーケンス長:1024、\
         約9000万パラメータ。\n### 推奨修正\nbatch_size = 6\nKVキャッシュが大きい。",
    ),
    (
        Language::Chinese,
        "nanoGPT 在首次 estimate_loss() 时报错显存不足。形状为(24576, 50304)的bfloat16缓冲区约2.30 GiB。\
         总显存 9.75 GiB,剩余 1.50 GiB。批次大小为 24,序列长度为 1024,约9000万参数。\n\
         ### 解决方案\nbatch_size = 6\nKV缓存很大。",
    ),
];

#[test]
fn notes_are_read_in_five_languages() {
    for (language, text) in NOTES {
        let found = Log::read(text.as_bytes());
        let size = |size: &Option<fitgpt_doctor::log::Size>| {
            size.as_ref().map_or("nothing".to_string(), ToString::to_string)
        };
        assert_eq!(found.language, Some(language));
        assert_eq!(found.program.program, Program::NanoGpt, "{text}");
        assert_eq!(found.message.dialect, Dialect::Prose, "{text}");
        assert_eq!(size(&found.message.requested), "2.30 GiB", "{text}");
        assert_eq!(size(&found.message.capacity), "9.75 GiB", "{text}");
        assert_eq!(size(&found.message.free), "1.50 GiB", "{text}");
        assert_eq!(found.traceback.phase, LogPhase::FirstEval, "{text}");
        assert_eq!(found.traceback.buffer.as_ref().unwrap().shape, [24576, 50304], "{text}");
        assert_eq!(found.run.setting("batch_size"), Some("24"), "{text}");
        assert_eq!(found.run.setting("block_size"), Some("1024"), "{text}");
        assert_eq!(found.run.parameters.unwrap().count, 90_000_000, "{text}");
        assert!(found.run.settings.iter().all(|row| row.origin == Origin::Prose), "{text}");
        assert_eq!(found.suggestions, [("batch_size".to_string(), "6".to_string())], "{text}");
        let claims: Vec<Claim> = found.claims.iter().map(|(claim, _)| *claim).collect();
        assert!(claims.contains(&Claim::KvCacheInTraining), "{text}: {claims:?}");
        assert!(
            claims.contains(&Claim::SmallerBatch { batch_size: Some(6) }),
            "{text}: {claims:?}"
        );
    }
}

/// Whole posts, each with its own trouble for a reader.
#[test]
fn whole_posts_are_read() {
    let read = |text: &str| Log::read(text.as_bytes());
    let log = read(include_str!("../posts/notebook.json"));
    assert_eq!((log.traceback.phase, log.traceback.frames.len()), (LogPhase::Backward, 2));
    assert_eq!(log.message.process.unwrap().to_string(), "14.70 GiB");
    let log = read(include_str!("../posts/windows_box.txt"));
    assert_eq!((log.system, log.traceback.phase), (System::Windows, LogPhase::Optimizer));
    assert!(log.shared_memory && log.message.contradictions.is_empty());
    let log = read(include_str!("../posts/mixed_ranks.log"));
    assert_eq!((log.backend, log.message.rank, log.message.gpu), (Backend::Rocm, Some(4), Some(4)));
    let log = read(include_str!("../posts/tensorflow.log"));
    assert_eq!((log.program.program, log.backend), (Program::TensorFlow, Backend::Cuda));
    let log = read(include_str!("../posts/chinese_note.md"));
    assert_eq!(log.run.setting("n_embd"), Some("640"));
    assert_eq!(log.run.card.as_deref(), Some("RTX 3080"));
    for claim in [Claim::EvalIsCulprit, Claim::EvalBatchSizeAlone, Claim::EvalBatchSizeKeyExists] {
        assert!(log.claims.iter().any(|(found, _)| *found == claim), "{claim:?}");
    }
    let log = read(include_str!("../posts/french_note.md"));
    assert_eq!(log.run.parameters.unwrap().count, 90_000_000);
    assert_eq!(log.message.process.unwrap().to_string(), "7.90 GiB");
}

/// A command names one of nanoGPT's own files, whose content is known.
#[test]
fn files_that_nanogpt_ships_are_known() {
    let text = "$ python train.py config/train_shakespeare_char.py --n_layer=4\n\
        torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.";
    let run = Log::read(text.as_bytes()).run;
    assert_eq!((run.setting("n_embd"), run.setting("n_layer")), (Some("384"), Some("4")));
}

/// What the readers look for.
const WORDS: &[&str] = &[
    "batch size of ",
    "バッチサイズ",
    "n_embd",
    "64",
    " × ",
    "50304",
    "GiB",
    "6,14 ",
    "(65536, ",
    ")",
    "bfloat16",
    "%",
    "~50-",
    "显存不足",
    "。",
    "```",
    "> ",
    "### Option",
    "\n",
    "│",
    "eval_batch_size",
    "=",
    "from ",
    "to ",
    "万",
    "パラメータ",
    "RTX ",
    "4070",
    "MiB / ",
    "\\u001b[3",
    "1m",
    "\"a\\n",
    "default=",
    "--",
    "[rank9]: ",
    "free of ",
    "Process 1 has ",
    "anon-rss:",
    "[[",
    "é",
    "\u{feff}",
    "after step ",
    "lang: zh",
];

proptest! {
    /// Every prefix and every suffix of a post is read, at any byte.
    #[test]
    fn any_part_of_a_post_is_read(from in 0usize..LOG.len(), to in 0usize..LOG.len()) {
        let bytes = LOG.as_bytes();
        let _ = Log::read(&bytes[from.min(to)..from.max(to)]);
        let _ = Log::read(&utf16(LOG)[from.min(to)..]);
    }

    /// Words that the readers look for, in any order, in five languages.
    #[test]
    fn any_sentence_is_read(
        words in proptest::collection::vec(proptest::sample::select(WORDS), 0..80)
    ) {
        let _ = Log::read(words.concat().as_bytes());
    }
}
