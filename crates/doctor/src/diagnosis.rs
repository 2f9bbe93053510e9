//! The whole diagnosis: what held the memory, the cause, the tensor, what to change, and which
//! fitGPT command runs it. What the log does not say is listed as unknown, not guessed.

use crate::account::Account;
use crate::advice::{Judged, judge};
use crate::cause::{Cause, Evidence, Said, is_block};
use crate::fitgpt::FitgptCommand;
use crate::fixes::{self, Fix};
use crate::log::{Backend, Dialect, Log, LogPhase, Origin, Program};
use crate::patch::Patch;
use crate::recovered::RecoveredRun;
use crate::remedies::{Remedy, judge_message, remedies};
use crate::room::{Fit, Room, card_of};
use crate::suggested::Suggested;
use crate::tensor::{
    Confidence, Named, asked, attention_scores, in_general, of_code, of_run, parameter_in_general,
};
use crate::torch::{Peak, Phase, Played, play};
use plan::Role;
use plan::hardware::Card;
use search::SearchError;

/// Something that the log does not say. Its sentence says how to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// How much memory was requested.
    Requested,
    /// How much memory there is.
    Budget,
    /// The settings of the run.
    Settings,
    /// The phase of the run.
    Phase,
    /// Whether the echoed settings match the model.
    Model,
    /// What this program allocates; only nanoGPT is modelled.
    Program,
}

impl Unknown {
    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            Unknown::Requested => "requested",
            Unknown::Budget => "budget",
            Unknown::Settings => "settings",
            Unknown::Phase => "phase",
            Unknown::Model => "model",
            Unknown::Program => "program",
        }
    }
}

/// What the user says about the GPU.
#[derive(Clone, Copy, Default)]
pub struct Given {
    /// The card.
    pub card: Option<&'static Card>,
    /// Memory that the run can have.
    pub vram: Option<u64>,
    /// Memory that others hold.
    pub used: Option<u64>,
}

/// What is known about the failure.
#[derive(Default)]
pub struct Diagnosis {
    /// The log, if there is one.
    pub log: Option<Log>,
    /// The run, if it is known.
    pub recovered: Option<RecoveredRun>,
    /// Whether the run is one whose memory we have a model of, and the log does not contradict it.
    pub modelled: bool,
    /// The phase in which it failed.
    pub phase: LogPhase,
    /// The phase that is predicted not to fit first.
    pub predicted: Option<LogPhase>,
    /// The tensor that did not fit.
    pub tensor: Option<Named>,
    /// Why it failed.
    pub cause: Cause,
    /// What supports the cause.
    pub reasons: Vec<Said>,
    /// Memory available to this run.
    pub room: Option<Room>,
    /// What held the memory.
    pub account: Account,
    /// The predicted peak of each phase in PyTorch.
    pub peaks: Vec<Peak>,
    /// Device memory of the largest of them.
    pub needs: Option<u64>,
    /// The text's claims and the usual advice, with verdicts.
    pub advice: Vec<Judged>,
    /// The settings that the text suggests, together.
    pub suggested: Option<Suggested>,
    /// What to try, for this program and this machine.
    pub remedies: Vec<Remedy>,
    /// Changes to nanoGPT's settings that fit, the best first.
    pub fixes: Vec<Fix>,
    /// A change to nanoGPT's code.
    pub patch: Option<Patch>,
    /// The fitGPT command that runs it.
    pub fitgpt: Option<FitgptCommand>,
    /// What remains unknown.
    pub unknown: Vec<Unknown>,
}

impl Diagnosis {
    /// Diagnoses a log, settings, or both.
    pub fn new(
        log: Option<Log>,
        recovered: Option<RecoveredRun>,
        given: Given,
    ) -> Result<Diagnosis, SearchError> {
        let log_ref = log.as_ref();
        // Settings that contradict the log do not belong to this run, so ignore them.
        let known = recovered.as_ref().filter(|run| is_modelled(run, log_ref));
        let mut found = Diagnosis::judged(log_ref, known, given)?;
        found.unknown = unknown(log_ref, recovered.as_ref(), found.modelled, found.room);
        found.advise(log_ref, known, given)?;
        Ok(Diagnosis { log, recovered, ..found })
    }

    /// What happened, and why.
    fn judged(
        log: Option<&Log>,
        known: Option<&RecoveredRun>,
        given: Given,
    ) -> Result<Diagnosis, SearchError> {
        let played = known.map(|run| play(&run.torch)).transpose()?;
        let peaks = played.as_ref().map_or(Vec::new(), Played::peaks);
        let needs = peaks.iter().map(|peak| fixes::needs(peak.bytes)).max();
        let tensor = log.and_then(|log| name(log, known, played.as_ref()));
        let moment = tensor.as_ref().and_then(|tensor| tensor.birth.as_ref()).zip(played.as_ref());
        let moment = moment.map(|(birth, played)| (played, birth));
        let account = log.map_or_else(Account::default, |log| Account::new(log, moment));
        let Given { card, vram, used } = given;
        let room = Room::find(log.map(|log| (log, &account)), card, vram, used)
            .filter(|_| log.is_none_or(|log| log.backend != Backend::Host));
        let dies = room.and_then(|room| first_over(&peaks, room));
        let silent = log.is_none_or(|log| asked(log).is_none());
        let phase = match log.map(|log| log.traceback.phase) {
            Some(LogPhase::Unknown) if silent && known.is_some() => dies,
            Some(phase) => Some(phase),
            None => dies,
        };
        let phase = phase.unwrap_or(LogPhase::Unknown);
        let tensor = match (&tensor, &played, dies) {
            (None, Some(played), Some(dies)) if silent => predicted(played, &peaks, dies),
            _ => tensor,
        };
        let evidence = Evidence {
            log,
            tensor: tensor.as_ref(),
            account: &account,
            peaks: &peaks,
            needs,
            room,
            phase: if silent { dies.unwrap_or(phase) } else { phase },
            parameters: parameters(log, known),
            resumes: known.is_some_and(|run| run.torch.resumed),
        };
        let (cause, reasons) = evidence.judge();
        let modelled = known.is_some();
        Ok(Diagnosis {
            modelled,
            phase,
            predicted: dies,
            tensor,
            cause,
            reasons,
            room,
            account,
            peaks,
            needs,
            ..Diagnosis::default()
        })
    }

    /// What to do about it.
    fn advise(
        &mut self,
        log: Option<&Log>,
        known: Option<&RecoveredRun>,
        given: Given,
    ) -> Result<(), SearchError> {
        let fits = self.needs.zip(self.room).map(|(needs, room)| room.fit(needs));
        let card = given.card.or_else(|| card_of(self.room?.limit));
        match known.zip(self.room) {
            // For a config alone that fits, no advice is needed.
            Some(_) if fits == Some(Fit::Fits) && log.is_none() => {}
            Some((run, room)) => {
                self.advice = judge(run, log, self.cause, room)?;
                self.suggested = log.and_then(|log| Suggested::find(run, log, room));
                self.fixes = fixes::fixes(run, room, card)?;
                self.patch = Patch::find(run, &room, &self.fixes)?;
            }
            None => {
                self.advice =
                    log.map_or(Vec::new(), |log| judge_message(log, self.cause, &self.account));
            }
        }
        if let Some((run, room)) = known.zip(self.room) {
            self.fitgpt = FitgptCommand::find(run, given.card, room)?;
        }
        if let Some(log) = log.filter(|log| !is_silent(log)) {
            self.remedies = remedies(log, self.cause, &self.account, self.modelled);
        }
        if self.modelled && card.is_some_and(|card| !card.is_supported()) {
            self.remedies.push(Remedy::Unsupported);
        }
        Ok(())
    }

    /// Whether there was nothing to diagnose: no message, no text about one, no settings.
    pub fn is_empty(&self) -> bool {
        self.log.as_ref().is_none_or(is_silent) && !self.modelled
    }

    /// Whether the run needs a change, and no setting near it is one.
    pub fn lacks_fixes(&self) -> bool {
        let fit = self.needs.zip(self.room).map(|(needs, room)| room.fit(needs));
        self.fixes.is_empty() && fit.is_some_and(|fit| fit != Fit::Fits)
    }

    /// Whether a config alone would not fit with a margin.
    pub fn would_not_fit(&self) -> bool {
        let fit = self.needs.zip(self.room).map(|(needs, room)| room.fit(needs));
        self.log.is_none() && fit.is_some_and(|fit| fit != Fit::Fits)
    }
}

/// Whether a text neither has a message nor is about one.
fn is_silent(log: &Log) -> bool {
    log.message.dialect == Dialect::None && log.claims.is_empty()
}

/// Whether our model of PyTorch's memory is a model of this run: nanoGPT's settings, that the log
/// does not contradict.
fn is_modelled(run: &RecoveredRun, log: Option<&Log>) -> bool {
    let Some(log) = log else {
        return true;
    };
    let program = log.program.program;
    let given = run.settings.iter().any(|row| row.origin == Origin::Given);
    let ours = program.is_nanogpt() || program == Program::Fitgpt;
    let host = log.backend == Backend::Host;
    !host && (ours || (given && program == Program::Unknown)) && run.agrees_with(log)
}

fn name(log: &Log, known: Option<&RecoveredRun>, played: Option<&Played>) -> Option<Named> {
    let Some(requested) = &log.message.requested else {
        return of_code(log);
    };
    if is_block(requested.bytes) || log.backend == Backend::Host {
        return None;
    }
    if let Some(run) = known.filter(|_| log.run.slow_attention)
        && let Some(scores) = attention_scores(requested, &run.torch)
    {
        return Some(scores);
    }
    let of_run = played.and_then(|played| of_run(log, played));
    of_run.map(|tensor| with_scores(tensor, log, known)).or_else(|| of_code(log)).or_else(|| {
        let vocabulary = log.run.vocab_size.or_else(|| known.map(|run| run.dims.vocab_size));
        let general = in_general(requested, log, vocabulary);
        general.or_else(|| parameter_in_general(requested, log))
    })
}

/// Before version 2.0 PyTorch has no fused attention, so nanoGPT builds its scores: another tensor
/// that the request may have been for.
fn with_scores(mut tensor: Named, log: &Log, known: Option<&RecoveredRun>) -> Named {
    let old = matches!(log.message.dialect, Dialect::Torch13 | Dialect::Torch20);
    let scores = log.message.requested.as_ref().zip(known).filter(|_| old);
    let scores = scores.and_then(|(requested, run)| attention_scores(requested, &run.torch));
    if let Some(scores) = scores.filter(|_| tensor.confidence == Confidence::Possible) {
        tensor.alternatives.insert(0, scores.into());
    }
    tensor
}

/// Parameters of the model: of the run, if it is known, else as the log says.
fn parameters(log: Option<&Log>, known: Option<&RecoveredRun>) -> Option<u64> {
    let said = log.and_then(|log| log.run.parameters.or(log.run.named_model));
    known.map(RecoveredRun::parameters).or(said.map(|said| said.count))
}

/// The first phase that does not fit safely.
fn first_over(peaks: &[Peak], room: Room) -> Option<LogPhase> {
    let over = |peak: &&Peak| room.fit(fixes::needs(peak.bytes)) != Fit::Fits;
    peaks.iter().find(over).map(|peak| match peak.phase {
        Phase::FirstEval => LogPhase::FirstEval,
        Phase::Forward => LogPhase::Forward,
        Phase::Backward => LogPhase::Backward,
        Phase::Optimizer => LogPhase::Optimizer,
        Phase::Eval => LogPhase::Eval,
    })
}

/// Without a request: the tensor that is allocated at the moment that does not fit.
fn predicted(played: &Played, peaks: &[Peak], phase: LogPhase) -> Option<Named> {
    let peak = peaks.iter().find(|peak| peak.phase.name() == phase.name())?;
    let asked = peak.asked.first().or_else(|| {
        peak.alive.iter().find(|alive| matches!(alive.role, Role::Logits | Role::Activation))
    })?;
    let birth = played.births().into_iter().find(|birth| birth.name == asked.name)?;
    Some(Named {
        name: birth.name.clone(),
        shape: birth.dims.clone(),
        dtype: birth.dtype,
        role: birth.role,
        confidence: Confidence::Likely,
        alternatives: Vec::new(),
        birth: Some(birth),
    })
}

fn unknown(
    log: Option<&Log>,
    recovered: Option<&RecoveredRun>,
    modelled: bool,
    room: Option<Room>,
) -> Vec<Unknown> {
    let mut found = Vec::new();
    let host = log.is_some_and(|log| log.backend == Backend::Host);
    if let Some(log) = log {
        let own = log.message.dialect == Dialect::Fitgpt;
        let ours = log.program.program.is_nanogpt() || own;
        if asked(log).is_none() && !host {
            found.push(Unknown::Requested);
        }
        if log.traceback.phase == LogPhase::Unknown && !own && !host {
            found.push(Unknown::Phase);
        }
        if recovered.is_some_and(|run| ours && !run.agrees_with(log)) {
            found.push(Unknown::Model);
        }
        if !ours && !modelled {
            found.push(Unknown::Program);
            return budget(found, host, room);
        }
    }
    if recovered.is_none() {
        found.push(Unknown::Settings);
    }
    budget(found, host, room)
}

fn budget(mut found: Vec<Unknown>, host: bool, room: Option<Room>) -> Vec<Unknown> {
    if room.is_none() && !host {
        found.push(Unknown::Budget);
    }
    found
}
