//! What an out-of-memory message says. Messages may be wrapped, truncated or contain impossible
//! numbers.

use super::contradiction::Contradiction;
use super::failure::{Failure, Strength};
use super::fields::{self, Field};
use super::platform::System;
use super::size::Size;
use super::text::Line;

/// Which program wrote the message, judged by its wording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// cuBLAS or cuDNN could not allocate: an error without numbers.
    Library,
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
    /// The process was killed; why is not said.
    Killed,
    /// No message, but sentences that say that memory ran out, perhaps with its numbers.
    Prose,
    /// This program's own refusal.
    Fitgpt,
    /// No message of this kind was found.
    #[default]
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
            Dialect::Library => "cublas",
            Dialect::LlmC => "llm.c",
            Dialect::Mps => "mps",
            Dialect::Driver => "driver",
            Dialect::TensorFlow => "tensorflow",
            Dialect::Host => "host",
            Dialect::Killed => "killed",
            Dialect::Prose => "prose",
            Dialect::Fitgpt => "fitgpt",
            Dialect::None => "none",
        }
    }
}

/// The numbers of a message; `None` if the message does not have it.
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// Whether the process holds more than the card has, which Windows' driver permits.
    pub(super) shared_memory: bool,
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
    /// The message of a failure.
    pub fn find(lines: &[Line], failure: Option<&Failure>, system: System) -> Message {
        let text = failure.map_or(String::new(), |failure| failure.message(lines));
        let mut message = Message {
            dialect: failure.map_or(Dialect::None, |failure| dialect(failure, &text)),
            rank: failure.and_then(|failure| lines[failure.line].rank),
            gpu: fields::gpu(&text),
            expandable: set_expandable(
                &lines[..failure.map_or(lines.len(), |failure| failure.first)],
            ),
            ..Message::default()
        };
        for (field, size) in fields::read(&text) {
            message.take(field, size);
        }
        if let (Dialect::Fitgpt, Some(failure)) = (message.dialect, failure) {
            message.read_refusal(&text);
            let behind = lines.iter().skip(failure.first + 1);
            let behind = behind.filter(|line| !line.text.trim().is_empty());
            message.refusal = behind.take(40).map(|line| line.text.clone()).collect();
        }
        message.others = fields::other_processes(&text);
        message.find_own_process();
        message.find_contradictions(system);
        message
    }

    /// `2.01 GiB of memory are missing: the smallest plan needs 13.70 GiB of 11.69 GiB`.
    fn read_refusal(&mut self, text: &str) {
        if let Some((_, rest)) = text.split_once("largest at its fullest moment: ") {
            let names = rest.split(", ").filter_map(|part| part.split(' ').next());
            self.largest = names.map(str::to_string).take(5).collect();
        }
        let missing = text.split_once(" of memory are missing");
        self.requested = missing.and_then(|(before, _)| Size::read_before(before));
        let behind = text.split_once("the smallest plan needs ").map(|(_, rest)| rest);
        if let Some((needed, rest)) = behind.and_then(Size::read) {
            self.process = Some(needed);
            self.allowed =
                rest.trim_start().strip_prefix("of ").and_then(Size::read).map(|(s, _)| s);
        }
    }

    pub(super) fn take(&mut self, field: Field, size: Size) {
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
            Field::Beside => {
                // Metal counts what it holds for this process beside PyTorch.
                let held = self.allocated.as_ref().map_or(0, |held| held.bytes);
                self.process = Some(Size::of(held.saturating_add(size.bytes)));
                return;
            }
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

    /// Names the contradictions, and moves impossible numbers to `nonsense`.
    pub(super) fn find_contradictions(&mut self, system: System) {
        const LARGEST: u64 = 1 << 43; // 8 TiB
        let mut wrapped = Vec::new();
        // A shape gone wrong can ask for any size; only a negative number is impossible.
        wrapped.extend(self.requested.take_if(|size| size.bytes > 1 << 62));
        for place in [
            &mut self.capacity,
            &mut self.free,
            &mut self.process,
            &mut self.allocated,
            &mut self.reserved,
            &mut self.unallocated,
        ] {
            wrapped.extend(place.take_if(|size| size.bytes > LARGEST));
        }
        let listed = std::mem::take(&mut self.others);
        let (fine, wrong): (Vec<_>, Vec<_>) =
            listed.into_iter().partition(|(_, size)| size.bytes <= LARGEST);
        self.others = fine;
        wrapped.extend(wrong.into_iter().map(|(_, size)| size));
        self.nonsense.extend(wrapped.iter().map(ToString::to_string));
        self.contradictions
            .extend(wrapped.iter().map(|size| Contradiction::UnsignedWrap(size.to_string())));
        // A process that holds tensors cannot hold 0 bytes.
        let allocated = self.allocated.as_ref().map_or(0, |size| size.bytes);
        if allocated > 0 && self.process.as_ref().is_some_and(|size| size.bytes == 0) {
            self.nonsense.extend(self.process.take().map(|size| size.to_string()));
            self.contradictions.push(Contradiction::ProcessHoldsNothing { allocated });
        }
        if let Some(reserved) = self.reserved.take_if(|size| size.bytes < allocated) {
            let reserved = reserved.bytes;
            self.contradictions.push(Contradiction::ReservedBelowAllocated { reserved, allocated });
        }
        if let (Some(free), Some(requested), None) = (&self.free, &self.requested, &self.allowed)
            && free.bytes > requested.bytes
        {
            let (free, requested) = (free.bytes, requested.bytes);
            self.contradictions.push(Contradiction::FreeExceedsRequest { free, requested });
        }
        self.compare_with_capacity(system);
    }

    /// Windows lends host memory to the GPU; elsewhere nothing is larger than the card.
    fn compare_with_capacity(&mut self, system: System) {
        let Some(capacity) = self.capacity.as_ref().map(|size| size.bytes) else {
            return;
        };
        let slack = (capacity / 50).saturating_add(16 << 20);
        let most = capacity.saturating_add(slack);
        let over = |size: &mut Size| size.bytes > most;
        let lends = !matches!(system, System::Linux | System::Mac);
        let held = [&mut self.process, &mut self.allocated, &mut self.reserved];
        for place in held {
            if lends {
                self.shared_memory |= place.as_mut().is_some_and(over);
            } else if let Some(size) = place.take_if(over) {
                self.nonsense.push(size.to_string());
                let held = size.bytes;
                self.contradictions.push(Contradiction::HeldExceedsCapacity { held, capacity });
            }
        }
        self.nonsense.extend(self.free.take_if(over).map(|size| size.to_string()));
        let listed = std::mem::take(&mut self.others);
        let (fine, wrong): (Vec<_>, Vec<_>) =
            listed.into_iter().partition(|(_, size)| size.bytes <= most || lends);
        self.others = fine;
        self.nonsense.extend(wrong.into_iter().map(|(_, size)| size.to_string()));
    }

    /// Memory available to the run: the cap, or the card's memory.
    pub fn limit(&self) -> Option<u64> {
        self.allowed.as_ref().or(self.capacity.as_ref()).map(|size| size.bytes)
    }
}

fn dialect(failure: &Failure, text: &str) -> Dialect {
    let has = |words: &str| text.contains(words);
    match () {
        () if has("of memory are missing") => Dialect::Fitgpt,
        () if failure.strength == Strength::Sentence => Dialect::Prose,
        () if has("tried to allocate") && !has("out of memory") && !failure.host => Dialect::Prose,
        () if failure.strength == Strength::Killed => Dialect::Killed,
        () if failure.host => Dialect::Host,
        () if has("MPS backend out of memory") => Dialect::Mps,
        () if has("[CUDA ERROR]") => Dialect::LlmC,
        () if has("capacty") => Dialect::Torch21,
        () if has(" cached)") => Dialect::Torch13,
        () if has("reserved in total by PyTorch") || has("already allocated;") => Dialect::Torch20,
        () if has("has a total capacity") || has("allocated by PyTorch") => Dialect::Torch23,
        () if has("OOM when allocating tensor with") || has("ResourceExhausted") => {
            Dialect::TensorFlow
        }
        () if has("Tried to allocate") => Dialect::Torch23,
        () if has("CUBLAS_STATUS_ALLOC") || has("CUDNN_STATUS_ALLOC") => Dialect::Library,
        () if has("CUDA_ERROR_OUT_OF_MEMORY")
            || has("Cuda OOM")
            || has("cudaMalloc")
            || has("RESOURCE_EXHAUSTED") =>
        {
            Dialect::Driver
        }
        () => Dialect::Bare,
    }
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

    fn read(text: &str) -> Message {
        let lines: Vec<Line> = text.lines().map(Line::plain).collect();
        Message::find(&lines, Failure::find(&lines).as_ref(), System::Unknown)
    }

    #[test]
    fn numbers_beyond_64_bits_are_no_sums() {
        for capacity in ["16777215.99 TiB", "18446744073709551615 bytes", "99999999999.00 GiB"] {
            let text = format!(
                "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a \
                 total capacity of {capacity} of which 17179869184.00 GiB is free. Including \
                 non-PyTorch memory, this process has 17179869183.99 GiB memory in use."
            );
            let message = read(&text);
            assert!(!message.nonsense.is_empty(), "{message:?}");
        }
    }
}
