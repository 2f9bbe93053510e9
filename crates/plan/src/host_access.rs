//! When the host may write or read a tensor. Segments share bytes, so a segment's own inputs and
//! outputs stand in memory only around its run; every backend asks here before it touches any.

use crate::arena::Plan;
use crate::backend::BackendError;
use crate::schedule::SegmentId;
use crate::tensor::{Io, Phase, Scope, TensorId};

/// What the host may do, kept up to date with what it did and what ran.
#[derive(Clone, Debug)]
pub struct HostAccess {
    /// By tensor: those that the host sees at all.
    rules: Vec<Option<Rule>>,
    /// Whose own inputs or outputs stand in memory now.
    standing: Standing,
    /// Of the segment whose inputs stand there: which of them were written.
    written: Vec<bool>,
    /// The phase whose tensors stand in memory.
    phase: Option<Phase>,
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    bytes: u64,
    /// The segment that it belongs to, and on which side of its run it is touched.
    only: Option<(SegmentId, Io)>,
    /// The phase that keeps it.
    phase: Option<Phase>,
}

/// Segments share bytes: at any time the own inputs or outputs of one of them are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Nothing,
    /// The host has begun to write these.
    Inputs(SegmentId),
    /// The segment was the last to run, and ran to its end.
    Outputs(SegmentId),
}

impl HostAccess {
    /// Nothing written, nothing run.
    pub fn new(plan: &Plan) -> HostAccess {
        let tensors = &plan.schedule.tensors;
        let mut rules = vec![None; tensors.len()];
        for segment in plan.schedule.segment_ids() {
            for id in tensors.ids().filter(|&id| is_seen(plan, id, segment)) {
                let tensor = tensors.get(id);
                let (only, phase) = match tensor.scope {
                    Scope::Segment(_) => (Some((segment, tensor.io)), None),
                    Scope::Phase(phase) => (None, Some(phase)),
                    Scope::Run | Scope::Host => (None, None),
                };
                rules[id.index()] = Some(Rule { bytes: tensors.bytes(id).get(), only, phase });
            }
        }
        let written = vec![false; rules.len()];
        HostAccess { rules, standing: Standing::Nothing, written, phase: None }
    }

    /// Whether the host sees the tensor at all.
    pub fn is_seen(&self, tensor: TensorId) -> bool {
        self.rules.get(tensor.index()).is_some_and(Option::is_some)
    }

    /// Permits a write of `len` bytes from `offset` on. A phase that is entered by it is returned:
    /// what it keeps becomes NaN before the write.
    pub fn write(
        &mut self,
        tensor: TensorId,
        offset: u64,
        len: usize,
    ) -> Result<Option<Phase>, BackendError> {
        let rule = self.rule(tensor)?;
        if let Some((_, Io::Output)) = rule.only {
            return Err(refusal(tensor, "is an output, not to be written"));
        }
        inside(tensor, rule.bytes, offset, len)?;
        if let Some((segment, _)) = rule.only {
            // From now on no other segment's inputs or outputs are believed.
            if self.standing != Standing::Inputs(segment) {
                self.standing = Standing::Inputs(segment);
                self.written.fill(false);
            }
            self.written[tensor.index()] = true;
        }
        Ok(rule.phase.and_then(|phase| self.enter(phase)))
    }

    /// Permits a read of `len` bytes from `offset` on.
    pub fn read(&self, tensor: TensorId, offset: u64, len: usize) -> Result<(), BackendError> {
        let rule = self.rule(tensor)?;
        let gone = || refusal(tensor, "was overwritten by what was written or run since");
        match rule.only {
            Some((_, Io::Input)) => return Err(refusal(tensor, "is an input, not to be read")),
            Some((segment, _)) if self.standing != Standing::Outputs(segment) => return Err(gone()),
            _ => {}
        }
        if rule.phase.is_some_and(|phase| self.phase != Some(phase)) {
            return Err(gone());
        }
        inside(tensor, rule.bytes, offset, len)
    }

    /// A segment is about to run: each of its own inputs must stand in memory. What a phase keeps
    /// shares bytes with other phases, so on entering it (it is returned then) all of that becomes
    /// NaN: a result that leans on what is gone is then seen to.
    pub fn begin(
        &mut self,
        segment: SegmentId,
        phase: Phase,
    ) -> Result<Option<Phase>, BackendError> {
        let stands = self.standing == Standing::Inputs(segment);
        for (index, rule) in self.rules.iter().enumerate() {
            let own = rule.is_some_and(|rule| rule.only == Some((segment, Io::Input)));
            if own && !(stands && self.written[index]) {
                let what = format!("tensor {index}, an input of the segment, was not written");
                return Err(BackendError::HostAccess { what });
            }
        }
        self.standing = Standing::Nothing;
        Ok(self.enter(phase))
    }

    /// A segment has run: its outputs stand in memory.
    pub fn end(&mut self, segment: SegmentId) {
        self.standing = Standing::Outputs(segment);
    }

    fn enter(&mut self, phase: Phase) -> Option<Phase> {
        (self.phase.replace(phase) != Some(phase)).then_some(phase)
    }

    fn rule(&self, tensor: TensorId) -> Result<Rule, BackendError> {
        let rule = self.rules.get(tensor.index()).copied().flatten();
        rule.ok_or_else(|| refusal(tensor, "exists only while its segment runs"))
    }
}

/// Whether the host may read or write a tensor around a run of a segment.
fn is_seen(plan: &Plan, id: TensorId, segment: SegmentId) -> bool {
    let tensor = plan.schedule.tensors.get(id);
    match tensor.scope {
        Scope::Run | Scope::Host | Scope::Phase(_) => plan.schedule.is_held(id, segment),
        Scope::Segment(owner) => owner == segment && tensor.io != Io::Device,
    }
}

fn inside(tensor: TensorId, bytes: u64, offset: u64, len: usize) -> Result<(), BackendError> {
    match offset.checked_add(len as u64) {
        Some(end) if end <= bytes => Ok(()),
        _ => {
            let why = format!("has {bytes} bytes, {len} from {offset} were asked for");
            Err(refusal(tensor, &why))
        }
    }
}

fn refusal(tensor: TensorId, why: &str) -> BackendError {
    BackendError::HostAccess { what: format!("tensor {} {why}", tensor.index()) }
}
