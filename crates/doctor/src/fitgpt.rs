//! The same run in fitGPT: unchanged, or with the first suggestion that fits; its memory, speed and
//! time on this card.

use crate::recovered::{Defect, RecoveredRun};
use crate::room::{Room, card_of};
use plan::Bytes;
use plan::hardware::Card;
use search::{Machine, SearchError, first_suggestion, plan_for};

/// How fitGPT runs the same model.
#[derive(Clone, Debug, PartialEq)]
pub struct FitgptCommand {
    /// Arguments of `fitgpt train`.
    pub arguments: Vec<String>,
    /// Device memory of its plan.
    pub device_bytes: u64,
    /// Whether the settings are unchanged.
    pub unchanged: bool,
    /// The card that its speed is predicted for.
    pub card: &'static str,
    /// Whether the card was guessed by its memory.
    pub guessed: bool,
    /// Predicted speed; of an unchanged run.
    pub tokens_per_second: Option<f64>,
    /// Predicted time of the whole run.
    pub run_seconds: Option<f64>,
}

impl FitgptCommand {
    /// The command for a run in this much memory; none if the card cannot run it, or nothing fits.
    pub fn find(
        recovered: &RecoveredRun,
        card: Option<&'static Card>,
        room: Room,
    ) -> Result<Option<FitgptCommand>, SearchError> {
        let single = recovered.run.dtype == spec::RequestedDtype::Float32;
        let guess = card.or_else(|| card_of(room.limit));
        // Without a card of such memory, the plan is made for a usual one, and no speed is said.
        let timed = guess.is_some();
        let guess = guess.or_else(|| Card::find("RTX 4070"));
        let free = room.free();
        let (Some(gpu), Some(budget), Some(host)) = (guess, Bytes::new(free), Bytes::new(1 << 50))
        else {
            return Ok(None);
        };
        if !gpu.is_supported() {
            return Ok(None);
        }
        let machine = Machine::gpu(gpu.hardware(single), &recovered.run, budget, host);
        let blank = FitgptCommand {
            arguments: Vec::new(),
            device_bytes: 0,
            unchanged: recovered.defects.is_empty(),
            card: gpu.name,
            guessed: card.is_none(),
            tokens_per_second: None,
            run_seconds: None,
        };
        match plan_for(&recovered.run, recovered.dims, &machine) {
            Ok(planned) => {
                let predicted = planned.predict(&recovered.run, &machine.hardware);
                Ok(Some(FitgptCommand {
                    arguments: arguments(recovered, Vec::new(), free),
                    device_bytes: planned.device_bytes(&machine),
                    tokens_per_second: predicted.tokens_per_second.filter(|_| timed),
                    run_seconds: Some(predicted.run_seconds).filter(|_| timed),
                    ..blank
                }))
            }
            Err(SearchError::DoesNotFit(_)) => {
                let found =
                    first_suggestion(&recovered.run, recovered.dims, &machine, &machine.hardware);
                Ok(found.map(|one| {
                    let more = one.arguments().split(' ').map(str::to_string).collect();
                    FitgptCommand {
                        arguments: arguments(recovered, more, free),
                        device_bytes: one.device_bytes,
                        unchanged: false,
                        ..blank
                    }
                }))
            }
            Err(other) => Err(other),
        }
    }
}

fn arguments(recovered: &RecoveredRun, more: Vec<String>, free: u64) -> Vec<String> {
    // Rounded down to two decimals, so that the printed budget is not larger. A number that had two
    // decimals stays the same.
    let hundredths = (free as f64 * 100.0 / (1u64 << 30) as f64 + 1e-3) as u64;
    let vram = format!("--vram={}.{:02}GiB", hundredths / 100, hundredths % 100);
    let files = recovered.files.iter().cloned();
    let typed: Vec<String> = files.chain(recovered.arguments.clone()).collect();
    // Without a config or a data set, `train` would run its built-in demo.
    let is_source = |word: &String| {
        !word.starts_with("--")
            || word.starts_with("--dataset=")
            || word.starts_with("--init_from=")
    };
    let dataset =
        (!typed.iter().any(is_source)).then(|| format!("--dataset={}", recovered.run.dataset));
    let mended = recovered.defects.iter().map(|defect| match defect {
        Defect::Heads { nearest, .. } => format!("--n_head={nearest}"),
    });
    dataset.into_iter().chain(typed).chain(mended).chain(more).chain([vram]).collect()
}
