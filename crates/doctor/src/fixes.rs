//! Changes to nanoGPT's settings, each with its predicted memory. Changes that keep the tokens per
//! iteration come first.

use crate::recovered::RecoveredRun;
use crate::room::{Fit, Room};
use crate::torch::{Peak, TorchRun, peaks};
use model::{Dims, Level};
use plan::hardware::Card;
use plan::{Bytes, Dtype};
use search::{Cut, Machine, SearchError, StateOptions, plan_again};
use spec::{Gpt2, InitFrom, RunSpec};

/// Memory of a PyTorch process outside its tensors: context, kernels, cuBLAS (0.68 to 0.76 GiB
/// measured).
const CONTEXT: u64 = 768 << 20;

/// Fragmentation: about 3 % of the memory cannot be used.
const FRAGMENTS: f64 = 1.03;

/// The search tries no larger micro-batch and no more heads.
pub const LARGEST_BATCH: u64 = 1024;
const MOST_HEADS: u64 = 128;

/// Most fixes to show.
const TOLD: usize = 4;

/// A change of settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Fix {
    /// Keys with their values.
    pub settings: Vec<(&'static str, String)>,
    /// Device memory, including the CUDA context.
    pub device_bytes: u64,
    /// Tokens of an iteration.
    pub tokens_per_iteration: u64,
    /// Predicted speed of nanoGPT, if the card is known.
    pub tokens_per_second: Option<f64>,
    /// What kind of change it is.
    pub kind: FixKind,
}

/// The kind of a fix, which selects its sentence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FixKind {
    /// Smaller micro-batches, but more of them.
    SmallerBatch,
    /// Compiled code keeps fewer copies.
    Compile,
    /// Shorter sequences, but more of them.
    ShorterContext,
    /// A model with this many million parameters.
    SmallerModel(f64),
}

/// Device memory needed for a peak of tensors.
pub fn needs(peak: u64) -> u64 {
    ((peak as f64 * FRAGMENTS) as u64).saturating_add(CONTEXT)
}

/// Device memory needed for the largest peak of a run.
pub fn device_bytes(run: &TorchRun) -> Result<u64, SearchError> {
    let largest = peaks(run)?.iter().map(|peak: &Peak| peak.bytes).max().unwrap_or(0);
    Ok(needs(largest))
}

/// nanoGPT's measured speed as a fraction of what our cost model predicts: 0.86 compiled and 0.63
/// eager, for the 124M model on an H200 (`docs/experiments.md`).
const COMPILED_SHARE: f64 = 0.86;
const EAGER_SHARE: f64 = 0.63;

/// Predicted speed of a changed run on a card: the cost model's time for slices of its micro-batch.
fn speed(
    recovered: &RecoveredRun,
    torch: &TorchRun,
    card: Option<&Card>,
) -> Result<Option<f64>, SearchError> {
    let Some(card) = card else {
        return Ok(None);
    };
    let accumulation = torch.accumulation.clamp(1, 8); // the update's share is small beyond
    let run = RunSpec {
        batch_size: torch.batch,
        gradient_accumulation_steps: accumulation,
        block_size: torch.positions,
        eval_block_size: torch.positions,
        ..recovered.run.clone()
    };
    let all = Bytes::new(1 << 60).unwrap_or(Bytes::ZERO);
    let machine = Machine::gpu(card.hardware(torch.compute == Dtype::F32), &run, all, all);
    let cut = Cut {
        slices: vec![torch.batch; accumulation as usize],
        head_chunk: torch.batch.saturating_mul(torch.positions),
        levels: vec![Level::R0; torch.dims.n_layer as usize],
        state_options: StateOptions::DEFAULT,
    };
    let planned = plan_again(&run, torch.dims, &machine, &cut)?.ok();
    let share = if torch.compiled { COMPILED_SHARE } else { EAGER_SHARE };
    let rate =
        planned.and_then(|planned| planned.predict(&run, &machine.hardware).tokens_per_second);
    Ok(rate.map(|rate| rate * share))
}

/// Changes that fit with a margin, the best first.
pub fn fixes(
    recovered: &RecoveredRun,
    room: Room,
    card: Option<&Card>,
) -> Result<Vec<Fix>, SearchError> {
    if room.fit(device_bytes(&recovered.torch)?) == Fit::Fits {
        return Ok(Vec::new());
    }
    let search = Search { recovered, target: room.target(), card };
    let mut found = Vec::new();
    if !recovered.torch.compiled {
        let run = TorchRun { compiled: true, ..recovered.torch.clone() };
        let settings = vec![("compile", "True".to_string())];
        found.extend(search.tried(&run, settings, FixKind::Compile)?);
    }
    found.extend(search.smaller_batch()?);
    found.extend(search.shorter()?);
    found.extend(search.smaller_model()?);
    found.truncate(TOLD);
    Ok(found)
}

/// The run for which to find changes.
struct Search<'a> {
    recovered: &'a RecoveredRun,
    /// With a margin below what is free.
    target: u64,
    card: Option<&'a Card>,
}

impl Search<'_> {
    /// Returns a change if it fits.
    fn tried(
        &self,
        run: &TorchRun,
        settings: Vec<(&'static str, String)>,
        kind: FixKind,
    ) -> Result<Option<Fix>, SearchError> {
        let device_bytes = device_bytes(run)?;
        if device_bytes > self.target {
            return Ok(None);
        }
        let sequences = run.batch.saturating_mul(run.accumulation);
        Ok(Some(Fix {
            settings,
            device_bytes,
            tokens_per_iteration: sequences.saturating_mul(run.positions),
            tokens_per_second: speed(self.recovered, run, self.card)?,
            kind,
        }))
    }

    /// The largest micro-batch that fits and divides the iteration's sequences.
    fn smaller_batch(&self) -> Result<Option<Fix>, SearchError> {
        let torch = &self.recovered.torch;
        let sequences = self.recovered.run.sequences_per_iteration();
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

    /// The largest size that fits. Smaller sizes need less memory, so a binary search is enough.
    fn largest(
        &self,
        falling: Vec<u64>,
        change: impl Fn(u64) -> TorchRun,
    ) -> Result<Option<u64>, SearchError> {
        let (mut low, mut high) = (0, falling.len());
        while low < high {
            let middle = (low + high) / 2;
            match device_bytes(&change(falling[middle]))? <= self.target {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        Ok(falling.get(low).copied())
    }

    /// Halves the context and doubles the micro-batches until it fits.
    fn shorter(&self) -> Result<Option<Fix>, SearchError> {
        let torch = &self.recovered.torch;
        let (mut positions, mut accumulation) = (torch.positions, torch.accumulation);
        while positions >= 256 && accumulation < 1 << 20 {
            (positions, accumulation) = (positions / 2, accumulation * 2);
            let dims = Dims { block_size: positions, ..self.recovered.dims };
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

    /// The largest of OpenAI's smaller models that fits.
    fn smaller_pretrained(&self, name: Gpt2) -> Result<Option<Fix>, SearchError> {
        let (recovered, torch) = (self.recovered, &self.recovered.torch);
        let narrower = |one: &Gpt2| one.dims().n_embd < name.dims().n_embd;
        for smaller in Gpt2::ALL.into_iter().rev().filter(narrower) {
            let dims = same_context(smaller, torch.dims);
            let run = TorchRun { dims, ..torch.clone() };
            let device_bytes = device_bytes(&run)?;
            if device_bytes > self.target {
                continue;
            }
            let parameters = recovered.run.architecture().reported_parameters(&dims)?;
            let sequences = run.batch.saturating_mul(run.accumulation);
            return Ok(Some(Fix {
                settings: vec![("init_from", smaller.word().to_string())],
                device_bytes,
                tokens_per_iteration: sequences.saturating_mul(run.positions),
                tokens_per_second: None,
                kind: FixKind::SmallerModel(parameters as f64 / 1e6),
            }));
        }
        Ok(None)
    }

    /// The widest model with the same head size that fits: with the same batch if that keeps half
    /// the width, else with a batch of one sequence. OpenAI's models and resumed runs have fixed
    /// sizes.
    fn smaller_model(&self) -> Result<Option<Fix>, SearchError> {
        let (recovered, torch) = (self.recovered, &self.recovered.torch);
        if let Some(name) = recovered.run.init_from.pretrained().and_then(|one| one.openai()) {
            return self.smaller_pretrained(name);
        }
        if recovered.run.init_from != InitFrom::Scratch {
            return Ok(None);
        }
        let dims = recovered.dims;
        let head = dims.n_embd / dims.n_head.max(1);
        let as_it_is = (torch.batch, torch.accumulation);
        let single = (1, recovered.run.sequences_per_iteration());
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
            let parameters = recovered.run.architecture().reported_parameters(&run.dims)?;
            let kind = FixKind::SmallerModel(parameters as f64 / 1e6);
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

/// One of OpenAI's models with the positions and the vocabulary of a run.
pub(crate) fn same_context(model: Gpt2, of: Dims) -> Dims {
    Dims { block_size: of.block_size, vocab_size: of.vocab_size, ..model.dims() }
}

fn cut(batch: u64, accumulation: u64) -> Vec<(&'static str, String)> {
    vec![
        ("batch_size", batch.to_string()),
        ("gradient_accumulation_steps", accumulation.to_string()),
    ]
}
