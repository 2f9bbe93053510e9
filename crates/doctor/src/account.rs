//! What held the memory: a table whose rows add up to the card's memory. A row shows any
//! unexplained rest. If the message's figures contradict each other, there is no sum.

use crate::log::{Dialect, Log, Size};
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
    /// PyTorch's tensors, of a run that we have no model of.
    Tensors,
    /// Reserved by PyTorch but not used by any tensor.
    Fragments,
    /// This process beside PyTorch: CUDA context, libraries, kernels.
    Context,
    /// This process as a whole, if the message does not say what part of it is PyTorch's.
    Process,
    /// In use, but not by PyTorch: this process's context and other programs.
    Outside,
    /// In use; the message does not say by whom.
    Unsaid,
    /// Other programs on the card.
    Others,
    /// Free memory.
    Free,
}

impl What {
    /// All rows, in the order of the table.
    pub const ALL: [What; 18] = [
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
        What::Tensors,
        What::Fragments,
        What::Context,
        What::Process,
        What::Outside,
        What::Unsaid,
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
            What::Tensors => "pytorch_tensors",
            What::Fragments => "reserved_unallocated",
            What::Context => "context",
            What::Process => "this_process",
            What::Outside => "outside_pytorch",
            What::Unsaid => "unsaid",
            What::Others => "other_programs",
            What::Free => "free",
        }
    }
}

/// Smaller differences come from the rounding of printed numbers.
const NOTHING: u64 = 48 << 20;

/// A context and libraries of one process: 0.3 to 0.8 GiB. Where a message does not separate it
/// from other programs, this much of the memory outside PyTorch is taken to be the context.
const CONTEXT: u64 = 800 << 20;

/// Who held what.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// The rows, in the order of the table.
    pub rows: Vec<(What, u64)>,
    /// What the rows add up to: the card's memory, or the cap. None if a figure is missing.
    pub total: Option<u64>,
    /// What other programs hold.
    pub others: u64,
    /// Whether `others` may contain a part of this process: the message does not separate them.
    pub mixed: bool,
    /// What this run holds, as far as the message says.
    pub held: Option<u64>,
    /// Reserved by PyTorch, but in no tensor.
    pub pieces: u64,
    /// Whether more is held and free than the card has.
    pub exceeds: bool,
}

impl Account {
    /// The bytes of a row.
    pub fn of(&self, what: What) -> u64 {
        self.rows.iter().find(|(row, _)| *row == what).map_or(0, |(_, bytes)| *bytes)
    }

    /// Whether others hold enough of a card to matter for a run that we have no model of. A desktop
    /// on a small card holds less than a tenth. Where the message does not separate others from
    /// this process, its own libraries may be a tenth too.
    pub fn others_matter(&self, capacity: u64) -> bool {
        let share = if self.mixed { 5 } else { 10 };
        self.others >= capacity / share
    }

    /// Whether what is reserved but unused would have been enough, and is more than the crumbs that
    /// every run has.
    pub fn pieces_suffice(&self, asked: u64) -> bool {
        const CRUMBS: u64 = 256 << 20;
        let held = self.held.unwrap_or(0);
        asked > 0 && self.pieces >= asked && self.pieces >= CRUMBS.max(held / 20)
    }

    /// The account of a log: PyTorch's tensors at the moment of the failure, and the memory outside
    /// them.
    pub fn new(log: &Log, moment: Option<(&Played, &Birth)>) -> Account {
        let message = &log.message;
        let metal = message.dialect == Dialect::Mps;
        let [allocated, process, free] =
            [&message.allocated, &message.process, &message.free].map(bytes);
        let pieces = bytes(&message.unallocated)
            .or_else(|| Some(bytes(&message.reserved)?.saturating_sub(allocated?)));
        let torch = bytes(&message.reserved)
            .or_else(|| Some(allocated?.saturating_add(pieces.unwrap_or(0))));
        // Without PyTorch's own sum, tensors of our model would be counted twice beside the card's.
        let moment = moment.filter(|_| allocated.is_some() || message.capacity.is_none());
        let mut rows = tensors(allocated, moment);
        rows.extend(pieces.map(|bytes| (What::Fragments, bytes)));
        match (process, torch) {
            (Some(process), Some(torch)) => {
                rows.push((What::Context, process.saturating_sub(torch)));
            }
            (Some(process), None) => rows.push((What::Process, process)),
            _ => {}
        }
        let mut account = Account {
            rows,
            total: None,
            others: 0,
            mixed: false,
            // Metal counts all of this process; elsewhere PyTorch's part decides.
            held: if metal { process.or(torch) } else { torch.or(process) },
            pieces: pieces.unwrap_or(0),
            exceeds: false,
        };
        match bytes(&message.allowed) {
            // Metal's limit is for everything that this process holds.
            Some(cap) if metal => {
                let left = process.or(torch).and_then(|held| cap.checked_sub(held));
                account.rows.push((What::Free, left.unwrap_or(0)));
                account.total = left.map(|_| cap);
            }
            // A cap counts what PyTorch reserves; what the card has beside it does not matter.
            Some(cap) => {
                let left = cap.saturating_sub(torch.unwrap_or(0));
                account.rows.push((What::Free, left));
                account.total = torch.map(|_| cap.saturating_add(account.of(What::Context)));
            }
            None => account.beside(log, process, torch, free),
        }
        account.rows.retain(|(_, bytes)| *bytes > 0);
        account.rows.sort_by_key(|(what, _)| *what);
        account
    }

    fn add(&mut self, what: What, more: u64) {
        match self.rows.iter_mut().find(|(row, _)| *row == what) {
            Some((_, bytes)) => *bytes = bytes.saturating_add(more),
            None => self.rows.push((what, more)),
        }
    }

    /// Other programs and free memory: what is left of the card.
    fn beside(&mut self, log: &Log, process: Option<u64>, torch: Option<u64>, free: Option<u64>) {
        let listed: u64 = log.message.others.iter().map(|(_, size)| size.bytes).sum();
        self.rows.extend(free.map(|bytes| (What::Free, bytes)));
        let Some((capacity, free)) = bytes(&log.message.capacity).zip(free) else {
            self.rows.push((What::Others, listed));
            self.others = listed;
            return;
        };
        let own = process.or(torch).unwrap_or(0);
        let slack = (capacity / 50).saturating_add(NOTHING);
        if own.saturating_add(free) > capacity.saturating_add(slack) {
            (self.exceeds, self.others) = (true, listed);
            self.rows.push((What::Others, listed));
            return;
        }
        let rest = capacity.saturating_sub(free).saturating_sub(own);
        let unlisted = rest.saturating_sub(listed);
        self.total = Some(capacity);
        match (process, torch) {
            // So little is the rounding of the printed numbers.
            (Some(_), None) if rest <= NOTHING => self.add(What::Process, rest),
            (Some(_), _) if rest <= NOTHING => self.add(What::Context, rest),
            (Some(_), _) => {
                self.rows.push((What::Others, rest));
                self.others = rest;
            }
            (None, Some(_)) => {
                self.rows.extend([(What::Others, rest - unlisted), (What::Outside, unlisted)]);
                let others = match unlisted {
                    // The context is a small part of it, or perhaps none.
                    much if much > 2 * CONTEXT => much,
                    little => little.saturating_sub(CONTEXT),
                };
                self.others = (rest - unlisted).saturating_add(others);
                self.mixed = others > 0;
            }
            (None, None) => {
                self.rows.extend([(What::Others, rest - unlisted), (What::Unsaid, unlisted)]);
                self.others = rest - unlisted;
            }
        }
    }
}

fn bytes(size: &Option<Size>) -> Option<u64> {
    size.as_ref().map(|size| size.bytes)
}

/// PyTorch's tensors by kind, as far as our model of the run explains them.
fn tensors(allocated: Option<u64>, moment: Option<(&Played, &Birth)>) -> Vec<(What, u64)> {
    let mut rows =
        moment.map_or(Vec::new(), |(played, birth)| by_kind(&played.held_at(birth), birth));
    let Some(allocated) = allocated else {
        return rows;
    };
    let sum = |rows: &[(What, u64)]| rows.iter().map(|(_, bytes)| *bytes).sum::<u64>();
    let too_much = sum(&rows).saturating_sub(allocated);
    take_off(&mut rows, too_much);
    let rest = allocated.saturating_sub(sum(&rows));
    match rows.iter_mut().max_by_key(|(_, bytes)| *bytes) {
        None => rows.push((What::Tensors, rest)),
        Some((_, largest)) if rest <= NOTHING => *largest = largest.saturating_add(rest),
        Some(_) => rows.push((What::Unexplained, rest)),
    }
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
