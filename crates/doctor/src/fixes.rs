//! What to change in PyTorch's nanoGPT, each with the memory that it is predicted to take. Settings
//! that keep the tokens of an iteration come first.

use crate::case::Case;
use crate::torch::{Peak, TorchRun, peaks};
use model::gpt2::reported_parameters;
use model::{Dims, Level};
use plan::hardware::Card;
use plan::{Bytes, Dtype};
use search::{Cut, Levers, Machine, SearchError, plan_again};
use spec::{InitFrom, RunSpec};

/// What a PyTorch process holds beside its tensors: context, kernels, cuBLAS (0.68 to 0.76 GiB
/// measured).
const CONTEXT: u64 = 768 << 20;

/// Free pieces between tensors: some of every hundred bytes cannot be used.
const FRAGMENTS: f64 = 1.03;

/// Larger micro-batches and more heads are not tried.
const LARGEST_BATCH: u64 = 1024;
const MOST_HEADS: u64 = 128;

/// Fixes that are told.
const TOLD: usize = 4;

/// A change of settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Fix {
    /// Keys with their values.
    pub settings: Vec<(&'static str, String)>,
    /// Bytes of the card, context included.
    pub device_bytes: u64,
    /// Tokens of an iteration.
    pub tokens_per_iteration: u64,
    /// Predicted for nanoGPT on the card, where that is known.
    pub tokens_per_second: Option<f64>,
    /// What it is.
    pub kind: FixKind,
}

/// What a fix is, for its sentence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FixKind {
    /// A smaller micro-batch, more of them.
    SmallerBatch,
    /// Compiled code keeps fewer copies.
    Compile,
    /// Shorter sequences, more of them.
    ShorterContext,
    /// A model with so many million parameters.
    SmallerModel(f64),
}

/// Bytes of the card for a peak of tensors.
pub fn needs(peak: u64) -> u64 {
    ((peak as f64 * FRAGMENTS) as u64).saturating_add(CONTEXT)
}

/// The largest peak of a run, as bytes of the card.
pub fn device_bytes(run: &TorchRun) -> Result<u64, SearchError> {
    let largest = peaks(run)?.iter().map(|peak: &Peak| peak.bytes).max().unwrap_or(0);
    Ok(needs(largest))
}

/// What nanoGPT reaches of the speed that our cost model gives the same work: 0.92 compiled and
/// 0.68 eager, by runs of 124M on an H200 (`docs/experiments.md`).
const COMPILED_SHARE: f64 = 0.92;
const EAGER_SHARE: f64 = 0.68;

/// Predicted speed of a changed run on a card: the cost model's time for slices of its micro-batch.
fn speed(case: &Case, torch: &TorchRun, card: Option<&Card>) -> Result<Option<f64>, SearchError> {
    let Some(card) = card else {
        return Ok(None);
    };
    let accumulation = torch.accumulation.clamp(1, 8); // the update's share is small beyond
    let run = RunSpec {
        batch_size: torch.batch,
        gradient_accumulation_steps: accumulation,
        block_size: torch.positions,
        eval_block_size: torch.positions,
        ..case.run.clone()
    };
    let all = Bytes::new(1 << 60).unwrap_or(Bytes::ZERO);
    let machine = Machine::gpu(card.hardware(torch.compute == Dtype::F32), &run, all, all);
    let cut = Cut {
        slices: vec![torch.batch; accumulation as usize],
        head_chunk: torch.batch.saturating_mul(torch.positions),
        levels: vec![Level::R0; torch.dims.n_layer as usize],
        levers: Levers::NONE,
    };
    let planned = plan_again(&run, torch.dims, &machine, &cut)?.ok();
    let share = if torch.compiled { COMPILED_SHARE } else { EAGER_SHARE };
    let rate =
        planned.and_then(|planned| planned.predict(&run, &machine.hardware).tokens_per_second);
    Ok(rate.map(|rate| rate * share))
}

/// Changes that fit, the best first.
pub fn fixes(case: &Case, budget: u64, card: Option<&Card>) -> Result<Vec<Fix>, SearchError> {
    if device_bytes(&case.torch)? <= budget {
        return Ok(Vec::new());
    }
    let search = Search { case, budget, card };
    let mut found = Vec::new();
    if !case.torch.compiled {
        let run = TorchRun { compiled: true, ..case.torch.clone() };
        let settings = vec![("compile", "True".to_string())];
        found.extend(search.tried(&run, settings, FixKind::Compile)?);
    }
    found.extend(search.smaller_batch()?);
    found.extend(search.shorter()?);
    found.extend(search.smaller_model()?);
    found.truncate(TOLD);
    Ok(found)
}

/// For whom changes are sought.
struct Search<'a> {
    case: &'a Case,
    budget: u64,
    card: Option<&'a Card>,
}

impl Search<'_> {
    /// A change, if it fits.
    fn tried(
        &self,
        run: &TorchRun,
        settings: Vec<(&'static str, String)>,
        kind: FixKind,
    ) -> Result<Option<Fix>, SearchError> {
        let device_bytes = device_bytes(run)?;
        if device_bytes > self.budget {
            return Ok(None);
        }
        let sequences = run.batch.saturating_mul(run.accumulation);
        Ok(Some(Fix {
            settings,
            device_bytes,
            tokens_per_iteration: sequences.saturating_mul(run.positions),
            tokens_per_second: speed(self.case, run, self.card)?,
            kind,
        }))
    }

    /// The largest micro-batch that fits and divides the iteration's sequences.
    fn smaller_batch(&self) -> Result<Option<Fix>, SearchError> {
        let torch = &self.case.torch;
        let sequences = self.case.run.sequences_per_iteration();
        let largest = torch.batch.min(LARGEST_BATCH + 1);
        let batches = (1..largest).rev().filter(|batch| sequences.is_multiple_of(*batch));
        let change = |batch: u64| {
            let accumulation = sequences / batch;
            TorchRun { batch, eval_batch: batch, accumulation, ..torch.clone() }
        };
        let Some(batch) = self.largest(batches.collect(), change)? else {
            return Ok(None);
        };
        self.tried(&change(batch), cut(batch, sequences / batch), FixKind::SmallerBatch)
    }

    /// The first of falling sizes that fits; smaller ones need less, so few are looked at.
    fn largest(
        &self,
        falling: Vec<u64>,
        change: impl Fn(u64) -> TorchRun,
    ) -> Result<Option<u64>, SearchError> {
        let (mut low, mut high) = (0, falling.len());
        while low < high {
            let middle = (low + high) / 2;
            match device_bytes(&change(falling[middle]))? <= self.budget {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        Ok(falling.get(low).copied())
    }

    /// Half the context and twice the micro-batches, as often as it takes.
    fn shorter(&self) -> Result<Option<Fix>, SearchError> {
        let torch = &self.case.torch;
        let (mut positions, mut accumulation) = (torch.positions, torch.accumulation);
        while positions >= 256 && accumulation < 1 << 20 {
            (positions, accumulation) = (positions / 2, accumulation * 2);
            let dims = Dims { block_size: positions, ..self.case.dims };
            let run = TorchRun { dims, positions, accumulation, ..torch.clone() };
            let settings = vec![
                ("block_size", positions.to_string()),
                ("gradient_accumulation_steps", accumulation.to_string()),
            ];
            if let Some(fix) = self.tried(&run, settings, FixKind::ShorterContext)? {
                return Ok(Some(fix));
            }
        }
        Ok(None)
    }

    /// The widest model of the same head size that fits: with the batch as it is if that keeps half
    /// the width, else with single sequences. OpenAI's models and resumed ones have their sizes.
    fn smaller_model(&self) -> Result<Option<Fix>, SearchError> {
        let (case, torch) = (self.case, &self.case.torch);
        if case.run.init_from != InitFrom::Scratch {
            return Ok(None);
        }
        let dims = case.dims;
        let head = dims.n_embd / dims.n_head.max(1);
        let as_it_is = (torch.batch, torch.accumulation);
        let single = (1, case.run.sequences_per_iteration());
        for ((batch, accumulation), least) in [(as_it_is, dims.n_head.div_ceil(2)), (single, 1)] {
            let change = |heads: u64| {
                let dims = Dims { n_head: heads, n_embd: heads * head, ..dims };
                TorchRun { dims, batch, eval_batch: batch, accumulation, ..torch.clone() }
            };
            let falling = (least..dims.n_head.min(MOST_HEADS)).rev().collect();
            let Some(heads) = self.largest(falling, change)? else {
                continue;
            };
            let run = change(heads);
            let kind = FixKind::SmallerModel(reported_parameters(&run.dims)? as f64 / 1e6);
            let mut settings =
                vec![("n_head", heads.to_string()), ("n_embd", run.dims.n_embd.to_string())];
            if (batch, accumulation) != as_it_is {
                settings.extend(cut(batch, accumulation));
            }
            return self.tried(&run, settings, kind);
        }
        Ok(None)
    }
}

fn cut(batch: u64, accumulation: u64) -> Vec<(&'static str, String)> {
    vec![
        ("batch_size", batch.to_string()),
        ("gradient_accumulation_steps", accumulation.to_string()),
    ]
}
