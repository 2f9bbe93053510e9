//! Why memory ran out. The account comes first, the requested tensor second: a small request that
//! fails on a full card is the last straw, not the cause.

use crate::account::{Account, What};
use crate::figure::Figure;
use crate::log::{Backend, Contradiction, Dialect, Log, LogPhase};
use crate::room::{Room, RoomSource};
use crate::tensor::{ATTENTION_SCORES, Confidence, Named, asked};
use crate::torch::Peak;
use plan::Role;

/// Why the run ran out of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// The logits, or tensors that the loss derives from them.
    Logits,
    /// The logits of the previous batch are still referenced.
    StaleLogits,
    /// Activations saved for the backward pass.
    Activations,
    /// The T x T attention scores.
    AttentionScores,
    /// Adam's moments.
    OptimizerState,
    /// The optimizer's step, without a sign of what it allocated.
    OptimizerStep,
    /// The model itself, or its gradients.
    Weights,
    /// Weights, gradients and Adam's moments together.
    State,
    /// A loaded checkpoint stays in memory beside the model.
    LoadedCheckpoint,
    /// One request that is large beside what is held, of a tensor that cannot be named.
    Request,
    /// This run fills the card; the request was only the last straw.
    Full,
    /// This run fills the card, and does not train.
    FullOfInference,
    /// A small request failed; who held the memory, the log does not say.
    Unsaid,
    /// cuBLAS or cuDNN could not allocate.
    Library,
    /// The card was full before this run allocated anything.
    FullBefore,
    /// Enough memory is reserved, but not in one piece.
    Fragmentation,
    /// Other programs hold the missing memory.
    OtherProcess,
    /// The host's memory, not the GPU's.
    HostMemory,
    /// The process was killed, most often for the host's memory.
    Killed,
    /// The figures of the message contradict each other.
    Contradiction,
    /// The log does not say.
    #[default]
    Unknown,
}

impl Cause {
    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Logits => "logits",
            Cause::StaleLogits => "stale_logits",
            Cause::Activations => "activations",
            Cause::AttentionScores => "attention_scores",
            Cause::OptimizerState => "optimizer_state",
            Cause::OptimizerStep => "optimizer_step",
            Cause::Weights => "weights",
            Cause::State => "state",
            Cause::LoadedCheckpoint => "loaded_checkpoint",
            Cause::Request => "request",
            Cause::Full => "full",
            Cause::FullOfInference => "full_of_inference",
            Cause::Unsaid => "unsaid",
            Cause::Library => "library",
            Cause::FullBefore => "full_before",
            Cause::Fragmentation => "fragmentation",
            Cause::OtherProcess => "other_process",
            Cause::HostMemory => "host_memory",
            Cause::Killed => "killed",
            Cause::Contradiction => "contradiction",
            Cause::Unknown => "unknown",
        }
    }
}

impl Cause {
    /// Of the optimizer's step: its moments, if the frames show that they are made.
    fn of_step(log: &Log) -> Cause {
        let makes = |frame: &str| log.traceback.is_in(frame);
        match makes("_init_group") || makes("state[\"exp_avg") || makes("state['exp_avg") {
            true => Cause::OptimizerState,
            false => Cause::OptimizerStep,
        }
    }
}

/// A sentence that supports the cause, with its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The request is a small share of what is held: request, share, held.
    LastStraw,
    /// The size of the allocator's own blocks: request.
    Block,
    /// Parameters, 16 bytes for each, the card's memory.
    StateExceeds,
    /// Parameters, 16 bytes for each, what the run can have: less than that and a context.
    StateLeavesNothing,
    /// Parameters, 16 bytes for each.
    StateOf,
    /// Parameters, their bytes in f32, in 16 bits.
    WeightsOf,
    /// What is held beyond weights, gradients and moments.
    Beyond,
    /// What others hold, of the card's memory.
    OthersHold,
    /// What others hold, of the card's memory, if the request is not known.
    OthersHoldMost,
    /// What others hold; it does not matter.
    OthersSmall,
    /// Reserved but unused, requested, free.
    Pieces,
    /// Pieces that would have been enough, beside another cause: reserved but unused, requested.
    PiecesToo,
    /// More free than requested: free, requested.
    FreeExceeds,
    /// The process holds nothing, but PyTorch does: allocated.
    HoldsNothing,
    /// Reserved, allocated.
    ReservedBelow,
    /// Held, the card's memory.
    HeldExceeds,
    /// A number that cannot be.
    Impossible,
    /// Windows: held, the card's memory.
    SharedMemory,
    /// By our model it fits: needed, available.
    ModelFits,
    /// By our model it does not: needed, available, missing.
    ModelExceeds,
    /// Of the resident host memory.
    Resident,
    /// Attention scores of all layers together, layers.
    ScoresAdd,
    /// Hugging Face's Trainer gathers the logits of a whole evaluation.
    PredictionsKept,
    /// More than the whole card: request, the card's memory.
    ExceedsCard,
    /// The text names a card of another size than the message: said, the card's memory.
    CardDiffers,
}

/// A reason with its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// The sentence.
    pub reason: Reason,
    /// Its figures.
    pub figures: Vec<Figure>,
}

fn said(reason: Reason, sizes: &[u64]) -> Said {
    Said { reason, figures: sizes.iter().map(|n| Figure::Bytes(*n)).collect() }
}

/// A request is large if it is at least this share of what the run holds. Below it, the card was
/// more than nine tenths full, and any other request would have failed next.
const LARGE: u64 = 10;

/// Less than this in other programs is not worth a sentence.
const WORTH_SAYING: u64 = 256 << 20;

/// Heads and layers of GPT-2's four sizes.
const LAYERS: [(u64, u64); 4] = [(12, 12), (16, 24), (20, 36), (25, 48)];

/// A request from here on is large, if nothing says what it is to be compared with.
const LARGE_ALONE: u64 = 1 << 30;

/// The least that a process needs beside its tensors.
const CONTEXT: u64 = 300 << 20;

/// Bytes of weights, gradients and Adam's two moments, for each parameter in f32.
const STATE: u64 = 16;

/// What the cause is judged by.
pub struct Evidence<'a> {
    /// The log, if there is one.
    pub log: Option<&'a Log>,
    /// The tensor that was requested.
    pub tensor: Option<&'a Named>,
    /// Who held what.
    pub account: &'a Account,
    /// The predicted peaks, if the run is known.
    pub peaks: &'a [Peak],
    /// Device memory of the largest of them.
    pub needs: Option<u64>,
    /// The memory that there is.
    pub room: Option<Room>,
    /// When it failed.
    pub phase: LogPhase,
    /// Parameters of the model.
    pub parameters: Option<u64>,
    /// Whether it resumes from a checkpoint.
    pub resumes: bool,
}

impl Evidence<'_> {
    /// The cause, and the sentences that support it.
    pub fn judge(&self) -> (Cause, Vec<Said>) {
        let Some(log) = self.log else {
            return (self.predicted(), Vec::new());
        };
        let cause = self.of_log(log);
        (cause, self.reasons(log, cause))
    }

    fn asked(&self) -> u64 {
        self.log.and_then(asked).unwrap_or(0)
    }

    fn capacity(&self) -> Option<u64> {
        self.log.and_then(|log| log.message.limit()).or(self.room.map(|room| room.limit))
    }

    /// What the run holds: what it says, or all that is not free.
    fn held(&self) -> Option<u64> {
        let message = self.log.map(|log| &log.message)?;
        let free = message.free.as_ref().map(|size| size.bytes);
        self.account.held.or_else(|| {
            let used = self.capacity()?.saturating_sub(free?);
            Some(used.saturating_sub(self.account.others))
        })
    }

    fn is_large(&self) -> bool {
        match self.held() {
            Some(held) => self.asked() >= held / LARGE,
            None => {
                let capacity = self.capacity().unwrap_or(LARGE.saturating_mul(LARGE_ALONE));
                self.asked() >= capacity / LARGE
            }
        }
    }

    fn state(&self) -> Option<u64> {
        self.parameters.and_then(|count| count.checked_mul(STATE)).filter(|state| *state < 1 << 60)
    }

    /// What a run can have: the card's memory, less what others hold.
    fn available(&self) -> Option<u64> {
        self.room.map(|room| room.free()).or(self.capacity())
    }

    /// Whether weights, gradients and moments alone are more than the run can have.
    fn state_exceeds(&self) -> bool {
        let trains = !matches!(self.phase, LogPhase::Sample | LogPhase::Load);
        let exceeds = |(state, available)| state + CONTEXT > available;
        trains && self.state().zip(self.available()).is_some_and(exceeds)
    }

    fn of_log(&self, log: &Log) -> Cause {
        let message = &log.message;
        if message.dialect == Dialect::Fitgpt {
            return of_own_refusal(log);
        }
        if message.dialect == Dialect::Killed {
            return Cause::Killed;
        }
        if log.backend == Backend::Host {
            return Cause::HostMemory;
        }
        let free_exceeds =
            |one: &Contradiction| matches!(one, Contradiction::FreeExceedsRequest { .. });
        if message.allowed.is_none() && message.contradictions.iter().any(free_exceeds) {
            return Cause::Contradiction;
        }
        if self.others_decide(log) {
            return Cause::OtherProcess;
        }
        if self.is_fragmented() {
            return Cause::Fragmentation;
        }
        if self.phase == LogPhase::Resume || (self.resumes && !self.is_large()) {
            return Cause::LoadedCheckpoint;
        }
        if self.asked() == 0 {
            return self.without_a_request(log);
        }
        // Where the run is known, the step itself names the moments.
        let steps = self.needs.is_some() && self.phase == LogPhase::Optimizer;
        if self.state_exceeds() && !steps {
            return Cause::State;
        }
        // Every layer keeps its own scores, so they are large together.
        let scores = self.tensor.filter(|tensor| tensor.name == ATTENTION_SCORES);
        if scores.is_some_and(|tensor| tensor.confidence > Confidence::Possible) {
            return Cause::AttentionScores;
        }
        match self.is_large() {
            // No reason for a size that the whole card does not have is needed.
            true if self.exceeds_card() && self.is_guess() => Cause::Request,
            // llm.c allocates its activations at once.
            true if log.message.dialect == Dialect::LlmC => Cause::Activations,
            true => self.tensor.map_or(Cause::Request, of_tensor),
            false => self.what_fills(),
        }
    }

    fn exceeds_card(&self) -> bool {
        self.capacity().is_some_and(|capacity| self.asked() > capacity)
    }

    /// Whether the tensor is named by its size alone.
    fn is_guess(&self) -> bool {
        self.tensor.is_none_or(|tensor| tensor.confidence == Confidence::Possible)
    }

    /// Whether the request would have fitted without the other programs, and the run too.
    fn others_decide(&self, log: &Log) -> bool {
        let others = self.account.others;
        // A message without its request: others hold most of a card that has nothing left.
        if let (0, Some(capacity), Some(free)) =
            (self.asked(), log.message.capacity.as_ref(), log.message.free.as_ref())
        {
            return others > capacity.bytes / 2 && free.bytes < capacity.bytes / 10;
        }
        let free = log.message.free.as_ref().map_or(0, |size| size.bytes);
        let missing = self.asked().saturating_sub(free);
        let enough = others >= missing.max(1) && log.message.free.is_some();
        let alone = match (self.needs, self.room) {
            (Some(needs), Some(room)) => needs <= room.limit && needs > room.target(),
            _ => {
                let matters = |capacity: u64| self.account.others_matter(capacity);
                self.capacity().is_some_and(matters) && !self.state_exceeds()
            }
        };
        self.asked() > 0 && enough && alone
    }

    /// Fragmentation is the cause only if the run would fit without it. Every run that is too large
    /// has some free fragments when a last small request fails.
    fn is_fragmented(&self) -> bool {
        let would_fit = match (self.needs, self.room) {
            (Some(needs), Some(room)) => needs <= room.free(),
            _ => {
                let held = self.account.held.unwrap_or(0).saturating_sub(self.account.pieces);
                self.account.pieces >= held / 10 && !self.state_exceeds()
            }
        };
        self.asked() > 0 && would_fit && self.account.pieces >= self.asked()
    }

    /// A bare error, or a text without the message's numbers.
    fn without_a_request(&self, log: &Log) -> Cause {
        match self.phase {
            _ if self.needs.is_some() => self.predicted(),
            LogPhase::Load if matches!(log.message.dialect, Dialect::Bare | Dialect::Driver) => {
                Cause::FullBefore
            }
            LogPhase::Optimizer => Cause::of_step(log),
            _ if self.state_exceeds() => Cause::State,
            _ if log.message.dialect == Dialect::Library => Cause::Library,
            _ => Cause::Unknown,
        }
    }

    /// The largest part of what PyTorch holds, where our model of the run explains it.
    fn what_fills(&self) -> Cause {
        let of = |rows: &[What]| rows.iter().map(|row| self.account.of(*row)).sum::<u64>();
        let weights = of(&[What::Parameters, What::Copies, What::Gradients]);
        let adam = of(&[What::Adam]);
        let logits = of(&[What::Logits, What::StaleLogits]);
        let groups = [
            (weights + adam, Cause::State),
            (of(&[What::Activations]), Cause::Activations),
            (logits, Cause::Logits),
        ];
        let largest = groups.into_iter().max_by_key(|(bytes, _)| *bytes);
        match largest {
            Some((0, _)) | None => match self.phase {
                LogPhase::Optimizer => self.log.map_or(Cause::OptimizerStep, Cause::of_step),
                LogPhase::Load => Cause::Weights,
                _ if self.held().is_none() => Cause::Unsaid,
                LogPhase::Sample => Cause::FullOfInference,
                _ => Cause::Full,
            },
            Some((_, Cause::State)) if self.phase == LogPhase::Optimizer => Cause::OptimizerState,
            Some((_, Cause::State)) if adam == 0 => Cause::Weights,
            Some((_, cause)) => cause,
        }
    }

    /// The largest part at the predicted failure.
    fn predicted(&self) -> Cause {
        let dying = self.peaks.iter().find(|peak| peak.phase.name() == self.phase.name());
        let over = dying.filter(|_| self.needs.zip(self.room).is_some());
        let peak = over.or_else(|| self.peaks.iter().max_by_key(|peak| peak.bytes));
        let largest = peak.and_then(|peak| peak.asked.first().or(peak.alive.first()));
        largest.map_or(Cause::Unknown, |alive| of_role(alive.role, &alive.name))
    }

    fn reasons(&self, log: &Log, cause: Cause) -> Vec<Said> {
        let mut found = Vec::new();
        let asked = self.asked();
        let blamed = matches!(
            cause,
            Cause::OtherProcess
                | Cause::Fragmentation
                | Cause::Contradiction
                | Cause::HostMemory
                | Cause::Killed
        );
        if is_block(asked) {
            found.push(said(Reason::Block, &[asked]));
        } else if let Some(held) = self.held().filter(|_| asked > 0 && !blamed && !self.is_large())
        {
            let share = (asked.saturating_mul(100) / held.max(1)).max(1);
            let figures = vec![Figure::Bytes(asked), Figure::Percent(share), Figure::Bytes(held)];
            found.push(Said { reason: Reason::LastStraw, figures });
        }
        found.extend(self.of_scores().filter(|_| !blamed));
        if let Some(capacity) = self.capacity().filter(|_| self.exceeds_card() && !blamed) {
            found.push(said(Reason::ExceedsCard, &[asked, capacity]));
        }
        if log.traceback.is_in("nested_concat") {
            found.push(said(Reason::PredictionsKept, &[]));
        }
        found.extend(self.of_card(log));
        found.extend(self.of_parameters(cause));
        found.extend(self.of_others(log, cause));
        found.extend(contradictions(log));
        if let (Some(held), Some(capacity), true) =
            (self.account.held, self.capacity(), log.shared_memory)
        {
            found.push(said(Reason::SharedMemory, &[held, capacity]));
        }
        if let Some((needs, room)) = self.needs.zip(self.room) {
            let free = room.free();
            match needs.checked_sub(free).filter(|over| *over > 0) {
                None => found.push(said(Reason::ModelFits, &[needs, free])),
                // Beside an assumed desktop, the margin says it.
                Some(_) if room.source == RoomSource::Desktop => {}
                Some(over) => found.push(said(Reason::ModelExceeds, &[needs, free, over])),
            }
        }
        if let Some(process) = log.message.process.as_ref().filter(|_| cause == Cause::HostMemory) {
            found.push(said(Reason::Resident, &[process.bytes]));
        }
        found
    }

    /// Every layer of GPT-2 keeps its own attention scores.
    fn of_scores(&self) -> Option<Said> {
        let scores = self.tensor.filter(|tensor| tensor.name == ATTENTION_SCORES)?;
        let heads = *scores.shape.get(1)?;
        let (_, layers) = LAYERS.iter().find(|(known, _)| *known == heads)?;
        let all = self.asked().saturating_mul(*layers);
        let figures = vec![Figure::Bytes(all), Figure::Count(*layers)];
        Some(Said { reason: Reason::ScoresAdd, figures })
    }

    /// People say another size than their card has: two kinds of it exist, or it is another card.
    fn of_card(&self, log: &Log) -> Option<Said> {
        let said_memory = log.run.card_memory.as_ref()?.bytes;
        let capacity = log.message.capacity.as_ref()?.bytes;
        let differs = said_memory.abs_diff(capacity) > said_memory.max(capacity) / 4;
        differs.then(|| said(Reason::CardDiffers, &[said_memory, capacity]))
    }

    /// What is known from the number of parameters, where the run itself is not.
    fn of_parameters(&self, cause: Cause) -> Vec<Said> {
        let mut found = Vec::new();
        let Some(count) = self.parameters.filter(|_| self.needs.is_none() || cause == Cause::State)
        else {
            return found;
        };
        let of = |reason: Reason, sizes: &[u64]| {
            let sizes = sizes.iter().map(|size| Figure::Bytes(*size));
            Said { reason, figures: [Figure::Count(count)].into_iter().chain(sizes).collect() }
        };
        let state = self.state().unwrap_or(u64::MAX);
        match self.capacity() {
            _ if matches!(self.phase, LogPhase::Load | LogPhase::Sample | LogPhase::Resume) => {
                let weights = count.saturating_mul(4);
                found.push(of(Reason::WeightsOf, &[weights, weights / 2]));
            }
            _ if matches!(cause, Cause::HostMemory | Cause::Killed) => {}
            Some(capacity) if state > capacity => {
                found.push(of(Reason::StateExceeds, &[state, capacity]));
            }
            Some(capacity) if self.state_exceeds() => {
                let available = self.available().unwrap_or(capacity);
                found.push(of(Reason::StateLeavesNothing, &[state, available]));
            }
            _ => {
                found.push(of(Reason::StateOf, &[state]));
                let beyond = self.held().map_or(0, |held| held.saturating_sub(state));
                found.extend((beyond > 0).then(|| said(Reason::Beyond, &[beyond])));
            }
        }
        found
    }

    fn of_others(&self, log: &Log, cause: Cause) -> Vec<Said> {
        let (others, pieces, asked) = (self.account.others, self.account.pieces, self.asked());
        let capacity = self.capacity().unwrap_or(0);
        let free = log.message.free.as_ref().map_or(0, |size| size.bytes);
        let mut found = Vec::new();
        if cause == Cause::OtherProcess {
            let reason = if asked > 0 { Reason::OthersHold } else { Reason::OthersHoldMost };
            found.push(said(reason, &[others, capacity]));
        } else if others >= WORTH_SAYING && log.message.allowed.is_none() && !self.account.mixed {
            found.push(said(Reason::OthersSmall, &[others]));
        }
        let enough = self.account.pieces_suffice(asked) && !is_block(asked);
        if cause == Cause::Fragmentation {
            found.push(said(Reason::Pieces, &[pieces, asked, free]));
        } else if enough && cause == Cause::OtherProcess {
            found.push(said(Reason::PiecesToo, &[pieces, asked]));
        }
        found
    }
}

/// PyTorch's allocator asks the driver for 2 MiB for requests up to 1 MiB, and for 20 MiB for
/// requests up to 10 MiB.
pub fn is_block(asked: u64) -> bool {
    asked == 2 << 20 || asked == 20 << 20
}

/// Figures that cannot all be true.
fn contradictions(log: &Log) -> Vec<Said> {
    let of = |one: &Contradiction| match one {
        Contradiction::FreeExceedsRequest { free, requested } => {
            said(Reason::FreeExceeds, &[*free, *requested])
        }
        Contradiction::ProcessHoldsNothing { allocated } => {
            said(Reason::HoldsNothing, &[*allocated])
        }
        Contradiction::ReservedBelowAllocated { reserved, allocated } => {
            said(Reason::ReservedBelow, &[*reserved, *allocated])
        }
        Contradiction::HeldExceedsCapacity { held, capacity } => {
            said(Reason::HeldExceeds, &[*held, *capacity])
        }
        Contradiction::UnsignedWrap(text) => {
            Said { reason: Reason::Impossible, figures: vec![Figure::Text(text.clone())] }
        }
    };
    log.message.contradictions.iter().map(of).collect()
}

fn of_tensor(tensor: &Named) -> Cause {
    of_role(tensor.role, &tensor.name)
}

fn of_role(role: Role, name: &str) -> Cause {
    match role {
        Role::Logits if name == "eval logits, next batch" => Cause::StaleLogits,
        Role::Logits => Cause::Logits,
        Role::Moment => Cause::OptimizerState,
        Role::Weight | Role::Master | Role::Gradient => Cause::Weights,
        Role::Activation if name == ATTENTION_SCORES => Cause::AttentionScores,
        Role::Activation => Cause::Activations,
        _ => Cause::Unknown,
    }
}

/// fitGPT's own refusal names the largest tensors.
fn of_own_refusal(log: &Log) -> Cause {
    match log.message.largest.first().map(String::as_str) {
        Some("m" | "v") => Cause::OptimizerState,
        Some("weights" | "master" | "gradients") => Cause::Weights,
        Some("logits") => Cause::Logits,
        Some(_) => Cause::Activations,
        None => Cause::Unknown,
    }
}
