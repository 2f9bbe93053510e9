//! Finds the line that says that memory ran out. A log may have several: a message with numbers
//! beats one without, and of equal ones the last counts, since launchers repeat errors.

use super::text::Line;

/// How much a line says about the failure, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// A sentence.
    Sentence,
    /// The process was killed; why is not said.
    Killed,
    /// An error without numbers.
    Bare,
    /// The middle of a message.
    Part,
    /// The kernel says that it killed the process for its memory.
    KernelKill,
    /// An error with the request's size.
    Numbers,
}

/// Where memory ran out in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// First line of the message.
    pub first: usize,
    /// The line that has most of it.
    pub line: usize,
    /// Where the message begins in that line.
    pub at: usize,
    /// How much it says.
    pub strength: Strength,
    /// Whether the host's memory ran out, not a GPU's.
    pub host: bool,
}

use Strength::{Bare, KernelKill, Killed, Numbers, Part, Sentence};

/// Words of messages; `true` for the host's memory.
const SIGNS: [(&str, Strength, bool); 54] = [
    ("Tried to allocate", Numbers, false),
    ("OOM when allocating tensor", Numbers, false),
    ("when allocating tensor of size", Numbers, false),
    ("while trying to allocate", Numbers, false),
    ("failed to allocate", Numbers, false),
    ("cudaMalloc failed", Numbers, false),
    ("of memory are missing", Numbers, false),
    ("tried to allocate ", Numbers, false),
    ("you tried to allocate", Numbers, true),
    ("Unable to allocate", Numbers, true),
    ("Out of memory: Kill", KernelKill, true),
    ("Killed process", KernelKill, true),
    ("oom-kill:", KernelKill, true),
    ("oom_reaper", KernelKill, true),
    (" total capacity;", Part, false),
    (" already allocated;", Part, false),
    ("allocated by PyTorch", Part, false),
    ("CUDA out of memory", Bare, false),
    ("HIP out of memory", Bare, false),
    ("XPU out of memory", Bare, false),
    ("NPU out of memory", Bare, false),
    ("OutOfMemoryError", Bare, false),
    ("CUDA error: out of memory", Bare, false),
    ("CUDA error:out of memory", Bare, false),
    ("CUDA error 2", Bare, false),
    ("HIP error: out of memory", Bare, false),
    ("runtime error (2) : out of memory", Bare, false),
    ("cudaSuccess (2 vs. 0)", Bare, false),
    ("CUDA_ERROR_OUT_OF_MEMORY", Bare, false),
    ("cudaErrorMemoryAllocation", Bare, false),
    ("hipErrorOutOfMemory", Bare, false),
    ("HIP_ERROR_OutOfMemory", Bare, false),
    ("CUBLAS_STATUS_ALLOC_FAILED", Bare, false),
    ("CUDNN_STATUS_ALLOC_FAILED", Bare, false),
    ("MPS backend out of memory", Bare, false),
    ("CallbackErrorOutOfMemory", Bare, false),
    ("ResourceExhaustedError", Bare, false),
    ("RESOURCE_EXHAUSTED", Bare, false),
    ("No available memory for the cache blocks", Bare, false),
    ("Cuda OOM", Bare, false),
    ("CUDA OOM", Bare, false),
    ("DefaultCPUAllocator", Bare, true),
    ("MemoryError", Bare, true),
    ("std::bad_alloc", Bare, true),
    ("Cannot allocate memory", Bare, true),
    ("exit code 137", Killed, true),
    ("exited with code 137", Killed, true),
    ("exit status 137", Killed, true),
    ("exitcode: -9", Killed, true),
    ("exitcode : -9", Killed, true),
    ("return code = -9", Killed, true),
    ("(SIGKILL)", Killed, true),
    ("OOMKilled", Killed, true),
    ("out of memory", Sentence, false),
];

/// Sentences in lower case, in five languages.
const SENTENCES: [&str; 27] = [
    "out of memory",
    "out-of-memory",
    "oom",
    "runs out of vram",
    "ran out of vram",
    "cuda oom",
    "speicherüberlauf",
    "speichermangel",
    "speicher reicht nicht",
    "nicht genug speicher",
    "zu wenig speicher",
    "speicher voll",
    "メモリ不足",
    "メモリが足り",
    "メモリオーバーフロー",
    "vram不足",
    "显存不足",
    "内存不足",
    "显存不够",
    "爆显存",
    "显存溢出",
    "内存溢出",
    "内存错误",
    "mémoire insuffisante",
    "manque de mémoire",
    "dépassement de mémoire",
    "à court de mémoire",
];

impl Failure {
    /// The failure of a log.
    pub fn find(lines: &[Line]) -> Option<Failure> {
        let mut best: Option<Failure> = None;
        for line in 0..lines.len() {
            let Some((at, strength, host)) = sign(lines, line) else {
                continue;
            };
            // Of sentences the first counts: later ones are about remedies.
            let better = best.is_none_or(|best| match strength {
                Sentence => strength > best.strength,
                _ => strength >= best.strength,
            });
            if better {
                best = Some(Failure { first: line, line, at, strength, host });
            }
        }
        let mut best = best?;
        // A wrapped message may start some lines above its `Tried to allocate`.
        let above = best.line.saturating_sub(3)..best.line;
        let starts = |at: &usize| {
            lines[*at].rank == lines[best.line].rank
                && sign(lines, *at).is_some_and(|(_, s, _)| s == Bare)
        };
        let first = above.clone().find(starts).filter(|_| best.strength == Numbers && best.at < 80);
        best.first = first.unwrap_or(best.line);
        Some(best)
    }

    /// The message from its beginning, as one line.
    pub fn message(&self, lines: &[Line]) -> String {
        const MOST_LINES: usize = 80;
        const MOST: usize = 6000;
        let mut told: Vec<&str> = Vec::new();
        let (rank, fenced) = (lines[self.line].rank, lines[self.line].fenced);
        let mut length = 0;
        for (index, line) in lines.iter().enumerate().skip(self.first).take(MOST_LINES) {
            let other = line.rank.is_some() && rank.is_some() && line.rank != rank;
            let ends = line.text.contains("Traceback (most recent")
                || line.text.contains("Tried to allocate")
                || line.fenced != fenced;
            if index > self.line && ends || length > MOST {
                break;
            }
            if other {
                continue;
            }
            let from = if index == self.line && self.first == self.line { self.at } else { 0 };
            let text = line.text.get(from..).unwrap_or(&line.text);
            // A line of many megabytes is no message.
            let end = text.char_indices().nth(MOST).map_or(text.len(), |(end, _)| end);
            told.push(&text[..end]);
            length += end;
        }
        joined(&told)
    }
}

/// What a line says, and where in it.
fn sign(lines: &[Line], at: usize) -> Option<(usize, Strength, bool)> {
    let text = lines[at].text.as_str();
    // Cheap words first: almost no line has any of them.
    const COMMON: [&str; 12] = [
        "emory", "MEMORY", "lloc", "ALLOC", "OOM", "illed", "KILL", "137", "-9", "EXHAUST",
        "rror 2", "(2 vs",
    ];
    let likely = COMMON.iter().any(|word| text.contains(word));
    let found = SIGNS.iter().filter(|(words, strength, _)| {
        let you = *words == "tried to allocate " && text.contains("you tried to allocate");
        likely && *strength != Sentence && !you && text.contains(words)
    });
    let best = found.max_by_key(|(_, strength, host)| (*strength, !host));
    match best {
        Some((words, Numbers, host)) => Some((last_whole(text, words), Numbers, *host)),
        Some((_, strength, host)) => Some((0, *strength, *host)),
        None if text.trim() == "Killed" || text.trim().ends_with(" Killed") => {
            Some((0, Killed, true))
        }
        // llm.c prints the error's name in the line after the place.
        None if text.contains("[CUDA ERROR]") => {
            let below = lines.get(at + 1).map_or("", |line| line.text.as_str());
            (text.contains("out of memory") || below.contains("out of memory"))
                .then_some((0, Bare, false))
        }
        None if lines[at].told && text.len() < 4000 => {
            let lower = text.to_lowercase();
            let said = SENTENCES.iter().any(|words| match *words {
                "oom" => has_word(&lower, words),
                words => lower.contains(words),
            });
            said.then_some((0, Sentence, false))
        }
        None => None,
    }
}

/// Whether a word stands alone.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let behind = text[at + word.len()..].chars().next();
        let letter = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
        !letter(before) && !letter(behind)
    })
}

/// Letters of the longest message up to its `free`.
const LONGEST: usize = 300;

/// Several ranks may have written their messages into one line. The last one that says how much is
/// free is whole.
fn last_whole(text: &str, words: &str) -> usize {
    let all: Vec<usize> = text.match_indices(words).map(|(at, _)| at).take(1000).collect();
    let whole = all.iter().rev().find(|at| {
        let rest = &text[**at..];
        let end = rest.char_indices().nth(LONGEST).map_or(rest.len(), |(end, _)| end);
        rest[..end].contains(" free")
    });
    let at = whole.or(all.first()).copied().unwrap_or(0);
    // The words before it (`CUDA out of memory. `) belong to it, unless they end another message.
    if all.first() == Some(&at) { 0 } else { at }
}

/// Joins the lines of a message. If several lines have the length of the longest one, the text was
/// wrapped at a fixed width, inside words and numbers; otherwise it was wrapped at spaces.
fn joined(message: &[&str]) -> String {
    let width = |line: &str| line.chars().count();
    let longest = message.iter().map(|line| width(line)).max().unwrap_or(0);
    let cut = longest > 1 && message.iter().filter(|line| width(line) == longest).count() > 1;
    let mut text = String::new();
    for line in message {
        text.push_str(line);
        if !(cut && width(line) == longest) {
            text.push(' ');
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<Failure> {
        let lines: Vec<Line> = text.lines().map(Line::plain).collect();
        Failure::find(&lines)
    }

    #[test]
    fn the_last_of_the_strongest_counts() {
        let text = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n\
            and then\nOutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB\n\
            RuntimeError: CUDA error: out of memory\nKilled";
        assert_eq!(found(text).unwrap().line, 2);
        assert_eq!(found("I ran out of memory.\nReduce it if you get OOM.").unwrap().line, 0);
        assert_eq!(found("zoom in on the room"), None);
        assert!(found("python train.py\nKilled").unwrap().host);
        assert_eq!(found("[CUDA ERROR] at file x.cu:3:\nan illegal memory access"), None);
        assert!(found("[CUDA ERROR] at file x.cu:3:\nout of memory").is_some());
    }

    #[test]
    fn a_message_above_its_numbers_belongs_to_them() {
        let text = "x\ntorch.OutOfMemoryError: CUDA out of memory.\nTried to allocate 2.00 GiB.";
        let failure = found(text).unwrap();
        assert_eq!((failure.first, failure.line), (1, 2));
    }
}
