//! The numbers of a message. One table covers all dialects: each row says which words precede or
//! follow which number.

use super::size::Size;

/// A number of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// What was asked for.
    Requested,
    /// Memory of the card.
    Capacity,
    /// Free on the card.
    Free,
    /// What this process holds.
    Process,
    /// A cap.
    Allowed,
    /// In tensors.
    Allocated,
    /// In tensors and free blocks.
    ReservedTotal,
    /// In free blocks.
    ReservedUnallocated,
    /// In pools of CUDA graphs.
    PrivatePools,
    /// What a Metal driver holds for this process beside PyTorch.
    Beside,
}

/// Where a number is: after these words, or before them.
#[derive(Clone, Copy)]
enum At {
    Behind(&'static str),
    Before(&'static str),
}

use At::{Before, Behind};

/// All dialects, those of PyTorch first. The first row with a number counts.
const FIELDS: [(Field, At); 35] = [
    (Field::Requested, Behind("Tried to allocate ")),
    (Field::Capacity, Behind("has a total capacity of ")),
    (Field::Capacity, Behind("has a total capacty of ")),
    (Field::Capacity, Before(" total capacity")),
    (Field::Free, Before(" is free")),
    (Field::Free, Before(" free;")),
    (Field::Process, Behind("this process has ")),
    (Field::Allowed, Before(" allowed;")),
    (Field::Allowed, Before(" is allowed")),
    (Field::Allocated, Before(" is allocated by PyTorch")),
    (Field::Allocated, Before(" already allocated")),
    (Field::ReservedTotal, Before(" reserved in total by PyTorch")),
    (Field::ReservedUnallocated, Before(" is reserved by PyTorch but unallocated")),
    (Field::ReservedUnallocated, Before(" cached")),
    (Field::PrivatePools, Before(" allocated in private pools")),
    (Field::Requested, Behind("when allocating tensor of size ")),
    (Field::Allocated, Behind("MPS allocated: ")),
    (Field::Beside, Behind("other allocations: ")),
    (Field::Allowed, Behind("max allowed: ")),
    // TensorFlow, XLA, ggml
    (Field::Requested, Behind("trying to allocate ")),
    (Field::Requested, Behind("failed to allocate ")),
    (Field::Requested, Behind("allocating ")),
    // the host
    (Field::Requested, Behind("you tried to allocate ")),
    (Field::Requested, Behind("Unable to allocate ")),
    // retold
    (Field::Requested, Behind("tried to allocate ")),
    (Field::Capacity, Before(" total,")),
    (Field::Capacity, Before(" total.")),
    (Field::Capacity, Behind("otal capacity: ")),
    (Field::Capacity, Behind("GPU has ")),
    (Field::Free, Before(" free,")),
    (Field::Free, Before(" free")),
    (Field::Process, Before(" in use by this process")),
    (Field::Process, Before(" used by this process")),
    (Field::Allocated, Before(" allocated by PyTorch")),
    (Field::ReservedTotal, Before(" reserved")),
];

/// The numbers of a message, in the order of the table.
pub fn read(text: &str) -> impl Iterator<Item = (Field, Size)> + '_ {
    // The kernel counts in KiB, whatever the size.
    let resident =
        number(text, Behind("anon-rss:")).map(|size| (Field::Process, Size::of(size.bytes)));
    let total = free_of(text).map(|size| (Field::Capacity, size));
    let resident = resident.into_iter().chain(total);
    let table = FIELDS.iter().filter_map(|(field, at)| Some((*field, number(text, *at)?)));
    table.chain(resident)
}

fn number(text: &str, at: At) -> Option<Size> {
    match at {
        Behind(words) => {
            let from = text.find(words)? + words.len();
            // `Tried to allocate **2.00 GiB**`, `about 2 GiB`
            let rest = text[from..].trim_start_matches(['~', '*', ' ']);
            Size::read(rest).map(|(size, _)| size)
        }
        Before(words) => Size::read_before(&text[..text.find(words)?]),
    }
}

/// `2.68GiB free of 11.69`: the unit may be that of the number before.
fn free_of(text: &str) -> Option<Size> {
    let (before, rest) = text.split_once(" free of ")?;
    let rest = rest.trim_start_matches("the ").trim_start_matches("total ");
    if let Some((size, _)) = Size::read(rest) {
        return Some(size);
    }
    let free = Size::read_before(before)?.to_string();
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let number = rest[..end].trim_end_matches('.');
    Size::read(&format!("{number} {} ", free.split(' ').nth(1)?)).map(|(size, _)| size)
}

/// `Process 1234 has 1.97 GiB memory in use.`, any number of times.
pub fn other_processes(text: &str) -> Vec<(String, Size)> {
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

/// The number of the GPU: `GPU 3 has`, `(GPU 3;`, `device 3`.
pub fn gpu(text: &str) -> Option<u64> {
    ["GPU ", "GPU:", "cuda:", "device ", "on device "].iter().find_map(|words| {
        text.match_indices(words).find_map(|(at, _)| {
            let rest = &text[at + words.len()..];
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            // `GPU 16 GiB` is no number of a GPU.
            let sized = rest[digits..].trim_start().to_lowercase();
            let sized = sized.starts_with("gi") || sized.starts_with("gb");
            rest[..digits].parse().ok().filter(|number| *number < 1024 && !sized)
        })
    })
}
