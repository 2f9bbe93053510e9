//! What held the memory: a table whose rows add up to the message's numbers; a row shows any
//! unexplained rest.

use crate::log::Log;
use crate::torch::{Alive, Birth, Phase, Played};
use plan::Role;

/// What a row of the table counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Weights.
    Parameters,
    /// 16-bit copies of the weights, kept by autocast.
    Copies,
    /// Gradients of the parameters.
    Gradients,
    /// Adam's two moments.
    Adam,
    /// Activations saved for the backward pass.
    Activations,
    /// Logits of the current batch, and the tensors that the loss derives from them.
    Logits,
    /// Logits of the previous batch, still referenced.
    StaleLogits,
    /// Workspace of cuBLAS.
    Workspace,
    /// Token ids.
    Tokens,
    /// Held by tensors that our model of the run does not explain.
    Unexplained,
    /// Reserved by PyTorch but not used by any tensor.
    Fragments,
    /// CUDA context: driver, libraries, kernels.
    Context,
    /// Other programs on the card.
    Others,
    /// Free memory.
    Free,
}

impl What {
    /// All rows, in the order of the table.
    pub const ALL: [What; 14] = [
        What::Parameters,
        What::Copies,
        What::Gradients,
        What::Adam,
        What::Activations,
        What::Logits,
        What::StaleLogits,
        What::Workspace,
        What::Tokens,
        What::Unexplained,
        What::Fragments,
        What::Context,
        What::Others,
        What::Free,
    ];

    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            What::Parameters => "parameters",
            What::Copies => "weight_copies",
            What::Gradients => "gradients",
            What::Adam => "adam",
            What::Activations => "activations",
            What::Logits => "logits",
            What::StaleLogits => "stale_logits",
            What::Workspace => "workspace",
            What::Tokens => "tokens",
            What::Unexplained => "unexplained",
            What::Fragments => "reserved_unallocated",
            What::Context => "context",
            What::Others => "other_programs",
            What::Free => "free",
        }
    }
}

/// Smaller differences come from the rounding of printed numbers.
const NOTHING: u64 = 24 << 20;

/// Builds the table of a log: PyTorch's tensors at the moment of the failure, and the memory
/// outside them.
pub fn account(log: &Log, moment: Option<(&Played, &Birth)>) -> Vec<(What, u64)> {
    let mut rows: Vec<(What, u64)> = Vec::new();
    let message = &log.message;
    let bytes = |size: &Option<crate::log::Size>| size.as_ref().map(|size| size.bytes);
    if let Some((played, birth)) = moment {
        rows.extend(by_kind(&played.held_at(birth), birth));
    }
    if let Some(allocated) = bytes(&message.allocated) {
        let sum = |rows: &[(What, u64)]| rows.iter().map(|(_, bytes)| *bytes).sum::<u64>();
        let too_much = sum(&rows).saturating_sub(allocated);
        take_off(&mut rows, too_much);
        let explained = sum(&rows);
        rows.push((What::Unexplained, allocated.saturating_sub(explained)));
    }
    let reserved = bytes(&message.reserved);
    let unallocated = bytes(&message.unallocated)
        .or_else(|| Some(reserved?.saturating_sub(bytes(&message.allocated)?)));
    rows.extend(unallocated.map(|bytes| (What::Fragments, bytes)));
    if let (Some(process), Some(allocated)) = (bytes(&message.process), bytes(&message.allocated)) {
        let torch = allocated.saturating_add(unallocated.unwrap_or(0));
        rows.push((What::Context, process.saturating_sub(torch)));
    }
    rows.extend(other_programs(log).map(|bytes| (What::Others, bytes)));
    // Under a cap, this run cannot use all the free memory of the card.
    let free = bytes(&message.free).filter(|_| message.allowed.is_none());
    rows.extend(free.map(|bytes| (What::Free, bytes)));
    rows.retain(|(what, bytes)| *bytes > 0 && (*what != What::Unexplained || *bytes > NOTHING));
    rows.sort_by_key(|(what, _)| *what);
    rows
}

/// Our model of the run may predict a little more than there was. The excess is subtracted from the
/// activations, which are the least certain, or from the largest row if it is tiny. If the excess
/// is large, the model does not fit this run, and nothing is explained.
fn take_off(rows: &mut Vec<(What, u64)>, too_much: u64) {
    if too_much == 0 {
        return;
    }
    let spare =
        |what: What, bytes: u64| if what == What::Activations { bytes / 4 } else { bytes / 20 };
    let roomiest = rows.iter_mut().max_by_key(|(what, bytes)| spare(*what, *bytes));
    match roomiest {
        Some((what, bytes)) if too_much <= spare(*what, *bytes) => *bytes -= too_much,
        _ => rows.clear(),
    }
}

/// Bytes of the card that are neither free nor held by this process.
pub fn other_programs(log: &Log) -> Option<u64> {
    let message = &log.message;
    let listed: u64 = message.others.iter().map(|(_, size)| size.bytes).sum();
    let counted = match (&message.capacity, &message.free, &message.process) {
        // Drivers that print impossible numbers also print 0 bytes free.
        (_, Some(free), _) if free.bytes == 0 || !message.nonsense.is_empty() => 0,
        (Some(capacity), Some(free), Some(process)) => {
            capacity.bytes.saturating_sub(free.bytes).saturating_sub(process.bytes)
        }
        _ => 0,
    };
    Some(listed.max(counted)).filter(|bytes| *bytes > NOTHING)
}

fn by_kind(held: &[Alive], birth: &Birth) -> Vec<(What, u64)> {
    let kind = |alive: &Alive| match alive.role {
        Role::Weight if alive.name.starts_with("16-bit") => What::Copies,
        Role::Weight => What::Parameters,
        Role::Gradient => What::Gradients,
        Role::Moment => What::Adam,
        Role::Logits if is_stale(alive, held, birth) => What::StaleLogits,
        Role::Logits => What::Logits,
        Role::Workspace | Role::Partials => What::Workspace,
        Role::Tokens => What::Tokens,
        _ => What::Activations,
    };
    let sum = |what: What| {
        let of_kind = held.iter().filter(|alive| kind(alive) == what);
        (what, of_kind.map(|alive| alive.bytes).sum())
    };
    What::ALL.map(sum).into_iter().filter(|(_, bytes)| *bytes > 0).collect()
}

/// Whether these are logits of a finished batch while the next batch's are computed. The loop's
/// variable holds them: in an evaluation, and in training until the forward pass has ended.
fn is_stale(alive: &Alive, held: &[Alive], birth: &Birth) -> bool {
    let evaluation = alive.name == "eval logits" && birth.name == "eval logits, next batch";
    let forward = birth.phase == Phase::Forward && alive.name == "logits";
    let first = held.iter().find(|other| other.name == "logits");
    let is_first = first.is_some_and(|first| std::ptr::eq(first, alive));
    let count = held.iter().filter(|other| other.name == "logits").count();
    evaluation || (forward && (birth.name == "logits" || (count > 1 && is_first)))
}
