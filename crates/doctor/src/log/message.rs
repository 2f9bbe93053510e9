//! Reads the numbers of an out-of-memory message. One table covers all dialects: each row says
//! which words precede or follow which number. Messages may be wrapped, truncated or contain
//! impossible numbers.

use super::contradiction::Contradiction;
use super::size::Size;
use super::text::Line;

/// Which program wrote the message, judged by its wording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// PyTorch up to 1.3: numbers in brackets, free blocks as `cached`.
    Torch13,
    /// PyTorch 1.4 to 2.0: numbers in brackets.
    Torch20,
    /// PyTorch 2.1 and 2.2: `capacty`.
    Torch21,
    /// PyTorch 2.3 and later.
    Torch23,
    /// `CUDA error: out of memory` without numbers.
    Bare,
    /// llm.c: file and line.
    LlmC,
    /// Apple's GPUs.
    Mps,
    /// llmq, candle and others that name the driver's error.
    Driver,
    /// TensorFlow's allocator.
    TensorFlow,
    /// Host memory: the kernel, NumPy, PyTorch's allocator for the CPU.
    Host,
    /// No message, but sentences that say that memory ran out, perhaps with its numbers.
    Prose,
    /// This program's own refusal.
    Fitgpt,
    /// No message of this kind was found.
    None,
}

impl Dialect {
    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            Dialect::Torch13 => "pytorch<=1.3",
            Dialect::Torch20 => "pytorch1.4-2.0",
            Dialect::Torch21 => "pytorch2.1-2.2",
            Dialect::Torch23 => "pytorch>=2.3",
            Dialect::Bare => "cuda_error",
            Dialect::LlmC => "llm.c",
            Dialect::Mps => "mps",
            Dialect::Driver => "driver",
            Dialect::TensorFlow => "tensorflow",
            Dialect::Host => "host",
            Dialect::Prose => "prose",
            Dialect::Fitgpt => "fitgpt",
            Dialect::None => "none",
        }
    }
}

/// A number of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Requested,
    Capacity,
    Free,
    Process,
    Allowed,
    Allocated,
    ReservedTotal,
    ReservedUnallocated,
    PrivatePools,
}

/// Where a number is: after these words, or before them.
#[derive(Clone, Copy)]
enum At {
    Behind(&'static str),
    Before(&'static str),
}

use At::{Before, Behind};

/// All dialects of PyTorch.
const FIELDS: [(Field, At); 17] = [
    (Field::Requested, Behind("Tried to allocate ")),
    (Field::Capacity, Behind("has a total capacity of ")),
    (Field::Capacity, Behind("has a total capacty of ")),
    (Field::Capacity, Before(" total capacity;")),
    (Field::Free, Before(" is free.")),
    (Field::Free, Before(" free;")),
    (Field::Process, Behind("this process has ")),
    (Field::Allowed, Before(" allowed;")),
    (Field::Allowed, Before(" is allowed")),
    (Field::Allocated, Before(" is allocated by PyTorch")),
    (Field::Allocated, Before(" already allocated;")),
    (Field::ReservedTotal, Before(" reserved in total by PyTorch")),
    (Field::ReservedUnallocated, Before(" is reserved by PyTorch but unallocated")),
    (Field::PrivatePools, Before(" allocated in private pools")),
    (Field::Requested, Behind("when allocating tensor of size ")),
    (Field::Allocated, Behind("MPS allocated: ")),
    (Field::Allowed, Behind("max allowed: ")),
];

/// The numbers of a message; `None` if the message does not have it.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Who wrote it.
    pub dialect: Dialect,
    /// The size of the request.
    pub requested: Option<Size>,
    /// Memory of the card.
    pub capacity: Option<Size>,
    /// Free on the card.
    pub free: Option<Size>,
    /// Everything that this process holds, context included.
    pub process: Option<Size>,
    /// A cap below the card's memory.
    pub allowed: Option<Size>,
    /// Memory in tensors.
    pub allocated: Option<Size>,
    /// Memory in tensors and free blocks.
    pub reserved: Option<Size>,
    /// Memory in free blocks.
    pub unallocated: Option<Size>,
    /// Memory in the pools of CUDA graphs.
    pub private_pools: Option<Size>,
    /// Other processes that the message lists.
    pub others: Vec<(String, Size)>,
    /// The rank that wrote the message.
    pub rank: Option<u64>,
    /// The GPU's number.
    pub gpu: Option<u64>,
    /// Numbers that cannot all be true.
    pub contradictions: Vec<Contradiction>,
    /// Impossible numbers, which WSL and WDDM drivers print.
    pub nonsense: Vec<String>,
    /// For fitGPT's own refusal: the names of the largest tensors.
    pub largest: Vec<String>,
    /// For fitGPT's own refusal: its lines after the first.
    pub refusal: Vec<String>,
    /// Whether the log shows that `expandable_segments` is already on.
    pub expandable: bool,
}

impl Message {
    /// The last message of a log.
    pub fn find(lines: &[Line]) -> Message {
        let text = last_message(lines);
        let mut message = Message {
            dialect: dialect(&text),
            requested: None,
            capacity: None,
            free: None,
            process: None,
            allowed: None,
            allocated: None,
            reserved: None,
            unallocated: None,
            private_pools: None,
            others: Vec::new(),
            rank: None,
            gpu: None,
            contradictions: Vec::new(),
            nonsense: Vec::new(),
            largest: Vec::new(),
            refusal: Vec::new(),
            expandable: set_expandable(
                &lines[..first_of_last_message(lines).unwrap_or(lines.len())],
            ),
        };
        for (field, at) in FIELDS {
            if let Some(size) = number(&text, at) {
                message.take(field, size);
            }
        }
        if message.dialect == Dialect::Fitgpt {
            message.read_refusal(&text);
            let first = first_of_last_message(lines).unwrap_or(lines.len());
            let behind = lines.iter().skip(first + 1).filter(|line| !line.text.trim().is_empty());
            message.refusal = behind.map(|line| line.text.clone()).collect();
        }
        message.others = other_processes(&text);
        message.find_own_process();
        message.drop_nonsense();
        message
    }

    /// `2.01 GiB of memory are missing: the smallest plan needs 13.70 GiB of 11.69 GiB`.
    fn read_refusal(&mut self, text: &str) {
        if let Some((_, rest)) = text.split_once("largest at its fullest moment: ") {
            let names = rest.split(", ").filter_map(|part| part.split(' ').next());
            self.largest = names.map(str::to_string).take(5).collect();
        }
        self.requested = number(text, Before(" of memory are missing"));
        let behind = text.split_once("the smallest plan needs ").map(|(_, rest)| rest);
        if let Some((needed, rest)) = behind.and_then(Size::read) {
            self.process = Some(needed);
            self.allowed =
                rest.trim_start().strip_prefix("of ").and_then(Size::read).map(|(s, _)| s);
        }
    }

    fn take(&mut self, field: Field, size: Size) {
        let place = match field {
            Field::Requested => &mut self.requested,
            Field::Capacity => &mut self.capacity,
            Field::Free => &mut self.free,
            Field::Process => &mut self.process,
            Field::Allowed => &mut self.allowed,
            Field::Allocated => &mut self.allocated,
            Field::ReservedTotal => &mut self.reserved,
            Field::ReservedUnallocated => &mut self.unallocated,
            Field::PrivatePools => &mut self.private_pools,
        };
        place.get_or_insert(size);
    }

    /// Some versions list this process among the others without saying so. It is the one that holds
    /// at least as much as PyTorch.
    fn find_own_process(&mut self) {
        let held = self.reserved.as_ref().or(self.allocated.as_ref()).map(|size| size.bytes);
        if let (None, Some(held)) = (&self.process, held) {
            let own = self.others.iter().position(|(_, size)| size.bytes >= held);
            self.process = own.map(|at| self.others.remove(at).1);
        }
    }

    /// Moves impossible or contradictory numbers to `nonsense`.
    fn drop_nonsense(&mut self) {
        const LARGEST: u64 = 1 << 43; // 8 TiB
        for place in [&mut self.requested, &mut self.capacity] {
            if place.as_ref().is_some_and(|size| size.bytes > LARGEST) {
                self.nonsense.extend(place.take().map(|size| size.to_string()));
            }
        }
        let Some(capacity) = self.capacity.as_ref().map(|size| size.bytes) else {
            self.others.retain(|(_, size)| size.bytes < LARGEST);
            return;
        };
        let slack = (capacity / 50).saturating_add(16 << 20);
        for place in [&mut self.free, &mut self.process, &mut self.allocated, &mut self.reserved] {
            if place.as_ref().is_some_and(|size| size.bytes > capacity.saturating_add(slack)) {
                self.nonsense.extend(place.take().map(|size| size.to_string()));
            }
        }
        // A process that holds tensors cannot hold 0 bytes.
        let holds = self.allocated.as_ref().is_some_and(|size| size.bytes > 0);
        if holds && self.process.as_ref().is_some_and(|size| size.bytes == 0) {
            self.nonsense.extend(self.process.take().map(|size| size.to_string()));
        }
        let (fine, wrong): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.others).into_iter().partition(|(_, s)| s.bytes <= capacity);
        self.others = fine;
        self.nonsense.extend(wrong.into_iter().map(|(_, size)| size.to_string()));
    }

    /// Memory available to the run: the cap, or the card's memory.
    pub fn limit(&self) -> Option<u64> {
        self.allowed.as_ref().or(self.capacity.as_ref()).map(|size| size.bytes)
    }
}

/// Where the last message begins.
pub(super) fn first_of_last_message(lines: &[Line]) -> Option<usize> {
    const BEGINNINGS: [&str; 10] = [
        "CUDA out of memory",
        "OutOfMemoryError",
        "Tried to allocate",
        "CUDA error: out of memory",
        "CUDA_ERROR_OUT_OF_MEMORY",
        "cudaErrorMemoryAllocation",
        "MPS backend out of memory",
        "[CUDA ERROR]",
        "Cuda OOM",
        "of memory are missing",
    ];
    let begins = |line: &Line| BEGINNINGS.iter().any(|words| line.text.contains(words));
    let last = lines.iter().rposition(begins)?;
    // A wrapped message may start some lines above its `Tried to allocate`.
    (last.saturating_sub(3)..=last).find(|&at| begins(&lines[at]))
}

/// The log from the last message to its end, as one line. If several lines have the length of the
/// longest one, the text was wrapped at a fixed width, inside words and numbers; otherwise it was
/// wrapped at spaces.
fn last_message(lines: &[Line]) -> String {
    let Some(first) = first_of_last_message(lines) else {
        return String::new();
    };
    let width = |line: &Line| line.text.chars().count();
    let message = &lines[first..];
    let longest = message.iter().map(width).max().unwrap_or(0);
    let cut = longest > 1 && message.iter().filter(|line| width(line) == longest).count() > 1;
    let mut text = String::new();
    for line in message {
        text.push_str(&line.text);
        if !(cut && width(line) == longest) {
            text.push(' ');
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn dialect(text: &str) -> Dialect {
    let has = |words: &str| text.contains(words);
    match () {
        () if text.is_empty() => Dialect::None,
        () if has("of memory are missing") => Dialect::Fitgpt,
        () if has("MPS backend out of memory") => Dialect::Mps,
        () if has("[CUDA ERROR]") => Dialect::LlmC,
        () if has("capacty") => Dialect::Torch21,
        () if has("reserved in total by PyTorch") || has("already allocated;") => Dialect::Torch20,
        () if has("has a total capacity") || has("allocated by PyTorch") => Dialect::Torch23,
        () if has("CUDA out of memory. Tried") || has("Tried to allocate") => Dialect::Torch23,
        () if has("CUDA_ERROR_OUT_OF_MEMORY") || has("Cuda OOM") => Dialect::Driver,
        () => Dialect::Bare,
    }
}

fn number(text: &str, at: At) -> Option<Size> {
    match at {
        Behind(words) => {
            let from = text.find(words)? + words.len();
            Size::read(text[from..].trim_start()).map(|(size, _)| size)
        }
        Before(words) => Size::read_before(&text[..text.find(words)?]),
    }
}

/// `Process 1234 has 1.97 GiB memory in use.`, any number of times.
fn other_processes(text: &str) -> Vec<(String, Size)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("Process ") {
        rest = &rest[at + "Process ".len()..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (process, behind) = rest.split_at(digits);
        if let (false, Some(behind)) = (process.is_empty(), behind.strip_prefix(" has "))
            && let Some((size, _)) = Size::read(behind)
        {
            found.push((process.to_string(), size));
        }
    }
    found
}

/// Whether the environment sets `expandable_segments`. The advice in the message itself does not
/// count.
fn set_expandable(lines: &[Line]) -> bool {
    lines.iter().any(|line| {
        let advised =
            line.text.contains("try setting") || line.text.contains("to avoid fragmentation");
        line.text.contains("expandable_segments:True") && !advised
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_64_bits_are_no_sums() {
        for capacity in ["16777215.99 TiB", "18446744073709551615 bytes", "99999999999.00 GiB"] {
            let text = format!(
                "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a \
                 total capacity of {capacity} of which 17179869184.00 GiB is free. Including \
                 non-PyTorch memory, this process has 17179869183.99 GiB memory in use."
            );
            let message = Message::find(&[Line::plain(text)]);
            assert!(!message.nonsense.is_empty(), "{message:?}");
        }
    }
}
