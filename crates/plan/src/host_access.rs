//! When the host may write or read a tensor. Segments share bytes, so the inputs and outputs of a
//! segment are valid only right before and after its run. Every backend asks here before it copies
//! anything.

use crate::arena::Plan;
use crate::backend::BackendError;
use crate::schedule::SegmentId;
use crate::tensor::{Io, Phase, Scope, TensorId};

/// What the host may do now. Every write and every run updates it.
#[derive(Clone, Debug)]
pub struct HostAccess {
    /// By tensor, for those that the host can access at all.
    rules: Vec<Option<Rule>>,
    /// The segment whose inputs or outputs are valid now.
    standing: Standing,
    /// Which inputs of that segment the host has written.
    written: Vec<bool>,
    /// The phase whose tensors are valid now.
    phase: Option<Phase>,
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    bytes: u64,
    /// The segment that it belongs to, and whether the host writes it before or reads it after.
    only: Option<(SegmentId, Io)>,
    /// The phase that keeps it.
    phase: Option<Phase>,
}

/// Segments share bytes, so the inputs or outputs of only one segment are valid at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Nothing,
    /// The host has begun to write this segment's inputs.
    Inputs(SegmentId),
    /// This segment ran last, and ran to its end.
    Outputs(SegmentId),
}

impl HostAccess {
    /// Before the first write and the first run.
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

    /// Whether the host can access the tensor at all.
    pub fn is_seen(&self, tensor: TensorId) -> bool {
        self.rules.get(tensor.index()).is_some_and(Option::is_some)
    }

    /// Permits a write of `len` bytes from `offset` on. If the write enters a phase, returns that
    /// phase: the backend fills its tensors with NaN before the write.
    pub fn write(
        &mut self,
        tensor: TensorId,
        offset: u64,
        len: usize,
    ) -> Result<Option<Phase>, BackendError> {
        let rule = self.rule(tensor)?;
        if let Some((_, Io::Output)) = rule.only {
            return Err(refusal(tensor, "is an output, which the host cannot write"));
        }
        inside(tensor, rule.bytes, offset, len)?;
        if let Some((segment, _)) = rule.only {
            // From now on the inputs and outputs of all other segments are invalid.
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
        let gone = || refusal(tensor, "was overwritten by a later write or run");
        match rule.only {
            Some((_, Io::Input)) => {
                return Err(refusal(tensor, "is an input, which the host cannot read"));
            }
            Some((segment, _)) if self.standing != Standing::Outputs(segment) => return Err(gone()),
            _ => {}
        }
        if rule.phase.is_some_and(|phase| self.phase != Some(phase)) {
            return Err(gone());
        }
        inside(tensor, rule.bytes, offset, len)
    }

    /// Called before a segment runs: the host must have written all of its inputs. Tensors of a
    /// phase share bytes with other phases. So if the run enters a phase, this returns it and the
    /// backend fills its tensors with NaN: a result that depends on lost values is then visibly
    /// NaN.
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

    /// Called after a segment has run: its outputs are valid now.
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

/// Whether the host may read or write a tensor before or after a run of a segment.
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
