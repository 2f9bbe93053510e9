//! Everything about an evaluation that is known before its memory is planned: the checkpoint, the
//! tokens, the windows.

use crate::error::TrainError;
use crate::eval_data::{EvalData, Kind};
use crate::hellaswag::Questions;
use crate::saved_run::SavedRun;
use crate::settings_json;
use crate::setup::{said, with_model};
use data::Split;
use model::Dims;
use search::{Machine, Planned, plan_for_evaluation};
use serde_json::Value;
use spec::{Environment, Origin, RunSpec, Sampler, Setting, SettingNotice, Settings, SpecError};
use std::path::PathBuf;
use tokenizer::Tokenizer;

/// Rows of HellaSwag have a multiple of this many inputs.
const ROUND: u64 = 8;

/// Keys whose notices are about training alone: they say nothing about an evaluation.
const OF_TRAINING: [&str; 6] =
    ["wandb_log", "backend", "sampler", "checkpoint_format", "min_lr", "lr_decay_iters"];

/// What to evaluate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalRequest {
    /// A data set, a file of tokens or a text; none for the checkpoint's own data set.
    pub data: Option<String>,
    /// The split of a data set.
    pub split: Split,
    /// Tokens from one window to the next; none for windows without overlap.
    pub stride: Option<u64>,
    /// A file of questions instead of tokens.
    pub hellaswag: Option<PathBuf>,
}

/// What is scored.
pub enum Work {
    /// All tokens.
    Whole(EvalData, Option<u64>),
    /// Random batches: as many as `eval_iters` says.
    Batches(EvalData),
    /// Questions.
    Questions(Questions),
}

/// An evaluation before it is planned.
pub struct EvalSetup {
    /// The settings, typed and checked.
    pub spec: RunSpec,
    /// Lines about settings and about the checkpoint.
    pub notices: Vec<SettingNotice>,
    /// The model's sizes.
    pub dims: Dims,
    /// The checkpoint.
    pub saved: SavedRun,
    /// Converts ids to text, or why nothing does.
    pub tokenizer: Result<Tokenizer, String>,
    /// The name of the data.
    pub name: String,
    /// What is scored.
    pub work: Work,
}

impl EvalSetup {
    /// Opens the data for a checkpoint.
    pub fn new(
        mut settings: Settings,
        environment: &Environment,
        request: &EvalRequest,
        saved: SavedRun,
    ) -> Result<EvalSetup, TrainError> {
        let environment = &with_model(environment, Some(&saved));
        let own = saved.document.config.get("dataset").and_then(Value::as_str).map(str::to_owned);
        let given = settings.get("dataset").filter(|name| name.is_given());
        let own = given.map(|name| name.value.plain()).or(own);
        settings_json::fill_in_for_evaluation(&mut settings, &saved.document.config)?;
        let is_given = |key: &str| settings.get(key).is_some_and(Setting::is_given);
        let in_batches = is_given("eval_iters");
        check(request, in_batches)?;
        if !is_given("eval_block_size") {
            settings.set("eval_block_size", spec::Value::Int(0), Origin::Default)?;
        }
        let (mut spec, mut notices) = spec::resolve(&settings, environment)?;
        notices.retain(|notice| !OF_TRAINING.contains(&notice.key));
        notices.extend(said(&saved));
        let dims = saved.document.dims;
        if spec.eval_block_size > dims.block_size {
            let what = format!(
                "the model's context has {} tokens, but block_size={} was asked for",
                dims.block_size, spec.eval_block_size
            );
            return Err(TrainError::Mismatch { path: saved.path.clone(), what });
        }
        let tokenizer = saved.tokenizer().map_err(|error| error.to_string());
        let (name, work) = match &request.hellaswag {
            Some(path) => {
                let tokenizer = tokenizer.as_ref().map_err(|why| TrainError::Text {
                    what: format!("questions need the model's tokenizer: {why}"),
                })?;
                let questions = Questions::read(path, tokenizer, spec.eval_block_size)?;
                let longest = questions.longest().next_multiple_of(ROUND);
                spec.eval_block_size = spec.eval_block_size.min(longest);
                (path.display().to_string(), Work::Questions(questions))
            }
            None => tokens(&mut spec, (&saved, own.as_deref()), &tokenizer, request, in_batches)?,
        };
        Ok(EvalSetup { spec, notices, dims, saved, tokenizer, name, work })
    }

    /// Plans the evaluation. What the data takes in memory is not there for the plan.
    pub fn plan(&self, machine: &Machine) -> Result<Planned, TrainError> {
        let taken = match &self.work {
            Work::Whole(data, _) | Work::Batches(data) => data.stream().memory_bytes(),
            Work::Questions(_) => 0,
        };
        let less = |bytes: plan::Bytes| {
            plan::Bytes::new(bytes.get().saturating_sub(taken)).unwrap_or(plan::Bytes::ZERO)
        };
        let mut machine = machine.clone();
        match &mut machine.host {
            Some(host) => *host = less(*host),
            None => machine.budget = less(machine.budget),
        }
        Ok(plan_for_evaluation(&self.spec, self.dims, &machine)?)
    }
}

/// Refuses flags that contradict each other.
fn check(request: &EvalRequest, in_batches: bool) -> Result<(), SpecError> {
    let EvalRequest { data, stride, hellaswag, .. } = request;
    let pairs = [
        (in_batches && stride.is_some(), "--stride covers everything, eval_iters takes samples"),
        (hellaswag.is_some() && stride.is_some(), "--stride is not for --hellaswag"),
        (hellaswag.is_some() && data.is_some(), "--data and --hellaswag are two evaluations"),
        (hellaswag.is_some() && in_batches, "eval_iters is not for --hellaswag"),
    ];
    match pairs.into_iter().find(|(is_wrong, _)| *is_wrong) {
        Some((_, what)) => Err(SpecError::Conflict { what: format!("{what}: give one of them") }),
        None => Ok(()),
    }
}

/// Opens the tokens and checks that the model can read them.
fn tokens(
    spec: &mut RunSpec,
    (saved, own): (&SavedRun, Option<&str>),
    tokenizer: &Result<Tokenizer, String>,
    request: &EvalRequest,
    in_batches: bool,
) -> Result<(String, Work), TrainError> {
    let name = request.data.as_deref().or(own).ok_or_else(|| TrainError::Text {
        what: format!(
            "{} does not say which data set it was trained on: add --data FILE or --data DATASET",
            saved.path.display()
        ),
    })?;
    let mut data = EvalData::open(name, request.split, tokenizer.as_ref().map_err(String::as_str))?;
    if let (Kind::Split, Ok(other), Ok(own)) = (data.kind, data.dataset.tokenizer(), tokenizer)
        && other != *own
    {
        let what = format!(
            "data set '{}' maps its ids to other text than the model was trained with: evaluate on \
             a text file instead",
            data.dataset.name()
        );
        return Err(TrainError::Mismatch { path: saved.path.clone(), what });
    }
    data.dataset.set_vocab_size(u32::try_from(saved.document.dims.vocab_size).unwrap_or(u32::MAX));
    let tokens = data.stream().len();
    if tokens < 2 {
        let what = format!("{name} has {tokens} tokens; at least 2 are needed");
        return Err(TrainError::Text { what });
    }
    if in_batches {
        if spec.sampler == Sampler::Nanogpt && data.kind != Kind::Split {
            let what = "sampler='nanogpt' replays batches of a data set; use --sampler=fitgpt";
            return Err(SpecError::Conflict { what: what.to_owned() }.into());
        }
        data.stream().check_block_size(spec.eval_block_size)?;
        return Ok((name.to_owned(), Work::Batches(data)));
    }
    if let Some(stride) = request.stride.filter(|stride| *stride > spec.eval_block_size) {
        let what =
            format!("--stride {stride} is longer than the context, {}", spec.eval_block_size);
        return Err(SpecError::Conflict { what }.into());
    }
    // A short text needs no long rows.
    spec.eval_block_size = spec.eval_block_size.min(tokens);
    Ok((name.to_owned(), Work::Whole(data, request.stride)))
}
